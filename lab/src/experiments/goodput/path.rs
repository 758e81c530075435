//! The path of a flow: a line of 100 Mbit/s that takes each frame's time, or the loopback of a host.

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{LONG, NodeSettings, Place};
use crate::results::{Check, Findings, Table};
use crate::statistics::Distribution;
use crate::wan::{Behaviour, DEVICE, Hosts, LinkReport, SLACK};
use linux::clock::monotonic_ns;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// Bits per second of the line.
pub(super) const RATE: u64 = 100_000_000;
/// Bytes that may wait in front of it: 50 ms at its rate.
pub(super) const BUFFER: u64 = RATE / 8 / 20;
/// Congestion control of the hosts' streams: the default of most hosts.
pub(super) const CONTROL: &str = "cubic";
/// A full Ethernet frame.
const FRAME: u64 = 1514;
/// Its headers: Ethernet, IPv4, UDP.
const HEADERS: u64 = 42;
/// Datagrams of the positive control.
const IDLE: usize = 200;
/// Frames sent at once to show that the line serialises: fewer than a socket holds by itself.
const BURST: usize = 80;

/// A path between two hosts, or within the first one.
pub(super) struct Path {
    hosts: Hosts,
    loopback: bool,
    next: AtomicU16, // port of the next node
}

impl Path {
    /// The line with this round trip, without loss so far.
    pub(super) fn line(lab: &Lab, trip_ms: u64) -> Result<Self> {
        let way = Behaviour {
            delay: Duration::from_millis(trip_ms) / 2,
            rate: Some(RATE),
            queue: BUFFER,
            ..Behaviour::default()
        };
        let hosts = Hosts::new(lab, way, way)?;
        [1, 2].into_iter().try_for_each(|n| streams_use(CONTROL, &hosts, n))?;
        Ok(Self { hosts, loopback: false, next: AtomicU16::new(7400) })
    }

    /// Both ends on one host.
    pub(super) fn loopback(lab: &Lab) -> Result<Self> {
        Ok(Self { loopback: true, ..Self::line(lab, 0)? })
    }

    /// The hosts.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// From now on the line loses this percentage each way.
    pub(super) fn lose(&self, percent: u8) {
        self.hosts.lose(percent);
    }

    /// Ends it, and returns the reports of the line.
    pub(super) fn end(mut self) -> Vec<LinkReport> {
        self.hosts.end()
    }

    /// Two nodes that see only each other, and their places: publisher and subscriber.
    pub(super) fn nodes(&self, lab: &Lab) -> Result<[(NodeSettings, Place); 2]> {
        let port = self.next.fetch_add(1, Relaxed);
        let realm = format!("flow-{port}");
        let place = |host: u8| Place::at(self.hosts.host(host), &[]);
        if self.loopback {
            return Ok(["publisher", "subscriber"].map(|role| (NodeSettings::local(role, &realm), place(1))));
        }
        let at = |host: u8| SocketAddr::new(Hosts::address_of(host), port);
        let node = |role: &str, host: u8| NodeSettings::at(lab, role, &realm, at(host), &[at(1), at(2)]);
        Ok([(node("publisher", 1)?, place(1)), (node("subscriber", 2)?, place(2))])
    }
}

/// Congestion control of all streams of a host, by its routes: a namespace's default may only be an algorithm that
/// any user may use.
fn streams_use(control: &str, hosts: &Hosts, n: u8) -> Result {
    let address = Hosts::address_of(n).to_string();
    for (to, device, source) in [
        (&["10.98.0.0/24"][..], DEVICE, address.as_str()),
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
    let listener = hosts.host(2).within(|| TcpListener::bind((Hosts::address_of(2), 0)))??;
    let address = listener.local_addr()?;
    let stream = hosts.host(1).within(|| TcpStream::connect(address))??;
    Ok(rustix::net::sockopt::tcp_congestion(&stream).map_err(std::io::Error::from)?)
}

/// The line takes a frame's time when no other frame is in flight, and is never faster than its rate.
pub(super) fn control(lab: &Lab, findings: &mut Findings) -> Result {
    lab.tell("whether the line serialises");
    let path = Path::line(lab, 0)?;
    let used = stream_uses(&path)?;
    if used != CONTROL {
        return Err(Error::System(format!("streams use {used}; modprobe tcp_{CONTROL}")));
    }
    let bind = |host: u8| {
        let at = SocketAddr::new(Hosts::address_of(host), 0);
        path.hosts.host(host).within(|| UdpSocket::bind(at))?.map_err(Error::from)
    };
    let (from, to) = (bind(1)?, bind(2)?);
    to.set_read_timeout(Some(LONG))?;
    from.connect(to.local_addr()?)?;
    let full = [0; (FRAME - HEADERS) as usize];
    let mut table = Table::new("One way over the idle line, µs", &["frame", "transmission", "least", "p50", "p99"]);
    let count = if lab.options.tiny { 5 } else { IDLE };
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
    judge("burst", &path.end(), findings);
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

/// Checks the line's own figures during a measurement.
pub(super) fn judge(during: &str, reports: &[LinkReport], findings: &mut Findings) {
    let ahead = reports.iter().map(|report| report.ahead).max().unwrap_or(u64::MAX);
    let slack = SLACK * RATE / 8_000_000_000;
    findings.checks.push(Check::at_most(
        format!(
            "line, {during}: bytes beyond its rate in any window (two frames, and what a late thread makes up for)"
        ),
        ahead as f64,
        (2 * FRAME + slack) as f64,
    ));
    let there = reports.first();
    let still = there.map_or(f64::NAN, |report| report.stood_still_ms);
    let rate = there.and_then(|report| report.rate).unwrap_or(f64::NAN) / 1e6;
    findings.notes.push(format!("line, {during}: {rate:.2} Mbit/s while busy, stood still for {still:.1} ms"));
}
