//! What others see of a domain's sessions: users, and the agents of its hosts.

use super::{Crossing, Domains, Neighbour, Phase};
use agent::message::{DomainPart, Pipe, Session, SessionChannel, SessionState};
use agent::peer::{Flow, Key, Menu};
use qos::plan::Channel;
use qos::priority::Policing;

/// Mark of a name in another domain: `DOMAIN/NODE`.
const ABROAD: char = '/';

impl Domains {
    /// The neighbours.
    pub fn neighbours(&self) -> &[Neighbour] {
        &self.neighbours
    }

    /// The session of a name that was asked for here, in its latest version that is active, or was.
    pub fn find(&self, name: &str) -> Option<&Crossing> {
        let of_name = self.versions(&self.name, name).filter(|one| one.asker.is_some() && !one.is_question());
        of_name.max_by_key(|one| (one.phase == Phase::Committed, one.key.version))
    }

    /// The sessions that were asked for here, one version of each.
    pub fn own(&self) -> Vec<&Crossing> {
        let mut names: Vec<&str> = self.asked_here().map(|one| one.key.session.as_str()).collect();
        names.dedup(); // keys are in order
        names.into_iter().filter_map(|name| self.find(name)).collect()
    }

    /// The channels of these sessions came with this revision of the plan.
    pub fn came_with<'a>(&mut self, revision: u64, keys: impl IntoIterator<Item = &'a Key>) {
        for key in keys {
            if let Some(one) =
                self.crossings.get_mut(key).filter(|one| one.phase == Phase::Committed && one.revision == 0)
            {
                one.revision = revision;
            }
        }
    }

    /// `true` if a session of this name that is committed has this topic and an end here.
    pub fn has_topic(&self, session: &str, topic: &str) -> bool {
        let bare = |name: &str| name.trim_start_matches('/').to_owned();
        let lives = self.crossings.values().filter(|one| one.is_active() && one.key.session == session);
        lives.flat_map(|one| &one.flows).any(|flow| flow.domain == self.name && bare(&flow.topic) == bare(topic))
    }

    /// The keys of all of them.
    pub fn keys(&self) -> Vec<Key> {
        self.crossings.keys().cloned().collect()
    }

    /// Forgets a session that was only asked about.
    pub fn forget(&mut self, key: &Key) -> Option<Crossing> {
        let quoted = self.crossings.get(key).is_some_and(|one| one.phase == Phase::Quoting);
        quoted.then(|| self.crossings.remove(key)).flatten()
    }

    /// The name of some session that it has a part in.
    pub fn any(&self) -> Option<String> {
        self.crossings.keys().next().map(ToString::to_string)
    }

    fn asked_here(&self) -> impl Iterator<Item = &Crossing> {
        self.crossings.values().filter(|one| one.asker.is_some() && !one.is_question())
    }

    /// The pipes, with what is sold of each.
    pub fn pipes(&self) -> Vec<Pipe> {
        let sizes = self.ledger.sizes();
        let shown = |(pipe, sold): (&crate::ledger::Pipe, qos::admission::Bucket)| Pipe {
            pipe: pipe.name.clone(),
            from: pipe.from.clone(),
            to: pipe.to.clone(),
            class: pipe.class,
            bound_us: pipe.bound as f64 / 1e3,
            price: pipe.price,
            rate_bits_per_s: pipe.whole.rate,
            sold_bits_per_s: sold.rate,
            burst_bytes: pipe.whole.burst,
            sold_bytes: sold.burst,
            carries_bits_per_s: sizes.get(&pipe.name).map(|size| size.rate),
        };
        self.ledger.pipes().map(shown).collect()
    }

    /// The channels of a session that have an end here, for the agents of hosts: none unless it is committed.
    pub fn channels_of(&self, key: &Key) -> Vec<Channel> {
        let Some(one) = self.crossings.get(key).filter(|one| one.phase == Phase::Committed) else { return Vec::new() };
        let flows = one.flows.iter().zip(&one.menus).enumerate();
        let here = flows.filter(|(_, (flow, _))| one.passed.is_empty() || flow.domain == self.name);
        here.filter_map(|(at, (flow, menu))| self.channel(one, (flow, one.scale(at)), menu)).collect()
    }

    /// Those of all committed sessions.
    #[cfg(test)]
    pub fn channels(&self) -> Vec<Channel> {
        self.crossings.keys().flat_map(|key| self.channels_of(key)).collect()
    }

    fn channel(&self, crossing: &Crossing, (flow, scale): (&Flow, u32), menu: &Menu) -> Option<Channel> {
        let class = *menu.keys().next()?;
        let is_first = crossing.passed.is_empty();
        let abroad = |domain: &str, node: &str| format!("{domain}{ABROAD}{node}");
        let publisher = if is_first { flow.publisher.clone() } else { abroad(&crossing.key.first, &flow.publisher) };
        let node = if flow.domain == self.name { flow.node.clone() } else { abroad(&flow.domain, &flow.node) };
        let period = flow.period_at(scale).max(1);
        let policing = || policing(flow, scale).map(|policing| policing.to_string());
        Some(Channel {
            topic: flow.topic.clone(),
            proxy: (scale > 1).then(|| publisher.clone()),
            publisher,
            subscriber: flow.subscriber.clone(),
            node,
            class,
            dscp: class.dscp(),
            scale,
            rate_hz: Some(1e9 / period as f64),
            burst: Some(f64::from(flow.burst) + flow.jitter as f64 / period as f64),
            police: (is_first && flow.police).then(policing).flatten(),
            bound_us: flow.bound.map(|ns| ns as f64 / 1e3),
            deadline_us: flow.deadline.map(|ns| ns as f64 / 1e3),
            ..Channel::default()
        })
    }
}

/// What a publisher may send if one of so many samples leaves it: the others of a burst are left out, and a late one makes the next one early.
fn policing(flow: &Flow, scale: u32) -> Option<Policing> {
    let period = flow.period_at(scale).max(1) as f64;
    let at_once = 1.0 + (f64::from(flow.burst) - 1.0) / f64::from(scale.max(1)) + flow.jitter as f64 / period;
    Policing::new(1e9 / period, at_once, flow.size)
}

impl Crossing {
    /// For its user.
    pub fn shown(&self, revision: u64) -> Session {
        let (state, because) = match self.phase {
            Phase::Quoting => (SessionState::Fits, None),
            Phase::Committed if self.is_active() => (SessionState::Active, self.thinned_words()),
            Phase::Committed => (SessionState::Waiting, Some("waits for the broker's disk".to_owned())),
            Phase::Holding | Phase::Held | Phase::Starting => {
                (SessionState::Waiting, Some("waits for other domains".to_owned()))
            }
            Phase::Stopping | Phase::Lost => {
                let stops = || "waits until the other domains have stopped it".to_owned();
                (SessionState::Refused, Some(self.because.clone().unwrap_or_else(stops)))
            }
        };
        let channels = self.flows.iter().zip(&self.menus).enumerate().filter_map(|(at, (flow, menu))| {
            Some(SessionChannel {
                topic: flow.topic.clone(),
                publisher: flow.publisher.clone(),
                subscriber: flow.subscriber.clone(),
                class: *menu.keys().next()?,
                bound_us: flow.bound.map(|ns| ns as f64 / 1e3),
                deadline_us: flow.deadline.map(|ns| ns as f64 / 1e3),
                scale: self.scale(at),
                set: Vec::new(),
            })
        });
        let asker = self.asker.clone().unwrap_or_default();
        Session {
            session: self.key.session.clone(),
            owner: asker.owner,
            revision,
            state,
            because,
            channels: channels.collect(),
            lease_left_ms: None,
            text: None,
            domains: self.domains(),
            offers: Vec::new(),
            exceeded: Vec::new(),
        }
    }

    /// The part of each domain for each flow.
    fn domains(&self) -> Vec<DomainPart> {
        let of = |(flow, menu): (&Flow, &Menu)| {
            let part = |part: &agent::peer::Part| DomainPart {
                domain: part.domain.clone(),
                subscriber: flow.subscriber.clone(),
                pipe: part.pipe.clone(),
                bound_us: part.bound as f64 / 1e3,
                price: part.price,
            };
            menu.values().next().into_iter().flatten().map(part).collect::<Vec<_>>()
        };
        self.flows.iter().zip(&self.menus).flat_map(of).collect()
    }
}
