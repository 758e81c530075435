//! Lasting connections (YS-33). The subscriber's node makes them. The publisher's node reminds subscribers of other hosts, which have other
//! run directories.

use super::calls::Asker;
use super::control::Control;
use super::permit::{Caller, is_ours, may_all, of_user, without};
use super::priority::Source;
use crate::admin::{self, Reply, Request};
use crate::channel::PortRef;
use crate::control::kept::Connection;
use crate::control::matching::check_name;
use crate::control::{Direction, PortInfo};
use qos::priority::PrioritySettings;
use std::collections::BTreeSet;

/// The error in these port names; `None`: they are valid.
pub(super) fn refuse_names(names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| check_name(name).err()).map(|wrong| format!("port name {wrong}"))
}

/// The origin of a lasting connection.
#[derive(Clone, Copy)]
enum Said {
    /// An administrator asked for it now. If the caller may not change settings that take a privilege, these stay as they were.
    Now { by_who_may: bool },
    /// A file in the run directory. Its settings are for ends without settings of their own.
    InFile,
}

/// One connection per pair of ports, where several users have files: root's counts first, then that of this process's user, then that of
/// the directory's owner.
fn first_of_each(mut all: Vec<(Connection, u32)>) -> Vec<(Connection, u32)> {
    all.sort_by_key(|(_, user)| (!is_ours(*user), *user));
    let mut seen = BTreeSet::new();
    all.retain(|(connection, _)| seen.insert((connection.publisher.clone(), connection.subscriber.clone())));
    all
}

/// Lasting connections of this node's publishers. Subscribers of other hosts are reminded of them.
#[derive(Default)]
pub(super) struct Lasting(Vec<Connection>);

impl Lasting {
    /// Adds a lasting connection, instead of an earlier one between the same ports.
    pub(super) fn insert(&mut self, connection: Connection) {
        self.remove(&connection.publisher, &connection.subscriber);
        self.0.push(connection);
    }

    /// Removes a lasting connection.
    pub(super) fn remove(&mut self, publisher: &str, subscriber: &str) {
        self.0.retain(|of| (of.publisher.as_str(), of.subscriber.as_str()) != (publisher, subscriber));
    }

    /// The lasting connections to a subscriber of this name.
    pub(super) fn to(&self, subscriber: &str) -> impl Iterator<Item = &Connection> {
        self.0.iter().filter(move |of| of.subscriber == subscriber)
    }

    /// `true` if there is a lasting connection to a subscriber of this name.
    pub(super) fn is_to(&self, subscriber: &str) -> bool {
        self.to(subscriber).next().is_some()
    }

    /// The names of the ports of all lasting connections.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|of| [of.publisher.as_str(), of.subscriber.as_str()])
    }
}

impl Control {
    /// Stores a lasting connection on this host, and makes it as far as it concerns this node's ports.
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
        if let Some(Err(problem)) = self.discoveries.endpoint.as_ref().map(|endpoint| endpoint.kept().keep(&connection))
        {
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

    /// A port, by its name in the directory.
    pub(super) fn known(&self, name: &str) -> Option<(PortRef, PortInfo)> {
        let directory = self.state.directory();
        directory.port_named(name).map(|(k, p)| (PortRef { node: k.node, port: k.port }, p.clone()))
    }

    /// A port of this node is about to be announced: the stored connections of the port hold from now on.
    pub(super) fn load_kept(&mut self, port: &PortInfo) {
        let all = self.discoveries.endpoint.as_ref().map(|endpoint| endpoint.kept().all()).unwrap_or_default();
        for (mut connection, user) in first_of_each(all) {
            connection.priority = of_user(user, connection.priority);
            match port.direction {
                Direction::Subscriber if connection.subscriber == port.name => self.last_to(connection, Said::InFile),
                Direction::Publisher if connection.publisher == port.name => self.last_from(connection, Said::InFile),
                _ => {}
            }
        }
    }

    /// Remembers the priority of both ends of a lasting connection. An end at this node gets it at once; the settings of the other end are
    /// kept until its port appears.
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
            let _ = self.remember(key, settings, source); // a setting that fails is reported as a warning
        }
    }

    /// Makes a connection to a subscriber of this node, which connects whenever the publisher exists.
    fn last_to(&mut self, connection: Connection, said: Said) {
        self.prioritise_lasting(&connection, said);
        let names = (connection.publisher, connection.subscriber);
        self.matching.connect(names, connection.carrier);
    }

    /// Makes a connection from a publisher of this node.
    fn last_from(&mut self, connection: Connection, said: Said) {
        self.prioritise_lasting(&connection, said);
        if let Some((at, _)) = self.known(&connection.subscriber) {
            self.tell_of(at, &connection);
        }
        self.lasting.insert(connection);
    }

    /// Removes a lasting connection. `false`: no file had it.
    pub(super) fn forget_kept(&mut self, publisher: &str, subscriber: &str) -> bool {
        self.lasting.remove(publisher, subscriber);
        self.discoveries.endpoint.as_ref().is_some_and(|endpoint| endpoint.kept().forget(publisher, subscriber))
    }

    /// Sends a subscriber all lasting connections from this node's publishers.
    pub(super) fn tell_subscriber(&mut self, at: PortRef, info: &PortInfo) {
        let its: Vec<Connection> = self.lasting.to(&info.name).cloned().collect();
        its.iter().for_each(|connection| self.tell_of(at, connection));
    }

    /// Sends a lasting connection to a subscriber of another host, whose node does not see this host's run directory.
    fn tell_of(&mut self, at: PortRef, connection: &Connection) {
        let here = self.state.document().host.clone();
        let elsewhere = self.state.directory().node(at.node).is_some_and(|document| document.host != here);
        if !elsewhere {
            return;
        }
        let Connection { publisher, subscriber, carrier, priority } = connection.clone();
        // The scheduling of threads is for administrators of the host that they run on.
        let priority = PrioritySettings { sched: None, affinity: None, ..priority };
        let request = Request::Keep { publisher, subscriber, carrier, priority };
        self.ask(at.node, &admin::pack(&request), Asker::Nobody);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lasting_connection_between_two_ports_replaces_the_earlier_one() {
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
    fn the_file_of_root_for_a_connection_counts_first_and_then_that_of_this_user() {
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
