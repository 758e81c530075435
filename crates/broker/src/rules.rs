//! The contract's rules, held against what a user or a neighbouring domain asks for. Pure: what the asker has already comes as an argument, and the
//! decision is made in the same turn as that about the room (SAAA of Velox, §2.2.3: authorisation; V-44).

use agent::peer::Flow;
use qos::contract::joined::Part;
use qos::contract::rule::{Right, Rule, has};
use qos::plan::Refusal;
use qos::system::System;
use qos::{contract, show_bit_rate, show_time};
use std::fmt;
use std::time::Duration;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party<'a> {
    /// A user of this domain, by name or identity.
    User(&'a str),
    /// A user of another domain, by that one's name.
    Domain(&'a str),
}

impl fmt::Display for Party<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(_) => write!(f, "user {}", self.name()),
            Self::Domain(_) => write!(f, "domain {}", self.name()),
        }
    }
}

impl<'a> Party<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::User(owner) => owner.rsplit('/').next().unwrap_or(owner),
            Self::Domain(name) => name,
        }
    }

    fn is_under(self, rule: &Rule) -> bool {
        match self {
            Self::User(_) => has(&rule.users, self.name()),
            Self::Domain(_) => has(&rule.domains, self.name()),
        }
    }

    /// `true` if no rule is for parties of this kind: all may ask for everything.
    pub fn is_free(self, rules: &[Rule]) -> bool {
        match self {
            Self::User(_) => rules.iter().all(|rule| rule.users.is_empty()),
            Self::Domain(_) => rules.iter().all(|rule| rule.domains.is_empty()),
        }
    }
}

/// A session, as rules count it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// bit/s of samples to all its subscribers together, without headers.
    pub rate: u64,
    /// The shortest deadline, ns.
    pub deadline: Option<u64>,
    /// The time after which it ends unless it is asked for again.
    pub lease: Option<Duration>,
    /// Its importance.
    pub importance: i64,
    /// The topics that it has or subscribes to.
    pub topics: Vec<String>,
}

impl Ask {
    /// What a session has in a contract.
    pub(crate) fn of(system: &System, part: &Part) -> Self {
        let mut ask = Self { importance: i64::MIN, ..Self::default() };
        ask.topics = part.topics.iter().map(|index| system.topics[*index].name.clone()).collect();
        for subscriber in part.subscribers.iter().map(|index| &system.subscribers[*index]) {
            let topic = &system.topics[subscriber.topic];
            let size = subscriber.scaled_size.unwrap_or(topic.size);
            let of_one = rate(size, topic.period, subscriber.scale);
            ask.add(&topic.name, of_one.saturating_mul(topic.publishers.len() as u64), subscriber.deadline);
            ask.importance = ask.importance.max(subscriber.importance);
        }
        let of_chains = part.chains.iter().filter_map(|index| system.chains[*index].deadline);
        ask.deadline = ask.deadline.into_iter().chain(of_chains).min();
        ask
    }

    /// What a session over several domains has, where it is asked for.
    pub fn of_wanted(flows: &[contract::flow::Flow]) -> Self {
        let mut ask = Self::default();
        flows.iter().for_each(|flow| ask.add(&flow.topic, rate(flow.size, flow.period, 1), flow.deadline));
        ask
    }

    /// The same in one of those domains.
    pub fn of_flows(flows: &[Flow]) -> Self {
        let mut ask = Self { rate: rate_of(flows), ..Self::default() };
        flows.iter().for_each(|flow| ask.add(&flow.topic, 0, flow.deadline));
        ask
    }

    fn add(&mut self, topic: &str, rate: u64, deadline: Option<u64>) {
        self.rate = self.rate.saturating_add(rate);
        self.deadline = self.deadline.into_iter().chain(deadline).min();
        self.topics.push(topic.to_owned());
    }
}

/// [`Ask::rate`] of flows. Their period is that of the samples that cross borders.
pub fn rate_of(flows: &[Flow]) -> u64 {
    flows.iter().map(|flow| rate(flow.size, flow.period, 1)).fold(0, u64::saturating_add)
}

/// bit/s of samples of so many bytes, of which one of `scale` is sent, rounded up.
fn rate(bytes: u64, period: u64, scale: u32) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    bits.div_ceil(u128::from(period.max(1)) * u128::from(scale.max(1))).try_into().unwrap_or(u64::MAX)
}

/// What somebody has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions.
    pub sessions: u32,
    /// bit/s, as [`Ask::rate`].
    pub rate: u64,
}

impl Usage {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { sessions: self.sessions.saturating_add(other.sessions), rate: self.rate.saturating_add(other.rate) }
    }

    /// With one more session of this rate.
    pub fn with(self, rate: u64) -> Self {
        self.plus(Self { sessions: 1, rate })
    }
}

/// Whether somebody may do what is no session of their own. Nobody stops sessions of others unless a rule says so.
pub fn may(rules: &[Rule], party: Party<'_>, right: Right) -> bool {
    (party.is_free(rules) && right != Right::Stop)
        || rules.iter().any(|rule| party.is_under(rule) && rule.may.contains(&right))
}

/// Permits a session to who has so much already, if one rule does.
///
/// # Errors
/// For each rule of the asker the limit that stands against it.
pub fn permit(rules: &[Rule], party: Party<'_>, ask: &Ask, usage: Usage) -> Result<(), Vec<Refusal>> {
    if party.is_free(rules) {
        return Ok(());
    }
    let own = rules.iter().filter(|rule| party.is_under(rule) && rule.may.contains(&Right::Request));
    let mut against = Vec::new();
    for rule in own {
        match exceeded(rule, party, ask, usage) {
            None => return Ok(()),
            Some(limit) => against.push(limit),
        }
    }
    if against.is_empty() {
        let (what, needs) = ("rules of the contract".to_owned(), format!("a rule for {party}"));
        let because = "no [[rule]] of the contract lets them ask for sessions; they may look".to_owned();
        against.push(Refusal { what, needs, has: "none".to_owned(), because, offers: Vec::new() });
    }
    Err(against)
}

/// The first limit of a rule that a session does not keep.
fn exceeded(rule: &Rule, party: Party<'_>, ask: &Ask, usage: Usage) -> Option<Refusal> {
    let all = usage.with(ask.rate);
    let of = &rule.name;
    let refused = |key: &str, needs: String, limit: String, because: String| {
        Some(Refusal { what: format!("rule {of}: {key}"), needs, has: limit, because, offers: Vec::new() })
    };
    let beside = || {
        let plural = if usage.sessions == 1 { "" } else { "s" };
        format!("{party} has {} session{plural} with {} already", usage.sessions, show_bit_rate(usage.rate as f64))
    };
    if let Some(most) = rule.sessions.filter(|most| all.sessions > *most) {
        return refused("sessions", all.sessions.to_string(), most.to_string(), beside());
    }
    if let Some(most) = rule.rate.filter(|most| all.rate > *most) {
        return refused("rate", show_bit_rate(all.rate as f64), show_bit_rate(most as f64), beside());
    }
    if let Some((least, asked)) = rule.deadline.zip(ask.deadline).filter(|(least, asked)| asked < least) {
        let because = "no shorter deadline may be asked for".to_owned();
        return refused("deadline", time(asked), time(least), because);
    }
    if let Some(longest) = rule.lease.filter(|longest| ask.lease.is_none_or(|lease| lease > *longest)) {
        let needs = ask.lease.map_or_else(|| "no end".to_owned(), |lease| time(lease.as_nanos() as u64));
        let because = "it must be asked for again within this time: state a lease, and use --hold".to_owned();
        return refused("lease", needs, time(longest.as_nanos() as u64), because);
    }
    if let Some(most) = rule.importance.filter(|most| ask.importance > *most) {
        let because = "no higher importance may be asked for".to_owned();
        return refused("importance", ask.importance.to_string(), most.to_string(), because);
    }
    let bare = |name: &str| name.trim_start_matches('/').to_owned();
    let allowed: Vec<String> = rule.topics.as_ref()?.iter().map(|name| bare(name)).collect();
    let other = ask.topics.iter().find(|topic| !has(&allowed, &bare(topic)))?;
    refused("topics", other.clone(), allowed.join(", "), "other topics may not be asked for".to_owned())
}

fn time(ns: u64) -> String {
    show_time(ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::contract::Contract;

    fn rules(text: &str) -> Vec<Rule> {
        let neighbour = "[[node]]\nname = \"a\"\n[[neighbour]]\ndomain = \"wan\"\nvia = \"a\"\nbroker = \"w:1\"\n";
        Contract::read(&format!("{neighbour}{text}")).unwrap().rules
    }

    fn ask(rate: u64) -> Ask {
        let (deadline, lease) = (Some(20_000_000), Some(Duration::from_secs(30)));
        Ask { rate, deadline, lease, importance: 2, topics: vec!["/map".into()] }
    }

    const ANN: Party<'_> = Party::User("thalweg://yard/user/ann");

    fn against(text: &str, asked: &Ask, usage: Usage) -> Vec<String> {
        let found = permit(&rules(&format!("[[rule]]\nname = \"r\"\nusers = [\"ann\"]\n{text}")), ANN, asked, usage);
        found
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|one| format!("{} {} {}", one.what, one.needs, one.has))
            .collect()
    }

    #[test]
    fn each_limit_of_a_rule_is_kept() {
        let (none, some) = (Usage::default(), Usage { sessions: 2, rate: 1_000_000 });
        let late = |ns| Ask { deadline: Some(ns), ..ask(1) };
        let leased = |lease: Option<u64>| Ask { lease: lease.map(Duration::from_secs), ..ask(1) };
        let on = |topics: &[&str]| Ask { topics: topics.iter().map(|topic| (*topic).to_owned()).collect(), ..ask(1) };
        let three = Usage { sessions: 3, rate: 0 };
        for (text, kept, broken, said) in [
            ("sessions = 3\n", (ask(1), some), (ask(1), three), "sessions 4 3"),
            ("rate = \"2 Mbit/s\"\n", (ask(1_000_000), some), (ask(1_100_000), some), "rate 2.1 Mbit/s 2 Mbit/s"),
            ("deadline = \"20 ms\"\n", (ask(1), none), (late(19_000_000), none), "deadline 19 ms 20 ms"),
            (
                "deadline = \"20 ms\"\n",
                (Ask { deadline: None, ..ask(1) }, none),
                (late(1), none),
                "deadline 1 ns 20 ms",
            ),
            ("lease = \"30 s\"\n", (ask(1), none), (leased(None), none), "lease no end 30 s"),
            ("lease = \"29 s\"\n", (leased(Some(1)), none), (ask(1), none), "lease 30 s 29 s"),
            ("importance = 2\n", (ask(1), none), (Ask { importance: 3, ..ask(1) }, none), "importance 3 2"),
            ("topics = [\"ma*\"]\n", (ask(1), none), (on(&["map", "arm"]), none), "topics arm ma*"),
        ] {
            assert_eq!(against(text, &kept.0, kept.1), Vec::<String>::new(), "{text}");
            assert_eq!(against(text, &broken.0, broken.1), [format!("rule r: {said}")], "{text}");
        }
        assert!(against("", &ask(u64::MAX), some).is_empty(), "without limits");
        // One more bit than allowed.
        assert_eq!(against("rate = \"2 Mbit/s\"\n", &ask(1_000_001), some).len(), 1);
    }

    #[test]
    fn one_rule_that_permits_is_enough_and_all_others_are_named() {
        let text = "[[rule]]\nname = \"all\"\nusers = [\"*\"]\nsessions = 1\n[[rule]]\nname = \"ops\"\nusers = [\"ann\"]\nrate = \"1 kbit/s\"\n\
            [[rule]]\nname = \"stops\"\nusers = [\"ann\"]\nmay = [\"stop\"]\n";
        let rules = rules(text);
        let with = |sessions, rate| permit(&rules, ANN, &ask(rate), Usage { sessions, rate: 0 });
        assert_eq!((with(0, 1_000_000), with(1, 1000)), (Ok(()), Ok(())));
        let both = with(1, 1001).unwrap_err();
        assert_eq!(both.iter().map(|one| &*one.what).collect::<Vec<_>>(), ["rule all: sessions", "rule ops: rate"]);
        assert!(may(&rules, ANN, Right::Stop) && !may(&rules, ANN, Right::Links));
        assert!(!may(&rules, Party::User("bob"), Right::Stop));
    }

    #[test]
    fn who_has_no_rule_may_nothing_where_there_are_some() {
        let (of_users, of_domains) = (
            rules("[[rule]]\nname = \"r\"\nusers = [\"bob\"]\n"),
            rules("[[rule]]\nname = \"r\"\ndomains = [\"wan\"]\nsessions = 1\n"),
        );
        let refused = permit(&of_users, ANN, &ask(1), Usage::default()).unwrap_err();
        assert_eq!((&*refused[0].what, &*refused[0].needs), ("rules of the contract", "a rule for user ann"));
        // Rules for users are none for domains, and the other way round.
        assert_eq!(permit(&of_users, Party::Domain("wan"), &ask(1), Usage::default()), Ok(()));
        assert_eq!(permit(&of_domains, ANN, &ask(1), Usage::default()), Ok(()));
        assert!(permit(&of_domains, Party::Domain("base"), &ask(1), Usage::default()).is_err());
        let one = Usage { sessions: 1, rate: 0 };
        assert!(permit(&of_domains, Party::Domain("wan"), &ask(1), Usage::default()).is_ok());
        assert!(permit(&of_domains, Party::Domain("wan"), &ask(1), one).is_err());
        assert!(may(&[], ANN, Right::Links) && !may(&[], ANN, Right::Stop));
    }
}
