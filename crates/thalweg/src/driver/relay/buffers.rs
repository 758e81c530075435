//! Pull buffers that a relay keeps for others (P-09): a port whose QoS says `pull-place = relay:NAME` gets its topic kept there. Equal
//! requests share a buffer. A buffer that no port wants stays for a while, because a killed process may come back.

use crate::control::Document;
use crate::control::directory::Directory;
use qos::PullBuffer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Most buffers at once.
pub(super) const MOST: usize = 64;

/// The key of a buffer: the topic or pattern, the partitions, and the limits of number, bytes and age in nanoseconds.
pub(in crate::driver) type Buffered = (String, Vec<String>, u32, u64, Option<u128>);

/// The buffers that ports want at the node `here`.
pub(in crate::driver) fn wanted(here: &Document, directory: &Directory) -> Vec<(Buffered, PullBuffer)> {
    let ports = directory.nodes().flat_map(|node| node.ports.values());
    let wanted = ports.filter_map(|port| {
        let limits = port.qos.pull.clone()?;
        let here = limits.place.relays().any(|name| here.is_relay(name));
        let age = limits.age.map(|age| age.as_nanos());
        let key = (port.topic.clone(), port.qos.partition.clone(), limits.samples, limits.bytes, age);
        here.then_some((key, limits))
    });
    wanted.collect()
}

/// The outcome of a look at the buffers.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub begin: Vec<(Buffered, PullBuffer)>,
    pub end: Vec<Buffered>,
    /// Topics that are not kept because the limit of buffers is reached.
    pub full: Vec<String>,
}

/// A buffer that is kept.
struct Kept<B> {
    buffer: B,
    /// Time since which no port wants it.
    unwanted_since: Option<Instant>,
}

/// The buffers that are kept.
pub(in crate::driver) struct Buffers<B> {
    kept: BTreeMap<Buffered, Kept<B>>,
}

impl<B> Default for Buffers<B> {
    fn default() -> Self {
        Self { kept: BTreeMap::new() }
    }
}

impl<B> Buffers<B> {
    /// A buffer was opened.
    pub(crate) fn begin(&mut self, key: Buffered, buffer: B) {
        self.kept.insert(key, Kept { buffer, unwanted_since: None });
    }

    /// A buffer is closed.
    pub(crate) fn end(&mut self, key: &Buffered) -> Option<B> {
        self.kept.remove(key).map(|kept| kept.buffer)
    }

    /// The buffers to begin and to end if these are wanted. A buffer that no port wants stays for the time `stay`.
    pub(super) fn look(&mut self, wanted: Vec<(Buffered, PullBuffer)>, stay: Duration, now: Instant) -> Look {
        let (mut look, mut all) = (Look::default(), BTreeSet::new());
        for (key, limits) in wanted {
            let is_new = all.insert(key.clone()) && !self.kept.contains_key(&key);
            match self.kept.len() + look.begin.len() {
                _ if !is_new => {}
                MOST.. => look.full.push(key.0),
                _ => look.begin.push((key, limits)),
            }
        }
        for (key, kept) in &mut self.kept {
            let since = kept.unwanted_since.unwrap_or(now);
            kept.unwanted_since = (!all.contains(key)).then_some(since);
        }
        let over = |since: Instant| now.duration_since(since) > stay;
        let ended = self.kept.iter().filter(|(_, kept)| kept.unwanted_since.is_some_and(over));
        look.end = ended.map(|(key, _)| key.clone()).collect();
        look
    }
}

/// Makes room for `more` bytes beside the `kept` ones, within the limit `most`. Returns the publishers to give up, from `gone` with their
/// bytes, in that order.
///
/// # Errors
/// The bytes that are kept, and their limit, if giving up all that are gone would not make enough room. Then none are given up.
pub(in crate::driver) fn make_room<T>(
    (kept, more, most): (u64, u64, u64),
    gone: impl Iterator<Item = (u64, T)>,
) -> Result<Vec<T>, String> {
    let lacking = kept.saturating_add(more).saturating_sub(most);
    let (mut found, mut given_up) = (0_u64, Vec::new());
    let mut gone = gone.fuse();
    while found < lacking {
        let Some((bytes, of)) = gone.next() else {
            return Err(format!("{kept} bytes are kept, {more} more are asked for, and it keeps at most {most}"));
        };
        found = found.saturating_add(bytes);
        given_up.push(of);
    }
    Ok(given_up)
}
