//! Brokers and agents that are killed (SIGKILL), before each of their writes and messages and at random times, while a session is asked for
//! and stopped. Real processes, nothing in them knows of it (docs/sessions.md, "Faults").
#![allow(clippy::unwrap_used)]

mod call;
mod places;
mod replicas;
mod traffic;
mod way;

use crate::domain::Domain;
use crate::domains::Domains;
use crate::support::{Done, LONG, Running};
use call::{Calls, Tracer};
use places::Place;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use traffic::Traffic;

/// Time between two looks at processes.
const TICK: Duration = Duration::from_millis(2);
/// Latest random time of a kill: a request and a stop take about so long.
const LATEST: Duration = Duration::from_millis(400);

/// When which process is killed.
#[derive(Clone, Debug)]
enum Plan {
    /// Before its call of this number.
    At(usize, Calls, u32),
    /// These, so long after the request.
    After(Vec<(usize, Duration)>),
}

/// What came of all plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Plans that were carried out, and processes that were killed.
    plans: usize,
    kills: usize,
    /// Requests whose asker was told: it is active.
    told: usize,
    /// Sessions that were found in all domains, and in none.
    active: usize,
    none: usize,
}

impl Counts {
    fn with(self, other: Self) -> Self {
        Self {
            plans: self.plans + other.plans,
            kills: self.kills + other.kills,
            told: self.told + other.told,
            active: self.active + other.active,
            none: self.none + other.none,
        }
    }
}

/// A place with its processes.
struct Scene<'a, P: Place> {
    place: &'a P,
    running: Vec<Running>,
    traffic: Traffic,
    /// The queues without and with the session, as they were before the first kill.
    queues: [Vec<String>; 2],
}

impl<'a, P: Place> Scene<'a, P> {
    fn new(place: &'a P) -> Self {
        let running: Vec<Running> = (0..P::PROCESSES.len()).map(|process| place.start(process)).collect();
        eventually("all hosts have their queues", || place.is_installed().then_some(()));
        let traffic = Traffic::new(place.programs());
        let mut scene = Self { place, running, traffic, queues: Default::default() };
        assert_eq!(place.request().finish().code(), 0);
        scene.queues[1] = place.queues();
        assert_eq!(place.stop().finish().code(), 0);
        assert!(!eventually("nothing is left", || place.settled()));
        scene.queues[0] = place.queues();
        scene
    }

    /// Waits until the session is active in all domains (`true`) or in none, and all hosts have the queues that belong to that, and no others.
    fn settled(&self, context: &str) -> bool {
        let look = || self.place.settled().filter(|active| self.place.queues() == self.queues[usize::from(*active)]);
        within(LONG, look).unwrap_or_else(|| panic!("it does not settle: {context}: {}", self.place.shown()))
    }

    /// Asks for the session and stops it, while processes are killed; each starts again at once.
    fn attempt(&mut self, plan: &Plan) -> Counts {
        let mut kills = Vec::new();
        let tracer = match plan {
            Plan::At(process, calls, number) => Some(Tracer::attach(&self.running[*process], *calls, *number).unwrap()),
            Plan::After(all) => {
                kills.clone_from(all);
                None
            }
        };
        let (began, mut counts) = (Instant::now(), Counts { plans: 1, ..Counts::default() });
        let (mut request, mut stop) = (Some(self.place.request()), None);
        let (mut told, mut stopped, mut struck) = (None, None, 0);
        while request.is_some() || stop.is_some() {
            kills.retain(|(process, after)| {
                let is_due = began.elapsed() >= *after;
                if is_due {
                    self.running[*process].signal(rustix::process::Signal::KILL);
                    struck += 1;
                }
                !is_due
            });
            counts.kills += self.start_again();
            if let Some(done) = ended(&mut request) {
                told = Some(done.code() == 0);
                stop = (done.code() == 0).then(|| self.place.stop());
            }
            stopped = ended(&mut stop).map(|done| done.code() == 0).or(stopped);
            std::thread::sleep(TICK);
        }
        struck += usize::from(tracer.is_some_and(Tracer::has_struck));
        // One that was killed at the very end dies a little later.
        while counts.kills < struck {
            counts.kills += self.start_again();
            std::thread::sleep(TICK);
        }
        let context = format!("{plan:?}: told active {told:?}, told stopped {stopped:?}");
        let active = self.settled(&context);
        match (told, stopped) {
            (_, Some(true)) => assert!(!active, "{context}: it is there"),
            (Some(true), None) => assert!(active, "{context}: it is lost"),
            _ => {}
        }
        if active {
            assert_eq!(self.place.stop().finish().code(), 0, "{context}");
        }
        self.ask_anew(&context);
        self.traffic.goes_on(&context);
        Counts {
            told: usize::from(told == Some(true)),
            active: usize::from(active),
            none: usize::from(!active),
            ..counts
        }
    }

    /// Starts again what has ended, after some samples have passed without it. Gives the number of these processes.
    fn start_again(&mut self) -> usize {
        let dead: Vec<usize> = (0..self.running.len()).filter(|process| self.running[*process].has_ended()).collect();
        for process in &dead {
            self.traffic.goes_on(P::PROCESSES[*process]);
            self.place.died(*process);
            self.running[*process] = self.place.start(*process);
        }
        dead.len()
    }

    /// A request passes, and leaves nothing when it is stopped.
    fn ask_anew(&self, context: &str) {
        eventually(context, || (self.place.request().finish().code() == 0).then_some(()));
        assert!(self.settled(context), "{context}");
        assert_eq!(self.place.stop().finish().code(), 0, "{context}");
        assert!(!self.settled(context), "{context}");
    }
}

/// The result of a command that has ended.
fn ended(command: &mut Option<Running>) -> Option<Done> {
    let has_ended = command.as_mut().is_some_and(Running::has_ended);
    command.take_if(|_| has_ended).map(Running::finish)
}

/// Looks until there is something.
fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    within(LONG, look).unwrap_or_else(|| panic!("it never comes: {what}"))
}

fn within<T>(limit: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let until = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(10 * TICK);
    }
}

/// A process of a place, with one kind of its calls: each is a row of points.
type Row = (usize, Calls);

fn rows<P: Place>() -> Vec<Row> {
    (0..P::PROCESSES.len()).flat_map(|process| Calls::ALL.map(|calls| (process, calls))).collect()
}

/// Size of a campaign.
struct Size {
    /// Each point so many times; `None`: of each row one.
    all: Option<usize>,
    schedules: usize,
    /// Places at once.
    places: usize,
}

impl Size {
    /// Larger with `THALWEG_FAULTS` (docs/sessions.md).
    fn wanted() -> Self {
        let wanted = std::env::var("THALWEG_FAULTS").ok().map(|text| text.parse().expect("THALWEG_FAULTS is a number"));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        match wanted {
            Some(times) => Self { all: Some(times), schedules: 50 * times, places: 3 * cpus },
            None => Self { all: None, schedules: 6, places: 3 },
        }
    }
}

/// A seeded stream of numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    /// Of `./test`'s seed, and this number.
    fn new(number: usize) -> Self {
        let seed = std::env::var("THALWEG_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        Self(seed ^ (number as u64) << 32)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    /// One process, or sometimes two, at random times.
    fn schedule(&mut self, processes: usize) -> Plan {
        let victims = 1 + usize::from(self.below(4) == 0);
        let mut one = || (self.below(processes), LATEST.mul_f64(self.below(1000) as f64 / 1e3));
        let mut all: Vec<(usize, Duration)> = (0..victims).map(|_| one()).collect();
        all.dedup_by_key(|(process, _)| *process);
        Plan::After(all)
    }
}

/// Carries out a task in each of several places at once; each takes the next one.
fn campaign<P: Place>(places: &[P], size: &Size) {
    let (rows, began) = (rows::<P>(), Instant::now());
    let jobs = size.all.unwrap_or(1) * rows.len() + size.schedules;
    let (next, sums) = (AtomicUsize::new(0), Mutex::new([Counts::default(); 4]));
    std::thread::scope(|scope| {
        for place in places {
            let (rows, next, sums) = (&rows, &next, &sums);
            scope.spawn(move || {
                let mut scene = Scene::new(place);
                let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|job| *job < jobs);
                while let Some(job) = take() {
                    let (kind, counts) = match rows.get(job % rows.len()).filter(|_| job + size.schedules < jobs) {
                        Some((process, calls)) => (*calls as usize, row(&mut scene, (*process, *calls), size, job)),
                        None => (3, scene.attempt(&Dice::new(job).schedule(P::PROCESSES.len()))),
                    };
                    let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                    sums[kind] = sums[kind].with(counts);
                }
            });
        }
    });
    let sums = sums.into_inner().unwrap();
    for (what, counts) in ["writes", "messages sent", "messages received", "random schedules"].iter().zip(sums) {
        println!("{} at {what}: {counts:?}", P::NAME);
    }
    let killed = sums.into_iter().fold(Counts::default(), Counts::with).kills;
    println!("FIGURE kills: {} killed {killed} times in {:.0?}", P::NAME, began.elapsed());
    assert!(killed * 2 > rows.len(), "only {killed} were killed");
}

/// One row of points: each, until a request and a stop need no more calls; or one of the first ones.
fn row<P: Place>(scene: &mut Scene<'_, P>, (process, calls): Row, size: &Size, job: usize) -> Counts {
    if size.all.is_none() {
        let number = 1 + Dice::new(job).below(calls.most_of_small()) as u32;
        return scene.attempt(&Plan::At(process, calls, number));
    }
    let sum = enumerated(|number| scene.attempt(&Plan::At(process, calls, number)));
    println!("{} at {calls:?}: {} points", P::PROCESSES[process], sum.kills);
    sum
}

/// Each point, until a request and a stop need no more calls. Not every request needs as many: two in a row have to pass.
fn enumerated(mut attempt: impl FnMut(u32) -> Counts) -> Counts {
    let (mut sum, mut beyond) = (Counts::default(), 0);
    for number in 1.. {
        let counts = attempt(number);
        beyond = if counts.kills == 0 { beyond + 1 } else { 0 };
        if beyond == 2 {
            break;
        }
        sum = sum.with(counts);
    }
    sum
}

/// Processes can be traced; else the reason is printed.
fn can_trace(what: &str) -> bool {
    let permitted = Tracer::is_permitted();
    if let Err(why) = &permitted {
        println!("skipped: {what} that are killed because {why}");
    }
    permitted.is_ok()
}

/// The places that can be made here.
fn places<P: Place>(size: &Size, make: impl Fn(&str) -> Option<P>) -> Option<Vec<P>> {
    if !can_trace(P::NAME) {
        return None;
    }
    (0..size.places).map(|_| make(P::NAME)).collect()
}

#[test]
fn a_session_over_three_domains_survives_the_death_of_each_broker_and_agent() {
    let size = Size::wanted();
    let Some(places) = places(&size, Domains::new) else { return };
    campaign(&places, &size);
}

#[test]
fn queues_of_a_domain_survive_the_death_of_its_broker_and_each_agent() {
    let size = Size::wanted();
    let Some(places) = places(&size, Domain::new) else { return };
    campaign(&places, &size);
}
