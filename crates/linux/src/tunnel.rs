//! Ends of tunnels whose packets have on their outside the mark that they have inside, made, read back, and removed (V-41): VXLAN devices
//! (RFC 7348, ip-link(8)), nexthops and segments of SRv6 (RFC 8754, ip-route(8)), and nexthops and labels of MPLS (RFC 3032).
//!
//! Which ones were made stands in a journal before each change, as for queues ([`crate::queueing`]): a device of the same name that somebody
//! else made is never touched. All of it concerns the network namespace of the calling thread.

mod journal;
mod labels;
mod message;
mod objects;
mod parts;
mod routes;
mod rules;
mod segments;
mod settings;

use crate::netlink::{CREATE, Socket};
use crate::queueing::{QueueError, Reason};
use journal::{Content, Journal};
use message::{ADDRESS, DELETE, LINK, NEW};
use qos::system::TunnelKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// An end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Its encapsulation.
    #[serde(default)]
    pub kind: TunnelKind,
    /// VXLAN: the name of its device. SRv6, MPLS: the device by which its packets leave.
    pub device: String,
    /// VXLAN: the number of its network (VNI), below 2^24. SRv6: the number of the nexthop. MPLS: that, and the label.
    pub id: u32,
    /// The UDP port of its packets (VXLAN).
    pub port: u16,
    /// The address of this end. SRv6: its segment, which is no address of a device. MPLS: its own at the device.
    pub local: IpAddr,
    /// The address of the other end, of the same version. SRv6: its segment. MPLS: the neighbour's at the device.
    pub remote: IpAddr,
    /// The largest packet in it, bytes.
    pub mtu: u32,
    /// The address inside, with the length of its network.
    pub inside: Option<(IpAddr, u8)>,
}

impl Tunnel {
    /// The commands of `ip` that make it.
    pub fn commands(&self) -> Vec<String> {
        if !self.kind.has_device() {
            return parts::commands(self);
        }
        let Self { device, id, port, local, remote, mtu, inside, .. } = self;
        let link = format!(
            "ip link add dev {device} mtu {mtu} up type vxlan id {id} local {local} remote {remote} dstport {port} tos inherit nolearning"
        );
        let address = inside.map(|(address, length)| format!("ip address add {address}/{length} dev {device}"));
        std::iter::once(link).chain(address).collect()
    }

    /// The command that takes it away.
    fn removal(&self) -> String {
        match self.kind {
            TunnelKind::Vxlan => format!("ip link delete dev {}", self.device),
            TunnelKind::Srv6 | TunnelKind::Mpls => format!("ip nexthop delete id {}", self.id),
        }
    }

    /// `true` if making it leaves the other one, or changes it: it need not be taken away.
    fn continues(&self, other: &Self) -> bool {
        match self.kind.has_device() && other.kind.has_device() {
            true => self.device == other.device,
            // Routes know neither.
            false => *other == Self { mtu: other.mtu, port: other.port, ..self.clone() },
        }
    }

    /// `true` if this is the device, whatever else was changed on it.
    fn is(&self, found: &Found) -> bool {
        let one = &found.tunnel;
        (one.id, one.local, one.remote) == (self.id, self.local, self.remote)
    }
}

/// A VXLAN device as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    index: u32,
    /// Without its address.
    tunnel: Tunnel,
    /// It is up, takes the mark of what is inside, and learns no addresses.
    is_ready: bool,
}

/// Tunnels that were made, and taken away when this is dropped, unless kept. To be dropped by a thread in the same network namespace.
#[derive(Debug)]
#[must_use = "tunnels are taken away when this is dropped"]
pub struct Made {
    journal: Journal,
    /// What was there before the call.
    before: Content,
    wanted: Content,
    /// Those that were made by the call.
    new: Vec<Tunnel>,
    kept: bool,
    /// The changes, in the words of `ip`.
    pub changes: Vec<String>,
}

/// Makes these tunnels beside those that were made before, all or none, and reads them back. What is not wanted any more goes when the result
/// is kept, so that queues on it can be taken away first. The journal is written to `directory` before anything is changed.
///
/// # Errors
/// The refused step, in the words of `ip`; everything is then as it was before the call.
pub fn make(directory: &Path, wanted: &[Tunnel]) -> Result<Made, QueueError> {
    let journal = Journal::open(directory)?;
    let before = journal.load()?;
    let mut socket = Socket::open()?;
    wanted.iter().try_for_each(|tunnel| check(&mut socket, tunnel, &before.tunnels))?;
    let wanted = Content { tunnels: wanted.to_vec(), settings: settings::raised(&before.settings, wanted) };
    let (new, changes) = (Vec::new(), Vec::new());
    let mut made = Made { journal, before, wanted, new, kept: false, changes };
    if made.wanted != made.before {
        // Until it is kept, the journal names what was and what will be there.
        let Content { tunnels, settings } = made.wanted.clone();
        made.journal.save(&Content { tunnels: [&made.before.tunnels[..], &tunnels].concat(), settings })?;
    }
    // The kernel has each number once: a tunnel under a new name takes that of the old one. Routes have no queues that would go first.
    let is_freed = |one: &&Tunnel| {
        let takes = |other: &Tunnel| other.kind.has_device() && (other.id, other.port) == (one.id, one.port);
        !made.wanted.tunnels.iter().any(|other| other.continues(one))
            && (!one.kind.has_device() || made.wanted.tunnels.iter().any(takes))
    };
    let freed: Vec<Tunnel> = made.before.tunnels.iter().filter(is_freed).cloned().collect();
    for tunnel in freed {
        if remove(&tunnel)? {
            made.changes.push(tunnel.removal());
        }
    }
    for tunnel in made.wanted.tunnels.clone() {
        let changes = ensure(&mut socket, &tunnel)?;
        if !changes.is_empty() {
            made.new.push(tunnel);
        }
        made.changes.extend(changes);
    }
    Ok(made)
}

impl Made {
    /// Leaves the tunnels until [`restore`], and takes away those that are not wanted any more.
    ///
    /// # Errors
    /// The refused step.
    pub fn keep(mut self) -> Result<Vec<String>, QueueError> {
        self.kept = true;
        let Content { tunnels, settings } = self.wanted.clone();
        let is_gone = |one: &&Tunnel| one.kind.has_device() && !tunnels.iter().any(|wanted| wanted.continues(one));
        let gone = self.before.tunnels.iter().filter(is_gone);
        for tunnel in gone {
            if remove(tunnel)? {
                self.changes.push(tunnel.removal());
            }
        }
        let (settings, not_needed) = settings::divided(&settings, &tunnels);
        settings::put_back(&not_needed)?;
        let now = Content { tunnels, settings };
        if now != self.before {
            self.journal.save(&now)?;
        }
        Ok(std::mem::take(&mut self.changes))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // A refused step cannot be reported any more; the journal then still names both.
        let undo = || {
            let mut socket = Socket::open()?;
            self.new.iter().map(remove).collect::<Result<Vec<_>, _>>()?;
            settings::undo(&self.before.settings, &self.wanted.settings)?;
            self.before.tunnels.iter().map(|tunnel| ensure(&mut socket, tunnel)).collect::<Result<Vec<_>, _>>()?;
            self.journal.save(&self.before)
        };
        let _: Result<(), QueueError> = undo();
    }
}

/// A tunnel that was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its device.
    pub device: String,
    /// `false`: it was gone, or another device had its name.
    pub was_there: bool,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.was_there {
            true => write!(f, "{}: the tunnel is gone, as before", self.device),
            false => write!(f, "{}: no tunnel of ours is there any more", self.device),
        }
    }
}

/// Takes away the tunnels that were made in this network namespace, by any program. `directory`: as for [`make`].
///
/// # Errors
/// The refused step; the journal stays for another attempt.
pub fn restore(directory: &Path) -> Result<Vec<Removed>, QueueError> {
    let journal = Journal::open(directory)?;
    let mut all: Vec<Removed> = Vec::new();
    // A change that was interrupted left two entries for a device.
    let Content { tunnels, settings } = journal.load()?;
    for tunnel in tunnels {
        let was_there = remove(&tunnel)?;
        match all.iter_mut().find(|one| one.device == tunnel.device) {
            Some(known) => known.was_there |= was_there,
            None => all.push(Removed { device: tunnel.device, was_there }),
        }
    }
    settings::put_back(&settings)?;
    journal.save(&Content::default())?;
    Ok(all)
}

/// Checks that no device of somebody else has its name.
fn check(socket: &mut Socket, wanted: &Tunnel, ours: &[Tunnel]) -> Result<(), QueueError> {
    if !wanted.kind.has_device() {
        return parts::check(socket, wanted, ours);
    }
    let is_ours = |found: &Found| ours.iter().any(|one| one.device == wanted.device && one.is(found));
    match look(socket, &wanted.device)? {
        Look::Tunnel(found) if is_ours(&found) => Ok(()),
        Look::Nothing => Ok(()),
        Look::Tunnel(_) | Look::Other => Err(QueueError {
            what: wanted.commands().remove(0),
            reason: Reason::Other(io::ErrorKind::AlreadyExists.into()),
            remedy: format!("{} is somebody else's device: give the tunnel another name", wanted.device),
        }),
    }
}

/// Makes a tunnel where it is not there as wanted; one that differs is made anew.
fn ensure(socket: &mut Socket, wanted: &Tunnel) -> Result<Vec<String>, QueueError> {
    if !wanted.kind.has_device() {
        return parts::ensure(socket, wanted);
    }
    let mut changes = Vec::new();
    if let Look::Tunnel(found) = look(socket, &wanted.device)? {
        if is_as_wanted(socket, &found, wanted)? {
            return Ok(changes);
        }
        delete(socket, &wanted.device, found.index)?;
        changes.push(wanted.removal());
    }
    create(socket, wanted)?;
    changes.extend(wanted.commands());
    let found = look(socket, &wanted.device)?;
    match found {
        Look::Tunnel(found) if is_as_wanted(socket, &found, wanted)? => return Ok(changes),
        Look::Tunnel(found) => delete(socket, &wanted.device, found.index)?,
        Look::Nothing | Look::Other => {}
    }
    Err(QueueError {
        what: wanted.commands().remove(0),
        reason: Reason::Differs("the kernel took it, but shows something else".to_owned()),
        remedy: "`ip -d link` with the same words says what".to_owned(),
    })
}

fn create(socket: &mut Socket, wanted: &Tunnel) -> Result<(), QueueError> {
    let commands = wanted.commands();
    let answer = socket.ask(LINK + NEW, CREATE, &message::link(wanted))?;
    answer.map_err(|refusal| match refusal.errno {
        libc::EOPNOTSUPP => QueueError {
            what: commands[0].clone(),
            reason: Reason::MissingFeature,
            remedy: "`modprobe vxlan`, or take a kernel that has it, or a link without a tunnel".to_owned(),
        },
        _ => QueueError::refused(commands[0].clone(), refusal),
    })?;
    let (Some((address, length)), Look::Tunnel(made)) = (wanted.inside, look(socket, &wanted.device)?) else {
        return Ok(());
    };
    let answer = socket.ask(ADDRESS + NEW, CREATE, &message::address(made.index, address, length))?;
    answer.map(drop).map_err(|refusal| {
        let _ = delete(socket, &wanted.device, made.index);
        QueueError::refused(commands.last().cloned().unwrap_or_default(), refusal)
    })
}

/// Takes a tunnel away; `false` if it is not there.
fn remove(tunnel: &Tunnel) -> Result<bool, QueueError> {
    let mut socket = Socket::open()?;
    if !tunnel.kind.has_device() {
        return parts::remove(&mut socket, tunnel);
    }
    match look(&mut socket, &tunnel.device)? {
        Look::Tunnel(found) if tunnel.is(&found) => delete(&mut socket, &tunnel.device, found.index).map(|()| true),
        _ => Ok(false),
    }
}

fn delete(socket: &mut Socket, device: &str, index: u32) -> Result<(), QueueError> {
    let answer = socket.ask(LINK + DELETE, 0, &message::numbered(index))?;
    answer.map(drop).map_err(|refusal| QueueError::refused(format!("ip link delete dev {device}"), refusal))
}

/// What has a name.
enum Look {
    Nothing,
    Tunnel(Found),
    Other,
}

fn look(socket: &mut Socket, device: &str) -> Result<Look, QueueError> {
    match socket.ask(LINK + message::GET, 0, &message::named(device))? {
        Ok(messages) => {
            let found = messages.iter().find(|one| one.kind == LINK + NEW).and_then(|one| message::read(&one.body));
            Ok(found.map_or(Look::Other, Look::Tunnel))
        }
        Err(refusal) if refusal.errno == libc::ENODEV => Ok(Look::Nothing),
        Err(refusal) => Err(QueueError::refused(format!("ip link show dev {device}"), refusal)),
    }
}

/// `true` if a device is this tunnel, with its address.
fn is_as_wanted(socket: &mut Socket, found: &Found, wanted: &Tunnel) -> Result<bool, QueueError> {
    let same = found.is_ready && found.tunnel == Tunnel { inside: None, ..wanted.clone() };
    let Some(inside) = wanted.inside.filter(|_| same) else { return Ok(same) };
    let family = if inside.0.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let answer = socket.ask(ADDRESS + message::GET, crate::netlink::DUMP, &message::addresses(family))?;
    let all = answer.map_err(|refusal| QueueError::refused("ip address show".to_owned(), refusal))?;
    Ok(all.iter().any(|one| message::read_address(&one.body) == Some((found.index, inside.0, inside.1))))
}
