//! `thalweg bench replay`: the intervals of a replay, and the timing test on builds that are equal, and on builds with a delay in a callback.

use super::others::Other;
use super::report::Report;
use super::{Folder, ToolOptions};
use crate::bench::Error;
use crate::output::tell;
use ::recording::file::{ChannelText, ClockAnchor, Limits, Output, Profile, Series, Stamped, channel_metadata};
use lab::results::Check;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg::codec::{Message, Raw};

/// Measures and judges.
pub(in crate::bench) fn run(options: &ToolOptions) -> Result<bool, Error> {
    let time = options.time(10, 2);
    let folder = Folder::new(&options.dir)?;
    let mut report = Report::new("replay", options, time.as_secs_f64())?;
    let file = folder.file("ticks.mcap");
    write_ticks(&file, time).map_err(|wrong| Error::System(wrong.to_string()))?;
    let (mut errors, mut missing) = (Vec::new(), 0.0);
    for round in 0..options.rounds() {
        tell(&format!("replay: round {}", round + 1));
        let found = replay(&file, round)?;
        errors.push(number(&found, "/listened/interval_error_us/p99"));
        missing += f64::from(ticks(time)) - number(&found, "/listened/count");
        report.measured(found);
    }
    let builds = match (options.quick, options.broken) {
        (false, _) => BUILDS,
        (true, false) => QUICK_BUILDS,
        (true, true) => 1,
    };
    let found = builds_of(&folder, options, builds)?;
    let limit = f64::from(builds);
    // Samples that did not come are in no interval.
    report.count("missing", Check::at_most("samples of the replays that did not come", missing, 0.0));
    let name = "interval error at a subscriber, p99, us";
    report.time("interval_error_p99_us", &errors, 10.0, |p99| Check::at_most(name, p99, 100.0));
    let share = |name: &str, count: u32| Check::at_least(name, f64::from(count) / limit, 1.0);
    report.part("equal_passed_share", share("part of the equal builds that pass", found.passed), builds);
    report.part("delays_named_share", share("part of the builds whose callback is named", found.named), builds);
    let name = "part of the builds with a delay in which nothing but the callback is named";
    report.part("delays_alone_share", share(name, builds.saturating_sub(found.misled)), builds);
    report.measured(json!({"builds": builds, "passed": found.passed, "named": found.named, "misled": found.misled,
        "other_answers": found.others}));
    report.end(options)
}

/// A recording of 64 B at 1 kHz, as exact as numbers are.
fn write_ticks(file: &Path, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let anchor = ClockAnchor { clock: "bench".to_owned(), monotonic_ns: 0, wall_ns: BEGIN_NS };
    let mut output = Output::create(Series::new(file), Limits::default(), anchor, Vec::new())?;
    output.begin(Profile::Thalweg, 0)?;
    let metadata = channel_metadata(&qos::Qos::default(), &Raw::description(), ("/bench/ticks", "/record"), "shm");
    let channel = output.add(ChannelText { topic: TICKS.to_owned(), schema: None, encoding: "cdr", metadata })?;
    for sequence in 0..ticks(time) {
        let at_ns = BEGIN_NS + u64::from(sequence) * TICK_NS;
        output.write(channel, Stamped { sequence, log_ns: at_ns, publish_ns: at_ns }, &[7; 64])?;
        if output.is_full() {
            output.flush()?;
        }
    }
    Ok(output.finish()?)
}

/// The ticks of this time.
fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / u128::from(TICK_NS)).unwrap_or(u32::MAX)
}

/// Plays the ticks to a listener.
fn replay(file: &Path, round: u32) -> Result<Value, Error> {
    let realm = realm(&format!("ticks-{round}"));
    let mut listener = Other::start(&["bench", "part", "listen", "--realm", &realm, "--topic", TICKS])?;
    listener.line()?;
    let mut player = Other::start(&["play", &file.display().to_string(), "--realm", &realm, "--json"])?;
    let played = player.document()?;
    player.end()?;
    let (wanted, until) = (number(&played, "/samples"), Instant::now() + PATIENCE);
    let listened = loop {
        listener.tell("report")?;
        let listened = listener.document()?;
        if number(&listened, "/count") >= wanted || Instant::now() >= until {
            break listened;
        }
        std::thread::sleep(SETTLE);
    };
    let (error, slowed) = (&played["interval_error_us"], &played["slowed_ms"]);
    Ok(json!({"round": round + 1, "played": played["samples"], "player_interval_error_us": error, "slowed_ms": slowed,
        "listened": listened}))
}

/// The answers of the timing test.
#[derive(Default)]
struct Answers {
    passed: u32,
    named: u32,
    /// Builds with a delay of which something else is named, too.
    misled: u32,
    /// Wrong ones.
    others: Vec<Value>,
}

impl Answers {
    /// Notes the answer for a build.
    fn note(&mut self, delayed: bool, report: &Value) {
        let findings = || report["findings"].as_array().into_iter().flatten();
        let (named, misled) = (findings().any(is_of_the_callback), !findings().all(is_of_the_callback));
        let passed = report["pass"] == true;
        self.passed += u32::from(!delayed && passed);
        self.named += u32::from(delayed && named);
        self.misled += u32::from(delayed && misled);
        let is_right = if delayed { named && !misled } else { passed };
        if !is_right {
            self.others.push(json!({"delayed": delayed, "findings": report["findings"]}));
        }
    }
}

fn builds_of(folder: &Folder, options: &ToolOptions, builds: u32) -> Result<Answers, Error> {
    let (mut baseline, time) = (Vec::new(), if options.quick { "1s" } else { "2s" });
    for number in 0..BASELINES {
        tell(&format!("replay: baseline {} of {BASELINES}", number + 1));
        let file = folder.file(&format!("baseline-{number}.mcap"));
        build(&file, Duration::ZERO, &format!("baseline-{number}"), time)?;
        baseline.extend(["--check".to_owned(), file.display().to_string()]);
    }
    let injected = if options.broken { Duration::ZERO } else { DELAY };
    let mut answers = Answers::default();
    for number in 0..builds {
        tell(&format!("replay: pair of builds {} of {builds}", number + 1));
        for (delayed, delay) in [(false, Duration::ZERO), (true, injected)] {
            let file = folder.file(&format!("build-{number}-{}.mcap", u8::from(delayed)));
            build(&file, delay, &format!("build-{number}-{}", u8::from(delayed)), time)?;
            let report = check(&file, &baseline)?;
            std::fs::remove_file(&file)?;
            answers.note(delayed, &report);
        }
    }
    Ok(answers)
}

/// Records a build of the system under test: samples at 200 Hz for this time, and a program whose callback answers each, after this delay.
fn build(file: &Path, delay: Duration, name: &str, time: &str) -> Result<(), Error> {
    let (realm, file) = (realm(name), file.display().to_string());
    let mut recorder = Other::start(&["record", &file, IN, OUT, "--json", "--realm", &realm])?;
    let delay = format!("{}us", delay.as_micros());
    let reaction = ["bench", "part", "react", "--realm", &realm, "--topic", IN, "--answer", OUT, "--delay", &delay];
    let reaction = Other::start(&reaction)?;
    reaction.line()?;
    let source = ["bench", "part", "publish", "--realm", &realm, "--topic", IN, "--channels", "2"];
    let mut source = Other::start(&[&source[..], &["--rate", "200", "--time", time]].concat())?;
    source.line()?;
    source.tell("go")?;
    source.document()?;
    // The last answer arrives.
    std::thread::sleep(SETTLE);
    recorder.interrupt();
    recorder.document()?;
    recorder.end()?;
    Ok(())
}

/// What the timing test says of a build.
fn check(file: &Path, baseline: &[String]) -> Result<Value, Error> {
    let chain = format!("{IN},{OUT}");
    let arguments = ["play".to_owned(), file.display().to_string(), "--json".to_owned(), "--chain".to_owned(), chain];
    let mut test = Other::start(&[&arguments[..], baseline].concat())?;
    let report = test.document()?;
    test.end()?;
    Ok(report)
}

fn is_of_the_callback(finding: &Value) -> bool {
    finding["stage"] == "callback" && finding["topic"] == OUT
}

fn realm(name: &str) -> String {
    format!("bench-{}-{name}", std::process::id())
}

fn number(document: &Value, place: &str) -> f64 {
    document.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The topics.
const TICKS: &str = "/ticks";
const IN: &str = "/check/in";
const OUT: &str = "/check/out";
/// The interval of the ticks, that of a listener's default rate.
const TICK_NS: u64 = 1_000_000;
/// The time of the first tick: in 2026.
const BEGIN_NS: u64 = 1_790_000_000_000_000_000;
/// Builds of each kind, and in a quick run.
const BUILDS: u32 = 20;
const QUICK_BUILDS: u32 = 2;
/// Runs of the baseline, which show its noise.
const BASELINES: u32 = 3;
/// The delay in the callback.
const DELAY: Duration = Duration::from_millis(2);
/// The longest wait for what was played.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time in which what was sent arrives.
const SETTLE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_named_alone() {
        let callback = json!({"stage": "callback", "topic": OUT});
        let network = json!({"stage": "network", "topic": IN});
        let mut answers = Answers::default();
        answers.note(false, &json!({"pass": true, "findings": []}));
        answers.note(true, &json!({"pass": false, "findings": [callback]}));
        answers.note(true, &json!({"pass": false, "findings": [callback, network]}));
        answers.note(true, &json!({"pass": true, "findings": []}));
        assert_eq!((answers.passed, answers.named, answers.misled, answers.others.len()), (1, 2, 1, 2));
    }
}
