use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;

fn pair() -> (Poller, Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let poller = Poller::new().unwrap();
    let link = Link::new(1, listener.accept().unwrap().0).unwrap();
    (poller, link, reader)
}

fn message(byte: u8) -> Arc<Vec<u8>> {
    Arc::new(vec![byte; 1 << 20])
}

/// A reader that takes nothing costs a reliable publisher one wait, not one for each message; then it gets what is new.
#[test]
fn a_reader_that_stalls_is_waited_for_once() {
    let (poller, link, mut reader) = pair();
    let begun = Instant::now();
    let first = std::iter::repeat_with(|| link.send(&poller, &message(1), true)).position(|sent| sent != Sent::Yes);
    assert!(first.unwrap() >= 63 && begun.elapsed() >= PATIENCE);
    assert_eq!(lock(&link.queue).messages.len(), 64);
    let again = Instant::now();
    assert!((0..100).all(|_| link.send(&poller, &message(2), true) == Sent::Lost));
    assert!(again.elapsed() < 10 * PATIENCE, "a hundred did not wait once each");
    let taking = std::thread::spawn(move || {
        reader.read_exact(&mut vec![0; 16 << 20]).unwrap();
        reader // it stays open
    });
    let end = Instant::now() + Duration::from_secs(20);
    while !taking.is_finished() {
        assert!(Instant::now() < end);
        link.go_on(&poller);
    }
    let _reader = taking.join().unwrap();
    assert_eq!(link.send(&poller, &message(3), true), Sent::Yes);
}

#[test]
fn a_lossy_publisher_drops_the_oldest_but_never_a_part_of_one() {
    let (poller, link, mut reader) = pair();
    let sent: Vec<Sent> = (0..60).map(|number| link.send(&poller, &message(number), false)).collect();
    assert!(sent[0] == Sent::Yes && sent[59] == Sent::Lost);
    assert_eq!(lock(&link.queue).messages.len(), MOST_OF_LOSSY);
    link.end(&poller, Vec::new());
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    let end = Instant::now() + Duration::from_secs(20);
    while !thread.is_finished() {
        assert!(Instant::now() < end);
        link.go_on(&poller);
    }
    let all = thread.join().unwrap();
    let whole: Vec<u8> = all.chunks(1 << 20).map(|chunk| chunk[0]).collect();
    assert!(all.chunks(1 << 20).all(|chunk| chunk.len() == 1 << 20 && chunk.iter().all(|byte| *byte == chunk[0])));
    assert!(whole.is_sorted() && whole.last() == Some(&59) && whole.first() == Some(&0), "{whole:?}");
}

#[test]
fn a_connection_that_ends_has_a_time_limit() {
    let (poller, link, _reader) = pair();
    (0..40).for_each(|_| assert_eq!(link.send(&poller, &message(1), true), Sent::Yes));
    link.end(&poller, b"q".to_vec());
    link.look(Instant::now());
    assert_eq!(link.send(&poller, &message(1), true), Sent::Over);
    assert!(!lock(&link.queue).over);
    link.look(Instant::now() + LEAVING);
    assert!(lock(&link.queue).over);
}

/// YARP's readers stop at an acknowledgement that cannot be sent.
#[test]
fn what_was_sent_is_read_though_acknowledgements_come_after_the_end() {
    let (poller, link, mut reader) = pair();
    let message = Arc::new(vec![7; 1000]);
    (0..4).for_each(|_| assert_eq!(link.send(&poller, &message, true), Sent::Yes));
    link.end(&poller, b"q".to_vec());
    let (mut all, mut buffer) = (0, [0; 500]);
    loop {
        match reader.read(&mut buffer).unwrap() {
            0 => break,
            count => all += count,
        }
        reader.write_all(b"YA\0\0\0\0RP").unwrap();
    }
    assert_eq!(all, 4001);
    link.end(&poller, b"q".to_vec()); // such as by a bridge that ends after the connection did
    link.look(Instant::now() + LEAVING);
    assert!(!lock(&link.queue).over, "the reader has more time than what waits");
    link.look(Instant::now() + READING);
    assert!(lock(&link.queue).over);
}

/// Who says that it ends has what was said to it, and no more.
#[test]
fn a_connection_of_replies_ends_at_once() {
    let (poller, link, mut reader) = pair();
    link.only_replies(true);
    link.end(&poller, b"<ACK>".to_vec());
    assert!(lock(&link.queue).over);
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"<ACK>");
}
