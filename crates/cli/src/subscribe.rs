//! `thalweg sub`: print the samples of a topic.

use crate::failure::Result;
use crate::output::{line, micros, tell};
use crate::participant::{Common, Participant};
use crate::priority::Given;
use crate::show::{Origins, Shown};
use crate::signals::TICK;
use crate::tap::{self, Scaled, Tap, Target};
use clap::Args;
use lab::statistics::Latencies;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use thalweg::Sample;
use thalweg::SampleInfo;
use thalweg::codec::Untyped;

/// Print the samples of a topic, typed content as JSON, strings as text, other bytes in hexadecimal
///
/// Takes what publishers offer: best-effort topics are received as such unless --reliable is given.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg sub /robot/imu --latency\n         thalweg sub '/camera/**' --every 30 --json"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    scaled: Scaled,
    /// Subscribe only as part of this session, which `thalweg session request` had admitted
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// End after this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show the age of each sample on arrival, and percentiles at the end
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

/// The most samples that wait to be printed. At this number the receiving thread waits, and with it a reliable
/// publisher.
const AHEAD: usize = 16;

/// Prints as asked.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut participant = arguments.common.open("sub")?;
    let (tell, told) = sync_channel(AHEAD);
    let callback = move |sample: Sample<'_, Untyped>| {
        // An error means that printing has stopped: the verb is about to end.
        let _ = tell.send(Arrived { info: *sample.info(), bytes: sample.to_vec() });
    };
    let (given, scaled) = (Some(arguments.given.clone()), arguments.scaled.clone());
    let session = arguments.session.as_deref();
    let tap = Tap::with(&participant, &arguments.target, given, scaled, session, callback)?;
    let mut printer = Printer { arguments, origins: Origins::default(), printed: 0, latencies: Latencies::default() };
    let outcome = print_all(&mut printer, &mut participant, tap, told);
    printer.tell_latencies();
    outcome
}

fn print_all(printer: &mut Printer<'_>, participant: &mut Participant, tap: Tap, told: Receiver<Arrived>) -> Result {
    // `told` is dropped before the port: this releases a receiving thread that waits to hand over a sample.
    let told = told;
    let mut quiet = Some(Instant::now() + QUIET);
    while !participant.stop.asked() && !printer.is_done() {
        if let Ok(arrived) = told.recv_timeout(TICK) {
            printer.print(participant, &tap, &arrived)?;
        }
        participant.tell_events();
        if quiet.take_if(|due| Instant::now() >= *due).is_some() && printer.printed == 0 {
            tap::silence(participant, &printer.arguments.target.topic).iter().for_each(|because| tell(because));
        }
    }
    drop(told);
    drop(tap);
    Ok(())
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

    fn print(&mut self, participant: &Participant, tap: &Tap, arrived: &Arrived) -> Result {
        let Arguments { target, latency, full, .. } = self.arguments;
        let origin = self.origins.of(participant, &arrived.info, &target.topic, || tap.publisher(&arrived.info));
        if let Some(ns) = arrived.info.latency_ns() {
            self.latencies.record(ns);
        }
        let shown = Shown { origin: &origin, info: &arrived.info, bytes: &arrived.bytes, full: *full };
        let pattern = target.topic.contains('*');
        self.printed += 1;
        if participant.output.json {
            participant.output.document(&shown.json())
        } else {
            line(&shown.text(pattern, *latency))
        }
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

/// The wait for a first sample before the user is told that nobody publishes the topic.
const QUIET: Duration = Duration::from_secs(1);
