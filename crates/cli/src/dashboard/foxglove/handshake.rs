//! The request that opens a WebSocket (RFC 6455, section 4), and whose is accepted.

use super::super::access::Access;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write as _;

/// Most bytes of the request.
pub(super) const MOST: usize = 8 << 10;
/// The protocols, which differ in their name: that of clients since the end of 2025, and that of those before.
const PROTOCOLS: [&str; 2] = ["foxglove.sdk.v1", "foxglove.websocket.v1"];
/// Pages that may connect: Foxglove's own, and the desktop programs.
const ORIGINS: [&str; 3] = ["https://app.foxglove.dev", "https://studio.foxglove.dev", "file://"];

/// Who may connect.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) access: Access,
    /// Further pages.
    pub(super) origins: Vec<String>,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The bytes of the answer.
    pub(super) text: String,
    /// `true`: frames follow; `false`: the connection ends.
    pub(super) accepted: bool,
    /// Bytes of the request.
    pub(super) end: usize,
}

/// The answer to the request that these bytes begin with; `None`: it is not complete.
pub(super) fn answer(bytes: &[u8], rules: &Rules) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    Some(match accepted(head, rules) {
        Ok(text) => Answer { text, accepted: true, end },
        Err(refused) => Answer { text: refused.text(), accepted: false, end },
    })
}

/// The answer to a request of more than [`MOST`] bytes.
pub(super) fn too_long() -> String {
    Refused("431 Request Header Fields Too Large", format!("more than {MOST} bytes of header")).text()
}

/// A refusal: status and reason.
struct Refused(&'static str, String);

impl Refused {
    fn text(&self) -> String {
        let Self(status, why) = self;
        let (length, version) = (why.len() + 1, "Sec-WebSocket-Version: 13");
        format!(
            "HTTP/1.1 {status}\r\n{version}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
        )
    }
}

fn accepted(head: &str, rules: &Rules) -> Result<String, Refused> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    if (words.next(), words.nth(1)) != (Some("GET"), Some("HTTP/1.1")) {
        return Err(Refused("400 Bad Request", "a GET request of HTTP/1.1 is needed".to_owned()));
    }
    let host = only(head, "Host").unwrap_or_default();
    if !rules.access.is_host(host) {
        return Err(Refused("421 Misdirected Request", format!("this server is not {host:?}: name it with --host")));
    }
    let allowed = |origin: &&str| ORIGINS.contains(origin) || rules.origins.iter().any(|known| known == origin);
    if let Some(origin) = values(head, "Origin").find(|origin| !allowed(origin)) {
        let why = format!("a page of {origin:?} may not connect: allow it with --foxglove-origin");
        return Err(Refused("403 Forbidden", why));
    }
    let has = |name: &str, word: &str| items(head, name).any(|item| item.eq_ignore_ascii_case(word));
    if !has("Upgrade", "websocket")
        || !has("Connection", "upgrade")
        || only(head, "Sec-WebSocket-Version") != Some("13")
    {
        let why = "this is the address of a WebSocket, version 13: open it with Foxglove or Lichtblick".to_owned();
        return Err(Refused("426 Upgrade Required", why));
    }
    let key = only(head, "Sec-WebSocket-Key").unwrap_or_default();
    if BASE64_STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != 16 {
        return Err(Refused("400 Bad Request", "Sec-WebSocket-Key is not 16 bytes in base64".to_owned()));
    }
    let protocol = items(head, "Sec-WebSocket-Protocol").find(|offered| PROTOCOLS.contains(offered));
    let missing = || Refused("400 Bad Request", format!("the client offers none of {}", PROTOCOLS.join(", ")));
    Ok(opened(key, protocol.ok_or_else(missing)?))
}

fn opened(key: &str, protocol: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let mut text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".to_owned();
    let accept = BASE64_STANDARD.encode(hash.as_ref());
    // Writing to a text in memory cannot fail.
    let _ = write!(text, "Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n");
    text
}

/// The values of a header, one of each line.
fn values<'a>(head: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The items of a header's lists.
fn items<'a>(head: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    values(head, name).flat_map(|value| value.split(',')).map(str::trim)
}

/// The value of a header that stands there once.
fn only<'a>(head: &'a str, name: &'a str) -> Option<&'a str> {
    let mut values = values(head, name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of RFC 6455, section 1.3, with the protocol of a client.
    const REQUEST: &str = "GET /chat HTTP/1.1\r\nHost: localhost:8765\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://app.foxglove.dev\r\n\
        Sec-WebSocket-Protocol: other, foxglove.websocket.v1, foxglove.sdk.v1\r\nSec-WebSocket-Version: 13\r\n\r\n";

    fn rules() -> Rules {
        let access = Access::new("127.0.0.1:8765".parse().unwrap(), &[], None);
        Rules { access, origins: vec!["http://lichtblick.local:8080".to_owned()] }
    }

    #[test]
    fn the_request_of_the_standard_gets_its_answer_and_the_first_protocol_that_is_known() {
        let (rules, rest) = (rules(), format!("{REQUEST}next"));
        let found = answer(rest.as_bytes(), &rules).unwrap();
        assert!(found.accepted && found.end == REQUEST.len());
        assert!(found.text.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{}", found.text);
        assert!(found.text.ends_with("Sec-WebSocket-Protocol: foxglove.websocket.v1\r\n\r\n"), "{}", found.text);
        for end in 0..REQUEST.len() {
            assert_eq!(answer(&REQUEST.as_bytes()[..end], &rules), None, "{end} bytes are not all");
        }
        for (was, is) in [
            ("Origin: https://app.foxglove.dev\r\n", ""),
            ("https://app.foxglove.dev", "http://lichtblick.local:8080"),
            ("other, foxglove.websocket.v1, ", ""),
        ] {
            assert!(answer(REQUEST.replace(was, is).as_bytes(), &rules).unwrap().accepted, "{was:?} as {is:?}");
        }
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (was, is, status, says) in [
            ("GET", "POST", "400", "GET"),
            ("HTTP/1.1", "HTTP/1.0", "400", "GET"),
            ("localhost:8765", "evil.example:8765", "421", "--host"),
            ("Host: localhost:8765\r\n", "", "421", "--host"),
            ("Host: localhost:8765\r\n", "Host: localhost\r\nHost: localhost\r\n", "421", "--host"),
            ("https://app.foxglove.dev", "https://evil.example", "403", "--foxglove-origin"),
            ("https://app.foxglove.dev", "null", "403", "--foxglove-origin"),
            ("https://app.foxglove.dev", "file://\r\nOrigin: https://evil.example", "403", "evil.example"),
            ("Upgrade: websocket\r\n", "", "426", "version 13"),
            ("Version: 13", "Version: 8", "426", "version 13"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", "400", "16 bytes"),
            ("foxglove.websocket.v1, foxglove.sdk.v1", "mqtt", "400", "foxglove.sdk.v1"),
        ] {
            let found = answer(REQUEST.replace(was, is).as_bytes(), &rules()).unwrap();
            let fits = found.text.starts_with(&format!("HTTP/1.1 {status} ")) && found.text.contains(says);
            assert!(!found.accepted && fits, "{was:?} as {is:?}: {}", found.text);
        }
        assert!(!answer(b"GET / HTTP/1.1\r\nX: \xff\r\n\r\n", &rules()).unwrap().accepted);
    }
}
