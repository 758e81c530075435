//! The sold parts of a domain's pipes. No pipe is ever sold beyond its rate or its burst, whatever is held, committed and stopped in whatever
//! order. Pure.
//!
//! All pipes are planned full with the domain's contract, so a part that is sold changes nobody's bound: a decision is a sum. Sums are kept, in whole
//! numbers, so that no order of buying and giving back leaves a rest.
//!
//! A pipe may be smaller for a while, because its links are: then its sessions get fewer samples (`grants`), and what is sold of it stays sold.

mod grants;

use agent::peer::{Flow, Key, Refused};
use grants::Smaller;
pub use grants::{Demand, Displaced, NOTHING_SOLD, Sold};
use qos::admission::Bucket;
use qos::analysis::Arrivals;
use qos::contract::Contract;
use qos::control;
use qos::plan;
use qos::{Class, show_bit_rate};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a packet's own header, by Thalweg.
const OWN: u64 = 40;
/// The longest headers of IP and transport: IPv6, and TCP with time stamps.
const HEADERS: u64 = 40 + 32;
/// Packets that a program may send with each sample besides those that the sample takes: what it tells its peer about it.
const BESIDE: u64 = 1;
/// ns
const HOUR: u64 = 3_600_000_000_000;
/// Most packets per hour that a limit states: a million per second.
const MOST_PACKETS: u64 = 3_600_000_000;

/// A pipe, with the names of its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipe {
    /// Its name.
    pub name: String,
    /// The node at which samples come in.
    pub from: String,
    /// The node at which they go out.
    pub to: String,
    /// The class.
    pub class: Class,
    /// What may be sold.
    pub whole: Bucket,
    /// Bytes of the largest sample.
    pub largest: u64,
    /// The longest delay that is promised, ns.
    pub bound: u64,
    /// The price of a flow.
    pub price: u64,
    /// Largest payload and overhead of a packet, bytes.
    packet: [u64; 2],
}

/// A token bucket in whole numbers, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// Bytes.
    burst: u64,
    /// Thousandths of bit/s.
    rate: u64,
}

impl Amount {
    fn of(Bucket { burst, rate }: Bucket) -> Self {
        Self { burst, rate: (rate * 1e3).ceil() as u64 }
    }

    fn bucket(self) -> Bucket {
        Bucket { burst: self.burst, rate: self.rate as f64 / 1e3 }
    }

    fn with(self, other: Self) -> Self {
        Self { burst: self.burst.saturating_add(other.burst), rate: self.rate.saturating_add(other.rate) }
    }

    fn without(self, other: Self) -> Self {
        Self { burst: self.burst.saturating_sub(other.burst), rate: self.rate.saturating_sub(other.rate) }
    }

    fn max(self, other: Self) -> Self {
        Self { burst: self.burst.max(other.burst), rate: self.rate.max(other.rate) }
    }
}

/// A part of a pipe (index) that a flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    pipe: usize,
    amount: Amount,
    samples: Samples,
}

/// The samples of a flow, as they come into a pipe. Times are ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Samples {
    size: u64,
    period: u64,
    jitter: u64,
    burst: u32,
    /// Samples of the publisher for each of these, as asked for and at the most.
    scale: [u32; 2],
    importance: i64,
}

/// A session's name: its first domain, and its name there.
type Name = (String, String);

/// What each version of a session has.
type Versions = BTreeMap<u64, Vec<Share>>;

/// The pipes, and who has which part of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    domain: String,
    pipes: Vec<Pipe>,
    /// What is sold of each pipe.
    sold: Vec<Amount>,
    /// Those of which nothing is sold now, with the reason.
    closed: BTreeMap<usize, String>,
    /// Those that are smaller now.
    smaller: BTreeMap<usize, Smaller>,
    /// Sessions that get another part of their samples than when this was asked for last.
    changed: BTreeSet<Name>,
    sessions: BTreeMap<Name, Versions>,
}

/// Small packets that Thalweg sends of a flow besides its samples at most, in an hour and at once: keep-alives, and heartbeats, which are of class
/// high whatever the class of the samples.
fn control_packets(class: Class, period: u64, jitter: u64) -> [u64; 2] {
    let heartbeat = (control::PACKETS_OF_HEARTBEAT, control::heartbeat_every().as_nanos() as u64);
    let keep_alive = (1, control::keep_alive_after_ns(period));
    let all = std::iter::once(keep_alive).chain((class == Class::High).then_some(heartbeat));
    all.fold([0; 2], |[hourly, at_once], (packets, every)| {
        [hourly + packets * HOUR.div_ceil(every), at_once + packets * (jitter.div_ceil(every) + 1)]
    })
}

/// A limit of a pipe that a flow would exceed.
struct Limit {
    what: &'static str,
    needs: String,
    has: String,
    because: String,
}

impl Ledger {
    /// The pipes of a domain's contract, with nothing sold.
    pub fn new(domain: &str, contract: &Contract) -> Self {
        let name = |node: usize| contract.system.nodes[node].name.clone();
        let pipe = |pipe: &qos::contract::pipe::Pipe| Pipe {
            name: pipe.name.clone(),
            from: name(pipe.from),
            to: name(pipe.to),
            class: pipe.class,
            whole: Bucket { burst: pipe.burst, rate: pipe.rate as f64 },
            largest: pipe.largest,
            bound: pipe.deadline,
            price: pipe.price,
            packet: [pipe.mtu, pipe.overhead],
        };
        let pipes: Vec<Pipe> = contract.pipes.iter().map(pipe).collect();
        let sold = vec![Amount::default(); pipes.len()];
        Self { domain: domain.to_owned(), sold, pipes, ..Self::default() }
    }

    /// The pipes of which nothing is sold now.
    pub fn closed(&self) -> impl Iterator<Item = &Pipe> {
        self.closed.keys().map(|index| &self.pipes[*index])
    }

    /// From now on nothing is sold of these pipes, for this reason, and of all others it is. Gives the sessions that have a part of one of them.
    pub fn close(&mut self, names: &[String], because: &str) -> Vec<Key> {
        let all = self.pipes.iter().enumerate().filter(|(_, pipe)| names.contains(&pipe.name));
        self.closed = all.map(|(index, _)| (index, because.to_owned())).collect();
        let is_closed = |shares: &[Share]| shares.iter().any(|share| self.closed.contains_key(&share.pipe));
        let of = |((first, session), versions): (&Name, &Versions)| {
            let key = |version: &u64| Key { first: first.clone(), session: session.clone(), version: *version };
            versions.iter().filter(|(_, shares)| is_closed(shares)).map(|(version, _)| key(version)).collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(of).collect()
    }

    /// The pipes, each with what is sold of it.
    pub fn pipes(&self) -> impl Iterator<Item = (&Pipe, Bucket)> {
        self.pipes.iter().zip(&self.sold).map(|(pipe, sold)| (pipe, sold.bucket()))
    }

    /// The pipes that could carry the last of these flows beside the others to `to`, by class. Other versions of the session give way to it. All
    /// flows of a session are in the same class here, so that a menu never promises too much.
    ///
    /// # Errors
    /// The reason why none could.
    pub fn quote(&self, key: &Key, flows: &[(&Flow, &str)]) -> Result<BTreeMap<Class, &Pipe>, Refused> {
        let Some(((flow, to), others)) = flows.split_last() else { return Ok(BTreeMap::new()) };
        let mut menu = BTreeMap::new();
        let mut last = None;
        for class in flow.before.keys().copied() {
            let Some(index) = self.find(&flow.enters, to, class) else { continue };
            let beside = |(other, to): &&(&Flow, &str)| self.find(&other.enters, to, class) == Some(index);
            let shares: Vec<Share> = others
                .iter()
                .filter(beside)
                .map(|(other, _)| *other)
                .chain([*flow])
                .filter_map(|flow| self.share(index, flow, class))
                .collect();
            match self.fits(key, index, flow, &shares) {
                Ok(()) => drop(menu.insert(class, &self.pipes[index])),
                Err(limit) => last = Some(self.refused(index, limit)),
            }
        }
        if menu.is_empty() { Err(last.unwrap_or_else(|| self.no_pipe(flow, to))) } else { Ok(menu) }
    }

    /// Gives a session its parts of pipes: each flow goes to the node beside it, in its one class. The same again changes nothing.
    ///
    /// # Errors
    /// The first limit that is exceeded; nothing is given then.
    pub fn hold(&mut self, key: &Key, flows: &[(&Flow, &str)]) -> Result<(), Refused> {
        let mut shares = Vec::new();
        for (flow, to) in flows {
            let class = flow.before.keys().next().copied();
            let found = class.and_then(|class| Some((self.find(&flow.enters, to, class)?, class)));
            let (index, class) = found.ok_or_else(|| self.no_pipe(flow, to))?;
            shares.extend(self.share(index, flow, class));
            let of_pipe: Vec<Share> = shares.iter().filter(|share| share.pipe == index).copied().collect();
            self.fits(key, index, flow, &of_pipe).map_err(|limit| self.refused(index, limit))?;
        }
        self.change(key, |versions| drop(versions.insert(key.version, shares)));
        self.grant_whole(key);
        Ok(())
    }

    /// Takes back what a version of a session has.
    pub fn release(&mut self, key: &Key) {
        self.change(key, |versions| drop(versions.remove(&key.version)));
        self.grant_less(key);
    }

    /// What each flow of this version of a session sends at most, with headers; none if it has no parts.
    pub fn limits(&self, key: &Key) -> Vec<plan::Limit> {
        let shares = self.versions(key).and_then(|versions| versions.get(&key.version));
        shares.into_iter().flatten().map(|share| self.limit(share)).collect()
    }

    /// As its part of the pipe, with headers that no contract states and what Thalweg sends beside samples, and one percent more for clocks that
    /// differ.
    fn limit(&self, share: &Share) -> plan::Limit {
        let Pipe { class, packet: [payload, overhead], .. } = self.pipes[share.pipe];
        let Samples { size, period, jitter, burst, .. } = share.samples;
        let arrivals = Arrivals::bursty(period.max(1), jitter, burst);
        // A packet has room for so much of a sample, beside its headers.
        let room = payload.saturating_sub(HEADERS + OWN).max(payload / 2).max(1);
        let Bucket { burst: bytes, rate } = Bucket::of(size, [room, overhead.max(HEADERS) + OWN], arrivals);
        let packets = size.div_ceil(room).max(1).saturating_add(BESIDE);
        let at_once = arrivals.jitter.div_ceil(arrivals.period).saturating_add(1);
        let [control_hourly, control_at_once] = control_packets(class, period, jitter);
        let hourly = (u128::from(packets) * u128::from(HOUR)).div_ceil(u128::from(arrivals.period));
        let hourly = hourly + u128::from(control_hourly);
        let control_rate = control_hourly * (HEADERS + OWN) * 8 / 3600;
        plan::Limit {
            rate_bits_per_s: ((rate + control_rate as f64) * 1.01).ceil() as u64,
            burst_bytes: bytes.saturating_add(control_at_once * (HEADERS + OWN)).min(u32::MAX.into()),
            packets_per_hour: u64::try_from(hourly + hourly / 100)
                .map_or(MOST_PACKETS, |hourly| hourly.min(MOST_PACKETS)),
            packets: packets.saturating_mul(at_once).saturating_add(control_at_once).min(u32::MAX.into()),
            packet_bytes: payload.saturating_add(HEADERS).min(u16::MAX.into()),
        }
    }

    /// `true` if this version of a session has parts.
    #[cfg(test)]
    pub fn has(&self, key: &Key) -> bool {
        self.versions(key).is_some_and(|versions| versions.contains_key(&key.version))
    }

    fn versions(&self, key: &Key) -> Option<&Versions> {
        self.sessions.get(&(key.first.clone(), key.session.clone()))
    }

    /// Changes the versions of a session, and the sums with them.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Versions)) {
        let name = (key.first.clone(), key.session.clone());
        let mut versions = self.sessions.remove(&name).unwrap_or_default();
        for (pipe, amount) in all(&versions, None) {
            self.sold[pipe] = self.sold[pipe].without(amount);
        }
        change(&mut versions);
        for (pipe, amount) in all(&versions, None) {
            self.sold[pipe] = self.sold[pipe].with(amount);
        }
        if !versions.is_empty() {
            self.sessions.insert(name, versions);
        }
    }

    /// Checks that a pipe has room for these parts of a session, beside all other sessions and in place of the session's other versions where they
    /// have less.
    fn fits(&self, key: &Key, pipe: usize, flow: &Flow, shares: &[Share]) -> Result<(), Limit> {
        let Pipe { whole, largest, .. } = &self.pipes[pipe];
        if let Some(because) = self.closed.get(&pipe) {
            let (needs, has) = ("open".to_owned(), "closed".to_owned());
            return Err(Limit { what: "state", needs, has, because: because.clone() });
        }
        if flow.size > *largest {
            let because = format!("a sample of {:?} is larger than the largest of the pipe", flow.topic);
            let (needs, has) = (format!("{} B", flow.size), format!("{largest} B"));
            return Err(Limit { what: "largest sample", needs, has, because });
        }
        let part = |all: BTreeMap<usize, Amount>| all.get(&pipe).copied().unwrap_or_default();
        let versions = self.versions(key);
        let before = versions.map(|versions| part(all(versions, None))).unwrap_or_default();
        let others = versions.map(|versions| part(all(versions, Some(key.version)))).unwrap_or_default();
        let sum = self.sold[pipe].without(before).with(others.max(of_pipe(shares, pipe))).bucket();
        let because = || {
            format!(
                "with {:?} beside what is sold of it; later domains get a flow with the jitter of earlier ones",
                flow.topic
            )
        };
        if sum.rate > whole.rate {
            let (needs, has) = (show_bit_rate(sum.rate), show_bit_rate(whole.rate));
            return Err(Limit { what: "rate", needs, has, because: because() });
        }
        if sum.burst > whole.burst {
            let (needs, has) = (format!("{} B", sum.burst), format!("{} B", whole.burst));
            return Err(Limit { what: "burst", needs, has, because: because() });
        }
        self.fits_now(key, pipe, others.max(of_pipe(shares, pipe)))
    }

    fn find(&self, from: &str, to: &str, class: Class) -> Option<usize> {
        self.pipes.iter().position(|pipe| (&*pipe.from, &*pipe.to, pipe.class) == (from, to, class))
    }

    /// A flow's part of a pipe; `None`: earlier domains do not carry it in this class.
    fn share(&self, pipe: usize, flow: &Flow, class: Class) -> Option<Share> {
        // What may be late on its way comes the closer together then.
        let jitter = flow.jitter.saturating_add(*flow.before.get(&class)?);
        let Flow { size, period, burst, scale, scale_max, importance, .. } = *flow;
        let samples = Samples { size, period, jitter, burst, scale: [scale, scale_max.max(scale)], importance };
        Some(Share { pipe, amount: self.amount(pipe, samples, scale), samples })
    }

    /// What samples need of a pipe if one of so many is sent.
    fn amount(&self, pipe: usize, samples: Samples, scale: u32) -> Amount {
        let Samples { size, period, jitter, burst, scale: [own, _], .. } = samples;
        let period = u128::from(period) * u128::from(scale) / u128::from(own.max(1));
        let period = u64::try_from(period).unwrap_or(u64::MAX).max(1);
        Amount::of(Bucket::of(size, self.pipes[pipe].packet, Arrivals::bursty(period, jitter, burst)))
    }

    fn refused(&self, pipe: usize, limit: Limit) -> Refused {
        let Limit { what, needs, has, because } = limit;
        let what = format!("{what} of pipe {} of domain {}", self.pipes[pipe].name, self.domain);
        Refused { domain: self.domain.clone(), what, needs, has, because, ..Refused::default() }
    }

    fn no_pipe(&self, flow: &Flow, to: &str) -> Refused {
        let classes: Vec<&str> = flow.before.keys().map(|class| class.name()).collect();
        Refused {
            domain: self.domain.clone(),
            what: format!("pipe from {} to {to} of domain {}", flow.enters, self.domain),
            needs: format!("one of class {}", classes.join(" or ")),
            has: "none".to_owned(),
            because: format!("the contract has no [[pipe]] there that could carry {:?}", flow.topic),
            ..Refused::default()
        }
    }
}

fn of_pipe(shares: &[Share], pipe: usize) -> Amount {
    let own = shares.iter().filter(|share| share.pipe == pipe).map(|share| share.amount);
    own.fold(Amount::default(), Amount::with)
}

/// What a session has of each pipe, without one version of it. Of several versions the largest counts: they carry the same samples.
fn all(versions: &Versions, without: Option<u64>) -> BTreeMap<usize, Amount> {
    let mut all: BTreeMap<usize, Amount> = BTreeMap::new();
    for (_, shares) in versions.iter().filter(|(version, _)| Some(**version) != without) {
        for pipe in shares.iter().map(|share| share.pipe) {
            let largest = all.entry(pipe).or_default();
            *largest = largest.max(of_pipe(shares, pipe));
        }
    }
    all
}

#[cfg(test)]
mod tests;
