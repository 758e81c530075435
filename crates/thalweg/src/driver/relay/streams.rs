//! The streams that a node hosts, and the requests that wait for their sources.

use super::refused;
use crate::channel::PortRef;
use crate::channel::proxy::{Picture, Selection};
use crate::control::Peer;
use crate::handshake::Refused;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which a request waits for the source: less than its sender waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// Most requests that wait at once.
const MOST_GUESTS: usize = 256;
/// Time for which a stream without a source or takers is still hosted.
const IDLE: Duration = Duration::from_millis(500);

/// The key of a stream: its source, and the size and selection of its pictures.
pub(in crate::driver) type Hosting = (PortRef, Option<(Picture, Selection)>);

/// A stream that is open.
pub(in crate::driver) trait Stream {
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
}

/// A request that waits for the source of its stream.
pub(in crate::driver) struct Guest<G> {
    pub of: Hosting,
    pub who: G,
    until: Instant,
}

/// The streams, and the requests that wait.
pub(in crate::driver) struct Streams<S, G> {
    hosted: BTreeMap<Hosting, Hosted<S>>,
    guests: Vec<Guest<G>>,
}

impl<S, G> Default for Streams<S, G> {
    fn default() -> Self {
        Self { hosted: BTreeMap::new(), guests: Vec::new() }
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
        self.hosted.is_empty() && self.guests.is_empty()
    }

    /// A stream was opened for a peer.
    pub(crate) fn begin(&mut self, key: Hosting, stream: S, asker: Peer, now: Instant) {
        self.hosted.insert(key, Hosted { stream, asker, idle_since: Some(now) });
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
        if self.guests.len() >= MOST_GUESTS {
            return Err((who, refused(format!("fewer than {MOST_GUESTS} requests that wait"))));
        }
        self.guests.push(Guest { of, who, until: now + PATIENCE });
        Ok(())
    }

    /// The requests that wait.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &G> {
        self.guests.iter().map(|guest| &guest.who)
    }

    /// Takes the requests that wait, to see whether their streams have come; [`Streams::wait_on`] puts one back.
    pub(crate) fn take_guests(&mut self) -> Vec<Guest<G>> {
        std::mem::take(&mut self.guests)
    }

    pub(crate) fn wait_on(&mut self, guest: Guest<G>) {
        self.guests.push(guest);
    }

    /// Takes the requests that have waited for too long.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Guest<G>> {
        self.guests.extract_if(.., |guest| guest.until <= now).collect()
    }
}

impl<S: Stream, G> Streams<S, G> {
    /// The number of proxies: channels that lead from here, and requests for more.
    pub(super) fn proxies(&self) -> usize {
        self.hosted.values().map(|hosted| hosted.stream.takers()).sum::<usize>() + self.guests.len()
    }

    pub(super) fn carried(&self) -> (u64, u64) {
        let carried = self.hosted.values().map(|hosted| hosted.stream.carried());
        carried.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Streams that have had no source, or no takers, for too long.
    pub(super) fn idle(&mut self, now: Instant) -> Vec<Hosting> {
        for hosted in self.hosted.values_mut() {
            let needed = hosted.stream.has_source() && hosted.stream.takers() > 0;
            hosted.idle_since = if needed { None } else { hosted.idle_since.or(Some(now)) };
        }
        let over = |hosted: &Hosted<S>| hosted.idle_since.is_some_and(|since| now.duration_since(since) > IDLE);
        self.hosted.iter().filter(|(_, hosted)| over(hosted)).map(|(key, _)| *key).collect()
    }
}
