//! Shared by tests, fuzz targets and benchmarks: systems of any kind (`systems`, as a function of their seed), and the promises of
//! a planner for any of them. [`compare`] compares bounds with simulations of the worst patterns of release; [`contract`] and
//! [`planner`] are bodies of fuzz targets, which take any bytes and panic when a promise is broken.

mod busy;
mod chains;
#[allow(clippy::disallowed_methods)] // it runs for a time
pub mod inputs;
mod systems;

pub use busy::busy;
pub use chains::{Followed, follow};
pub use systems::{Sketch, chained, controlled, extreme, gathering, owning, pacing, sketch};

use crate::analysis::Steps;
use crate::analysis::end_to_end::{Analysis, Bound, analyse};
use crate::analysis::stages::{Pair, Stage, Stages, Step};
use crate::contract::{Contract, check};
use crate::network::Network;
use crate::placement::Watch;
use crate::plan::{Channel, Model, Plan, Work, make_within};
use crate::simulate::{Pattern, Run, Seen, worst};
use crate::system::{Scheduler, System};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A bound that held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Bound, ns.
    pub bound: u64,
    /// The part of it due to lower classes and to the latency of shares, ns.
    pub blocking: u64,
    /// The latest that was seen, ns, above 0.
    pub seen: u64,
    /// A queue on its way shares the link by `htb` or `hfsc`.
    pub shares: bool,
    /// Something on its way also serves another stream, or background traffic. Without that the bound is a sum of declared times.
    pub contended: bool,
    /// A link on its way is at least 60 % busy with what is declared.
    pub busy: bool,
}

impl Held {
    /// Bound ÷ the latest that was seen, at least 1.
    pub fn ratio(&self) -> f64 {
        self.bound as f64 / self.seen as f64
    }
}

/// All pairs of one system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Pairs that have a bound, and of which a sample arrived.
    pub held: Vec<Held>,
    /// Pairs without a bound: a resource on their way is overloaded.
    pub unbounded: usize,
}

/// Most events of one simulation. Of 3000 systems 12 have more than 200,000.
const EVENTS: u64 = 2_000_000;

/// Compares the bounds of a seed's system ([`busy()`]) with simulations of it, `tries` of them aimed at each pair.
///
/// # Errors
/// The channel that exceeded its bound, or the queue that exceeded its room; or a simulation ended early, so that nothing is known.
pub fn compare(seed: u64, tries: u64) -> Result<Compared, String> {
    compare_spoilt(&busy(seed), seed, tries, |_| ())
}

/// Spoils what an analysis is given.
type Spoil = fn(&mut Stages);

/// The same for any system, with an analysis that gets the contract wrong: the simulation must find it out.
fn compare_spoilt(sketch: &Sketch, seed: u64, tries: u64, spoil: Spoil) -> Result<Compared, String> {
    let Sketch { system, classes, places } = sketch;
    let stages = Stages::new(system, &Network::new(system), places, classes);
    let mut spoilt = stages.clone();
    spoil(&mut spoilt);
    let analysis = analyse(system, &spoilt, &Steps::of(system));
    let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 4 * longest, events: EVENTS };
    let seen = worst(system, &stages, &run, tries);
    if seen.cut {
        return Err(format!("seed {seed}: a simulation has more than {EVENTS} events"));
    }
    rooms(&analysis, &seen).map_err(|wrong| format!("seed {seed}, {wrong}"))?;
    let (mut compared, loads) = (Compared::default(), busy::loads(&stages));
    for (pair, (bound, seen)) in stages.pairs.iter().zip(analysis.pairs.iter().zip(&seen.pairs)) {
        let Ok(ns) = bound.ns else {
            compared.unbounded += 1;
            continue;
        };
        keeps(ns, bound, seen.max).map_err(|wrong| format!("seed {seed}, {pair:?}: {wrong}"))?;
        if seen.max > 0 {
            let blocking = bound.terms.iter().filter(|term| term.blocks()).map(|term| term.ns).sum();
            let (shares, contended) = (shares(system, &stages, pair), contended(&stages, pair));
            let busy = is_busy(&stages, pair, &loads);
            compared.held.push(Held { bound: ns, blocking, seen: seen.max, shares, contended, busy });
        }
    }
    Ok(compared)
}

/// Compares many systems, on all processors. Systems that break a bound come as the message of [`compare`].
pub fn compare_all(seeds: Range<u64>, tries: u64) -> (Compared, Vec<String>) {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new((Compared::default(), Vec::new())));
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seeds.contains(seed)) {
            let compared = compare(seed, tries);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match compared {
                Ok(compared) => {
                    found.0.held.extend(compared.held);
                    found.0.unbounded += compared.unbounded;
                }
                Err(wrong) => found.1.push(wrong),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The seed of random tests: the environment's THALWEG_SEED, so that each commit can have its own, else 0. Whoever draws from it prints it.
///
/// # Panics
/// If it is no number.
pub fn seed() -> u64 {
    let text = std::env::var("THALWEG_SEED").unwrap_or_else(|_| "0".into());
    text.parse().unwrap_or_else(|_| panic!("THALWEG_SEED is '{text}'; allowed: 0 to {}", u64::MAX))
}

fn keeps(ns: u64, bound: &Bound, seen: u64) -> Result<(), String> {
    if seen > ns {
        return Err(format!("bound {ns} < seen {seen}: {:#?}", bound.terms));
    }
    let sum: u64 = bound.terms.iter().map(|term| term.ns).sum();
    if sum == ns { Ok(()) } else { Err(format!("bound {ns}, but its terms make {sum}")) }
}

fn rooms(analysis: &Analysis, seen: &Seen) -> Result<(), String> {
    for (queue, (classes, seen)) in analysis.queues.iter().zip(&seen.queues).enumerate() {
        let known = classes.iter().all(|class| class.streams == 0 || class.room.is_some());
        let room: u64 = classes.iter().filter_map(|class| Some(class.room?.bytes)).sum();
        if known && room < *seen {
            return Err(format!("queue {queue}: room {room} < seen {seen} bytes"));
        }
    }
    Ok(())
}

fn shares(system: &System, stages: &Stages, pair: &Pair) -> bool {
    stages.path(pair).any(|stage| match stages.stages[stage].step {
        Step::Cross { queue, .. } => matches!(system.links[queue / 2].scheduler, Scheduler::Htb | Scheduler::Hfsc),
        Step::Compute { .. } => false,
    })
}

fn is_busy(stages: &Stages, pair: &Pair, loads: &[u128]) -> bool {
    let busy = |queue: usize| loads[queue] >= busy::percent(busy::BUSY);
    stages.path(pair).any(|stage| matches!(stages.stages[stage].step, Step::Cross { queue, .. } if busy(queue)))
}

/// Another stream, or background traffic, passes a resource of the pair.
fn contended(stages: &Stages, pair: &Pair) -> bool {
    let resource = |step: &Step| match *step {
        Step::Cross { queue, .. } => (queue, true),
        Step::Compute { processor, .. } => (processor, false),
    };
    stages.path(pair).map(|stage| resource(&stages.stages[stage].step)).any(|(index, link)| {
        let of_others = |stage: &Stage| stage.stream != pair.stream && resource(&stage.step) == (index, link);
        stages.stages.iter().any(of_others)
            || (link && (stages.egresses[index].background.is_some() || stages.egresses[index].control.is_some()))
    })
}

/// Contracts to begin from.
pub fn contracts() -> Vec<Vec<u8>> {
    let plain = r#"[[node]]
name = "a"
[[node]]
name = "b"
[[node]]
name = "c"
[[link]]
between = ["a", "b"]
rate = "1 Mbit/s"
scheduler = "strict"
[[link]]
between = ["b", "c"]
rate = "2 Mbit/s"
delay = "5 us"
[[topic]]
name = "t"
size = "1 KiB"
rate = "50 Hz"
publisher = "a"
cpu_send = "90 us"
[[subscriber]]
topic = "t"
node = "c"
scale = 2
deadline = "90 ms"
cpu_receive = "1 ms"
[[chain]]
name = "c"
topics = ["t"]
deadline = "90 ms"
[placement]
delay = "bound"
"#;
    vec![plain.as_bytes().to_vec(), plain.replace("90 ms", "9 ms").replace("bound", "paper").into_bytes()]
}

/// A clock in steps of 100 ms, so that work with a time limit ends.
struct Ticks(u64);

impl Watch for Ticks {
    fn elapsed(&mut self) -> Duration {
        self.0 += 1;
        Duration::from_millis(100 * self.0)
    }
}

/// Any text: it is refused with a line of its own, or it has a plan by every model.
pub fn contract(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let contract = match Contract::read(&text) {
        Ok(contract) => contract,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1 && !error.problem.is_empty());
            return;
        }
    };
    let system = &contract.system;
    if system.nodes.len().max(system.links.len()).max(system.topics.len()).max(system.subscribers.len()) > 8 {
        return;
    }
    check(&contract).iter().for_each(|finding| assert!(finding.line >= 1 && !finding.because.is_empty()));
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    plan(&contract, Model::ALL[bytes.len() % Model::ALL.len()], sum.is_multiple_of(RARE));
}

/// Any bytes: the system of which they are the seed, with quantities at the limits of a contract, has a plan by every model.
pub fn planner(bytes: &[u8]) {
    // FNV-1a: each byte counts. Of eight bytes a fuzzer that changes some of an example left most at 0, and tried few systems.
    let mixed = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mixed);
    plan_of(seed, Model::ALL[bytes.len() % Model::ALL.len()], seed.is_multiple_of(RARE));
}

/// The same of a seed and a model with as much work as a user's plan may take.
pub fn planner_at_length(seed: u64, model: Model) {
    plan_of(seed, model, true);
}

fn plan_of(seed: u64, model: Model, whole: bool) {
    plan(&Contract { system: extreme(seed), ..Contract::default() }, model, whole);
}

/// One of so many inputs may take as much work as a user's plan: nearly none of these systems fits, and then offers are tried for a second.
/// With that for each, a run of 2 s had 6 to 12 inputs.
const RARE: u64 = 128;
/// The work for the others: it suffices for most bounds and some offers, and runs out in the rest.
const LITTLE: Work = Work { plan: 100_000, offers: 200_000, time: Duration::MAX };

/// Checks a plan: its numbers are finite, its terms add up, it keeps every deadline or gives the reason, and its file
/// is read back unchanged.
fn plan(contract: &Contract, model: Model, whole: bool) {
    let work = if whole { Work::of(&contract.system) } else { LITTLE };
    let plan = make_within(contract, model, work, &mut Ticks(0));
    assert_eq!(plan.feasible, plan.refusals.is_empty(), "it fits, or it is said why not");
    plan.channels.iter().for_each(|channel| judge(channel, plan.feasible));
    assert!(plan.links.iter().all(|link| link.utilisation.is_finite()));
    let mut written = plan.clone();
    written.solver.ms = None;
    written.channels.iter_mut().for_each(|channel| (channel.derivation, channel.also) = Default::default());
    assert_eq!(Plan::from_text(&plan.to_text()), Ok(written), "a plan survives its file");
}

fn judge(channel: &Channel, feasible: bool) {
    assert!(channel.terms.values().all(|us| us.is_finite() && *us >= 0.0));
    let Some(delay) = channel.mean_us.or(channel.bound_us) else { return };
    let sum: f64 = channel.terms.values().sum();
    assert!((sum - delay).abs() <= 1e-3 + delay * 1e-9, "terms {sum}, delay {delay}");
    if let Some(deadline) = channel.deadline_us.filter(|_| feasible) {
        assert!(delay <= deadline * 1.000_001, "{delay} later than {deadline}");
    }
}

#[cfg(test)]
mod tests {
    mod own_queues;

    use super::*;
    use crate::Class;
    use crate::analysis::stages::{Classes, Paced, Packets, Reserved};
    use crate::simulate::simulate;
    use crate::system::{Link, Node, Pace, Sched, Subscriber, Topic};

    fn packets(stages: &mut Stages, change: fn(&mut Packets)) {
        for stage in &mut stages.stages {
            if let Step::Cross { packets, .. } = &mut stage.step {
                change(packets);
            }
        }
    }

    /// A planner that takes a packet of a lower class to be out of the way at once.
    const NO_BLOCKING: Spoil = |stages| packets(stages, |packets| packets.unit = 0);

    /// Errors of a planner, each of which makes some bound too small.
    const ERRORS: [(&str, Spoil); 10] = [
        ("no blocking", NO_BLOCKING),
        ("a packet too few", |stages| packets(stages, |packets| packets.count = (packets.count - 1).max(1))),
        ("headers forgotten", |stages| packets(stages, |packets| packets.last -= packets.last / 20)),
        ("no propagation", |stages| stages.egresses.iter_mut().for_each(|egress| egress.delay = 0)),
        ("no background", |stages| stages.egresses.iter_mut().for_each(|egress| egress.background = None)),
        ("no jitter", |stages| stages.streams.iter_mut().for_each(|stream| stream.arrivals.jitter = 0)),
        ("scaled too early", |stages| stages.stages.iter_mut().for_each(|stage| stage.every *= 2)),
        ("no forwarding", |stages| {
            for stage in &mut stages.stages {
                if let Step::Cross { forwarding, .. } = &mut stage.step {
                    *forwarding = 0;
                }
            }
        }),
        ("reservations take nothing from others", |stages| reserved(stages, |reserved| reserved.threads = 0)),
        ("threads too fast", |stages| {
            for stage in &mut stages.stages {
                if let Step::Compute { execution, .. } = &mut stage.step {
                    *execution -= *execution / 20;
                }
            }
        }),
    ];

    fn reserved(stages: &mut Stages, spoil: fn(&mut Reserved)) {
        for stage in &mut stages.stages {
            if let Step::Compute { reserved: Some(reserved), .. } = &mut stage.step {
                spoil(reserved);
            }
        }
    }

    /// The simulation of a system shows the error, and nothing else is wrong with it.
    fn finds_out(seed: u64, tries: u64, spoil: Spoil) -> bool {
        compare_spoilt(&busy(seed), seed, tries, spoil).is_err() && compare(seed, tries).is_ok()
    }

    fn first() -> u64 {
        seed() % (1 << 40)
    }

    /// The simulation does not share these quantities with the analysis. One in a hundred systems finds the rarest error ("no forwarding": 6 of
    /// 600), so that 1,200 miss it once in 10⁵ runs.
    #[test]
    fn each_error_of_a_planner_is_found_out() {
        let first = first();
        for (error, spoil) in ERRORS {
            let found = (first..first + 1200).position(|seed| finds_out(seed, 1, spoil));
            println!("{error}: found out by system {found:?} from seed {first}");
            assert!(found.is_some(), "{error}: found out by none of 1200 systems from seed {first}");
        }
    }

    /// A planner to which samples never wait for others.
    const NO_GATHERING: Spoil = |stages| {
        for stage in &mut stages.stages {
            if let Step::Cross { gathers, .. } = &mut stage.step {
                *gathers = 0;
            }
        }
    };

    /// Where samples wait for others no bound is broken. A planner that forgets it is found out.
    #[test]
    fn samples_that_gather_keep_their_bounds() {
        let (first, systems) = (first(), if cfg!(debug_assertions) { 20 } else { 600 });
        let mut held = 0;
        for seed in first..first + systems {
            let compared = compare_spoilt(&gathering(seed), seed, 1, |_| ()).unwrap_or_else(|wrong| panic!("{wrong}"));
            held += compared.held.len();
        }
        println!("{held} channels of {systems} systems from seed {first} keep their bounds");
        assert!(held as u64 > systems, "{held}");
        let wrong = |seed: &u64| compare_spoilt(&gathering(*seed), *seed, 1, NO_GATHERING).is_err();
        let found = (first..first + 200).find(wrong);
        println!("without the wait: found out by system {found:?} from seed {first}");
        assert!(found.is_some(), "without the wait: found out by none of 200 systems from seed {first}");
    }

    /// Whatever control traffic comes, no bound is broken. A planner that forgets its queue is found out.
    #[test]
    fn channels_beside_control_traffic_keep_their_bounds() {
        let (first, systems) = (first(), if cfg!(debug_assertions) { 20 } else { 400 });
        let mut held = 0;
        for seed in first..first + systems {
            let compared = compare_spoilt(&controlled(seed), seed, 1, |_| ()).unwrap_or_else(|wrong| panic!("{wrong}"));
            held += compared.held.len();
        }
        println!("{held} channels of {systems} systems from seed {first} keep their bounds");
        assert!(held as u64 > systems, "{held}");
        let forgotten: Spoil = |stages| stages.egresses.iter_mut().for_each(|egress| egress.control = None);
        let found = (0..1200).find(|seed| compare_spoilt(&controlled(*seed), *seed, 1, forgotten).is_err());
        println!("without control traffic: found out by system {found:?}");
        assert!(found.is_some(), "without control traffic: found out by none of 1200 systems");
    }

    fn paces(stages: &mut Stages, spoil: fn(&mut Paced)) {
        for stage in &mut stages.stages {
            if let Step::Cross { paced: Some(paced), .. } = &mut stage.step {
                spoil(paced);
            }
        }
    }

    /// Where samples leave at a pace no bound is broken. A planner that gets it wrong is found out.
    #[test]
    fn samples_that_leave_at_a_pace_keep_their_bounds() {
        let (first, systems) = (first(), if cfg!(debug_assertions) { 20 } else { 200 });
        let mut held = 0;
        for seed in first..first + systems {
            let compared = compare_spoilt(&pacing(seed), seed, 1, |_| ()).unwrap_or_else(|wrong| panic!("{wrong}"));
            held += compared.held.len();
        }
        println!("{held} channels of {systems} systems from seed {first} keep their bounds");
        assert!(held as u64 > systems, "{held}");
        let wrong = |seed: &u64| compare_spoilt(&pacing(*seed), *seed, 1, AT_ONCE).is_err();
        let found = (first..first + 200).find(wrong);
        println!("if a pace took no time: found out by system {found:?} from seed {first}");
        assert!(found.is_some(), "if a pace took no time: found out by none of 200 systems from seed {first}");
    }

    /// A planner to which the packets of a sample leave in half the time of their pace.
    const AT_ONCE: Spoil = |stages| paces(stages, |paced| paced.sample /= 2);

    /// A sample of 67 packets at 40 Mbit/s, of which 43 may leave at once, and a small one behind them. A planner to which they leave one by one is wrong.
    #[test]
    fn a_planner_whose_paces_let_nothing_leave_at_once_is_found_out() {
        const MS: u64 = 1_000_000;
        let topic = |size: u64, period: u64, pace| {
            let rate = 1e9 / period as f64;
            Topic { size, period, rate, pace, publishers: vec![0], burst: 1, ..Topic::default() }
        };
        let large = topic(100_000, 100 * MS, Some(Pace::Stated(40_000_000)));
        let system = System {
            nodes: vec![Node { cpus: 1, ..Node::default() }, Node { cpus: 1, ..Node::default() }],
            links: vec![Link { between: [0, 1], rate: 100_000_000, mtu: 1500, ..Link::default() }],
            topics: vec![large, topic(100, 10 * MS, None)],
            subscribers: (0..2).map(|topic| Subscriber { topic, node: 1, scale: 1, ..Subscriber::default() }).collect(),
            ..System::default()
        };
        let classes = Classes::new(&system, |_| Class::Normal);
        let sketch = Sketch { system, classes, places: Vec::new() };
        for seed in 0..4 {
            compare_spoilt(&sketch, seed, 4, |_| ()).unwrap();
        }
        assert!(compare_spoilt(&sketch, 0, 4, |stages| paces(stages, |paced| paced.line.burst = 1)).is_err());
    }

    /// Two reserved threads of a node: 1 ms of each 10, and 0.5 ms of each 100, which waits for the first one. A planner that takes 1.2 ms for the
    /// deadline of the second one still admits both, and is wrong.
    #[test]
    fn a_planner_whose_reservations_do_not_wait_for_others_is_found_out() {
        const MS: u64 = 1_000_000;
        let node = || Node { cpus: 1, sched: Some(Sched::Reserved), ..Node::default() };
        let topic = |period: u64, cpu_send: u64| {
            let rate = 1e9 / period as f64;
            Topic { size: 8, period, rate, cpu_send, publishers: vec![0], burst: 1, ..Topic::default() }
        };
        let system = System {
            nodes: vec![node(), node()],
            links: vec![Link { between: [0, 1], rate: 100_000_000, mtu: 1500, ..Link::default() }],
            topics: vec![topic(10 * MS, MS), topic(100 * MS, MS / 2)],
            subscribers: (0..2).map(|topic| Subscriber { topic, node: 1, scale: 1, ..Subscriber::default() }).collect(),
            ..System::default()
        };
        let classes = Classes::new(&system, |_| Class::Normal);
        let sketch = Sketch { system, classes, places: Vec::new() };
        let compared = compare_spoilt(&sketch, 0, 1, |_| ()).unwrap();
        assert_eq!((compared.held.len(), compared.held[1].seen > 3 * MS / 2), (2, true), "{compared:?}");
        let hurried: Spoil = |stages| {
            reserved(stages, |of| {
                of.each.deadline = if of.each.period > 50 * MS { 2 * of.each.runtime } else { of.each.deadline }
            });
        };
        let wrong = compare_spoilt(&sketch, 0, 1, hurried).unwrap_err();
        assert!(wrong.contains("bound 1"), "{wrong}");
    }

    /// The gate of the bounds: with blocking left out the comparison is red, and not by luck: by 9 to 27 of some 155 systems, 12 % over eight
    /// seeds, so that less than one in 40 does not happen by chance. (One in 12, the limit before, was missed by one seed of eight.)
    #[test]
    fn a_planner_without_blocking_is_found_out_by_many_systems() {
        let blocks = |seed: &u64| compare(*seed, 2).is_ok_and(|all| all.held.iter().any(|held| held.blocking > 0));
        let systems = if cfg!(debug_assertions) { 200 } else { 300 };
        let blocked: Vec<u64> = (first()..first() + systems).filter(blocks).collect();
        let found = blocked.iter().filter(|seed| finds_out(**seed, 2, NO_BLOCKING)).count();
        println!("without blocking: {found} of {} systems that have any break a bound", blocked.len());
        assert!(found * 40 > blocked.len() && blocked.len() > 30, "{found} of {}", blocked.len());
    }

    /// Hosts 0 and 1, 100 Mbit/s between them by `htb`, and a topic of each class from the lowest on: bytes, period in us, samples at once.
    fn by_htb(shares: [f64; 4], topics: [(u64, u64, u32); 4]) -> Sketch {
        let node = |name: &str| Node { name: name.into(), cpus: 1, ..Node::default() };
        let (rate, scheduler, shares) = (100_000_000, Scheduler::Htb, Some(shares));
        let link = Link { between: [0, 1], rate, mtu: 1500, scheduler, shares, ..Link::default() };
        let topic = |(name, (size, us, burst)): (&str, (u64, u64, u32))| Topic {
            name: name.into(),
            size,
            period: 1000 * us,
            burst,
            publishers: vec![0],
            ..Topic::default()
        };
        let system = System {
            nodes: vec![node("a"), node("b")],
            links: vec![link],
            topics: ["low", "normal", "high", "critical"].into_iter().zip(topics).map(topic).collect(),
            subscribers: (0..4).map(|topic| Subscriber { topic, node: 1, scale: 1, ..Subscriber::default() }).collect(),
            ..System::default()
        };
        let classes = Classes::new(&system, |topic| Class::ALL[topic]);
        Sketch { system, classes, places: Vec::new() }
    }

    /// The higher classes send small packets until their full buckets are empty: 3200 bytes each, and what comes meanwhile. Normal ones are
    /// more than fits, so that only its share is left to the lowest. A round robin would serve it within 0.3 ms.
    #[test]
    fn a_class_of_htb_waits_for_the_full_buckets_of_higher_ones() {
        let sketch = by_htb([0.25; 4], [(100, 50_000, 1), (100, 7, 100), (100, 5000, 100), (100, 5000, 100)]);
        let compared = compare_spoilt(&sketch, 0, 2, |_| ()).unwrap();
        assert_eq!(compared.unbounded, 1, "the normal class");
        let lowest = compared.held[0];
        assert!(lowest.seen > 1_500_000 && lowest.ratio() < 2.0, "{lowest:?}");
    }

    /// Low samples need 95 % of their share. Higher ones come six at once, no more than their shares, and normal ones without end. Meanwhile
    /// the low bucket, 3200 bytes, is full and loses tokens: low ones wait the longer, the longer it lasts. So they have no bound.
    #[test]
    fn a_share_is_no_guarantee_if_its_bucket_is_shallow() {
        let shares = [0.2, 0.4, 0.2, 0.2];
        let sketch = by_htb(shares, [(1500, 630, 1), (1500, 90, 1), (1500, 610, 6), (1500, 610, 6)]);
        let compared = compare_spoilt(&sketch, 0, 1, |_| ()).unwrap();
        assert_eq!((compared.unbounded, compared.held.len()), (2, 2), "{compared:?}");
        let late = |ms: u64| {
            let Sketch { system, classes, places } = &sketch;
            let stages = Stages::new(system, &Network::new(system), places, classes);
            let run = Run { pattern: Pattern::Late, seed: 1, duration: ms * 1_000_000, events: EVENTS };
            simulate(system, &stages, &run).pairs[0].max
        };
        let (short, long) = (late(100), late(400));
        assert!(long > 3 * short, "{short} {long}");
    }
}
