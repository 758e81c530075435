//! `thalweg bench dashboard`: the cost of the page and the metrics for a channel, and the page's own cost for many channels.
//!
//! In each round a publisher at 1 kHz has a listener three times: without a dashboard, beside one that nobody looks at, and beside one with
//! a page open and metrics read once a second. Then the page of a realm with 500 channels is open, and the processor time of the dashboard's
//! process is read.
//!
//! Off, the dashboard asks nothing, and a publisher has as many channels, threads and descriptors as without it. These are counted; its
//! processor time is shown. Instructions are not counted.

use super::ToolOptions;
use super::others::Other;
use super::report::Report;
use crate::bench::Error;
use crate::output::tell;
use lab::results::Check;
use lab::statistics::{median, rounded};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The dashboard beside a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// There is none.
    Without,
    /// Nobody looks at it.
    Off,
    /// A page is open, and metrics are read.
    On,
}

/// Measures and judges.
pub(in crate::bench) fn run(options: &ToolOptions) -> Result<bool, Error> {
    let time = options.time(10, 2);
    let mut report = Report::new("dashboard", options, time.as_secs_f64())?;
    let (mut without, mut off, mut on) = (Vec::new(), Vec::new(), Vec::new());
    let (mut counts_without, mut counts_off) = (Counts::default(), Counts::default());
    for round in 0..options.rounds() {
        let mut sides = [Side::Without, Side::Off, Side::On];
        sides.rotate_left(round as usize % 3);
        for side in sides {
            tell(&format!("dashboard: round {}: {side:?}", round + 1));
            let found = channel(side, time, round, options.broken && side == Side::Off)?;
            let p99 = number(&found, "/listened/latency_us/p99");
            match side {
                Side::Without => {
                    without.push(p99);
                    note(&mut counts_without, &found);
                }
                Side::Off => {
                    off.push(p99);
                    note(&mut counts_off, &found);
                }
                Side::On => on.push(p99),
            }
            report.measured(found);
        }
    }
    let crowd = crowd(time)?;
    let name = "channels, threads and descriptors of a publisher beside a dashboard that nobody looks at, beyond those without";
    report.count("off_beyond", Check::at_most(name, beyond(&counts_off, &counts_without), 0.0));
    let shown = number(&crowd, "/shown");
    report.count("shown", Check::at_least("channels on the page of 500", shown, CHANNELS as f64));
    let looks = number(&crowd, "/looks") / number(&crowd, "/seconds");
    report.whole("looks_per_second", Check::at_least("looks a second at the page of 500", looks, 0.5));
    report.quotient("p99_ratio", "p99, with / without the page and metrics", &on, &without, 1.03);
    report.figure("off_p99_ratio", median(&off) / median(&without));
    let percents: Vec<f64> =
        crowd["core_percents"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    report.time("core_percent", &percents, 1.0, |percent| {
        Check::at_most("percent of a core for 500 channels, a look a second", percent, 10.0)
    });
    report.measured(crowd);
    report.end(options)
}

/// What a publisher's process has, in each round.
type Counts = [Vec<f64>; 3];

fn note(counts: &mut Counts, found: &Value) {
    for (counts, name) in counts.iter_mut().zip(["channels", "threads", "descriptors"]) {
        counts.push(number(found, &format!("/published/{name}")));
    }
}

/// Channels, threads and descriptors that any node more in the realm costs each other one: a connection for its documents.
const OF_A_NODE: [f64; 3] = [0.0, 0.0, 1.0];

/// What a usual round has more; less of one kind does not excuse more of another.
fn beyond(counts: &Counts, without: &Counts) -> f64 {
    let sides = counts.iter().zip(without).zip(OF_A_NODE);
    let more = sides.map(|((counts, without), of_a_node)| median(counts) - median(without) - of_a_node);
    more.map(|more| if more < 0.0 { 0.0 } else { more }).sum() // one that is not a number stays
}

/// A channel beside a dashboard, or without one. `second`: it has a second subscriber, as if the dashboard asked for samples.
fn channel(side: Side, time: Duration, round: u32, second: bool) -> Result<Value, Error> {
    let realm = format!("bench-{}-{round}-{side:?}", std::process::id());
    let mut listener = Other::start(&["bench", "part", "listen", "--realm", &realm])?;
    listener.line()?;
    let second = second.then(|| Other::start(&["bench", "part", "listen", "--realm", &realm])).transpose()?;
    second.as_ref().map_or(Ok(()), |second| second.line().map(drop))?;
    let (milliseconds, channels) = (format!("{}ms", time.as_millis()), if second.is_some() { "2" } else { "1" });
    let publisher = ["bench", "part", "publish", "--realm", &realm, "--time", &milliseconds, "--channels", channels];
    let mut publisher = Other::start(&publisher)?;
    publisher.line()?;
    let page = match side {
        Side::Without => None,
        Side::Off | Side::On => Some(Page::open(&realm)?),
    };
    let viewer = page.as_ref().filter(|_| side == Side::On).map(|page| page.watch(true)).transpose()?;
    viewer.as_ref().map_or(Ok(()), Viewer::wait)?;
    publisher.tell("go")?;
    let published = publisher.document()?;
    listener.tell("report")?;
    let listened = listener.document()?;
    let seen =
        viewer.as_ref().map(|viewer| [&viewer.seen.looks, &viewer.seen.scrapes].map(|count| count.load(Relaxed)));
    Ok(json!({"round": round + 1, "dashboard": format!("{side:?}").to_lowercase(), "looks_and_scrapes": seen,
        "published": published, "listened": listened}))
}

/// Many channels on a page.
fn crowd(time: Duration) -> Result<Value, Error> {
    tell(&format!("dashboard: {CHANNELS} channels"));
    let realm = format!("bench-{}-crowd", std::process::id());
    let count = CHANNELS.to_string();
    let crowd = ["bench", "part", "crowd", "--realm", &realm, "--channels", &count, "--rate", "1"];
    let crowd = Other::start(&crowd)?;
    crowd.line()?;
    let mut page = Page::open(&realm)?;
    let viewer = page.watch(false)?;
    let until = Instant::now() + PATIENCE;
    while viewer.seen.channels.load(Relaxed) < CHANNELS && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (began, looks, mut percents) = (Instant::now(), viewer.seen.looks.load(Relaxed), Vec::new());
    for _ in 0..WINDOWS {
        let (used, window) = (page.cpu_seconds(), Instant::now());
        std::thread::sleep(time / WINDOWS);
        percents.push(rounded((page.cpu_seconds() - used) / window.elapsed().as_secs_f64() * 100.0, 2));
    }
    if !page.process.is_alive()? {
        return Err(Error::Peer("the dashboard has ended while its page was open".to_owned()));
    }
    let looks = viewer.seen.looks.load(Relaxed).saturating_sub(looks);
    let (seconds, shown) = (began.elapsed().as_secs_f64(), viewer.seen.channels.load(Relaxed));
    Ok(json!({"channels": CHANNELS, "shown": shown, "looks": looks, "seconds": rounded(seconds, 1),
        "core_percents": percents}))
}

/// A dashboard.
struct Page {
    process: Other,
    address: String,
}

impl Page {
    fn open(realm: &str) -> Result<Self, Error> {
        let process = Other::start(&["dashboard", "--at", "127.0.0.1:0", "--realm", realm, "--json"])?;
        let about = process.document()?;
        let page = about["page"].as_str().unwrap_or_default();
        let address = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Self { process, address })
    }

    /// Opens the page as a browser does; with `metrics`, also reads these once a second.
    fn watch(&self, metrics: bool) -> Result<Viewer, Error> {
        let seen = Arc::new(Seen::default());
        let (kept, stream) = (seen.clone(), self.request("/api/events")?);
        let own = stream.try_clone()?;
        std::thread::spawn(move || kept.read(stream));
        if metrics {
            let (seen, address) = (seen.clone(), self.address.clone());
            std::thread::spawn(move || {
                while !seen.closed.load(Relaxed) {
                    let read = request(&address, "/metrics").and_then(|mut stream| stream.read_to_end(&mut Vec::new()));
                    seen.scrapes.fetch_add(u64::from(read.is_ok()), Relaxed);
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
        }
        Ok(Viewer { stream: own, seen })
    }

    fn request(&self, path: &str) -> Result<TcpStream, Error> {
        Ok(request(&self.address, path)?)
    }

    /// Processor time of its process so far: user and system (proc_pid_stat(5), fields 14 and 15).
    fn cpu_seconds(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        ticks(&text) as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// The name may have spaces and brackets; the state, field 3, is behind its last one.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn request(address: &str, path: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let close = if path == "/metrics" { "Connection: close\r\n" } else { "" };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{close}\r\n")?;
    Ok(stream)
}

/// A page that is open until it is dropped.
struct Viewer {
    stream: TcpStream,
    seen: Arc<Seen>,
}

impl Viewer {
    /// Waits until the page has shown something, and the metrics were read: one that shows nothing costs nothing.
    fn wait(&self) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        while [&self.seen.looks, &self.seen.scrapes].iter().any(|count| count.load(Relaxed) == 0) {
            if Instant::now() >= until {
                return Err(Error::Peer(format!("the dashboard showed no page, or no metrics, within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.seen.closed.store(true, Relaxed);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// What a page has shown.
#[derive(Default)]
struct Seen {
    looks: AtomicU64,
    /// The most channels of one look.
    channels: AtomicU64,
    scrapes: AtomicU64,
    closed: AtomicBool,
}

impl Seen {
    fn read(&self, stream: TcpStream) {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let state = line.strip_prefix("data: ").and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(channels) = state.as_ref().and_then(|state| state["channels"].as_array()) {
                self.looks.fetch_add(1, Relaxed);
                self.channels.fetch_max(channels.len() as u64, Relaxed);
            }
        }
    }
}

fn number(document: &Value, place: &str) -> f64 {
    document.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Channels of the crowd.
const CHANNELS: u64 = 500;
/// Measurements of its processor time.
const WINDOWS: u32 = 5;
/// The longest wait until a page shows what it should.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1";
        assert_eq!(ticks(stat), 42);
        assert_eq!(ticks(""), 0);
    }

    #[test]
    fn less_of_one_kind_does_not_excuse_more_of_another() {
        let counts = |channels: f64, threads: f64| [vec![channels], vec![threads], vec![9.0]];
        assert_eq!(beyond(&counts(1.0, 7.0), &counts(1.0, 7.0)), 0.0);
        assert_eq!(beyond(&counts(2.0, 6.0), &counts(1.0, 7.0)), 1.0);
        assert!(beyond(&counts(f64::NAN, 7.0), &counts(1.0, 7.0)).is_nan());
    }
}
