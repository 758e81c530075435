//! Settings without effect.

use super::super::evidence::{End, Said};
use super::super::problem::{self, Problem};
use super::{Both, Diagnosis};
use crate::priority::show::blocking;
use thalweg::admin::EndReport;

/// Judges the priority of both ends.
pub(super) fn judge(both: &Both<'_>, found: &mut Diagnosis) {
    found.blocking_us = both.sent.settings.as_ref().and_then(|report| report.blocking_us);
    for (about, end, said) in [("sending", both.publisher, both.sent), ("receiving", both.subscriber, both.received)] {
        let Said { settings: Some(report), .. } = said else { continue };
        found.line(about, describe(report));
        found.problem(marks(end, both, report));
        found.problem(thread(end, both, report));
    }
}

fn describe(report: &EndReport) -> String {
    let thread = match report.tid {
        Some(tid) if report.priority > 0 => format!("thread {tid} {}:{}", report.policy, report.priority),
        Some(tid) => format!("thread {tid} {}", report.policy),
        None if report.asked.sched.is_some() => "on the publishing thread, which has a priority of its own".into(),
        None => "on the publishing thread".into(),
    };
    let mark = report.dscp.map(|dscp| format!(", DSCP {dscp}")).unwrap_or_default();
    let priority = report.socket_priority.map(|p| format!(", socket priority {p}")).unwrap_or_default();
    let place = match &report.device {
        Some(device) if !report.band.is_empty() => format!(", {} of {device}", report.band),
        _ => String::new(),
    };
    format!("{thread}{mark}{priority}{place}{}", blocking(report))
}

/// A mark without effect. Where packets never wait, none is needed.
fn marks(end: &End, both: &Both<'_>, report: &EndReport) -> Option<Problem> {
    let marked = report.tos.is_some_and(|tos| tos >> 2 != 0) || report.socket_priority.is_some_and(|p| p != 0);
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!("the mark of {}'s packets has no effect: {}", end.port.name, report.because);
    let remedy =
        format!("thalweg set {p} {s} class=high where bands are, `thalweg doctor` and `thalweg apply` where not");
    (marked && report.waits && !report.effective).then(|| problem::INEFFECTIVE.found(what, remedy))
}

fn thread(end: &End, both: &Both<'_>, report: &EndReport) -> Option<Problem> {
    let asked = report.asked.sched?;
    // Samples that the publishing thread hands over itself need no other thread with a priority.
    let direct = report.carrier.is_within_host();
    let Some(tid) = report.tid else { return (!direct).then(|| no_thread(end, report)) };
    let has = (report.policy.as_str(), report.priority);
    let wanted = (asked.policy.name(), u32::from(asked.policy.priority()));
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!("thread {tid} of {} should be {asked}, and is {}:{}", end.port.name, has.0, has.1);
    let remedy = format!("thalweg set {p} {s} sched={asked} says why not; `thalweg doctor` in the same place, too");
    (has != wanted).then(|| problem::THREAD.found(what, remedy))
}

/// Samples leave on the publishing thread, which has its own priority.
fn no_thread(end: &End, report: &EndReport) -> Problem {
    let port = &end.port.name;
    let what = format!(
        "sched={} was asked for at {port}, and no thread serves it: {}",
        report.asked.sched.unwrap_or_default(),
        report.note
    );
    let remedy = format!("give the process the priority: thalweg set {port} {port} sched=fifo:30");
    problem::THREAD.found(what, remedy)
}
