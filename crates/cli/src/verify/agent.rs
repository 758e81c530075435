//! The agent of Y-17: proposes, or with consent sets, a new assignment when measured values leave the contract.

use super::gather::Gatherer;
use super::{Arguments, VerdictPublisher};
use crate::apply::host_file::Channel;
use crate::apply::{channels, directory};
use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::Participant;
use crate::plan::{Clock, text_of};
use lab::statistics::rounded;
use qos::plan::{FileChange, Plan};
use qos::verification::agent::{self, Choice, Decision, EXCESS, LOOKS, Limits, Setting};
use serde::Serialize;
use thalweg::proxy::ProxyChanges;

/// An agent, and its limits.
pub(super) struct Agent {
    agent: agent::Agent,
    may_apply: bool,
}

/// An entry of the log of decisions.
#[derive(Serialize)]
struct Logged<'a> {
    /// Seconds since the start.
    at_s: f64,
    #[serde(flatten)]
    decision: &'a Decision,
    /// The settings are in force.
    applied: bool,
    /// The reason why they are not, although they were allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Agent {
    /// The agent of these arguments; `None` if they ask for none.
    pub(super) fn new(arguments: &Arguments, plan: &Plan) -> Result<Option<Self>> {
        let Some(contract) = &arguments.agent else { return Ok(None) };
        let limits = Limits { classes: arguments.classes.clone(), every: arguments.decide_every };
        let wrong = |problem| Failure::Usage(format!("{}:{problem}", contract.display()));
        let said = says(&limits, arguments.apply);
        let agent = agent::Agent::new(&text_of(contract)?, plan, limits).map_err(wrong)?;
        tell(&said);
        Ok(Some(Self { agent, may_apply: arguments.apply }))
    }

    /// Judges the last measurements, decides on a change, and applies it if allowed. Each
    /// decision is logged.
    pub(super) fn look(
        &mut self,
        participant: &Participant,
        gatherer: &Gatherer<'_>,
        verdicts_to: &mut VerdictPublisher,
    ) -> Result {
        for (index, window) in gatherer.windows.iter().enumerate() {
            if let Some((seconds, window)) = window {
                self.agent.look(index, *seconds, window);
            }
        }
        let Some(decision) = self.agent.decide(gatherer.elapsed(), &mut Clock::new()) else { return Ok(()) };
        let outcome = match decision.decision {
            Choice::Change if self.may_apply => apply(participant, gatherer, &decision.settings).map(|()| true),
            choice => Ok(choice == Choice::Keep),
        };
        let (applied, failed) = match outcome {
            Ok(applied) => (applied, None),
            Err(failure) => (false, Some(failure.text().to_owned())),
        };
        if applied {
            self.agent.applied(&mut Clock::new());
        }
        let at_s = rounded(gatherer.elapsed().as_secs_f64(), 3);
        let logged = Logged { at_s, decision: &decision, applied, failed };
        verdicts_to.publish(&logged);
        participant.output.result(&logged, || logged.text(gatherer))
    }
}

/// A description of the agent's limits, for people.
fn says(limits: &Limits, may_apply: bool) -> String {
    let does =
        if may_apply { "sets what it decides (`thalweg restore` takes it back)" } else { "proposes and sets nothing" };
    let classes = limits.classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (percent, every) = (EXCESS * 100.0, limits.every.as_secs_f64());
    format!(
        "agent: {does}; it may give the classes {classes}; it decides when {LOOKS} looks in a row found more than {percent:.0} % above \
         the contract, at most once in {every} s"
    )
}

impl Logged<'_> {
    fn text(&self, gatherer: &Gatherer<'_>) -> String {
        let Decision { decision, because, contract, settings } = self.decision;
        let choice = match (decision, self.applied) {
            (Choice::Keep, _) => "keep",
            (Choice::Refuse, _) => "refuse",
            (Choice::Change, true) => "changed",
            (Choice::Change, false) => "propose",
        };
        let failed = self.failed.as_ref().map(|why| format!("\n  not changed: {why}")).unwrap_or_default();
        let changed = |FileChange { table, name, key, value }: &FileChange| {
            format!("\n  contract: {table} {name}: {key} = {value}")
        };
        let contract: String = contract.iter().map(changed).collect();
        let settings: String =
            settings.iter().flat_map(|setting| commands(gatherer, setting)).map(|c| format!("\n  {c}")).collect();
        format!("{:.0} s: {choice}: {because}{failed}{settings}{contract}", self.at_s)
    }
}

/// Commands that do the same by hand.
fn commands(gatherer: &Gatherer<'_>, setting: &Setting) -> Vec<String> {
    let command = |channel: &Channel| {
        let end = if channel.end == Which::Publisher { "publisher" } else { "subscriber" };
        let Channel { publisher, subscriber, words, .. } = channel;
        format!("thalweg set {publisher} {subscriber} {} --end {end}", words.join(" "))
    };
    ends(gatherer, setting).map(|ends| ends.iter().map(command).collect()).unwrap_or_default()
}

/// Applies all settings or none; `thalweg restore` undoes them.
fn apply(participant: &Participant, gatherer: &Gatherer<'_>, settings: &[Setting]) -> Result {
    let each = settings.iter().map(|setting| ends(gatherer, setting)).collect::<Result<Vec<_>>>()?;
    let all: Vec<(usize, Channel)> = each.into_iter().flatten().map(|end| (0, end)).collect();
    channels::add(participant, &all, &directory()).map(|applied| drop(applied.keep()))
}

/// The settings of either end of a channel.
fn ends(gatherer: &Gatherer<'_>, setting: &Setting) -> Result<Vec<Channel>> {
    let Some(Some(running)) = gatherer.running.get(setting.channel) else { return Ok(Vec::new()) };
    let end = |(end, words): (Which, &String)| {
        let changes = words.parse().map_err(|e: qos::priority::PriorityError| Failure::No(e.to_string()))?;
        let (publisher, subscriber) = (running.live.publisher.clone(), running.live.subscriber.clone());
        let words = words.split(' ').map(str::to_owned).collect();
        Ok(Channel { publisher, subscriber, end, words, changes, proxy: ProxyChanges::default() })
    };
    let both = [(Which::Publisher, &setting.publisher_end), (Which::Subscriber, &setting.subscriber_end)];
    both.into_iter().filter(|(_, words)| !words.is_empty()).map(end).collect()
}
