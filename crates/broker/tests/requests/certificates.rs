//! Certificates that have expired, or that another authority has issued for the same name.

use super::*;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType, date_time_ymd};
use std::time::Instant;

/// A user of the realm whose certificate was valid in 2020.
fn expired(testbed: &Testbed) -> Keys {
    let dir = testbed.dir.join("robot");
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("realm.pem"), KeyPair::from_pem(&read("realm.key")).unwrap()).unwrap();
    let (own, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.subject_alt_names = vec![SanType::URI("thalweg://robot/user/old".try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    std::fs::write(dir.join("user-old.pem"), params.signed_by(&own, &issuer).unwrap().pem()).unwrap();
    std::fs::write(dir.join("user-old.key"), own.serialize_pem()).unwrap();
    Keys::read(&dir, Kind::User, "old").unwrap()
}

/// A user of that name whom the authority of another realm has made, which has this one's name.
fn foreign(testbed: &Testbed) -> Keys {
    let dir = testbed.dir.join("foreign");
    keys::init("robot", &dir).unwrap();
    keys::issue(&dir, Kind::User, "ann", 1, &dir).unwrap();
    std::fs::copy(testbed.dir.join("robot/realm.pem"), dir.join("realm.pem")).unwrap();
    Keys::read(&dir, Kind::User, "ann").unwrap()
}

#[test]
fn expired_and_foreign_certificates_are_refused_with_the_reason_and_told() {
    let testbed = Testbed::new();
    for (keys, heard, told) in [
        (expired(&testbed), "refuses the certificate of thalweg://robot/user/old: it has expired", "has expired"),
        (
            foreign(&testbed),
            "refuses the certificate of thalweg://robot/user/ann: another authority has issued it",
            "another authority has issued its certificate",
        ),
    ] {
        let (client, until) =
            (Client::new(&testbed.address.to_string(), &keys), Instant::now() + Duration::from_secs(30));
        // One a second is told. Who reads the reason late may find the connection closed.
        let (mut is_heard, mut last) = (false, String::new());
        while !is_heard || !testbed.refusals.lock().unwrap().iter().any(|because| because.contains(told)) {
            assert!(Instant::now() < until, "{told}: {last}; {:?}", testbed.refusals);
            match client.hosts() {
                Err(ClientError::Unreachable(text)) => last = text,
                other => panic!("not refused: {other:?}"),
            }
            is_heard |= last.contains(heard);
        }
    }
    assert!(testbed.client(Kind::User, "ann").hosts().unwrap().is_empty(), "nobody else is refused");
}

/// A connection that continues an earlier one would show no certificate, and go on when that has expired.
#[test]
fn no_connection_continues_an_earlier_one() {
    let testbed = Testbed::new();
    let mut stream = testbed.connect_over(b"http/1.1", Kind::User, "ann");
    let answer = request(&mut stream, "GET /v1/hosts HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(stream.conn.tls13_tickets_received(), 0);
}
