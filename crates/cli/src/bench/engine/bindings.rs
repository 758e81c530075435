//! The library by its bindings: ends in Python and C++ (`bench/languages`), with the same work as those of [`super::thalweg`].
//!
//! Each role starts its end as a child, on the same processor, and meets the other role as usual. The ends find each other by Thalweg's
//! own discovery, in a realm of their own, and measure; this process waits meanwhile.

mod end;
mod programs;

pub(in crate::bench) use programs::Programs;

use super::thalweg::{cpu_ns, hear, hear_words, processes, tell};
use super::{Engine, Settings};
use crate::bench::figures::{Fanout, Latency, Meter, Throughput};
use crate::bench::{Carrier, EngineName, Error, Options, name_of};
use baseline::Terms;
use baseline::fanout::{MIN_SIZE, MISSED, merge};
use baseline::meeting::{read_words, write_words};
use end::{End, Report};
use std::io::Write;
use std::os::unix::net::UnixStream;

/// `true` if the engine is the library by a binding.
pub(in crate::bench) fn is_binding(engine: EngineName) -> bool {
    matches!(engine, EngineName::Cpp | EngineName::Python)
}

/// Refuses what the ends of bindings cannot do, before anything is started.
pub(in crate::bench) fn check(options: &Options, mode: &str) -> Result<(), Error> {
    let (engine, refused) = (name_of(options.engine), |text: String| Err(Error::Usage(text)));
    if options.beside.is_some() && (options.engine != EngineName::Python || mode != "fanout") {
        return refused("--beside is for fanout with --engine python".to_owned());
    }
    if !is_binding(options.engine) {
        return Ok(());
    }
    match options.carrier {
        _ if !matches!(mode, "latency" | "fanout") => {
            refused(format!("engine \"{engine}\" has no {mode}; allowed: latency, fanout"))
        }
        Carrier::Tcp | Carrier::Shm if mode == "fanout" && options.size < MIN_SIZE => {
            refused(format!("{} bytes per sample: at least {MIN_SIZE} for the stamp", options.size))
        }
        Carrier::Tcp | Carrier::Shm => Ok(()),
        other => refused(format!("engine \"{engine}\" has no carrier \"{}\"; allowed: tcp, shm", name_of(other))),
    }
}

/// The library by a binding.
pub(super) struct Binding(pub EngineName);

impl Engine for Binding {
    fn name(&self) -> &'static str {
        match self.0 {
            EngineName::Cpp => "cpp",
            _ => "python",
        }
    }

    fn ping(&self, settings: &Settings) -> Result<Latency, Error> {
        let control = settings.meeting(self.name(), "latency").join()?;
        settings.terms.check(baseline::Carrier::Shm)?;
        tell(&control, &settings.terms)?;
        let mut end = self.end("ping", settings, &settings.terms, std::process::id().into())?;
        end.expect("ready")?;
        let [_ready] = hear_words(&control)?;
        end.begin()?;
        end.measure()?;
        let report = end.report(settings.terms.count)?;
        write_words(&control, &[OVER])?;
        let copies = heard(read_words(&control)?);
        let meter = Meter::of(&report.nanoseconds, report.cpu_ns, report.rss_kib);
        Ok(Latency::new(self.name(), settings, &meter).copies(sum(report.copies, copies)))
    }

    fn pong(&self, settings: &Settings) -> Result<(), Error> {
        let control = settings.visited(self.name(), "latency")?;
        let (terms, realm) = hear(&control, settings)?;
        let mut end = self.end("pong", settings, &terms, realm)?;
        end.expect("ready")?;
        write_words(&control, &[READY])?;
        let [_over] = hear_words(&control)?;
        let Report { copies, .. } = end.finish(0)?;
        Ok(write_words(&control, &said(copies))?)
    }

    fn send(&self, _: &Settings) -> Result<Throughput, Error> {
        Err(self.no_throughput())
    }

    fn receive(&self, _: &Settings) -> Result<(), Error> {
        Err(self.no_throughput())
    }

    fn publish(&self, settings: &Settings) -> Result<Fanout, Error> {
        let terms = &settings.terms;
        terms.check(baseline::Carrier::Shm)?;
        let controls = settings.meeting(self.name(), "fanout").host(settings.subscribers)?;
        controls.iter().try_for_each(|control| tell(control, terms))?;
        let mut end = self.end("publish", settings, terms, std::process::id().into())?;
        end.expect("ready")?;
        let others = processes(&controls)?;
        end.begin()?;
        end.measure()?;
        let before = cpu_ns(&others)?;
        let report = end.report(0)?;
        let cpu_of_others = cpu_ns(&others)?.saturating_sub(before);
        let last = collect(&controls, terms)?;
        let came: Vec<u64> = last.into_iter().filter(|ns| *ns != MISSED).collect();
        let meter = Meter::of(&came, report.cpu_ns, report.rss_kib);
        Ok(Fanout::new(self.name(), settings, &meter).with_cpu_of_others(&meter, cpu_of_others))
    }

    fn subscribe(&self, settings: &Settings) -> Result<(), Error> {
        let mut control = settings.meeting(self.name(), "fanout").join()?;
        let (terms, realm) = hear(&control, settings)?;
        let mut end = self.end("subscribe", settings, &terms, realm)?;
        end.expect("ready")?;
        write_words(&control, &[end.process().into()])?;
        let [_over] = hear_words(&control)?;
        let report = end.finish(terms.count)?;
        let bytes: Vec<u8> = report.nanoseconds.iter().flat_map(|ns| ns.to_le_bytes()).collect();
        control.write_all(&bytes)?;
        hear_words::<1>(&control).map(drop)
    }
}

impl Binding {
    /// Starts an end in the realm of the measurement.
    fn end(&self, role: &str, settings: &Settings, terms: &Terms, realm: u64) -> Result<End, Error> {
        let none = || Error::System(format!("engine \"{}\": its programs were not made", self.name()));
        let mut command = Programs::command(self.0, settings.programs.as_deref().ok_or_else(none)?);
        let payload = match terms.payload {
            baseline::Payload::Copied => "copied",
            baseline::Payload::Untouched => "untouched",
            baseline::Payload::Checked => "checked",
        };
        let beside = settings.beside.map_or_else(|| "none".to_owned(), name_of);
        command.arg(role);
        for (key, value) in [
            ("realm", format!("bench-{realm}")),
            ("carrier", name_of(settings.carrier)),
            ("payload", payload.to_owned()),
            ("beside", beside),
            ("size", terms.size.to_string()),
            ("subscribers", settings.subscribers.to_string()),
            ("warmup", terms.warmup.to_string()),
            ("count", terms.count.to_string()),
        ] {
            command.arg(format!("{key}={value}"));
        }
        End::start(self.name(), command)
    }

    fn no_throughput(&self) -> Error {
        Error::Usage(format!("engine \"{}\" has no throughput; allowed: latency, fanout", self.name()))
    }
}

/// Ends the subscribers, and merges their records.
fn collect(controls: &[UnixStream], terms: &Terms) -> Result<Vec<u64>, Error> {
    let mut last = vec![0; terms.count as usize];
    for control in controls {
        write_words(control, &[OVER])?;
        merge(&mut last, control)?;
        write_words(control, &[OVER])?;
    }
    Ok(last)
}

/// The copies of both ends; `None` if they were not counted.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one? + other?)
}

/// A count on the control line.
fn said(count: Option<u64>) -> [u64; 2] {
    [count.is_some().into(), count.unwrap_or_default()]
}

fn heard([is_known, count]: [u64; 2]) -> Option<u64> {
    (is_known != 0).then_some(count)
}

/// Words between the two roles.
const READY: u64 = 1;
const OVER: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_not_known_is_not_taken_for_none() {
        for count in [None, Some(0), Some(7)] {
            assert_eq!(heard(said(count)), count);
        }
        assert_eq!((sum(Some(1), Some(2)), sum(Some(1), None), sum(None, None)), (Some(3), None, None));
    }

    #[test]
    fn what_a_binding_cannot_do_is_refused_before_anything_is_started() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let checked = |arguments: &str, mode: &str| {
            let line = format!("bench {arguments}");
            let line = <Line as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            check(&line.options, mode).map_err(|error| error.to_string())
        };
        for (arguments, mode) in [
            ("--engine python --carrier shm", "latency"),
            ("--engine cpp --carrier tcp", "fanout"),
            ("--engine python --beside asleep", "fanout"),
            ("--carrier local", "latency"),
        ] {
            assert_eq!(checked(arguments, mode), Ok(()), "{arguments}");
        }
        for (arguments, mode, says) in [
            ("--engine python --carrier udp", "latency", "allowed: tcp, shm"),
            ("--engine cpp", "throughput", "allowed: latency, fanout"),
            ("--engine cpp --size 8", "fanout", "at least 16"),
            ("--engine cpp --beside awake", "fanout", "--engine python"),
            ("--engine python --beside awake", "latency", "for fanout"),
        ] {
            assert!(checked(arguments, mode).unwrap_err().contains(says), "{arguments}");
        }
    }
}
