//! A graph of programs over one engine, on two boards: opened, run, and ended, so that the next engine is alone.

use super::SETTLE;
use super::account::Arrivals;
use super::arm::Arm;
use super::boards::Boards;
use super::program::{Order, Published, ROLE, Report, Unheard};
use super::walker::Program;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{LONG, Part};
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::median;
use linux::clock::monotonic_ns;
use serde_json::Value;
use std::time::{Duration, Instant};
use thalweg::carrier::Dice;

/// Longest wait for the last samples.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest period while programs connect.
const CONNECTING_NS: u64 = 20_000_000;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// From the order to start to the first sample.
const AHEAD_NS: u64 = 100_000_000;

/// A graph over one engine.
pub(super) struct System {
    /// The first of its ports, which tells its realm from others.
    port: u16,
    programs: Vec<Program>,
    parts: Vec<Part>,
}

/// A channel in a run: what was published for it, and what arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    /// The subscriber's program.
    pub program: String,
    /// The topic.
    pub topic: String,
    /// Samples published.
    pub sent: u64,
    /// What arrived.
    pub arrivals: Arrivals,
}

/// One run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Its channels, program by program.
    pub channels: Vec<Channel>,
    /// Stalls of the machine meanwhile.
    pub stalls: Stalls,
    /// Calls of `publish` that the engine refused.
    pub refused: u64,
    /// Threads, and private memory in KiB, of a program (medians).
    pub footprint: [f64; 2],
}

impl System {
    /// Starts the programs, waits until each has heard of all that it subscribes to, and gives its threads their scheduling.
    ///
    /// # Errors
    /// [`Error::Failed`] with the topics that did not come.
    pub(super) fn open(lab: &Lab, boards: &mut Boards, arm: &Arm, programs: &[Program]) -> Result<Self> {
        let mut system = Self { port: boards.ports(), programs: Vec::new(), parts: Vec::new() };
        system.start(lab, boards, arm, programs)?;
        system.connect(lab)?;
        system.schedule(lab)?;
        Ok(system)
    }

    /// Starts the programs of a graph that are not running yet. The others, in the same places, follow its plan from now on.
    pub(super) fn start(&mut self, lab: &Lab, boards: &Boards, arm: &Arm, programs: &[Program]) -> Result {
        let seats = arm.seats(lab, programs, self.port)?;
        let runs = |name: &str| self.programs.iter().any(|program| program.name == name);
        let missing: Vec<_> = seats.into_iter().filter(|seat| !runs(&seat.program().name)).collect();
        let first = self.parts.len();
        for seat in missing {
            let place = boards.place(seat.program().host).first();
            self.parts.push(Part::start(lab, place, ROLE, &seat)?);
            self.programs.push(seat.program().clone());
        }
        self.parts[first..].iter_mut().try_for_each(|part| part.hear::<Value>(lab, LONG).map(drop))?;
        let planned = |program: &mut Program| {
            programs
                .iter()
                .find(|other| other.name == program.name)
                .into_iter()
                .for_each(|new| program.clone_from(new));
        };
        self.programs.iter_mut().for_each(planned);
        Ok(())
    }

    /// Gives all threads their scheduling, once all ends are connected.
    pub(super) fn schedule(&mut self, lab: &Lab) -> Result {
        self.programs.iter().zip(&mut self.parts).try_for_each(|(program, part)| {
            part.ask::<Value>(lab, &Order::Schedule { program: program.clone() }, LONG).map(drop)
        })
    }

    /// Ends the programs of a board at once, as when its power fails. None is left when it returns.
    pub(super) fn kill(&mut self, host: u8) {
        let killed = |program: &Program| program.host == host;
        for (_, part) in self.programs.iter().zip(&self.parts).filter(|(program, _)| killed(program)) {
            // One that has ended already cannot be killed.
            let pid = i32::try_from(part.id()).ok().and_then(rustix::process::Pid::from_raw);
            pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
        let mut hosts = self.programs.iter().map(killed).collect::<Vec<_>>().into_iter();
        self.parts.retain(|_| hosts.next() != Some(true));
        self.programs.retain(|program| !killed(program));
    }

    /// The part of a program.
    pub(super) fn part(&mut self, name: &str) -> Result<&mut Part> {
        let of = self.programs.iter().position(|program| program.name == name);
        of.and_then(|at| self.parts.get_mut(at)).ok_or_else(|| Error::Failed(format!("no program {name} is running")))
    }

    /// Publishes until all have heard of all. What was lost meanwhile found nobody yet.
    pub(super) fn connect(&mut self, lab: &Lab) -> Result {
        let now = monotonic_ns();
        let start = Order::Start { from_ns: now, begin_ns: now, until_ns: u64::MAX, most_ns: CONNECTING_NS };
        self.all::<Value>(lab, &start)?;
        self.heard(lab)?;
        self.all::<Published>(lab, &Order::Finish)?;
        lab.stop.sleep(SETTLE)?;
        self.all::<Report>(lab, &Order::Take).map(drop)
    }

    /// Waits until all have heard of all that they subscribe to.
    pub(super) fn heard(&mut self, lab: &Lab) -> Result {
        let until = Instant::now() + LONG;
        loop {
            let unheard = self.all::<Unheard>(lab, &Order::Heard)?;
            let silent: Vec<String> = unheard.into_iter().flat_map(|unheard| unheard.topics).collect();
            if silent.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::Failed(format!("nothing came of {} within {LONG:?}", silent.join(", "))));
            }
            lab.stop.sleep(LOOK)?;
        }
    }

    /// Lets all publish for so long. Each begins within a period, when the dice say: the same dice give every engine the same phases. Without
    /// dice all begin at once.
    pub(super) fn run(&mut self, lab: &Lab, time: Duration, mut phases: Option<Dice>) -> Result<Run> {
        let monitor = Monitor::start()?;
        let from_ns = monotonic_ns() + AHEAD_NS;
        let until_ns = from_ns + time.as_nanos() as u64;
        for (program, part) in self.programs.iter().zip(&mut self.parts) {
            let period = program.output.as_ref().map_or(1, |output| output.period_ns);
            let begin_ns = from_ns + phases.as_mut().map_or(0, |dice| dice.below(period.min(time.as_nanos() as u64)));
            part.ask::<Value>(lab, &Order::Start { from_ns, begin_ns, until_ns, most_ns: u64::MAX }, LONG)?;
        }
        lab.stop.sleep(Duration::from_nanos(until_ns.saturating_sub(monotonic_ns())))?;
        let footprint = self.footprint();
        let published = self.all::<Published>(lab, &Order::Finish)?;
        let mut run = Run { channels: self.channels(&published), footprint, ..Run::default() };
        run.refused = published.iter().map(|published| published.refused).sum();
        let until = Instant::now() + PATIENCE;
        loop {
            lab.stop.sleep(SETTLE)?;
            let reports = self.all::<Report>(lab, &Order::Take)?;
            let arrivals = reports.into_iter().flat_map(|report| report.inputs);
            run.channels.iter_mut().zip(arrivals).for_each(|(channel, more)| channel.add(more));
            if run.channels.iter().all(Channel::is_whole) || Instant::now() > until {
                break;
            }
        }
        run.stalls = monitor.finish();
        Ok(run)
    }

    /// The channels of a run, with nothing arrived yet.
    fn channels(&self, published: &[Published]) -> Vec<Channel> {
        let sent = |topic: &str| {
            let outputs = self.programs.iter().zip(published);
            let of = outputs.filter(|(program, _)| program.output.as_ref().is_some_and(|output| output.topic == topic));
            of.map(|(_, published)| published.count).sum()
        };
        let channels = self.programs.iter().flat_map(|program| {
            program.inputs.iter().map(|input| Channel {
                program: program.name.clone(),
                topic: input.topic.clone(),
                sent: sent(&input.topic),
                arrivals: Arrivals::default(),
            })
        });
        channels.collect()
    }

    /// Threads, and KiB of memory that is a program's own.
    fn footprint(&self) -> [f64; 2] {
        let text = |part: &Part| std::fs::read_to_string(format!("/proc/{}/status", part.id())).unwrap_or_default();
        let all: Vec<String> = self.parts.iter().map(text).collect();
        let value = |text: &String, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
        };
        ["Threads", "RssAnon"].map(|key| median(&all.iter().map(|text| value(text, key)).collect::<Vec<f64>>()))
    }

    /// Gives all programs an order, and takes their answers.
    pub(super) fn all<T: serde::de::DeserializeOwned>(&mut self, lab: &Lab, order: &Order) -> Result<Vec<T>> {
        self.parts.iter_mut().map(|part| part.ask(lab, order, LONG)).collect()
    }
}

impl Channel {
    fn add(&mut self, more: Arrivals) {
        let Arrivals { samples, chains, again, damaged } = more;
        self.arrivals.samples.extend(samples);
        self.arrivals.chains.extend(chains);
        self.arrivals.again += again;
        self.arrivals.damaged += damaged;
    }

    fn is_whole(&self) -> bool {
        self.arrivals.samples.len() as u64 >= self.sent
    }
}

impl Run {
    /// The samples of some channels: how many were to arrive, and those that did.
    pub(super) fn of(&self, wanted: impl Fn(&Channel) -> bool) -> (u64, Vec<Timed>) {
        let of = || self.channels.iter().filter(|channel| wanted(channel));
        let sent = of().map(|channel| channel.sent).sum();
        (sent, of().flat_map(|channel| channel.arrivals.samples.iter().copied()).collect())
    }

    /// The chains that ended at a program.
    pub(super) fn chains(&self, program: &str) -> Vec<Timed> {
        let of = self.channels.iter().filter(|channel| channel.program == program);
        of.flat_map(|channel| channel.arrivals.chains.iter().copied()).collect()
    }

    /// Samples that came twice or out of order, or were not whole.
    pub(super) fn wrong(&self) -> u64 {
        self.channels.iter().map(|channel| channel.arrivals.again + channel.arrivals.damaged).sum()
    }
}
