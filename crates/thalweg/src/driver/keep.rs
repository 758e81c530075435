//! Connections that last (YS-33): the subscriber's node makes them; the publisher's reminds subscribers of other hosts, whose
//! run directories are others.

use super::calls::Asker;
use super::control::Control;
use super::permit::Caller;
use super::priority::Source;
use super::privilege::{is_ours, may_all, of_user, without};
use crate::admin::{self, Reply, Request};
use crate::channel::PortRef;
use crate::control::kept::Connection;
use crate::control::matching::check_name;
use crate::control::{Direction, PortInfo};
use qos::priority::PrioritySettings;
use std::collections::BTreeSet;

/// Why these are no names of ports; `None`: they are.
pub(super) fn refuse_names(names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| check_name(name).err()).map(|wrong| format!("port name {wrong}"))
}

/// How a connection that lasts came to be known.
#[derive(Clone, Copy)]
enum Said {
    /// It was asked for now; by whom may not ask for what takes a privilege, that stays as it was.
    Now { by_who_may: bool },
    /// It is kept in a file, whose settings are for ends for which nothing was set.
    InFile,
}

/// Of several users' files for the same two ports root's counts, else that of this process's user, else the directory's owner's.
fn first_of_each(mut all: Vec<(Connection, u32)>) -> Vec<(Connection, u32)> {
    all.sort_by_key(|(_, user)| (!is_ours(*user), *user));
    let mut seen = BTreeSet::new();
    all.retain(|(connection, _)| seen.insert((connection.publisher.clone(), connection.subscriber.clone())));
    all
}

/// Connections that last, of this node's publishers: subscribers of other hosts are told of them.
#[derive(Default)]
pub(super) struct Lasting(Vec<Connection>);

impl Lasting {
    /// A connection lasts from now on, instead of one between the same ports.
    pub(super) fn insert(&mut self, connection: Connection) {
        self.remove(&connection.publisher, &connection.subscriber);
        self.0.push(connection);
    }

    /// A connection does not last any more.
    pub(super) fn remove(&mut self, publisher: &str, subscriber: &str) {
        self.0.retain(|of| (of.publisher.as_str(), of.subscriber.as_str()) != (publisher, subscriber));
    }

    /// Those to a subscriber of this name.
    pub(super) fn to(&self, subscriber: &str) -> impl Iterator<Item = &Connection> {
        self.0.iter().filter(move |of| of.subscriber == subscriber)
    }

    /// `true` if there is one to a subscriber of this name.
    pub(super) fn is_to(&self, subscriber: &str) -> bool {
        self.to(subscriber).next().is_some()
    }

    /// The names of all their ports.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|of| [of.publisher.as_str(), of.subscriber.as_str()])
    }
}

impl Control {
    /// Keeps a connection on this host, and makes it as far as it concerns this node's ports.
    pub(super) fn keep_connected(&mut self, connection: Connection, caller: Caller) -> Reply {
        if let Some(why) = refuse_names([&connection.publisher, &connection.subscriber]) {
            return Reply::No(why);
        }
        if let Some(why) = self.refuse_carrier(connection.carrier.as_ref()) {
            return Reply::No(why);
        }
        if let Err(wrong) = connection.priority.check() {
            return Reply::No(wrong.to_string());
        }
        if let Some(Err(problem)) = self._endpoint.as_ref().map(|endpoint| endpoint.kept().keep(&connection)) {
            return Reply::No(problem.to_string());
        }
        let said = Said::Now { by_who_may: may_all(caller) };
        let (publisher, subscriber) = (self.known(&connection.publisher), self.known(&connection.subscriber));
        if publisher.as_ref().is_some_and(|(at, _)| at.node == self.state.id) {
            self.last_from(connection.clone(), said);
        }
        if let Some((me, asked)) = subscriber.filter(|(at, _)| at.node == self.state.id) {
            self.last_to(connection, said);
            if let Some((other, offered)) = publisher {
                self.consider(other, &offered, me, &asked);
            }
        }
        Reply::Done
    }

    /// A port that the directory knows by its name.
    pub(super) fn known(&self, name: &str) -> Option<(PortRef, PortInfo)> {
        let directory = self.state.directory();
        directory.port_named(name).map(|(k, p)| (PortRef { node: k.node, port: k.port }, p.clone()))
    }

    /// A port of this node is about to be announced: the connections kept for it hold from now on.
    pub(super) fn load_kept(&mut self, port: &PortInfo) {
        let all = self._endpoint.as_ref().map(|endpoint| endpoint.kept().all()).unwrap_or_default();
        for (mut connection, user) in first_of_each(all) {
            connection.priority = of_user(user, connection.priority);
            match port.direction {
                Direction::Subscriber if connection.subscriber == port.name => self.last_to(connection, Said::InFile),
                Direction::Publisher if connection.publisher == port.name => self.last_from(connection, Said::InFile),
                _ => {}
            }
        }
    }

    /// What a connection's ends shall have: kept at once for a port of this node, and for the other one until it comes.
    fn prioritise_lasting(&mut self, connection: &Connection, said: Said) {
        let Connection { publisher, subscriber, priority, .. } = connection;
        if *priority == PrioritySettings::default() {
            return;
        }
        for (port, other) in [(publisher, subscriber), (subscriber, publisher)] {
            let settings = match said {
                Said::Now { by_who_may: false } => without(priority.clone(), self.priorities.remembered(port, other)),
                _ => priority.clone(),
            };
            let key = (port.clone(), other.clone());
            let source = match said {
                Said::Now { .. } => Source::Set,
                Said::InFile => Source::File,
            };
            let _ = self.remember(key, settings, source); // what is refused is told
        }
    }

    /// It ends at a subscriber of this node, which connects whenever the publisher is there.
    fn last_to(&mut self, connection: Connection, said: Said) {
        self.prioritise_lasting(&connection, said);
        let names = (connection.publisher, connection.subscriber);
        self.matching.connect(names, connection.carrier);
    }

    /// It begins at a publisher of this node.
    fn last_from(&mut self, connection: Connection, said: Said) {
        self.prioritise_lasting(&connection, said);
        if let Some((at, _)) = self.known(&connection.subscriber) {
            self.tell_of(at, &connection);
        }
        self.lasting.insert(connection);
    }

    /// Forgets a connection that was kept; `false`: it was not.
    pub(super) fn forget_kept(&mut self, publisher: &str, subscriber: &str) -> bool {
        self.lasting.remove(publisher, subscriber);
        self._endpoint.as_ref().is_some_and(|endpoint| endpoint.kept().forget(publisher, subscriber))
    }

    /// Tells a subscriber of all connections of this node's publishers to it that last.
    pub(super) fn tell_subscriber(&mut self, at: PortRef, info: &PortInfo) {
        let its: Vec<Connection> = self.lasting.to(&info.name).cloned().collect();
        its.iter().for_each(|connection| self.tell_of(at, connection));
    }

    /// Tells a subscriber of another host of one: its node knows nothing of this host's run directory.
    fn tell_of(&mut self, at: PortRef, connection: &Connection) {
        let here = self.state.document().host.clone();
        let elsewhere = self.state.directory().node(at.node).is_some_and(|document| document.host != here);
        if !elsewhere {
            return;
        }
        let Connection { publisher, subscriber, carrier, priority } = connection.clone();
        // Threads are the business of the host that they run on, and of who may administer there.
        let priority = PrioritySettings { sched: None, affinity: None, ..priority };
        let request = Request::Keep { publisher, subscriber, carrier, priority };
        self.ask(at.node, &admin::pack(&request), Asker::Nobody);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_ports_one_connection_lasts_as_it_was_said_last() {
        let of = |subscriber: &str, carrier: &str| {
            let (publisher, subscriber) = ("/out".to_owned(), subscriber.to_owned());
            Connection { publisher, subscriber, carrier: Some(carrier.into()), priority: Default::default() }
        };
        let mut lasting = Lasting::default();
        [of("/a", "tcp"), of("/b", "tcp"), of("/a", "udp")].into_iter().for_each(|each| lasting.insert(each));
        assert_eq!(lasting.to("/a").cloned().collect::<Vec<_>>(), [of("/a", "udp")]);
        assert_eq!(lasting.names().collect::<Vec<_>>(), ["/out", "/b", "/out", "/a"]);
        lasting.remove("/out", "/a");
        assert!(!lasting.is_to("/a") && lasting.is_to("/b"));
    }

    #[test]
    fn of_several_users_files_for_one_connection_roots_counts_and_then_ones_own() {
        let own = rustix::process::geteuid().as_raw();
        let (root, owner) = (0, own + 7);
        let of = |subscriber: &str, user: u32| {
            let (publisher, subscriber) = ("/out".to_owned(), subscriber.to_owned());
            (
                Connection {
                    publisher,
                    subscriber,
                    carrier: Some(user.to_string().into()),
                    priority: Default::default(),
                },
                user,
            )
        };
        let all = vec![of("/a", owner), of("/a", own), of("/a", root), of("/b", owner), of("/b", own), of("/c", owner)];
        for turned in 0..all.len() {
            let mut read = all.clone();
            read.rotate_left(turned);
            let first: BTreeSet<_> = first_of_each(read).into_iter().map(|(c, user)| (c.subscriber, user)).collect();
            assert_eq!(first, [("/a".into(), root), ("/b".into(), own), ("/c".into(), owner)].into());
        }
    }
}
