//! What belongs to an end that is no device: it is made, read back, and taken away part by part.

use super::message::{self, GET, LINK};
use super::objects::Object;
use super::rules::Rules;
use super::settings::Least;
use super::{Tunnel, labels, segments};
use crate::netlink::Socket;
use crate::queueing::{QueueError, Reason};
use qos::system::TunnelKind;

/// One thing that belongs to an end.
pub(super) enum Part {
    /// What `ip` makes.
    Object(Object),
    /// What `nft` makes.
    Rules(Rules),
    /// A setting of the kernel. Its former value is in the journal, and comes back by that.
    Setting(Least),
}

/// What belongs to an end, in the order in which it is made.
fn parts(tunnel: &Tunnel, index: u32) -> Vec<Part> {
    match tunnel.kind {
        TunnelKind::Mpls => labels::parts(tunnel, index),
        TunnelKind::Srv6 | TunnelKind::Vxlan => segments::parts(tunnel, index).into_iter().map(Part::Object).collect(),
    }
}

/// The commands that make the end.
pub(super) fn commands(tunnel: &Tunnel) -> Vec<String> {
    parts(tunnel, 0).iter().map(Part::command).collect()
}

/// Checks that nothing of somebody else has its number, its segment or its address.
pub(super) fn check(socket: &mut Socket, wanted: &Tunnel, ours: &[Tunnel]) -> Result<(), QueueError> {
    let Some((index, _)) = device(socket, &wanted.device)? else { return Ok(()) };
    let routed = ours.iter().filter(|one| !one.kind.has_device());
    let known: Vec<Object> = routed.flat_map(|one| objects(one, index)).collect();
    for object in objects(wanted, index) {
        if !known.iter().any(|one| one.body == object.body) && object.is_there(socket)? {
            return Err(object.foreign());
        }
    }
    Ok(())
}

fn objects(tunnel: &Tunnel, index: u32) -> impl Iterator<Item = Object> {
    parts(tunnel, index)
        .into_iter()
        .filter_map(|part| if let Part::Object(object) = part { Some(object) } else { None })
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
            Ok(true) => changes.push(part.command()),
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
        was_there |= part.remove(socket)?;
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
    fn command(&self) -> String {
        match self {
            Part::Object(object) => object.command.clone(),
            Part::Rules(rules) => rules.command(),
            Part::Setting(least) => least.command(),
        }
    }

    /// Makes it unless it is there; `true` if it was not.
    fn ensure(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        match self {
            Part::Object(object) => object.ensure(socket),
            Part::Rules(rules) => rules.ensure(),
            Part::Setting(least) => least.ensure(),
        }
    }

    /// Takes it away; `false` if it is not there.
    fn remove(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        match self {
            Part::Object(object) => object.remove(socket),
            Part::Rules(rules) => rules.remove(),
            Part::Setting(_) => Ok(false),
        }
    }
}
