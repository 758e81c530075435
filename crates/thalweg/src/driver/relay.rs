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

use super::buffers::{self, Buffered, Buffers, Refusals};
use super::matching::room::{Elsewhere, Had};
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::channel::proxy::{Picture, Selection};
use crate::control::directory::Directory;
use crate::control::{NodeId, Peer, RelayLoad};
use crate::handshake::{Reason, Refused, Request};
use crate::settings::RelayLimits;
use qos::PullBuffer;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

    /// `true` if a request is for a stream that this node, `here`, has to host. A request that does not ask for a relay may have come to one
    /// by an address that exists on many hosts (172.17.0.1): this node's own request to the source of a stream would wait here for itself.
    pub(super) fn is_hosted(&self, request: &Request, here: NodeId) -> bool {
        let proxy = request.proxy.as_ref();
        let by_relay = || proxy.is_some_and(Proxy::place_is_relay) && self.is_relay();
        proxy.is_some_and(|proxy| proxy.picture.is_some()) || (request.to_node != here && by_relay())
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
        actions.extend(late.map(|WaitingRequest { of, who, .. }| {
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

/// The key of a stream: its source, and the size and selection of its pictures.
pub(super) type Hosting = (PortRef, Option<(Picture, Selection)>);

/// A stream that is open.
pub(super) trait Stream {
    /// `true` if its samples arrive.
    fn has_source(&self) -> bool;
    /// The number of channels that lead from here.
    fn takers(&self) -> usize;
    /// The total of samples and payload bytes that arrived.
    fn carried(&self) -> (u64, u64);
}

/// A stream that is hosted.
struct Hosted<S> {
    stream: S,
    /// The peer for which it was begun.
    asker: Peer,
    /// Time since which it has no source or no takers.
    idle_since: Option<Instant>,
    /// Samples arrived at some time. Until then the time of the last request counts.
    had_source: bool,
}

/// A request that waits for the source of its stream.
pub(super) struct WaitingRequest<G> {
    pub of: Hosting,
    pub who: G,
    until: Instant,
}

/// The streams, and the requests that wait.
pub(super) struct Streams<S, G> {
    hosted: BTreeMap<Hosting, Hosted<S>>,
    waiting_requests: Vec<WaitingRequest<G>>,
}

impl<S, G> Default for Streams<S, G> {
    fn default() -> Self {
        Self { hosted: BTreeMap::new(), waiting_requests: Vec::new() }
    }
}

impl<S, G> Streams<S, G> {
    pub(crate) fn get(&self, key: &Hosting) -> Option<&S> {
        self.hosted.get(key).map(|hosted| &hosted.stream)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Hosting, &S)> {
        self.hosted.iter().map(|(key, hosted)| (key, &hosted.stream))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Hosting> + use<'_, S, G> {
        self.hosted.keys().copied()
    }

    /// `true` if no stream is hosted and no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosted.is_empty() && self.waiting_requests.is_empty()
    }

    /// A stream was opened for a peer.
    pub(crate) fn begin(&mut self, key: Hosting, stream: S, asker: Peer, now: Instant) {
        self.hosted.insert(key, Hosted { stream, asker, idle_since: Some(now), had_source: false });
    }

    /// A stream is closed.
    pub(crate) fn end(&mut self, key: &Hosting) -> Option<S> {
        self.hosted.remove(key).map(|hosted| hosted.stream)
    }

    /// Checks that one more size of a publisher's pictures may be made here. Each takes a thread, and processor time per sample. One other
    /// host may have half of the sizes made.
    ///
    /// # Errors
    /// The limit `most` is reached, or half of it for this host.
    pub(crate) fn check_pictures(&self, source: PortRef, name: &str, asker: Peer, most: u32) -> Result<(), Refused> {
        let all = self.hosted.iter().filter(|((port, _), _)| *port == source);
        let made: Vec<_> = all.filter_map(|((_, picture), hosted)| Some((picture.as_ref()?.0, hosted.asker))).collect();
        let its = made.iter().filter(|(_, of)| *of == asker).count();
        let (full, whom) = match asker {
            Peer::Host(address) if its >= most.div_ceil(2) as usize => (most.div_ceil(2), format!(" for {address}")),
            _ if made.len() >= most as usize => (most, String::new()),
            _ => return Ok(()),
        };
        let made = made.iter().map(|(picture, _)| picture.to_string()).collect::<Vec<_>>().join(", ");
        Err(refused(format!(
            "at most {full} different pictures of {name}{whom}, and makes {made}: ask for one of these, or start it with --pictures above {most}"
        )))
    }

    /// A request waits for the source.
    ///
    /// # Errors
    /// Too many requests wait.
    pub(crate) fn wait(&mut self, of: Hosting, who: G, now: Instant) -> Result<(), (G, Refused)> {
        if self.waiting_requests.len() >= MOST_WAITING {
            return Err((who, refused(format!("fewer than {MOST_WAITING} requests that wait"))));
        }
        if let Some(hosted) = self.hosted.get_mut(&of).filter(|hosted| !hosted.had_source) {
            hosted.idle_since = Some(now);
        }
        self.waiting_requests.push(WaitingRequest { of, who, until: now + PATIENCE });
        Ok(())
    }

    /// The requests that wait.
    pub(crate) fn waiting_requests(&self) -> impl Iterator<Item = &G> {
        self.waiting_requests.iter().map(|waiting| &waiting.who)
    }

    /// Takes the requests that wait, to see whether their streams have come; [`Streams::wait_on`] puts one back.
    pub(crate) fn take_waiting(&mut self) -> Vec<WaitingRequest<G>> {
        std::mem::take(&mut self.waiting_requests)
    }

    pub(crate) fn wait_on(&mut self, waiting: WaitingRequest<G>) {
        self.waiting_requests.push(waiting);
    }

    /// Takes the requests that have waited for too long.
    fn late(&mut self, now: Instant) -> Vec<WaitingRequest<G>> {
        self.waiting_requests.extract_if(.., |waiting| waiting.until <= now).collect()
    }
}

impl<S: Stream, G> Streams<S, G> {
    /// The number of proxies: channels that lead from here, and requests for more.
    fn proxies(&self) -> usize {
        self.hosted.values().map(|hosted| hosted.stream.takers()).sum::<usize>() + self.waiting_requests.len()
    }

    fn carried(&self) -> (u64, u64) {
        let carried = self.hosted.values().map(|hosted| hosted.stream.carried());
        carried.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Streams that have had no source, or no takers, for too long.
    fn idle(&mut self, now: Instant) -> Vec<Hosting> {
        for hosted in self.hosted.values_mut() {
            hosted.had_source |= hosted.stream.has_source();
            let needed = hosted.stream.has_source() && hosted.stream.takers() > 0;
            hosted.idle_since = if needed { None } else { hosted.idle_since.or(Some(now)) };
        }
        let most = |hosted: &Hosted<S>| if hosted.had_source { IDLE } else { OPENING };
        let over = |hosted: &Hosted<S>| hosted.idle_since.is_some_and(|since| now.duration_since(since) > most(hosted));
        self.hosted.iter().filter(|(_, hosted)| over(hosted)).map(|(key, _)| *key).collect()
    }
}

/// The load of a relay, compared with its limits: the totals at the last measurement, and the load that others were told.
#[derive(Debug, Default)]
struct Load {
    at: Option<Instant>,
    samples: u64,
    bytes: u64,
    told: RelayLoad,
}

impl Load {
    /// Checks that there is room for one more beside this number of proxies.
    fn check(&self, limits: &RelayLimits, proxies: usize) -> Result<(), Refused> {
        let RelayLoad { samples_per_s, bytes_per_s, .. } = self.told;
        if proxies as u32 >= limits.proxies {
            return Err(refused(format!("at most {} proxies and has {proxies}", limits.proxies)));
        }
        if samples_per_s >= limits.samples_per_s {
            let most = limits.samples_per_s;
            return Err(refused(format!("at most {most} samples/s and carries {samples_per_s}")));
        }
        if bytes_per_s >= limits.bytes_per_s {
            let most = limits.bytes_per_s;
            return Err(refused(format!("at most {most} bytes/s and carries {bytes_per_s}")));
        }
        Ok(())
    }

    fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.duration_since(at) >= MEASURED)
    }

    /// Samples and bytes per second since the last measurement, if it is time for another.
    fn measure(&mut self, (samples, bytes): (u64, u64), now: Instant) -> Option<(u64, u64)> {
        if !self.is_due(now) {
            return None;
        }
        let passed = self.at.map_or(MEASURED, |at| now.duration_since(at)).as_secs_f64();
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed).round() as u64;
        let rates = (rate(samples, self.samples), rate(bytes, self.bytes));
        (self.at, self.samples, self.bytes) = (Some(now), samples, bytes);
        Some(rates)
    }

    /// The load, if it differs from the one that others were told.
    fn changed(&mut self, load: RelayLoad) -> Option<RelayLoad> {
        if self.told == load {
            return None;
        }
        self.told.clone_from(&load);
        Some(load)
    }
}

/// Pause between two looks at the load and at idle streams.
const LOOK: Duration = Duration::from_millis(250);
/// A relay that has not looked for this time was stopped.
const AWAY: Duration = Duration::from_secs(1);
/// Least number of hosts that share the proxies of a relay.
const HOSTS: u32 = 4;
/// Time for which a request waits for the source: less than its sender waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// Most requests that wait at once.
const MOST_WAITING: usize = 256;
/// Time for which a stream without a source or takers is still hosted.
const IDLE: Duration = Duration::from_millis(500);
/// The same since the last request, for a stream whose source has not come yet: subscribers ask again 0.9 s later. With half a second a relay
/// beside busy processors began a stream anew for each request, and its source, asked anew each time, never came in time.
const OPENING: Duration = Duration::from_millis(1500);
/// Time over which the load is measured, and least time between two reports.
const MEASURED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
