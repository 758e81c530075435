//! Bridges on threads of their own.

use super::world::LONG;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::Node;
use thalweg_engines::Engine;
use thalweg_engines::bridge::{Bridge, Notice, Rules, Status};

/// A bridge on a thread of its own, as its command runs it.
pub struct Running {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<(Status, Vec<Notice>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn with(node: Node, engine: Box<dyn Engine>, rules: &str) -> Self {
        let mut bridge = Bridge::new(node, engine, Rules::parse(rules).unwrap());
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new((Status::default(), Vec::new()))));
        let (stopped, tell) = (stop.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let notices = bridge.turn(Duration::from_millis(20));
                let mut seen = tell.lock().unwrap();
                seen.0 = bridge.status();
                seen.1.extend(notices);
            }
        });
        Self { stop, seen, thread: Some(thread) }
    }

    pub fn status(&self) -> Status {
        self.seen.lock().unwrap().0.clone()
    }

    /// What it told, in order.
    pub fn notices(&self) -> Vec<String> {
        self.seen.lock().unwrap().1.iter().map(ToString::to_string).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
}
