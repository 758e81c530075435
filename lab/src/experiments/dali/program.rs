//! The role `dali-program`: a program of a graph, over any engine. It publishes on a clock of its own, and notes what its callbacks get.

use super::account::{Account, Arrivals};
use super::arm::{Opened, Seat, Threads, failed};
use super::sample::{self, Stamps};
use super::walker::{Output, Program};
use crate::error::{Error, Result};
use crate::part::Orders;
use engines::{Publisher, Sample, Subscriber, Topic};
use linux::clock::monotonic_ns;
use qos::priority::{Change, Changes, Policy, Scheduling};
use qos::{Qos, Queue};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::Node;
use thalweg::admin::{Reply, Request};
use thalweg::stages::End;

/// The role.
pub(super) const ROLE: &str = "dali-program";
/// The scheduling of all threads with [`Threads::Equal`], below that of the lines.
const EQUAL: Policy = Policy::Fifo(30);
/// Longest sleep between two looks at the stop flag.
const LOOK: u64 = 50_000_000;
/// Longest wait for the program's own node.
const ANSWER: Duration = Duration::from_secs(5);

/// Orders; each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(super) enum Order {
    /// Gives the threads their scheduling, as planned for this program: `{}`.
    Schedule {
        /// The program.
        program: Program,
    },
    /// Publishes at `begin_ns` (CLOCK_MONOTONIC) and each period later, before `until_ns`, and notes what was published from `from_ns` on: `{}`.
    Start {
        /// The beginning of the run, for all programs alike.
        from_ns: u64,
        /// The first time.
        begin_ns: u64,
        /// The end.
        until_ns: u64,
        /// The longest period.
        most_ns: u64,
    },
    /// Publishes no more: [`Published`].
    Finish,
    /// Asks for the inputs that nothing came from yet: [`Unheard`].
    Heard,
    /// Asks how long nothing came from any input: [`Silence`].
    Listen,
    /// Reports the arrivals since the last report: [`Report`].
    Take,
}

/// Samples that were published since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Published {
    /// Their number.
    pub count: u64,
    /// Calls of `publish` that the engine refused.
    pub refused: u64,
}

/// Inputs that nothing came from yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Unheard {
    /// Their topics.
    pub topics: Vec<String>,
}

/// The time since the last publication that was heard of.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Silence {
    /// Nanoseconds.
    pub ns: u64,
}

/// Arrivals, input by input.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// In the order of the program's inputs.
    pub inputs: Vec<Arrivals>,
}

/// Plays the role.
pub(super) fn play(mut orders: Orders) -> Result {
    let seat: Seat = orders.settings()?;
    let Opened { engine, node, offer } = seat.open()?;
    let message = sample::description()?;
    let topic = |name: &str| Topic { name: name.to_owned(), message: message.clone() };
    let (program, offer, request) = (seat.program(), Qos { class: offer, ..qos() }, qos());
    let accounts: Vec<Arc<Account>> = program.inputs.iter().map(|_| Account::new()).collect();
    let subscribe = |(input, account): (&super::walker::Input, &Arc<Account>)| {
        let account = account.clone();
        let deliver = Box::new(move |sample: &Sample<'_>| account.note(sample.message, monotonic_ns()));
        engine.subscriber(&topic(&input.topic), &request, deliver).map_err(failed)
    };
    let subscribers: Vec<Box<dyn Subscriber>> =
        program.inputs.iter().zip(&accounts).map(subscribe).collect::<Result<_>>()?;
    let open = |output: &Output| engine.publisher(&topic(&output.topic), &offer).map_err(failed);
    let publisher: Option<Arc<dyn Publisher>> = program.output.as_ref().map(open).transpose()?.map(Arc::from);
    // A program that is started anew goes on with higher numbers than the one that it replaces had.
    let (mut running, number) = (None, Arc::new(AtomicU64::new(monotonic_ns())));
    orders.say(&json!({}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Schedule { program } => {
                schedule(&seat, &program, node.as_ref())?;
                orders.say(&json!({}))?;
            }
            Order::Start { from_ns, begin_ns, until_ns, most_ns } => {
                accounts.iter().for_each(|account| account.begin(from_ns));
                if let (Some(publisher), Some(output)) = (&publisher, &program.output) {
                    let origin = program.inputs.iter().zip(&accounts);
                    let mut origin = origin.filter(|(input, _)| Some(&input.topic) == output.made_of.as_ref());
                    let clock = Clock {
                        publisher: publisher.clone(),
                        size: output.size,
                        period_ns: output.period_ns.min(most_ns).max(1),
                        begin_ns,
                        until_ns,
                        number: number.clone(),
                        made_of: origin.next().map(|(_, account)| account.clone()),
                    };
                    running = Some(clock.start(publishing(&seat, output)?)?);
                }
                orders.say(&json!({}))?;
            }
            Order::Finish => orders.say(&running.take().map_or(Ok(Published::default()), Running::finish)?)?,
            Order::Heard => {
                let silent = program.inputs.iter().zip(&accounts).filter(|(_, account)| account.last_ns() == 0);
                orders.say(&Unheard { topics: silent.map(|(input, _)| input.topic.clone()).collect() })?;
            }
            Order::Listen => {
                let last = accounts.iter().map(|account| account.last_ns()).max().unwrap_or_default();
                orders.say(&Silence { ns: monotonic_ns().saturating_sub(last) })?;
            }
            Order::Take => orders.say(&Report { inputs: accounts.iter().map(|account| account.take()).collect() })?,
        }
    }
    running.map(Running::finish).transpose()?;
    drop(subscribers);
    Ok(())
}

/// Of each end: nothing is lost, not even behind a stall of the machine.
fn qos() -> Qos {
    Qos { queue: Queue::KeepAll(1000), ..Qos::default() }
}

/// The scheduling of the publishing thread.
fn publishing(seat: &Seat, output: &Output) -> Result<Option<Scheduling>> {
    match (seat.threads, &output.sched) {
        (Threads::Ordinary, _) => Ok(None),
        (Threads::Equal, _) | (Threads::Planned, None) => Ok(Some(EQUAL.into())),
        (Threads::Planned, Some(planned)) => parsed(planned).map(Some),
    }
}

fn parsed(planned: &str) -> Result<Scheduling> {
    planned.parse().map_err(|wrong| Error::Usage(format!("scheduling {planned:?}: {wrong}")))
}

/// Gives the threads their scheduling, once all ends are connected.
fn schedule(seat: &Seat, program: &Program, node: Option<&Node>) -> Result {
    match (seat.threads, node) {
        (Threads::Ordinary, _) => Ok(()),
        (Threads::Planned, Some(node)) => plan_threads(program, node),
        _ => linux::sched::set_process(0, Some(&EQUAL.into()), None)
            .map(drop)
            .map_err(|refused| Error::System(refused.to_string())),
    }
}

/// The receiving thread of each channel, as planned. (The publishing thread sends by itself: nothing is handed over.)
fn plan_threads(program: &Program, node: &Node) -> Result {
    let channels = match node.ask(node.id(), &Request::Channels, ANSWER)? {
        Reply::Channels(channels) => channels,
        other => return Err(Error::Failed(format!("asked for channels, and got {other:?}"))),
    };
    for input in &program.inputs {
        let Some(planned) = &input.sched else { continue };
        let changes = Changes { sched: Change::Set(parsed(planned)?), ..Changes::default() };
        // Of a publisher whose board has just failed there may be a channel still: all get the scheduling, and one must have it.
        let of = channels.iter().filter(|channel| channel.end == End::Subscriber && channel.topic == input.topic);
        let mut set = Err(Error::Failed(format!("no channel of {} is connected", input.topic)));
        for channel in of {
            let one = node.set_priority(&channel.subscriber, &channel.publisher, &changes);
            set = set.or(one.map(drop).map_err(Error::from));
        }
        set?;
    }
    Ok(())
}

/// The clock of a publisher.
struct Clock {
    publisher: Arc<dyn Publisher>,
    size: usize,
    period_ns: u64,
    begin_ns: u64,
    until_ns: u64,
    number: Arc<AtomicU64>,
    made_of: Option<Arc<Account>>,
}

/// One that runs.
struct Running {
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
    thread: JoinHandle<()>,
}

impl Clock {
    fn start(self, scheduling: Option<Scheduling>) -> Result<Running> {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 2]));
        let (asked, counted) = (stop.clone(), counts.clone());
        let settings = linux::thread::Settings { scheduling, ..linux::thread::Settings::named("publish") };
        let (thread, _) = linux::thread::start(settings, move || self.run(&asked, &counted))?;
        Ok(Running { stop, counts, thread })
    }

    /// Publishes what is due, and catches up when late.
    fn run(&self, stop: &AtomicBool, [count, refused]: &[AtomicU64; 2]) {
        let mut message = sample::message(self.size);
        let mut due = self.begin_ns;
        while due < self.until_ns && !stop.load(Relaxed) {
            let left = due.saturating_sub(monotonic_ns());
            if left > 0 {
                std::thread::sleep(Duration::from_nanos(left.min(LOOK)));
                continue;
            }
            let number = self.number.fetch_add(1, Relaxed) + 1;
            let origin_ns = self.made_of.as_ref().map_or(0, |account| account.last_ns());
            let published_ns = monotonic_ns();
            Stamps { number, published_ns, origin_ns }.write(&mut message);
            let sample = Sample {
                topic: "",
                message: &message,
                publisher: 0,
                origin: None,
                change: thalweg::Change::Written,
                age_ns: 0,
                historical: false,
            };
            refused.fetch_add(u64::from(self.publisher.publish(&sample).is_err()), Relaxed);
            count.fetch_add(1, Relaxed);
            due += self.period_ns;
        }
    }
}

impl Running {
    fn finish(self) -> Result<Published> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| Error::Failed("the publishing thread failed".into()))?;
        let [count, refused] = &*self.counts;
        Ok(Published { count: count.load(Relaxed), refused: refused.load(Relaxed) })
    }
}
