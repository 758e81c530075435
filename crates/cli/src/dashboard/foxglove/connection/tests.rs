//! A connection in virtual time, over a pair of sockets, at whose other end is `tungstenite`'s client.

use super::*;
use crate::dashboard::foxglove::client::tests::{offers, subscribe};
use crate::dashboard::foxglove::handshake::tests::rules;
use crate::dashboard::foxglove::queue::tests::sample;
use std::os::unix::net::UnixStream;
use tungstenite::ClientRequestBuilder;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: foxglove.sdk.v1\r\nSec-WebSocket-Version: 13\r\n\r\n";
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const PING: u8 = 0x89;
/// The last frame of a message that began before.
const CONTINUATION: u8 = 0x80;
/// The bit of a frame that is its message's last.
const LAST: u8 = 0x80;

/// A connection whose client has sent nothing, and the client's end.
fn connected() -> (Connection<UnixStream>, UnixStream) {
    let (stream, other) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (Connection::new(stream, rules(), 10, 0), other)
}

/// An open connection, and its client.
fn opened() -> (Connection<UnixStream>, WebSocket<UnixStream>) {
    let (mut connection, stream) = connected();
    let request = ClientRequestBuilder::new("ws://localhost/".parse().unwrap()).with_sub_protocol("foxglove.sdk.v1");
    let Err(HandshakeError::Interrupted(opening)) = tungstenite::client(request, stream) else {
        panic!("the client does not wait for an answer")
    };
    connection.read(&offers(), 0);
    let (viewer, _) = opening.handshake().unwrap();
    (connection, viewer)
}

/// The answer to a request, read to its end.
fn answer(request: &str) -> String {
    let (mut connection, mut stream) = connected();
    stream.write_all(request.as_bytes()).unwrap();
    connection.read(&offers(), 0);
    assert!(connection.is_over(), "{request}");
    let mut text = String::new();
    // What was not read of the request ends the stream with an error.
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn a_request_may_come_in_parts_and_has_a_time() {
    let (mut connection, mut stream) = connected();
    for part in [&REQUEST[..40], &REQUEST[40..]] {
        connection.tend(OPENING_NS);
        assert!(!connection.is_over() && connection.client().is_none(), "{part}");
        stream.write_all(part.as_bytes()).unwrap();
        connection.read(&offers(), OPENING_NS);
    }
    assert!(connection.client().is_some());
    connection.tend(OPENING_NS + 1);
    assert!(!connection.is_over());
    let (mut connection, _stream) = connected();
    connection.tend(OPENING_NS + 1);
    assert!(connection.is_over());
}

#[test]
fn a_refused_request_gets_the_reason_and_one_that_opens_no_websocket_gets_nothing() {
    let refused = answer(&REQUEST.replace("localhost", "evil.example"));
    assert!(refused.starts_with("HTTP/1.1 421 Misdirected Request\r\n") && refused.ends_with("--host\n"), "{refused}");
    for (was, is) in [("GET", "POST"), ("HTTP/1.1", "HTTP/1.0"), ("Version: 13", "Version: 8"), ("Upgrade: w", "X: w")]
    {
        assert_eq!(answer(&REQUEST.replace(was, is)), "", "{was:?} as {is:?}");
    }
    assert_eq!(answer(&REQUEST.replace("\r\n\r\n", &"\r\nX: y".repeat(200))), "");
}

/// A frame of a client; the mask is zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let head = match u8::try_from(length) {
        Ok(short) if short < 126 => vec![first, 0x80 | short],
        _ => [&[first, 0xfe][..], &(length as u16).to_be_bytes()].concat(),
    };
    [&head[..], &[0; 4], payload].concat()
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_by_a_code() {
    let unmasked = vec![TEXT, 1, b'a'];
    let huge = [&[TEXT, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    let part = [b'x'; 40_000];
    for (bytes, code) in [
        (unmasked, CloseCode::Protocol),
        (masked(0x40 | TEXT, b"compressed"), CloseCode::Protocol),
        (masked(LAST | 0x3, b""), CloseCode::Protocol),
        (masked(CONTINUATION, b"of nothing"), CloseCode::Protocol),
        ([masked(TEXT & !LAST, b"a"), masked(TEXT, b"b")].concat(), CloseCode::Protocol),
        (masked(PING & !LAST, b"in parts"), CloseCode::Protocol),
        (masked(PING, &[0; 126]), CloseCode::Protocol),
        (masked(TEXT, &[0xff]), CloseCode::Invalid),
        (huge, CloseCode::Size),
        ([masked(TEXT & !LAST, &part), masked(CONTINUATION, &part)].concat(), CloseCode::Size),
    ] {
        let (mut connection, mut viewer) = opened();
        viewer.get_mut().write_all(&bytes).unwrap();
        (0..=bytes.len() / READ).for_each(|_| connection.read(&offers(), 0));
        let told = viewer.read();
        assert!(
            connection.is_over() && matches!(&told, Ok(Message::Close(Some(close))) if close.code == code),
            "{told:?}"
        );
    }
}

#[test]
fn messages_are_answered_whatever_their_frames_and_an_end_by_an_end() {
    let (mut connection, mut viewer) = opened();
    let Message::Text(wanted) = subscribe(&[(7, 2)]) else { panic!("a text") };
    let (first, second) = wanted.as_bytes().split_at(9);
    let parts = [masked(TEXT & !LAST, first), masked(PING, b"?"), masked(CONTINUATION, second), masked(BINARY, b"")];
    viewer.get_mut().write_all(&parts.concat()).unwrap();
    connection.read(&offers(), 0);
    assert_eq!(connection.client().unwrap().channels().collect::<Vec<_>>(), [2]);
    connection.write(0);
    let found: Vec<Message> = std::iter::from_fn(|| viewer.read().ok()).collect();
    let status = |message: &Message| message.to_text().is_ok_and(|text| text.contains("nothing can be published"));
    assert!(found.contains(&Message::Pong(Bytes::from_static(b"?"))) && found.iter().any(status), "{found:?}");
    viewer.close(None).unwrap();
    connection.read(&offers(), 0);
    assert!(connection.is_over() && matches!(viewer.read(), Ok(Message::Close(_))));
}

#[test]
fn a_client_that_does_not_read_is_told_so_by_a_code() {
    let (mut connection, mut viewer) = opened();
    let (wrong, offers) = (Message::text("}"), offers());
    while !connection.is_over() {
        connection.client_mut().unwrap().receive(&wrong, &offers);
    }
    assert!(!connection.write(0) && connection.client().is_none());
    let told = viewer.read();
    assert!(matches!(&told, Ok(Message::Close(Some(close))) if close.code == CloseCode::Policy), "{told:?}");
}

#[test]
fn a_turn_reads_a_bounded_part() {
    let (mut connection, mut viewer) = opened();
    for id in 1..=3 {
        let Message::Text(text) = subscribe(&[(id, id)]) else { panic!("a text") };
        viewer.send(Message::text(format!("{:10000}", text.as_str()))).unwrap();
    }
    for expected in [1, 3] {
        connection.read(&offers(), 0);
        assert_eq!(connection.client().unwrap().channels().count(), expected);
    }
}

#[test]
fn a_large_sample_arrives_whole_once_the_client_reads() {
    const LENGTH: usize = 3 << 20;
    let (mut connection, mut viewer) = opened();
    viewer.send(subscribe(&[(7, 1)])).unwrap();
    connection.read(&offers(), 0);
    connection.client_mut().unwrap().offer(&sample(1, 5, LENGTH));
    assert!(connection.write(0) && !connection.write(0), "the socket is full, which is told once");
    connection.client_mut().unwrap().offer(&sample(1, 6, 4));
    assert_eq!(connection.due_in(0), None);
    let mut found = Vec::new();
    while found.len() < 4 {
        match viewer.read() {
            Ok(message) => found.push(message.into_data()),
            Err(error) => {
                assert!(would_block(&error), "{error}");
                connection.resume();
                connection.write(0);
            }
        }
    }
    let [_server_info, _advertise, large, small] = &found[..] else { panic!("four messages") };
    assert!(large.len() == 13 + LENGTH && large[13..].iter().all(|byte| *byte == 5), "{}", large.len());
    assert_eq!(small[13..], [6; 4]);
}

#[test]
fn a_silent_client_is_asked_whether_it_is_there_and_let_go_if_it_does_not_answer() {
    let (mut connection, mut viewer) = opened();
    connection.tend(ASKED_NS + 1);
    connection.write(ASKED_NS + 1);
    let asked = std::iter::from_fn(|| viewer.read().ok()).filter(Message::is_ping).count();
    assert_eq!(asked, 1);
    connection.read(&offers(), SILENT_NS);
    connection.tend(SILENT_NS + 1);
    assert!(!connection.is_over());
    connection.tend(2 * SILENT_NS + 1);
    assert!(connection.is_over());
}
