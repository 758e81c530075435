//! The sold parts of a domain's pipes. No pipe is ever sold beyond its rate or its burst, whatever is held, committed and stopped in whatever
//! order. Pure.
//!
//! All pipes are planned full with the domain's contract, so a part that is sold changes nobody's bound: a decision is a sum.

use agent::peer::{Flow, Key, Refused};
use qos::admission::Bucket;
use qos::analysis::Arrivals;
use qos::contract::Contract;
use qos::{Class, show_bit_rate};
use std::collections::BTreeMap;

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

/// A part of a pipe (index) that a session has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    pipe: usize,
    bucket: Bucket,
}

/// The pipes, and who has which part of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    domain: String,
    pipes: Vec<Pipe>,
    sold: BTreeMap<Key, Vec<Share>>,
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
        Self { domain: domain.to_owned(), pipes: contract.pipes.iter().map(pipe).collect(), sold: BTreeMap::new() }
    }

    /// The pipes, each with what is sold of it.
    pub fn pipes(&self) -> impl Iterator<Item = (&Pipe, Bucket)> {
        self.pipes.iter().enumerate().map(|(index, pipe)| (pipe, self.sold(index, None)))
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
        self.sold.insert(key.clone(), shares);
        Ok(())
    }

    /// Takes back what a version of a session has.
    pub fn release(&mut self, key: &Key) {
        self.sold.remove(key);
    }

    /// `true` if this version of a session has parts.
    pub fn has(&self, key: &Key) -> bool {
        self.sold.contains_key(key)
    }

    /// What is sold of a pipe, without any version of one session. Of several versions of a session the largest counts: they carry the
    /// same samples.
    fn sold(&self, pipe: usize, without: Option<&Key>) -> Bucket {
        let mut sum = Bucket::default();
        let mut last: Option<(&Key, Bucket)> = None;
        let is_same = |one: &Key, other: &Key| (&one.first, &one.session) == (&other.first, &other.session);
        for (key, shares) in &self.sold {
            if without.is_some_and(|other| is_same(key, other)) {
                continue;
            }
            let own = of_pipe(shares, pipe);
            last = match last.take() {
                Some((before, largest)) if is_same(before, key) => Some((key, largest.max(own))),
                Some((_, largest)) => {
                    sum = sum.with(largest);
                    Some((key, own))
                }
                None => Some((key, own)),
            };
        }
        last.map_or(sum, |(_, largest)| sum.with(largest))
    }

    /// Checks that a pipe has room for these parts of a session, beside all other sessions and in place of the session's other versions where they
    /// have less.
    fn fits(&self, key: &Key, pipe: usize, flow: &Flow, shares: &[Share]) -> Result<(), Limit> {
        let Pipe { whole, largest, .. } = &self.pipes[pipe];
        if flow.size > *largest {
            let because = format!("a sample of {:?} is larger than the largest of the pipe", flow.topic);
            let (needs, has) = (format!("{} B", flow.size), format!("{largest} B"));
            return Err(Limit { what: "largest sample", needs, has, because });
        }
        let versions =
            self.sold.iter().filter(|(other, _)| (&other.first, &other.session) == (&key.first, &key.session));
        let before = versions.filter(|(other, _)| *other != key).map(|(_, shares)| of_pipe(shares, pipe));
        let own = before.fold(of_pipe(shares, pipe), Bucket::max);
        let sum = self.sold(pipe, Some(key)).with(own);
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
        Ok(())
    }

    fn find(&self, from: &str, to: &str, class: Class) -> Option<usize> {
        self.pipes.iter().position(|pipe| (&*pipe.from, &*pipe.to, pipe.class) == (from, to, class))
    }

    /// A flow's part of a pipe; `None`: earlier domains do not carry it in this class.
    fn share(&self, pipe: usize, flow: &Flow, class: Class) -> Option<Share> {
        // What may be late on its way comes the closer together then.
        let jitter = flow.jitter.saturating_add(*flow.before.get(&class)?);
        let arrivals = Arrivals::bursty(flow.period.max(1), jitter, flow.burst);
        Some(Share { pipe, bucket: Bucket::of(flow.size, self.pipes[pipe].packet, arrivals) })
    }

    fn refused(&self, pipe: usize, limit: Limit) -> Refused {
        let Limit { what, needs, has, because } = limit;
        let what = format!("{what} of pipe {} of domain {}", self.pipes[pipe].name, self.domain);
        Refused { domain: self.domain.clone(), what, needs, has, because }
    }

    fn no_pipe(&self, flow: &Flow, to: &str) -> Refused {
        let classes: Vec<&str> = flow.before.keys().map(|class| class.name()).collect();
        Refused {
            domain: self.domain.clone(),
            what: format!("pipe from {} to {to} of domain {}", flow.enters, self.domain),
            needs: format!("one of class {}", classes.join(" or ")),
            has: "none".to_owned(),
            because: format!("the contract has no [[pipe]] there that could carry {:?}", flow.topic),
        }
    }
}

fn of_pipe(shares: &[Share], pipe: usize) -> Bucket {
    let own = shares.iter().filter(|share| share.pipe == pipe).map(|share| share.bucket);
    own.fold(Bucket::default(), Bucket::with)
}

#[cfg(test)]
mod tests;
