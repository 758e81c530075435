//! Texts of the name server's protocol (name_server.dox; `NameServer.cpp`, `NameClient.cpp`): registrations, and names of ports.

use std::fmt;
use std::net::IpAddr;

/// The last line of each answer.
pub(crate) const END: &str = "*** end of message";
/// Longest name of a port, as names of topics.
pub(crate) const LONGEST_NAME: usize = 255;

/// A port as the name server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The carrier of first contact, `tcp`.
    pub(crate) carrier: String,
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, host, port, carrier } = self;
        write!(f, "registration name {name} ip {host} port {port} type {carrier}")
    }
}

impl Registration {
    /// Reads a line of an answer; `None`: it is no registration of a port that can be reached.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let ["registration", "name", name, "ip", host, "port", port, "type", carrier] = words[..] else { return None };
        let longest = [name, host, carrier].into_iter().map(str::len).max();
        let port = port.parse().ok().filter(|port| *port > 0 && longest <= Some(LONGEST_NAME))?;
        Some(Self { name: name.to_owned(), host: host.to_owned(), port, carrier: carrier.to_owned() })
    }

    /// `false` for what is registered besides ports: topics, whose address is that of the name server, and multicast groups.
    pub(crate) fn is_port(&self) -> bool {
        !["topic", "mcast"].contains(&self.carrier.as_str())
    }

    /// Its address, such as `10.0.0.1:10002`.
    pub(crate) fn address(&self) -> String {
        match self.host.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Checks the name of a port (`NetworkBase::isValidPortName`), which must not have what would end a command of the name server.
///
/// # Errors
/// The reason why it is none.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let problem = if !name.starts_with('/') {
        "does not begin with /"
    } else if name.ends_with('/') {
        "ends with /"
    } else if name.len() > LONGEST_NAME {
        "is longer than 255 bytes"
    } else if name.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'"') {
        "has a space, a quotation mark, or a character that is not printable ASCII"
    } else {
        return Ok(());
    };
    Err(format!("{} is no name of a YARP port: it {problem}", shown(name)))
}

/// The beginning of a text of others.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Carrier and name in the argument of `add`, such as `tcp://reader` (`Name::toAddress`).
pub(crate) fn target(text: &str) -> (Option<&str>, &str) {
    match text.find(":/") {
        Some(at) if at > 0 => (Some(text[..at].trim_start_matches('/')), &text[at + 2..]),
        _ => (None, text),
    }
}

/// The command that has a port tell nothing, but send to `input`.
pub(crate) fn connect(carrier: &str, input: &str) -> String {
    format!("[add] {carrier}:/{input}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documents_registration_is_read_and_written() {
        let line = "registration name /write ip 5.255.112.227 port 10001 type tcp";
        let read = Registration::parse(line).unwrap();
        assert_eq!((read.to_string(), read.address()), (line.to_owned(), "5.255.112.227:10001".to_owned()));
        for other in [
            END,
            "",
            "registration name fallback ip none port none type mcast",
            "registration name /a ip b port 70000 type tcp",
            "registration name /a ip b port 1 type tcp more",
        ] {
            assert_eq!(Registration::parse(other), None, "{other}");
        }
    }

    #[test]
    fn topics_and_multicast_groups_are_no_ports() {
        for (line, is_port) in [
            ("registration name /a ip 10.0.0.1 port 10002 type tcp", true),
            ("registration name /b ip 10.0.0.1 port 10003 type udp", true),
            ("registration name /poses ip 10.0.0.1 port 10000 type topic", false),
            ("registration name fallback ip 224.2.1.1 port 10000 type mcast", false),
        ] {
            assert_eq!(Registration::parse(line).unwrap().is_port(), is_port, "{line}");
        }
    }

    #[test]
    fn targets_have_a_carrier_or_none() {
        assert_eq!(target("tcp://reader"), (Some("tcp"), "/reader"));
        assert_eq!(target("fast_tcp://a/b:i"), (Some("fast_tcp"), "/a/b:i"));
        assert_eq!(target("/a/b:i"), (None, "/a/b:i"));
        assert_eq!(target(&connect("fast_tcp", "/a:i")[6..]), (Some("fast_tcp"), "/a:i"));
    }

    #[test]
    fn a_wrong_name_is_named() {
        for (name, says) in
            [("a", "begin"), ("/a/", "ends"), ("/a b", "space"), ("/\u{e9}", "ASCII"), (&"/a".repeat(200), "255")]
        {
            assert!(check(name).unwrap_err().contains(says), "{name}");
        }
        assert!(check("/icub/head/state:o").is_ok());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line in "(registration|name|ip|port|type|/a|[0-9]{1,6}|tcp| ){0,20}") {
            if let Some(read) = Registration::parse(&line) {
                prop_assert_eq!(Registration::parse(&read.to_string()), Some(read));
            }
        }
    }
}
