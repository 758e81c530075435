//! Interfaces that come and go. A group's membership is tied to an interface by its number, and is renewed when the interface was created
//! again. A channel whose address was replaced by another one is opened again from that address.

use super::control::Control;
use super::entries::Entry;
use crate::carrier::mcast::Membership;
use crate::channel::Channel;
use linux::net::{Changes, InterfaceAddress};
use linux::poll::Readiness;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A group's membership on an interface, and the name of its port.
struct GroupMembership {
    membership: Membership,
    port: String,
}

/// The memberships of a node, and the interfaces of its host's addresses.
#[derive(Default)]
pub(super) struct Interfaces {
    tied: Vec<GroupMembership>,
    address_interfaces: AddressInterfaces,
}

impl Interfaces {
    /// Notes the present addresses of the host.
    fn note(&mut self, all: &[InterfaceAddress]) {
        self.address_interfaces.note(all);
    }

    /// `true` if an address of this host is gone, and its interface has another one instead.
    fn is_replaced(&self, address: IpAddr, all: &[InterfaceAddress]) -> bool {
        self.address_interfaces.is_replaced(address, all)
    }

    /// Renews this membership of a port from now on.
    fn add(&mut self, membership: Membership, port: &str) {
        self.forget_over();
        self.tied.push(GroupMembership { membership, port: port.to_owned() });
    }

    fn forget_over(&mut self) {
        self.tied.retain(|tied| !tied.membership.is_over());
    }

    /// Renews memberships on interfaces that were created again; returns the warnings about them.
    fn renew(&mut self, all: &[InterfaceAddress], deleted: &[u32]) -> Vec<String> {
        let look = |tied: &mut GroupMembership| Some(format!("{}: {}", tied.port, tied.membership.look(all, deleted)?));
        self.tied.iter_mut().filter_map(look).collect()
    }
}

/// The interface on which each address was seen, also for addresses that are gone.
#[derive(Default)]
struct AddressInterfaces(BTreeMap<IpAddr, String>);

/// Most addresses that are remembered. When there are more, all are forgotten.
const MOST_ADDRESSES: usize = 1024;

impl AddressInterfaces {
    fn note(&mut self, all: &[InterfaceAddress]) {
        if self.0.len() > MOST_ADDRESSES {
            self.0.clear();
        }
        self.0.extend(all.iter().map(|interface| (interface.address, interface.name.clone())));
    }

    /// `true` if this address is gone, and its interface has another one of the same family. If the interface is gone as well, it may come
    /// back with the address: then streams continue.
    fn is_replaced(&self, address: IpAddr, all: &[InterfaceAddress]) -> bool {
        if address.is_loopback() || all.iter().any(|interface| interface.address == address) {
            return false;
        }
        let Some(home) = self.0.get(&address) else { return false };
        let same = |other: &IpAddr| match other {
            IpAddr::V4(_) => address.is_ipv4(),
            IpAddr::V6(ip) => address.is_ipv6() && !ip.is_unicast_link_local(),
        };
        all.iter().any(|interface| interface.name == *home && same(&interface.address))
    }
}

/// The address at this end of a channel's stream, or of the connection beside its datagrams.
fn local_address(channel: &Channel) -> Option<IpAddr> {
    let socket = channel.sockets.get()?.last()?.upgrade()?;
    let fd = socket.as_fd();
    let address = socket2::SockRef::from(&fd).local_addr().ok()?.as_socket()?;
    Some(address.ip().to_canonical())
}

/// Ends a stream of samples behind those that have arrived, even if they have not been read: its reader delivers them and then finds the
/// end. `false`: the samples do not come by a stream.
fn has_ended_behind_what_came(channel: &Channel) -> bool {
    let Some(data) = channel.sockets.get().and_then(|sockets| sockets.first()?.upgrade()) else { return false };
    let fd = data.as_fd();
    let socket = socket2::SockRef::from(&fd);
    socket.r#type().is_ok_and(|kind| kind == socket2::Type::STREAM) && socket.shutdown(std::net::Shutdown::Read).is_ok()
}

impl Control {
    /// Ends this side's channels whose address was replaced by another one, and opens them again from there. TCP would notice
    /// only after 10 s.
    fn leave_replaced_addresses(&mut self, all: &[InterfaceAddress]) {
        let replaced = self.open_channels().filter_map(|channel| Some((channel.clone(), local_address(channel)?)));
        let replaced = replaced.filter(|(_, address)| self.interfaces.is_replaced(*address, all));
        let replaced: Vec<(Arc<Channel>, IpAddr)> = replaced.collect();
        self.interfaces.note(all);
        for (channel, address) in replaced {
            let why = format!("{address} is no longer an address of this host");
            // The publisher's host counts all samples that have arrived here as delivered, so they are still read.
            if has_ended_behind_what_came(&channel) {
                let _ = channel.ends_because.set(why);
                continue;
            }
            channel.cut();
            self.channel_ended(&channel, why);
        }
    }

    /// Watches changes of interfaces and addresses from now on.
    pub(super) fn watch_interfaces(&mut self, port: &str) {
        if self.descriptors.all().any(|entry| matches!(entry, Entry::Interfaces(_))) {
            return;
        }
        match Changes::new() {
            Ok(changes) => drop(self.watch(Entry::Interfaces(changes), Readiness::IN)),
            Err(error) => self.warn(format!("channels of {port} end with their interface: {error}")),
        }
        self.interfaces.note(&linux::net::interfaces().unwrap_or_default());
    }

    /// Renews this membership from now on.
    pub(super) fn look_after(&mut self, membership: Option<Membership>, port: &str) {
        let Some(membership) = membership else { return };
        self.watch_interfaces(port);
        self.interfaces.add(membership, port);
    }

    /// The host's interfaces changed.
    pub(super) fn interfaces_changed(&mut self, index: usize) {
        let Some(Entry::Interfaces(changes)) = self.descriptors.get(index) else { return };
        let changed = changes.take();
        self.interfaces.forget_over();
        if !changed.any {
            return;
        }
        let Ok(all) = linux::net::interfaces() else { return };
        self.leave_replaced_addresses(&all);
        let news = self.interfaces.renew(&all, &changed.deleted);
        news.into_iter().for_each(|news| self.warn(news));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(name: &str, address: &str) -> InterfaceAddress {
        let address = address.parse().unwrap();
        InterfaceAddress { name: name.into(), index: 2, address, up: true, multicast: true, loopback: false }
    }

    #[test]
    fn an_address_is_replaced_when_its_interface_has_another_one_instead() {
        let mut address_interfaces = AddressInterfaces::default();
        let before = [has("eth0", "10.0.0.2"), has("eth0", "fe80::2"), has("eth0", "fd00::2"), has("eth1", "10.1.0.2")];
        address_interfaces.note(&before);
        let replaced =
            |address: &str, now: &[InterfaceAddress]| address_interfaces.is_replaced(address.parse().unwrap(), now);
        assert!(!replaced("10.0.0.2", &before), "it is there");
        assert!(!replaced("10.0.0.2", &[has("eth1", "10.1.0.2")]), "its interface is gone, and may come back");
        assert!(!replaced("fd00::2", &[has("eth0", "10.0.0.3"), has("eth0", "fe80::3")]), "none of its kind yet");
        assert!(replaced("10.0.0.2", &[has("eth0", "10.0.0.3")]) && replaced("fd00::2", &[has("eth0", "fd00::3")]));
        assert!(!replaced("10.9.0.9", &[has("eth0", "10.0.0.3")]), "never seen");
    }
}
