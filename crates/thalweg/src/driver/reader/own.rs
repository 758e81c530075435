//! A thread that serves one channel: it waits in the receive itself.

use super::{Hub, Place, Served, step};
use crate::carrier::TICK;
use crate::channel::inbound::{Inbound, Step};
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a thread that was started for a channel gets its inbound half.
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

    /// There is no half any more: the channel ended before it could be handed over.
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

/// Serves the channel until it ends or goes back. One that goes back keeps its tick: ending a wait without end may lose
/// bytes.
pub(super) fn run(hub: &Hub, served: &Arc<Served>, slot: &Slot, goes_back: bool) {
    let Some(mut inbound) = slot.take(hub) else { return }; // its end was told where it was
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

/// Back to the shared reader; gives the half back when somebody thought better of it.
fn go_back(hub: &Hub, served: &Arc<Served>, inbound: Inbound) -> Option<Inbound> {
    let mut place = served.place.lock();
    let Place::Own { home: Some(home), .. } = &*place else { return Some(inbound) };
    if !served.leaves.swap(false, Ordering::Relaxed) {
        return Some(inbound);
    }
    let home = home.clone();
    *place = Place::Shared(home.clone());
    // Passed with the place locked: who asks for the half from now on, asks after it.
    let passed = home.push(super::Arrival::Serve(served.clone(), inbound));
    drop(place);
    if let Err(super::Arrival::Serve(served, inbound)) = passed {
        hub.end(&served, &inbound, "the thread that served it is gone".to_owned());
    }
    None
}
