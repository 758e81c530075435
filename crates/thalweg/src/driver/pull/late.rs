//! Late joiners of durable publishers: their history comes over a stream of its own, beside the channel that has begun.

use super::ask::{Asked, Asking, Holder};
use crate::channel::history::Query;
use crate::channel::late::{Hold, LateJoin, Verdict};
use crate::channel::memory::Account;
use crate::codec::TypeDescription;
use crate::driver::NodeState;
use crate::event::Event;
use crate::port::{AnyInlet, Channel, Delivery, Payload, SampleInfo};
use linux::lock::PiMutex;
use linux::thread::Settings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Live samples wait for the history at most so long, and at most so many.
const HOLD: Hold = Hold { ns: 1_000_000_000, samples: 1024, bytes: 4 << 20 };
/// A history of which nothing comes for so long is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a channel's live samples meet its history: one thread at a time.
pub(crate) struct Latecomer {
    join: PiMutex<LateJoin<(SampleInfo, Vec<u8>)>>,
    last_given: AtomicU64,
    /// The channel's.
    account: Arc<Account>,
}

impl Latecomer {
    /// For a channel that delivered samples up to `after` before it came back.
    pub fn new(after: u64, account: Arc<Account>) -> Self {
        Self { join: PiMutex::new(LateJoin::new(after, HOLD)), last_given: AtomicU64::new(0), account }
    }

    /// The same, where these live samples wait already.
    pub fn with_held(after: u64, account: Arc<Account>, held: impl Iterator<Item = (SampleInfo, Vec<u8>)>) -> Self {
        let held = held.map(|(info, bytes)| (info.seq, bytes.len(), (info, bytes)));
        Self { join: PiMutex::new(LateJoin::with_held(after, HOLD, held)), last_given: AtomicU64::new(0), account }
    }

    /// Delivers a live sample of the channel, or keeps it; `true`: the next ones need not come here.
    pub fn live(&self, inlet: &dyn AnyInlet, delivery: Delivery<'_>) -> bool {
        let mut late = self.join.lock();
        let SampleInfo { seq, received_ns, .. } = delivery.info;
        let bytes = delivery.payload.bytes();
        let verdict = late.live(seq, bytes.len(), received_ns, || (delivery.info, bytes.to_vec()));
        self.release(&mut late, |held| inlet.deliver(held));
        if let Verdict::Deliver { historical } = verdict {
            let historical = historical || delivery.info.historical;
            inlet.deliver(Delivery { info: SampleInfo { historical, ..delivery.info }, ..delivery });
        }
        late.is_over()
    }

    /// Delivers a sample of the history, unless it came live.
    fn history(&self, inlet: &dyn AnyInlet, info: SampleInfo, bytes: &[u8]) {
        let mut late = self.join.lock();
        let given = late.history(info.seq);
        self.release(&mut late, |held| inlet.deliver_elsewhere(held));
        if let Some(historical) = given {
            self.last_given.store(info.seq, Ordering::Release);
            inlet.deliver_elsewhere(Delivery {
                info: SampleInfo { historical, ..info },
                payload: Payload::Bytes(bytes),
                account: &self.account,
            });
        }
    }

    /// The last sample that came with the history, of which the channel's own counters know nothing; 0: none.
    pub fn last_given(&self) -> u64 {
        self.last_given.load(Ordering::Acquire)
    }

    /// More of the history may come. Never waits for a callback, during which it does.
    pub fn is_under_way(&self) -> bool {
        self.join.try_lock().is_none_or(|late| late.is_under_way())
    }

    /// The channel ended: as [`LateJoin::give_up`]. `None` also while a callback runs: what is left comes all the same, by
    /// the history that goes on, and what follows by the next channel.
    pub fn give_up(&self) -> Option<u64> {
        self.join.try_lock()?.give_up()
    }

    /// The history is over: what waited follows it.
    pub fn end(&self, inlet: &dyn AnyInlet) {
        let mut late = self.join.lock();
        late.end();
        self.release(&mut late, |held| inlet.deliver_elsewhere(held));
    }

    fn release(&self, late: &mut LateJoin<(SampleInfo, Vec<u8>)>, deliver: impl Fn(Delivery<'_>)) {
        while let Some((info, bytes)) = late.released() {
            deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
    }
}

/// A history that is to be fetched.
pub(crate) struct Fetch {
    pub channel: Arc<Channel>,
    pub inlet: Arc<dyn AnyInlet>,
    pub late: Arc<Latecomer>,
    /// Who has it; nobody: what waited follows at once.
    pub holder: Option<Holder>,
    pub message: TypeDescription,
    /// What of it the subscriber gets.
    pub query: Query,
}

/// A history to be fetched, with the node that fetches it.
type Wanted = (Arc<NodeState>, Fetch);

/// The thread that fetches them, one after the other; started with the first.
#[derive(Default)]
pub(crate) struct Fetches(Mutex<Option<mpsc::Sender<Wanted>>>);

impl Fetches {
    /// Fetches a history; without a thread live samples go on alone.
    pub fn begin(&self, state: &Arc<NodeState>, fetch: Fetch) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let (sender, fetches) = mpsc::channel::<Wanted>();
            let run = move || fetches.into_iter().for_each(|(state, fetch)| fetch.run(&state));
            if linux::thread::spawn(Settings::named("history"), run).is_ok() {
                *slot = Some(sender);
            }
        }
        let unsent = match slot.as_ref() {
            Some(sender) => sender.send((state.clone(), fetch)).err().map(|unsent| unsent.0.1),
            None => Some(fetch),
        };
        if let Some(fetch) = unsent {
            fetch.late.end(fetch.inlet.as_ref());
        }
    }

    /// The thread ends with what it is fetching.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Fetch {
    fn run(self, state: &Arc<NodeState>) {
        let Self { channel, inlet, late, holder, message, query } = self;
        let asked = Asked {
            topic: channel.topic.clone(),
            message,
            max_message: channel.max_message,
            publisher: None,
            query,
            limit: None,
            timeout: PATIENCE,
        };
        let mut asking = Asking::new(state.clone(), asked, holder.into_iter().collect());
        let scaled = channel.provenance();
        let mut wanted = 0;
        let mut given = Vec::new();
        // A channel that has ended gets what is left, unless the next one does.
        while let Some(found) = asking.next().filter(|_| late.is_under_way() && !channel.is_cut()) {
            match found {
                Ok(found) => {
                    let seq = found.info.seq;
                    let (info, bytes) = (SampleInfo { scaled, ..found.info }, found.buffer.payload());
                    let selected = channel.selection.takes(seq) && scaled.is_none_or(|s| s.selection.takes(seq));
                    if selected && inlet.judge().is_none_or(|judge| judge.wants(&info, bytes)) {
                        wanted += 1;
                        given.extend(channel.resumes_after.filter(|before| seq > *before).map(|_| seq));
                        inlet.expect_history(wanted);
                        late.history(inlet.as_ref(), info, bytes);
                    }
                }
                Err(error) => {
                    let text =
                        format!("{} gets no history, only what is published now: {error}", channel.subscriber_name);
                    state.events.push(Event::Warning { text });
                }
            }
        }
        if late.is_under_way() {
            made_up(&channel, &given);
        }
        late.end(inlet.as_ref());
    }
}

/// These samples came by the history: those before the first live one are not missed.
fn made_up(channel: &Channel, given: &[u64]) {
    let counters = &channel.counters;
    let missed = counters.missed.load(Ordering::Relaxed);
    let first = channel.resumes_after.filter(|_| counters.samples.load(Ordering::Relaxed) > 0);
    let first = first.map_or(u64::MAX, |before| before + 1 + missed);
    let before_it = given.iter().filter(|seq| **seq < first).count() as u64;
    counters.made_up.store(before_it, Ordering::Relaxed);
}
