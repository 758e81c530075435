//! The effect of an attack on the pair, beside the pair alone just before and after, and beside a bystander.
//!
//! The bystander is a process that is no node, in the nodes' place: it reads an attacker's data and drops it. If an attacker
//! sends it as much, the effect on the pair is the machine's share of an attack; the rest is the nodes' share.

use super::attacker::{Task, Tried};
use super::client::Listener;
use super::pair::{CARRIERS, LONG, Phase, Testbed};
use super::recorded::Recording;
use super::{Attack, Times};
use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::{Lab, Size};
use crate::part::{Orders, Part, Place};
use crate::results::{Check, Factors, Findings, Group, Table};
use crate::stalls::Monitor;
use crate::statistics::{Distribution, median};
use linux::poll::{Poller, Readiness};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Heads of the table.
pub const HEADS: [&str; 12] = [
    "attack",
    "attempts",
    "lost",
    "p50, µs",
    "p99, µs",
    "p99 alone",
    "p99 beside a bystander",
    "attack : alone",
    "attack : bystander",
    "grown, MB",
    "newcomers, ms",
    "failed",
];

/// The effect.
pub struct Effect {
    attack: &'static str,
    by: &'static str,
    carriers: BTreeMap<&'static str, [Tally; 3]>,
    tried: Tried,
    /// The data sent to the bystander.
    told: Tried,
    grown_mb: f64,
    grown_by: &'static str,
    newcomers: Vec<f64>,
    late: u64,
    silent: Vec<String>,
    died: Vec<String>,
}

impl Effect {
    /// None so far.
    fn new(attack: &'static str, by: &'static str) -> Self {
        Self {
            attack,
            by,
            carriers: CARRIERS.iter().map(|carrier| (*carrier, Default::default())).collect(),
            tried: Tried::default(),
            told: Tried::default(),
            grown_mb: 0.0,
            grown_by: "",
            newcomers: Vec::new(),
            late: 0,
            silent: Vec::new(),
            died: Vec::new(),
        }
    }

    /// Attacks.
    ///
    /// # Errors
    /// A process of the pair ended, which no attack may cause; [`crate::Error::Stopped`].
    pub fn of(
        lab: &Lab,
        testbed: &mut Testbed,
        outside: &Place,
        attack: &'static Attack,
        recording: &Recording,
        times: &Times,
    ) -> Result<Self> {
        let mut effect = Self::new(attack.name, attack.by);
        for attempt in 0..times.tries {
            effect.alone(lab, testbed, times.alone)?;
            let before = testbed.state();
            let task = Task {
                ms: times.attacked,
                seed: lab.options.seed + u64::from(attempt),
                recording: recording.clone(),
                ..testbed.task(attack.name)
            };
            let monitor = Monitor::start()?;
            let phase = testbed.phase(lab, times.attacked, Some((outside.clone(), task.clone())))?;
            let per_second = phase.tried.per_second();
            effect.add(ATTACKED, phase, &monitor.finish());
            if attack.one_way {
                effect.beside_a_bystander(lab, testbed, outside, &Task { per_second, ..task }, times)?;
            }
            effect.alone(lab, testbed, times.alone)?;
            effect.silent.extend(testbed.silent(lab)?);
            effect.died.extend(testbed.state().died_since(&before));
            if effect.is_well() && !effect.is_stalled() {
                break;
            }
        }
        Ok(effect)
    }

    fn alone(&mut self, lab: &Lab, testbed: &mut Testbed, count: u64) -> Result {
        let monitor = Monitor::start()?;
        let phase = testbed.phase(lab, count, None)?;
        let stalls = monitor.finish();
        self.add(ALONE, phase, &stalls);
        Ok(())
    }

    /// Runs the same attacker, as often per second, against a process that is no node in the nodes' place.
    fn beside_a_bystander(
        &mut self,
        lab: &Lab,
        testbed: &mut Testbed,
        outside: &Place,
        task: &Task,
        times: &Times,
    ) -> Result {
        let roles: Vec<String> = testbed.sockets.keys().cloned().collect();
        let (mut part, bystander) = start_bystander(lab, testbed.place(), &roles)?;
        let monitor = Monitor::start()?;
        let phase = testbed.phase(lab, times.attacked, Some((outside.clone(), Task { bystander, ..task.clone() })))?;
        self.add(BYSTANDER, phase, &monitor.finish());
        part.end();
        Ok(())
    }

    fn add(&mut self, arm: usize, phase: Phase, stalls: &crate::stalls::Stalls) {
        for (carrier, sides) in &mut self.carriers {
            if let Some(arrived) = phase.arrived.get(*carrier) {
                sides[arm].add(phase.published, &arrived.samples, stalls);
            }
        }
        if arm == BYSTANDER {
            self.told.add(phase.tried.clone());
        }
        if arm == ATTACKED {
            self.tried.add(phase.tried);
            let (kib, by) = phase.growth_kib;
            if kib as f64 / 1024.0 > self.grown_mb {
                (self.grown_mb, self.grown_by) = (kib as f64 / 1024.0, by);
            }
        }
        let took = |(_, ms): &(_, Option<f64>)| ms.unwrap_or(f64::INFINITY);
        self.late += phase.newcomers.iter().filter(|one| took(one) > NEWCOMER).count() as u64;
        self.newcomers.extend(phase.newcomers.iter().map(took));
    }

    /// p99 beside the attacker over p99 alone: medians over tries, and the worst carrier, since each is a promise of its own.
    fn ratio(&self) -> f64 {
        self.ratio_to(ALONE)
    }

    /// The same over p99 in another arm.
    fn ratio_to(&self, arm: usize) -> f64 {
        let both = |sides: &&[Tally; 3]| sides[ATTACKED].sent() > 0 && sides[arm].sent() > 0;
        let ratios = self.carriers.values().filter(both).map(|sides| {
            let p99 = |tally: &Tally| {
                median(&tally.each(|d| d.p99).into_iter().filter(|v| v.is_finite()).collect::<Vec<_>>())
            };
            p99(&sides[ATTACKED]) / p99(&sides[arm])
        });
        ratios.fold(f64::NAN, f64::max)
    }

    fn lost(&self) -> u64 {
        self.carriers.values().flatten().map(Tally::lost).sum()
    }

    /// The same for a check; NaN if nothing was sent beside the attacker, which is no success.
    fn missing(&self) -> f64 {
        let is_sent = self.carriers.values().any(|sides| sides[ATTACKED].sent() > 0);
        if is_sent { self.lost() as f64 } else { f64::NAN }
    }

    fn slowest(&self) -> f64 {
        self.newcomers.iter().copied().fold(0.0, f64::max)
    }

    /// `true` if the machine itself stood still too often for times to mean anything.
    fn is_stalled(&self) -> bool {
        self.carriers.values().flat_map(|sides| &sides[..BYSTANDER]).any(|tally| tally.stalled() > STALLED)
    }

    /// `true` if everything except times is as expected, and the processes can serve for another attack.
    pub fn is_whole(&self) -> bool {
        self.lost() == 0 && self.silent.is_empty() && self.died.is_empty() && self.grown_mb <= MEMORY
    }

    fn is_well(&self) -> bool {
        self.is_whole() && self.late == 0 && self.ratio() <= P99
    }

    fn checks(&self) -> Vec<Check> {
        let label = |what: &str| format!("{}: {what}", self.attack);
        let mut checks = vec![
            Check::at_most(label("samples lost"), self.missing(), 0.0),
            Check::at_most(label("memory taken, MB"), self.grown_mb, MEMORY),
            Check::at_most(label("newcomers that took more than a second"), self.late as f64, 0.0),
            Check::at_most(label("nodes that no longer answer"), self.silent.len() as f64, 0.0),
            Check::at_most(label("threads that died"), self.died.len() as f64, 0.0),
        ];
        let p99 = Check::at_most(label("p99 of the worst carrier, ratio"), self.ratio(), P99).judged_from(Size::Quick);
        checks.push(if self.is_stalled() { p99.inconclusive("the machine itself stood still too often") } else { p99 });
        checks
    }

    /// Writes the effect into the document.
    pub fn note(&self, findings: &mut Findings, table: &mut Table, groups: &mut Vec<Group>) {
        let checks = self.checks();
        let failed: Vec<String> = checks.iter().filter(|check| !check.pass).map(|check| check.name.clone()).collect();
        findings.checks.extend(checks);
        for (carrier, sides) in &self.carriers {
            for (arm, side) in ARMS.into_iter().zip(sides).filter(|(_, side)| side.sent() > 0) {
                let factors = Factors::new().with("arm", arm).with("attack", self.attack).with("listener", self.by);
                findings.cells.push(side.cell(factors.with("measured", *carrier), false));
            }
        }
        self.tell(findings, table, &failed);
        let sides = self.carriers.get("tcp").into_iter().flatten();
        let bars = ARMS.into_iter().zip(sides).filter_map(|(arm, side)| side.bar(arm)).collect();
        groups.push(Group { label: self.attack.into(), bars });
    }

    fn tell(&self, findings: &mut Findings, table: &mut Table, failed: &[String]) {
        let attempts: u64 = self.tried.tried.values().sum();
        let worst = |arm: usize, figure: fn(&Distribution) -> f64| {
            let all = self.carriers.values().flat_map(|sides| sides[arm].each(figure));
            all.filter(|value| value.is_finite()).fold(0.0, f64::max)
        };
        let mut row: Vec<String> = vec![self.attack.into(), attempts.to_string(), self.lost().to_string()];
        let of_bystander = |value: f64, text: String| if value.is_finite() && value > 0.0 { text } else { "-".into() };
        let times = [worst(ATTACKED, |d| d.p50), worst(ATTACKED, |d| d.p99), worst(ALONE, |d| d.p99)];
        row.extend(times.map(|value| format!("{value:.0}")));
        let beside = worst(BYSTANDER, |d| d.p99);
        row.push(of_bystander(beside, format!("{beside:.0}")));
        for arm in [ALONE, BYSTANDER] {
            let ratio = self.ratio_to(arm);
            row.push(of_bystander(ratio, format!("{ratio:.2}")));
        }
        row.extend([self.grown_mb, self.slowest()].map(|value| format!("{value:.0}")));
        row.push(failed.iter().map(|name| name.split(": ").nth(1).unwrap_or_default()).collect::<Vec<_>>().join(", "));
        table.rows.push(row);
        findings.notes.push(format!("{}: tried {:?}; answers {:?}", self.attack, self.tried.tried, self.tried.answers));
        if self.told.ms > 0 {
            findings.notes.push(format!("{}: a bystander was told {:?}", self.attack, self.told.tried));
        }
        for (what, who) in [("no answer from", &self.silent), ("threads that ended:", &self.died)] {
            if !who.is_empty() {
                findings.notes.push(format!("{}: {what} {}", self.attack, who.join(", ")));
            }
        }
        if self.grown_mb > MEMORY {
            findings.notes.push(format!("{}: it was the {} that grew", self.attack, self.grown_by));
        }
    }
}

/// Name of the role.
pub const BYSTANDER_ROLE: &str = "bystander";

/// Its listeners in place of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listens {
    /// Over TCP.
    pub tcp: SocketAddr,
    /// By a unix socket.
    pub unix: PathBuf,
}

impl Listens {
    /// Its listening addresses: TCP, unix.
    pub fn listeners(&self) -> (Listener, Listener) {
        (Listener::Tcp(self.tcp), Listener::Unix(self.unix.clone()))
    }
}

/// Starts it; returns its listeners in place of each of these nodes.
///
/// # Errors
/// As [`Part::start`] and [`Part::hear`].
pub fn start_bystander(lab: &Lab, place: &Place, roles: &[String]) -> Result<(Part, BTreeMap<String, Listens>)> {
    let folder = lab.folder().join(BYSTANDER_ROLE);
    std::fs::create_dir_all(&folder)?;
    let mut part = Part::start(lab, place.clone(), BYSTANDER_ROLE, &json!({"roles": roles, "folder": folder}))?;
    let listens = part.hear(lab, LONG)?;
    Ok((part, listens))
}

/// The role. Its thread ends with the process.
pub(crate) fn play_bystander(mut orders: Orders) -> Result {
    let settings: Value = orders.settings()?;
    let folder = PathBuf::from(settings["folder"].as_str().unwrap_or_default());
    let (mut listeners, mut listens) = (Vec::<OwnedFd>::new(), BTreeMap::new());
    for role in settings["roles"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let unix = folder.join(role);
        let _ = std::fs::remove_file(&unix); // of the attack before
        listens.insert(role.to_owned(), Listens { tcp: tcp.local_addr()?, unix: unix.clone() });
        listeners.extend([tcp.into(), UnixListener::bind(&unix)?.into()]);
    }
    let body = move || drop(serve(&listeners));
    let settings =
        linux::thread::Settings { slice_ns: Some(SLICE_NS), ..linux::thread::Settings::named(BYSTANDER_ROLE) };
    linux::thread::spawn(settings, body)?;
    orders.say(&listens)?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}

/// Accepts every connection, reads everything, and holds the latest ones.
fn serve(listeners: &[OwnedFd]) -> io::Result<()> {
    let poller = Poller::new()?;
    for (index, listener) in listeners.iter().enumerate() {
        rustix::io::ioctl_fionbio(listener, true)?;
        poller.add(listener, index as u64, Readiness::IN)?;
    }
    let (mut ready, mut held, mut next) = (Vec::with_capacity(64), HashMap::new(), listeners.len() as u64);
    let mut bytes = vec![0; 64 << 10];
    loop {
        poller.wait(&mut ready, None)?;
        for event in &ready {
            if let Some(listener) = listeners.get(event.token as usize) {
                let Ok(stream) = rustix::net::accept(listener) else { continue };
                poller.add(&stream, next, Readiness::IN)?;
                held.insert(next, stream);
                held.remove(&next.saturating_sub(MOST_HELD as u64));
                next += 1;
                continue;
            }
            let Some(stream) = held.get(&event.token) else { continue };
            let read = rustix::net::recv(stream, &mut bytes[..], RecvFlags::DONTWAIT);
            if matches!(read, Ok((0, _))) || read.is_err_and(|e| e != rustix::io::Errno::AGAIN) {
                held.remove(&event.token);
            }
        }
    }
}

/// Limit of p99 as a multiple of p99 alone.
const P99: f64 = 1.5;
/// Limit of the memory that an attacker may cost, in MB.
const MEMORY: f64 = 64.0;
/// Limit of a newcomer's time, in milliseconds.
const NEWCOMER: f64 = 1000.0;
/// Limit of the share of samples that stalls of the machine hit.
const STALLED: f64 = 0.05;
/// The pair without an attacker, beside one that attacks, and beside one that sends as much to a bystander.
const ARMS: [&str; 3] = ["alone", "attacked", "bystander"];
const ALONE: usize = 0;
const ATTACKED: usize = 1;
const BYSTANDER: usize = 2;
/// Largest number of connections: as many as nodes let attackers wait (16 of a peer), and links they have.
const MOST_HELD: usize = 64;
/// The slice of a node's control threads, so that the pair takes the processor from both equally soon.
const SLICE_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// The checks that fail where samples took 100 µs alone, and this long beside the attacker.
    fn failed(us: u64, change: impl FnOnce(&mut Effect)) -> Vec<String> {
        let mut effect = Effect::new("attack", "tcp");
        for sides in effect.carriers.values_mut() {
            for (arm, us) in [(ALONE, 100), (ATTACKED, us)] {
                sides[arm].add(10, &[Timed { from_ns: 0, ns: us * 1000 }; 10], &Stalls::default());
            }
        }
        change(&mut effect);
        let failed = effect.checks().into_iter().filter(|check| !check.pass);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn each_effect_of_an_attack_fails() {
        assert_eq!(failed(149, |_| ()), Vec::<String>::new());
        assert_eq!(failed(151, |_| ()), ["attack: p99 of the worst carrier, ratio"]);
        assert_eq!(failed(100, |effect| effect.grown_mb = 65.0), ["attack: memory taken, MB"]);
        assert_eq!(failed(100, |effect| effect.late = 1), ["attack: newcomers that took more than a second"]);
        assert_eq!(failed(100, |effect| effect.silent = vec!["relay".into()]), ["attack: nodes that no longer answer"]);
        assert_eq!(failed(100, |effect| effect.died = vec!["control".into()]), ["attack: threads that died"]);
        let one = |effect: &mut Effect| {
            let tallies = effect.carriers.values_mut().next();
            tallies.unwrap()[ATTACKED].add(1, &[], &Stalls::default());
        };
        assert_eq!(failed(100, one), ["attack: samples lost"]);
        let nothing = failed(100, |effect| *effect = Effect::new("attack", "tcp"));
        assert_eq!(nothing, ["attack: samples lost", "attack: p99 of the worst carrier, ratio"]);
    }
}
