//! Requests that are refused before their body is read: the connection lives on.

use super::*;

/// One answer, whose connection stays open.
fn answer(stream: &mut Tls) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn say(stream: &mut Tls, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    stream.flush().unwrap();
}

/// The body comes after the answer: nobody read it by chance.
#[test]
fn who_is_refused_may_still_send_its_body_and_ask_again() {
    let testbed = Testbed::new();
    let mut stream = testbed.connect_over(b"http/1.1", Kind::Host, "a");
    for (request, refused) in
        [("POST /v1/hosts/b/actual", 403), ("PUT /v1/plan?after=0", 403), ("POST /v1/nothing", 404)]
    {
        let head = "HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n";
        say(&mut stream, &format!("{request} {head}"));
        let answer = answer(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {refused}")), "{request}: {answer}");
        say(&mut stream, &" ".repeat(100_000));
    }
    say(&mut stream, "GET /v1/hosts/a/desired?epoch=0&since=0&wait=0 HTTP/1.1\r\nhost: b\r\n\r\n");
    assert!(answer(&mut stream).starts_with("HTTP/1.1 200"));
}

/// Nothing is sent, so that it knows at once that nobody reads it.
#[test]
fn who_asks_before_it_sends_is_refused_and_closed() {
    let testbed = Testbed::new();
    let head = "POST /v1/hosts/b/actual HTTP/1.1\r\nhost: b\r\nexpect: 100-continue\r\ncontent-length: 100000\r\n\r\n";
    let answer = request(&mut testbed.connect_over(b"http/1.1", Kind::Host, "a"), head);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
