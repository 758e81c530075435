//! Bounds with the terms that they are the sum of.

use super::{Analysis, Iteration, StageBound};
use crate::analysis::cpu::reservation::Excess;
use crate::analysis::link::queue::Stay;
use crate::analysis::stages::{Egress, Pair, Role, Step};
use crate::network::Direction;
use crate::system::{Scheduler, System};

/// A place at which time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// A node (index).
    Node(usize),
    /// A link, in this direction.
    Link(Direction),
}

impl Where {
    /// Its name: the node's, or the link's with the node that it leads to.
    pub fn name(self, system: &System) -> String {
        match self {
            Where::Node(node) => system.nodes[node].name.clone(),
            Where::Link(direction) => {
                let [_, to] = direction.ends(system);
                format!("{} to {}", system.links[direction.link].name, system.nodes[to].name)
            }
        }
    }
}

/// The reason why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Because {
    /// Overload of a processor, a link or a class's share: the load in parts per billion of the capacity.
    Overload(Where, u64),
    /// A load so near to the capacity that waiting grows beyond the analysis' limits, or that the budget of steps is used up.
    TooLong(Where),
    /// A pace that is less than the samples take with their headers, for this direction of a link.
    Slow(Direction),
    /// More reserved than a node can give.
    Exceeded(Where, Excess),
    /// Samples that may leave a queue of their own, before this direction of a link, later than their deadline.
    Tokens(Direction),
}

impl Because {
    /// As a sentence.
    pub fn explain(self, system: &System) -> String {
        match self {
            Because::Overload(at, load) => {
                let percent = load.div_ceil(100_000) as f64 / 100.0;
                format!("{} is asked for {percent:.2} % of what it has at this priority", at.name(system))
            }
            Because::TooLong(at) => {
                format!("waiting at {} grows beyond what is followed: its load is too near to 100 %", at.name(system))
            }
            Because::Slow(direction) => format!(
                "its samples take more than their pace with the headers of packets, on the way to {}",
                Where::Link(direction).name(system)
            ),
            Because::Tokens(direction) => format!(
                "its samples may leave their own queue later than their deadline, and then wait for tokens, at {}",
                Where::Link(direction).name(system)
            ),
            Because::Exceeded(at, Excess { needs, has }) => {
                format!("{} is to reserve {needs:.2} processors, and can reserve {has:.2}", at.name(system))
            }
        }
    }
}

/// One part of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The place.
    pub at: Where,
    /// The activity there.
    pub what: &'static str,
    /// The longest time, ns.
    pub ns: u64,
    /// The source of the formula.
    pub source: &'static str,
}

impl Term {
    /// What lower classes or a share's latency cost.
    pub fn blocks(&self) -> bool {
        [BLOCKING, LATENCY].contains(&self.what)
    }
}

const BLOCKING: &str = "blocking by what is being sent";
const LATENCY: &str = "latency of the class's share";

/// The bound of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The longest time from publication to the subscriber's application, ns; or the reason why it is unknown.
    pub ns: Result<u64, Because>,
    /// The shortest, ns: nothing is in the way, and all that is not packets on a wire takes no time.
    pub least: u64,
    /// The terms in the order of the path; their sum is the bound. Up to the first stage without a bound.
    pub terms: Vec<Term>,
}

pub(super) fn report(system: &System, iteration: &Iteration, rounds: u32) -> Analysis {
    let stages = iteration.stages;
    let mut processors = vec![0_u64; stages.processors.len()];
    for stage in &stages.stages {
        if let Step::Compute { processor, execution, .. } = stage.step {
            processors[processor] =
                processors[processor].saturating_add(super::load(&stages.arrivals(stage), execution));
        }
    }
    Analysis {
        pairs: stages.pairs.iter().map(|pair| bound(system, iteration, pair)).collect(),
        queues: (0..stages.egresses.len()).map(|queue| iteration.bounds(queue)).collect(),
        stages: iteration.transits.iter().map(of_stage).collect(),
        processors,
        rounds,
    }
}

fn of_stage(transit: &super::Transit) -> StageBound {
    let jitter = transit.latest.map(|latest| latest.saturating_sub(transit.last));
    StageBound { jitter, stay: transit.stay.map(|stay| stay.time) }
}

fn bound(system: &System, iteration: &Iteration, pair: &Pair) -> Bound {
    let stream = &iteration.stages.streams[pair.stream];
    let topic = &system.topics[stream.topic];
    let mut terms = Terms { list: Vec::new(), until: 0 };
    let publisher = Where::Node(stream.publisher);
    terms.add(publisher, "from the application to the middleware", topic.hand_in, "declared (hand_in, T_appmid)");
    let hand_over = system.hand_over(stream.topic, stream.publisher);
    terms.add(publisher, "handed over to its thread", hand_over, "declared (hand_over)");
    let least = pair.last.map_or(0, |last| super::leaves(iteration.stages, last, &iteration.transits[last]).1);
    let mut way: Vec<usize> = iteration.stages.path(pair).collect();
    way.reverse();
    for stage in way {
        let (Some(latest), Some(stay)) = (iteration.transits[stage].latest, iteration.transits[stage].stay) else {
            let because = iteration.because[stage].unwrap_or(Because::TooLong(iteration.place(stage)));
            return Bound { ns: Err(because), least, terms: terms.list };
        };
        terms.stage(system, iteration, stage, latest, stay);
    }
    let node = Where::Node(system.subscribers[pair.subscriber].node);
    terms.add(node, "from the middleware to the application", topic.hand_out, "declared (hand_out, T_midapp)");
    Bound { ns: Ok(terms.until), least, terms: terms.list }
}

struct Terms {
    list: Vec<Term>,
    until: u64,
}

impl Terms {
    /// Adds a part, unless it takes no time.
    fn add(&mut self, at: Where, what: &'static str, ns: u64, source: &'static str) {
        if ns > 0 {
            self.until = self.until.saturating_add(ns);
            self.list.push(Term { at, what, ns, source });
        }
    }

    /// A stage to which the last packet comes at the latest at `latest`.
    fn stage(&mut self, system: &System, iteration: &Iteration, stage: usize, latest: u64, stay: Stay) {
        let at = iteration.place(stage);
        if let Step::Cross { queue, gathers, .. } = iteration.stages.stages[stage].step {
            let from = iteration.egress(queue).direction.ends(system)[0];
            self.add(Where::Node(from), "gathers", gathers, GATHERS);
            let forwarded = self.until.saturating_add(super::forwarding(iteration.stages, stage));
            let paced = iteration.at_pace(stage, forwarded).map_or(0, |at| at - forwarded);
            self.add(Where::Node(from), "leaves at its pace", paced, PACED);
        }
        self.add(at, "forwarding", super::forwarding(iteration.stages, stage), "declared");
        self.add(at, "rounding", latest.saturating_sub(self.until), "coarse steps of the iteration's late rounds");
        match iteration.stages.stages[stage].step {
            Step::Compute { execution, role, reserved, .. } => {
                let (what, why) = if reserved.is_some() { RESERVED } else { PRIORITY };
                self.add(at, what, stay.time.saturating_sub(execution), why);
                self.add(at, role.what(), execution.min(stay.time), "declared execution time");
            }
            Step::Cross { queue, packets, leaf, .. } => {
                let whose = if leaf.is_some() { OWN_QUEUE } else { CLASS_QUEUE };
                self.link(at, iteration.egress(queue), packets.together_work(), stay, whose);
            }
        }
    }

    fn link(&mut self, at: Where, egress: &Egress, work: u64, stay: Stay, whose: &'static str) {
        let unblocked = stay.time.saturating_sub(stay.blocking);
        let own = work.min(unblocked);
        let higher = stay.higher.min(unblocked - own);
        let (blocked, source) = blocking(egress.scheduler);
        self.add(at, blocked, stay.blocking, source);
        self.add(at, "waiting for higher classes", higher, "what they send meanwhile (Davis et al. 2007)");
        let before = "what came before it (Le Boudec & Thiran 2001, theorem 1.4.2)";
        self.add(at, whose, unblocked - own - higher, before);
        self.add(at, "transmission", own, "bytes on the wire / rate");
        self.add(at, "in the device", egress.ahead, "what the token bucket hands it at once, of any class (sch_tbf.c)");
        self.add(at, "propagation", egress.delay, "declared");
    }
}

fn blocking(scheduler: Scheduler) -> (&'static str, &'static str) {
    match scheduler {
        Scheduler::Fifo => ("blocking", "none"),
        Scheduler::Strict => (BLOCKING, "the largest unit of a lower class (Davis et al. 2007)"),
        Scheduler::Htb => (LATENCY, "its bucket empty, those of higher classes full (Le Boudec & Thiran 2001, §6.2.1)"),
        Scheduler::Hfsc => (LATENCY, "one unit of the largest (Stoica, Zhang & Ng 1997, theorem 2)"),
    }
}

/// The queue in which packets wait.
const CLASS_QUEUE: &str = "waiting in the class's queue";
const OWN_QUEUE: &str = "waiting in its own queue";
/// The source of the wait for other samples.
const GATHERS: &str = "half of the latency budget, 1 ms at most: small samples leave together; and 50 us by which a timer is late (prctl(2), timer slack)";
/// The source of the time of a pace.
const PACED: &str = "bytes of the sample / pace, behind those that came before it";
/// The wait of a thread, and its source.
const PRIORITY: (&str, &str) =
    ("waiting for more urgent threads", "what they compute meanwhile (Audsley et al. 1993; P-24)");
const RESERVED: (&str, &str) = (
    "waiting for the reserved time",
    "until its deadline, or while its supply pauses (Abeni & Buttazzo 1998; Shin & Lee 2003)",
);

impl Role {
    fn what(self) -> &'static str {
        match self {
            Role::Send => "sending",
            Role::Proxy => "scaling at the proxy",
            Role::Receive(_) => "receiving",
        }
    }
}
