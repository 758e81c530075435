//! A thread that serves one channel, and waits in the receive call itself.

use super::{Hub, Place, Served, step};
use crate::carrier::TICK;
use crate::channel::inbound::{Inbound, Step};
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The place in which a thread that was started for a channel gets its inbound half.
#[derive(Default)]
pub(super) struct Slot {
    half: PiMutex<Option<Inbound>>,
    /// 0: nothing yet; 1: the half is there; 2: it will not come.
    state: AtomicU32,
}

impl Slot {
    /// Hands the half over.
    pub(super) fn put(&self, inbound: Inbound) {
        *self.half.lock() = Some(inbound);
        self.tell(1);
    }

    /// The channel ended before its half could be handed over.
    pub(super) fn close(&self) {
        self.tell(2);
    }

    fn tell(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Private);
    }

    fn take(&self, hub: &Hub) -> Option<Inbound> {
        while self.state.load(Ordering::Acquire) == 0 {
            if hub.stop.load(Ordering::Relaxed) {
                return None;
            }
            futex::wait(&self.state, 0, Some(TICK), Scope::Private);
        }
        self.half.lock().take()
    }
}

/// Serves the channel until it ends or returns. A channel that may return keeps its tick, because interrupting a wait without a limit may
/// lose bytes.
pub(super) fn run(hub: &Hub, served: &Arc<Served>, slot: &Slot, goes_back: bool) {
    let Some(mut inbound) = slot.take(hub) else { return }; // the former thread has reported its end
    if !goes_back {
        inbound.wait_without_end();
    }
    while !hub.stop.load(Ordering::Relaxed) {
        if served.leaves.load(Ordering::Relaxed) {
            match go_back(hub, served, inbound) {
                None => return,
                Some(stays) => inbound = stays,
            }
        }
        if let Step::Ended(why) = step(&mut inbound, true) {
            return hub.end(served, &inbound, why);
        }
    }
    *served.place.lock() = Place::Gone;
}

/// Returns the channel to the shared reader; `Some`: the return was revoked, and the half stays.
fn go_back(hub: &Hub, served: &Arc<Served>, inbound: Inbound) -> Option<Inbound> {
    let mut place = served.place.lock();
    let Place::Own { home: Some(home), .. } = &*place else { return Some(inbound) };
    if !served.leaves.swap(false, Ordering::Relaxed) {
        return Some(inbound);
    }
    let home = home.clone();
    *place = Place::Shared(home.clone());
    // The half is passed with the place locked, so that a later request for the half follows it in the queue.
    let passed = home.push(super::Arrival::Serve(served.clone(), inbound));
    drop(place);
    if let Err(super::Arrival::Serve(served, inbound)) = passed {
        hub.end(&served, &inbound, "the thread that served it is gone".to_owned());
    }
    None
}
