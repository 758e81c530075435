//! `accept`: classifies frames as new, lost, duplicate or late (step 9 of the data path). Pure.
//!
//! Two numbers are watched. The *flow sequence* counts message frames on one flow, so a gap in it is loss. The *sample
//! sequence* names a sample for ever, so it shows which samples were delivered before a flow resumed or a proxy moved;
//! gaps in it are normal (selection).
//!
//! One wrong number must not silence a flow. A jump of more than [`MAX_JUMP`] is kept aside and believed when the next frame
//! follows it, as RFC 3550 does (appendix A.1, `MAX_DROPOUT` and probation). Unlike in RFC 3550 the frame itself is delivered at
//! once: after an outage the jump is genuine, and subscribers wait for its payload.

#[cfg(test)]
mod tests;

/// The verdict on one frame of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The one that was due.
    InOrder,
    /// This many frames before it are missing: lost, unless they come late.
    Gap(u32),
    /// Further ahead than [`MAX_JUMP`]: the frame is new, but no frame counts as lost before the next one follows it.
    Ahead,
    /// A frame that counted as lost; the loss is corrected.
    Late,
    /// Seen before, or too far behind the window to tell: not delivered.
    Duplicate,
}

impl Arrival {
    /// True unless the frame must be dropped.
    pub fn is_new(self) -> bool {
        self != Self::Duplicate
    }
}

/// Counters of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// New frames.
    pub received: u64,
    /// Frames that have not come so far. A frame that comes late and is still delivered is taken off again.
    pub lost: u64,
    /// Frames that came again, or far too late.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Whole samples that were dropped because they or a later one had been delivered already.
    pub outdated: u64,
}

/// The receiving state of one flow.
#[derive(Clone, Debug)]
pub struct Accept {
    frames: Window,
    samples: Window,
    resumed: Option<u64>, // the last sample delivered before the flow resumed
    floor: Option<u64>,   // the last sample delivered (ordered), or delivered before the flow resumed (unordered)
    before: u64,          // the floor before the last sample, which may have had a wrong number
    wild: Option<u64>,    // a sample too far ahead to be delivered, unless the next one follows it
    ordered: bool,
    late: bool, // the last frame
    counters: Counters,
}

impl Accept {
    /// State for a flow that begins with frame `first`, or `None` to begin with whatever comes first (a multicast
    /// member that joined later). `ordered`: a sample is delivered only if it is newer than the last one.
    pub fn new(first: Option<u32>, ordered: bool) -> Self {
        let frames = Window::new(first.map(|f| u64::from(f) + BASE));
        let (samples, counters) = (Window::new(None), Counters::default());
        Self { frames, samples, resumed: None, floor: None, before: 0, wild: None, ordered, late: false, counters }
    }

    /// Sets the last sample that the flow before this one delivered: samples up to it are not delivered again.
    pub fn resume_after(&mut self, sample: u64) {
        self.resumed = self.resumed.max(Some(sample));
        self.floor = self.floor.max(Some(sample));
        self.before = self.before.max(sample);
    }

    /// Notes a message frame (whole or fragment) of this flow sequence.
    #[inline]
    pub fn frame(&mut self, sequence: u32) -> Arrival {
        let arrival = self.frames.note(self.widen(sequence));
        self.late = arrival == Arrival::Late;
        match arrival {
            Arrival::InOrder | Arrival::Ahead => self.counters.received += 1,
            Arrival::Gap(n) => {
                self.counters.received += 1;
                self.counters.lost += u64::from(n);
            }
            Arrival::Late => {
                self.counters.received += 1;
                self.counters.reordered += 1;
                self.counters.lost = self.counters.lost.saturating_sub(1);
            }
            Arrival::Duplicate => self.counters.duplicates += 1,
        }
        arrival
    }

    /// Notes a keep-alive or end, which carries the number that the *next* message frame will have. Returns how many
    /// frames before it are newly known as missing. So the loss of the last frames is noticed, too.
    pub fn announced(&mut self, next: u32) -> u32 {
        let missing = self.frames.skip_to(self.widen(next));
        self.counters.lost += u64::from(missing);
        missing
    }

    /// `true` if this whole sample is delivered; its frame is the last one noted.
    #[inline]
    pub fn sample(&mut self, sequence: u64) -> bool {
        let newer = self.floor.is_none_or(|floor| sequence > floor);
        let deliver = match self.ordered {
            true => self.is_next(newer, sequence),
            false => newer && self.samples.note(sequence).is_new(),
        };
        if !deliver {
            self.counters.outdated += 1;
            // It came, and still counts as lost.
            self.counters.lost += u64::from(self.late || self.wild == Some(sequence));
        }
        deliver
    }

    #[inline]
    fn is_next(&mut self, newer: bool, sequence: u64) -> bool {
        let floor = self.floor.unwrap_or(self.before);
        let plausible = self.floor.is_none() || sequence.saturating_sub(floor) <= MOST_LEFT_OUT;
        if newer && (plausible || self.follows_wild(sequence)) {
            (self.before, self.floor, self.wild) = (floor, Some(sequence), None);
            return true;
        }
        !newer && self.proves_wrong(sequence)
    }

    #[cold]
    fn follows_wild(&mut self, sequence: u64) -> bool {
        let wild = self.wild.replace(sequence);
        wild.is_some_and(|wild| sequence.checked_sub(wild).is_some_and(|more| more > 0 && more <= MOST_LEFT_OUT))
    }

    /// A flow's next frame has the next sample. Where the samples continue below a jump, the jump's number was wrong: they are
    /// delivered, without a wait until they reach it.
    #[cold]
    fn proves_wrong(&mut self, sequence: u64) -> bool {
        let Some(floor) = self.floor else { return false };
        let jumped = floor.saturating_sub(self.before) > MAX_JUMP;
        let proves = jumped && !self.late && self.before < sequence && sequence < floor;
        if proves {
            self.floor = Some(sequence);
        }
        proves
    }

    /// As [`Accept::sample`], for a sample that comes from a history after later ones. Its flow sends each sample once, so it is
    /// new unless it was delivered before the flow resumed.
    #[cold]
    pub fn historical(&self, sequence: u64) -> bool {
        self.resumed.is_none_or(|resumed| sequence > resumed)
    }

    /// The flow sequence that is due next, once there was one.
    #[cfg(any(test, feature = "testing"))]
    pub fn next_frame(&self) -> Option<u32> {
        self.frames.next.map(|n| n as u32)
    }

    /// The newest sample delivered: where a flow that follows this one resumes.
    #[cfg(any(test, feature = "testing"))]
    pub fn last_sample(&self) -> Option<u64> {
        self.floor.max(self.samples.next.map(|n| n.wrapping_sub(1)))
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The position of a frame from the 32 bits of the wire: of all that have these bits, the nearest to the one that is due.
    #[inline]
    fn widen(&self, sequence: u32) -> u64 {
        match self.frames.next {
            None => u64::from(sequence) + BASE,
            Some(next) => next.wrapping_add_signed(i64::from(sequence.wrapping_sub(next as u32) as i32)),
        }
    }
}

/// Marks of the last [`WINDOW`] positions that were seen.
#[derive(Clone, Debug)]
struct Window {
    next: Option<u64>,
    first: u64,
    begun_by_one: bool, // position, which may be wrong
    ahead: Option<u64>, // a position too far ahead to be believed
    seen: [u64; (WINDOW / 64) as usize],
}

impl Window {
    fn new(next: Option<u64>) -> Self {
        let seen = [0; (WINDOW / 64) as usize];
        Self { next, first: next.unwrap_or(0), begun_by_one: next.is_none(), ahead: None, seen }
    }

    #[inline]
    fn note(&mut self, at: u64) -> Arrival {
        if self.next == Some(at) {
            self.ahead = None;
            self.begun_by_one = false;
            self.see(at);
            return Arrival::InOrder;
        }
        self.note_other(at)
    }

    #[cold]
    fn note_other(&mut self, at: u64) -> Arrival {
        let Some(next) = self.next else { return self.begin(at) };
        let is_near = at.abs_diff(next) <= MAX_JUMP;
        if self.begun_by_one && !is_near {
            return self.begin(at);
        }
        self.begun_by_one = false;
        match (at < next, is_near) {
            (true, _) => self.note_behind(at, next),
            (false, true) => self.jump(at),
            (false, false) => self.note_ahead(at),
        }
    }

    /// Notes the first position of all, or the second if it is far from the first.
    fn begin(&mut self, at: u64) -> Arrival {
        (self.next, self.first, self.ahead) = (Some(at), at, None);
        self.forget(at, WINDOW);
        self.see(at);
        Arrival::InOrder
    }

    /// Notes a position far ahead: two of them that are near each other are believed.
    fn note_ahead(&mut self, at: u64) -> Arrival {
        let Some(other) = self.ahead.filter(|other| at.abs_diff(*other) <= MAX_JUMP) else {
            self.ahead = Some(at);
            return Arrival::Ahead;
        };
        if other == at {
            return Arrival::Duplicate;
        }
        let left_out = self.left_out_until(at.min(other)) + self.left_out_until(at.max(other));
        Arrival::Gap(u32::try_from(left_out).unwrap_or(u32::MAX))
    }

    fn jump(&mut self, at: u64) -> Arrival {
        Arrival::Gap(u32::try_from(self.left_out_until(at)).unwrap_or(u32::MAX))
    }

    /// Marks a position at or beyond the next one. Returns how many before it were not seen.
    fn left_out_until(&mut self, at: u64) -> u64 {
        let next = self.next.unwrap_or(at);
        let count = at.saturating_sub(next);
        self.forget(next, count);
        self.see(at);
        self.ahead = None;
        count
    }

    fn see(&mut self, at: u64) {
        self.next = Some(at.wrapping_add(1));
        self.set(at);
    }

    #[cold]
    fn note_behind(&mut self, at: u64, next: u64) -> Arrival {
        // Positions before the first one were not counted as lost, so they may not be taken off.
        if next - at > WINDOW || at < self.first || self.is_set(at) {
            return Arrival::Duplicate;
        }
        self.set(at);
        Arrival::Late
    }

    /// Moves on without a frame, to where the flow is for certain; returns how many positions were left out.
    fn skip_to(&mut self, to: u64) -> u32 {
        let Some(next) = self.next else {
            (self.next, self.first) = (Some(to), to);
            return 0;
        };
        let came = self.ahead.take().filter(|at| (next..to).contains(at));
        let before = came.map_or(0, |at| self.left_out_until(at));
        let next = came.map_or(next, |at| at + 1);
        let missing = to.saturating_sub(next);
        if missing > 0 {
            self.forget(next, missing);
            self.next = Some(to);
        }
        u32::try_from(before + missing).unwrap_or(u32::MAX)
    }

    /// Clears the marks of `count` positions from `from` on: they come into the window unseen.
    fn forget(&mut self, from: u64, count: u64) {
        if count >= WINDOW {
            self.seen = [0; (WINDOW / 64) as usize];
        } else {
            (from..from + count).for_each(|at| self.seen[word(at)] &= !bit(at));
        }
    }

    fn is_set(&self, at: u64) -> bool {
        self.seen[word(at)] & bit(at) != 0
    }

    #[inline]
    fn set(&mut self, at: u64) {
        self.seen[word(at)] |= bit(at);
    }
}

fn word(at: u64) -> usize {
    (at % WINDOW / 64) as usize
}

fn bit(at: u64) -> u64 {
    1 << (at % 64)
}

/// Distance behind the newest frame within which a frame is still recognised as late or duplicate. More than the burst by which
/// a re-marked flow can overtake in a queue; 128 bytes per flow.
pub const WINDOW: u64 = 1024;

/// The largest jump that is believed at once: a burst of losses or a new mark may leave out as many frames (RFC 3550: 3000 packets).
/// A wrong number within it costs the frames that it jumps over.
pub const MAX_JUMP: u64 = WINDOW;
/// The most samples that a flow leaves out: an hour of a million samples a second. A sample further ahead is delivered only when the
/// next one follows it.
const MOST_LEFT_OUT: u64 = 1 << 32;

/// Flow positions start above this, so that one behind the first is never below 0. Its low 32 bits are 0.
const BASE: u64 = 1 << 40;
