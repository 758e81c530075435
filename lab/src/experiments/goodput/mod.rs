//! `goodput` (issue of saturated reliable channels): the rate of a publisher that outruns its path, over reliable
//! `udp` and over `tcp`, which is the kernel's TCP beneath the same product.
//!
//! | module | contents |
//! |---|---|
//! | `matrix` | loss × round trip × size, `udp` and `tcp` in turns |
//! | `sharing` | flows that share the line: Jain's index; a channel of 1 kHz beside a saturating one |
//!
//! Here are the [`Path`] of a flow, and a [`Saturating`] channel over it.

mod matrix;
mod sharing;

use super::{Experiment, lines};
use crate::error::{Error, Result};
use crate::lab::{Lab, Size};
use crate::link::{Behaviour, LinkReport};
use crate::part::stream::{Connected, Counts, Flow, Order, Published, Settings};
use crate::part::{LONG, NodeSettings, Place};
use crate::results::{Check, Figure, Findings, Table};
use crate::statistics::Distribution;
use crate::topology::{DEVICE, Line, Topology};
use linux::clock::monotonic_ns;
use qos::{Class, Qos};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// The experiment.
pub(super) struct Goodput;

impl Experiment for Goodput {
    fn name(&self) -> &'static str {
        "goodput"
    }

    fn about(&self) -> &'static str {
        "reliable udp against tcp as fast as they go: 100 Mbit/s by loss, round trip and size; loopback; fairness; a small channel beside"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        control(lab, &mut findings)?;
        let mut panels = matrix::run(lab, &mut findings)?;
        panels.extend(sharing::fairness(lab, &mut findings)?);
        panels.push(sharing::small(lab, &mut findings)?);
        findings.figure = Figure {
            title: "Reliable udp and tcp, saturated".into(),
            axis: "Mbit/s; p99 in µs".into(),
            logarithmic: true,
            panels,
        };
        Ok(findings)
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "line: {} Mbit/s each way, whole Ethernet frames without preamble, checksum and gap; a frame leaves when its last bit would; \
             {} kB wait in front of it in one queue, what 50 ms carry; losses by the seed, each frame by chance in both \
             directions, and only once the channel is connected",
            RATE / 1_000_000,
            BUFFER / 1000
        ),
        format!(
            "goodput: bytes of whole messages by the times at which they arrived, from the first one after a start of its own. A flow of which less than \
             one arrived is counted with none over udp, and with one over tcp. tcp is {} in the hosts' namespaces, whatever the machine has.",
            CONTROL
        ),
        "udp and tcp take turns, each with processes and channels of its own; the order is drawn by lot".into(),
    ]
}

/// A path between two hosts, or within the first one.
struct Path {
    hosts: Topology,
    loopback: bool,
    next: AtomicU16, // port of the next node
}

impl Path {
    /// The line with this round trip, without loss so far.
    fn line(lab: &Lab, trip_ms: u64) -> Result<Self> {
        let way = Behaviour {
            delay: Duration::from_millis(trip_ms) / 2,
            rate: Some(RATE),
            queue: BUFFER,
            ..Behaviour::default()
        };
        let hosts = Topology::link(lab, &[Line::both(1, way)])?;
        [1, 2].into_iter().try_for_each(|n| streams_use(CONTROL, &hosts, n))?;
        Ok(Self { hosts, loopback: false, next: AtomicU16::new(7400) })
    }

    /// Both ends on one host.
    fn loopback(lab: &Lab) -> Result<Self> {
        Ok(Self { loopback: true, ..Self::line(lab, 0)? })
    }

    /// The hosts.
    fn hosts(&self) -> &Topology {
        &self.hosts
    }

    /// From now on the line loses this percentage each way.
    fn lose(&self, percent: u8) {
        self.hosts.change(1, |line| line.loss = f64::from(percent) / 100.0);
    }

    /// Ends it, and returns the reports of the line.
    fn end(mut self) -> Vec<LinkReport> {
        self.hosts.end_lines()
    }

    /// Two nodes that see only each other, and their places: publisher and subscriber.
    fn nodes(&self, lab: &Lab) -> Result<[(NodeSettings, Place); 2]> {
        let port = self.next.fetch_add(1, Relaxed);
        let realm = format!("flow-{port}");
        let place = |host: u8| Place::at(self.hosts.host(host), &[]);
        if self.loopback {
            return Ok(["publisher", "subscriber"].map(|role| (NodeSettings::local(role, &realm), place(1))));
        }
        let at = |host: u8| SocketAddr::new(Topology::address_of(host), port);
        let node = |role: &str, host: u8| NodeSettings::at(lab, role, &realm, at(host), &[at(1), at(2)]);
        Ok([(node("publisher", 1)?, place(1)), (node("subscriber", 2)?, place(2))])
    }
}

/// Congestion control of all streams of a host, by its routes: a namespace's default may only be an algorithm that
/// any user may use.
fn streams_use(control: &str, hosts: &Topology, n: u8) -> Result {
    let address = Topology::address_of(n).to_string();
    for (to, device, source) in [
        (&["10.99.0.0/16"][..], DEVICE, address.as_str()),
        (&["local", &address, "table", "local"], DEVICE, &address),
        (&["local", "127.0.0.1", "table", "local"], "lo", "127.0.0.1"),
    ] {
        let rest = ["dev", device, "proto", "kernel", "src", source, "congctl", control];
        hosts.host(n).ip(&[&["route", "replace"], to, &rest[..]].concat())?;
    }
    Ok(())
}

/// The congestion control that a stream over the path really uses.
fn stream_uses(path: &Path) -> Result<String> {
    let hosts = &path.hosts;
    let listener = hosts.host(2).within(|| TcpListener::bind((Topology::address_of(2), 0)))??;
    let address = listener.local_addr()?;
    let stream = hosts.host(1).within(|| TcpStream::connect(address))??;
    Ok(rustix::net::sockopt::tcp_congestion(&stream).map_err(std::io::Error::from)?)
}

/// The line takes a frame's time when no other frame is in flight, and is never faster than its rate.
fn control(lab: &Lab, findings: &mut Findings) -> Result {
    lab.tell("whether the line serialises");
    let path = Path::line(lab, 0)?;
    let used = stream_uses(&path)?;
    if used != CONTROL {
        return Err(Error::System(format!("streams use {used}; modprobe tcp_{CONTROL}")));
    }
    let bind = |host: u8| {
        let at = SocketAddr::new(Topology::address_of(host), 0);
        path.hosts.host(host).within(|| UdpSocket::bind(at))?.map_err(Error::from)
    };
    let (from, to) = (bind(1)?, bind(2)?);
    to.set_read_timeout(Some(LONG))?;
    from.connect(to.local_addr()?)?;
    let full = [0; (FRAME - HEADERS) as usize];
    let mut table = Table::new("One way over the idle line, µs", &["frame", "transmission", "least", "p50", "p99"]);
    let count = match lab.options.size {
        Size::Tiny => 5,
        Size::Ci => IDLE / 4,
        Size::Quick | Size::Whole => IDLE,
    };
    for bytes in [128, FRAME] {
        let trips = idle(lab, &from, &to, &full[..(bytes - HEADERS) as usize], count)?;
        let transmission = bytes as f64 * 8e6 / RATE as f64;
        let Distribution { min, p50, p99, .. } = Distribution::of(&trips).unwrap_or_default();
        table.row(format!("{bytes} B"), &[transmission, min, p50, p99]);
        let name = format!("line: least time of a frame of {bytes} B over the idle line, µs");
        findings.checks.push(Check::at_least(name, min, transmission));
    }
    findings.tables.push(table);
    for _ in 0..BURST {
        from.send(&full)?;
    }
    let mut buffer = [0; FRAME as usize];
    for _ in 0..BURST {
        to.recv(&mut buffer)?;
    }
    lines::judge("burst", &path.end(), findings);
    Ok(())
}

fn idle(lab: &Lab, from: &UdpSocket, to: &UdpSocket, payload: &[u8], count: usize) -> Result<Vec<f64>> {
    let mut buffer = [0; FRAME as usize];
    let one = |_| {
        lab.stop.sleep(Duration::from_millis(2))?;
        let began = monotonic_ns();
        from.send(payload)?;
        to.recv(&mut buffer)?;
        Ok((monotonic_ns() - began) as f64 / 1000.0)
    };
    (0..count).map(one).collect()
}

/// The samples of a channel: size, rate, class, carrier.
#[derive(Clone, Copy, Debug)]
struct Load {
    carrier: &'static str,
    size: usize,
    /// 0: as fast as there is room.
    hz: f64,
    class: Class,
}

/// The channel.
struct Saturating {
    load: Load,
    flow: Flow,
}

/// Bytes per second that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    /// Without the message under way.
    least: f64,
    /// With a message that was.
    most: f64,
}

/// Counts of messages.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    published: u64,
    arrived: u64,
    /// Twice, out of order, or not whole.
    wrong: u64,
}

impl Saturating {
    /// Connects it.
    fn open(lab: &Lab, path: &Path, load: Load) -> Result<Self> {
        let Load { carrier, size, hz, class } = load;
        let (topic, carriers, qos) = ("/load".into(), vec![carrier.into()], Qos { class, ..Qos::default() });
        let settings = Settings { topic, size, hz, carriers, qos, ..Settings::default() };
        let [publisher, subscriber] = path.nodes(lab)?;
        Ok(Self { load, flow: Flow::open(lab, &settings, publisher, vec![subscriber])? })
    }

    /// Messages that arrived so far.
    fn count(&mut self, lab: &Lab) -> Result<Counts> {
        self.flow.subscribers[0].ask(lab, &Order::Count, LONG)
    }

    /// Ends it, and waits for the messages under way.
    fn finish(mut self, lab: &Lab) -> Result<Totals> {
        let published: Published = self.flow.publisher.ask(lab, &Order::Stop, LONG)?;
        let wait = Order::Until { seq: published.last, ms: DRAIN_MS };
        self.flow.subscribers[0].ask::<Connected>(lab, &wait, LONG)?;
        let Counts { count, wrong, .. } = self.count(lab)?;
        Ok(Totals { published: published.count, arrived: count, wrong })
    }

    /// Bytes per second between two counts.
    fn rate(&self, before: &Counts, after: &Counts) -> Rate {
        rate(self.load.size as f64, before, after)
    }
}

fn rate(size: f64, before: &Counts, after: &Counts) -> Rate {
    let count = after.count.saturating_sub(before.count) as f64;
    let from = if before.count > 0 { before.latest_ns } else { before.at_ns };
    let seconds = |to: u64| to.saturating_sub(from).max(1) as f64 / 1e9;
    if count == 0.0 {
        return Rate { least: 0.0, most: size / seconds(after.at_ns) };
    }
    // From arrival to arrival, so that none counts in part; a silence after the last one is none of chance.
    let to_last = seconds(after.latest_ns);
    let silent = seconds(after.at_ns) - to_last;
    let seconds = if silent > 2.0 * to_last / count { seconds(after.at_ns) } else { to_last };
    Rate { least: count * size / seconds, most: count * size / seconds }
}

/// Bits per second of the line.
const RATE: u64 = 100_000_000;
/// Bytes that may wait in front of it: 50 ms at its rate.
const BUFFER: u64 = RATE / 8 / 20;
/// Congestion control of the hosts' streams: the default of most hosts.
const CONTROL: &str = "cubic";
/// A full Ethernet frame.
const FRAME: u64 = 1514;
/// Its headers: Ethernet, IPv4, UDP.
const HEADERS: u64 = 42;
/// Datagrams of the positive control.
const IDLE: usize = 200;
/// Frames sent at once to show that the line serialises: fewer than a socket holds by itself.
const BURST: usize = 80;
/// Messages under way may take this long. They are lost only when they never come.
const DRAIN_MS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(count: u64, latest_s: u64, at_s: u64) -> Counts {
        Counts { count, wrong: 0, latest_ns: latest_s * SECOND, at_ns: at_s * SECOND }
    }

    #[test]
    fn a_rate_is_of_whole_messages_between_arrivals() {
        let both = |bytes: f64| Rate { least: bytes, most: bytes };
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(13, 10, 11)), both(200.0));
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(13, 10, 15)), both(100.0), "silent for longer than usual");
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(3, 5, 10)), Rate { least: 0.0, most: 20.0 });
        assert_eq!(
            rate(100.0, &at(0, 0, 6), &at(2, 8, 8)),
            both(100.0),
            "the first one takes the time since the start"
        );
    }
}
