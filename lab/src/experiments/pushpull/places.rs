//! `pushpull-places` (P-30, P-31; Tables 1 and 2): processor time, traffic and delay at the publisher, the subscriber and the
//! relay, by the place of the proxy; one subscriber of every 10th sample by unicast, and six in groups, of every 2nd to 7th and
//! of 4/5 to 9/10 of the samples.

use super::{processors, tables};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, shuffled};
use crate::lab::{Lab, Options, Size};
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{self, Hog, LONG, NodeSettings, Part};
use crate::results::Findings;
use crate::stalls::Monitor;
use crate::statistics::median;
use crate::topology::Topology;
use qos::{Class, Place, Scale};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::carrier::Dice;

/// The experiment.
pub(crate) struct PushPullPlaces;

/// Time for the last samples to arrive.
const SETTLE: Duration = Duration::from_millis(50);
pub(super) const HZ: f64 = 2000.0;
pub(super) const SIZE: usize = 1200;
const RELAY: &str = "relay";
/// So many of so many samples.
pub(super) type Share = (u32, u32);
/// Share of the samples for the unicast subscriber.
pub(super) const ONE: Share = (1, 10);
/// Shares of the subscribers in groups: together 1.6 times what is published.
pub(super) const MANY: [Share; 6] = [(1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7)];
/// The same, together 5.1 times: with the proxy at the publisher it sends each of them, so that the place decides its processor time. (Of
/// the former it does not: for 23 % of the samples nothing is sent, and a send right after another costs a fraction of the first.)
pub(super) const MOST: [Share; 6] = [(4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10)];
/// The publisher's host.
const FROM: u8 = 1;
/// The relay's.
const VIA: u8 = 2;
/// The first subscriber's.
const TO: u8 = 3;

impl Experiment for PushPullPlaces {
    fn name(&self) -> &'static str {
        "pushpull-places"
    }

    fn about(&self) -> &'static str {
        "processor time, traffic and delay by the place of the proxy, unicast and multicast (Tables 1 and 2)"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut arms = arms();
        let mut testbed = Testbed::build(lab, &mut arms)?;
        let _awake = Hog::Idle.start(lab, processors()?.0)?;
        let (repetitions, time) = amount(&lab.options);
        let mut dice = Dice::new(lab.options.seed);
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for arm in shuffled(arms.len(), &mut dice) {
                testbed.run(lab, &mut arms[arm], time)?;
            }
        }
        Ok(tables::judge(&arms))
    }
}

fn amount(options: &Options) -> (usize, Duration) {
    let (repetitions, ms) = match options.size {
        Size::Tiny => (1, 100),
        Size::Ci => (5, 120),
        Size::Quick => (9, 300),
        Size::Whole => (15, 2000),
    };
    (repetitions, Duration::from_millis(ms))
}

/// One stream and its costs.
pub(super) struct Arm {
    /// Name of its topic.
    pub name: &'static str,
    /// The shares of the samples that the subscribers want.
    pub shares: &'static [Share],
    pub place: Place,
    pub carrier: &'static str,
    published: u64,
    /// Costs of each published sample, by repetition.
    costs: Vec<[Cost; 3]>,
    pub tally: Tally,
}

/// Costs of one published sample at one host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Processor time of the process, in µs.
    pub us: f64,
    /// Bytes that its host received, and sent.
    pub received: f64,
    pub sent: f64,
}

/// Publisher, relay and subscribers (their mean), as in [`Cost`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Publisher,
    Relay,
    Subscriber,
}

impl Arm {
    fn new(name: &'static str, shares: &'static [Share], place: Place, carrier: &'static str) -> Self {
        Self { name, shares, place, carrier, published: 0, costs: Vec::new(), tally: Tally::default() }
    }

    /// A figure of a node's costs, repetition by repetition.
    pub(super) fn each(&self, node: Node, figure: fn(&Cost) -> f64) -> Vec<f64> {
        self.costs.iter().map(|costs| figure(&costs[node as usize])).collect()
    }

    /// Median over the repetitions.
    pub(super) fn cost(&self, node: Node, figure: fn(&Cost) -> f64) -> f64 {
        median(&self.each(node, figure))
    }

    fn topic(&self) -> String {
        format!("/{}", self.name)
    }

    fn stream(&self, share: Share) -> Stream {
        let (topic, place, carrier) = (self.topic(), self.place.clone(), self.carrier.into());
        let scale = match share {
            (1, n) => Scale::Every(n),
            (p, q) => Scale::Rate { p, q },
        };
        Stream {
            topic,
            size: SIZE,
            hz: HZ,
            class: Class::Normal,
            scale,
            picture: None,
            place,
            carrier,
            queue: qos::Queue::default(),
            sched: None,
        }
    }

    /// Deliveries to all subscribers of the first `samples` samples.
    fn selected(&self, samples: u64) -> u64 {
        self.shares.iter().map(|(p, q)| samples * u64::from(*p) / u64::from(*q)).sum()
    }
}

/// Without a subscriber, whole, and each place by unicast and in groups.
fn arms() -> [Arm; 11] {
    let relay = || Place::Relay(RELAY.into());
    [
        Arm::new("none", &[], Place::Publisher, "udp"),
        Arm::new("whole", &[(1, 1)], Place::Publisher, "udp"),
        Arm::new("one-relay", &[ONE], relay(), "udp"),
        Arm::new("one-publisher", &[ONE], Place::Publisher, "udp"),
        Arm::new("one-subscriber", &[ONE], Place::Subscriber, "udp"),
        Arm::new("many-relay", &MANY, relay(), "mcast"),
        Arm::new("many-publisher", &MANY, Place::Publisher, "mcast"),
        Arm::new("many-subscriber", &MANY, Place::Subscriber, "mcast"),
        Arm::new("most-relay", &MOST, relay(), "mcast"),
        Arm::new("most-publisher", &MOST, Place::Publisher, "mcast"),
        Arm::new("most-subscriber", &MOST, Place::Subscriber, "mcast"),
    ]
}

/// Every process in a host of its own, around a switch; all streams are open from the start, and one at a time is published.
struct Testbed {
    publisher: Part,
    relay: Part,
    subscribers: Vec<Part>,
    topology: Topology, // after the parts: they end first
}

impl Testbed {
    fn build(lab: &Lab, arms: &mut [Arm]) -> Result<Self> {
        let hosts = TO + MANY.len() as u8 - 1;
        let topology = Topology::switch(lab, hosts, &[])?;
        topology.ask_for_groups()?;
        let (processor, other) = processors()?;
        // The switch's work is on no host's processor time.
        (1..=hosts).try_for_each(|host| topology.middle()?.steer(&Topology::leads_to(host), other))?;
        let at = |host| SocketAddr::new(Topology::address_of(host), 7400);
        let all: Vec<SocketAddr> = (1..=hosts).map(at).collect();
        let node = |name: &str, host: u8| NodeSettings::at(lab, name, "places", at(host), &all);
        let place = |host: u8| part::Place::at(topology.host(host), &[processor]).first();
        let relay = Part::ready(lab, place(VIA), "relay", &node(RELAY, VIA)?)?;
        let member = |name: &str, host: u8, publishes: Vec<Stream>, subscribes: Vec<Stream>| {
            let settings = Settings { node: node(name, host)?.after(RELAY), publishes, subscribes, profile: None };
            Part::ready(lab, place(host), "member", &settings)
        };
        let mut publisher = member("publisher", FROM, arms.iter().map(|arm| arm.stream((1, 1))).collect(), Vec::new())?;
        let subscribe = |n: usize| {
            let wanted = arms.iter().filter_map(|arm| Some(arm.stream(*arm.shares.get(n)?))).collect();
            member(&format!("subscriber{n}"), TO + n as u8, Vec::new(), wanted)
        };
        let mut subscribers = (0..MANY.len()).map(subscribe).collect::<Result<Vec<_>>>()?;
        // A proxy whose relay was not ready begins at the publisher, and moves while samples flow.
        let relayed = || arms.iter().filter(|arm| matches!(arm.place, Place::Relay(_)));
        for arm in relayed() {
            publisher.ask::<Value>(lab, &Order::Start { topic: Some(arm.topic()), count: None }, LONG)?;
        }
        for subscriber in &mut subscribers {
            subscriber.ask::<Value>(lab, &Order::Connected { count: 0 }, LONG)?;
        }
        let report: Report = publisher.ask(lab, &Order::Stop, LONG)?;
        let counts: Vec<(String, u64)> =
            relayed().map(Arm::topic).zip(report.streams.iter().map(|s| s.count)).collect();
        for (topic, count) in counts {
            arms.iter_mut().filter(|arm| arm.topic() == topic).for_each(|arm| arm.published = count);
        }
        Ok(Self { publisher, relay, subscribers, topology })
    }

    /// Publishes one arm's stream for this long.
    fn run(&mut self, lab: &Lab, arm: &mut Arm, time: Duration) -> Result {
        self.arrived(lab)?;
        let monitor = Monitor::start()?;
        let before = self.used()?;
        self.publisher.ask::<Value>(lab, &Order::Start { topic: Some(arm.topic()), count: None }, LONG)?;
        lab.stop.sleep(time)?;
        let published: Report = self.publisher.ask(lab, &Order::Stop, LONG)?;
        lab.stop.sleep(SETTLE)?;
        let after = self.used()?;
        let samples = self.arrived(lab)?.into_iter().flat_map(|report| report.streams).flat_map(|s| s.samples);
        let samples: Vec<_> = samples.collect();
        let count: u64 = published.streams.iter().map(|stream| stream.count).sum();
        let sent = arm.selected(arm.published + count) - arm.selected(arm.published);
        arm.tally.add(sent, &samples, &monitor.finish());
        arm.published += count;
        let each = |after: f64, before: f64| (after - before) / count as f64;
        let cost = |(after, before): (&Cost, &Cost)| Cost {
            us: each(after.us, before.us),
            received: each(after.received, before.received),
            sent: each(after.sent, before.sent),
        };
        let all: Vec<Cost> = after.iter().zip(&before).map(cost).collect();
        let many = &all[2..][..arm.shares.len().max(1)];
        arm.costs.push([all[0], all[1], mean(many)]);
        Ok(())
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Report>> {
        self.subscribers.iter_mut().map(|part| part.ask(lab, &Order::Arrived, LONG)).collect()
    }

    /// Costs so far: publisher, relay and each subscriber.
    fn used(&self) -> Result<Vec<Cost>> {
        let parts = [&self.publisher, &self.relay].into_iter().chain(&self.subscribers);
        let used = |(part, host): (&Part, u8)| {
            let [received, sent] = self.topology.host(host).traffic()?;
            Ok(Cost { us: part.processor_ns()? as f64 / 1e3, received, sent })
        };
        parts.zip(FROM..).map(used).collect()
    }
}

fn mean(costs: &[Cost]) -> Cost {
    let of = |figure: fn(&Cost) -> f64| costs.iter().map(figure).sum::<f64>() / costs.len() as f64;
    Cost { us: of(|c| c.us), received: of(|c| c.received), sent: of(|c| c.sent) }
}
