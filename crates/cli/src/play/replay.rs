//! Samples of a recording as they are due.

use super::Arguments;
use super::clock::Clock;
use super::outlets::{Outlet, Outlets, wait_for_subscribers};
use crate::failure::{Failure, Result};
use crate::output::{bytes, micros, table, tell};
use crate::participant::Participant;
use crate::signals::{Stop, TICK};
use lab::statistics::{Latencies, Percentiles, rounded};
use linux::clock::monotonic_ns;
use recording::play::{Ahead, AheadError, Part, Schedule, Timed};
use recording::read::Recording;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use serde::Serialize;
use std::num::NonZeroU64;
use std::time::Duration;

/// Replays a recording, and says how exactly.
pub(super) fn run(arguments: &Arguments, recording: &Recording) -> Result {
    let mut participant = arguments.common.open("play")?;
    let outlets = Outlets::open(arguments, &participant, recording)?;
    let clock = if arguments.clock { Some(Clock::open(&participant)?) } else { None };
    let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let part = Part {
        channels: outlets.channels(),
        from_ns: arguments.from.map_or(0, nanoseconds),
        until_ns: arguments.until.map(nanoseconds),
        repeat: arguments.repeat,
    };
    let ahead = Ahead::start(recording, part).map_err(refused)?;
    wait_for_subscribers(&mut participant, &outlets);
    // Timers of ordinary threads may be 50 us late on purpose. An older kernel that refuses this only makes them less exact.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let total = Latencies::up_to(Duration::from_secs(60));
    let mut player = Player { rate: arguments.rate, schedule: None, outlets, clock, total, heard: false };
    let begun_ns = monotonic_ns();
    let outcome = player.play(&mut participant, ahead);
    let seconds = Duration::from_nanos(monotonic_ns().saturating_sub(begun_ns)).as_secs_f64();
    participant.tell_events();
    let heard = player.heard;
    let summary = player.close(&participant.stop, seconds);
    outcome?;
    let is_part = arguments.from.is_some() || arguments.until.is_some();
    if is_part && summary.is_empty() && !participant.stop.asked() {
        let part = "no sample lies in this part of it: --from and --until count from the first sample";
        return Err(Failure::Usage(format!("{}: {part}", arguments.file.display())));
    }
    if !heard && !summary.is_empty() {
        tell(&summary.unheard());
    }
    if summary.slowed_ms > 0.0 {
        let ms = summary.slowed_ms;
        tell(&format!(
            "could not keep up: all topics together came {ms} ms later by the end; a lower --rate keeps their intervals"
        ));
    }
    participant.output.result(&summary, || summary.text())
}

fn refused(error: AheadError) -> Failure {
    match error {
        AheadError::Read(wrong) => Failure::Usage(wrong.to_string()),
        AheadError::Thread(_) => Failure::System(error.to_string()),
    }
}

struct Player {
    rate: f64,
    /// Begins with the first sample.
    schedule: Option<Schedule>,
    outlets: Outlets,
    clock: Option<Clock>,
    /// The errors of all intervals.
    total: Latencies,
    /// A sample met a subscriber.
    heard: bool,
}

impl Player {
    fn play(&mut self, participant: &mut Participant, ahead: Ahead) -> Result {
        for item in ahead {
            match item {
                Ok(timed) => self.sample(participant, &timed)?,
                Err(damage) => tell(&damage.to_string()),
            }
            if participant.stop.asked() {
                break;
            }
        }
        Ok(())
    }

    /// Publishes a sample when it is due.
    fn sample(&mut self, participant: &mut Participant, timed: &Timed) -> Result {
        let rate = self.rate;
        let schedule = self.schedule.get_or_insert_with(|| Schedule::new(timed.time_ns, monotonic_ns(), rate));
        let due_ns = schedule.due_ns(timed.time_ns);
        if !wait(participant, self.clock.as_mut(), schedule, due_ns)? {
            return Ok(());
        }
        let Some((outlet, change)) = self.outlets.of(timed.message.channel.id) else { return Ok(()) };
        let went_ns = monotonic_ns();
        let published = outlet.publish(change, &timed.message.data);
        let published = published.map_err(|wrong| Failure::from(wrong).at(&outlet.topic))?;
        outlet.dropped += u64::from(published.dropped + published.refused);
        self.heard |= published.sent + published.queued + published.refused + published.not_connected > 0;
        if let Some((time_ns, last_ns)) = outlet.last.replace((timed.time_ns, went_ns)) {
            let error = went_ns.saturating_sub(last_ns).abs_diff(schedule.lasts_ns(time_ns, timed.time_ns));
            outlet.errors.record(error);
            self.total.record(error);
        }
        // What a full queue held up counts as late, too.
        schedule.went_out(due_ns, monotonic_ns());
        Ok(())
    }

    /// Closes all ports.
    fn close(self, stop: &Stop, seconds: f64) -> Summary {
        let patience = if stop.asked() { GRACE } else { DRAIN };
        let slowed_ms = self.schedule.map_or(0, |schedule| schedule.slowed_ns()) as f64 / 1e6;
        let mut topics = Vec::new();
        for outlet in self.outlets.into_all() {
            let Outlet { topic, publisher, samples, bytes, ended, dropped, errors, .. } = outlet;
            let port = publisher.name().to_owned();
            if !publisher.close(patience) {
                tell(&format!("{topic}: some samples could not be sent in time and were dropped"));
            }
            topics.push(Row { topic, port, samples, bytes, ended, dropped, interval_error_us: errors.percentiles() });
        }
        topics.sort_by(|one, other| (&one.topic, &one.port).cmp(&(&other.topic, &other.port)));
        Summary {
            samples: topics.iter().map(|row| row.samples).sum(),
            seconds: rounded(seconds, 6),
            slowed_ms: rounded(slowed_ms, 3),
            interval_error_us: self.total.percentiles(),
            topics,
        }
    }
}

/// Waits until a sample is due, and publishes the time meanwhile; `false` if the user asked to end.
fn wait(
    participant: &mut Participant,
    mut clock: Option<&mut Clock>,
    schedule: &Schedule,
    due_ns: u64,
) -> Result<bool> {
    loop {
        if participant.stop.asked() {
            return Ok(false);
        }
        let now_ns = monotonic_ns();
        let mut until_ns = due_ns.min(now_ns.saturating_add(TICK.as_nanos() as u64));
        if let Some(clock) = &mut clock {
            if clock.due_ns <= now_ns {
                clock.publish(schedule.time_ns(now_ns), now_ns)?;
            }
            until_ns = until_ns.min(clock.due_ns);
        }
        if due_ns <= now_ns {
            return Ok(true);
        }
        sleep_until(until_ns);
        // Not in the last moment before a sample.
        if until_ns < due_ns {
            participant.tell_events();
        }
    }
}

/// Sleeps until this time of the monotonic clock, or a signal.
fn sleep_until(at_ns: u64) {
    let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    let at = Timespec { tv_sec: seconds.cast_signed(), tv_nsec: rest.cast_signed() };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// The result in the output of `--json`.
#[derive(Serialize)]
struct Summary {
    samples: u64,
    seconds: f64,
    slowed_ms: f64,
    /// Differences of intervals between two samples of one channel.
    interval_error_us: Option<Percentiles>,
    topics: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    topic: String,
    port: String,
    samples: u64,
    bytes: u64,
    ended: u64,
    dropped: u64,
    interval_error_us: Option<Percentiles>,
}

impl Summary {
    /// Nothing was published.
    fn is_empty(&self) -> bool {
        self.topics.iter().all(|row| row.samples + row.ended == 0)
    }

    /// What is told if no topic had a subscriber.
    fn unheard(&self) -> String {
        let topics: Vec<&str> = self.topics.iter().map(|row| row.topic.as_str()).collect();
        format!(
            "nobody heard it: no subscriber of {} was there from the first sample to the last; start one before, or play with --loop",
            topics.join(", ")
        )
    }

    fn text(&self) -> String {
        let headers = [
            ("topic", '<'),
            ("samples", '>'),
            ("bytes", '>'),
            ("ends of instances", '>'),
            ("dropped", '>'),
            ("interval p50", '>'),
            ("p99", '>'),
            ("max", '>'),
        ];
        let error = |figures: Option<Percentiles>, of: fn(Percentiles) -> f64| {
            figures.map_or("-".to_owned(), |figures| format!("± {}", micros(of(figures))))
        };
        let cells = |row: &Row| {
            vec![
                row.topic.clone(),
                row.samples.to_string(),
                bytes(row.bytes as f64),
                row.ended.to_string(),
                row.dropped.to_string(),
                error(row.interval_error_us, |figures| figures.p50),
                error(row.interval_error_us, |figures| figures.p99),
                error(row.interval_error_us, |figures| figures.max),
            ]
        };
        let rows: Vec<_> = self.topics.iter().map(cells).collect();
        let all = error(self.interval_error_us, |figures| figures.p99);
        format!(
            "{} samples in {:.1} s; intervals as recorded {all} (p99)\n\n{}",
            self.samples,
            self.seconds,
            table(&headers, &rows)
        )
    }
}

/// The longest wait for unsent samples at the end, and after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(1);
