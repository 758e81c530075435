//! Ends of SRv6 tunnels: a nexthop that puts packets into IPv6 with a routing header of one segment (RFC 8754), and the own segment, at which those of
//! the other end come out again (End.DT6, RFC 8986 §4.6). Packets have their traffic class and flow label outside, too: the kernel copies them.
//!
//! All routes have a protocol number of our own (`rtm_protocol`), so those of others are never taken for ours, nor ours for theirs.

use super::Tunnel;
use super::message::{self, ADDRESS, DELETE, GET, LINK, NEW};
use crate::netlink::{CREATE, DUMP, Socket, attribute, attributes, put, words};
use crate::queueing::{QueueError, Reason};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// Messages about routes begin here (`RTM_NEWROUTE`), those about nexthops there (`RTM_NEWNEXTHOP`); then come delete and get.
const ROUTE: u16 = 24;
const NEXTHOP: u16 = 104;
/// The protocol of our routes: one that rtnetlink.h gives nobody.
const OURS: u8 = 122;
/// `RT_TABLE_MAIN`
const MAIN: u8 = 254;
/// The number of `lo` in each network namespace.
const LO: u32 = 1;
/// Types of routes: `RTN_UNICAST`, `RTN_LOCAL`.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const NESTED: u16 = 0x8000;
const LACKS: &str = "kind = \"srv6\" needs Linux 5.3 or later with CONFIG_IPV6_SEG6_LWTUNNEL=y (Debian's has it); or state kind = \"vxlan\"";

/// One thing in the kernel that belongs to an end.
struct Part {
    kind: u16,
    /// The message that makes it.
    body: Vec<u8>,
    /// The same for `ip`.
    command: String,
}

/// The commands of `ip` that make the end.
pub(super) fn commands(tunnel: &Tunnel) -> Vec<String> {
    parts(tunnel, 0).into_iter().map(|part| part.command).collect()
}

/// Checks that nothing of somebody else has its number, its segment or its address.
pub(super) fn check(socket: &mut Socket, wanted: &Tunnel, ours: &[Tunnel]) -> Result<(), QueueError> {
    let Some((index, _)) = device(socket, &wanted.device)? else { return Ok(()) };
    let routed = ours.iter().filter(|one| !one.kind.has_device());
    let known: Vec<Part> = routed.flat_map(|one| parts(one, index)).collect();
    for part in parts(wanted, index) {
        if !known.iter().any(|one| one.body == part.body) && part.is_there(socket)? {
            return Err(part.foreign());
        }
    }
    Ok(())
}

/// Makes what is missing of an end; all of it goes if a part is refused.
pub(super) fn ensure(socket: &mut Socket, wanted: &Tunnel) -> Result<Vec<String>, QueueError> {
    let Some((index, mtu)) = device(socket, &wanted.device)? else {
        return Err(QueueError::no_device(&wanted.device));
    };
    let added = wanted.kind.added(wanted.remote) as u32;
    let least = wanted.mtu.saturating_add(added);
    if mtu < least {
        return Err(QueueError {
            what: format!("ip link show dev {}", wanted.device),
            reason: Reason::Differs(format!(
                "its mtu is {mtu}, and packets of the plan have {least} B with the tunnel's"
            )),
            remedy: format!(
                "`ip link set dev {} mtu {least}`, or state mtu = \"{mtu} B\" for the tunnel",
                wanted.device
            ),
        });
    }
    let mut changes = Vec::new();
    for part in parts(wanted, index) {
        match part.ensure(socket) {
            Ok(true) => changes.push(part.command),
            Ok(false) => {}
            Err(error) => {
                let _ = remove(socket, wanted);
                return Err(error);
            }
        }
    }
    Ok(changes)
}

/// Takes an end away; `false` if nothing of it is there.
pub(super) fn remove(socket: &mut Socket, tunnel: &Tunnel) -> Result<bool, QueueError> {
    // What a device had is gone with it, but not what is at `lo`.
    let index = device(socket, &tunnel.device)?.map_or(0, |(index, _)| index);
    let mut was_there = false;
    for part in parts(tunnel, index).iter().rev() {
        if part.is_there(socket)? {
            part.delete(socket)?;
            was_there = true;
        }
    }
    Ok(was_there)
}

/// The number and the MTU of a device; `None`: there is none.
fn device(socket: &mut Socket, name: &str) -> Result<Option<(u32, u32)>, QueueError> {
    match socket.ask(LINK + GET, 0, &message::named(name))? {
        Ok(found) => Ok(found.iter().find_map(|one| message::device(&one.body))),
        Err(refusal) if refusal.errno == libc::ENODEV => Ok(None),
        Err(refusal) => Err(QueueError::refused(format!("ip link show dev {name}"), refusal)),
    }
}

impl Part {
    /// Makes it unless it is there; `true` if it was not.
    fn ensure(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        if self.is_there(socket)? {
            return Ok(false);
        }
        let mut answer = socket.ask(self.kind + NEW, CREATE, &self.body)?;
        if self.kind == ROUTE && answer.as_ref().is_err_and(|refusal| refusal.errno == libc::EEXIST) {
            // Only a route of our own protocol is deleted: one that others changed.
            let _ = self.delete(socket);
            answer = socket.ask(self.kind + NEW, CREATE, &self.body)?;
        }
        answer.map_err(|refusal| match refusal.errno {
            libc::EEXIST => self.foreign(),
            _ => self.refused(refusal),
        })?;
        if self.is_there(socket)? {
            return Ok(true);
        }
        Err(QueueError {
            what: self.command.clone(),
            reason: Reason::Differs("the kernel took it, but shows something else".to_owned()),
            remedy: "`ip nexthop` and `ip -6 route show table all` say what".to_owned(),
        })
    }

    /// `true` if the kernel shows all that it was asked for.
    fn is_there(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        let (flags, request) = match self.kind {
            NEXTHOP => (0, self.number()),
            ROUTE => (DUMP, vec![libc::AF_INET6 as u8, 0, 0, 0, MAIN, OURS, 0, 0, 0, 0, 0, 0]),
            _ => (DUMP, message::addresses(libc::AF_INET6)),
        };
        socket.select();
        match socket.ask(self.kind + GET, flags, &request)? {
            Ok(found) => Ok(found.iter().any(|one| one.kind == self.kind + NEW && self.is_shown(&one.body))),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(false),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    fn is_shown(&self, found: &[u8]) -> bool {
        // The bytes of a head that say which one it is: family, length, table, protocol, type.
        let (head, places): (usize, &[usize]) = match self.kind {
            NEXTHOP => (8, &[0, 2]),
            ROUTE => (12, &[0, 1, 4, 5, 7]),
            _ => return message::read_address(found) == message::read_address(&self.body),
        };
        let (Some(there), Some(asked)) = (found.get(head..), self.body.get(head..)) else { return false };
        places.iter().all(|at| found[*at] == self.body[*at])
            && attributes(asked).all(|(kind, value)| attribute(there, kind) == Some(value))
    }

    fn delete(&self, socket: &mut Socket) -> Result<(), QueueError> {
        let body = if self.kind == NEXTHOP { &self.number() } else { &self.body };
        socket.ask(self.kind + DELETE, 0, body)?.map(drop).map_err(|refusal| self.refused(refusal))
    }

    /// A question about the nexthop of this number.
    fn number(&self) -> Vec<u8> {
        let mut request = vec![0; 8];
        let number = self.body.get(8..).and_then(|rest| attribute(rest, NEXTHOP_ID));
        put(&mut request, NEXTHOP_ID, number.unwrap_or_default());
        request
    }

    fn refused(&self, refusal: crate::netlink::Refusal) -> QueueError {
        let mut error = QueueError::refused(self.command.clone(), refusal);
        match error.reason {
            Reason::MissingFeature => error.remedy = LACKS.to_owned(),
            Reason::Other(_) => error.remedy = "the same words for `ip` may say more".to_owned(),
            _ => {}
        }
        error
    }

    fn foreign(&self) -> QueueError {
        QueueError {
            what: self.command.clone(),
            reason: Reason::Other(io::ErrorKind::AlreadyExists.into()),
            remedy: "somebody else's nexthop, route or address is there: take it away, or give the tunnel another id, segment or inside"
                .to_owned(),
        }
    }
}

/// What belongs to an end, in the order in which it is made.
fn parts(tunnel: &Tunnel, index: u32) -> Vec<Part> {
    let Tunnel { device, id, local, remote, .. } = tunnel;
    let part = |kind, body, command| Part { kind, body, command };
    let mut parts = vec![
        part(
            NEXTHOP,
            nexthop(*id, index, *remote),
            format!("ip -6 nexthop add id {id} encap seg6 mode encap segs {remote} dev {device} proto {OURS}"),
        ),
        part(
            ROUTE,
            segment(*local, index),
            format!(
                "ip -6 route add {local}/128 encap seg6local action End.DT6 table {MAIN} dev {device} proto {OURS}"
            ),
        ),
    ];
    let Some((IpAddr::V6(own), length)) = tunnel.inside else { return parts };
    // End.DT6 looks only into the table that it names, so the own address has to be there, too.
    parts.push(part(
        ADDRESS,
        address(own, index),
        format!("ip -6 address add {own}/128 dev {device} preferred_lft 0 nodad noprefixroute"),
    ));
    parts.push(part(
        ROUTE,
        route(own.into(), 128, LOCAL, &[(OUTPUT, &LO.to_ne_bytes())]),
        format!("ip -6 route add local {own}/128 dev lo table {MAIN} proto {OURS}"),
    ));
    if length < 128 {
        let network = Ipv6Addr::from(u128::from(own) & !u128::MAX.checked_shr(length.into()).unwrap_or(0));
        parts.push(part(
            ROUTE,
            route(network.into(), length, UNICAST, &[(BY_NEXTHOP, &id.to_ne_bytes()), (SOURCE, &own.octets())]),
            format!("ip -6 route add {network}/{length} nhid {id} src {own} proto {OURS}"),
        ));
    }
    parts
}

/// Attributes of nexthops (`NHA_…`).
const NEXTHOP_ID: u16 = 1;
const NEXTHOP_OUTPUT: u16 = 5;
const NEXTHOP_ENCAPSULATION_TYPE: u16 = 7;
const NEXTHOP_ENCAPSULATION: u16 = 8;
/// `LWTUNNEL_ENCAP_SEG6`, `SEG6_IPTUN_MODE_ENCAP`
const SEG6: u16 = 5;
const ENCAP: u32 = 1;
/// Next header (the kernel's), length beyond 8 B in units of 8 B, type 4, segments left, last entry, flags, tag (RFC 8754 §2).
const ONE_SEGMENT: [u8; 8] = [0, 2, 4, 0, 0, 0, 0, 0];

fn nexthop(id: u32, index: u32, remote: IpAddr) -> Vec<u8> {
    let mut inner = Vec::new();
    put(&mut inner, 1, &[&ENCAP.to_ne_bytes()[..], &ONE_SEGMENT, &message::octets(remote)].concat());
    let mut body = vec![libc::AF_INET6 as u8, 0, OURS, 0, 0, 0, 0, 0];
    put(&mut body, NEXTHOP_ID, &id.to_ne_bytes());
    put(&mut body, NEXTHOP_OUTPUT, &index.to_ne_bytes());
    put(&mut body, NEXTHOP_ENCAPSULATION_TYPE, &SEG6.to_ne_bytes());
    put(&mut body, NEXTHOP_ENCAPSULATION | NESTED, &inner);
    body
}

/// Attributes of routes (`RTA_…`).
const DESTINATION: u16 = 1;
const OUTPUT: u16 = 4;
const SOURCE: u16 = 7;
const ENCAPSULATION_TYPE: u16 = 21;
const ENCAPSULATION: u16 = 22;
const BY_NEXTHOP: u16 = 30;
/// `LWTUNNEL_ENCAP_SEG6_LOCAL`, and of it `SEG6_LOCAL_ACTION` with `SEG6_LOCAL_ACTION_END_DT6`, and `SEG6_LOCAL_TABLE`.
const SEG6_LOCAL: u16 = 7;
const ACTION: u16 = 1;
const END_DT6: u32 = 7;
const TABLE: u16 = 3;

fn segment(local: IpAddr, index: u32) -> Vec<u8> {
    let mut inner = Vec::new();
    put(&mut inner, ACTION, &END_DT6.to_ne_bytes());
    put(&mut inner, TABLE, &u32::from(MAIN).to_ne_bytes());
    let more: [(u16, &[u8]); 3] = [
        (OUTPUT, &index.to_ne_bytes()),
        (ENCAPSULATION_TYPE, &SEG6_LOCAL.to_ne_bytes()),
        (ENCAPSULATION | NESTED, &inner),
    ];
    route(local, 128, UNICAST, &more)
}

fn route(to: IpAddr, length: u8, of: u8, more: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![libc::AF_INET6 as u8, length, 0, 0, MAIN, OURS, 0, of, 0, 0, 0, 0];
    put(&mut body, DESTINATION, &message::octets(to));
    more.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
    body
}

/// `IFA_CACHEINFO`, `IFA_FLAGS`
const LIFETIME: u16 = 6;
const FLAGS: u16 = 8;
/// `IFA_F_NODAD | IFA_F_NOPREFIXROUTE`: usable at once, and without a route of the kernel's own.
const PLAIN: u32 = 0x202;

/// The address of a device without a network. It is deprecated from the start, so that what is sent outside does not have it; the route to the
/// other end's network names it.
fn address(own: Ipv6Addr, index: u32) -> Vec<u8> {
    let mut body = message::address(index, own.into(), 128);
    put(&mut body, FLAGS, &PLAIN.to_ne_bytes());
    put(&mut body, LIFETIME, &words([0, u32::MAX, 0, 0]));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::system::TunnelKind;

    fn end(inside: &str, length: u8) -> Tunnel {
        Tunnel {
            kind: TunnelKind::Srv6,
            device: "eth1".into(),
            id: 7,
            port: 4789,
            local: "fd97:1::7".parse().unwrap(),
            remote: "fd97:2::7".parse().unwrap(),
            mtu: 1436,
            inside: Some((inside.parse().unwrap(), length)),
        }
    }

    #[test]
    fn an_end_is_made_by_these_commands() {
        let made = commands(&end("fd98::1", 64));
        assert_eq!(
            made,
            [
                "ip -6 nexthop add id 7 encap seg6 mode encap segs fd97:2::7 dev eth1 proto 122",
                "ip -6 route add fd97:1::7/128 encap seg6local action End.DT6 table 254 dev eth1 proto 122",
                "ip -6 address add fd98::1/128 dev eth1 preferred_lft 0 nodad noprefixroute",
                "ip -6 route add local fd98::1/128 dev lo table 254 proto 122",
                "ip -6 route add fd98::/64 nhid 7 src fd98::1 proto 122",
            ]
        );
        assert_eq!(commands(&end("fd98::1", 128)), made[..4]);
        assert_eq!(commands(&Tunnel { inside: None, ..end("fd98::1", 64) }), made[..2]);
    }

    #[test]
    fn a_part_is_shown_with_more_but_not_with_less_or_other_values() {
        let all = parts(&end("fd98::1", 64), 2);
        let other = parts(&Tunnel { id: 8, remote: "fd97:3::7".parse().unwrap(), ..end("fd98::2", 64) }, 3);
        for (part, other) in all.iter().zip(&other) {
            let mut more = part.body.clone();
            put(&mut more, 20, &[0]);
            assert!(part.is_shown(&part.body) && part.is_shown(&more), "{}", part.command);
            assert!(!part.is_shown(&other.body) && !part.is_shown(&part.body[..12]), "{}", part.command);
        }
    }
}
