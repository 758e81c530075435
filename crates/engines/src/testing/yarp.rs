//! The body of a fuzz target: what programs of YARP say to a port, and to the name server. It panics when a promise is broken: what is read
//! can be written and read again, and is the same then; what came in pieces is what came whole.

use crate::yarp::bottle;
use crate::yarp::frame::{Acknowledgements, Carrier, Heard, Receiver, data, header};
use crate::yarp::names::{Registration, check, target};
use crate::yarp::server::Names;

/// Bytes of a connection, a bottle, an acknowledgement, commands to the name server, or its answers, by the first byte.
pub fn yarp(bytes: &[u8]) {
    let Some((form, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match form % 10 {
        form @ 0..4 => connection(&[&header(Carrier::OFFERED[usize::from(form)], "/a")[..], rest].concat()),
        4 => connection(rest),
        5 => message(rest),
        6 => drop(Acknowledgements::new(Carrier::Tcp).push(rest)),
        7 => commands(&text),
        8 => registrations(&text),
        _ => drop((check(&text), target(&text).1.len())),
    }
}

/// Inputs to begin from.
pub fn yarp_examples() -> Vec<Vec<u8>> {
    let list = thalweg::bottle::Bottle::parse("[prop] set /in (qos ((priority HIGH))) -1 2.5").unwrap_or_default();
    let list = bottle::encode(&list);
    let sent = |carrier| data(carrier, &list).unwrap_or_default();
    vec![
        [&[0], &sent(Carrier::Tcp)[..]].concat(),
        [&[1], &sent(Carrier::FastTcp)[..]].concat(),
        b"\x02*\r\nd\r\n(a\r\nb)\r\nr\r\n".to_vec(),
        b"\x03a\r\n[add] tcp://reader\r\nq\r\n".to_vec(),
        b"\x04NAME_SERVER query /write\nNAME_SERVER list\n".to_vec(),
        [&[5], &list[..]].concat(),
        b"\x06YA\x03\0\0\0RPabcYA\0\0\0\0RP".to_vec(),
        b"\x07register ... tcp ... 0\nset /tmp/port/1 ips a b\nbot list /tmp\nmatch /tmp/port/1 ips a\nunregister /tmp/port/1".to_vec(),
        b"\x08registration name /write ip 10.0.0.1 port 10002 type tcp".to_vec(),
    ]
}

fn heard(pieces: &[&[u8]]) -> Vec<Heard> {
    let (mut receiver, mut all) = (Receiver::new(1 << 12), Vec::new());
    for piece in pieces {
        receiver.push(piece);
        loop {
            match receiver.next() {
                Ok(Some(one)) => all.push(one),
                Ok(None) => break,
                Err(_) => return all,
            }
        }
    }
    all
}

fn connection(bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    assert_eq!(heard(&[bytes]), heard(&[first, second]));
}

fn message(bytes: &[u8]) {
    let Ok(read) = bottle::decode(bytes) else { return };
    assert_eq!(bottle::decode(&bottle::encode(&read)), Ok(read));
}

fn commands(text: &str) {
    let own =
        Registration { name: "/root".to_owned(), host: "10.0.0.1".to_owned(), port: 10_000, carrier: "tcp".to_owned() };
    let mut names = Names::new(own);
    for command in text.split('\n').take(64) {
        let answer = names.answer(command, "10.0.0.2");
        assert!(answer.text().ends_with('\n'), "{command:?}: {answer:?}");
        drop(bottle::encode(&answer.bottle()));
    }
}

fn registrations(text: &str) {
    if let Some(read) = Registration::parse(text) {
        assert_eq!(Registration::parse(&read.to_string()), Some(read));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn programs_of_yarp_are_understood_or_refused() {
        let seeds = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        qos::testing::inputs::run("yarp", super::yarp, super::yarp_examples(), &seeds);
    }
}
