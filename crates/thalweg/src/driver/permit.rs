//! Permissions to change this node.
//!
//! Its own host may change it by the unix socket, whose users were admitted. Other hosts may look. They may change something only if the
//! node knows their network ([`Settings::admin_from`](crate::Settings::admin_from)). There is no cryptography yet: whoever can open a
//! connection from such an address may administer. The claims of a caller about itself (its host, or the id of its node on a link of another
//! node) decide nothing. If the link proves its node, the node decides which end of a channel is its own.
//!
//! Some requests only this process's own user and root may make. All users of a shared run directory may administer its nodes. However, no
//! user may have another user's process do what the user itself may not: a node of root runs at `fifo:99`, while its caller could not.
//! These requests are for scheduling, processors, and socket priorities above 6. For these, the kernel requires a capability or the
//! process's own user. All other settings a user can as well reach by ports of its own.

use super::calls::Asker;
use super::commands::{Answered, Forwarded};
use super::control::Control;
use crate::admin::{self, Reply, Request};
use crate::control::{Network, NodeId, Origin};
use qos::priority::{Change, Changes, PrioritySettings};
use std::net::SocketAddr;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Its node, as far as the connection proves it; `None`: this node, or an unknown one.
    pub node: Option<NodeId>,
    pub origin: Origin,
}

impl Caller {
    /// This process.
    pub(super) const HERE: Self = Self { node: None, origin: Origin::Own };

    /// `true` if it is on this host.
    pub(super) fn is_here(self) -> bool {
        self.origin.is_here()
    }
}

/// `true` if a request changes something, or the command in it does. All others only look.
fn changes(request: &Request) -> bool {
    match request {
        Request::Connect { .. }
        | Request::Disconnect { .. }
        | Request::Keep { .. }
        | Request::Set { .. }
        | Request::Remember { .. }
        | Request::Scale { .. }
        | Request::Verdict { .. } => true,
        Request::Command { text, .. } => admin::grammar::Command::parse(text).is_ok_and(|command| command.changes()),
        Request::Channels
        | Request::Get { .. }
        | Request::Measure { .. }
        | Request::Stages { .. }
        | Request::Lateness { .. }
        | Request::Clock
        | Request::Memory
        | Request::Alive { .. }
        | Request::Explain { .. } => false,
    }
}

impl Control {
    /// The addresses for a request that travels on a connection of its own. This is a request of a person that changes something on another
    /// host, which has to see the address of its sender. Empty: the request may travel any way.
    pub(super) fn direct_addresses(&self, to: NodeId, request: &[u8], asker: &Asker) -> Vec<SocketAddr> {
        let asked = !matches!(asker, Asker::Nobody);
        if !asked || !serde_json::from_slice(request).is_ok_and(|request| changes(&request)) {
            return Vec::new();
        }
        let (directory, own) = (self.state.directory(), self.state.document());
        let Some(there) = directory.node(to) else { return Vec::new() };
        let beyond = there.addresses.iter().filter(|address| !address.ip().is_loopback() || there.host == own.host);
        beyond.take(MOST_TRIED).copied().collect()
    }

    /// Carries out a request, here or by the node that can, and answers its asker.
    pub(super) fn asked(&mut self, request: &[u8], caller: Caller, asker: Asker) {
        let answered = match serde_json::from_slice(request) {
            Ok(request) => match self.forbids(&request, caller) {
                Some(why) => Answered::Here(Reply::No(why)),
                None => self.administer(request, caller),
            },
            Err(problem) => Answered::Here(Reply::No(format!("a request that cannot be read: {problem}"))),
        };
        match answered {
            Answered::Here(reply) => self.give(asker, admin::pack(&reply)),
            Answered::Elsewhere(Forwarded { to, request, done }) => {
                self.ask(to, &request, Asker::Command(Box::new(asker), done));
            }
        }
    }

    /// The reason why a request is refused for this caller; `None`: it is permitted.
    fn forbids(&mut self, request: &Request, caller: Caller) -> Option<String> {
        let from = match caller.origin {
            Origin::Own | Origin::Host { .. } => return None,
            Origin::Tcp { from, .. } => Some(from),
            Origin::Zenoh => None,
        };
        if let Request::Alive { publisher } = request {
            let its = caller.node.is_some_and(|node| self.is_port_of(publisher, node));
            return (!its).then(|| format!("{publisher} is no port of the node that says it is alive"));
        }
        if !changes(request) || self.moves_own_channel(request, caller) {
            return None;
        }
        if from.is_some_and(|from| self.state.settings.admin_from.iter().any(|network| network.contains(from))) {
            return match request {
                // A kept connection applies to later programs of this host, also after its sender has left.
                Request::Keep { priority, .. } if priority.wants_own_thread() => Some(format!(
                    "node {} keeps no {} that another host asks for: say it on its own host",
                    self.state.settings.name,
                    priority.sched.map_or("affinity".to_owned(), |sched| format!("scheduling (sched={sched})"))
                )),
                _ => None,
            };
        }
        self.count("requests of other hosts to change something");
        Some(self.no_administration(from))
    }

    fn no_administration(&self, from: Option<std::net::IpAddr>) -> String {
        let name = &self.state.settings.name;
        let Some(from) = from else {
            return format!(
                "node {name} takes administration only from its own host, and of a request by Zenoh it does not know whence it comes: \
                 start it with --admin-from and the network of who asks, and ask by its address (--discovery static:FILE)"
            );
        };
        match &self.state.settings.admin_from[..] {
            [] => {
                let network = network_of(from);
                format!(
                    "node {name} takes administration only from its own host, not from {from}; start it with --admin-from {network}"
                )
            }
            networks => {
                let networks: Vec<String> = networks.iter().map(Network::to_string).collect();
                format!(
                    "node {name} takes administration only from its own host and {}, not from {from}; start it with --admin-from {from}, too",
                    networks.join(", ")
                )
            }
        }
    }

    /// `true` if a publisher's node has one of its own channels opened over another carrier. It may do so, because it could as well refuse
    /// the present carrier.
    fn moves_own_channel(&self, request: &Request, caller: Caller) -> bool {
        let (Request::Connect { publisher, subscriber, carrier: Some(_) }, Some(node)) = (request, caller.node) else {
            return false;
        };
        self.matching.is_wanted_of(node, publisher, subscriber)
    }

    fn is_port_of(&self, name: &str, node: NodeId) -> bool {
        self.known(name).is_some_and(|(at, _)| at.node == node)
    }

    /// A request without the parts that this caller may not ask of this process.
    ///
    /// # Errors
    /// The reason why the request is not carried out at all. Settings that nodes send each other to remember are accepted, but without
    /// those that take a privilege: otherwise these would come back as this node's own when the other node starts anew.
    pub(super) fn permitted(&self, request: Request, caller: Caller) -> Result<Request, String> {
        let Some(who) = unprivileged(caller) else { return Ok(request) };
        let what = match &request {
            Request::Set { changes, .. } => of_changes(changes),
            Request::Keep { priority, .. } => of_settings(priority),
            Request::Remember { .. } => return Ok(self.without_privilege(request)),
            _ => None,
        };
        let Some(what) = what else { return Ok(request) };
        let (name, own) = (&self.state.settings.name, own_user());
        let by = if own == 0 { "user 0".to_owned() } else { format!("user {own} or root") };
        Err(format!(
            "node {name} is user {own}'s and takes {what} from that user and root only, not from {who}: say it as {by}"
        ))
    }

    fn without_privilege(&self, request: Request) -> Request {
        let Request::Remember { port, other, settings } = request else { return request };
        let settings = without(settings, self.priorities.remembered(&port, &other));
        Request::Remember { port, other, settings }
    }
}

/// An example of a network with this address, for an error message.
fn network_of(address: std::net::IpAddr) -> String {
    match address.to_canonical() {
        std::net::IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let private =
                [("10.0.0.0/8", a == 10), ("192.168.0.0/16", (a, b) == (192, 168)), ("127.0.0.0/8", a == 127)];
            private.iter().find(|(_, is)| *is).map_or(format!("{a}.{b}.{c}.0/24"), |(text, _)| (*text).to_owned())
        }
        v6 => v6.to_string(),
    }
}

/// The part of a change that takes a privilege; `None`: no part does.
fn of_changes(changes: &Changes) -> Option<String> {
    if !changes.sched.is_keep() {
        let to = if let Change::Set(sched) = changes.sched { sched.to_string() } else { "default".to_owned() };
        return Some(format!("scheduling (sched={to})"));
    }
    if !changes.affinity.is_keep() {
        return Some("processors (affinity=)".to_owned());
    }
    match changes.socket_priority {
        Change::Set(priority) if priority > MOST_SOCKET_PRIORITY => Some(format!("socket priority {priority}")),
        _ => None,
    }
}

/// The same for settings that are to be kept.
fn of_settings(settings: &PrioritySettings) -> Option<String> {
    fn set<T: Clone>(value: &Option<T>) -> Change<T> {
        value.clone().map_or(Change::Keep, Change::Set)
    }
    let PrioritySettings { socket_priority, sched, affinity, .. } = settings;
    let (socket_priority, sched, affinity) = (set(socket_priority), set(sched), set(affinity));
    of_changes(&Changes { socket_priority, sched, affinity, ..Changes::default() })
}

/// The settings, with those that take a privilege as they were `before`.
pub(super) fn without(settings: PrioritySettings, before: Option<&PrioritySettings>) -> PrioritySettings {
    let high = |priority: &u32| *priority > MOST_SOCKET_PRIORITY;
    let before = before.cloned().unwrap_or_default();
    PrioritySettings {
        sched: before.sched,
        affinity: before.affinity,
        socket_priority: before.socket_priority.filter(high).or(settings.socket_priority.filter(|p| !high(p))),
        ..settings
    }
}

/// The settings that a user's file may set for this process's ends. A directory's owner who is not root can have a process of root do no
/// more by a file there than by the socket.
pub(super) fn of_user(user: u32, settings: PrioritySettings) -> PrioritySettings {
    if is_ours(user) { settings } else { without(settings, None) }
}

pub(super) fn is_ours(user: u32) -> bool {
    user == 0 || user == own_user()
}

/// `true` if this caller may ask for settings that take a privilege.
pub(super) fn may_all(caller: Caller) -> bool {
    unprivileged(caller).is_none()
}

/// The name of a caller that is neither this process's user nor root. A caller of another host that an administrator has let in may do all.
fn unprivileged(caller: Caller) -> Option<String> {
    match caller.origin {
        Origin::Own => None,
        Origin::Host { user } if is_ours(user) => None,
        Origin::Host { user } => Some(format!("user {user}")),
        Origin::Tcp { here: true, user: Some(user), .. } if is_ours(user) => None,
        Origin::Tcp { here: true, user: Some(user), .. } => Some(format!("user {user}")),
        Origin::Tcp { from, here: true, user: None } => {
            Some(format!("{from}, an address of this host whose user is unknown (the node's unix socket tells it)"))
        }
        Origin::Tcp { here: false, .. } | Origin::Zenoh => None,
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Most addresses of a node that are tried for a request that changes something.
const MOST_TRIED: usize = 4;
/// Highest socket priority for which the kernel requires no capability.
const MOST_SOCKET_PRIORITY: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_look_and_requests_that_change_are_told_apart() {
        let command = |text: &str| Request::Command { port: "/out".into(), text: text.into() };
        for looks in ["help", "list", "ver", "prop get", "prop get /out", "get out /out", "pray", "no such command ("] {
            assert!(!changes(&command(looks)), "{looks}");
        }
        for changing in ["add /in", "del /in", "prop set a b", "set out /out (a b)", "dtch out", "custom"] {
            assert!(changes(&command(changing)), "{changing}");
        }
        let names = || ("/out".to_owned(), "/in".to_owned());
        let (publisher, subscriber) = names();
        assert!(changes(&Request::Disconnect { publisher, subscriber }));
        let (publisher, subscriber) = names();
        assert!(!changes(&Request::Explain { publisher, subscriber }));
        assert!(!changes(&Request::Channels) && !changes(&Request::Clock));
    }

    #[test]
    fn the_network_that_is_advised_has_the_address() {
        for address in ["10.1.2.3", "192.168.7.7", "172.16.1.2", "127.0.0.1", "fd00::1"] {
            let network: Network = network_of(address.parse().unwrap()).parse().unwrap();
            assert!(network.contains(address.parse().unwrap()), "{address}: {network}");
        }
    }

    #[test]
    fn changes_that_take_a_privilege_are_told_from_others() {
        let what = |text: &str| of_changes(&text.parse().unwrap());
        for free in ["class=critical", "dscp=EF", "tos=184", "priority=6", "priority=default", "pace=1Mbit/s"] {
            assert_eq!(what(free), None, "{free}");
        }
        let privileged = [
            ("sched=fifo:30 class=high", "scheduling (sched=fifo:30)"),
            ("sched=default", "scheduling (sched=default)"),
            ("affinity=1", "processors (affinity=)"),
            ("affinity=default", "processors (affinity=)"),
            ("class=high priority=7", "socket priority 7"),
        ];
        for (text, named) in privileged {
            assert_eq!(what(text).as_deref(), Some(named), "{text}");
        }
    }

    #[test]
    fn settings_remembered_for_another_user_leave_privileged_ones_as_they_were() {
        let settings = |text: &str| {
            let mut settings = PrioritySettings::default();
            text.parse::<Changes>().unwrap().apply(&mut settings);
            settings
        };
        let before = settings("class=low sched=fifo:30 priority=9");
        let said = settings("class=high sched=fifo:99 affinity=0 priority=12");
        assert_eq!(without(said.clone(), None), settings("class=high"));
        assert_eq!(without(said, Some(&before)), settings("class=high sched=fifo:30 priority=9"));
        assert_eq!(without(settings(""), Some(&before)), settings("sched=fifo:30 priority=9"));
        assert_eq!(without(settings("priority=3"), Some(&settings("priority=2"))), settings("priority=3"));
        let kept = settings("class=high sched=fifo:99 priority=12");
        assert_eq!(of_user(own_user() + 7, kept.clone()), settings("class=high"), "the directory's owner's file");
        assert_eq!((of_user(0, kept.clone()), of_user(own_user(), kept.clone())), (kept.clone(), kept));
        assert_eq!(of_settings(&settings("class=high priority=6")), None);
        assert_eq!(of_settings(&settings("affinity=0")).as_deref(), Some("processors (affinity=)"));
    }

    #[test]
    fn another_user_and_an_unknown_one_of_this_host_are_named() {
        let of = |origin| unprivileged(Caller { node: None, origin });
        let own = own_user();
        let by = |here, user| Origin::Tcp { from: [10, 0, 0, 7].into(), here, user };
        let at = |here| by(here, None);
        for may in [Origin::Own, Origin::Host { user: own }, Origin::Host { user: 0 }, at(false), by(true, Some(own))] {
            assert_eq!(of(may), None, "{may:?}");
        }
        assert_eq!(of(Origin::Host { user: own + 7 }), Some(format!("user {}", own + 7)));
        assert_eq!(of(by(true, Some(own + 7))), Some(format!("user {}", own + 7)));
        assert!(of(at(true)).unwrap().contains("10.0.0.7, an address of this host"));
    }
}
