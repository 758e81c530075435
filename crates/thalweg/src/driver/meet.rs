//! Links to nodes of this host. This node writes its shares to the run directory, and looks there for nodes that share something with it,
//! as [`Peering`](super::peering::Peering) says.

use super::calls::Asker;
use super::control::Control;
use super::entries::Entry;
use super::peering::Call;
use super::permit::Caller;
use crate::control::Origin;
use crate::control::local::LocalEndpoint;
use crate::control::local::shares::{Shares, of_name};
use crate::control::matching::check_name;
use linux::poll::Readiness;
use std::time::Instant;

/// Longest request that is searched for unknown ports: requests that name ports are small.
const LONGEST: usize = 4096;

impl Control {
    /// The present shares of this node.
    fn shares_now(&self) -> Shares {
        let document = self.state.document();
        let connected = self.matching.connected_names();
        self.peering.shares(&document, self.lasting.names().chain(connected))
    }

    /// Publishes this node's shares if its ports have changed, or those that it waits for, or if the last attempt failed. Makes links to
    /// nodes that share something new. `true`: some nodes are looked at now.
    pub(super) fn refresh_shares(&mut self) -> bool {
        let shares = self.shares_now();
        let untold = |endpoint: &&mut LocalEndpoint| endpoint.told() != Some(&shares);
        let Some(endpoint) = self.discoveries.endpoint.as_mut().filter(untold) else { return false };
        // If no shares were published before, no node has seen this one: all shares are new.
        let new = endpoint.told().map_or_else(|| shares.clone(), |told| shares.beyond(told));
        if let Err(error) = endpoint.tell(&shares) {
            self.count_because("the run directory does not take what this node shares with others", &error);
        }
        self.peering.tells(shares);
        new != Shares::default() && self.look_for(&new)
    }

    /// Makes links to nodes of this host that share this and have no link yet. `false`: there are no such nodes.
    pub(super) fn look_for(&mut self, shares: &Shares) -> bool {
        let Some(endpoint) = &self.discoveries.endpoint else { return false };
        let mut found = endpoint.sharing(shares);
        {
            let directory = self.state.directory();
            found.retain(|node| !matches!(directory.origin(*node), Some(Origin::Host { .. })));
        }
        let found = self.peering.look_at_next(found, Instant::now());
        let source = endpoint.sockets_of(&found);
        if !found.is_empty() {
            self.discoveries.look(&source);
        }
        !found.is_empty()
    }

    /// Looks for nodes that share this; if this is all, for all nodes from now on. `true`: some nodes are looked at now.
    pub(super) fn meet(&mut self, shares: Shares) -> bool {
        if shares == Shares::All && self.peering.see_all() {
            return self.refresh_shares();
        }
        *self.peering.told() != Shares::All && self.look_for(&shares)
    }

    /// Carries out a call, after this node has met the nodes whose ports the call names.
    pub(super) fn heard_call(&mut self, request: Vec<u8>, caller: Caller, asker: Asker) {
        let names = self.unknown_names(&request);
        let marks = Shares::Marks(names.iter().map(|name| of_name(name)).collect());
        if !names.is_empty() && self.peering.has_room() && self.meet(marks) {
            return self.peering.park(names, Call { request, caller, asker }, Instant::now());
        }
        self.asked(&request, caller, asker);
        self.refresh_shares(); // the call may have made this node wait for ports
    }

    /// Carries out the calls whose ports are known now, or whose time is over.
    pub(super) fn unpark(&mut self, now: Instant) {
        let state = self.state.clone();
        let known = |name: &str| state.directory().port_named(name).is_some();
        for Call { request, caller, asker } in self.peering.unpark(now, known) {
            self.asked(&request, caller, asker);
            self.refresh_shares();
        }
    }

    /// The ports that a request names and that this node does not know.
    fn unknown_names(&self, request: &[u8]) -> Vec<String> {
        if *self.peering.told() == Shares::All || request.len() > LONGEST {
            return Vec::new();
        }
        let Ok(serde_json::Value::Object(request)) = serde_json::from_slice(request) else { return Vec::new() };
        let texts = request.values().filter_map(|value| value.as_str()).flat_map(str::split_whitespace);
        let names = texts.map(|word| word.trim_matches('"')).filter(|word| check_name(word).is_ok());
        names.filter(|name| self.known(name).is_none()).map(str::to_owned).collect()
    }

    /// Restores this node's socket in a run directory that was emptied or created again: newcomers find this node, and it finds them.
    pub(super) fn look_after_socket(&mut self, now: Instant) {
        if !self.peering.is_socket_due(now) {
            return;
        }
        self.discoveries.endpoint.iter_mut().for_each(LocalEndpoint::look_at_told);
        self.refresh_shares(); // if they could not be published, or were removed
        let Some(endpoint) = self.discoveries.endpoint.as_mut().filter(|endpoint| !endpoint.is_there()) else { return };
        match endpoint.renew().and_then(|listener| listener.set_nonblocking(true).map(|()| listener)) {
            Ok(listener) => {
                let others = endpoint.sockets_of(&endpoint.sharing(self.peering.told()));
                let old = self.descriptors.position(|entry| matches!(entry, Entry::Unix(_)));
                old.and_then(|index| self.unwatch(index));
                self.watch(Entry::Unix(listener), Readiness::IN);
                self.discoveries.look(&others);
                self.warn("this node's socket in the run directory was gone, and is there again".to_owned());
            }
            Err(error) => self.count_because("this node's socket in the run directory is gone", &error),
        }
    }
}
