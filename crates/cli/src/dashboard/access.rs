//! Whose requests are answered. A page of another site can make a browser ask this server: by a name that suddenly leads here (DNS
//! rebinding), or by a form. The first is told by the Host header, the second by Origin.

use std::net::{IpAddr, SocketAddr};

/// The rules of a server.
#[derive(Clone, Debug)]
pub(super) struct Access {
    at: SocketAddr,
    names: Vec<String>,
    token: Option<String>,
}

impl Access {
    /// Those of a server at this address, of a host with these names.
    pub(super) fn new(at: SocketAddr, names: &[String], token: Option<String>) -> Self {
        Self { at, names: names.iter().map(|name| name.to_ascii_lowercase()).collect(), token }
    }

    /// `true` if a request with this Host header means this server: an address literal that it may have, localhost, or a name of the host.
    pub(super) fn is_host(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => self.at.ip().is_unspecified() || address == self.at.ip(),
            Err(_) => (name == "localhost" && !self.is_elsewhere()) || self.names.contains(&name),
        }
    }

    fn is_elsewhere(&self) -> bool {
        !self.at.ip().is_loopback() && !self.at.ip().is_unspecified()
    }

    /// `true` if a request with this Origin comes from a page of this server, or from no page.
    pub(super) fn is_own_page(&self, origin: Option<&str>, host: &str) -> bool {
        origin.is_none_or(|origin| origin == format!("http://{host}"))
    }

    /// Whether anything may be set at all.
    pub(super) fn may_set(&self) -> bool {
        self.token.is_some()
    }

    /// `true` if an Authorization header has the token.
    pub(super) fn knows_token(&self, authorization: Option<&str>) -> bool {
        let given = authorization.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        self.token.as_ref().is_some_and(|token| same(token.as_bytes(), given.as_bytes()))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Compares in a time that does not tell where two texts differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(at: &str) -> Access {
        Access::new(at.parse().unwrap(), &["Robot.local".to_owned()], Some("0123456789abcdef".to_owned()))
    }

    #[test]
    fn a_name_that_leads_here_by_chance_is_not_answered() {
        let local = access("127.0.0.1:7480");
        for host in ["127.0.0.1:7480", "127.0.0.1", "localhost:7480", "LOCALHOST", "robot.local:7480"] {
            assert!(local.is_host(host), "{host}");
        }
        for host in
            ["evil.example:7480", "10.0.0.1:7480", "", "[::1]:7480", "127.0.0.1.evil.example", "localhost.evil:1"]
        {
            assert!(!local.is_host(host), "{host}");
        }
        let all = access("[::]:7480");
        assert!(all.is_host("10.0.0.1:7480") && all.is_host("[fe80::1]:7480") && !all.is_host("evil.example"));
        assert!(!access("10.0.0.1:7480").is_host("localhost"));
    }

    #[test]
    fn only_own_pages_that_know_the_token_may_set() {
        let access = access("127.0.0.1:7480");
        assert!(access.is_own_page(None, "localhost:7480"));
        assert!(access.is_own_page(Some("http://localhost:7480"), "localhost:7480"));
        assert!(!access.is_own_page(Some("http://evil.example"), "localhost:7480"));
        assert!(!access.is_own_page(Some("null"), "localhost:7480"));
        assert!(access.knows_token(Some("Bearer 0123456789abcdef")));
        for wrong in [None, Some(""), Some("Bearer "), Some("0123456789abcdef"), Some("Bearer 0123456789abcdeF")] {
            assert!(!access.knows_token(wrong), "{wrong:?}");
        }
        assert!(!Access::new("127.0.0.1:1".parse().unwrap(), &[], None).knows_token(Some("Bearer ")));
    }
}
