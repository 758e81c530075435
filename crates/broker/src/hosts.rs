//! The plan of a domain, and the state of each of its hosts. Pure: times come as arguments, of any monotonic clock.

use crate::domains::Crossing;
use crate::links::Rates;
use crate::planning::{Admitted, Reduction};
use agent::message::{Actual, Desired, End, Exceeded, Host, HostState, SessionChannel, SessionState, State};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Longest silence of an agent: it asks every two seconds (three times, and the time of a request).
pub const SILENT_AFTER: Duration = Duration::from_secs(7);
/// Most hosts that are known without being in the plan.
const MOST_STRANGERS: usize = 1000;
/// Most hosts of a plan.
pub const MOST_HOSTS: usize = 10_000;

/// Most hosts that a text names.
const NAMED: usize = 12;

/// What a broker that starts again has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    /// Number of the broker's starts.
    pub epoch: u64,
    /// Number of the last change.
    pub revision: u64,
    /// The plan's text.
    pub plan: Option<String>,
    /// Hosts that have to have it.
    pub hosts: Vec<String>,
    /// The contract beside which sessions are admitted. `None`: the plan is a user's.
    #[serde(default)]
    pub contract: Option<String>,
    /// The sessions, in the order in which they were first admitted.
    #[serde(default)]
    pub sessions: Vec<Admitted>,
    /// The rates of links that users have stated.
    #[serde(default)]
    pub stated: Rates,
    /// The links for which the plan was made: those that carry less than the contract says.
    #[serde(default)]
    pub links: Rates,
    /// What is taken back because of them.
    #[serde(default)]
    pub reduction: Reduction,
    /// The sessions over several domains that this one had a part in when it started; from then on they are kept for themselves.
    #[serde(skip)]
    pub crossings: Vec<Crossing>,
}

impl Kept {
    /// `true` if the broker plans by itself, and hosts have to have its plan: not when a user has taken that away, until a session is asked for.
    pub fn is_planning(&self) -> bool {
        self.contract.is_some() && self.plan.is_some()
    }
}

/// The plan, and what agents have said.
#[derive(Debug)]
pub struct Hosts {
    kept: Kept,
    heard: BTreeMap<String, Heard>,
}

/// An agent as it was heard.
#[derive(Debug, Default)]
struct Heard {
    at: Duration,
    /// The epoch that it obeyed, if this is a later one than the broker's.
    obeyed: Option<u64>,
    actual: Option<Actual>,
    /// The last revision that it had installed.
    applied: u64,
    repairs: u64,
    repaired: Vec<String>,
}

/// The broker is not the one that a host obeyed last: its directory was removed, or is an old copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The broker's epoch.
    pub epoch: u64,
    /// The later one that the host obeyed.
    pub obeyed: u64,
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, obeyed } = self;
        write!(
            f,
            "this broker has epoch {epoch}, and the host obeyed one of epoch {obeyed}: its --state was removed, or is an old \
             copy; if this is the right one, start it with --epoch {obeyed}, and apply the plan again"
        )
    }
}

impl std::error::Error for Replaced {}

impl Hosts {
    /// A broker that was started once more; its epoch is later than `after`, too. A contract without sessions is not kept: one is stated
    /// at each start, or the broker takes plans.
    pub fn start(kept: Kept, after: u64) -> Self {
        let epoch = kept.epoch.max(after).saturating_add(1);
        let contract = kept.contract.filter(|_| !kept.sessions.is_empty() || !kept.crossings.is_empty());
        Self { kept: Kept { epoch, contract, crossings: Vec::new(), ..kept }, heard: BTreeMap::new() }
    }

    /// What has to be kept.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// What would have to be kept with this plan, or without any: kept first, then [`Self::change`]d to.
    pub fn with(&self, plan: Option<(String, Vec<String>)>) -> Kept {
        // Hosts that leave the plan have to get their former queues back, so they stay known.
        let (plan, mut hosts) = plan.map_or((None, Vec::new()), |(text, hosts)| (Some(text), hosts));
        if plan.is_none() {
            hosts.clone_from(&self.kept.hosts);
        }
        Kept { revision: self.kept.revision + 1, plan, hosts, ..self.kept.clone() }
    }

    /// The change is kept.
    pub fn change(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// A later revision is kept.
    pub fn advance(&mut self, revision: u64) {
        self.kept.revision = revision;
    }

    /// The state that any host has to have.
    pub fn desired(&self) -> Desired {
        let Kept { epoch, revision, plan, .. } = &self.kept;
        Desired { epoch: *epoch, revision: *revision, plan: plan.clone() }
    }

    /// The state for an agent that knows this epoch and revision; `None`: it is no older.
    pub fn newer_than(&self, known: (u64, u64)) -> Option<Desired> {
        (known < (self.kept.epoch, self.kept.revision)).then(|| self.desired())
    }

    /// An agent asked that obeyed a broker of this epoch.
    ///
    /// # Errors
    /// [`Replaced`]: it does not obey this one.
    pub fn asked(&mut self, now: Duration, host: &str, epoch: u64) -> Result<(), Replaced> {
        self.heard(now, host);
        let obeyed = Some(epoch).filter(|obeyed| *obeyed > self.kept.epoch);
        if let Some(heard) = self.heard.get_mut(host) {
            heard.obeyed = obeyed;
        }
        obeyed.map_or(Ok(()), |obeyed| Err(Replaced { epoch: self.kept.epoch, obeyed }))
    }

    /// An agent was heard.
    pub fn heard(&mut self, now: Duration, host: &str) {
        if self.heard.len() < MOST_STRANGERS + MOST_HOSTS || self.heard.contains_key(host) {
            self.heard.entry(host.to_owned()).or_default().at = now;
        }
    }

    /// An agent reported. A report of an earlier broker, or of an earlier change than the last one, is out of date and ignored.
    pub fn reported(&mut self, now: Duration, host: &str, mut actual: Actual) {
        self.heard(now, host);
        let Some(heard) = self.heard.get_mut(host).filter(|_| actual.epoch == self.kept.epoch) else { return };
        if heard.actual.as_ref().is_some_and(|last| last.revision > actual.revision) {
            return;
        }
        let repaired = std::mem::take(&mut actual.repaired);
        heard.repairs += repaired.len() as u64;
        if !repaired.is_empty() {
            heard.repaired = repaired;
        }
        heard.applied = match actual.state {
            State::Applied => actual.revision,
            // What it had it has no more, such as after its device was taken away.
            State::Refused => heard.applied.min(actual.revision.saturating_sub(1)),
        };
        heard.actual = Some(actual);
    }

    /// The state of what came with this revision on all hosts, and the hosts that it waits for, or the one that refused it with its reason.
    pub fn reached(&self, revision: u64) -> (SessionState, Option<String>) {
        let missing = || {
            let heard = |name: &String| self.heard.get(name);
            let has = move |name: &&String| heard(name).is_some_and(|heard| heard.applied >= revision);
            self.kept.hosts.iter().filter(move |name| !has(name)).map(move |name| (name, heard(name)))
        };
        let refused = missing().find_map(|(name, heard)| {
            let actual = heard?.actual.as_ref()?;
            let refused = actual.state == State::Refused && actual.revision >= revision;
            refused.then(|| format!("{name}: {}", actual.because.as_deref().unwrap_or("no reason was given")))
        });
        let waiting: Vec<&str> = missing().map(|(name, _)| name.as_str()).take(NAMED).collect();
        match (refused, waiting.is_empty()) {
            (Some(because), _) => (SessionState::Refused, Some(because)),
            (None, false) => (SessionState::Waiting, Some(format!("waits for {}", waiting.join(", ")))),
            (None, true) => (SessionState::Active, self.behind()),
        }
    }

    /// Hosts that do not have the present plan yet: bounds may differ there from those of the plan.
    fn behind(&self) -> Option<String> {
        let has = |name: &&String| self.heard.get(*name).is_some_and(|heard| heard.applied >= self.kept.revision);
        let behind: Vec<&str> =
            self.kept.hosts.iter().filter(|name| !has(name)).map(String::as_str).take(NAMED).collect();
        let text = || format!("revision {} of the plan is not on {}", self.kept.revision, behind.join(", "));
        (!behind.is_empty()).then(text)
    }

    /// The ends of channels that have their settings, as agents reported last.
    fn ends(&self) -> impl Iterator<Item = &End> {
        let reported = self.heard.values().filter_map(|heard| heard.actual.as_ref());
        reported.flat_map(|actual| &actual.ends).filter(|end| end.because.is_none())
    }

    /// What borders have dropped of sessions that send too much, as agents reported last. Those that are silent say nothing.
    pub fn exceeded(&self, now: Duration) -> impl Iterator<Item = &Exceeded> {
        let there = self.heard.values().filter(move |heard| now.saturating_sub(heard.at) <= SILENT_AFTER);
        there.filter_map(|heard| heard.actual.as_ref()).flat_map(|actual| &actual.exceeded)
    }

    /// Notes the ends of channels that have their settings.
    pub fn mark_set(&self, channels: &mut [SessionChannel]) {
        for end in self.ends() {
            let is_its = |channel: &&mut SessionChannel| {
                (&channel.topic, &channel.publisher, &channel.subscriber)
                    == (&end.topic, &end.publisher, &end.subscriber)
            };
            channels.iter_mut().filter(is_its).for_each(|channel| channel.set.push(end.end));
        }
        for channel in channels {
            channel.set.sort_unstable();
            channel.set.dedup();
        }
    }

    /// All hosts: those of the plan, and those whose agents were heard.
    pub fn list(&self, now: Duration) -> Vec<Host> {
        let planned = self.kept.hosts.iter().map(String::as_str);
        let mut names: Vec<&str> = planned.chain(self.heard.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.host(now, name)).collect()
    }

    fn host(&self, now: Duration, name: &str) -> Host {
        let heard = self.heard.get(name);
        let actual = heard.and_then(|heard| heard.actual.as_ref());
        let desired = self.kept.revision;
        let current = actual.filter(|actual| actual.revision == desired);
        let obeyed = heard.and_then(|heard| heard.obeyed);
        let replaced = obeyed.map(|obeyed| Replaced { epoch: self.kept.epoch, obeyed }.to_string());
        let state = match (heard, current) {
            (None, _) => HostState::Silent,
            (Some(heard), _) if now.saturating_sub(heard.at) > SILENT_AFTER => HostState::Silent,
            (_, None) => HostState::Waiting,
            (_, Some(actual)) if actual.state == State::Refused => HostState::Refused,
            _ => HostState::Applied,
        };
        Host {
            host: name.to_owned(),
            planned: self.kept.hosts.iter().any(|host| host == name),
            desired,
            actual: actual.map(|actual| actual.revision),
            state,
            because: replaced.or_else(|| current.and_then(|actual| actual.because.clone())),
            devices: current.map_or_else(Vec::new, |actual| actual.devices.clone()),
            repairs: heard.map_or(0, |heard| heard.repairs),
            repaired: heard.map_or_else(Vec::new, |heard| heard.repaired.clone()),
            ends: current.map_or_else(Vec::new, |actual| actual.ends.clone()),
            queues: current.map_or_else(Vec::new, |actual| actual.queues.clone()),
            queues_left_out: current.map_or(0, |actual| actual.queues_left_out),
            kept_out: current.map_or_else(Vec::new, |actual| actual.kept_out.clone()),
            exceeded: current.map_or_else(Vec::new, |actual| actual.exceeded.clone()),
            heard_ms: heard.map(|heard| now.saturating_sub(heard.at).as_millis().try_into().unwrap_or(u64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn planned() -> Hosts {
        let mut hosts = Hosts::start(Kept::default(), 0);
        let kept = hosts.with(Some(("plan".into(), vec!["a".into(), "b".into()])));
        hosts.change(kept);
        hosts
    }

    fn actual(revision: u64, state: State) -> Actual {
        let because = (state == State::Refused).then(|| "no device eth0".to_owned());
        Actual { because, devices: vec!["eth0".into()], ..Actual::new(1, revision, state) }
    }

    fn states(hosts: &Hosts, now: u64) -> Vec<(String, HostState)> {
        hosts.list(at(now)).into_iter().map(|host| (host.host, host.state)).collect()
    }

    #[test]
    fn a_host_is_silent_waiting_applied_or_refused() {
        let mut hosts = planned();
        let all = |states: [HostState; 2]| vec![("a".to_owned(), states[0]), ("b".to_owned(), states[1])];
        assert_eq!(states(&hosts, 0), all([HostState::Silent; 2]));
        hosts.heard(at(1), "a");
        hosts.reported(at(1), "b", actual(1, State::Refused));
        assert_eq!(states(&hosts, 2), all([HostState::Waiting, HostState::Refused]));
        assert_eq!(hosts.list(at(2))[1].because.as_deref(), Some("no device eth0"));
        hosts.reported(at(3), "a", actual(1, State::Applied));
        assert_eq!(states(&hosts, 8), all([HostState::Applied, HostState::Refused]));
        assert_eq!(states(&hosts, 9), all([HostState::Applied, HostState::Silent]));
        let kept = hosts.with(None);
        hosts.change(kept);
        assert_eq!(states(&hosts, 3), all([HostState::Waiting, HostState::Waiting]), "until they are as before");
    }

    #[test]
    fn what_a_host_has_no_more_is_not_active_and_what_it_has_not_yet_is_told() {
        let mut hosts = planned();
        ["a", "b"].iter().for_each(|host| hosts.reported(at(1), host, actual(1, State::Applied)));
        assert_eq!(hosts.reached(1), (SessionState::Active, None));
        hosts.reported(at(2), "a", actual(1, State::Refused)); // its device is gone
        assert_eq!(hosts.reached(1), (SessionState::Refused, Some("a: no device eth0".into())));
        hosts.reported(at(3), "a", actual(1, State::Applied));
        let kept = hosts.with(Some(("more".into(), vec!["a".into(), "b".into()])));
        hosts.change(kept);
        hosts.reported(at(4), "a", actual(2, State::Applied));
        hosts.reported(at(4), "b", actual(2, State::Refused));
        let (state, because) = hosts.reached(1);
        assert_eq!((state, because.as_deref()), (SessionState::Active, Some("revision 2 of the plan is not on b")));
        assert_eq!(hosts.reached(2).0, SessionState::Refused);
    }

    #[test]
    fn a_host_that_is_silent_tells_nothing_of_what_its_borders_have_dropped() {
        let mut hosts = planned();
        let dropped = Exceeded { session: "robot/video".into(), packets: 3, ..Exceeded::default() };
        hosts.reported(at(1), "a", Actual { exceeded: vec![dropped.clone()], ..actual(1, State::Applied) });
        let told = |now| hosts.exceeded(at(now)).cloned().collect::<Vec<_>>();
        assert_eq!((told(8), told(9)), (vec![dropped], vec![]));
    }

    #[test]
    fn an_agent_hears_what_is_newer() {
        let mut hosts = planned();
        assert_eq!(hosts.newer_than((0, 0)).map(|desired| desired.revision), Some(1));
        assert_eq!(hosts.newer_than((1, 1)), None);
        let mut again = Hosts::start(hosts.kept().clone(), 0);
        assert_eq!(again.newer_than((1, 1)).map(|desired| (desired.epoch, desired.revision)), Some((2, 1)));
        // A report to the broker from before says nothing about this one.
        again.reported(at(0), "a", actual(1, State::Applied));
        assert_eq!(again.list(at(0))[0].state, HostState::Waiting);
        hosts.reported(at(0), "a", actual(1, State::Applied));
        hosts.reported(at(0), "a", actual(0, State::Refused));
        assert_eq!(hosts.list(at(0))[0].state, HostState::Applied, "an earlier report that came late");
    }

    #[test]
    fn repairs_are_counted_and_the_last_ones_shown() {
        let mut hosts = planned();
        for words in ["one", "two"] {
            let repaired = vec![words.to_owned()];
            hosts.reported(at(0), "a", Actual { repaired, ..actual(1, State::Applied) });
        }
        hosts.reported(at(0), "a", actual(1, State::Applied));
        let host = &hosts.list(at(0))[0];
        assert_eq!((host.repairs, &host.repaired[..]), (2, &["two".to_owned()][..]));
    }

    #[test]
    fn strangers_do_not_fill_the_memory() {
        let mut hosts = planned();
        (0..100_000).for_each(|n| hosts.heard(at(0), &format!("host-{n}")));
        assert!(hosts.heard.len() <= MOST_STRANGERS + MOST_HOSTS);
    }
}
