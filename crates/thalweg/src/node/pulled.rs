//! Pull: queries of a subscriber to histories (P-05, P-09).

use super::Subscriber;
use crate::channel::bucket::Limit;
use crate::channel::history::{Absent, Query};
use crate::codec::{Message, TypeDescription};
use crate::control::PullRole;
use crate::driver::{Asked, Asking, Holder, not_kept};
use crate::error::{Error, Result};
use crate::port::{AnySubscriber, Storage, TakenSample};
use qos::Place;
use std::marker::PhantomData;
use std::time::Duration;

/// Sources and rate of a pull. By default it asks this port's own history if there is one, otherwise all that keep the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFrom {
    /// Samples of the publisher of this name only.
    pub publisher: Option<String>,
    /// Only the port of this name is asked: a publisher, or a port that keeps samples for others.
    pub holder: Option<String>,
    /// Rate limit of samples from other nodes, at least [`PullFrom::SLOWEST`]; by default [`PullFrom::LIMIT`]. `None`: no
    /// limit, which takes the processors from more urgent channels.
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
    /// Bytes per second. A responder gives up on a subscriber that reads nothing for ten seconds, and a slower one
    /// may look like that.
    pub const SLOWEST: u64 = 16_000;
}

/// Pulled samples as they arrive. Each comes once; those of one publisher come in the order of their numbers.
pub struct Pulled<M: Message> {
    asking: Asking,
    /// Refusals of relays; `None`: not all were asked yet.
    refused: Option<Vec<Error>>,
    message: PhantomData<M>,
}

impl<M: Message> Subscriber<M> {
    /// Pulls samples that were published before: from publishers, then from ports that keep their samples for others. A port
    /// with a history of its own asks only that. `timeout` is the longest silence.
    ///
    /// # Errors
    /// [`Error::Peer`] if no port keeps samples of the topic. A later error takes the place of a sample.
    pub fn pull(&self, query: Query, timeout: Duration) -> Result<Pulled<M>> {
        self.pull_from(&PullFrom::default(), query, timeout)
    }

    /// Pulls as [`Subscriber::pull`] does, from the stated sources.
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
        let info = &self.subscriber_port.info;
        let holders = match &from.holder {
            None if self.subscriber_port.histories().is_some() => vec![Holder::own(state, self.me.port, info)],
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

    /// `true` if a known port keeps samples of the topic.
    pub fn can_pull(&self) -> bool {
        let all = || Holder::all(self.node.state(), &self.subscriber_port.info.topic, None, None);
        self.subscriber_port.histories().is_some() || !all().is_empty()
    }

    /// The place that keeps samples for this port.
    fn keeper(&self) -> Option<&Place> {
        self.subscriber_port.info.qos.pull.as_ref().map(|pull| &pull.place)
    }

    /// `true` if the port only pulls and has no channels.
    pub fn is_pull_only(&self) -> bool {
        self.subscriber_port.info.pull == PullRole::Only
    }
}

/// The origin of a pulled sample, as its publisher described itself. That publisher may be gone.
pub struct Origin<'a> {
    /// The publisher's name.
    pub publisher: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// The type of the sample.
    pub message: &'a TypeDescription,
}

impl<M: Message> Pulled<M> {
    /// Samples that were requested and are missing, by publishers' names. Complete when there are no more samples.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &Absent)> {
        self.asking.absent()
    }

    /// The origin of the samples that come now.
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
