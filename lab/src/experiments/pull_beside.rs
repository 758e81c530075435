//! `pull-beside` (F-10): 1 GB is pulled from a history while a channel of class HIGH sends 1,000 samples a second between
//! the same two hosts; the channel must not notice.
//!
//! The history's answers are of class LOW by themselves. Pairs of runs follow each other: the channel alone, and beside the
//! pull; what is compared is the channel's latency.

use super::Experiment;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::part::node::NodeSettings;
use crate::part::pull::{self, Pulled};
use crate::part::stream::{self, Arrived, Connected, Order, Published, Settings};
use crate::part::{Part, Place};
use crate::results::{Check, Distribution, Factors, Figure, Findings, Group, Panel, median_ratio};
use crate::run::Lab;
use crate::stalls::Monitor;
use crate::topology::Topology;
use qos::priority::Changes;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub struct PullBeside;

const LONG: Duration = Duration::from_secs(60);
const HZ: f64 = 1000.0;
const PAYLOAD: usize = 64;
/// Of the samples that are pulled.
const LARGE: usize = 64 << 10;
/// How many are kept: 64 MB.
const KEPT: u32 = 1000;
/// Bytes that are pulled in all; with `--quick`, a tenth.
const PULLED: u64 = 1_000_000_000;
/// The channel's median may be this much worse.
const P50: f64 = 1.10;
/// Its p99 may.
const P99: f64 = 1.5;
const CARRIERS: [&str; 2] = ["tcp", "udp"];

impl Experiment for PullBeside {
    fn name(&self) -> &'static str {
        "pull-beside"
    }

    fn about(&self) -> &'static str {
        "1 GB is pulled from a history during a 1 kHz channel of class high, which must not notice"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let topology = Topology::link(lab)?;
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let mut groups = Vec::new();
        for carrier in CARRIERS {
            groups.push(House::start(lab, &topology, carrier)?.compare(lab, &mut findings)?);
        }
        findings.figure = Figure {
            title: "Latency at 1 kHz, alone and beside a pull".into(),
            axis: "Latency in µs".into(),
            logarithmic: true,
            panels: vec![Panel { title: String::new(), groups }],
        };
        Ok(findings)
    }
}

fn notes() -> Vec<String> {
    vec![
        format!("{HZ} samples a second of {PAYLOAD} bytes from one host to another, class=high sched=fifo:30 at both ends"),
        format!("pulled: all {KEPT} samples of {LARGE} bytes that a publisher beside it keeps, again and again, as fast as it goes"),
        "ratios: beside the pull / alone, by pairs of runs that follow each other, medians; stalls of the machine are apart".into(),
    ]
}

/// The channel's two ends, the history, and who asks for it.
struct House {
    carrier: &'static str,
    publisher: Part,
    subscriber: Part,
    _keeper: Part,
    puller: Part,
}

impl House {
    fn start(lab: &Lab, topology: &Topology, carrier: &'static str) -> Result<Self> {
        let at = |host: u8, port: u16| SocketAddr::new(Topology::address_of(host), 7400 + port);
        let all = [at(1, 0), at(2, 0), at(1, 1), at(2, 1)];
        let node = |name: &str, host: u8, port: u16| NodeSettings::at(lab, name, "pull-beside", at(host, port), &all);
        let end = |role: &str, host: u8| {
            let name = format!("/{role}");
            let settings = Settings {
                node: node(role, host, 0)?,
                topic: "/beat".into(),
                name,
                size: PAYLOAD,
                hz: HZ,
                carriers: vec![carrier.into()],
                qos: stream::qos(carrier),
            };
            let mut part = Part::start(lab, Place::at(topology.host(host), &[]), role, &settings)?;
            part.hear::<Value>(lab, LONG)?;
            Ok::<Part, Error>(part)
        };
        let beside = |role: &str, host: u8| {
            let (topic, node) = ("/kept".into(), node(role, host, 1)?);
            let settings = pull::Settings { node, topic, size: LARGE, samples: KEPT };
            let mut part = Part::start(lab, Place::at(topology.host(host), &[]), role, &settings)?;
            part.hear::<Value>(lab, LONG)?;
            Ok::<Part, Error>(part)
        };
        let (publisher, subscriber) = (end("publisher", 1)?, end("subscriber", 2)?);
        let (keeper, puller) = (beside("keeper", 1)?, beside("puller", 2)?);
        let mut house = Self { carrier, publisher, subscriber, _keeper: keeper, puller };
        let connected: Connected = house.publisher.ask(lab, &Order::Connected { count: 1 }, LONG)?;
        if connected.carriers != [carrier] {
            return Err(Error::Failed(format!("no channel over {carrier}: {connected:?}")));
        }
        let changes: Changes = "class=high sched=fifo:30".parse().map_err(|e| Error::Usage(format!("{e}")))?;
        for (end, other) in [(&mut house.publisher, "/subscriber"), (&mut house.subscriber, "/publisher")] {
            end.ask::<Value>(lab, &Order::Set { other: other.into(), changes: changes.clone() }, LONG)?;
        }
        Ok(house)
    }

    /// Pairs of runs, until there are enough and enough was pulled.
    fn compare(&mut self, lab: &Lab, findings: &mut Findings) -> Result<Group> {
        let (pairs, count, wanted) = match () {
            () if lab.options.tiny => (1, 100, 1),
            () if lab.options.quick => (5, 1000, PULLED / 10),
            () => (7, 3000, PULLED),
        };
        let (mut alone, mut beside, mut pulled) = (Tally::default(), Tally::default(), Pulled::default());
        self.beat(lab, 200, &mut Tally::default())?;
        let mut pair = 0;
        while pair < pairs || (pulled.bytes < wanted && pair < 10 * pairs) {
            pair += 1;
            lab.tell(&format!("{}, pair {pair} of {pairs}", self.carrier));
            self.beat(lab, count, &mut alone)?;
            self.puller.ask::<Value>(lab, &pull::Order::Start, LONG)?;
            self.beat(lab, count, &mut beside)?;
            let more: Pulled = self.puller.ask(lab, &pull::Order::Stop, LONG)?;
            beside.tell("pulled_bytes", more.bytes);
            pulled.bytes += more.bytes;
            pulled.seconds += more.seconds;
            pulled.damaged += more.damaged;
            pulled.problem = pulled.problem.or(more.problem);
        }
        Ok(self.note((&alone, &beside), &pulled, wanted, findings))
    }

    /// One run of the channel.
    fn beat(&mut self, lab: &Lab, count: u64, tally: &mut Tally) -> Result {
        self.subscriber.ask::<Arrived>(lab, &Order::Report, LONG)?;
        let monitor = Monitor::start()?;
        let published: Published = self.publisher.ask(lab, &Order::Publish { count }, LONG)?;
        self.subscriber.ask::<Connected>(lab, &Order::Until { seq: published.last, ms: 500 }, LONG)?;
        let arrived: Arrived = self.subscriber.ask(lab, &Order::Report, LONG)?;
        tally.add(count, &arrived.samples, &monitor.finish());
        Ok(())
    }

    fn note(&self, (alone, beside): (&Tally, &Tally), pulled: &Pulled, wanted: u64, findings: &mut Findings) -> Group {
        let mut bars = Vec::new();
        for (arm, tally) in [("alone", alone), ("beside-pull", beside)] {
            let bytes = if arm == "alone" { 0 } else { pulled.bytes };
            let factors = Factors::new().with("arm", arm).with("measured", self.carrier);
            let factors = factors.with("payload_bytes", PAYLOAD).with("pulled_bytes", bytes);
            findings.cells.push(tally.cell(factors, false));
            bars.extend(tally.bar(arm));
        }
        let ratio = |figure: fn(&Distribution) -> f64| median_ratio(&beside.pairs(alone, figure));
        let label = |what: &str| format!("{}: {what}", self.carrier);
        let rate = pulled.bytes as f64 / pulled.seconds.max(1e-9) / 1e6;
        let problem = pulled.problem.as_ref().map_or(String::new(), |problem| format!(" ({problem})"));
        findings.checks.extend([
            Check::at_most(label("p50 of the channel, ratio"), ratio(|d| d.p50), P50),
            Check::at_most(label("p99 of the channel, ratio"), ratio(|d| d.p99), P99),
            Check::at_most(label("lost samples of the channel"), (alone.lost() + beside.lost()) as f64, 0.0),
            Check::at_least(
                label(&format!("bytes pulled, at {rate:.0} MB/s{problem}")),
                pulled.bytes as f64,
                wanted as f64,
            ),
            Check::at_most(label("pulled samples that were damaged"), pulled.damaged as f64, 0.0),
        ]);
        Group { label: self.carrier.into(), bars }
    }
}
