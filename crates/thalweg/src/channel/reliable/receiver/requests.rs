//! Requests for missing messages and parts: the state of a message that was not delivered yet, and the time to ask for it.

use super::{Held, Receiver};
use crate::channel::fragment::Reassembly;
use crate::channel::reliable::{IN_PROGRESS, LONGEST_PAUSE_NS, RoundTrip, widen};
use crate::wire::feedback::{Gap, Writer};
use crate::wire::{ASK, Header, REPAIR};

/// The state of a message at or behind the next one.
#[derive(Debug)]
pub(super) enum Slot {
    Missing(Asking),
    /// Some fragments of this sample are in the reassembly.
    Part(u64, Asking),
    Whole(Held),
}

/// The time of the next request, and the number of requests so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// The time to ask for all missing parts.
    pub due: Option<u64>,
    /// The time to ask for new holes between fragments: they need not wait for the answer to others.
    pub holes_due: Option<u64>,
    /// Holes before this byte were asked for.
    pub upto: usize,
    /// The number of requests, and of those for all parts.
    pub asked: u32,
    times: u32,
    pub last: u64,
    /// `true` for a long message for which there was no room.
    pub crowded: bool,
}

impl Slot {
    fn asking(&self) -> Option<Asking> {
        match self {
            Slot::Missing(asking) | Slot::Part(_, asking) => Some(*asking),
            Slot::Whole(_) => None,
        }
    }

    fn set_asking(&mut self, to: Asking) {
        if let Slot::Missing(asking) | Slot::Part(_, asking) = self {
            *asking = to;
        }
    }

    /// The time of the next request.
    pub(super) fn due(&self) -> Option<u64> {
        let Asking { due, holes_due, .. } = self.asking()?;
        due.into_iter().chain(holes_due).min()
    }
}

impl Asking {
    /// For the first time then.
    pub(super) fn at(due: u64) -> Self {
        Self { due: Some(due), ..Self::default() }
    }

    /// Notes a request for `all` missing parts, or only for the new holes; holes end before `upto`. Parts that do not come are
    /// requested again, all together, when the last answer ought to be here.
    pub(super) fn again(self, now_ns: u64, pause: u64, all: bool, upto: usize) -> Self {
        let (due, holes_due, last) = (Some(now_ns + pause), None, now_ns);
        Self { due, holes_due, upto, asked: self.asked + 1, times: self.times + u32::from(all), last, ..self }
    }

    /// The longest wait for an answer. `quick`: a window bounds the answers, so that repeated losses of the same parts are no
    /// reason for fewer requests.
    fn pause_ns(self, round_trip: RoundTrip, quick: bool) -> u64 {
        let times = if quick && self.times < QUICK { 0 } else { self.times.min(4) };
        round_trip.patience_ns().saturating_mul(1 << times).min(LONGEST_PAUSE_NS)
    }

    /// Postpones a request (`all`: for all parts, otherwise for new holes), because fragments are on their way.
    pub(super) fn later(self, all: bool) -> Self {
        Self { due: self.due.filter(|_| !all), holes_due: None, ..self }
    }
}

impl Receiver {
    /// Notes that a fragment of this message was kept, and the message is not whole.
    pub(crate) fn part(&mut self, now_ns: u64, header: &Header, reassembly: &Reassembly) {
        let Some(index) = widen(header.sequence, self.next).checked_sub(self.next).map(|i| i as usize) else { return };
        let overtaken = index + 1 < self.slots.len();
        let wait = now_ns + self.round_trip.reorder_ns();
        if let Some(slot @ (Slot::Missing(_) | Slot::Part(..))) = self.slots.get_mut(index) {
            let mut asking = slot.asking().unwrap_or_default();
            if !matches!(slot, Slot::Part(..)) {
                asking.due = None; // its first fragment came: the others follow
            }
            asking.due = asking.due.or(overtaken.then_some(wait));
            if reassembly.has_hole(header.sample) && reassembly.end(header.sample) > asking.upto {
                asking.holes_due.get_or_insert(wait);
            }
            *slot = Slot::Part(header.sample, asking);
        }
    }

    /// There is no room for this fragment: its message is requested later, when there is.
    pub(crate) fn crowded(&mut self, header: &Header) {
        let index = widen(header.sequence, self.next).wrapping_sub(self.next);
        if let Some(Slot::Missing(asking)) = self.slots.get_mut(index as usize) {
            asking.crowded = true;
        }
    }

    /// Writes the gaps that are to be requested now. `true`: no other messages are missing.
    pub(super) fn write_gaps(&mut self, now_ns: u64, reassembly: &Reassembly) -> bool {
        let (known, mut parts, mut complete) = (self.slots.len(), 0, true);
        let (round_trip, quick) = (self.round_trip, self.receipts.is_some());
        let pause = |asking: Asking| asking.pause_ns(round_trip, quick);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(asking) = slot.asking() else { continue };
            let all = self.asked || asking.due.is_some_and(|due| due <= now_ns);
            if !all && asking.holes_due.is_none_or(|due| due > now_ns) {
                continue;
            }
            let at = self.next + index as u64;
            let sent = index + 1 < known || at < self.sent; // the end of a message that is being sent is not missing
            parts += usize::from(asking.crowded || matches!(slot, Slot::Part(..)));
            let told = match slot {
                Slot::Missing(_) if asking.crowded && parts > IN_PROGRESS => Some(false),
                Slot::Part(sample, _) if reassembly.knows(*sample) => {
                    let holes = reassembly.missing(*sample, all && sent);
                    let new = |(from, _): &(usize, usize)| all || *from >= asking.upto;
                    push_holes(&mut self.writer, at as u32, holes.filter(new)).map(|told| told && sent)
                }
                _ => Some(self.writer.push(Gap::messages(at as u32, 1))),
            };
            let upto = if let Slot::Part(sample, _) = slot { reassembly.end(*sample) } else { 0 };
            slot.set_asking(match told {
                None if !(all && sent) => asking.later(all),
                _ => asking.again(now_ns, pause(asking), all, upto),
            });
            complete &= told.unwrap_or(false);
        }
        complete
    }

    /// Measures the round trip by a message that was requested once (Karn: the answer to a repeated request is ambiguous). On a
    /// lossy path with a deadline, where every frame asks for an answer, a retransmit need not be an answer.
    pub(super) fn note_repair(&mut self, now_ns: u64, header: &Header, index: usize) {
        let answers = header.flags & (REPAIR | ASK) == REPAIR;
        if let Some(asking) = self.slots[index].asking().filter(|asking| asking.asked == 1 && answers) {
            self.round_trip.measured(now_ns.saturating_sub(asking.last));
        }
    }

    pub(super) fn asks_now(&self, now_ns: u64) -> bool {
        self.slots.iter().any(|slot| slot.due().is_some_and(|due| due <= now_ns))
    }

    /// After an outage the flow may be further than messages can be held: this end reports its position, and the publisher answers
    /// by a keep-alive with the oldest message. This happens once in a round trip, since each message would cause it.
    #[cold]
    pub(super) fn ask_ahead(&mut self, now_ns: u64) {
        let round_trip =
            self.told_trip.unwrap_or_else(|| self.round_trip.smoothed_ns()).clamp(SHORTEST_TRIP_NS, LONGEST_TRIP_NS);
        if self.asked_ahead_at == 0 || now_ns.saturating_sub(self.asked_ahead_at) >= round_trip {
            (self.asked, self.asked_ahead_at) = (true, now_ns);
        }
    }

    /// Requests the missing parts of messages before this one, which were sent completely.
    pub(super) fn ask_parts(&mut self, now_ns: u64, before: usize) {
        let due = now_ns + self.round_trip.reorder_ns();
        for slot in self.slots.iter_mut().take(before) {
            if let Slot::Part(_, asking) | Slot::Missing(asking) = slot {
                asking.due.get_or_insert(due);
            }
        }
    }

    /// Opens slots for `count` messages from the next on.
    pub(super) fn open(&mut self, now_ns: u64, count: usize) {
        let due = now_ns + self.round_trip.reorder_ns();
        while self.slots.len() < count {
            self.slots.push_back(Slot::Missing(Asking::at(due)));
        }
    }
}

/// Adds the holes of a message. `true`: all had room. `None`: there are none.
fn push_holes(writer: &mut Writer, first: u32, holes: impl Iterator<Item = (usize, usize)>) -> Option<bool> {
    let mut holes = holes.peekable();
    holes.peek()?;
    Some(holes.all(|(from, to)| writer.push(Gap { first, count: 1, from: from as u32, to: to as u32 })))
}

/// The number of requests for the same parts that follow each other at the pace of answers.
const QUICK: u32 = 6;
/// Bounds of the pause between two acknowledgements because of messages beyond the window: a thread does not wake up more exactly,
/// and after an outage samples come again within 100 ms (P-16).
const SHORTEST_TRIP_NS: u64 = 1_000_000;
const LONGEST_TRIP_NS: u64 = 20_000_000;
