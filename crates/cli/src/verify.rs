//! `thalweg verify`: promises of a plan beside measurements of the running channels.
//!
//! | module | contents |
//! |---|---|
//! | [`gather`] | reports of the nodes, look by look |
//! | [`delays`] | stages of a route, from the reports of its ends; stamps of other hosts |
//! | [`own_queues`] | what the kernel dropped in queues of channels' own |
//! | [`control_queues`] | what it sent and dropped in those of control traffic |
//! | [`show`] | the table and the document |
//! | [`agent`] | a new plan when measured values leave the contract |

mod agent;
mod control_queues;
mod delays;
pub(crate) mod gather;
mod own_queues;
pub(crate) mod show;

use crate::failure::{Failure, Result};
use crate::output::{Live, Status, tell};
use crate::participant::{Common, Participant};
use crate::plan::read_plan;
use crate::quantity;
use agent::Agent;
use clap::Args;
use gather::{Gatherer, Running, TOPIC};
use qos::Class;
use qos::verification::{Change, Judged, Verdict};
use serde::Serialize;
use serde_json::json;
use show::Document;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg::Publisher;
use thalweg::admin::Request;
use thalweg::control;

/// Compare the running channels with the promises of their plan: kept, at risk (90 % of the bound and more) or
/// broken, and in which stage the time went
///
/// The plan's channels are found by topic, subscriber's port and publisher's node, with the relay between if there is one. Each verdict
/// that changes is a line on standard error, an event at both ends, and a sample of the topic /thalweg/verification; on a terminal a
/// line shows how things are now. The table says how they were all the time: a promise that was broken once is broken.
/// Exit code 1 when one is, or nothing could be compared.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg verify plan.toml --for 60s\n         thalweg verify plan.toml --watch\n         thalweg sub /thalweg/verification\n         thalweg verify plan.toml --watch --agent system.toml --apply --classes low,normal,high"
)]
pub(crate) struct Arguments {
    /// The plan: the file that `thalweg plan system.toml -o plan.toml` wrote
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Duration of the measurement [default: 10s; with --watch: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = quantity::seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// Pause between two looks; a verdict changes at most once in it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = quantity::seconds, allow_negative_numbers = true)]
    interval: Duration,
    /// Show the state after each look
    #[arg(long)]
    watch: bool,
    /// Plan anew when rates, sizes or execution times exceed this contract's (the plan's) by a tenth in three looks, and propose
    /// the settings that follow; each decision is shown with its reason
    #[arg(long, value_name = "CONTRACT", help_heading = "Agent")]
    agent: Option<PathBuf>,
    /// Set what the agent proposes, all of a proposal or nothing
    #[arg(long, requires = "agent", help_heading = "Agent")]
    apply: bool,
    /// The classes that the agent may give
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',', default_value = "low,normal,high", value_parser = quantity::class(), requires = "agent", help_heading = "Agent")]
    classes: Vec<Class>,
    /// The agent decides at most once in this time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::seconds, requires = "agent", help_heading = "Agent")]
    decide_every: Duration,
    #[command(flatten)]
    common: Common,
}

/// Measures, shows the result, and switches the measurement off, also when interrupted.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut plan = read_plan(&arguments.plan)?;
    plan.channels.retain(|channel| !channel.pipe); // no program has its ports
    let mut agent = Agent::new(arguments, &plan)?;
    let mut participant = arguments.common.open("verify")?;
    participant.settled();
    let mut gatherer = Gatherer::new(&plan, arguments.interval);
    let measured = measure(arguments, &mut participant, &mut gatherer, &mut agent);
    gatherer.stop_measuring(&participant);
    measured.and_then(|()| finish(arguments, &gatherer))
}

/// Looks at intervals, and once more when interrupted, and reports changes.
fn measure(
    arguments: &Arguments,
    participant: &mut Participant,
    gatherer: &mut Gatherer<'_>,
    agent: &mut Option<Agent>,
) -> Result {
    let mut verdicts_to = VerdictPublisher::open(participant)?;
    let mut screen = Screen { watch: arguments.watch, live: Live::default(), status: Status::default() };
    let duration = arguments.duration.or((!arguments.watch).then_some(DEFAULT));
    gatherer.look(participant);
    let (started, mut goes_on) = (Instant::now(), true);
    let left =
        || duration.map_or(arguments.interval, |whole| whole.saturating_sub(started.elapsed()).min(arguments.interval));
    while goes_on && !left().is_zero() {
        goes_on = participant.stop.sleep_until(Instant::now() + left());
        let changes = gatherer.look(participant);
        verdicts_to.tell(participant, gatherer, &changes);
        screen.tell(gatherer, &changes);
        if let Some(agent) = agent {
            agent.look(participant, gatherer, &mut verdicts_to)?;
        }
        screen.show(participant, gatherer)?;
    }
    screen.status.clear();
    Ok(())
}

/// The display during the measurement.
struct Screen {
    watch: bool,
    live: Live,
    status: Status,
}

impl Screen {
    /// Reports verdicts that changed; with --watch the table shows them.
    fn tell(&mut self, gatherer: &Gatherer<'_>, changes: &[(usize, Change)]) {
        self.status.clear();
        let changes = changes.iter().filter(|_| !self.watch);
        changes.filter_map(|(index, change)| change_text(gatherer, *index, change)).for_each(|line| tell(&line));
    }

    /// Shows the current state: the table, or a line.
    fn show(&mut self, participant: &mut Participant, gatherer: &Gatherer<'_>) -> Result {
        let document = Document::of(gatherer);
        match (self.watch, participant.output.json) {
            (true, true) => participant.output.document(&document)?,
            (true, false) => self.live.show(&document.text())?,
            (false, _) => {}
        }
        participant.tell_events();
        if !self.watch {
            self.status.show(&document.line());
        }
        Ok(())
    }
}

/// Prints the final result if it was not printed yet, and returns the exit code.
fn finish(arguments: &Arguments, gatherer: &Gatherer<'_>) -> Result {
    let document = Document::of(gatherer);
    if !arguments.watch {
        arguments.common.output().result(&document, || document.text())?;
    }
    match (document.pass, document.nothing_compared()) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::No(
            "no channel of the plan could be compared: `thalweg list channels` shows what runs; topics and subscribers have the names of the contract".to_owned(),
        )),
        (false, false) => Err(Failure::No(String::new())),
    }
}

/// The publisher of verdicts: a changed one is an event for the programs at both ends, and a sample for subscribers of
/// the topic.
struct VerdictPublisher(Publisher<String>);

impl VerdictPublisher {
    /// Opens the publisher.
    fn open(participant: &Participant) -> Result<Self> {
        Ok(Self(participant.node.publisher::<String>(TOPIC).open()?))
    }

    /// Reports each change.
    fn tell(&mut self, participant: &Participant, gatherer: &Gatherer<'_>, changes: &[(usize, Change)]) {
        let nodes = if changes.is_empty() { Vec::new() } else { participant.others() };
        for (index, change) in changes {
            let Some(planned) = gatherer.plan.channels.get(*index) else { continue };
            let sample = json!({
                "plan": gatherer.plan.contract.hash, "topic": planned.topic, "publisher": planned.publisher,
                "subscriber": planned.subscriber, "verdict": change.new.verdict, "was": change.old,
                "because": change.new.because,
            });
            self.publish(&sample);
            if let Some(running) = &gatherer.running[*index] {
                tell_ends(participant, &nodes, running, change);
            }
        }
    }

    /// Publishes a sample; there need not be a subscriber.
    fn publish(&mut self, sample: &impl Serialize) {
        let text = serde_json::to_string(sample).unwrap_or_default();
        let _ = self.0.publish(&text);
    }
}

/// A change for people. A channel that is kept at its first look is no news.
pub(crate) fn change_text(gatherer: &Gatherer<'_>, index: usize, change: &Change) -> Option<String> {
    let planned = gatherer.plan.channels.get(index)?;
    let Judged { verdict, because } = &change.new;
    let news = (change.old, *verdict) != (Verdict::Unknown, Verdict::Kept);
    let why = if because.is_empty() { String::new() } else { format!(": {because}") };
    let (at, old) = (gatherer.elapsed().as_secs_f64(), change.old);
    news.then(|| format!("{at:.0} s: {} → {}: {verdict}, was {old}{why}", planned.topic, planned.subscriber))
}

fn tell_ends(participant: &Participant, nodes: &[control::Document], running: &Running, change: &Change) {
    let (publisher, subscriber) = (&running.live.publisher, &running.live.subscriber);
    let request = Request::Verdict {
        publisher: publisher.clone(),
        subscriber: subscriber.clone(),
        verdict: change.new.verdict.to_string(),
        because: change.new.because.clone(),
    };
    let has_one =
        |node: &&control::Document| node.ports.values().any(|port| port.name == *publisher || port.name == *subscriber);
    for node in nodes.iter().filter(has_one) {
        let _ = participant.node.ask(node.node, &request, PATIENCE); // one that went meanwhile needs no news
    }
}

/// Duration of the measurement without `--for`.
const DEFAULT: Duration = Duration::from_secs(10);
/// Time after which a slow node is not told.
const PATIENCE: Duration = Duration::from_millis(500);
