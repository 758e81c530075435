//! Which nodes of this host this one has links to: those that share something with it ([`Shares`]), as far as the names of
//! files in the run directory tell; and all of them once somebody asks who is there.

use super::calls::Asker;
use super::control::Control;
use super::permit::Caller;
use crate::control::local::LocalEndpoint;
use crate::control::local::shares::{Shares, of_name};
use crate::control::matching::check_name;
use crate::control::{NodeId, Origin};
use std::time::{Duration, Instant};

/// A call that names a port which is not known waits so long for the node that may have it.
const PARKED: Duration = Duration::from_millis(300);
/// Most calls that wait so.
const MOST_PARKED: usize = 64;
/// A node that was looked at is not looked at again so soon: it may be stopped.
const LOOKED: Duration = Duration::from_secs(1);
/// Requests that name ports are small.
const LONGEST: usize = 4096;

/// A call that waits for a node.
pub(crate) struct Parked {
    until: Instant,
    names: Vec<String>,
    request: Vec<u8>,
    caller: Caller,
    asker: Asker,
}

impl Control {
    /// What this node shares with others.
    fn shares_now(&self) -> Shares {
        if self.sees_all {
            return Shares::All;
        }
        let document = self.state.document();
        let lasting = self.lasting.iter().flat_map(|kept| [&kept.publisher, &kept.subscriber]);
        let connected = self.matching.connected_names();
        Shares::of(&document, lasting.map(String::as_str).chain(connected))
    }

    /// This node's ports changed, or those it waits for, or it could not say so: says so, and makes links to those who share what is
    /// new. `true`: some are looked at now.
    pub(super) fn refresh_shares(&mut self) -> bool {
        let shares = self.shares_now();
        let untold = |endpoint: &&mut LocalEndpoint| endpoint.told() != Some(&shares);
        let Some(endpoint) = self._endpoint.as_mut().filter(untold) else { return false };
        // Who was not told anything has not seen this node.
        let new = endpoint.told().map_or_else(|| shares.clone(), |told| shares.beyond(told));
        if let Err(error) = endpoint.tell(&shares) {
            self.count_because("the run directory does not take what this node shares with others", &error);
        }
        self.shares = shares;
        new != Shares::default() && self.look_for(&new)
    }

    /// Makes links to those nodes of this host that share this; `false`: there are none that have none yet.
    pub(super) fn look_for(&mut self, shares: &Shares) -> bool {
        let now = Instant::now();
        self.looked_at.retain(|_, at| now.saturating_duration_since(*at) < LOOKED);
        let Some(endpoint) = &self._endpoint else { return false };
        let mut found = endpoint.sharing(shares);
        {
            let directory = self.state.directory();
            found.retain(|node| {
                !matches!(directory.origin(*node), Some(Origin::Host { .. })) && !self.looked_at.contains_key(node)
            });
        }
        self.looked_at.extend(found.iter().map(|node| (*node, now)));
        let source = endpoint.sockets_of(&found);
        if !found.is_empty() {
            self.discoveries.iter_mut().for_each(|discovery| discovery.look(source.clone()));
        }
        !found.is_empty()
    }

    /// Somebody wants to see nodes that share this, all of them from now on if it is all. `true`: some are looked at now.
    pub(super) fn meet(&mut self, shares: Shares) -> bool {
        if shares == Shares::All && !self.sees_all {
            self.sees_all = true;
            return self.refresh_shares();
        }
        self.shares != Shares::All && self.look_for(&shares)
    }

    /// Carries out a call, after having met the nodes whose ports it names.
    pub(super) fn heard_call(&mut self, request: Vec<u8>, caller: Caller, asker: Asker) {
        let names = self.unknown_names(&request);
        let marks = Shares::Marks(names.iter().map(|name| of_name(name)).collect());
        if !names.is_empty() && self.parked.len() < MOST_PARKED && self.meet(marks) {
            let until = Instant::now() + PARKED;
            return self.parked.push(Parked { until, names, request, caller, asker });
        }
        self.asked(&request, caller, asker);
        self.refresh_shares(); // ports may be waited for from now on
    }

    /// Carries out the calls whose nodes have come, or that have waited long enough.
    pub(super) fn unpark(&mut self, now: Instant) {
        if self.parked.is_empty() {
            return;
        }
        for parked in std::mem::take(&mut self.parked) {
            let known = parked.names.iter().all(|name| self.known(name).is_some());
            if known || parked.until <= now {
                self.asked(&parked.request, parked.caller, parked.asker);
                self.refresh_shares();
            } else {
                self.parked.push(parked);
            }
        }
    }

    /// When a call has waited long enough.
    pub(super) fn next_unparking(&self) -> Option<Instant> {
        self.parked.iter().map(|parked| parked.until).min()
    }

    /// The ports that a request names and nobody is known to have.
    fn unknown_names(&self, request: &[u8]) -> Vec<String> {
        if self.shares == Shares::All || request.len() > LONGEST {
            return Vec::new();
        }
        let Ok(serde_json::Value::Object(request)) = serde_json::from_slice(request) else { return Vec::new() };
        let texts = request.values().filter_map(|value| value.as_str()).flat_map(str::split_whitespace);
        let names = texts.map(|word| word.trim_matches('"')).filter(|word| check_name(word).is_ok());
        names.filter(|name| self.known(name).is_none()).map(str::to_owned).collect()
    }
}

/// Nodes that were looked at, and when.
pub(crate) type LookedAt = std::collections::BTreeMap<NodeId, Instant>;
