//! The slot of a monitor at one side of a port, with the samples that it holds back.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::{Monitor, Seen, Verdict};
use crate::bottle::{Property, Value};
use crate::channel::memory::Account;
use crate::channel::{PortRef, SampleInfo};
use crate::guard::guarded;
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The most samples that wait, and the most of their bytes.
const MOST_LATE: usize = 4096;
const MOST_LATE_BYTES: usize = 64 << 20;
/// The most bytes of spare memory, from samples that have passed, for later ones.
const MOST_SPARE_BYTES: usize = 64 << 20;
/// Most names of sources that are remembered.
const MOST_NAMES: usize = 256;

/// One side of a port. Without a monitor it costs one load.
#[derive(Default)]
pub(crate) struct MonitorSlot {
    taken: AtomicBool,
    /// A thread waits for the times of late samples.
    served: AtomicBool,
    news: AtomicU32,
    held: PiMutex<Held>,
}

#[derive(Default)]
struct Held {
    monitor: Option<Box<dyn Monitor>>,
    /// The monitor has delayed a sample.
    delays: bool,
    line: VecDeque<Late>,
    bytes: usize,
    /// A late sample is on its way past the monitor: later ones wait.
    releasing: bool,
    dropped: i64,
    changed: Vec<u8>,
    spare: Spare,
    names: Vec<(PortRef, String)>,
}

/// Spare memory of samples that have passed.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A sample that waits.
pub(crate) struct Late {
    due_ns: u64,
    pub info: SampleInfo,
    pub bytes: Vec<u8>,
    /// The way behind the monitor, of a subscriber.
    pub after_monitor: Option<AfterMonitor<Arc<Account>>>,
}

/// The way of a subscriber's sample behind the monitor.
pub(crate) struct AfterMonitor<A> {
    /// `true`: to the mailbox, as other samples of its channel.
    pub to_mailbox: bool,
    /// The account of its channel.
    pub account: A,
}

/// The decision on a sample now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It goes on.
    Pass,
    /// The sample continues with these bytes; [`MonitorSlot::give_back`] takes their memory.
    Changed(Vec<u8>),
    /// It doesn't, or not now.
    Gone,
}

impl MonitorSlot {
    /// `true` if samples have to be shown to [`MonitorSlot::judge`].
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Shows the monitor a sample. `name` finds the publishing port's name where it isn't known yet.
    #[cold]
    pub(crate) fn judge(
        &self,
        info: &SampleInfo,
        now_ns: u64,
        bytes: &[u8],
        after_monitor: Option<AfterMonitor<&Arc<Account>>>,
        name: impl FnOnce(PortRef) -> Option<String>,
    ) -> Judged {
        let mut guard = self.held.lock();
        let held = &mut *guard;
        let from = PortRef { node: info.node, port: info.port };
        if held.monitor.is_some() && !held.names.iter().any(|(port, _)| *port == from) {
            held.learn(from, name(from));
        }
        let from = held.names.iter().find(|(port, _)| *port == from).map_or("", |(_, name)| name.as_str());
        let seen = Seen { from, seq: info.seq, source_ns: info.source_ns, now_ns, bytes };
        held.changed.clear();
        let verdict = held.monitor.as_mut().map_or(Verdict::Pass, |m| m.sample(&seen, &mut held.changed));
        let behind = held.releasing || !held.line.is_empty();
        let due_ns = match verdict {
            Verdict::Drop => return Judged::Gone,
            Verdict::Pass if !behind => {
                self.taken.store(held.monitor.is_some(), Ordering::Release);
                return Judged::Pass;
            }
            Verdict::Changed if !behind => return Judged::Changed(std::mem::take(&mut held.changed)),
            Verdict::Pass | Verdict::Changed => 0, // in order, behind the waiting samples
            Verdict::Late(by) => now_ns.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        };
        let mut kept = held.spare.take();
        kept.extend_from_slice(if verdict == Verdict::Changed { &held.changed } else { bytes });
        let after_monitor = after_monitor
            .map(|AfterMonitor { to_mailbox, account }| AfterMonitor { to_mailbox, account: account.clone() });
        held.keep(Late { due_ns, info: *info, bytes: kept, after_monitor });
        drop(guard);
        self.wake();
        Judged::Gone
    }

    /// Takes back the memory of a changed sample.
    pub(crate) fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.held.lock().changed = bytes;
    }

    /// Attaches a monitor in place of the present one, whose late samples continue at once.
    pub(crate) fn attach(&self, monitor: Box<dyn Monitor>) {
        let delays = monitor.delays();
        let old = {
            let mut held = self.held.lock();
            held.release_all();
            self.taken.store(true, Ordering::Release);
            held.delays = delays;
            held.monitor.replace(monitor)
        };
        let _ = guarded("the monitor", || drop(old)); // a user's code, not under the lock
        self.wake();
    }

    /// Detaches the monitor; late samples continue at once. `false`: there was none.
    pub(crate) fn detach(&self) -> bool {
        let (old, _memory) = {
            let mut held = self.held.lock();
            held.release_all();
            // While samples wait, later ones must still come here.
            self.taken.store(held.releasing || !held.line.is_empty(), Ordering::Release);
            held.delays = false;
            (held.monitor.take(), held.unneeded())
        };
        self.wake();
        let there_was = old.is_some();
        let _ = guarded("the monitor", || drop(old));
        there_was
    }

    /// Sets the parameters. With an error only those before the wrong one are set.
    pub(crate) fn set(&self, parameters: &[Property]) -> Result<(), String> {
        let mut held = self.held.lock();
        let monitor = held.monitor.as_mut().ok_or(NONE)?;
        guarded("the monitor", || parameters.iter().try_for_each(|(key, value)| monitor.set(key, value)))?
            .map_err(|e| e.to_string())
    }

    /// Type, parameters and findings of the monitor.
    pub(crate) fn parameters(&self) -> Result<Vec<Property>, String> {
        let held = self.held.lock();
        let monitor = held.monitor.as_ref().ok_or(NONE)?;
        let (kind, found) = guarded("the monitor", || (monitor.kind().to_owned(), monitor.parameters()))?;
        let mut all = vec![("type".to_owned(), Value::Text(kind))];
        all.extend(found);
        if held.delays {
            let waiting = i64::try_from(held.line.len()).unwrap_or(i64::MAX);
            all.extend([("waiting".into(), Value::Int(waiting)), ("dropped".into(), Value::Int(held.dropped))]);
        }
        Ok(all)
    }

    /// `true` if the monitor delays samples and has no thread for them yet: the caller starts one.
    pub(crate) fn claim_server(&self) -> bool {
        self.held.lock().delays && !self.served.swap(true, Ordering::AcqRel)
    }

    /// For the thread: `true` if it is not needed any more. Then another one may be claimed.
    pub(crate) fn is_done(&self) -> bool {
        let held = self.held.lock();
        let done = held.line.is_empty() && !held.delays;
        if done {
            self.served.store(false, Ordering::Release);
        }
        done
    }

    /// For the thread: waits until a sample is due or the slot has changed, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let seen = self.news.load(Ordering::SeqCst);
        let due = self.held.lock().line.front().map(|late| late.due_ns);
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(linux::clock::monotonic_ns())));
        let wait = left.map_or(timeout, |left| left.min(timeout));
        if !wait.is_zero() {
            futex::wait(&self.news, seen, Some(wait), Scope::Private);
        }
    }

    /// For the thread: the next due sample. [`MonitorSlot::released`] must follow.
    pub(crate) fn next_due(&self) -> Option<Late> {
        let mut held = self.held.lock();
        held.line.front().filter(|late| late.due_ns <= linux::clock::monotonic_ns())?;
        let late = held.line.pop_front()?;
        held.bytes -= late.bytes.len();
        held.releasing = true;
        Some(late)
    }

    /// For the thread: the sample has passed.
    pub(crate) fn released(&self, late: Late) {
        let _unneeded = {
            let mut held = self.held.lock();
            held.releasing = false;
            (held.spare.give(late.bytes), held.unneeded())
        };
    }

    /// For the thread: the sample of [`MonitorSlot::next_due`], if there was one, is lost; later ones continue.
    pub(crate) fn lost(&self) {
        self.held.lock().releasing = false;
    }

    fn wake(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.served.load(Ordering::Acquire) {
            futex::wake(&self.news, u32::MAX >> 1, Scope::Private);
        }
    }
}

const NONE: &str = "no monitor is attached here: atch in|out (type …)";

impl Spare {
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps the buffer as spare memory; gives it back if there is too much, to be freed elsewhere.
    fn give(&mut self, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
        if self.bytes + buffer.capacity() > MOST_SPARE_BYTES {
            return Some(buffer);
        }
        buffer.clear();
        self.bytes += buffer.capacity();
        self.buffers.push(buffer);
        None
    }
}

impl Held {
    /// The spare memory, if no more samples come, to be freed elsewhere.
    fn unneeded(&mut self) -> Spare {
        let over = self.monitor.is_none() && self.line.is_empty() && !self.releasing;
        if over { std::mem::take(&mut self.spare) } else { Spare::default() }
    }

    fn learn(&mut self, port: PortRef, name: Option<String>) {
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        self.names.extend(name.map(|name| (port, name)));
    }

    fn keep(&mut self, late: Late) {
        if self.line.len() >= MOST_LATE || self.bytes + late.bytes.len() > MOST_LATE_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += late.bytes.len();
        self.line.push_back(late);
    }

    fn release_all(&mut self) {
        self.line.iter_mut().for_each(|late| late.due_ns = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Change;
    use crate::control::{NodeId, PortId};
    use crate::port::monitor::Delay;

    fn pass_late(slot: &MonitorSlot, size: usize) -> Late {
        let info = SampleInfo {
            node: NodeId(1),
            port: PortId(1),
            incarnation: 1,
            seq: 1,
            source_ns: 0,
            received_ns: 0,
            same_clock: true,
            scaled: None,
            historical: false,
            change: Change::Written,
        };
        assert_eq!(slot.judge(&info, 0, &vec![1; size], None, |_| None), Judged::Gone);
        slot.next_due().unwrap()
    }

    #[test]
    fn memory_of_late_samples_is_kept_up_to_a_limit_and_while_there_is_a_monitor() {
        let slot = MonitorSlot::default();
        slot.attach(Box::new(Delay::of(Duration::from_nanos(1))));
        let spare = || slot.held.lock().spare.buffers.len();
        let late: Vec<Late> = (0..3).map(|_| pass_late(&slot, MOST_SPARE_BYTES / 2)).collect();
        late.into_iter().for_each(|late| slot.released(late));
        assert_eq!(spare(), 2, "the third is too much");
        slot.released(pass_late(&slot, 1));
        assert_eq!(spare(), 2, "it used the memory of one");
        let last = pass_late(&slot, 1);
        assert!(slot.detach());
        assert_eq!(spare(), 1, "a sample is on its way still");
        slot.released(last);
        assert_eq!((spare(), slot.held.lock().spare.bytes), (0, 0));
    }
}
