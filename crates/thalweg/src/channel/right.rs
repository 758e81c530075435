//! The send right of a flow: its holder may touch the socket now (docs/data-path.md).
//!
//! ```text
//!            try_inline                    finish_inline (nothing pushed meanwhile)
//!   FREE ───────────────▶ INLINE ─────────────────────────────────────────────▶ FREE
//!    │                      │ hand_over, or finish_inline when something was pushed
//!    │ announce             ▼
//!    └──────────────────▶ THREAD ──── release (queue seen empty, nothing announced since) ──▶ FREE
//! ```
//!
//! Only the holder touches the socket and drains the queue. A thread that pushes into the queue calls [`SendRight::announce`]
//! afterwards; if the right is free then, it goes to the flow's thread. While the flow hands over
//! ([`SendRight::hand_over_always`]: its channel has a thread of its own), the right is not taken inline, so every message
//! is pushed. Messages pushed before the end of that leave first, because the right is not free before. Model-checked with loom.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const INLINE: u32 = 1;
const THREAD: u32 = 2;
const HOLDER: u32 = 3;
const PUSHED: u32 = 4; // a message was pushed since the holder last looked
const ALWAYS: u32 = 8; // every message is handed over

/// The holder of the right to send.
#[derive(Debug, Default)]
pub(crate) struct SendRight(AtomicU32);

impl SendRight {
    /// A right nobody holds.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }
    /// A free right: loom's own atomics are not constant.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// `true` if no thread holds the right, so no message is being sent.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) & HOLDER == FREE
    }

    /// From now on every message is handed over to the flow's thread, or (`false`) only those that have to wait. A message
    /// that is being sent inline is finished.
    pub(crate) fn hand_over_always(&self, always: bool) {
        if always {
            self.0.fetch_or(ALWAYS, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!ALWAYS, Ordering::AcqRel);
        }
    }

    /// `true` if every message is handed over.
    pub(crate) fn is_handed_over_always(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ALWAYS != 0
    }

    /// Takes the right for the publishing thread, if it is free, no message is pending, and messages are not always handed over.
    #[inline]
    pub(crate) fn try_inline(&self) -> bool {
        self.0.compare_exchange(FREE, INLINE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the right back after sending inline. `true`: a message was pushed meanwhile, or all are handed over since; the
    /// flow's thread now has the right, and the caller must submit the flow to it.
    #[inline]
    #[must_use]
    pub(crate) fn finish_inline(&self) -> bool {
        if self.0.compare_exchange(INLINE, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return false;
        }
        self.hand_over();
        true
    }

    /// Passes the right from the publishing thread to the flow's thread, to which the caller must submit the flow.
    pub(crate) fn hand_over(&self) {
        let previous = self.change(|state| Some((state & ALWAYS) | THREAD | PUSHED));
        debug_assert_eq!(previous.map(|state| state & HOLDER), Some(INLINE));
    }

    /// Announces that a message was pushed. `true`: the right was free; the flow's thread now has it, and the caller
    /// must submit the flow to it.
    #[must_use]
    pub(crate) fn announce(&self) -> bool {
        let given = |state: u32| (state & ALWAYS) | THREAD | PUSHED;
        let previous = self.change(|state| Some(if state & HOLDER == FREE { given(state) } else { state | PUSHED }));
        previous.is_some_and(|state| state & HOLDER == FREE)
    }

    /// Called by the flow's thread before it looks into the queue: messages pushed from now on are announced again.
    pub(crate) fn look(&self) {
        self.0.fetch_and(!PUSHED, Ordering::AcqRel);
    }

    /// Called when the flow's thread saw the queue empty after [`SendRight::look`]. `true`: the right is free now;
    /// `false`: a message was pushed since, look again.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        self.change(|state| (state & PUSHED == 0).then_some(state & ALWAYS)).is_some()
    }

    /// Changes the state unless `next` gives `None`. Returns the state before.
    fn change(&self, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(state, next(state)?, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(previous) => return Some(previous),
                Err(now) => state = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use std::collections::VecDeque;

    struct Flow {
        right: SendRight,
        queue: Mutex<VecDeque<u32>>,
        socket: Mutex<Vec<u32>>, // try_lock: two holders at once would be found out
        submitted: loom::sync::atomic::AtomicU32,
    }

    impl Flow {
        fn transmit(&self, item: u32) {
            self.socket.try_lock().expect("two threads at one socket").push(item);
        }
        fn publish(&self, item: u32, full: bool) {
            if self.right.try_inline() {
                if full {
                    self.queue.lock().unwrap().push_front(item);
                    self.right.hand_over();
                    self.submitted.fetch_add(1, Ordering::SeqCst);
                } else {
                    self.transmit(item);
                    if self.right.finish_inline() {
                        self.submitted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            } else {
                self.queue.lock().unwrap().push_back(item);
                if self.right.announce() {
                    self.submitted.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        /// One visit of the flow's thread.
        fn drain(&self) {
            loop {
                self.right.look();
                while let Some(item) = { self.queue.lock().unwrap().pop_front() } {
                    self.transmit(item);
                }
                if self.right.release() {
                    return;
                }
            }
        }
    }

    impl Flow {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                right: SendRight::new(),
                queue: Mutex::new(VecDeque::new()),
                socket: Mutex::new(Vec::new()),
                submitted: loom::sync::atomic::AtomicU32::new(0),
            })
        }

        /// Visits until all submissions were served; then no message waits and the right is free.
        fn drain_all(&self, mut visits: u32) {
            while visits < self.submitted.load(Ordering::SeqCst) {
                self.drain();
                visits += 1;
            }
            assert!(self.right.is_free() && self.queue.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn one_holder_at_a_time_nothing_is_forgotten_and_order_is_kept() {
        loom::model(|| {
            let flow = Flow::new();
            let publisher = {
                let flow = flow.clone();
                loom::thread::spawn(move || {
                    flow.publish(1, true); // the socket is full: handed over
                    flow.publish(2, false);
                    flow.publish(3, false);
                })
            };
            // The flow's thread: visits once per submission.
            let mut visits = 0;
            while visits < 1 {
                if flow.submitted.load(Ordering::SeqCst) > visits {
                    flow.drain();
                    visits += 1;
                } else {
                    loom::thread::yield_now();
                }
            }
            publisher.join().unwrap();
            flow.drain_all(visits);
            assert_eq!(*flow.socket.lock().unwrap(), [1, 2, 3]);
            assert!(flow.right.try_inline(), "the right is free at the end");
        });
    }

    /// An administrator gives the channel a thread and takes it back while it publishes.
    #[test]
    fn handing_over_begins_and_ends_without_loss_or_reorder() {
        loom::model(|| {
            let flow = Flow::new();
            let publisher = {
                let flow = flow.clone();
                loom::thread::spawn(move || {
                    flow.publish(1, false);
                    flow.publish(2, false);
                })
            };
            let administrator = {
                let flow = flow.clone();
                loom::thread::spawn(move || {
                    flow.right.hand_over_always(true);
                    flow.right.hand_over_always(false);
                })
            };
            let mut visits = 0;
            if flow.submitted.load(Ordering::SeqCst) > 0 {
                flow.drain();
                visits = 1;
            }
            publisher.join().unwrap();
            administrator.join().unwrap();
            flow.drain_all(visits);
            assert_eq!(*flow.socket.lock().unwrap(), [1, 2]);
            assert!(flow.right.try_inline(), "unset, it is inline again");
        });
    }

    /// A batch grows only while the right is free, and leaves before waiting messages; its lock is the right to send it
    /// (`channel/flow/batch.rs`).
    #[test]
    fn a_batch_leaves_before_what_waits_whoever_sends_it() {
        loom::model(|| {
            let (flow, batch) = (Flow::new(), Arc::new(Mutex::new(vec![1])));
            let publisher = {
                let (flow, batch) = (flow.clone(), batch.clone());
                loom::thread::spawn(move || {
                    for item in [2, 3] {
                        let mut batch = batch.lock().unwrap();
                        if flow.right.is_free() {
                            batch.push(item);
                        } else {
                            drop(batch);
                            flow.publish(item, false);
                        }
                    }
                })
            };
            // The thread that watches the batch finds the socket full: it gives the rest to the flow's thread.
            let mut held = batch.lock().unwrap();
            let given = flow.right.announce();
            drop(held);
            assert!(given, "nobody else gives it away");
            flow.submitted.fetch_add(1, Ordering::SeqCst);
            held = batch.lock().unwrap();
            held.drain(..).for_each(|item| flow.transmit(item));
            drop(held);
            flow.drain();
            publisher.join().unwrap();
            flow.drain_all(1);
            batch.lock().unwrap().drain(..).for_each(|item| flow.transmit(item));
            assert_eq!(*flow.socket.lock().unwrap(), [1, 2, 3]);
        });
    }

    #[test]
    fn no_message_is_sent_inline_while_all_are_handed_over() {
        loom::model(|| {
            let flow = Flow::new();
            flow.right.hand_over_always(true);
            assert!(flow.right.is_handed_over_always() && flow.right.is_free() && !flow.right.try_inline());
            flow.publish(1, false);
            assert!(flow.socket.lock().unwrap().is_empty(), "it was sent on the caller's thread");
            let visitor = {
                let flow = flow.clone();
                loom::thread::spawn(move || flow.drain())
            };
            flow.publish(2, false);
            visitor.join().unwrap();
            flow.drain_all(1);
            assert_eq!(*flow.socket.lock().unwrap(), [1, 2]);
            assert!(!flow.right.try_inline());
        });
    }
}
