//! The video: `thalweg pub` on one host at 100 Hz, `thalweg sub` on another, and what arrives there.

use super::world::{Process, World};
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use lab::statistics::Distribution;
use linux::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a sample; its encoding takes a few more.
const SIZE: usize = 380;
/// Time for the last ones to arrive, through a full queue.
const SETTLE: Duration = Duration::from_millis(1500);
/// Time in which both ends have to find each other.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks.
const TICK: Duration = Duration::from_millis(20);

/// Both ends, and what arrived so far.
pub(super) struct Video {
    _ends: [Process; 2],
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

/// A sample that arrived, as `thalweg sub --json` tells it.
#[derive(Clone, Copy, Deserialize)]
struct Arrived {
    seq: u64,
    source_ns: u64,
    latency_us: f64,
}

/// What was seen in one phase.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    pub sent: u64,
    pub lost: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Seen {
    /// Of the samples that arrived of one phase. Those before the first of them and behind the last are not known.
    fn of(arrived: &[Arrived]) -> Self {
        let (first, last) = (arrived.iter().map(|one| one.seq).min(), arrived.iter().map(|one| one.seq).max());
        let sent = first.zip(last).map_or(0, |(first, last)| last - first + 1);
        let found = Distribution::of(&arrived.iter().map(|one| one.latency_us).collect::<Vec<f64>>());
        let at = |figure: fn(&Distribution) -> f64| found.as_ref().map_or(f64::INFINITY, figure);
        let lost = sent.saturating_sub(arrived.len() as u64);
        Self { sent, lost, p50_us: at(|d| d.p50), p99_us: at(|d| d.p99), max_us: at(|d| d.max) }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let [p50, p99, max] = [self.p50_us, self.p99_us, self.max_us].map(qos::show_time);
        let Self { sent, lost, .. } = self;
        format!(
            "{lost} of {sent} samples lost, half of the others within {p50}, 99 % within {p99}, the latest after {max}"
        )
    }
}

/// Notes each sample until the subscriber ends.
fn note(lines: ChildStdout, arrived: &Mutex<Vec<Arrived>>) {
    for line in BufReader::new(lines).lines().map_while(std::io::Result::ok) {
        if let Ok(one) = serde_json::from_str(&line) {
            arrived.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        }
    }
}

impl Video {
    /// Starts both ends, and waits until samples arrive.
    pub(super) fn start(world: &World, realm: &str, stop: &Stop) -> Result<Self> {
        let addresses = world.addresses()?;
        let node = |host: usize, name: &str| {
            format!(
                "--name {name} --realm {realm} --listen {} --discovery static:{}",
                world.node(host),
                addresses.display()
            )
        };
        let mut viewer =
            world.start(3, &format!("sub /video --port /viewer --best-effort --json {}", node(3, "desk")))?;
        let words = format!(
            "pub /video --port /camera --rate 100 --size {SIZE} --carrier udp --best-effort {}",
            node(0, "cam")
        );
        let camera = world.start(0, &words)?;
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        if let Some(lines) = viewer.output() {
            let noted = arrived.clone();
            linux::thread::spawn(linux::thread::Settings::named("viewer"), move || note(lines, &noted))?;
        }
        let video = Self { _ends: [viewer, camera], arrived };
        let until = Instant::now() + PATIENCE;
        while video.arrived().is_empty() {
            if stop.asked() || Instant::now() > until {
                return Err(Failure::No(format!("no sample of cam arrived at desk within {PATIENCE:?}")));
            }
            std::thread::sleep(TICK);
        }
        Ok(video)
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Arrived>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What arrives of that which is published within this time; `None`: the user asked to end.
    pub(super) fn measure(&self, time: Duration, stop: &Stop) -> Option<Seen> {
        let began = monotonic_ns();
        stop.sleep_until(Instant::now() + time);
        let ended = monotonic_ns();
        stop.sleep_until(Instant::now() + SETTLE);
        let of_phase = |one: &&Arrived| (began..ended).contains(&one.source_ns);
        let arrived: Vec<Arrived> = self.arrived().iter().filter(of_phase).copied().collect();
        (!stop.asked()).then(|| Seen::of(&arrived))
    }
}
