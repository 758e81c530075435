//! A socket's tie to an interface, which has to be renewed when the interface is made again.
//!
//! The kernel knows memberships, and the interface by which packets leave, as numbers. An interface that was deleted
//! and made again has another number: without renewal a member never receives packets again, and a publisher reaches
//! no member.

use super::send::leave_by;
use linux::net::InterfaceAddress;
use socket2::{InterfaceIndexOrAddress, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

/// The end of a flow to which a socket belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sends,
    Receives,
}

/// A socket's tie to the interface that has an address. Renewed by any thread, while others use the socket.
#[derive(Debug)]
pub struct Membership {
    socket: Weak<Socket>,
    group: SocketAddr,
    address: IpAddr,
    /// The interface's index; `None`: it, or its address, is gone.
    interface: Option<u32>,
    last: u32,
    end: End,
}

impl Membership {
    pub(super) fn new(socket: &Arc<Socket>, group: SocketAddr, address: IpAddr, interface: u32, end: End) -> Self {
        Self { socket: Arc::downgrade(socket), group, address, interface: Some(interface), last: interface, end }
    }

    /// `true` if its socket is no longer in use.
    pub(crate) fn is_over(&self) -> bool {
        self.socket.strong_count() == 0
    }

    /// Compares the present interfaces, and those that were `deleted` since, and renews memberships. Returns a note
    /// for a person.
    pub(crate) fn look(&mut self, all: &[InterfaceAddress], deleted: &[u32]) -> Option<String> {
        let socket = self.socket.upgrade()?;
        let before = self.interface.filter(|index| !deleted.contains(index));
        let now = all.iter().find(|interface| interface.address == self.address);
        let (group, address) = (self.group.ip(), self.address);
        let Some(interface) = now else {
            let went = self.interface.take().is_some();
            return went.then(|| format!("no interface has {address} any more: multicast to {group} rests"));
        };
        if before == Some(interface.index) {
            return None;
        }
        // A membership that fails now is tried again with the next change.
        self.interface = None;
        let name = &interface.name;
        if let Err(error) = self.renew(&socket, interface.index) {
            return Some(format!("{address} is back on {name}, but multicast to {group} does not go on: {error}"));
        }
        (self.interface, self.last) = (Some(interface.index), interface.index);
        Some(match self.end {
            End::Sends => format!("{address} is back on {name}: multicast to {group} leaves there again"),
            End::Receives => format!("{address} is back on {name}: multicast group {group} is joined again"),
        })
    }

    fn renew(&self, socket: &Socket, interface: u32) -> io::Result<()> {
        match self.end {
            End::Sends => leave_by(socket, self.group.is_ipv6(), interface),
            End::Receives => {
                // The old one counts as long as the socket has it, also if the new one has the same number.
                let _ = leave(socket, self.group, self.last);
                join(socket, self.group, interface)
            }
        }
    }
}

pub(super) fn join(socket: &Socket, group: SocketAddr, interface: u32) -> io::Result<()> {
    match group.ip() {
        IpAddr::V4(ip) => socket.join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface)),
        IpAddr::V6(ip) => socket.join_multicast_v6(&ip, interface),
    }
}

fn leave(socket: &Socket, group: SocketAddr, interface: u32) -> io::Result<()> {
    match group.ip() {
        IpAddr::V4(ip) => socket.leave_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface)),
        IpAddr::V6(ip) => socket.leave_multicast_v6(&ip, interface),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{McastReceive, McastSend, group_of};
    use super::*;
    use crate::carrier::{ReceiveHalf, SendHalf};
    use std::net::Ipv4Addr;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn memberships_follow_their_interface() {
        let group = group_of(u64::from(std::process::id()), false);
        let all = linux::net::interfaces().unwrap();
        let index = all.iter().find(|i| i.address == LOCAL).unwrap().index;
        let mut member = McastReceive::at(group, LOCAL, LOCAL).unwrap();
        let (sender, _) = McastSend::at(group, SocketAddr::new(LOCAL, 0)).unwrap();
        let mut ties = [member.membership().unwrap(), sender.membership().unwrap()];
        for tie in &mut ties {
            assert_eq!(tie.look(&all, &[]), None);
            assert!(tie.look(&[], &[]).unwrap().contains("rests"));
            assert_eq!(tie.look(&[], &[]), None, "told twice");
            assert!(tie.look(&all, &[]).unwrap().contains("back on lo"));
            assert!(tie.look(&all, &[index]).unwrap().contains("back on lo"), "another one with the same number");
            assert_eq!(tie.look(&all, &[]), None);
        }
        sender.send(&[io::IoSlice::new(b"on")]).unwrap();
        assert_eq!(member.receive(&mut [0; 8], true).unwrap(), 2);
        drop((member, sender));
        assert!(ties.iter().all(Membership::is_over));
    }
}
