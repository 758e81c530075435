//! The state that a node hosts for others (P-07, P-09): streams, requests that wait for their sources, pull buffers; for a relay also its
//! load and its refusals. Pure: the caller says what happened and when, opens and closes the streams and buffers, and carries out the
//! [`Action`]s.
//!
//! | what happened | method |
//! |---|---|
//! | a request for a hosted stream came | [`check_share`](Relay::check_share), [`check_load`](Relay::check_load), [`Streams::check_pictures`], [`Streams::wait`] |
//! | a stream or buffer was opened or closed | [`Streams::begin`], [`Streams::end`], [`Buffers::begin`], [`Buffers::end`] |
//! | samples are not kept for want of room | [`Refusals::refuse`], [`Refusals::keeps_now`] |
//! | the directory changed | [`Refusals::heard`] |
//! | time passed | [`look`](Relay::look), [`look_at_buffers`](Relay::look_at_buffers), [`measure`](Relay::measure), at [`next_deadline`](Relay::next_deadline) |

mod buffers;
mod load;
mod refusals;
mod streams;

pub(super) use buffers::{Buffered, Buffers, make_room, wanted};
pub(super) use refusals::Refusals;
pub(super) use streams::{Guest, Hosting, Stream, Streams};

use super::matching::room::{Elsewhere, Had};
use crate::control::RelayLoad;
use crate::control::directory::Directory;
use crate::handshake::{Reason, Refused};
use crate::settings::RelayLimits;
use load::Load;
use qos::PullBuffer;
use std::time::{Duration, Instant};

/// Pause between two looks at the load and at idle streams.
const LOOK: Duration = Duration::from_millis(250);
/// A relay that has not looked for this time was stopped.
const AWAY: Duration = Duration::from_secs(1);
/// Least number of hosts that share the proxies of a relay.
const HOSTS: u32 = 4;

/// Work for the control thread.
#[derive(Debug, PartialEq)]
pub(super) enum Action<G> {
    /// Warn the node's owner.
    Warn(String),
    /// Refuse a request that waited.
    Refuse(G, Refused),
    /// End a stream: each channel ends as one whose publisher closes, so that its subscriber looks for another way.
    EndStream(Hosting),
    BeginBuffer(Buffered, PullBuffer),
    EndBuffer(Buffered),
}

/// The streams `S`, requests `G` and buffers `B` that a node hosts.
pub(super) struct Relay<S, G, B> {
    /// Limits of the load that this node carries for others; `None`: none, it is no relay.
    limits: Option<RelayLimits>,
    pub streams: Streams<S, G>,
    pub buffers: Buffers<B>,
    pub refusals: Refusals,
    load: Load,
    looked: Instant,
}

impl<S: Stream, G, B> Relay<S, G, B> {
    pub(super) fn new(limits: Option<RelayLimits>, now: Instant) -> Self {
        Self {
            limits,
            streams: Streams::default(),
            buffers: Buffers::default(),
            refusals: Refusals::default(),
            load: Load::default(),
            looked: now,
        }
    }

    /// `true` if this node carries streams and samples for others.
    pub(super) fn is_relay(&self) -> bool {
        self.limits.is_some()
    }

    /// Most payload bytes that it keeps for others; `None`: it is no relay.
    pub(super) fn kept_bytes(&self) -> Option<u64> {
        self.limits.map(|limits| limits.kept_bytes)
    }

    /// Checks that this relay takes one more stream.
    ///
    /// # Errors
    /// The node is no relay, or its load is at a limit.
    pub(super) fn check_load(&self) -> Result<(), Refused> {
        let Some(limits) = self.limits else { return Err(refused("no proxies for others: it is no relay".into())) };
        self.load.check(&limits, self.streams.proxies())
    }

    /// Checks that this peer may have one more proxy. `all`: the peers of the other proxies.
    ///
    /// # Errors
    /// The host, or this node of it, has its share already.
    pub(super) fn check_share(&self, peer: Elsewhere, all: impl Iterator<Item = Elsewhere>) -> Result<(), Refused> {
        let Some(limits) = self.limits else { return Ok(()) };
        let (had, (host, node)) = (Had::of(peer, all), peer);
        let limits = [
            (had.host, limits.proxies.div_ceil(HOSTS).max(limits.per_peer), format!("peers of {host}")),
            (had.node, limits.per_peer, format!("node {node} of {host}")),
        ];
        let full = limits.into_iter().find(|(has, most, _)| has >= most);
        full.map_or(Ok(()), |(has, most, whom)| {
            Err(refused(format!("at most {most} proxies for {whom}, which has {has}")))
        })
    }

    /// The next time at which [`Self::look`] has work.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let busy = self.is_relay() || !self.streams.is_empty();
        busy.then_some(self.looked + LOOK)
    }

    /// Refuses requests that waited too long, and ends streams without a source or takers, if it is time to look. `None`: it is not.
    pub(super) fn look(&mut self, now: Instant) -> Option<Vec<Action<G>>> {
        if now < self.looked + LOOK {
            return None;
        }
        let away = now.duration_since(std::mem::replace(&mut self.looked, now));
        let mut actions = Vec::new();
        // This relay was stopped. Subscribers with another way took that, and samples that came meanwhile were dropped before they came
        // here. A subscriber must not return to these streams as if no samples were missing.
        let anew = self.is_relay() && away > AWAY && self.streams.iter().next().is_some();
        if anew {
            let text =
                format!("this relay did nothing for {away:.1?} (stopped?): it takes the streams that it hosts anew");
            actions.push(Action::Warn(text));
            actions.extend(self.streams.keys().map(Action::EndStream));
        }
        let late = self.streams.late(now).into_iter();
        actions.extend(late.map(|Guest { of, who, .. }| {
            let why = match !anew && self.streams.get(&of).is_some() {
                true => "a source that it reaches, which this one is not now".to_owned(),
                false => format!("a publisher that it knows, not port {} of {}", of.0.port.0, of.0.node),
            };
            Action::Refuse(who, refused(why))
        }));
        let idle = self.streams.idle(now).into_iter().filter(|_| !anew);
        actions.extend(idle.map(Action::EndStream));
        Some(actions)
    }

    /// Begins the buffers that ports want kept here, and ends those that no port wants.
    pub(super) fn look_at_buffers(&mut self, wanted: Vec<(Buffered, PullBuffer)>, now: Instant) -> Vec<Action<G>> {
        let Some(limits) = self.limits else { return Vec::new() };
        let look = self.buffers.look(wanted, limits.unwanted, now);
        let begun = look.begin.into_iter().map(|(key, limits)| Action::BeginBuffer(key, limits));
        let mut actions: Vec<Action<G>> = begun.collect();
        for topic in look.full {
            let because = format!("it has {} buffers, the most", buffers::MOST);
            actions
                .extend(self.refusals.refuse(&topic, None, because).map(|refusal| Action::Warn(refusal.to_string())));
        }
        actions.extend(look.end.into_iter().map(Action::EndBuffer));
        actions
    }

    /// `true` if it is time to measure the load.
    pub(super) fn is_measured(&self, now: Instant) -> bool {
        self.is_relay() && self.load.is_due(now)
    }

    /// Measures the load of this relay. `keeps`: the number of publishers whose samples are kept. Returns the load if it changed.
    pub(super) fn measure(&mut self, keeps: u32, directory: &Directory, now: Instant) -> Option<RelayLoad> {
        let (samples_per_s, bytes_per_s) = self.load.measure(self.streams.carried(), now)?;
        let (proxies, not_kept) = (self.streams.proxies() as u32, self.refusals.standing(directory));
        self.load.changed(RelayLoad { proxies, samples_per_s, bytes_per_s, keeps, not_kept })
    }
}

/// A refusal of a proxy.
pub(super) fn refused(offered: String) -> Refused {
    let (policy, requested, remedy) = (Reason::Relay, "a proxy".to_owned(), format!("it takes {offered}"));
    Refused { policy, offered, requested, remedy, others: Vec::new() }
}

#[cfg(test)]
mod tests;
