//! The load of a busy process: more computing threads than there are processors.

use crate::failure::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// A thread that computes until it is dropped.
pub(super) struct Work {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Work {
    /// Two threads per processor.
    pub(super) fn start() -> Result<Vec<Self>> {
        let count = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        (0..count).map(|_| Self::one()).collect()
    }

    fn one() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let compute = move || {
            while !asked.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        Ok(Self { stop, thread: Some(linux::thread::spawn(linux::thread::Settings::named("compute"), compute)?) })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
