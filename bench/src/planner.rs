//! Planning time: placing, analysing the placement, and admitting one more subscriber.

use std::time::{Duration, Instant};

use qos::analysis::Steps;
use qos::analysis::end_to_end::analyse;
use qos::analysis::stages::{Place, Stages};
use qos::network::Network;
use qos::placement::{Effort, Outcome, Progress, Watch, admit, place};
use qos::system::{Placement, Proxies, Scheduler, Subscriber, System};

use crate::system::{Binding, Size, as_in_the_paper, binding, congested};

/// Subscribers that are added to measure the time of an admission.
pub const ADMITTED: usize = 5;

/// Measurements of one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its size.
    pub size: Size,
    /// Sharing of proxies.
    pub proxies: Proxies,
    /// The places.
    pub outcome: Outcome,
    /// Placing.
    pub placing: Duration,
    /// Bounds of all pairs with given places, and the number of pairs with a bound: with links as fast as they are,
    /// and twice as fast.
    pub analysing: [(Duration, usize); 2],
    /// The slowest of [`ADMITTED`] more subscribers, and the number that fits.
    pub admitting: (Duration, usize),
    /// The links that bind.
    pub links: Binding,
}

struct Clock {
    began: Instant,
    shown: Option<Duration>,
}

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn progress(&mut self, progress: &Progress) {
        let now = self.began.elapsed();
        if self.shown.is_none_or(|shown| now - shown >= Duration::from_millis(500)) {
            self.shown = Some(now);
            let value = progress.value.map_or_else(|| "none yet".to_owned(), |value| format!("{value:.0}"));
            let Progress { step, bound, .. } = progress;
            eprintln!("  {:5.1} s  step {step:4}  value {value}  bound {bound:.0}", now.as_secs_f64());
        }
    }
}

/// Generates a system in which links bind, and plans it. Small ones have 2 s and a gap of 1 %, those with more than 2000 subscribers
/// 30 s and 5 %.
pub fn measure(size: Size, proxies: Proxies, seed: u64) -> Measured {
    let mut system = congested(size, Placement { proxies, ..as_in_the_paper() }, seed);
    system.links.iter_mut().for_each(|link| link.scheduler = Scheduler::Strict);
    let network = Network::new(&system);
    let (gap, time) = if size.subscribers > 2000 { (0.05, 30) } else { (0.01, 2) };
    let mut clock = Clock { began: Instant::now(), shown: None };
    let effort = Effort { time: Duration::from_secs(time), gap, ..Effort::default() };
    let outcome = place(&system, &network, &effort, &mut clock);
    let placing = clock.began.elapsed();
    let mut faster = system.clone();
    faster.links.iter_mut().for_each(|link| link.rate *= 2);
    let analysing = [&system, &faster].map(|system| analysed(system, &network, &outcome));
    let admitting = admitted(&system, &network, &outcome);
    let links = binding(&system, &outcome);
    Measured { size, proxies, outcome, placing, analysing, admitting, links }
}

fn analysed(system: &System, network: &Network, outcome: &Outcome) -> (Duration, usize) {
    let of = |placed: &qos::placement::Placed| {
        let (publisher, node) = (placed.group.publisher, placed.node);
        placed.group.subscribers.iter().map(|who| Place { publisher, subscriber: *who, node }).collect::<Vec<_>>()
    };
    let places: Vec<Place> = outcome.placed.iter().flat_map(of).collect();
    let began = Instant::now();
    let stages = Stages::new(system, network, &places, &[]);
    let analysis = analyse(system, &stages, &Steps::of(system));
    let took = began.elapsed();
    (took, analysis.pairs.iter().filter(|pair| pair.ns.is_ok()).count())
}

/// One more subscriber to each of the first topics, one at a time.
fn admitted(system: &System, network: &Network, outcome: &Outcome) -> (Duration, usize) {
    let mut slowest = Duration::ZERO;
    let mut fit = 0;
    for topic in 0..ADMITTED.min(system.topics.len()) {
        let mut more = system.clone();
        let like = &system.subscribers[system.subscribers.len() - 1 - topic];
        more.subscribers.push(Subscriber { deadline: None, topic, ..like.clone() });
        let began = Instant::now();
        fit += usize::from(admit(&more, network, outcome, more.subscribers.len() - 1).is_some());
        slowest = slowest.max(began.elapsed());
    }
    (slowest, fit)
}
