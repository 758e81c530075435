//! Requests to etcd by its JSON gateway (etcd 3.4, "gRPC gateway" in its documentation): names and values in Base64, whole numbers as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// Longest time for one member.
const MEMBER: Duration = Duration::from_millis(1500);
/// Longest time for all of them: a member that leads is replaced within some 2 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before all members are asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest answer, bytes: a page of values.
const LARGEST: u64 = 256 << 20;
/// Codes of gRPC after which another member may do it: deadline exceeded, unavailable.
const PASSING: [i64; 2] = [4, 14];

/// The certificates for connections to etcd: PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority that issued those of etcd's members.
    pub authority: Vec<u8>,
    /// The broker's own, if the members want to see one.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// The members of etcd, asked one after the other.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    agent: Agent,
    members: Vec<String>,
    /// The one that answered last.
    at: usize,
}

impl Gateway {
    /// `members`: their URLs.
    ///
    /// # Errors
    /// A certificate or key that cannot be read.
    pub fn new(members: &[String], tls: Option<&Tls>) -> io::Result<Self> {
        let mut config =
            TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        if let Some(Tls { authority, own }) = tls {
            let certificate = |pem: &[u8]| Certificate::from_pem(pem).map_err(io::Error::other);
            config = config.root_certs(RootCerts::new_with_certs(&[certificate(authority)?]));
            if let Some((chain, key)) = own {
                let key = PrivateKey::from_pem(key).map_err(io::Error::other)?;
                config = config.client_cert(Some(ClientCert::new_with_certs(&[certificate(chain)?], key)));
            }
        }
        let config = Agent::config_builder()
            .tls_config(config.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(MEMBER))
            .build();
        let members = members.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Ok(Self { agent: Agent::new_with_config(config), members, at: 0 })
    }

    /// Asks the members one after the other, until one answers. What several were asked for may have been done several times.
    ///
    /// # Errors
    /// None does within five seconds ([`io::ErrorKind::TimedOut`]), or one refuses.
    pub fn ask<T: DeserializeOwned>(&mut self, path: &str, body: &Value) -> io::Result<T> {
        self.ask_within(PATIENCE, path, body)
    }

    /// The same within this time.
    ///
    /// # Errors
    /// As there.
    pub fn ask_within<T: DeserializeOwned>(&mut self, time: Duration, path: &str, body: &Value) -> io::Result<T> {
        let (began, mut why) = (Instant::now(), String::new());
        loop {
            for _ in 0..self.members.len() {
                let left = time.saturating_sub(began.elapsed());
                if left.is_zero() {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no member of etcd answers: {why}")));
                }
                match self.ask_one(left.min(MEMBER), path, body) {
                    Ok(said) => return Ok(said),
                    Err(Failed::Refused(why)) => return Err(io::Error::other(why)),
                    Err(Failed::Passing(said)) => why = said,
                }
                self.at = (self.at + 1) % self.members.len();
            }
            sleep(PAUSE);
        }
    }

    fn ask_one<T: DeserializeOwned>(&self, time: Duration, path: &str, body: &Value) -> Result<T, Failed> {
        let member = &self.members[self.at];
        let passing = |what: &dyn std::fmt::Display| Failed::Passing(format!("{member}: {what}"));
        let request = self.agent.post(format!("{member}{path}")).content_type("application/json");
        let mut response =
            request.config().timeout_global(Some(time)).build().send(body.to_string()).map_err(|e| passing(&e))?;
        let limited = response.body_mut().with_config().limit(LARGEST);
        let bytes = limited.read_to_vec().map_err(|e| passing(&e))?;
        if response.status().is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| Failed::Refused(format!("{member}: {e}")));
        }
        let Refusal { error, code } = serde_json::from_slice(&bytes).unwrap_or_default();
        let why = format!("{}, {error}", response.status());
        let is_passing = response.status().is_server_error() || PASSING.contains(&code);
        if is_passing { Err(passing(&why)) } else { Err(Failed::Refused(format!("{member}: {why}"))) }
    }
}

enum Failed {
    /// Another member, or the same a little later, may do it. It may have been done.
    Passing(String),
    Refused(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    /// Text; an object in streams.
    error: Value,
    code: i64,
}

/// A name or value in a request.
pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// A whole number; 0 if it is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Number(pub i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A name or value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Base64)
    }
}

/// Reads a value from its text, where that stands.
struct Base64;

impl Visitor<'_> for Base64 {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in Base64")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        STANDARD.decode(text).map(Bytes).map_err(E::custom)
    }
}

/// A value with its name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    pub create_revision: Number,
    pub mod_revision: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub revision: Number,
}

/// The answer to a range.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Range {
    pub kvs: Vec<KeyValue>,
}

/// The answer to a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Transaction {
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<Response>,
}

/// The answer to a part of a transaction: of reading ones only.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub response_range: Range,
}

/// The answer about a lease; no time is left of one that is over.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    #[serde(rename = "ID")]
    pub id: Number,
    #[serde(rename = "TTL")]
    pub ttl: Number,
}

/// The first message of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct First<T> {
    pub result: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_read() {
        let text = r#"{"header":{"cluster_id":"14841639068965178418","revision":"7","raft_term":"2"},"succeeded":true,
            "responses":[{"response_range":{"header":{"revision":"7"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"6",
            "version":"3","value":"YmFy"}],"count":"1"}},{"response_put":{"header":{"revision":"7"}}}]}"#;
        let read: Transaction = serde_json::from_str(text).unwrap();
        let found = &read.responses[0].response_range.kvs[0];
        assert_eq!((read.succeeded, read.header.revision, read.responses.len()), (true, Number(7), 2));
        assert_eq!((found.key.0.as_slice(), found.value.0.as_slice()), (&b"foo"[..], &b"bar"[..]));
        assert_eq!((found.create_revision, found.mod_revision), (Number(2), Number(6)));
        let over: First<Lease> = serde_json::from_str(r#"{"result":{"header":{},"ID":"75"}}"#).unwrap();
        assert_eq!((over.result.id, over.result.ttl), (Number(75), Number(0)));
        assert!(serde_json::from_str::<Number>("\"x\"").is_err() && serde_json::from_str::<Bytes>("\"?\"").is_err());
    }
}
