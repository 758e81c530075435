//! `lossy-link` (F-14, U-26): what reliable channels with a deadline do on links that lose.
//!
//! | module | what it holds |
//! |---|---|
//! | `silence` | 100 samples a second over a link that loses 30 % each way: the longest silence, and whether old samples come in a burst |
//! | `frames` | pictures over 20 Mbit/s that lose 5 %, beside a control channel |
//!
//! and `outages` (P-16), an experiment of its own: how soon they resume when nothing came through for a while.

mod frames;
mod outages;
mod silence;

pub use outages::Outages;

use super::Experiment;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::node::NodeSettings;
use crate::part::stream::{Arrived, Connected, Order, Published, Settings};
use crate::part::{Part, Place};
use crate::results::{Figure, Findings};
use crate::wan::{Behaviour, Hosts};
use qos::Qos;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub struct LossyLink;

const LONG: Duration = Duration::from_secs(40);
/// Each way.
const DELAY: Duration = Duration::from_millis(10);
/// What is late by so much more than the way takes is of no use.
const DEADLINE: Duration = Duration::from_millis(100);

impl Experiment for LossyLink {
    fn name(&self) -> &'static str {
        "lossy-link"
    }

    fn about(&self) -> &'static str {
        "30 % loss at 100 Hz: no long silence, no burst of the past; pictures over a narrow link that loses, beside control"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let panels = [silence::run(lab, &mut findings)?, frames::run(lab, &mut findings)?];
        findings.figure = Figure {
            title: "Links that lose".into(),
            axis: "Time in ms: the longest or oldest, and p50".into(),
            logarithmic: true,
            panels: panels.into_iter().collect(),
        };
        Ok(findings)
    }
}

/// Two hosts, 10 ms apart.
fn hosts(lab: &Lab) -> Result<Hosts> {
    let way = Behaviour { delay: DELAY, ..Behaviour::default() };
    Hosts::new(lab, way, way)
}

/// A stream from the first host to the second one.
struct Channel {
    publisher: Part,
    subscriber: Part,
}

impl Channel {
    /// Connects it; `number` tells its nodes from others'.
    fn open(lab: &Lab, hosts: &Hosts, number: u16, what: &Stream) -> Result<Self> {
        let at = |host: u8| SocketAddr::new(Hosts::address_of(host), 7400 + number);
        let start = |role: &str, host: u8| {
            let settings = Settings {
                node: NodeSettings::at(lab, role, what.name, at(host), &[at(1), at(2)])?,
                topic: format!("/{}", what.name),
                name: format!("/{role}"),
                size: what.size,
                hz: what.hz,
                carriers: vec![what.carrier.into()],
                qos: what.qos.clone(),
            };
            let mut part = Part::start(lab, Place::at(hosts.host(host), &[]).first(), role, &settings)?;
            part.hear::<Value>(lab, LONG)?;
            Ok::<Part, Error>(part)
        };
        let (mut publisher, subscriber) = (start("publisher", 1)?, start("subscriber", 2)?);
        let connected: Connected = publisher.ask(lab, &Order::Connected { count: 1 }, LONG)?;
        match connected.carriers == [what.carrier] {
            true => Ok(Self { publisher, subscriber }),
            false => Err(Error::Failed(format!("no channel over {}: {connected:?}", what.carrier))),
        }
    }

    /// Publishes so many samples; gives what arrived of them, and waits for the last one.
    fn publish(&mut self, lab: &Lab, count: u64) -> Result<Arrived> {
        self.subscriber.ask::<Arrived>(lab, &Order::Report, LONG)?;
        let published: Published = self.publisher.ask(lab, &Order::Publish { count }, LONG * 3)?;
        self.wait(lab, &published)
    }

    /// Begins to publish.
    fn start(&mut self, lab: &Lab) -> Result {
        self.subscriber.ask::<Arrived>(lab, &Order::Report, LONG)?;
        self.publisher.ask::<Value>(lab, &Order::Start, LONG).map(drop)
    }

    /// Ends it: how many were published, and what arrived.
    fn stop(&mut self, lab: &Lab) -> Result<(u64, Arrived)> {
        let published: Published = self.publisher.ask(lab, &Order::Stop, LONG)?;
        Ok((published.count, self.wait(lab, &published)?))
    }

    fn wait(&mut self, lab: &Lab, published: &Published) -> Result<Arrived> {
        self.subscriber.ask::<Connected>(lab, &Order::Until { seq: published.last, ms: 2000 }, LONG)?;
        Ok(self.subscriber.ask::<Arrived>(lab, &Order::Report, LONG)?.of(published))
    }
}

/// What a channel is to carry, and how.
struct Stream {
    name: &'static str,
    size: usize,
    hz: f64,
    carrier: &'static str,
    qos: Qos,
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "Two hosts with a link in user space between them, {} ms each way. It loses each frame by chance, and only while samples \
             are measured.",
            DELAY.as_millis()
        ),
        format!(
            "silence: {} bytes at {} Hz, a deadline of {} ms at both ends; {} % of the packets are lost in each direction. A silence is \
             the time between two deliveries, 2 round trips and 1 period are allowed. By tcp for comparison: nothing is expected of it.",
            silence::SIZE,
            silence::HZ,
            DEADLINE.as_millis(),
            silence::LOSS
        ),
        format!(
            "frames: {} bytes, as of a 1080p picture in JPEG, at {} Hz, class low, lifespan {} ms, the latest {} wait; control: {} bytes \
             at {} Hz, class high, deadline {} ms. What leaves the first host has {} Mbit/s, classes by DSCP; {} % are lost in each \
             direction. Ratios are of pairs of runs that follow each other, medians.",
            frames::FRAME,
            frames::FRAMES_HZ,
            frames::LIFESPAN.as_millis(),
            frames::WAITING,
            silence::SIZE,
            silence::HZ,
            DEADLINE.as_millis(),
            frames::RATE / 1_000_000,
            frames::LOSS
        ),
    ]
}
