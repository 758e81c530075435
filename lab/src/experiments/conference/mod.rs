//! `rt-conference` (P-15, P-16): a distributed conference of three hosts. Each sends audio, the state of a game, video, a
//! white-board and chat to the two others, each stream of its own class; each takes as much video as suits it: as many pictures, and as large ones.
//! The third
//! host's link becomes narrow for a while, and only the streams of the highest classes still come whole. Then it fails and comes
//! back, and all streams must continue by themselves. A profile may set other classes (`lab run --profile`).

//!
//! | module | contents |
//! |---|---|
//! | `members` | the three nodes: orders, arrivals, what was published |
//! | `pictures` | their sizes, and the bytes on the links |
//! | `threads` | threads as the kernel has them |
//! | `outcome` | the other checks, tables and the figure |

mod members;
mod outcome;
mod pictures;
mod threads;

use super::{Experiment, lines};
use crate::error::{Error, Result};
use crate::lab::{Lab, Options, Size};
use crate::part::picture;
use crate::results::Findings;
use crate::topology::{Line, Queue, Topology, Wire};
use members::{Heard, Members};
use qos::Class;
use std::time::Duration;
use thalweg::profile::Profile;
use thalweg::proxy::Picture;

/// The experiment.
pub(super) struct Conference;

const HOSTS: u8 = 3;
/// The host whose link fails.
const CUT: u8 = 3;
/// Rate of every link.
const RATE: u64 = 20_000_000;
/// Rate of the third host's link while it is narrow: three quarters of the nominal load.
const NARROW: u64 = 2_000_000;
/// All streams continue within this time after the link is back (F-14).
const AT_ONCE: Duration = Duration::from_secs(1);
/// A stream that does not continue within this time is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One kind of stream: name, bytes, hertz, class, carrier and priority of threads. The most important one first (P-15); white-board and chat
/// share the lowest class, and differ in their threads.
struct Kind {
    name: &'static str,
    size: usize,
    hz: f64,
    class: Class,
    carrier: &'static str,
    /// Priority of its threads at both ends, SCHED_FIFO: the publishing one, and those of the channel.
    fifo: u8,
}

const KINDS: [Kind; 5] = [
    Kind { name: "audio", size: 160, hz: 50.0, class: Class::Critical, carrier: "udp", fifo: 50 },
    Kind { name: "game", size: 64, hz: 30.0, class: Class::High, carrier: "udp", fifo: 40 },
    Kind { name: VIDEO, size: picture::size(WHOLE), hz: 25.0, class: Class::Normal, carrier: "udp", fifo: 30 },
    Kind { name: "whiteboard", size: 500, hz: 5.0, class: Class::Low, carrier: "tcp", fifo: 20 },
    Kind { name: "chat", size: 100, hz: 2.0, class: Class::Low, carrier: "tcp", fifo: 10 },
];

const VIDEO: &str = "video";
/// Pictures as they are published.
const WHOLE: Picture = Picture { width: 200, height: 150 };
/// Ratio of published pictures to those that each host takes, and their size (P-03): the second host's proxies make them smaller.
const PICTURES: [(u32, Picture); HOSTS as usize] = [(1, WHOLE), (2, Picture { width: 100, height: 75 }), (5, WHOLE)];

impl Experiment for Conference {
    fn name(&self) -> &'static str {
        "rt-conference"
    }

    fn about(&self) -> &'static str {
        "audio, game, video, white-board and chat between three hosts, each of its own class; all go on after an outage"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let lines: Vec<Line> = (1..=HOSTS).map(|host| Line::of(host, RATE)).collect();
        let mut topology = Topology::switch(lab, HOSTS, &lines)?;
        if let Some(file) = &lab.options.profile {
            Profile::read(file).map_err(|wrong| Error::Usage(wrong.to_string()))?;
        }
        let wire = Wire { rate: RATE, limit: 1000, queue: Queue::Classes };
        (1..=HOSTS).try_for_each(|host| wire.install(topology.middle()?, &Topology::leads_to(host)))?;
        let mut members = Members::start(lab, &topology)?;
        let Phases { before, narrow, outage, after } = phases(&lab.options);
        let mut phases = ["before", "narrow", "outage", "after"].map(Heard::new);
        let links = Members::links(&topology)?;
        members.slices(lab, before, &mut phases[0])?;
        let (taken, found) = (members.taken(&topology, &links)?, members.threads(lab)?);
        let port = Topology::leads_to(CUT);
        topology.change_to(CUT, |line| line.rate = Some(NARROW));
        Wire { rate: NARROW, limit: 100, ..wire }.install(topology.middle()?, &port)?;
        members.slices(lab, narrow, &mut phases[1])?;
        topology.change_to(CUT, |line| line.rate = Some(RATE));
        wire.install(topology.middle()?, &port)?;
        topology.middle()?.ip(&["link", "set", &port, "down"])?;
        members.slices(lab, outage, &mut phases[2])?;
        topology.middle()?.ip(&["link", "set", &port, "up"])?;
        members.resumes();
        members.slices(lab, after, &mut phases[3])?;
        let resumed = members.resumed(lab)?;
        members.finish(lab)?;
        let phases = phases.map(|heard| members.account(heard));
        let queues = topology.middle()?.tc(&["-s", "qdisc", "show", "dev", &port])?;
        let mut findings = outcome::judge(&phases, &resumed);
        pictures::judge(&taken, &mut findings);
        threads::judge(&found, lab.options.profile.is_none(), &mut findings);
        findings.queues = queues.lines().map(str::to_owned).collect();
        drop(members);
        lines::judge("all phases", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Slices of each phase.
struct Phases {
    before: u32,
    narrow: u32,
    outage: u32,
    after: u32,
}

fn phases(options: &Options) -> Phases {
    match options.size {
        Size::Tiny => Phases { before: 1, narrow: 1, outage: 1, after: 1 },
        Size::Ci => Phases { before: 1, narrow: 3, outage: 1, after: 1 },
        Size::Quick => Phases { before: 5, narrow: 5, outage: 3, after: 7 },
        Size::Whole => Phases { before: 30, narrow: 30, outage: 10, after: 30 },
    }
}
