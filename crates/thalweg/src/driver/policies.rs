//! The policies of a node's ports at run time: their judges, the times at which the judges are asked, and the events that follow.

use super::calls::Asker;
use super::control::Control;
use super::matching::Pair;
use super::permit::Caller;
use crate::admin::{self, Request};
use crate::carrier;
use crate::channel::SentSelection;
use crate::codec::{PolicyFields, topic_number};
use crate::control::{PortId, PortInfo};
use crate::event::Event;
use crate::port::{Judge, News, Writer};
use qos::{LivelinessKind, ResourceLimit};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two reports of a port's counts.
const REPORT: Duration = Duration::from_secs(1);

/// A port with policies that depend on time.
struct Watched {
    port: PortId,
    judge: Arc<Judge>,
    reads: bool,
    look_at: Instant,
    report_at: Instant,
}

/// The judges of a node's ports, and the time at which each is asked next. Pure: both clocks are arguments.
#[derive(Default)]
pub(super) struct Policies(Vec<Watched>);

impl Policies {
    /// A port that has this judge was opened.
    pub(super) fn add(&mut self, port: PortId, judge: Arc<Judge>, reads: bool, now: Instant) {
        self.0.push(Watched { port, judge, reads, look_at: now, report_at: now });
    }

    /// A port was closed.
    pub(super) fn remove(&mut self, port: PortId) {
        self.0.retain(|watched| watched.port != port);
    }

    /// The next time at which a judge is asked.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|watched| watched.look_at).min()
    }

    /// Asks the judges whose time has come, and returns the events. `now_ns`: the monotonic clock by which samples are stamped.
    pub(super) fn poll(&mut self, now: Instant, now_ns: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for watched in self.0.iter_mut().filter(|watched| watched.look_at <= now) {
            let reports = watched.report_at <= now;
            let (news, pause) = watched.judge.look(now_ns, reports);
            watched.look_at = now + pause;
            let changes = |news: &News| matches!(news, News::LivelinessChanged { .. } | News::InstanceChanged { .. });
            if news.iter().any(|news| !changes(news)) {
                watched.report_at = now + REPORT;
            }
            events.extend(news.into_iter().map(|news| event(watched.judge.name(), watched.reads, news)));
        }
        events
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// A channel between two ports begins: its subscriber's judge knows the publisher from now on. Returns the selection of samples that a
    /// publisher of this process sends.
    pub(super) fn begin_policies(
        &self,
        (publisher, subscriber): Pair,
        (offered, asked): (&PortInfo, &PortInfo),
        carrier: &carrier::Name,
    ) -> Option<SentSelection> {
        let key = if asked.qos.key.is_empty() { &offered.qos.key } else { &asked.qos.key };
        let filter = asked.qos.filter.as_ref();
        // The two ports have matched, so the fields exist.
        let policy_fields = || PolicyFields::find(offered.message.schema.as_deref(), key, filter).ok();
        let shared = self.state.carrier(carrier).is_some_and(|carrier| carrier.capabilities().multicast);
        if subscriber.node == self.state.id
            && let Some(subscriber_port) = self.state.subscriber_port(subscriber.port)
            && let Some((judge, policy_fields)) = subscriber_port.judge().zip(policy_fields())
        {
            let (name, topic, offered) = (offered.name.clone(), topic_number(&offered.topic), offered.qos.clone());
            let key = key.clone();
            let writer = Writer { port: publisher, name, topic, offered, policy_fields, key, filters_here: shared };
            judge.came(writer, linux::clock::monotonic_ns());
        }
        // A group's flow sends each sample to all members.
        let sends = (publisher.node == self.state.id || *carrier == carrier::Name::Local) && !shared;
        if sends { SentSelection::of(&asked.qos, policy_fields()?) } else { None }
    }

    /// A port of this node was opened.
    pub(super) fn watch_policies(&mut self, port: PortId) {
        let read = self.state.subscriber_port(port).and_then(|subscriber_port| subscriber_port.judge().cloned());
        let written =
            || self.state.publisher_port(port).and_then(|(publisher_port, _)| publisher_port.judge().cloned());
        let reads = read.is_some();
        if let Some(judge) = read.or_else(written) {
            self.policies.add(port, judge, reads, Instant::now());
        }
    }

    /// Sends a sign of life of these ports to the nodes of their subscribers.
    pub(super) fn tell_alive(&mut self, ports: Vec<PortId>) {
        for port in ports {
            let Some((publisher_port, _)) = self.state.publisher_port(port) else { continue };
            let nodes: BTreeSet<_> = publisher_port.channels().iter().map(|channel| channel.subscriber.node).collect();
            let request = admin::pack(&Request::Alive { publisher: publisher_port.info().name.clone() });
            for node in nodes {
                match node == self.state.id {
                    true => self.asked(&request, Caller::HERE, Asker::Nobody),
                    false => self.ask(node, &request, Asker::Nobody),
                }
            }
        }
    }

    /// A publisher gave a sign of life.
    pub(super) fn heard_alive(&mut self, publisher: &str) -> admin::Reply {
        let now = linux::clock::monotonic_ns();
        for (_, subscriber_port) in self.state.subscriber_ports() {
            let Some(judge) = subscriber_port.judge() else { continue };
            let channels = subscriber_port.channels().lock().map(|channels| channels.clone()).unwrap_or_default();
            let its = channels.iter().filter(|channel| channel.publisher_name == publisher);
            its.for_each(|channel| judge.sign(channel.publisher, now));
        }
        admin::Reply::Done
    }

    /// The ports of this node that show together that they are alive.
    pub(super) fn alive_by_node(&self) -> Vec<PortId> {
        let by_node = |info: &PortInfo| info.qos.liveliness.kind == LivelinessKind::ByNode;
        let ports = self.state.document();
        ports.ports.iter().filter(|(_, info)| by_node(info)).map(|(port, _)| *port).collect()
    }
}

fn event(port: &str, reads: bool, news: News) -> Event {
    let port = port.to_owned();
    match news {
        News::DeadlineMissed { instance, missed, total } => Event::DeadlineMissed { port, instance, missed, total },
        News::BudgetExceeded { late, total } => Event::BudgetExceeded { subscriber: port, late, total },
        News::Rejected { most, rejected, total } => {
            let (limit, most) = (ResourceLimit::Instances, u64::from(most));
            Event::SampleRejected { subscriber: port, limit, most, rejected, total }
        }
        News::InstanceChanged { key, state } => Event::InstanceChanged { subscriber: port, key, state },
        News::LivelinessChanged { publisher, alive } => {
            Event::LivelinessChanged { publisher, subscriber: reads.then_some(port), alive }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Change;
    use crate::port::judge_of_publisher;
    use qos::Qos;

    const DEADLINE: Duration = Duration::from_millis(20);

    /// A publisher that promises a sample each 20 ms and publishes one.
    fn late(policies: &mut Policies, port: u32, now: Instant) {
        let offered = Qos { deadline: Some(DEADLINE), ..Qos::default() };
        let judge = judge_of_publisher("/out", &offered, None, 0).unwrap().unwrap();
        judge.published(0, Change::Written, |_| true);
        policies.add(PortId(port), judge, false, now);
    }

    /// All events before `until`, each with its time, and the number of polls.
    fn run(policies: &mut Policies, start: Instant, until: Duration) -> (Vec<(Duration, Event)>, usize) {
        let (mut told, mut calls) = (Vec::new(), 0);
        while let Some(at) = policies.next_deadline().filter(|at| *at < start + until) {
            let ago = at - start;
            let events = policies.poll(at, ago.as_nanos() as u64);
            told.extend(events.into_iter().map(|event| (ago, event)));
            calls += 1;
        }
        (told, calls)
    }

    #[test]
    fn counts_are_reported_once_a_second_at_most() {
        let (mut policies, start) = (Policies::default(), Instant::now());
        late(&mut policies, 1, start);
        let (told, calls) = run(&mut policies, start, Duration::from_secs(10));
        let totals: Vec<u64> = told.iter().map(|(_, event)| missed(event)).collect();
        assert!((9..=10).contains(&told.len()), "{told:?}");
        assert!(totals.windows(2).all(|two| (49..=51).contains(&(two[1] - two[0]))), "{totals:?}");
        assert!(told.windows(2).all(|two| two[1].0 - two[0].0 >= REPORT), "{told:?}");
        assert!(calls <= 1001, "{calls} calls in 10 s");
    }

    #[test]
    fn the_earliest_port_sets_the_deadline_and_a_closed_port_sets_none() {
        let (mut policies, start) = (Policies::default(), Instant::now());
        assert_eq!(policies.next_deadline(), None);
        late(&mut policies, 1, start);
        late(&mut policies, 2, start - DEADLINE);
        assert_eq!(policies.next_deadline(), Some(start - DEADLINE));
        policies.remove(PortId(2));
        assert_eq!(policies.next_deadline(), Some(start));
        policies.remove(PortId(1));
        assert_eq!((policies.next_deadline(), policies.poll(start, 0)), (None, Vec::new()));
    }

    fn missed(event: &Event) -> u64 {
        match event {
            Event::DeadlineMissed { port, total, .. } if port == "/out" => *total,
            other => panic!("{other:?}"),
        }
    }
}
