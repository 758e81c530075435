//! `thalweg sub`: print the samples of a topic.

mod show;

use crate::failure::Result;
use crate::output::{line, micros, tell};
use crate::priority::Given;
use crate::quantity;
use crate::session::{Common, Session};
use crate::signals::TICK;
use crate::statistics::Latencies;
use crate::tap::{Callback, Scaled, Tap, Target};
use clap::Args;
use show::{Origins, Shown};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use thalweg::control::{NodeId, PortId};
use thalweg::port::SampleInfo;

/// Print the samples of a topic, typed content as JSON, strings as text, other bytes in hexadecimal
///
/// Takes what publishers offer: best-effort topics are received as such unless --reliable is given.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg sub /robot/imu --latency\n         thalweg sub '/camera/**' --every 30 --json"
)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    scaled: Scaled,
    /// Only samples published at least this long after the one before, per publisher: 20ms
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration, allow_negative_numbers = true)]
    min_separation: Option<Duration>,
    /// End after this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show how old each sample was when it arrived, and percentiles at the end
    #[arg(long)]
    latency: bool,
    /// Show all bytes of large samples, not only the first 256
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    common: Common,
}

/// A sample on its way from the receiving thread to standard output.
struct Arrived {
    info: SampleInfo,
    bytes: Vec<u8>,
}

/// Samples that wait to be printed. When they are so many, the receiving thread waits, and so, if reliable, the publisher.
const AHEAD: usize = 16;

/// Prints as asked.
pub fn run(arguments: &Arguments) -> Result {
    let mut session = arguments.common.open("sub")?;
    let (tell, told) = sync_channel(AHEAD);
    let separation = arguments.min_separation;
    let callback = move || forward(tell.clone(), Separation::new(separation));
    let (given, scaled) = (Some(arguments.given.clone()), arguments.scaled.clone());
    let tap = Tap::with(&session, &arguments.target, given, scaled, callback)?;
    let mut printer = Printer { arguments, origins: Origins::default(), printed: 0, latencies: Latencies::new() };
    let outcome = print_all(&mut printer, &mut session, tap, told);
    printer.tell_latencies();
    outcome
}

fn forward(tell: SyncSender<Arrived>, mut separation: Separation) -> Callback {
    Box::new(move |sample| {
        if separation.takes(sample.info()) {
            // An error means that nobody prints any more: the verb is about to end.
            let _ = tell.send(Arrived { info: *sample.info(), bytes: sample.to_vec() });
        }
    })
}

fn print_all(printer: &mut Printer<'_>, session: &mut Session, mut tap: Tap, told: Receiver<Arrived>) -> Result {
    // `told` ends before the port does: a receiving thread that waits to hand over a sample is released.
    let told = told;
    while !session.stop.asked() && !printer.is_done() {
        if let Ok(arrived) = told.recv_timeout(TICK) {
            printer.print(session, &arrived)?;
        }
        tap.tend(session)?;
    }
    drop(told);
    drop(tap);
    Ok(())
}

/// Which samples are far enough apart.
struct Separation {
    separation_ns: u64,
    last: HashMap<(NodeId, PortId), u64>,
}

impl Separation {
    fn new(separation: Option<Duration>) -> Self {
        let separation_ns = separation.map_or(0, |s| u64::try_from(s.as_nanos()).unwrap_or(u64::MAX));
        Self { separation_ns, last: HashMap::new() }
    }

    fn takes(&mut self, info: &SampleInfo) -> bool {
        if self.separation_ns == 0 {
            return true;
        }
        let publisher = (info.node, info.port);
        let last = self.last.get(&publisher);
        let takes = last.is_none_or(|last| info.source_ns.saturating_sub(*last) >= self.separation_ns);
        if takes {
            self.last.insert(publisher, info.source_ns);
        }
        takes
    }
}

struct Printer<'a> {
    arguments: &'a Arguments,
    origins: Origins,
    printed: u64,
    latencies: Latencies,
}

impl Printer<'_> {
    fn is_done(&self) -> bool {
        self.arguments.count.is_some_and(|count| self.printed >= count)
    }

    fn print(&mut self, session: &Session, arrived: &Arrived) -> Result {
        let Arguments { target, latency, full, .. } = self.arguments;
        let origin = self.origins.of(session, &arrived.info, &target.topic);
        if let Some(ns) = arrived.info.latency_ns() {
            self.latencies.record(ns);
        }
        let shown = Shown { origin: &origin, info: &arrived.info, bytes: &arrived.bytes, full: *full };
        let pattern = target.topic.contains('*');
        self.printed += 1;
        if session.output.json { session.output.document(&shown.json()) } else { line(&shown.text(pattern, *latency)) }
    }

    fn tell_latencies(&self) {
        if !self.arguments.latency {
            return;
        }
        match self.latencies.percentiles() {
            Some(found) => tell(&format!(
                "{} samples, latency p50 {}, p99 {}, max {}",
                self.latencies.count(),
                micros(found.p50),
                micros(found.p99),
                micros(found.max)
            )),
            None if self.printed > 0 => tell("no latency: the publisher's clock is not this host's"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(seq: u64, source_ns: u64) -> SampleInfo {
        let (node, port) = (NodeId(1), PortId(1));
        SampleInfo {
            node,
            port,
            incarnation: 1,
            seq,
            source_ns,
            received_ns: source_ns,
            same_clock: true,
            scaled: None,
        }
    }

    #[test]
    fn separation_is_by_distance_in_time() {
        let mut all = Separation::new(None);
        assert!((1..=7).all(|seq| all.takes(&info(seq, 0))));
        let mut apart = Separation::new(Some(Duration::from_nanos(20)));
        let taken: Vec<u64> = (1..=6).filter(|seq| apart.takes(&info(*seq, seq * 8))).collect();
        assert_eq!(taken, [1, 4]);
    }
}
