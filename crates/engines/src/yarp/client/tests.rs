use super::*;
use std::net::TcpListener;
use std::thread::{sleep, spawn};

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
