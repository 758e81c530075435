//! What the sessions of a pipe get that is smaller than the contract says.
//!
//! | order | |
//! |---|---|
//! | 1 | Sessions that have no room, however thinned, are to end: the less important before the more important, the younger before the older. |
//! | 2 | Each of the others, the most important first, gets as many of its samples as there is room for beside the least that all others admit. |
//!
//! So what a session gets depends on the pipe's size and its sessions alone, and not on what was before: a pipe that grows again gives back the
//! same. A session that is admitted has to fit with all its samples beside what the others get, and takes nothing from them.

use super::{Amount, Ledger, Limit, Name, Share, Versions};
use agent::peer::Key;
use qos::admission::Bucket;
use qos::show_bit_rate;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What is sold of a pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sold {
    /// All of it.
    pub whole: Bucket,
    /// What its sessions need at least, thinned as far as they admit.
    pub least: Bucket,
}

/// What is sold of each pipe, by its name.
pub type Demand = BTreeMap<String, Sold>;

/// A session that has no room in a smaller pipe, and how far it would have to be thinned for that.
pub type Displaced = (Key, Option<u32>);

/// The furthest that is offered.
const MOST_OFFERED: u32 = 1000;

/// Of no pipe anything.
pub static NOTHING_SOLD: Demand = Demand::new();

/// A pipe that is smaller now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Smaller {
    size: Amount,
    /// What its sessions get together: never more than its size.
    granted: Amount,
    /// Each of them: it gets one of so many samples, as far as it asks for and admits that, and has this part then.
    each: BTreeMap<Name, (u32, Amount)>,
    /// A session has left, and the others may get more.
    stale: bool,
}

impl Smaller {
    fn set(&mut self, name: &Name, limit: u32, amount: Amount) {
        self.remove(name);
        self.granted = self.granted.with(amount);
        self.each.insert(name.clone(), (limit, amount));
    }

    fn remove(&mut self, name: &Name) {
        if let Some((_, before)) = self.each.remove(name) {
            self.granted = self.granted.without(before);
        }
    }

    fn limit(&self, name: &Name) -> u32 {
        self.each.get(name).map_or(1, |(limit, _)| *limit)
    }
}

impl Ledger {
    /// From now on these pipes (by name) are so large, and all others as the contract says. Gives the sessions that have no room any more.
    pub fn resize(&mut self, sizes: &BTreeMap<String, Bucket>) -> Vec<Displaced> {
        let before = std::mem::take(&mut self.smaller);
        let mut lost = Vec::new();
        for (index, pipe) in self.pipes.iter().enumerate() {
            let Some(size) = sizes.get(&pipe.name).map(|size| Amount::of(*size)) else { continue };
            let whole = Amount::of(pipe.whole);
            if size.rate >= whole.rate && size.burst >= whole.burst {
                continue;
            }
            let (smaller, without) = self.granted(index, size);
            self.smaller.insert(index, smaller);
            lost.extend(without);
        }
        let pipes: BTreeSet<usize> = before.keys().chain(self.smaller.keys()).copied().collect();
        for pipe in pipes {
            let [was, is] = [before.get(&pipe), self.smaller.get(&pipe)];
            let names = was.into_iter().chain(is).flat_map(|smaller| smaller.each.keys());
            let limit = |of: Option<&Smaller>, name: &Name| of.map_or(1, |smaller| smaller.limit(name));
            self.changed.extend(names.filter(|name| limit(was, name) != limit(is, name)).cloned());
        }
        lost.sort_unstable();
        lost.dedup_by(|one, other| one.0 == other.0);
        lost
    }

    /// The pipes that are smaller now, with their sizes.
    pub fn sizes(&self) -> BTreeMap<String, Bucket> {
        self.smaller.iter().map(|(pipe, smaller)| (self.pipes[*pipe].name.clone(), smaller.size.bucket())).collect()
    }

    /// Gives the sessions that are left what others have left. Gives those that have no room, which happens only if a part was taken from them.
    pub fn settle(&mut self) -> Vec<Displaced> {
        let stale = self.smaller.values().any(|smaller| smaller.stale);
        if stale { self.resize(&self.sizes()) } else { Vec::new() }
    }

    /// Sessions that get another part of their samples than when this was asked for last.
    pub fn take_changed(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.changed)
    }

    /// For each flow of a session that has parts of pipes, in their order: it gets one of so many of the publisher's samples.
    pub fn scales(&self, key: &Key) -> Vec<u32> {
        let shares = self.versions(key).and_then(|versions| versions.get(&key.version));
        let name = (key.first.clone(), key.session.clone());
        let scale = |share: &Share| {
            let limit = self.smaller.get(&share.pipe).map_or(1, |smaller| smaller.limit(&name));
            share.samples.at(limit)
        };
        shares.into_iter().flatten().map(scale).collect()
    }

    /// What is sold of each pipe, for whoever decides how large it may be.
    pub fn demand(&self) -> Demand {
        let mut least = vec![Amount::default(); self.pipes.len()];
        for versions in self.sessions.values() {
            let pipes: BTreeSet<usize> = versions.values().flatten().map(|share| share.pipe).collect();
            for pipe in pipes {
                least[pipe] = least[pipe].with(self.part(versions, pipe, u32::MAX));
            }
        }
        let each = self.pipes.iter().zip(&self.sold).zip(least);
        each.map(|((pipe, whole), least)| (pipe.name.clone(), Sold { whole: whole.bucket(), least: least.bucket() }))
            .collect()
    }

    /// What the sessions of a pipe get if it is so large, and those that have no room in it.
    fn granted(&self, pipe: usize, size: Amount) -> (Smaller, Vec<Displaced>) {
        let mut smaller = Smaller { size, ..Smaller::default() };
        let (mut left, mut lost) = (Vec::new(), Vec::new());
        for (name, versions) in self.by_importance(pipe) {
            let least = self.part(versions, pipe, u32::MAX);
            if smaller.granted.with(least).is_within(size) {
                smaller.set(name, u32::MAX, least);
                left.push((name, versions));
            } else {
                let offer = self.offer(versions, pipe, |part| smaller.granted.with(part).is_within(size));
                let key = |version: &u64| Key { first: name.0.clone(), session: name.1.clone(), version: *version };
                lost.extend(versions.keys().map(|version| (key(version), offer)));
            }
        }
        for (name, versions) in left {
            smaller.remove(name);
            let fits = |limit| smaller.granted.with(self.part(versions, pipe, limit)).is_within(size);
            let most = of_pipe(versions, pipe).map(|share| share.samples.scale[1]).max().unwrap_or(1);
            let (mut too_little, mut enough) = (0, most.max(1));
            while enough - too_little > 1 {
                let middle = u32::midpoint(too_little, enough);
                if fits(middle) { enough = middle } else { too_little = middle }
            }
            smaller.set(name, enough, self.part(versions, pipe, enough));
        }
        (smaller, lost)
    }

    /// How far a session that has no room would have to be thinned.
    fn offer(&self, versions: &Versions, pipe: usize, fits: impl Fn(Amount) -> bool) -> Option<u32> {
        let thinned = |limit: u32| {
            let part = |share: &Share| self.amount(pipe, share.samples, limit.max(share.samples.scale[0]));
            let of = |shares: &Vec<Share>| {
                shares.iter().filter(|share| share.pipe == pipe).map(part).fold(Amount::default(), Amount::with)
            };
            versions.values().map(of).fold(Amount::default(), Amount::max)
        };
        let (mut too_little, mut enough) = (1, MOST_OFFERED);
        if !fits(thinned(enough)) {
            return None;
        }
        while enough - too_little > 1 {
            let middle = u32::midpoint(too_little, enough);
            if fits(thinned(middle)) { enough = middle } else { too_little = middle }
        }
        Some(enough)
    }

    /// The sessions of a pipe, the most important first, of equally important ones the oldest.
    fn by_importance(&self, pipe: usize) -> Vec<(&Name, &Versions)> {
        let sessions = self.sessions.iter().filter_map(|(name, versions)| {
            let importance = of_pipe(versions, pipe).map(|share| share.samples.importance).max()?;
            Some((Reverse(importance), versions.keys().next().copied(), name, versions))
        });
        let mut all: Vec<_> = sessions.collect();
        all.sort_by_key(|(importance, age, name, _)| (*importance, *age, *name));
        all.into_iter().map(|(.., name, versions)| (name, versions)).collect()
    }

    /// What a session has of a pipe if it gets one of so many samples. Of several versions the largest counts: they carry the same samples.
    fn part(&self, versions: &Versions, pipe: usize, limit: u32) -> Amount {
        let part = |share: &Share| self.amount(pipe, share.samples, share.samples.at(limit));
        let of = |shares: &Vec<Share>| {
            shares.iter().filter(|share| share.pipe == pipe).map(part).fold(Amount::default(), Amount::with)
        };
        versions.values().map(of).fold(Amount::default(), Amount::max)
    }

    /// Checks that a session that would have this part of a pipe has room there beside what the others get now.
    pub(super) fn fits_now(&self, key: &Key, pipe: usize, part: Amount) -> Result<(), Limit> {
        let Some(smaller) = self.smaller.get(&pipe) else { return Ok(()) };
        let own = smaller.each.get(&(key.first.clone(), key.session.clone())).map(|(_, own)| *own).unwrap_or_default();
        let sum = smaller.granted.without(own).with(part);
        let because = || "the pipe is smaller, as long as links carry less than the contract says".to_owned();
        let [needs, has] = [sum, smaller.size].map(Amount::bucket);
        if sum.rate > smaller.size.rate {
            let [needs, has] = [needs, has].map(|bucket| show_bit_rate(bucket.rate));
            return Err(Limit { what: "rate", needs, has, because: because() });
        }
        if sum.burst > smaller.size.burst {
            let [needs, has] = [needs, has].map(|bucket| format!("{} B", bucket.burst));
            return Err(Limit { what: "burst", needs, has, because: because() });
        }
        Ok(())
    }

    /// A session that was just admitted gets all its samples.
    pub(super) fn grant_whole(&mut self, key: &Key) {
        self.grant(key, Some(1));
    }

    /// A version of a session is gone: what it leaves is for others.
    pub(super) fn grant_less(&mut self, key: &Key) {
        self.grant(key, None);
        self.smaller.values_mut().for_each(|smaller| smaller.stale = true);
    }

    /// Counts anew what a session gets of pipes that are smaller.
    fn grant(&mut self, key: &Key, limit: Option<u32>) {
        if self.smaller.is_empty() {
            return;
        }
        let name = (key.first.clone(), key.session.clone());
        let mut all = std::mem::take(&mut self.smaller);
        for (pipe, smaller) in &mut all {
            let before = smaller.limit(&name);
            let limit = limit.unwrap_or(before);
            match self.sessions.get(&name).filter(|versions| of_pipe(versions, *pipe).next().is_some()) {
                Some(versions) => smaller.set(&name, limit, self.part(versions, *pipe, limit)),
                None => smaller.remove(&name),
            }
            if smaller.limit(&name) != before {
                self.changed.insert(name.clone());
            }
        }
        self.smaller = all;
    }
}

/// The parts of a pipe that versions of a session have.
fn of_pipe(versions: &Versions, pipe: usize) -> impl Iterator<Item = &Share> {
    versions.values().flatten().filter(move |share| share.pipe == pipe)
}

impl Amount {
    fn is_within(self, other: Self) -> bool {
        self.rate <= other.rate && self.burst <= other.burst
    }
}

impl super::Samples {
    /// The ratio of samples that are sent if one of `limit` is allowed.
    fn at(self, limit: u32) -> u32 {
        limit.clamp(self.scale[0], self.scale[1])
    }
}

#[cfg(test)]
mod tests;
