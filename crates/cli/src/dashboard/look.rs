//! The state of all channels, look by look.

use super::metrics;
use super::server::Snapshot;
use crate::measure;
use crate::participant::Participant;
use crate::top::Rates;
use crate::verify::gather::{Gatherer, TOPIC};
use crate::verify::{change_text, show};
use lab::statistics::rounded;
use qos::plan::Plan;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use thalweg::admin::Request;

/// Entries of the log that are kept.
const MOST_LOGGED: usize = 200;
/// Topics whose stages are measured for the page at the same time.
const MOST_MEASURED: usize = 16;

/// An entry of the log.
#[derive(Clone, Debug, Serialize)]
struct Logged {
    /// Seconds since the start.
    at_s: f64,
    text: String,
}

/// Looks at all channels.
pub(super) struct Looker<'a> {
    began: Instant,
    interval: Duration,
    rates: Rates,
    plan: Option<&'a Plan>,
    gatherer: Option<Gatherer<'a>>,
    /// Topics whose stages are measured.
    measured: BTreeSet<String>,
    known: BTreeSet<(String, String)>,
    log: VecDeque<Logged>,
}

impl<'a> Looker<'a> {
    pub(super) fn new(plan: Option<&'a Plan>, interval: Duration) -> Self {
        Self {
            began: Instant::now(),
            interval,
            rates: Rates::default(),
            plan,
            gatherer: None,
            measured: BTreeSet::new(),
            known: BTreeSet::new(),
            log: VecDeque::new(),
        }
    }

    /// Asks all nodes.
    pub(super) fn look(&mut self, participant: &mut Participant) -> Snapshot {
        participant.tell_events();
        let mut screen = self.rates.look(participant);
        screen.channels.retain(|row| row.channel.topic != TOPIC);
        self.note_channels(
            screen.channels.iter().map(|row| (row.channel.publisher.clone(), row.channel.subscriber.clone())),
        );
        self.judge(participant);
        let verification = self.gatherer.as_ref().map(show::Document::of);
        let state = json!({
            "at_s": self.at_s(), "interval_s": self.interval.as_secs_f64(), "channels": screen.channels, "silent": screen.silent,
            "verification": verification, "log": self.log,
        });
        let metrics = metrics::text(&screen, verification.as_ref());
        Snapshot { state: state.to_string().into(), metrics: metrics.into() }
    }

    fn judge(&mut self, participant: &Participant) {
        let Some(plan) = self.plan else { return };
        let gatherer = self.gatherer.get_or_insert_with(|| Gatherer::new(plan, self.interval));
        let changes = gatherer.look(participant);
        let texts: Vec<String> =
            changes.iter().filter_map(|(index, change)| change_text(gatherer, *index, change)).collect();
        texts.iter().for_each(|text| self.note(text));
    }

    fn note_channels(&mut self, now: impl Iterator<Item = (String, String)>) {
        let now: BTreeSet<_> = now.collect();
        let before = std::mem::replace(&mut self.known, now.clone());
        let first = self.log.is_empty() && before.is_empty();
        let told =
            |what: &str, (publisher, subscriber): &(String, String)| format!("{publisher} → {subscriber}: {what}");
        let opened = now.difference(&before).filter(|_| !first).map(|pair| told("opened", pair));
        let closed = before.difference(&now).map(|pair| told("closed", pair));
        let texts: Vec<String> = opened.chain(closed).collect();
        texts.iter().for_each(|text| self.note(text));
    }

    /// Adds to the log.
    pub(super) fn note(&mut self, text: &str) {
        if self.log.len() == MOST_LOGGED {
            self.log.pop_front();
        }
        self.log.push_back(Logged { at_s: self.at_s(), text: text.to_owned() });
    }

    fn at_s(&self) -> f64 {
        rounded(self.began.elapsed().as_secs_f64(), 1)
    }

    /// The stages of a topic's channels, which are measured from the first call on.
    pub(super) fn stages(&mut self, participant: &Participant, topic: &str) -> Value {
        if !self.measured.contains(topic) {
            if self.measured.len() == MOST_MEASURED {
                self.stop_measuring(participant);
            }
            measure::ask(participant, &participant.others(), &Request::Measure { topic: topic.to_owned(), every: 1 });
            self.measured.insert(topic.to_owned());
        }
        let reports = measure::ask(participant, &participant.others(), &Request::Stages { topic: topic.to_owned() });
        measure::documents(&reports).into()
    }

    /// Nobody looks: no channel is measured any more.
    pub(super) fn rest(&mut self, participant: &Participant) {
        self.stop_measuring(participant);
        if let Some(gatherer) = self.gatherer.take() {
            gatherer.stop_measuring(participant);
        }
        self.rates = Rates::default();
    }

    fn stop_measuring(&mut self, participant: &Participant) {
        for topic in std::mem::take(&mut self.measured) {
            measure::ask(participant, &participant.others(), &Request::Measure { topic, every: 0 });
        }
    }
}
