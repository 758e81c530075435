//! Byte by byte, as YARP's documents and sources have it.

use super::carrier::number;
use super::sender::{binary, command};
use super::*;
use proptest::prelude::*;

fn heard(receiver: &mut Receiver, bytes: &[u8]) -> Vec<Heard> {
    receiver.push(bytes);
    std::iter::from_fn(|| receiver.next().unwrap()).collect()
}

fn text(text: &str) -> Heard {
    Heard::Data(Payload::Text(text.to_owned()))
}

/// yarp_protocol.dox, "The tcp carrier".
#[test]
fn the_documents_bytes_open_a_binary_connection() {
    let with = [&[b'Y', b'A', 0xe4, 0x1e, 0, 0, b'R', b'P'][..], &[7, 0, 0, 0], b"/write\0"].concat();
    assert_eq!(header(Carrier::Tcp, "/write"), with);
    assert_eq!(header(Carrier::FastTcp, "/write")[..8], [b'Y', b'A', 0x64, 0x1e, 0, 0, b'R', b'P']);
    let mut receiver = Receiver::new(100);
    assert_eq!(heard(&mut receiver, &with), [Heard::Opened(Carrier::Tcp, "/write".to_owned())]);
    assert_eq!(Carrier::Tcp.welcome("/write", 10002), [b'Y', b'A', 0x12, 0x27, 0, 0, b'R', b'P']);
    let message = [
        &[b'Y', b'A', 10, 0, 0, 0, b'R', b'P'][..],
        &[2, 1, 255, 255, 255, 255, 255, 255, 255, 255],
        &[8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, b'~', b'D', 0, 1],
        b"bytes",
    ];
    assert_eq!(data(Carrier::Tcp, b"bytes").unwrap(), message.concat());
    assert_eq!(heard(&mut receiver, &message.concat()), [Heard::Data(Payload::Bytes(b"bytes".to_vec()))]);
    assert_eq!(Carrier::Tcp.acknowledgement(), [b'Y', b'A', 0, 0, 0, 0, b'R', b'P']);
    assert_eq!(heard(&mut receiver, &quit(Carrier::Tcp)), [Heard::Command("q".to_owned())]);
}

/// An envelope (`PortCoreOutputUnit::sendHelper`), a block for each part of a message, an administrative command in binary form.
#[test]
fn messages_of_several_blocks_and_with_envelopes_are_read() {
    let mut receiver = Receiver::new(100);
    heard(&mut receiver, &header(Carrier::FastTcp, "/a"));
    let mut bytes = number(10).to_vec();
    bytes.extend_from_slice(&[4, 1, 255, 255, 255, 255, 255, 255, 255, 255]);
    [8, 10, 2, 3, 0].into_iter().for_each(|length: i32| bytes.extend_from_slice(&length.to_le_bytes()));
    bytes.extend_from_slice(&[10, 0, 0, 0, b'~', 0, 0, 1]);
    bytes.extend_from_slice(b"D 12 34.5\0onetw");
    let payload = heard(&mut receiver, &bytes);
    assert_eq!(payload, [Heard::Data(Payload::Bytes(b"onetw".to_vec()))]);
    let list = Bottle::parse("[list] [out] /x").unwrap();
    let administrative = binary(&command(b'a', ""), &bottle::encode(&list));
    assert_eq!(heard(&mut receiver, &administrative), [Heard::Admin(list)]);
}

/// yarp_without_yarp.dox.
#[test]
fn the_documents_lines_are_a_text_connection() {
    let mut receiver = Receiver::new(100);
    assert_eq!(heard(&mut receiver, b"CONNECT foo\r\n"), [Heard::Opened(Carrier::Text, "foo".to_owned())]);
    assert_eq!(Carrier::Text.welcome("foo", 1), b"Welcome foo\r\n");
    let lines = heard(&mut receiver, b"*\r\nd\r\nhello yarp\r\ndo 2654 1215723086.182938\r\n(10.0\r\n 2)\r\nq\r\n");
    assert_eq!(
        lines,
        [Heard::Command("*".to_owned()), text("hello yarp"), text("(10.0\n 2)"), Heard::Command("q".to_owned())]
    );
    let hello = bottle::encode(&Bottle::parse("hello yarp").unwrap());
    assert_eq!(data(Carrier::Text, &hello).unwrap(), b"D\r\nhello yarp\r\n");
    assert!(data(Carrier::Text, b"no bottle").is_err());
    let mut receiver = Receiver::new(100);
    heard(&mut receiver, b"CONNACK admin\r\n");
    assert_eq!(heard(&mut receiver, b"a\r\n[ver]\r\n"), [Heard::Admin(Bottle::parse("[ver]").unwrap())]);
    assert_eq!(Carrier::TextAck.acknowledgement(), b"<ACK>\r\n");
    assert_eq!(Carrier::TextAck.reply(&Bottle::parse("[ver] 1 2 3").unwrap()), b"[ver] 1 2 3\r\n");
}

/// name_server.dox, "An older name server protocol".
#[test]
fn the_older_protocol_of_name_servers_is_read() {
    let mut receiver = Receiver::new(100);
    let lines = heard(&mut receiver, b"NAME_SERVER query /write\nNAME_SERVER list\r\n");
    let opened = Heard::Opened(Carrier::NameServer, "anon".to_owned());
    assert_eq!(lines, [opened, text("query /write"), text("list")]);
}

#[test]
fn what_is_malformed_is_named_before_memory_is_taken() {
    let index = |lengths: &[i32]| {
        let mut bytes = [&number(10)[..], &[lengths.len() as u8, 0, 255, 255, 255, 255, 255, 255, 255, 255]].concat();
        lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        bytes
    };
    let opened = header(Carrier::Tcp, "/a");
    for (bytes, says) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "carriers are tcp"),
        ([&Carrier::Tcp.specifier()[..], &[255; 4]].concat(), "name of -1 bytes"),
        ([&b"CONNECT "[..], &[b'x'; LONGEST]].concat(), "a line of more than"),
        ([&opened[..], &number(11)].concat(), "index has 10 bytes"),
        ([&opened[..], b"YARPYARP"].concat(), "index has 10 bytes"),
        ([&opened[..], &index(&[8, 1 << 30])].concat(), "at most 100"),
        ([&opened[..], &index(&[i32::MAX; 200])].concat(), "at most 100"),
        ([&opened[..], &index(&[-8])].concat(), "a block of -8"),
        ([&opened[..], &index(&[4]), b"abcd"].concat(), "without a command"),
        ([&opened[..], &index(&[10]), &[3, 0, 0, 0, b'~', 0, 0, 1, b'd', b'd']].concat(), "without an end"),
        ([&opened[..], &index(&[12]), &[0, 0, 0, 0, b'~', b'a', 0, 1, 1, 0, 0, 0]].concat(), "code 1"),
    ] {
        let mut receiver = Receiver::new(100);
        receiver.push(&bytes);
        let said = std::iter::repeat_with(|| receiver.next()).find_map(|next| match next {
            Ok(Some(_)) => None,
            Ok(None) => panic!("nothing is wrong with {bytes:?}"),
            Err(said) => Some(said),
        });
        assert!(said.as_ref().unwrap().contains(says), "{said:?}");
    }
}

#[test]
fn acknowledgements_are_skipped_in_any_pieces() {
    let all = [&number(0)[..], &number(3), b"abc", &number(0)].concat();
    for size in 1..all.len() {
        let mut acknowledgements = Acknowledgements::new(Carrier::Tcp);
        all.chunks(size).for_each(|piece| acknowledgements.push(piece).unwrap());
        assert!(acknowledgements.begun.is_empty() && acknowledgements.skip == 0);
    }
    assert!(Acknowledgements::new(Carrier::Tcp).push(b"<ACK>\r\n.").is_err());
    assert!(Acknowledgements::new(Carrier::TextAck).push(b"<ACK>\r\n").is_ok());
}

proptest! {
    /// However the stream is cut, the same is heard.
    #[test]
    fn pieces_are_put_together(sizes in prop::collection::vec(1usize..40, 1..200), carrier in 0usize..4) {
        let carrier = Carrier::OFFERED[carrier];
        let message = bottle::encode(&Bottle::parse("a (b \"c d\") 1 2.5").unwrap());
        let mut bytes = header(carrier, "/sender");
        (0..3).for_each(|_| bytes.extend_from_slice(&data(carrier, &message).unwrap()));
        bytes.extend_from_slice(&quit(carrier));
        let whole = heard(&mut Receiver::new(100), &bytes);
        prop_assert_eq!(whole.len(), 5);
        let (mut receiver, mut rest, mut got) = (Receiver::new(100), &bytes[..], Vec::new());
        for size in sizes.into_iter().chain([bytes.len()]) {
            let (piece, others) = rest.split_at(size.min(rest.len()));
            got.extend(heard(&mut receiver, piece));
            rest = others;
        }
        prop_assert_eq!(got, whole);
    }

    #[test]
    fn any_bytes_are_heard_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), opened in 0usize..4) {
        let mut receiver = Receiver::new(100);
        receiver.push(&header(Carrier::OFFERED[opened], "/a"));
        receiver.push(&bytes);
        while let Ok(Some(_)) = receiver.next() {}
    }
}
