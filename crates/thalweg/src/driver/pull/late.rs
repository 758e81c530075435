//! Late joiners of durable publishers: their history arrives over a stream of its own, while the channel brings live samples.
//!
//! Samples that wait when their channel ends before its history [wait](waiting) for the next channel, beside the fetches.

mod waiting;

use super::ask::{Asked, Asking, Found, Holder};
use crate::channel::history::Query;
use crate::channel::{Channel, Latecomer, SampleInfo};
use crate::codec::TypeDescription;
use crate::driver::NodeState;
use crate::event::Event;
use crate::port::AnySubscriber;
use linux::thread::Settings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use waiting::{Waiting, Waits};

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

/// What the thread has to do.
enum Task {
    /// A history to be fetched, with the node that fetches it.
    Fetch(Arc<NodeState>, Fetch),
    /// Something that waited for a next channel is due.
    Look,
}

/// The thread that fetches histories, one after the other. It is started with the first.
#[derive(Default)]
pub(crate) struct Fetches(Mutex<Option<Sender<Task>>>);

impl Fetches {
    /// Fetches a history. Without a thread the subscriber gets live samples only.
    pub(crate) fn begin(&self, state: &Arc<NodeState>, fetch: Fetch) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let (sender, tasks) = mpsc::channel();
            if linux::thread::spawn(Settings::named("history"), move || work(&tasks)).is_ok() {
                *slot = Some(sender);
            }
        }
        let task = Task::Fetch(state.clone(), fetch);
        let unsent = match slot.as_ref() {
            Some(sender) => sender.send(task).err().map(|unsent| unsent.0),
            None => Some(task),
        };
        if let Some(Task::Fetch(_, fetch)) = unsent {
            fetch.late.end(fetch.subscriber_port.as_ref());
        }
    }

    /// Something that waited for a next channel is due before its time.
    pub(crate) fn look(&self) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            let _ = sender.send(Task::Look); // without the thread nothing waits
        }
    }

    /// Ends the thread after the histories that it was already given. What waits for a next channel is dropped: the ports are closed.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The thread's work. What has waited for its next channel long enough follows before each history, and before each of its samples.
fn work(tasks: &Receiver<Task>) {
    let mut waiting = Waiting::default();
    while let Some(task) = next_task(tasks, &waiting) {
        follow_due(&mut waiting);
        if let Task::Fetch(state, fetch) = task {
            let left = fetch.run(&state, || follow_due(&mut waiting));
            waiting.add(left);
            follow_due(&mut waiting);
        }
    }
}

/// Waits for a task, or until something is due. `None`: the node ends.
#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
fn next_task<T: Waits>(tasks: &Receiver<Task>, waiting: &Waiting<T>) -> Option<Task> {
    let Some(due) = waiting.next_deadline() else { return tasks.recv().ok() };
    let left = Duration::from_nanos(due.saturating_sub(linux::clock::monotonic_ns()));
    match tasks.recv_timeout(left) {
        Ok(task) => Some(task),
        Err(RecvTimeoutError::Timeout) => Some(Task::Look),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
fn follow_due(waiting: &mut Waiting<Left>) {
    if !waiting.is_empty() {
        waiting.due(linux::clock::monotonic_ns()).into_iter().for_each(Left::follow);
    }
}

/// A junction whose history is over, or was given up. It has no hold on the subscriber, which may close meanwhile.
struct Left {
    state: Arc<NodeState>,
    channel: Arc<Channel>,
    late: Arc<Latecomer>,
}

impl Waits for Left {
    fn until(&self) -> Option<u64> {
        self.late.waits_until()
    }
}

impl Left {
    /// The samples that wait follow what came of the history.
    fn follow(self) {
        let Self { state, channel, late } = self;
        let Some(subscriber_port) = state.subscriber_port(channel.subscriber.port) else { return }; // it has closed
        if let Some((first, last)) = late.end(subscriber_port.as_ref()) {
            let (to, from) = (&channel.subscriber_name, &channel.publisher_name);
            let text = format!(
                "{to}: the history of {from} broke off with its channel: it may lack samples {first} to {last}, unless {from} comes back"
            );
            state.events.push(Event::Warning { text });
        }
    }
}

impl Fetch {
    /// Fetches the history, with a call of `meanwhile` before each sample. Returns what may wait behind it.
    #[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
    fn run(mut self, state: &Arc<NodeState>, meanwhile: impl FnMut()) -> Left {
        let mut given = self.late.here();
        if self.fetch(state, &mut given, meanwhile) {
            if self.late.is_under_way() {
                made_up(&self.channel, &given);
            }
        } else {
            self.late.give_up(linux::clock::monotonic_ns()); // where the channel was cut, this thread may be the first that sees it
        }
        let Self { channel, late, .. } = self;
        Left { state: state.clone(), channel, late }
    }

    /// Fetches the samples, and notes the numbers of those that the channel did not bring. `false`: the rest is the next channel's.
    fn fetch(&mut self, state: &Arc<NodeState>, given: &mut BTreeSet<u64>, mut meanwhile: impl FnMut()) -> bool {
        let mut asking = Asking::new(state.clone(), self.asked(), self.holder.take().into_iter().collect());
        let mut wanted = 0;
        loop {
            meanwhile();
            if !self.goes_on() {
                return false;
            }
            let found = asking.next();
            if !self.goes_on() {
                return false;
            }
            match found {
                Some(Ok(found)) => self.came(found, &mut wanted, given),
                Some(Err(error)) => {
                    let to = &self.channel.subscriber_name;
                    let text = format!("{to} gets no history, only what is published now: {error}");
                    state.events.push(Event::Warning { text });
                }
                None => return true,
            }
        }
    }

    fn asked(&self) -> Asked {
        Asked {
            topic: self.channel.topic.clone(),
            message: self.message.clone(),
            max_message: self.channel.max_message,
            publisher: None,
            query: self.query.clone(),
            limit: None,
            timeout: PATIENCE,
        }
    }

    /// A channel that has ended still gets the rest of its history, unless the next channel fetches it.
    fn goes_on(&self) -> bool {
        self.late.is_under_way() && !self.channel.is_cut()
    }

    /// A sample of the history came.
    fn came(&self, found: Found, wanted: &mut usize, given: &mut BTreeSet<u64>) {
        let Self { channel, subscriber_port, late, .. } = self;
        let (seq, scaled) = (found.info.seq, channel.provenance());
        let (info, bytes) = (SampleInfo { scaled, ..found.info }, found.buffer.payload());
        let selected = channel.selection.takes(seq) && scaled.is_none_or(|s| s.selection.takes(seq));
        if selected && subscriber_port.judge().is_none_or(|judge| judge.wants(&info, bytes)) {
            *wanted += 1;
            given.extend(channel.resumes_after.filter(|before| seq > *before).map(|_| seq));
            subscriber_port.expect_history(*wanted);
            late.history(subscriber_port.as_ref(), info, bytes);
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

#[cfg(test)]
mod tests;
