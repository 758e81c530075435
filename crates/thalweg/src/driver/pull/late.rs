//! Late joiners of durable publishers: their history arrives over a stream of its own, while the channel brings live samples.

use super::ask::{Asked, Asking, Holder};
use crate::channel::history::Query;
use crate::channel::{Channel, Latecomer, SampleInfo};
use crate::codec::TypeDescription;
use crate::driver::NodeState;
use crate::event::Event;
use crate::port::AnySubscriber;
use linux::thread::Settings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// A history without samples for this time is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A history that is to be fetched.
pub(crate) struct Fetch {
    pub channel: Arc<Channel>,
    pub subscriber_port: Arc<dyn AnySubscriber>,
    pub late: Arc<Latecomer>,
    /// The port that has the history; `None`: the live samples that waited follow at once.
    pub holder: Option<Holder>,
    pub message: TypeDescription,
    /// The part of the history that the subscriber gets.
    pub query: Query,
}

/// A history to be fetched, with the node that fetches it.
type Wanted = (Arc<NodeState>, Fetch);

/// The thread that fetches histories, one after the other. It is started with the first.
#[derive(Default)]
pub(crate) struct Fetches(Mutex<Option<mpsc::Sender<Wanted>>>);

impl Fetches {
    /// Fetches a history. Without a thread the subscriber gets live samples only.
    pub(crate) fn begin(&self, state: &Arc<NodeState>, fetch: Fetch) {
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
            fetch.late.end(fetch.subscriber_port.as_ref());
        }
    }

    /// Ends the thread after the histories that it was already given.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Fetch {
    fn run(self, state: &Arc<NodeState>) {
        let Self { channel, subscriber_port, late, holder, message, query } = self;
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
        let mut given = late.here();
        // A channel that has ended still gets the rest of its history, unless the next channel fetches it.
        let goes_on = || late.is_under_way() && !channel.is_cut();
        while goes_on()
            && let Some(found) = asking.next().filter(|_| goes_on())
        {
            match found {
                Ok(found) => {
                    let seq = found.info.seq;
                    let (info, bytes) = (SampleInfo { scaled, ..found.info }, found.buffer.payload());
                    let selected = channel.selection.takes(seq) && scaled.is_none_or(|s| s.selection.takes(seq));
                    if selected && subscriber_port.judge().is_none_or(|judge| judge.wants(&info, bytes)) {
                        wanted += 1;
                        given.extend(channel.resumes_after.filter(|before| seq > *before).map(|_| seq));
                        subscriber_port.expect_history(wanted);
                        late.history(subscriber_port.as_ref(), info, bytes);
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
        if let Some((first, last)) = late.end(subscriber_port.as_ref()) {
            let (to, from) = (&channel.subscriber_name, &channel.publisher_name);
            let text = format!(
                "{to}: the history of {from} broke off with its channel: it may lack samples {first} to {last}, unless {from} comes back"
            );
            state.events.push(Event::Warning { text });
        }
    }
}

/// Counts the samples that came by the history or an earlier channel and precede the first live one: they were not missed.
fn made_up(channel: &Channel, given: &BTreeSet<u64>) {
    let counters = &channel.counters;
    let missed = counters.missed.load(Ordering::Relaxed);
    let first = channel.resumes_after.filter(|_| counters.samples.load(Ordering::Relaxed) > 0);
    let first = first.map_or(u64::MAX, |before| before + 1 + missed);
    let before_it = given.iter().filter(|seq| **seq < first).count() as u64;
    counters.made_up.store(before_it, Ordering::Relaxed);
}
