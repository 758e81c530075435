//! Each delay's terms, with their sources.

use super::show;
use crate::output::table;
use qos::plan::{Channel, Plan, Term};
use qos::show_time;

/// Every channel, term by term.
pub fn text(plan: &Plan) -> String {
    let mut parts = vec![show::verdict(plan), how_to_read(plan).to_owned()];
    if !plan.refusals.is_empty() {
        parts.push(show::refusals(plan));
    }
    parts.extend(plan.channels.iter().map(channel));
    parts.join("\n\n")
}

fn how_to_read(plan: &Plan) -> &'static str {
    if plan.model.is_mean() {
        "Each line is a step on a sample's way: how long it takes on average, its part of the whole, where and what, and how that is known.\n\
         The last line of each channel is their sum. Lines in brackets stand beside it."
    } else {
        "Each line is a step on a sample's way: the longest it can take, its part of the whole, where and what, and how that is known.\n\
         The last line of each channel is their sum: no sample arrives later. The longest steps are where there is something to gain."
    }
}

fn channel(channel: &Channel) -> String {
    let Channel { topic, publisher, subscriber, node, .. } = channel;
    let proxy = channel.proxy.as_ref().map(|proxy| format!(", scaled at {proxy}")).unwrap_or_default();
    let head = format!("{topic}: {publisher} → {subscriber} at {node}, class {}{proxy}", channel.class);
    let whole: f64 = channel.derivation.iter().map(|term| term.us).sum();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for term in &channel.derivation {
        let part = format!("{:.0} %", 100.0 * term.us / whole.max(f64::MIN_POSITIVE));
        rows.push(row(show_time(term.us), part, &term.name, &term.because));
        let part = |part: &Term| {
            let because = format!("{} = {}", show_time(part.us), part.because);
            row(String::new(), String::new(), &format!("  {}", part.name), &because)
        };
        rows.extend(term.parts.iter().map(part));
    }
    rows.push(row(sum(channel), String::new(), total(channel), &verdict(channel)));
    let beside = |term: &Term| row(format!("({})", show_time(term.us)), String::new(), &term.name, &term.because);
    rows.extend(channel.also.iter().map(beside));
    format!("{head}\n{}", body(&rows))
}

fn row(time: String, part: String, name: &str, because: &str) -> Vec<String> {
    vec!["  ".to_owned(), time, part, name.to_owned(), because.to_owned()]
}

fn sum(channel: &Channel) -> String {
    channel.mean_us.or(channel.bound_us).map_or("no limit".to_owned(), show_time)
}

fn total(channel: &Channel) -> &'static str {
    if channel.mean_us.is_some() { "= mean" } else { "= bound" }
}

fn verdict(channel: &Channel) -> String {
    let loss = channel.loss.map(|loss| format!("; {:.3e} of all samples are lost", loss)).unwrap_or_default();
    let deadline = match (channel.mean_us.or(channel.bound_us), channel.deadline_us) {
        (_, None) => "no deadline".to_owned(),
        (Some(delay), Some(deadline)) if delay <= deadline * (1.0 + 1e-9) => {
            format!("deadline {}: {} to spare", show_time(deadline), show_time((deadline - delay).max(0.0)))
        }
        (_, Some(deadline)) => format!("deadline {}: LATE", show_time(deadline)),
    };
    deadline + &loss
}

/// Rows in columns, without a head.
fn body(rows: &[Vec<String>]) -> String {
    let text = table(&[("", '<'), ("", '>'), ("", '>'), ("", '<'), ("", '<')], rows);
    text.lines().skip(1).collect::<Vec<_>>().join("\n")
}
