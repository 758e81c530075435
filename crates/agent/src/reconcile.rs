//! The decisions of an agent. Pure: times come as arguments, of any monotonic clock.
//!
//! What a host has to have is a plan, or nothing. The agent brings it about when it hears of it, and looks every [`LOOK_EVERY`] whether
//! it still holds: what somebody else changed is changed back, and reported. What could not be done is tried again at each look.
//! A plan needs no renewal: without a broker it stays installed, and is kept so.

use crate::message::{
    Actual, Desired, End, Exceeded, KeptOut, LONGEST_NAME, LONGEST_TEXT, MOST_DEVICES, MOST_EXCEEDED, MOST_OF_ENDS,
    MOST_OF_QUEUES, MOST_QUEUES, MOST_REPAIRS, Owner, Queue, State,
};
use std::fmt;
use std::time::Duration;

/// Time between two looks at the host.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What to do with the host's queues now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Make them those of the plan of this text, changing only what differs.
    Install(&'a str),
    /// Make them as they were before the first plan.
    Restore,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The queues are as wanted.
    Done {
        /// Devices with something of ours: queues, a tunnel, a border.
        devices: Vec<String>,
        /// The changes that were needed, in the words of `tc`.
        changes: Vec<String>,
    },
    /// They could not be made, for this reason, and are as before.
    Failed(String),
}

/// A state from a broker that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Its epoch.
    pub epoch: u64,
    /// The lowest that counts.
    pub least: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, least } = self;
        write!(f, "a broker of epoch {epoch} was replaced by one of epoch {least}: it is not obeyed")
    }
}

impl std::error::Error for Stale {}

/// The state of an agent.
#[derive(Debug, Default)]
pub struct Reconciler {
    desired: Desired,
    /// Time of the next look; `None`: there is nothing to look after.
    look_at: Option<Duration>,
    /// The present state was brought about or refused, and reported in this state.
    told: Option<State>,
    /// The last report that was made, and the one that the broker has not heard yet.
    last: Option<Actual>,
    report: Option<Actual>,
    repaired: Vec<String>,
    ends: Vec<End>,
    queues: Vec<Queue>,
    queues_left_out: u64,
    kept_out: Vec<KeptOut>,
    exceeded: Vec<Exceeded>,
}

impl Reconciler {
    /// An agent that was told this before it ended. A plan is looked after at once; that a host is as before needs no look.
    pub fn resume(now: Duration, desired: Desired) -> Self {
        let look_at = desired.plan.as_ref().map(|_| now);
        Self { desired, look_at, ..Self::default() }
    }

    /// What it was told last: epoch, revision and plan.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Takes a state from a broker; `true` if it is new.
    ///
    /// # Errors
    /// [`Stale`]: nothing changes.
    pub fn heard(&mut self, now: Duration, desired: Desired) -> Result<bool, Stale> {
        let known = &self.desired;
        if desired.epoch < known.epoch {
            return Err(Stale { epoch: desired.epoch, least: known.epoch });
        }
        if (desired.epoch, desired.revision) <= (known.epoch, known.revision) {
            return Ok(false);
        }
        // Nothing was ever asked for: the host may have queues that an administrator installed.
        let untouched = desired.revision == 0 && known.revision == 0;
        (self.look_at, self.told) = ((!untouched).then_some(now), None);
        (self.last, self.report, self.desired) = (None, None, desired);
        Ok(true)
    }

    /// The step that is due.
    pub fn step(&self, now: Duration) -> Option<Step<'_>> {
        self.look_at.filter(|at| *at <= now)?;
        Some(self.desired.plan.as_deref().map_or(Step::Restore, Step::Install))
    }

    /// The time of the next step.
    pub fn next_look(&self) -> Option<Duration> {
        self.look_at
    }

    /// Notes the result of a step. Gives the report, if there is news for it.
    pub fn did(&mut self, now: Duration, outcome: Outcome) -> Option<&Actual> {
        let failed = matches!(outcome, Outcome::Failed(_));
        // Where no plan is left, the host is an administrator's again.
        self.look_at = (failed || self.desired.plan.is_some()).then_some(now + LOOK_EVERY);
        let (state, devices, changes, because) = match outcome {
            Outcome::Failed(because) => (State::Refused, Vec::new(), Vec::new(), Some(shorten(because, LONGEST_TEXT))),
            Outcome::Done { devices, changes } => (State::Applied, devices, changes, None),
        };
        // What is changed before a state was reached is no repair.
        let repairs = if self.told == Some(State::Applied) { changes } else { Vec::new() };
        if self.told.replace(state) == Some(state) && repairs.is_empty() {
            return None;
        }
        self.repaired.extend(repairs.into_iter().map(|text| shorten(text, LONGEST_TEXT)));
        self.repaired.drain(..self.repaired.len().saturating_sub(MOST_REPAIRS));
        let Desired { epoch, revision, .. } = self.desired;
        let devices = devices.into_iter().map(|name| shorten(name, LONGEST_TEXT)).take(MOST_DEVICES).collect();
        let (repaired, ends) = (self.repaired.clone(), self.ends.clone());
        let (queues, queues_left_out, kept_out) = (self.queues.clone(), self.queues_left_out, self.kept_out.clone());
        let exceeded = self.exceeded.clone();
        let actual = Actual {
            epoch,
            revision,
            state,
            because,
            devices,
            repaired,
            ends,
            queues,
            queues_left_out,
            kept_out,
            exceeded,
        };
        self.last = Some(actual.clone());
        Some(self.report.insert(actual))
    }

    /// Notes the ends of channels on this host. They are reported where they differ from those of the last report.
    pub fn saw(&mut self, ends: Vec<End>) {
        let bounded = |end: End| End {
            topic: shorten(end.topic, LONGEST_NAME),
            publisher: shorten(end.publisher, LONGEST_NAME),
            subscriber: shorten(end.subscriber, LONGEST_NAME),
            because: end.because.map(|because| shorten(because, LONGEST_NAME)),
            ..end
        };
        let mut bytes = 0;
        let mut fits = |end: &End| {
            bytes += end.size();
            bytes <= MOST_OF_ENDS
        };
        let ends: Vec<End> = ends.into_iter().map(bounded).take_while(|end| fits(end)).collect();
        if ends == self.ends {
            return;
        }
        self.ends.clone_from(&ends);
        self.tell(|last| last.ends = ends);
    }

    /// Notes the counters of the host's queues and borders, which are looked at as often as the queues themselves. They are reported where
    /// they differ from those of the last report.
    pub fn counted(&mut self, queues: Vec<Queue>, kept_out: Vec<KeptOut>, exceeded: Vec<Exceeded>) {
        let owner = |own: Owner| Owner {
            topic: shorten(own.topic, LONGEST_NAME),
            subscriber: shorten(own.subscriber, LONGEST_NAME),
            ..own
        };
        let bounded =
            |queue: Queue| Queue { device: shorten(queue.device, LONGEST_NAME), own: queue.own.map(owner), ..queue };
        let (mut bytes, all) = (0, queues.len());
        let mut fits = |queue: &Queue| {
            bytes += queue.size();
            bytes <= MOST_OF_QUEUES
        };
        let queues = queues.into_iter().map(bounded).take(MOST_QUEUES).take_while(|queue| fits(queue));
        let queues: Vec<Queue> = queues.collect();
        let left_out = (all - queues.len()) as u64;
        let bounded = |kept: KeptOut| KeptOut { device: shorten(kept.device, LONGEST_NAME), ..kept };
        let kept_out: Vec<KeptOut> = kept_out.into_iter().map(bounded).take(MOST_QUEUES).collect();
        let exceeded = most_exceeded(exceeded);
        if (&queues, left_out, &kept_out, &exceeded)
            == (&self.queues, self.queues_left_out, &self.kept_out, &self.exceeded)
        {
            return;
        }
        (self.queues, self.queues_left_out) = (queues.clone(), left_out);
        (self.kept_out, self.exceeded) = (kept_out.clone(), exceeded.clone());
        self.tell(|last| {
            (last.queues, last.queues_left_out) = (queues, left_out);
            (last.kept_out, last.exceeded) = (kept_out, exceeded);
        });
    }

    /// Changes the last report, if there is one, and makes it again.
    fn tell(&mut self, change: impl FnOnce(&mut Actual)) {
        if let Some(last) = &mut self.last {
            change(last);
            self.report = Some(Actual { repaired: self.repaired.clone(), ..last.clone() });
        }
    }

    /// What the broker has not heard yet.
    pub fn report(&self) -> Option<&Actual> {
        self.report.as_ref()
    }

    /// The broker has heard it.
    pub fn reported(&mut self) {
        self.report = None;
        self.repaired.clear();
    }
}

/// Those of the most packets, as far as a report has room.
fn most_exceeded(mut all: Vec<Exceeded>) -> Vec<Exceeded> {
    all.sort_by(|one, other| other.packets.cmp(&one.packets).then_with(|| one.session.cmp(&other.session)));
    let bounded = |one: Exceeded| Exceeded {
        session: shorten(one.session, LONGEST_NAME),
        device: shorten(one.device, LONGEST_NAME),
        ..one
    };
    all.into_iter().take(MOST_EXCEEDED).map(bounded).collect()
}

/// The text, as long as a report may have it.
fn shorten(mut text: String, longest: usize) -> String {
    let end = (0..=longest.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Side;

    const START: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    fn desired(epoch: u64, revision: u64, plan: Option<&str>) -> Desired {
        Desired { epoch, revision, plan: plan.map(str::to_owned) }
    }

    fn done(changes: &[&str]) -> Outcome {
        Outcome::Done { devices: vec!["eth0".into()], changes: changes.iter().map(|c| (*c).to_owned()).collect() }
    }

    /// With plan p, revision 3 of epoch 2, installed and reported.
    fn installed() -> Reconciler {
        let mut agent = Reconciler::default();
        assert_eq!(agent.heard(at(0), desired(2, 3, Some("p"))), Ok(true));
        assert_eq!(agent.step(at(0)), Some(Step::Install("p")));
        agent.did(at(0), done(&["tc qdisc add"]));
        let report = agent.report().cloned().unwrap();
        assert_eq!((report.epoch, report.revision, report.state), (2, 3, State::Applied));
        assert!(report.repaired.is_empty() && report.is_bounded(), "the first changes are no repair: {report:?}");
        agent.reported();
        agent
    }

    #[test]
    fn what_others_change_is_changed_back_and_reported() {
        let mut agent = installed();
        assert_eq!((agent.step(at(9)), agent.step(at(10))), (None, Some(Step::Install("p"))));
        agent.did(at(10), done(&[]));
        assert_eq!(agent.report(), None, "nothing to tell");
        agent.did(at(20), done(&["tc class change"]));
        assert_eq!(agent.report().unwrap().repaired, ["tc class change"]);
        agent.did(at(30), done(&["tc qdisc add"]));
        assert_eq!(agent.report().unwrap().repaired, ["tc class change", "tc qdisc add"], "until it is heard");
        agent.reported();
        agent.did(at(40), done(&[]));
        assert_eq!(agent.report(), None);
    }

    #[test]
    fn an_older_broker_is_not_obeyed() {
        let mut agent = installed();
        assert_eq!(agent.heard(at(1), desired(1, 9, None)), Err(Stale { epoch: 1, least: 2 }));
        assert_eq!(agent.heard(at(1), desired(2, 3, None)), Ok(false));
        assert_eq!(agent.heard(at(1), desired(2, 2, None)), Ok(false));
        assert_eq!((agent.desired().revision, agent.step(at(1))), (3, None));
    }

    /// A broker that starts again keeps the revision, and has not heard of anything yet.
    #[test]
    fn a_new_epoch_is_looked_at_and_reported_at_once() {
        let mut agent = installed();
        assert_eq!(agent.heard(at(1), desired(3, 3, Some("p"))), Ok(true));
        assert_eq!(agent.step(at(1)), Some(Step::Install("p")));
        agent.did(at(1), done(&[]));
        assert_eq!(agent.report().map(|report| report.epoch), Some(3));
    }

    #[test]
    fn what_is_refused_is_tried_again_and_told_once() {
        let mut agent = Reconciler::default();
        agent.heard(at(0), desired(1, 1, Some("p"))).unwrap();
        agent.did(at(0), Outcome::Failed("no device eth0".into()));
        assert_eq!(agent.report().unwrap().because.as_deref(), Some("no device eth0"));
        agent.reported();
        agent.did(at(10), Outcome::Failed("no device eth0".into()));
        assert_eq!(agent.report(), None);
        agent.did(at(20), done(&["tc qdisc add"]));
        let report = agent.report().unwrap();
        assert_eq!((report.state, report.repaired.len()), (State::Applied, 0));
    }

    #[test]
    fn a_host_is_restored_once_and_then_left_alone() {
        let mut agent = installed();
        agent.heard(at(1), desired(2, 4, None)).unwrap();
        assert_eq!(agent.step(at(1)), Some(Step::Restore));
        agent.did(at(1), Outcome::Failed("busy".into()));
        assert_eq!((agent.step(at(2)), agent.step(at(11))), (None, Some(Step::Restore)));
        agent.did(at(11), Outcome::Done { devices: Vec::new(), changes: Vec::new() });
        assert_eq!((agent.next_look(), agent.report().unwrap().state), (None, State::Applied));
        let resumed = Reconciler::resume(at(0), desired(2, 4, None));
        assert_eq!(resumed.step(at(100)), None);
    }

    #[test]
    fn a_host_that_nobody_planned_is_not_touched() {
        let mut agent = Reconciler::default();
        assert_eq!(agent.heard(at(0), desired(1, 0, None)), Ok(true));
        assert_eq!(agent.step(at(100)), None);
    }

    #[test]
    fn an_agent_that_starts_again_looks_after_its_plan_without_a_broker() {
        let agent = Reconciler::resume(at(5), desired(2, 3, Some("p")));
        assert_eq!(agent.step(at(5)), Some(Step::Install("p")));
    }

    #[test]
    fn ends_of_channels_are_reported_when_they_change() {
        let end = |side, because: Option<&str>| End {
            topic: "state".into(),
            publisher: "a".into(),
            subscriber: "/in".into(),
            end: side,
            because: because.map(str::to_owned),
            counts: None,
        };
        let mut agent = Reconciler::default();
        agent.saw(vec![end(Side::Publisher, None)]);
        assert_eq!(agent.report(), None, "nothing is asked for yet");
        agent.heard(at(0), desired(2, 3, Some("p"))).unwrap();
        agent.did(at(0), done(&[]));
        assert_eq!(agent.report().unwrap().ends, [end(Side::Publisher, None)]);
        agent.reported();
        agent.saw(vec![end(Side::Publisher, None)]);
        assert_eq!(agent.report(), None);
        agent.saw(vec![end(Side::Subscriber, Some(&"x".repeat(9999))); 5000]);
        let report = agent.report().unwrap();
        assert_eq!((report.revision, report.state), (3, State::Applied));
        assert!(report.is_bounded() && report.ends.len() > 100, "{}", report.ends.len());
        agent.heard(at(1), desired(2, 4, None)).unwrap();
        agent.saw(Vec::new());
        assert_eq!(agent.report(), None, "a state that is not reached is not reported");
    }

    #[test]
    fn counters_of_queues_are_reported_when_they_change() {
        let queue = |packets| Queue {
            device: "eth0".into(),
            class: Some(qos::Class::High),
            own: None,
            control: false,
            packets,
            bytes: 100 * packets,
            dropped: 0,
            waiting: 0,
        };
        let mut agent = installed();
        agent.counted(vec![queue(7)], Vec::new(), Vec::new());
        let report = agent.report().unwrap();
        assert_eq!((&report.queues[..], report.queues_left_out), (&[queue(7)][..], 0));
        agent.reported();
        agent.counted(vec![queue(7)], Vec::new(), Vec::new());
        assert_eq!(agent.report(), None, "nothing has come since");
        agent.did(at(20), done(&["tc class change"]));
        assert_eq!(agent.report().unwrap().queues, [queue(7)], "with any other news, too");
        let kept = KeptOut { device: "x".repeat(9999), class: qos::Class::Critical, packets: 3, bytes: 400 };
        let exceeded = |packets| Exceeded { session: "x".repeat(9999), packets, ..Exceeded::default() };
        let all = (0..5000).map(exceeded).collect();
        agent.counted(vec![Queue { device: "x".repeat(9999), ..queue(8) }; 5000], vec![kept; 5000], all);
        let report = agent.report().unwrap();
        assert_eq!((report.queues.len(), report.kept_out.len()), (MOST_QUEUES, MOST_QUEUES));
        assert_eq!((report.exceeded.len(), report.exceeded[0].packets), (MOST_EXCEEDED, 4999), "the worst first");
        assert!(report.is_bounded());
        assert_eq!(report.queues_left_out, 5000 - MOST_QUEUES as u64);
        assert_eq!(report.repaired, ["tc class change"], "until it is heard");
        let name = "x".repeat(9999);
        let own = Owner { topic: name.clone(), subscriber: name, rate_bits_per_s: 1 };
        agent.counted(vec![Queue { own: Some(own), ..queue(9) }; 5000], Vec::new(), Vec::new());
        let report = agent.report().unwrap();
        assert!(report.is_bounded() && report.queues.len() > 100, "{}", report.queues.len());
        assert_eq!(report.queues.len() as u64 + report.queues_left_out, 5000);
    }

    #[test]
    fn a_report_is_bounded() {
        let mut agent = installed();
        let long = "ä".repeat(LONGEST_TEXT);
        for round in 0..100 {
            agent.did(at(round), done(&[&long]));
        }
        let report = agent.report().unwrap();
        assert_eq!((report.repaired.len(), report.is_bounded()), (MOST_REPAIRS, true));
    }
}
