//! Two hosts with a wide-area link between them.

use super::{Behaviour, End, LinkReport, Wan};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::topology::Namespace;
use std::net::{IpAddr, Ipv4Addr};

/// Interface of either host.
pub const DEVICE: &str = "wan0";

/// Hosts 1 and 2, which are 10.98.0.1 and 10.98.0.2. They know each other's hardware address: no question for it is lost.
pub struct Hosts {
    wan: Option<Wan>, // before the hosts: it ends first
    hosts: [Namespace; 2],
}

impl Hosts {
    /// Makes and connects them; `there` holds from host 1 to host 2.
    ///
    /// # Errors
    /// As [`Namespace::new`] and [`Wan::start`].
    pub fn new(lab: &Lab, there: Behaviour, back: Behaviour) -> Result<Self> {
        let hosts = [Namespace::new(lab, "a")?, Namespace::new(lab, "b")?];
        let end = |n: usize| End { namespace: hosts[n].name().to_owned(), device: DEVICE.into() };
        let wan = Wan::start(&end(0), &end(1), there, back, lab.options.seed)
            .map_err(|e| Error::system("the wide-area link", &e, "run it as root, where there is /dev/net/tun"))?;
        let hardware = |n: u8| format!("02:00:00:00:00:0{n}");
        for (host, (me, other)) in hosts.iter().zip([(1, 2), (2, 1)]) {
            host.ip(&["address", "add", &format!("{}/24", Self::address_of(me)), "dev", DEVICE])?;
            host.ip(&["link", "set", DEVICE, "address", &hardware(me), "up"])?;
            let (address, hardware) = (Self::address_of(other).to_string(), hardware(other));
            host.ip(&["neighbor", "replace", &address, "lladdr", &hardware, "nud", "permanent", "dev", DEVICE])?;
        }
        Ok(Self { wan: Some(wan), hosts })
    }

    /// Host 1 or 2.
    pub fn host(&self, n: u8) -> &Namespace {
        &self.hosts[usize::from(n) - 1]
    }

    /// The address of host `n`.
    pub fn address_of(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 98, 0, n).into()
    }

    /// From now on this percentage of the frames is lost in either direction, by the seed. A link may thus be better while programs
    /// find each other than while they are measured.
    pub fn lose(&self, percent: u8) {
        if let Some(wan) = &self.wan {
            wan.lose(f64::from(percent) / 100.0);
        }
    }

    /// Ends the link, and says how it was: from host 1 to host 2, and back.
    pub fn end(&mut self) -> Vec<LinkReport> {
        self.wan.take().map(Wan::finish).unwrap_or_default()
    }
}
