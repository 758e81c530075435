//! Priorities of channels that somebody has changed. Nodes tell nobody of it, so each is asked for one of its ports at each look: a change is
//! seen after as many looks as the node has ports, at the latest.

use crate::census;
use crate::participant::Participant;
use qos::priority::PrioritySettings;
use qos::{show_bit_rate, show_time};
use std::collections::{BTreeSet, HashMap};
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::NodeId;

/// An end of a channel: publisher, subscriber, and which of both.
type End = (String, String, String);

/// The settings at the last look.
#[derive(Debug, Default)]
pub(super) struct Settings {
    known: HashMap<End, PrioritySettings>,
    /// Ends that were changed here, which is told already, until the next look at them.
    own: BTreeSet<End>,
    looks: usize,
}

impl Settings {
    /// Asks each node for one of its ports, but those of these names, which have just been silent: each would take its patience once more.
    /// Gives what has changed since, in words.
    pub(super) fn look(
        &mut self,
        participant: &Participant,
        channels: &BTreeSet<(String, String)>,
        silent: &[String],
    ) -> Vec<String> {
        let mut nodes = participant.others();
        nodes.retain(|node| !node.ports.is_empty() && !silent.contains(&node.name));
        self.looks += 1;
        // Of channels that are closed nobody asks any more.
        let is_open = |(publisher, subscriber, _): &End| channels.contains(&(publisher.clone(), subscriber.clone()));
        self.known.retain(|end, _| is_open(end));
        self.own.retain(is_open);
        let port = |node: &thalweg::control::Document| {
            let port = node.ports.values().nth(self.looks % node.ports.len())?;
            Some((node.node, port.name.clone()))
        };
        let asked: HashMap<NodeId, String> = nodes.iter().filter_map(port).collect();
        let request = |node| Request::Get { port: asked.get(&node).cloned().unwrap_or_default(), other: None };
        let replies = census::ask_each(participant, &nodes, request);
        let ends = replies.into_iter().filter_map(|(_, reply)| match reply {
            Some(Reply::Settings(ends)) => Some(ends),
            _ => None, // a port without channels has no settings
        });
        let ends: Vec<EndReport> = ends.flatten().collect();
        ends.into_iter().filter_map(|end| self.compare(end)).collect()
    }

    /// Notes that a channel is changed here.
    pub(super) fn change(&mut self, publisher: &str, subscriber: &str) {
        let end = |end: &str| (publisher.to_owned(), subscriber.to_owned(), end.to_owned());
        self.own.extend(["publisher", "subscriber"].map(end));
    }

    fn compare(&mut self, EndReport { publisher, subscriber, end, asked, .. }: EndReport) -> Option<String> {
        let told = format!("{publisher} → {subscriber}, {end}'s end: {}", words(&asked));
        let end = (publisher, subscriber, end);
        let own = self.own.remove(&end);
        let before = self.known.insert(end, asked.clone())?;
        (before != asked && !own).then(|| format!("{told}, was {}", words(&before)))
    }
}

/// Settings as `thalweg set` has them.
fn words(settings: &PrioritySettings) -> String {
    let PrioritySettings { mark, socket_priority, sched, affinity, pace, police, latency_budget_ns } = settings;
    let cpus = |cpus: &Vec<u16>| cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let words = [
        mark.as_ref().map(ToString::to_string),
        socket_priority.map(|priority| format!("priority={priority}")),
        sched.as_ref().map(|sched| format!("sched={sched}")),
        affinity.as_ref().map(|list| format!("affinity={}", cpus(list))),
        pace.map(|bytes| format!("pace={}", show_bit_rate(8.0 * bytes as f64))),
        police.as_ref().map(|police| format!("police={police}")),
        latency_budget_ns.map(|ns| format!("latency-budget={}", show_time(ns as f64 / 1e3))),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "as its port has it".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Class;
    use qos::priority::Mark;

    fn end(class: Option<Class>) -> EndReport {
        let asked = PrioritySettings { mark: class.map(Mark::Class), ..PrioritySettings::default() };
        let [publisher, subscriber, end] = ["/out", "/in", "publisher"].map(str::to_owned);
        EndReport { publisher, subscriber, end, asked, ..EndReport::default() }
    }

    #[test]
    fn a_change_is_told_once_and_one_of_this_page_not_at_all() {
        let mut settings = Settings::default();
        assert_eq!(settings.compare(end(None)), None, "the first look tells nothing");
        let told = settings.compare(end(Some(Class::High))).unwrap();
        assert_eq!(told, "/out → /in, publisher's end: class high, was as its port has it");
        assert_eq!(settings.compare(end(Some(Class::High))), None);
        settings.change("/out", "/in");
        assert_eq!(settings.compare(end(Some(Class::Low))), None);
        assert!(settings.compare(end(None)).is_some(), "the next change is another one's");
    }
}
