//! `hostile`: attacks by every listener and carrier, beside a legitimate pair of 1 kHz that must not notice.
//!
//! | module | contents |
//! |---|---|
//! | [`pair`] | the pair, a relay, and the processes' memory and threads |
//! | [`newcomer`] | nodes that start meanwhile |
//! | [`attacker`] | the process that attacks, and its limits |
//! | [`client`] | the wire protocols, written independently from docs/wire.md |
//! | [`recorded`] | traffic recorded by a proxy, changed |
//! | [`extremes`], [`floods`], [`lies`], [`zenoh`] | the attacks |
//! | [`effect`] | the effect of an attack on the pair, beside the pair alone and beside a bystander, which is no node |

pub mod attacker;
pub mod client;
pub mod effect;
pub mod extremes;
pub mod floods;
pub mod lies;
pub mod newcomer;
pub mod pair;
pub mod recorded;
pub mod zenoh;

use super::Experiment;
use crate::error::Result;
use crate::lab::{Lab, Size};
use crate::part::stream::{Order, Settings};
use crate::part::{NodeSettings, Part, Place};
use crate::results::{Figure, Findings, Panel, Skipped, Table};
use crate::topology::Topology;
use attacker::Attacker;
use effect::Effect;
use lies::{node, publisher};
use pair::{LONG, TOPIC, Testbed};
use recorded::{Proxy, Recording};
use serde_json::Value;
use std::io;

/// The experiment.
pub struct Hostile;

/// An attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// The listener or carrier by which it comes.
    pub by: &'static str,
    /// The smallest size of a run that it is a part of.
    pub from: Size,
    /// `true` if it works against any listener: then a bystander gets as much.
    pub one_way: bool,
    /// `true` if it needs other hosts, reached by Zenoh.
    pub between_hosts: bool,
    /// The attack, which runs until its limits.
    pub run: fn(&mut Attacker) -> io::Result<()>,
}

const fn attack(name: &'static str, by: &'static str, from: Size, run: fn(&mut Attacker) -> io::Result<()>) -> Attack {
    Attack { name, by, from, one_way: false, between_hosts: false, run }
}

const fn one_way(name: &'static str, by: &'static str, from: Size, run: fn(&mut Attacker) -> io::Result<()>) -> Attack {
    Attack { one_way: true, ..attack(name, by, from, run) }
}

const fn between_hosts(name: &'static str, from: Size, run: fn(&mut Attacker) -> io::Result<()>) -> Attack {
    Attack { between_hosts: true, ..attack(name, "Zenoh", from, run) }
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    // The control: the effect of the measurement without an attack.
    attack("nothing", "none", Size::Quick, floods::nothing),
    one_way("recorded-tcp", "tcp", Size::Ci, recorded::tcp),
    one_way("recorded-unix", "unix", Size::Whole, recorded::unix),
    attack("recorded-datagrams", "udp, mcast", Size::Quick, recorded::datagrams),
    one_way("extremes-openings-tcp", "tcp", Size::Quick, extremes::openings_tcp),
    one_way("extremes-openings-unix", "unix", Size::Whole, extremes::openings_unix),
    one_way("extremes-control", "control link", Size::Quick, extremes::control),
    attack("extremes-frames", "tcp, udp", Size::Whole, extremes::frames),
    attack("extremes-feedback", "udp", Size::Whole, extremes::feedback),
    one_way("flood-connections-tcp", "tcp", Size::Ci, floods::connections_tcp),
    one_way("flood-connections-unix", "unix", Size::Whole, floods::connections_unix),
    attack("flood-handshakes", "tcp, unix", Size::Whole, floods::handshakes),
    one_way("flood-documents", "control link", Size::Quick, floods::documents),
    one_way("flood-calls", "control link", Size::Quick, floods::calls),
    attack("flood-pulls", "pull", Size::Whole, floods::pulls),
    one_way("flood-heartbeats", "heartbeat", Size::Whole, floods::heartbeats),
    one_way("flood-unfinished", "control link", Size::Quick, floods::unfinished),
    attack("flood-datagrams", "mcast, udp", Size::Whole, floods::datagrams),
    one_way("slow-bytes-tcp", "tcp", Size::Quick, floods::slow_bytes_tcp),
    one_way("slow-bytes-unix", "unix", Size::Whole, floods::slow_bytes_unix),
    attack("slow-channels", "tcp", Size::Whole, floods::unread_channels),
    one_way("slow-calls", "control link", Size::Whole, floods::unread_calls),
    attack("slow-pulls", "pull", Size::Whole, floods::unread_pulls),
    attack("lies-publisher-answers", "tcp, udp, mcast, shm", Size::Whole, publisher::answers),
    attack("lies-publisher-relayed", "tcp", Size::Quick, publisher::relayed),
    attack("lies-publisher-stamps", "udp", Size::Whole, publisher::stamps),
    attack("lies-publisher-jumps", "tcp, udp", Size::Whole, publisher::jumps_of_its_own),
    attack("lies-publisher-multicast", "mcast", Size::Quick, publisher::forged_multicast),
    attack("lies-publisher-shm", "shm", Size::Whole, publisher::shared_memory),
    attack("lies-subscriber-channels", "tcp", Size::Quick, lies::many_channels),
    attack("lies-subscriber-names", "tcp", Size::Whole, lies::many_names),
    attack("lies-subscriber-pictures", "tcp", Size::Whole, lies::many_pictures),
    attack("lies-subscriber-filters", "tcp", Size::Whole, lies::many_filters),
    attack("lies-subscriber-repeats", "udp, mcast", Size::Whole, lies::many_repeats),
    attack("lies-relay", "tcp", Size::Whole, lies::relay),
    attack("lies-node-type", "tcp", Size::Quick, node::type_bomb),
    attack("lies-node-elsewhere", "control link", Size::Whole, node::elsewhere),
    one_way("lies-node-another", "control link", Size::Quick, node::another),
    attack("lies-node-names", "control link", Size::Whole, node::names),
    attack("lies-node-administers", "control link", Size::Quick, node::administers),
    attack("lies-node-in-its-place", "tcp", Size::Whole, node::in_its_place),
    between_hosts("zenoh-silent", Size::Quick, zenoh::silent),
    between_hosts("zenoh-handshakes", Size::Whole, zenoh::handshakes),
    between_hosts("zenoh-changed", Size::Whole, zenoh::changed),
];

impl Experiment for Hostile {
    fn name(&self) -> &'static str {
        "hostile"
    }

    fn about(&self) -> &'static str {
        "attacks by every listener and carrier beside a 1 kHz pair, which must not notice"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let times = Times::of(lab);
        let (inside, outside) = places()?;
        let mut table = Table::new("Attempts, and the effect on the pair", &effect::HEADS);
        let mut groups = Vec::new();
        let mut testbed: Option<(Testbed, Recording)> = None;
        let size = if lab.options.size == Size::Tiny { Size::Quick } else { lab.options.size };
        let only = lab.options.only.as_deref();
        let chosen = |attack: &&Attack| only.map_or(attack.from <= size, |only| attack.name.contains(only));
        let most = if lab.options.size == Size::Tiny { 4 } else { usize::MAX };
        for attack in ATTACKS.iter().filter(chosen).take(most) {
            lab.tell(attack.name);
            let fits = |(there, _): &(Testbed, _)| there.is_between_hosts() == attack.between_hosts;
            let (mut there, recording) = match testbed.take().filter(fits) {
                Some(there) => there,
                None => match attack.between_hosts.then(|| zenoh::hosts(lab)).transpose() {
                    Err(crate::Error::System(because)) => {
                        findings.skipped.push(Skipped { name: attack.name.to_owned(), because });
                        continue;
                    }
                    hosts => settle(lab, &inside, hosts?, &mut findings)?,
                },
            };
            let effect = Effect::of(lab, &mut there, &outside, attack, &recording, &times);
            let well = match effect {
                Ok(effect) => {
                    effect.note(&mut findings, &mut table, &mut groups);
                    effect.is_whole()
                }
                Err(crate::Error::Stopped) => return Err(crate::Error::Stopped),
                Err(error) => {
                    findings.checks.push(crate::results::Check::at_most(
                        format!("{}: {error}", attack.name),
                        f64::NAN,
                        0.0,
                    ));
                    false
                }
            };
            // Damage by an attack must not affect the next one.
            if well {
                testbed = Some((there, recording));
            }
        }
        findings.tables.push(table);
        let panels = vec![Panel { title: "over tcp".into(), groups }];
        let (title, axis) = ("Latency beside attackers".into(), "Latency in µs".into());
        findings.figure = Figure { title, axis, logarithmic: true, panels };
        Ok(findings)
    }
}

/// Lengths of the phases.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Samples of each phase without an attacker.
    pub alone: u64,
    /// Samples beside one.
    pub attacked: u64,
    /// Number of attempts at an attack whose figures the machine itself spoilt, or which exceeds a time limit.
    pub tries: u32,
}

impl Times {
    fn of(lab: &Lab) -> Self {
        match lab.options.size {
            Size::Tiny => Self { alone: 200, attacked: 400, tries: 1 },
            Size::Ci => Self { alone: 300, attacked: 600, tries: 1 },
            Size::Quick => Self { alone: 600, attacked: 1200, tries: 3 },
            Size::Whole => Self { alone: 1000, attacked: 3000, tries: 2 },
        }
    }
}

/// Processors of the nodes, and of the attacker, which would have a machine of its own.
fn places() -> Result<(Place, Place)> {
    let all = linux::sched::read(0).map(|found| found.affinity).unwrap_or_default();
    let all: Vec<usize> = all.into_iter().map(usize::from).collect();
    Ok(match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => (Place::here(rest).first(), Place::here(&[*last])),
        _ => (Place::here(&[]).first(), Place::here(&[])),
    })
}

/// Starts the processes, and records a legitimate subscriber's data through a proxy.
fn settle(lab: &Lab, place: &Place, hosts: Option<Topology>, findings: &mut Findings) -> Result<(Testbed, Recording)> {
    let realm = format!("hostile-{}", std::process::id());
    let mut testbed = match hosts {
        Some(hosts) => Testbed::between_hosts(lab, &realm, place, hosts)?,
        None => Testbed::start(lab, &realm, place)?,
    };
    for carrier in &testbed.missing {
        let because = "the pair itself has no channel over it on this machine".to_owned();
        let skipped = Skipped { name: format!("all attacks, measured over {carrier}"), because };
        if !findings.skipped.contains(&skipped) {
            findings.skipped.push(skipped);
        }
    }
    if testbed.is_between_hosts() {
        return Ok((testbed, Recording::default()));
    }
    let recording = record(lab, &mut testbed, &realm)?;
    lab.tell(&format!(
        "recorded {} streams, {} answers, {} datagrams",
        recording.streams.len(),
        recording.answers.len(),
        recording.datagrams.len()
    ));
    Ok((testbed, recording))
}

/// Data between subscribers over `tcp` and `udp` and the publisher, in both directions.
pub fn record(lab: &Lab, testbed: &mut Testbed, realm: &str) -> Result<Recording> {
    let mut recording = Recording::default();
    let Some(socket) = testbed.sockets.get("publisher").cloned() else { return Ok(recording) };
    for carrier in ["tcp", "udp"] {
        let proxy = Proxy::start(realm, &socket)?;
        let file = lab.folder().join(format!("{carrier}-by-proxy.toml"));
        std::fs::write(&file, format!("[[node]]\naddress = \"{}\"\n", proxy.address))?;
        let settings = Settings {
            node: NodeSettings { addresses: Some(file), ..NodeSettings::local("recorded", realm) },
            topic: TOPIC.into(),
            name: format!("/recorded/{carrier}"),
            size: pair::PAYLOAD,
            carriers: vec![carrier.into()],
            qos: qos::Qos { reliability: qos::Reliability::Reliable, ..qos::Qos::default() },
            ..Settings::default()
        };
        let mut part = Part::start(lab, testbed.place().clone(), "subscriber", &settings)?;
        part.hear::<Value>(lab, LONG)?;
        part.ask::<Value>(lab, &Order::Connected { count: 1 }, LONG)?;
        testbed.publishes(lab, 200)?;
        part.end();
        let said = proxy.finish();
        recording.streams.extend(said.streams);
        recording.answers.extend(said.answers);
        recording.datagrams.extend(said.datagrams);
    }
    Ok(recording)
}

fn notes() -> Vec<String> {
    vec![
        format!("one publisher of {} bytes at {} Hz, a subscriber over each carrier; nodes that come and go all the time, alone and attacked", pair::PAYLOAD, pair::HZ),
        "the attacker has a processor of its own, as if it were another host; it speaks what docs/wire.md says, from 127.0.0.66, and at Zenoh's port as another host".into(),
        "what a stall of the machine may have hit is counted, and left in; where that is more than 5 % of the samples, the attack is inconclusive".into(),
    ]
}
