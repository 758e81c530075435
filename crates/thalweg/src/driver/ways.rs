//! Which channels this node's subscribers want, and the ways to each: its carriers and addresses, with a relay or without, tried one after
//! the other.

use super::control::Control;
use super::dial::{Dial, NO_ROOM_PAUSE};
use super::entries::Entry;
use super::wanted::{Candidate, Pair, Progress, Route, Wanted, candidates};
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::matching::{Match, compare};
use crate::control::{Direction, Document, PortInfo, PullRole};
use crate::event::Event;
use linux::poll::Readiness;
use qos::Place;
use std::time::Instant;

impl Control {
    /// Whether two ports belong together; wants their channel if so.
    pub(super) fn consider(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef, asked: &PortInfo) {
        let pulls = asked.pull == PullRole::Only;
        if offered.direction != Direction::Publisher || pulls || self.wanted.contains_key(&(publisher, subscriber)) {
            return;
        }
        let names = (offered.name.clone(), asked.name.clone());
        if self.apart.contains(&names) {
            return;
        }
        let by_name = self.connected.get(&names).cloned();
        let found = if by_name.is_some() {
            let seen = PortInfo { topic: asked.topic.clone(), ..offered.clone() };
            compare(&seen, &PortInfo { carriers: Vec::new(), ..asked.clone() })
        } else {
            compare(offered, asked)
        };
        match found {
            Match::Matched(given_up) => {
                self.fell_back(&names, given_up, asked);
                let settled = PortInfo { qos: asked.qos.settled(&offered.qos), ..asked.clone() };
                self.want(publisher, offered, subscriber, &settled, by_name);
            }
            Match::NotSameTopic => {}
            Match::Mismatched(between) => self.incompatible(&names, between, false),
        }
    }

    pub(super) fn want(
        &mut self,
        publisher: PortRef,
        offered: &PortInfo,
        subscriber: PortRef,
        asked: &PortInfo,
        by_name: Option<Option<String>>,
    ) {
        let (pair, proxy) = ((publisher, subscriber), self.proxy_of(&offered.name, asked));
        let ways = self.ways(pair, offered, asked, &proxy);
        if ways.is_empty() {
            let text = format!("{} cannot reach {}: no carrier and address in common", asked.name, offered.name);
            return self.warn(text);
        }
        if !self.may_keep(publisher, offered, subscriber) {
            return;
        }
        let mut wanted = Wanted::new(offered.clone(), asked.clone(), ways, by_name.is_some(), Instant::now());
        wanted.proxy = proxy;
        self.wanted.insert(pair, wanted);
        self.try_wanted(pair);
    }

    /// The ways to a publisher, best first: where the proxy is to be, then without a relay.
    pub(super) fn ways(&self, pair: Pair, offered: &PortInfo, asked: &PortInfo, proxy: &Proxy) -> Vec<Candidate> {
        let here = self.state.document();
        let Some(there) = self.state.directory().node(pair.0.node).cloned() else { return Vec::new() };
        let by_name = self.connected.get(&(offered.name.clone(), asked.name.clone())).cloned().flatten();
        let only = by_name.as_deref();
        let mut ways = candidates(&here, &there, offered, asked, only);
        if let Some(extra) = self.added_carriers(&there, offered, asked, only) {
            ways.splice(0..0, extra);
        }
        if proxy.place == Place::Subscriber && proxy.picture.is_some() {
            ways = candidates(&here, &here, offered, asked, only); // this node hosts it
        }
        if proxy.picture.is_some() {
            ways.retain(|way| way.carrier != "local");
        }
        if proxy.place == Place::Subscriber {
            ways.iter_mut().for_each(|way| way.place = Place::Subscriber);
        }
        if !self.state.settings.around.is_nothing() {
            ways.retain(|way| !matches!(way.carrier.as_str(), "local" | "shm"));
        }
        let by_relay = |name: &str| self.ways_by_relay(&here, name, (offered, asked), only);
        ways.splice(0..0, proxy.place.relays().flat_map(by_relay).collect::<Vec<_>>());
        ways
    }

    /// The ways by the relay of this name: of its node, or of its host.
    fn ways_by_relay(
        &self,
        here: &Document,
        name: &str,
        (offered, asked): (&PortInfo, &PortInfo),
        only: Option<&str>,
    ) -> Vec<Candidate> {
        let directory = self.state.directory();
        let relays = || directory.nodes().filter(|node| node.is_relay(name));
        let found = relays().find(|node| node.name == name).or_else(|| relays().next());
        let mut ways = found.map_or(Vec::new(), |relay| candidates(here, relay, offered, asked, only));
        ways.retain(|way| matches!(way.carrier.as_str(), "tcp" | "udp" | "shm" | "mcast"));
        ways.iter_mut().for_each(|way| way.place = Place::Relay(name.to_owned()));
        ways
    }

    /// Carriers that were added to this node and that both ports name.
    pub(super) fn added_carriers(
        &self,
        there: &Document,
        offered: &PortInfo,
        asked: &PortInfo,
        only: Option<&str>,
    ) -> Option<Vec<Candidate>> {
        let builtin = |name: &str| super::state::CARRIERS.contains(&name);
        let names = self.carriers.iter().map(|c| c.name().to_owned()).filter(|n| !builtin(n));
        let named = |n: &String| only.map_or(offered.carriers.contains(n) && asked.carriers.contains(n), |o| o == n);
        let address = there.addresses.first()?;
        Some(
            names
                .filter(named)
                .map(|carrier| Candidate { carrier, route: Route::Tcp(*address), place: Place::default() })
                .collect(),
        )
    }

    pub(super) fn try_wanted(&mut self, pair: Pair) {
        let may_dial = self.may_dial(pair);
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        let Some(candidate) = wanted.candidate().cloned() else { return };
        if candidate.route == Route::Process {
            return self.try_local(pair);
        }
        if matches!(candidate.route, Route::Tcp(_)) && !may_dial {
            wanted.progress = Progress::Idle(Instant::now() + NO_ROOM_PAUSE);
            return;
        }
        // A ring's reader needs a thread of its own; when they are used up, sockets share one.
        let others = wanted.candidates.iter().any(|c| c.carrier != "shm");
        if candidate.carrier == "shm" && others && !self.state.readers.has_own_thread_left() {
            return wanted.failed(Instant::now());
        }
        wanted.progress = Progress::Dialing;
        match Dial::start(&self.state, pair, wanted, &candidate, &self.carriers, false) {
            Ok(dial) => {
                if self.watch(Entry::Dial(Box::new(dial)), Readiness::OUT).is_none() {
                    self.try_failed(pair, "the connection cannot be watched: out of descriptors?");
                }
            }
            Err(why) => self.try_failed(pair, &why),
        }
    }

    pub(super) fn try_failed(&mut self, pair: Pair, why: &str) {
        if self.begin_upcoming(pair) {
            return;
        }
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        let carrier = wanted.candidate().map(|c| c.carrier.clone()).unwrap_or_default();
        let relay = wanted.candidate().map(|way| &way.place).filter(|place| place.relays().next().is_some());
        let why = &relay.map_or(why.to_owned(), |relay| format!("{relay}: {why}"));
        let here = matches!(wanted.candidate().map(|c| &c.route), Some(Route::Unix(_) | Route::Process))
            || matches!(wanted.candidate().map(|c| &c.route), Some(Route::Tcp(a)) if a.ip().is_loopback());
        // On this host a node that has left the directory and does not answer is dead, not cut off.
        if here && self.state.directory().node(pair.0.node).is_none() {
            return self.drop_wanted(pair, "its process is gone");
        }
        let (publisher, subscriber) = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        wanted.failed(Instant::now());
        self.state.events.push(Event::CarrierFailed { publisher, subscriber, carrier, reason: why.to_owned() });
    }
}
