//! The agent of Y-17: proposes, or with consent sets, a new assignment when measured values leave the contract.

use super::Arguments;
use super::gather::Gatherer;
use super::tell::Teller;
use crate::apply::undo;
use crate::ends::{self, End, PATIENCE, Which};
use crate::failure::{Failure, Result};
use crate::plan::{Clock, text_of};
use crate::session::Session;
use qos::plan::{FileChange, Plan};
use qos::priority::Changes;
use qos::verification::agent::{self, Choice, Decision, Limits, Setting};
use serde::Serialize;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::Document;

/// An agent, and what it may do.
pub struct Agent {
    agent: agent::Agent,
    may_apply: bool,
}

/// A decision as it is logged.
#[derive(Serialize)]
struct Logged<'a> {
    #[serde(flatten)]
    decision: &'a Decision,
    /// The settings are in force.
    applied: bool,
    /// Why they are not, although they may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Agent {
    /// As the arguments want it; `None`: they want none.
    pub fn new(arguments: &Arguments, plan: &Plan) -> Result<Option<Self>> {
        let Some(contract) = &arguments.agent else { return Ok(None) };
        let limits = Limits { classes: arguments.classes.clone(), every: arguments.decide_every };
        let wrong = |problem| Failure::Usage(format!("{}:{problem}", contract.display()));
        let agent = agent::Agent::new(&text_of(contract)?, plan, limits).map_err(wrong)?;
        Ok(Some(Self { agent, may_apply: arguments.apply }))
    }

    /// Looks at what was measured last, decides if there is something to, and does it if it may. Each decision is logged.
    pub fn look(&mut self, session: &Session, gatherer: &Gatherer<'_>, teller: &mut Teller) -> Result {
        for (index, window) in gatherer.windows.iter().enumerate() {
            if let Some((seconds, window)) = window {
                self.agent.look(index, *seconds, window);
            }
        }
        let Some(decision) = self.agent.decide(gatherer.elapsed(), &mut Clock::new()) else { return Ok(()) };
        let outcome = match decision.decision {
            Choice::Change if self.may_apply => apply(session, gatherer, &decision.settings).map(|()| true),
            choice => Ok(choice == Choice::Keep),
        };
        let (applied, failed) = match outcome {
            Ok(applied) => (applied, None),
            Err(failure) => (false, Some(failure.text().to_owned())),
        };
        if applied {
            self.agent.applied(&mut Clock::new());
        }
        let logged = Logged { decision: &decision, applied, failed };
        teller.publish(&logged);
        session.output.result(&logged, || logged.text(gatherer))
    }
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
        format!("{:.0} s: {choice}: {because}{failed}{settings}{contract}", gatherer.elapsed().as_secs_f64())
    }
}

/// What does the same by hand.
fn commands(gatherer: &Gatherer<'_>, setting: &Setting) -> Vec<String> {
    let Some(Some(running)) = gatherer.running.get(setting.channel) else { return Vec::new() };
    let (publisher, subscriber) = (&running.live.publisher, &running.live.subscriber);
    let ends = [("publisher", &setting.publisher_end), ("subscriber", &setting.subscriber_end)];
    let command = |(end, words): (&str, &String)| format!("thalweg set {publisher} {subscriber} {words} --end {end}");
    ends.into_iter().filter(|(_, words)| !words.is_empty()).map(command).collect()
}

/// Sets all of it, or takes back what was set.
fn apply(session: &Session, gatherer: &Gatherer<'_>, settings: &[Setting]) -> Result {
    let nodes = session.others();
    let mut done: Vec<(End, Changes)> = Vec::new();
    for setting in settings {
        if let Err(failure) = apply_one(session, gatherer, &nodes, setting, &mut done) {
            for (end, before) in done.iter().rev() {
                set(session, end, before).map_or_else(|left| crate::output::tell(left.text()), drop);
            }
            return Err(failure);
        }
    }
    Ok(())
}

fn apply_one(
    session: &Session,
    gatherer: &Gatherer<'_>,
    nodes: &[Document],
    setting: &Setting,
    done: &mut Vec<(End, Changes)>,
) -> Result {
    let Some(Some(running)) = gatherer.running.get(setting.channel) else { return Ok(()) };
    let (publisher, subscriber) = (&running.live.publisher, &running.live.subscriber);
    for (which, words) in [(Which::Publisher, &setting.publisher_end), (Which::Subscriber, &setting.subscriber_end)] {
        let changes: Changes = words.parse().map_err(|e: qos::priority::PriorityError| Failure::No(e.to_string()))?;
        for end in ends::of(nodes, publisher, subscriber, which)? {
            let before = end.get(session)?.into_iter().next().unwrap_or_default();
            done.push((end.clone(), undo(&changes, &before.asked)));
            set(session, &end, &changes)?;
        }
    }
    Ok(())
}

fn set(session: &Session, end: &End, changes: &Changes) -> Result<Vec<EndReport>> {
    let request = Request::Set { port: end.port.clone(), other: end.other.clone(), changes: changes.clone() };
    match session.node.ask(end.node, &request, PATIENCE)? {
        Reply::Settings(reports) => Ok(reports),
        other => Err(Failure::No(format!("an answer that does not fit: {other:?}"))),
    }
}
