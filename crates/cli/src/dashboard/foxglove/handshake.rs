//! Whose request opens a WebSocket: one that means this host, comes from no page or from a known one, and offers a protocol of Foxglove.
//! A request that is none of RFC 6455 does not come so far.

use super::super::access::Access;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tungstenite::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tungstenite::http::status::StatusCode;

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

impl Callback for Rules {
    fn on_request(self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        let protocol = self.protocol(request.headers()).map_err(Refused::response)?;
        response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        Ok(response)
    }
}

impl Rules {
    /// The protocol to be spoken with the sender of these headers.
    fn protocol(&self, headers: &HeaderMap) -> Result<&'static str, Refused> {
        let mut hosts = values(headers, header::HOST);
        let host = hosts.next().filter(|_| hosts.next().is_none()).unwrap_or_default();
        if !self.access.is_host(host) {
            let why = format!("this server is not {host:?}: name it with --host");
            return Err(Refused(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let allowed = |origin: &&str| ORIGINS.contains(origin) || self.origins.iter().any(|known| known == origin);
        if let Some(origin) = values(headers, header::ORIGIN).find(|origin| !allowed(origin)) {
            let why = format!("a page of {origin:?} may not connect: allow it with --foxglove-origin");
            return Err(Refused(StatusCode::FORBIDDEN, why));
        }
        let mut offered = values(headers, header::SEC_WEBSOCKET_PROTOCOL).flat_map(|list| list.split(','));
        let known = offered.find_map(|name| PROTOCOLS.into_iter().find(|known| *known == name.trim()));
        known.ok_or_else(|| {
            Refused(StatusCode::BAD_REQUEST, format!("the client offers none of {}", PROTOCOLS.join(", ")))
        })
    }
}

/// A refusal: status and reason.
struct Refused(StatusCode, String);

impl Refused {
    fn response(self) -> ErrorResponse {
        let text = format!("{}\n", self.1);
        let length = HeaderValue::from(text.len());
        let mut response = ErrorResponse::new(Some(text));
        *response.status_mut() = self.0;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::CONTENT_LENGTH, length);
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// The values of a header, one of each line; what is no text is empty, which nothing here allows.
fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const HEADERS: [(&str, &str); 3] = [
        ("Host", "localhost:8765"),
        ("Origin", "https://app.foxglove.dev"),
        ("Sec-WebSocket-Protocol", "other, foxglove.websocket.v1, foxglove.sdk.v1"),
    ];

    pub(in super::super) fn rules() -> Rules {
        let access = Access::new("127.0.0.1:8765".parse().unwrap(), &[], None);
        Rules { access, origins: vec!["http://lichtblick.local:8080".to_owned()] }
    }

    /// The answer to a request with the headers, of which one has other values.
    fn answer(other: &str, values: &[&[u8]]) -> Result<Response, ErrorResponse> {
        let mut request = Request::new(());
        let others = values.iter().map(|value| (other, *value));
        let kept = HEADERS.iter().filter(|(name, _)| *name != other).map(|(name, value)| (*name, value.as_bytes()));
        for (name, value) in kept.chain(others) {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
        }
        rules().on_request(&request, Response::new(()))
    }

    #[test]
    fn the_first_protocol_that_is_known_is_chosen_for_no_page_and_for_known_ones() {
        for (name, values, protocol) in [
            ("Origin", vec![], "foxglove.websocket.v1"),
            ("Origin", vec![&b"http://lichtblick.local:8080"[..]], "foxglove.websocket.v1"),
            ("Host", vec![&b"127.0.0.1"[..]], "foxglove.websocket.v1"),
            ("Sec-WebSocket-Protocol", vec![&b"other"[..], b"foxglove.sdk.v1"], "foxglove.sdk.v1"),
        ] {
            let accepted = answer(name, &values).unwrap();
            assert_eq!(accepted.headers()[header::SEC_WEBSOCKET_PROTOCOL], protocol, "{name}");
        }
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (name, values, status, says) in [
            ("Host", vec![&b"evil.example:8765"[..]], 421u16, "--host"),
            ("Host", vec![], 421, "--host"),
            ("Host", vec![&b"localhost"[..], b"localhost"], 421, "--host"),
            ("Origin", vec![&b"https://evil.example"[..]], 403, "--foxglove-origin"),
            ("Origin", vec![&b"null"[..]], 403, "--foxglove-origin"),
            ("Origin", vec![&b"\xff"[..]], 403, "--foxglove-origin"),
            ("Origin", vec![&b"file://"[..], b"https://evil.example"], 403, "evil.example"),
            ("Sec-WebSocket-Protocol", vec![&b"mqtt"[..]], 400, "foxglove.sdk.v1"),
            ("Sec-WebSocket-Protocol", vec![], 400, "foxglove.sdk.v1"),
        ] {
            let refused = answer(name, &values).unwrap_err();
            let text = refused.body().as_deref().unwrap_or_default();
            assert!(refused.status() == status && text.contains(says), "{name}: {} {text}", refused.status());
            assert_eq!(refused.headers()[header::CONTENT_LENGTH], text.len().to_string());
        }
    }
}
