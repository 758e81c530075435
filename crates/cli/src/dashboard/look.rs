//! The state of all channels, look by look.

#[cfg(feature = "sessions")]
use super::admissions::Admissions;
use super::log::{Kind, Log};
use super::metrics;
use super::server::Snapshot;
use super::settings::Settings;
use super::stages::Stages;
use super::topology::Topology;
use crate::participant::Participant;
use crate::top::Rates;
use crate::verify::gather::{Gatherer, TOPIC};
use crate::verify::{change_text, show};
use qos::plan::Plan;
use qos::system::System;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Looks at all channels.
pub(super) struct Looker<'a> {
    interval: Duration,
    rates: Rates,
    plan: Option<&'a Plan>,
    gatherer: Option<Gatherer<'a>>,
    stages: Stages,
    /// The channels at the last look; `None` before the first one.
    known: Option<BTreeSet<(String, String)>>,
    topology: Topology<'a>,
    settings: Settings,
    #[cfg(feature = "sessions")]
    admissions: Option<Admissions>,
    log: Log,
}

impl<'a> Looker<'a> {
    /// A looker that judges by a plan, and draws its network as a contract has it.
    pub(super) fn new(plan: Option<&'a Plan>, contract: Option<&System>, interval: Duration) -> Self {
        Self {
            interval,
            rates: Rates::default(),
            plan,
            gatherer: None,
            stages: Stages::default(),
            known: None,
            topology: Topology::new(plan, contract),
            settings: Settings::default(),
            #[cfg(feature = "sessions")]
            admissions: None,
            log: Log::new(),
        }
    }

    /// Notes what a broker admits, too.
    #[cfg(feature = "sessions")]
    pub(super) fn follow(&mut self, admissions: Admissions) {
        self.admissions = Some(admissions);
    }

    /// Asks all nodes.
    pub(super) fn look(&mut self, participant: &mut Participant) -> Snapshot {
        participant.tell_events();
        let mut screen = self.rates.look(participant);
        self.stages.looked(&screen.silent, Instant::now());
        screen.channels.retain(|row| row.channel.topic != TOPIC);
        let channels =
            screen.channels.iter().map(|row| (row.channel.publisher.clone(), row.channel.subscriber.clone()));
        self.note_channels(participant, channels.collect(), &screen.silent);
        self.judge(participant);
        self.note_admissions();
        let map = self.topology.svg(participant, &screen, self.gatherer.as_ref());
        let verification = self.gatherer.as_ref().map(show::Document::of);
        let state = json!({
            "at_s": self.log.at_s(), "interval_s": self.interval.as_secs_f64(), "channels": screen.channels, "silent": screen.silent,
            "verification": verification, "log": self.log.entries(),
        });
        let metrics = metrics::text(&screen, verification.as_ref());
        Snapshot { state: state.to_string().into(), metrics: metrics.into(), map: map.into() }
    }

    fn judge(&mut self, participant: &Participant) {
        let Some(plan) = self.plan else { return };
        let gatherer = self.gatherer.get_or_insert_with(|| Gatherer::new(plan, self.interval));
        let changes = gatherer.look(participant);
        for (index, change) in &changes {
            change_text(gatherer, *index, change).into_iter().for_each(|text| self.log.note(Kind::Promise, text, ""));
        }
    }

    /// Notes channels that have come and gone, and those of which somebody has changed the priority.
    fn note_channels(&mut self, participant: &Participant, now: BTreeSet<(String, String)>, silent: &[String]) {
        let set = self.settings.look(participant, &now, silent);
        if let Some(before) = &self.known {
            let told =
                |what: &str, (publisher, subscriber): &(String, String)| format!("{publisher} → {subscriber}: {what}");
            let opened = now.difference(before).map(|pair| told("opened", pair));
            let closed = before.difference(&now).map(|pair| told("closed", pair));
            opened.chain(closed).for_each(|text| self.log.note(Kind::Channel, text, ""));
        }
        set.into_iter().for_each(|text| self.log.note(Kind::Setting, text, ""));
        self.known = Some(now);
    }

    #[cfg(feature = "sessions")]
    fn note_admissions(&mut self) {
        let Some(admissions) = &self.admissions else { return };
        admissions.watch(true);
        for one in admissions.take() {
            self.log.note_at(one.at_unix_ms, Kind::Admission, one.text, &one.by);
        }
    }

    #[cfg(not(feature = "sessions"))]
    fn note_admissions(&mut self) {}

    /// Notes that the page has set the priority of a channel, or was refused.
    pub(super) fn note_set(&mut self, text: &str, channel: Option<(&str, &str)>) {
        if let Some((publisher, subscriber)) = channel {
            self.settings.change(publisher, subscriber);
        }
        self.log.note(Kind::Setting, text.to_owned(), "the page, with the token");
    }

    /// The stages of a topic's channels, which are measured from the first call on.
    pub(super) fn stages(&mut self, participant: &Participant, topic: &str) -> Value {
        self.stages.of(participant, topic)
    }

    /// Nobody looks: no channel is measured any more.
    pub(super) fn rest(&mut self, participant: &Participant) {
        self.stages.rest(participant);
        if let Some(gatherer) = self.gatherer.take() {
            gatherer.stop_measuring(participant);
        }
        self.rates = Rates::default();
        self.rest_admissions();
    }

    #[cfg(feature = "sessions")]
    fn rest_admissions(&self) {
        self.admissions.iter().for_each(|admissions| admissions.watch(false));
    }

    #[cfg(not(feature = "sessions"))]
    fn rest_admissions(&self) {}
}
