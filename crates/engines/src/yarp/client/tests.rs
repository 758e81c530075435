use super::*;
use std::net::TcpListener;
use std::thread::{JoinHandle, sleep, spawn};

/// A byte each 50 ms is no answer, though each read has one.
#[test]
fn who_speaks_slowly_has_the_time_of_one_question() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let speaking = spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        while stream.write_all(b"x").is_ok() {
            sleep(Duration::from_millis(50));
        }
    });
    let why = ask_to_send(&address, Carrier::FastTcp, "/in:i").unwrap_err();
    assert!(matches!(why.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{why}");
    speaking.join().unwrap();
}

#[test]
fn only_a_refused_connection_is_a_dead_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hanging_up = spawn(move || drop(listener.accept().unwrap()));
    assert_eq!(is_at(&address, "/a"), Presence::Unknown);
    hanging_up.join().unwrap();
    assert_eq!(is_at(&address, "/a"), Presence::Gone, "nobody listens any more");
    assert_eq!(is_at("no address", "/a"), Presence::Unknown);
}

/// The answers of yarpserver: to `announce` a bottle, and no last line (`NameServerConnectionHandler`, `Subscriber::apply`).
fn answer(command: &str) -> String {
    match command.split(' ').collect::<Vec<_>>()[..] {
        ["register", name, carrier, host, port] => {
            format!("registration name {name} ip {host} port {port} type {carrier}\r\n{END}\r\n")
        }
        ["set", name, key, ..] => format!("port {name} property {key} = tcp\r\n{END}\r\n"),
        ["announce", _] => "[ok]\r\n".to_owned(),
        _ => format!("{END}\r\n"),
    }
}

/// A name server that answers so many connections and is gone then: what it hears.
fn serve(connections: usize) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string());
    let serving = spawn(move || {
        let mut heard = Vec::new();
        for _ in 0..connections {
            let mut stream = listener.accept().unwrap().0;
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let command = line.unwrap().strip_prefix("NAME_SERVER ").unwrap().to_owned();
                stream.write_all(answer(&command).as_bytes()).unwrap();
                heard.push(command);
            }
        }
        heard
    });
    (client, serving)
}

/// yarpserver makes connections that wait for a port when the port is announced.
#[test]
fn a_port_is_announced_after_it_was_registered() {
    let (client, serving) = serve(4);
    client.register("/a", "127.0.0.1:10002".parse().unwrap()).unwrap();
    assert!(client.exchange(&["announce /a".to_owned()]).unwrap().is_empty(), "a bottle ends an answer, too");
    let heard = serving.join().unwrap();
    assert_eq!(heard[..2], ["query /a", "register /a tcp 127.0.0.1 10002"]);
    assert_eq!(heard[heard.len() - 2..], ["announce /a"; 2]);
}

#[test]
fn a_port_whose_announcement_has_no_answer_is_registered() {
    let (client, serving) = serve(2);
    client.register("/a", "127.0.0.1:10002".parse().unwrap()).unwrap();
    assert!(serving.join().unwrap().iter().all(|command| !command.starts_with("announce")));
}
