//! Origins of news and calls, from the kernel as far as possible; and the networks that may administer a node.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The way by which news or a call of another node came, best known first: news by an earlier one outranks that by a later one.
/// A peer's statement about itself (its node, its host) is no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// This node itself.
    Own,
    /// This host: the node's unix socket, whose users were admitted.
    Host {
        /// The user at its other end, from the kernel.
        user: u32,
    },
    /// A TCP link.
    Tcp {
        /// The other end's address, as the kernel sees it.
        from: IpAddr,
        /// Both ends are on this host: a loopback address, or one of its own.
        here: bool,
        /// The user at the other end, if it is known: on this host, in this network namespace.
        user: Option<u32>,
    },
    /// Through intermediaries that do not report the sender: Zenoh.
    Zenoh,
}

impl Origin {
    /// This host, by a process of this one's user.
    pub fn this_user() -> Self {
        Origin::Host { user: rustix::process::geteuid().as_raw() }
    }

    /// `true` if the kernel confirms that it came from this node or a permitted user of this host.
    pub fn is_here(&self) -> bool {
        matches!(self, Origin::Own | Origin::Host { .. })
    }
}

/// Addresses with the same first bits, as CIDR writes them: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that is no [`Network`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError(String);

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network {:?}: an address and how many of its bits count, such as 10.0.0.0/8 or fd00::/8", self.0)
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// All addresses with the same first 16 bits: those of one site.
    pub fn around(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), bits: 16 }
    }

    /// `true` if an address is in it. An IPv4 address that an IPv6 socket shows as `::ffff:…` is that IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - u32::from(self.bits)).unwrap_or(0) == 0;
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.chars().take(64).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.trim().parse::<u8>().map_err(|_| wrong()))?;
        let mapped = !address.is_ipv4() && address.to_canonical().is_ipv4();
        if bits > most || mapped { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;
    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_a_network_by_their_first_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.168.1.0/25", "192.168.1.127", "192.168.1.128"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.6"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "::2"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("fe80::/10", "fe80::1", "10.0.0.1"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(
                parsed.contains(inside.parse().unwrap()) && !parsed.contains(outside.parse().unwrap()),
                "{network}"
            );
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "ten", "10.0.0.0/", "::ffff:10.0.0.0/8"] {
            assert!(wrong.parse::<Network>().unwrap_err().to_string().contains("such as 10.0.0.0/8"), "{wrong}");
        }
    }
}
