//! `lossy-link` (F-14, U-26): reliable channels with a deadline on links that lose.
//!
//! | module | contents |
//! |---|---|
//! | `silence` | 100 samples a second over a link that loses 30 % each way: the longest silence, and bursts of old samples |
//! | `frames` | pictures over 20 Mbit/s that lose 5 %, beside a control channel |
//!
//! and `outages` (P-16), an experiment of its own: the time until they resume after a total loss.

mod frames;
mod outages;
mod silence;

pub(super) use outages::Outages;

use super::Experiment;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::stream::{Arrived, Flow, Settings};
use crate::part::{NodeSettings, Place};
use crate::results::{Figure, Findings};
use crate::wan::{Behaviour, Hosts};
use qos::Qos;
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub(super) struct LossyLink;

/// Each way.
const DELAY: Duration = Duration::from_millis(10);
/// The last sample may take this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Samples later than this, beyond the path's own delay, are of no use.
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

/// Opens a flow from the first host to the second one; `number` distinguishes its nodes from others'.
fn open(lab: &Lab, hosts: &Hosts, number: u16, what: &Stream) -> Result<Flow> {
    let at = |host: u8| SocketAddr::new(Hosts::address_of(host), 7400 + number);
    let end = |role: &str, host: u8| {
        let node = NodeSettings::at(lab, role, what.name, at(host), &[at(1), at(2)])?;
        Ok::<_, Error>((node, Place::at(hosts.host(host), &[]).first()))
    };
    let Stream { name, size, hz, carrier, qos } = what;
    let (topic, carriers, qos) = (format!("/{name}"), vec![(*carrier).into()], qos.clone());
    let settings = Settings { topic, size: *size, hz: *hz, carriers, qos, ..Settings::default() };
    Flow::open(lab, &settings, end("publisher", 1)?, vec![end("subscriber", 2)?])
}

/// Publishes samples; gives the arrivals of these.
fn publish(lab: &Lab, flow: &mut Flow, count: u64) -> Result<Arrived> {
    let (published, arrived) = flow.publish(lab, count, PATIENCE)?;
    Ok(only(arrived).of(&published))
}

/// The account of the only subscriber.
fn only(arrived: Vec<Arrived>) -> Arrived {
    arrived.into_iter().next().unwrap_or_default()
}

/// A stream's name, samples, carrier and policies.
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
