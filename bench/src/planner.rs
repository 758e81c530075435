//! Planning time: placing, analysing the placement, and admitting one more subscriber; and the sizes of Table 3 of the push-pull paper.

use std::time::{Duration, Instant};

use qos::analysis::Steps;
use qos::analysis::end_to_end::analyse;
use qos::analysis::stages::{Classes, Place, Stages};
use qos::contract::Contract;
use qos::network::Network;
use qos::placement::{Effort, Outcome, Progress, Status, Watch, admit, place};
use qos::system::{Placement, Proxies, Scheduler, Subscriber, System};

use crate::system::{Binding, Numbers, Size, as_in_the_paper, binding, congested};

/// Subscribers that are added, one at a time, to measure the time of an admission.
pub const ADMITTED: usize = 50;

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
    /// The most memory until all were placed, in bytes, the system included.
    pub memory: Option<u64>,
    /// Bounds of all pairs with given places, and the number of pairs with a bound: with links as fast as they are,
    /// and twice as fast.
    pub analysing: [(Duration, usize); 2],
    /// The slowest of [`ADMITTED`] more subscribers, and the number that fits.
    pub admitting: (Duration, usize),
    /// The links that bind.
    pub links: Binding,
    /// The part by which their limits make every placement dearer than the best places, at least.
    pub dearer: f64,
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

/// The targets for a system of this size, which are its limits, too: the largest gap and the time. 1 % within 2 s, with more than 2000
/// subscribers 5 % within 30 s.
pub fn target(size: Size) -> (f64, Duration) {
    let (gap, seconds) = if size.subscribers > 2000 { (0.05, 30) } else { (0.01, 2) };
    (gap, Duration::from_secs(seconds))
}

/// Generates a system in which links bind, and plans it.
pub fn measure(size: Size, proxies: Proxies, seed: u64) -> Measured {
    let mut made = congested(size, Placement { proxies, ..as_in_the_paper() }, seed);
    made.system.links.iter_mut().for_each(|link| link.scheduler = Scheduler::Strict);
    let system = &made.system;
    let network = Network::new(system);
    let (gap, time) = target(size);
    forget_memory();
    let mut clock = Clock { began: Instant::now(), shown: None };
    let effort = Effort { time, gap, ..Effort::default() };
    let outcome = place(system, &network, &effort, &mut clock);
    let (placing, memory) = (clock.began.elapsed(), most_memory());
    let mut faster = system.clone();
    faster.links.iter_mut().for_each(|link| link.rate *= 2);
    let analysing = [system, &faster].map(|system| analysed(system, &network, &outcome));
    let admitting = admitted(system, &network, &outcome);
    let links = binding(&made, &outcome);
    let dearer = made.least / made.free.cost - 1.0;
    Measured { size, proxies, outcome, placing, memory, analysing, admitting, links, dearer }
}

fn analysed(system: &System, network: &Network, outcome: &Outcome) -> (Duration, usize) {
    let of = |placed: &qos::placement::Placed| {
        let (publisher, node) = (placed.group.publisher, placed.node);
        placed.group.subscribers.iter().map(|who| Place { publisher, subscriber: *who, node }).collect::<Vec<_>>()
    };
    let places: Vec<Place> = outcome.placed.iter().flat_map(of).collect();
    let began = Instant::now();
    let stages = Stages::new(system, network, &places, &Classes::stated(system));
    let analysis = analyse(system, &stages, &Steps::of(system));
    let took = began.elapsed();
    (took, analysis.pairs.iter().filter(|pair| pair.ns.is_ok()).count())
}

/// One more subscriber at a time, like one that its topic has (scale, deadline), but anywhere in the network: some fit at their
/// group's proxy, some move it, some are too far away for their deadline.
fn admitted(system: &System, network: &Network, outcome: &Outcome) -> (Duration, usize) {
    let mut numbers = Numbers(system.subscribers.len() as u64);
    let mut slowest = Duration::ZERO;
    let mut fit = 0;
    for number in 0..ADMITTED {
        let mut more = system.clone();
        let like = &system.subscribers[number * system.subscribers.len() / ADMITTED];
        let node = numbers.below(system.nodes.len());
        more.subscribers.push(Subscriber { node, name: format!("/more{number}"), ..like.clone() });
        // The fastest of three: the limit is for the planner, not for what else the machine does.
        let took = (0..3).map(|_| {
            let began = Instant::now();
            let fits = admit(&more, network, outcome, more.subscribers.len() - 1).is_some();
            (began.elapsed(), fits)
        });
        let (took, fits) = took.min().unwrap_or_default();
        fit += usize::from(fits);
        slowest = slowest.max(took);
    }
    (slowest, fit)
}

/// The contract of the push-pull paper's §2.4.2: seven nodes in a row.
const VBNS: &str = include_str!("../../examples/papers/vbns.toml");

/// Subscribers per tag of Table 3.
pub const TABLE_3: [usize; 4] = [1, 2, 5, 10];

/// The time to place a proxy for each of so many subscribers of one topic on the way of §2.4.2, and to prove it best, as the planner does; `None`
/// if it did not. They are at the last four nodes, with scaling and deadlines of their own. A node has room for half of the
/// proxies, so that they get in each other's way: without that there is nothing to solve.
pub fn table_3(subscribers: usize) -> Option<Duration> {
    let mut system = Contract::read(VBNS).ok()?.system;
    let wanted = |index: usize| {
        let like = system.subscribers.first()?;
        Some(Subscriber {
            node: like.node - index % 4,
            name: format!("/viewer{index}"),
            scale: 2 + index as u32 % 3,
            scaled_size: Some(100 + 40 * index as u64),
            deadline: like.deadline.map(|deadline| deadline + 1_000_000_000 * (index as u64 % 5)),
            ..like.clone()
        })
    };
    system.subscribers = (0..subscribers).map(wanted).collect::<Option<_>>()?;
    system.placement.proxies = Proxies::PerSubscriber;
    let room = subscribers.div_ceil(2) as f64 * system.topics.first()?.rate;
    system.nodes.iter_mut().for_each(|node| node.proxy_capacity = Some(room));
    let mut clock = Clock { began: Instant::now(), shown: None };
    let found = place(&system, &Network::new(&system), &Effort::default(), &mut clock);
    (found.status == Status::Optimal).then(|| clock.began.elapsed())
}

/// The most memory in bytes that this process has had at once since [`forget_memory`]; `None` where the kernel does not tell.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Lets the kernel's high-water mark begin anew (proc(5), `clear_refs`). Without it the mark of all that came before counts.
fn forget_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
