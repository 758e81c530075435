//! Pull: what a subscriber asks histories for (P-05, P-09).

use super::Subscriber;
use crate::channel::bucket::Limit;
use crate::channel::history::{Absent, Query};
use crate::codec::{Message, TypeDescription};
use crate::control::PullRole;
use crate::driver::{Asked, Asking, Holder, not_kept};
use crate::error::{Error, Result};
use crate::port::{AnyInlet, Storage, TakenSample};
use qos::Place;
use std::marker::PhantomData;
use std::time::Duration;

/// Whom a pull asks and how fast, besides what: by default this port's own history if it keeps one, else all that keep the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFrom {
    /// Samples of the publisher of this name only.
    pub publisher: Option<String>,
    /// Only the port of this name is asked: a publisher, or a port that keeps for others.
    pub holder: Option<String>,
    /// How fast samples may come from other nodes, at least [`PullFrom::SLOWEST`]; by default [`PullFrom::LIMIT`]. `None`: as fast as
    /// it goes, which takes the processors from more urgent channels.
    pub limit: Option<Limit>,
}

impl Default for PullFrom {
    fn default() -> Self {
        Self { publisher: None, holder: None, limit: Some(Self::LIMIT) }
    }
}

impl PullFrom {
    /// 400 Mbit/s: between two hosts on two processors a channel of 1 kHz beside it had p99 1.1 to 1.25 times that alone, and 2.4 to
    /// 6.3 times without a limit (experiment `pull-beside`).
    pub const LIMIT: Limit = Limit { rate: 50_000_000, burst: 64 << 10 };
    /// Bytes per second. Who answers gives up on one who takes nothing for ten seconds, and less than this may look so.
    pub const SLOWEST: u64 = 16_000;
}

/// Samples that were pulled, as they arrive. Each is given once, those of one publisher in the order of their numbers.
pub struct Pulled<M: Message> {
    asking: Asking,
    /// What relays do not keep of it; `None`: not all were asked yet.
    refused: Option<Vec<Error>>,
    message: PhantomData<M>,
}

impl<M: Message> Subscriber<M> {
    /// Asks for samples that were published before: publishers, then whoever keeps their samples for others; a port with
    /// a history of its own asks that alone. `timeout` is the longest that nothing may come.
    ///
    /// # Errors
    /// [`Error::Peer`] when nobody keeps samples of the topic. What goes wrong later comes in place of a sample.
    pub fn pull(&self, query: Query, timeout: Duration) -> Result<Pulled<M>> {
        self.pull_from(&PullFrom::default(), query, timeout)
    }

    /// As [`Subscriber::pull`], of whom it is said.
    ///
    /// # Errors
    /// As [`Subscriber::pull`]; [`Error::Usage`] for a limit below [`PullFrom::SLOWEST`].
    pub fn pull_from(&self, from: &PullFrom, query: Query, timeout: Duration) -> Result<Pulled<M>> {
        if let Some(limit) = from.limit.filter(|limit| limit.rate < PullFrom::SLOWEST) {
            let (slowest, rate) = (PullFrom::SLOWEST, limit.rate);
            return Err(Error::Usage(format!(
                "a pull of {rate} bytes per second: at least {slowest}, or without a limit"
            )));
        }
        let state = self.node.state();
        let info = &self.inlet.info;
        let holders = match &from.holder {
            None if self.inlet.histories().is_some() => vec![Holder::own(state, self.me.port, info)],
            named => Holder::all(state, &info.topic, named.as_deref(), self.keeper()),
        };
        if holders.is_empty() {
            let who = from.holder.as_ref().map_or(String::new(), |name| format!(" at {name}"));
            if let Some((relay, refusal)) = not_kept(state, &info.topic).into_iter().next() {
                return Err(Error::Peer(format!(
                    "nobody keeps samples of {}{who}: at relay:{relay}, {refusal}",
                    info.topic
                )));
            }
            return Err(Error::Peer(format!(
                "nobody keeps samples of {}{who}: publish with a history (`pub --history N`, `pull` in the QoS)",
                info.topic
            )));
        }
        let asked = Asked {
            topic: info.topic.clone(),
            message: info.message.clone(),
            max_message: info.qos.max_message,
            publisher: from.publisher.clone(),
            query,
            limit: from.limit,
            timeout,
        };
        Ok(Pulled { asking: Asking::new(state.clone(), asked, holders), refused: None, message: PhantomData })
    }

    /// Whether anybody keeps samples of the topic, as far as is known now.
    pub fn can_pull(&self) -> bool {
        let all = || Holder::all(self.node.state(), &self.inlet.info.topic, None, None);
        self.inlet.histories().is_some() || !all().is_empty()
    }

    /// Where samples are kept for this port.
    fn keeper(&self) -> Option<&Place> {
        self.inlet.info.qos.pull.as_ref().map(|pull| &pull.place)
    }

    /// Whether the port only asks and has no channels.
    pub fn is_pull_only(&self) -> bool {
        self.inlet.info.pull == PullRole::Only
    }
}

/// A pulled sample with what its publisher said of itself, who may be gone meanwhile.
pub struct Origin<'a> {
    /// The publisher's name.
    pub publisher: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// The type of the sample.
    pub message: &'a TypeDescription,
}

impl<M: Message> Pulled<M> {
    /// What was asked for and is not there, by publishers' names: complete when there are no more samples.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &Absent)> {
        self.asking.absent()
    }

    /// Who published the samples that come now.
    pub fn origin(&self) -> Option<Origin<'_>> {
        let run = self.asking.run()?;
        Some(Origin { publisher: &run.name, topic: &run.topic, message: &run.message })
    }
}

impl<M: Message> Iterator for Pulled<M> {
    type Item = Result<TakenSample<M>>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = match self.asking.next() {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Some(Err(error)),
            None => return self.refused.get_or_insert_with(|| self.asking.refused()).pop().map(Err),
        };
        let sample = TakenSample::new(found.info, Storage::Pooled(found.buffer));
        Some(sample.map_err(|e| Error::Peer(format!("sample {} cannot be read: {e}", found.info.seq))))
    }
}
