//! One client: what it asks for, and the bytes that it gets. Time and bytes in, bytes out.
//!
//! Of a sample one frame at a time is on its way to a client, of a subscription after the other, so that a big topic delays a small one by
//! one sample at most. What waits meanwhile is bounded: of each subscription the last samples, of all of them [`HELD`] bytes.

use super::frame::{self, Message, Reader};
use super::handshake::{self, Rules};
use super::protocol::{Ask, Level, Offer, Wanted, advertise, data_head, server_info, status, unadvertise};
use super::queue::{Queue, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most subscriptions of a client.
const SUBSCRIPTIONS: usize = 1024;
/// Most bytes of samples that wait for a client, over all its subscriptions.
const HELD: usize = 64 << 20;
/// Most bytes of other messages that wait for a client: beyond, it does not read, and is let go.
const SAID: usize = 8 << 20;
/// A sample up to this size is copied behind its head, so that both leave in one packet.
const SMALL: usize = 16 << 10;
/// Samples that may leave at once above the rate.
const BURST: u64 = 8;
/// A client that has sent nothing for so long is asked whether it is there.
const ASKED_NS: u64 = 20_000_000_000;
/// And is let go after this time.
const SILENT_NS: u64 = 60_000_000_000;
/// Longest time until its request is complete.
const OPENING_NS: u64 = 10_000_000_000;

/// The offered channels, by their numbers.
pub(super) type Offers = BTreeMap<u32, Offer>;

/// The state of a client.
#[derive(Debug)]
enum Phase {
    /// Its request so far.
    Opening(Vec<u8>),
    Open,
    /// Nothing is read from it any more; what waits is written.
    Ending,
    /// It is let go at once.
    Over,
}

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
    phase: Phase,
    reader: Reader,
    began_ns: u64,
    heard_ns: u64,
    asked: bool,
    /// Nanoseconds from one sample of a topic to the next, at the highest rate.
    period_ns: u64,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Subscriptions that are new, and their channels.
    joined: Vec<(u32, u32)>,
    /// The subscription that is served next.
    turn: u32,
    /// Bytes of samples that wait.
    held: usize,
    /// Frames that wait, and go before samples.
    said: Vec<u8>,
    /// What is being written: a head, a sample behind it, and the bytes of both that are written.
    head: Vec<u8>,
    body: Option<Arc<Sample>>,
    written: usize,
}

impl Client {
    /// A client that has connected now, and gets this many samples per second of each topic.
    pub(super) fn new(rate_hz: u32, now_ns: u64) -> Self {
        Self {
            phase: Phase::Opening(Vec::new()),
            reader: Reader::default(),
            began_ns: now_ns,
            heard_ns: now_ns,
            asked: false,
            period_ns: 1_000_000_000 / u64::from(rate_hz.max(1)),
            subscriptions: BTreeMap::new(),
            joined: Vec::new(),
            turn: 0,
            held: 0,
            said: Vec::new(),
            head: Vec::new(),
            body: None,
            written: 0,
        }
    }

    /// Takes what it has sent.
    pub(super) fn receive(&mut self, bytes: &[u8], rules: &Rules, offers: &Offers, now_ns: u64) {
        (self.heard_ns, self.asked) = (now_ns, false);
        match &mut self.phase {
            Phase::Opening(request) => {
                request.extend_from_slice(bytes);
                self.open(rules, offers);
            }
            Phase::Open => self.reader.add(bytes),
            Phase::Ending | Phase::Over => return,
        }
        while matches!(self.phase, Phase::Open) {
            match self.reader.next() {
                Ok(Some(message)) => self.answer(message, offers),
                Ok(None) => return,
                Err(violation) => self.end(&violation.close()),
            }
        }
    }

    fn open(&mut self, rules: &Rules, offers: &Offers) {
        let Phase::Opening(request) = &self.phase else { return };
        match handshake::answer(request, rules) {
            Some(answer) if answer.accepted => {
                self.reader.add(&request[answer.end..]);
                self.phase = Phase::Open;
                self.say(answer.text.as_bytes());
                self.tell(&server_info(&format!("{:x}", self.began_ns)));
                self.tell(&advertise(offers.iter().map(|(id, offer)| (*id, offer))));
            }
            Some(refused) => self.end(refused.text.as_bytes()),
            None if request.len() > handshake::MOST => self.end(handshake::too_long().as_bytes()),
            None => {}
        }
    }

    fn answer(&mut self, message: Message, offers: &Offers) {
        match message {
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Ask::Subscribe { subscriptions }) => {
                    subscriptions.iter().for_each(|wanted| self.subscribe(wanted, offers));
                }
                Ok(Ask::Unsubscribe { ids }) => ids.iter().for_each(|id| self.unsubscribe(*id)),
                Ok(Ask::Other) => {}
                Err(wrong) => self.warn(Level::Error, &format!("no message of Foxglove's protocol: {wrong}")),
            },
            Message::Binary => self.warn(Level::Error, "nothing can be published or called here"),
            Message::Ping(payload) => self.say(&frame::pong(&payload)),
            Message::Pong => {}
            Message::Close => self.end(&frame::close(1000, "")),
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
        if !matches!(self.phase, Phase::Open) {
            return;
        }
        if !gone.is_empty() {
            let ended: Vec<u32> =
                self.subscriptions.iter().filter(|(_, one)| gone.contains(&one.channel)).map(|(id, _)| *id).collect();
            ended.into_iter().for_each(|id| self.unsubscribe(id));
            self.tell(&unadvertise(gone));
        }
        if !come.is_empty() {
            self.tell(&advertise(come.iter().filter_map(|id| Some((*id, offers.get(id)?)))));
        }
    }

    /// Gives it a sample, if it has subscribed to its channel.
    pub(super) fn offer(&mut self, sample: &Arc<Sample>) {
        for subscription in self.subscriptions.values_mut().filter(|one| one.channel == sample.channel) {
            push(subscription, &mut self.held, sample);
        }
        self.thin();
    }

    /// Gives a sample to one subscription.
    pub(super) fn offer_to(&mut self, id: u32, sample: &Arc<Sample>) {
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            push(subscription, &mut self.held, sample);
        }
        self.thin();
    }

    /// Of what is too much, the subscription that holds most loses its oldest sample.
    fn thin(&mut self) {
        while self.held > HELD {
            let largest = self.subscriptions.values_mut().max_by_key(|one| one.queue.bytes());
            let Some(sample) = largest.and_then(|one| one.queue.pop()) else { return };
            self.held -= sample.bytes.len();
        }
    }

    /// The next bytes to write; none: nothing is to be said now.
    pub(super) fn bytes(&mut self, now_ns: u64) -> &[u8] {
        let body = self.body.as_ref().map_or(0, |sample| sample.bytes.len());
        if self.written == self.head.len() + body {
            (self.written, self.body) = (0, None);
            self.head.clear();
            self.fill(now_ns);
        }
        match &self.body {
            Some(sample) if self.written >= self.head.len() => &sample.bytes[self.written - self.head.len()..],
            _ => &self.head[self.written..],
        }
    }

    fn fill(&mut self, now_ns: u64) {
        if !self.said.is_empty() {
            return std::mem::swap(&mut self.head, &mut self.said);
        }
        let Some((id, sample)) = self.pick(now_ns) else { return };
        let data = data_head(id, sample.time_ns);
        self.head = frame::binary(data.len() + sample.bytes.len());
        self.head.extend_from_slice(&data);
        if sample.bytes.len() <= SMALL {
            self.head.extend_from_slice(&sample.bytes);
        } else {
            self.body = Some(sample);
        }
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

    /// Notes that so many of these bytes are written.
    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
    }

    /// Time until a sample may be sent that waits for its rate.
    pub(super) fn due_in(&self, now_ns: u64) -> Option<Duration> {
        let waiting = self.subscriptions.values().filter(|one| !one.queue.is_empty());
        let due = waiting.map(|one| one.due_ns(self.period_ns)).min()?;
        Some(Duration::from_nanos(due.saturating_sub(now_ns)))
    }

    /// Asks a client that has been silent whether it is there, and lets one go that does not answer.
    pub(super) fn tend(&mut self, now_ns: u64) {
        let silent = now_ns.saturating_sub(self.heard_ns);
        match self.phase {
            Phase::Opening(_) if now_ns.saturating_sub(self.began_ns) > OPENING_NS => self.phase = Phase::Over,
            Phase::Open if silent > ASKED_NS && !self.asked => {
                self.asked = true;
                self.say(&frame::ping());
            }
            Phase::Open | Phase::Ending if silent > SILENT_NS => self.phase = Phase::Over,
            _ => {}
        }
    }

    /// `true` if its connection is to be closed.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Over => true,
            Phase::Ending => self.said.is_empty() && self.written == self.head.len(),
            Phase::Opening(_) | Phase::Open => false,
        }
    }

    fn tell(&mut self, text: &str) {
        self.say(&frame::text(text));
    }

    fn warn(&mut self, level: Level, text: &str) {
        self.tell(&status(level, text));
    }

    fn say(&mut self, bytes: &[u8]) {
        if self.said.len() + bytes.len() > SAID {
            self.phase = Phase::Over;
        } else {
            self.said.extend_from_slice(bytes);
        }
    }

    /// Says the last bytes, behind what is being written.
    fn end(&mut self, bytes: &[u8]) {
        self.subscriptions.clear();
        self.held = 0;
        self.phase = Phase::Ending;
        self.say(bytes);
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
mod tests;
