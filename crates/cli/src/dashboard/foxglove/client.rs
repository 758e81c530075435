//! One client: what it asks for, and the messages that it gets. Time and messages in, messages out.
//!
//! Of a sample one frame at a time is on its way to a client, of a subscription after the other, so that a big topic delays a small one by
//! one sample at most. What waits meanwhile is bounded: of each subscription the last samples, of all of them [`HELD`] bytes.

use super::protocol::{Ask, Level, Offer, Wanted, advertise, data_head, server_info, status, unadvertise};
use super::queue::{Queue, Sample};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::{Bytes, Message};

/// Most subscriptions of a client.
const SUBSCRIPTIONS: usize = 1024;
/// Most bytes of samples that wait for a client, over all its subscriptions.
const HELD: usize = 64 << 20;
/// Most bytes of texts that wait for a client: beyond, it does not read, and is let go.
pub(super) const SAID: usize = 8 << 20;
/// Most bytes of a sample in a frame: of a larger one only so much is copied at a time.
const FRAME: usize = 256 << 10;
/// Bytes up to which channels are told in one message; one with a longer type has a message of its own.
const ADVERTISED: usize = 256 << 10;
/// Samples that may leave at once above the rate.
const BURST: u64 = 8;

/// The offered channels, by their numbers.
pub(super) type Offers = BTreeMap<u32, Arc<Offer>>;

#[derive(Debug)]
struct Subscription {
    channel: u32,
    queue: Queue,
    /// The time up to which its rate is used up.
    paid_ns: u64,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    /// Nanoseconds from one sample of a topic to the next, at the highest rate.
    period_ns: u64,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Subscriptions that are new, and their channels.
    joined: Vec<(u32, u32)>,
    /// The subscription that is served next.
    turn: u32,
    /// Bytes of samples that wait.
    held: usize,
    /// Texts that wait, and go before samples.
    said: VecDeque<String>,
    said_bytes: usize,
    /// Channels that it is still to be told of, after the texts.
    come: VecDeque<(u32, Arc<Offer>)>,
    /// Channels with a sample that may not wait because of its size, which is told once.
    too_large: BTreeSet<u32>,
    /// More texts would wait than may.
    overrun: bool,
    /// The part still to be sent of the sample that is on its way.
    rest: Bytes,
}

impl Client {
    /// A client of this session, which gets so many samples per second of each topic, and is told of the channels.
    pub(super) fn new(rate_hz: u32, session: &str, offers: &Offers) -> Self {
        let mut client = Self {
            period_ns: 1_000_000_000 / u64::from(rate_hz.max(1)),
            subscriptions: BTreeMap::new(),
            joined: Vec::new(),
            turn: 0,
            held: 0,
            said: VecDeque::new(),
            said_bytes: 0,
            come: offers.iter().map(|(id, offer)| (*id, offer.clone())).collect(),
            too_large: BTreeSet::new(),
            overrun: false,
            rest: Bytes::new(),
        };
        client.tell(server_info(session));
        client
    }

    /// Takes a message of it. Pings and the end are its connection's.
    pub(super) fn receive(&mut self, message: &Message, offers: &Offers) {
        match message {
            Message::Text(text) => self.answer(text, offers),
            Message::Binary(_) => self.warn(Level::Error, "nothing can be published or called here"),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {}
        }
    }

    fn answer(&mut self, text: &str, offers: &Offers) {
        match serde_json::from_str(text) {
            Ok(Ask::Subscribe { subscriptions }) => {
                subscriptions.iter().for_each(|wanted| self.subscribe(wanted, offers));
            }
            Ok(Ask::Unsubscribe { ids }) => ids.iter().for_each(|id| self.unsubscribe(*id)),
            Ok(Ask::Other) => {}
            Err(wrong) => self.warn(Level::Error, &format!("no message of Foxglove's protocol: {wrong}")),
        }
    }

    fn subscribe(&mut self, Wanted { id, channel_id: channel }: &Wanted, offers: &Offers) {
        let (id, channel) = (*id, *channel);
        if !offers.contains_key(&channel) {
            return self.warn(Level::Warning, &format!("there is no channel {channel}"));
        }
        if self.subscriptions.contains_key(&id) {
            return self.warn(Level::Error, &format!("there is a subscription {id} already"));
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS {
            return self.warn(Level::Error, &format!("a client may have {SUBSCRIPTIONS} subscriptions"));
        }
        self.subscriptions.insert(id, Subscription { channel, queue: Queue::default(), paid_ns: 0 });
        self.joined.push((id, channel));
    }

    fn unsubscribe(&mut self, id: u32) {
        match self.subscriptions.remove(&id) {
            Some(gone) => self.held -= gone.queue.bytes(),
            None => self.warn(Level::Warning, &format!("there is no subscription {id}")),
        }
    }

    /// The channels that it wants.
    pub(super) fn channels(&self) -> impl Iterator<Item = u32> {
        self.subscriptions.values().map(|subscription| subscription.channel)
    }

    /// Subscriptions since the last call, and their channels.
    pub(super) fn take_joined(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.joined)
    }

    /// Tells of channels that have come and gone. Subscriptions to those that are gone end.
    pub(super) fn announce(&mut self, come: &[u32], gone: &[u32], offers: &Offers) {
        if !gone.is_empty() {
            let ended: Vec<u32> =
                self.subscriptions.iter().filter(|(_, one)| gone.contains(&one.channel)).map(|(id, _)| *id).collect();
            ended.into_iter().for_each(|id| self.unsubscribe(id));
            self.too_large.retain(|channel| !gone.contains(channel));
            self.come.retain(|(id, _)| !gone.contains(id));
            self.tell(unadvertise(gone));
        }
        self.come.extend(come.iter().filter_map(|id| Some((*id, offers.get(id)?.clone()))));
    }

    /// Gives it a sample, if it has subscribed to its channel.
    pub(super) fn offer(&mut self, sample: &Arc<Sample>) {
        if !self.takes(sample) {
            return;
        }
        for subscription in self.subscriptions.values_mut().filter(|one| one.channel == sample.channel) {
            push(subscription, &mut self.held, sample);
        }
        self.thin();
    }

    /// Gives a sample to one subscription.
    pub(super) fn offer_to(&mut self, id: u32, sample: &Arc<Sample>) {
        if !self.takes(sample) {
            return;
        }
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            push(subscription, &mut self.held, sample);
        }
        self.thin();
    }

    /// `false` if a sample is larger than all that may wait, which is told once to those who have subscribed to its channel.
    fn takes(&mut self, sample: &Sample) -> bool {
        let Sample { channel, bytes, .. } = sample;
        let fits = bytes.len() <= HELD;
        if !fits && self.channels().any(|one| one == *channel) && self.too_large.insert(*channel) {
            let what = format!("a sample of channel {channel} has {} bytes", bytes.len());
            self.warn(Level::Warning, &format!("{what}: those of more than {HELD} are not shown"));
        }
        fits
    }

    /// Of what is too much, the subscription that holds most loses its oldest sample.
    fn thin(&mut self) {
        while self.held > HELD {
            let largest = self.subscriptions.values_mut().max_by_key(|one| one.queue.bytes());
            let Some(sample) = largest.and_then(|one| one.queue.pop()) else { return };
            self.held -= sample.bytes.len();
        }
    }

    /// The next message, which may be a part of one; `None`: nothing is to be said now.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Message> {
        if !self.rest.is_empty() {
            let part = self.part();
            return Some(self.frame(Data::Continue, part));
        }
        if let Some(text) = self.said.pop_front() {
            self.said_bytes -= text.len();
            return Some(Message::text(text));
        }
        if !self.come.is_empty() {
            return Some(Message::text(advertise(&mut self.come, ADVERTISED)));
        }
        let (id, sample) = self.pick(now_ns)?;
        self.rest = sample.bytes.clone();
        let first = [&data_head(id, sample.time_ns)[..], &self.part()[..]].concat();
        Some(self.frame(Data::Binary, first.into()))
    }

    /// The next part of the sample that is on its way.
    fn part(&mut self) -> Bytes {
        self.rest.split_to(self.rest.len().min(FRAME))
    }

    /// A frame of the message with that sample: the last one if nothing is left.
    fn frame(&self, opcode: Data, payload: Bytes) -> Message {
        Message::Frame(Frame::message(payload, OpCode::Data(opcode), self.rest.is_empty()))
    }

    /// The next sample: of the subscriptions that may send one, each in its turn.
    fn pick(&mut self, now_ns: u64) -> Option<(u32, Arc<Sample>)> {
        let (period, turn) = (self.period_ns, self.turn);
        let may = |one: &Subscription| !one.queue.is_empty() && one.due_ns(period) <= now_ns;
        let mut order = self.subscriptions.range(turn..).chain(self.subscriptions.range(..turn));
        let id = order.find(|(_, one)| may(one)).map(|(id, _)| *id)?;
        let subscription = self.subscriptions.get_mut(&id)?;
        let sample = subscription.queue.pop()?;
        subscription.paid_ns = subscription.paid_ns.max(now_ns) + period;
        self.held -= sample.bytes.len();
        self.turn = id.wrapping_add(1);
        Some((id, sample))
    }

    /// Time until a sample may be sent that waits for its rate.
    pub(super) fn due_in(&self, now_ns: u64) -> Option<Duration> {
        let waiting = self.subscriptions.values().filter(|one| !one.queue.is_empty());
        let due = waiting.map(|one| one.due_ns(self.period_ns)).min()?;
        Some(Duration::from_nanos(due.saturating_sub(now_ns)))
    }

    /// Tells that a channel is not shown to it, and why.
    pub(super) fn refuse(&mut self, channel: u32, why: &str) {
        self.warn(Level::Warning, &format!("channel {channel} is not shown, which is tried again: {why}"));
    }

    /// `true` if it does not read what it is told, and is to be let go.
    pub(super) fn is_overrun(&self) -> bool {
        self.overrun
    }

    fn warn(&mut self, level: Level, text: &str) {
        self.tell(status(level, text));
    }

    fn tell(&mut self, text: String) {
        self.overrun |= self.said_bytes + text.len() > SAID;
        if !self.overrun {
            self.said_bytes += text.len();
            self.said.push_back(text);
        }
    }
}

impl Subscription {
    /// When its next sample may leave.
    fn due_ns(&self, period_ns: u64) -> u64 {
        self.paid_ns.saturating_sub((BURST - 1) * period_ns)
    }
}

fn push(subscription: &mut Subscription, held: &mut usize, sample: &Arc<Sample>) {
    *held -= subscription.queue.bytes();
    subscription.queue.push(sample.clone());
    *held += subscription.queue.bytes();
}

#[cfg(test)]
pub(super) mod tests;
