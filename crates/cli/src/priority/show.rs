//! Ends of channels, for people and as JSON.

use crate::failure::Result;
use crate::participant::Participant;
use qos::priority::{Dscp, PrioritySettings, priority_text};
use serde::Serialize;
use serde_json::json;
use thalweg::admin::EndReport;
use thalweg::proxy::Proxied;

/// One end of a channel in the output of `--json`.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    end: &'a str,
    carrier: &'a str,
    asked: &'a PrioritySettings,
    sched: Sched<'a>,
    qos: Packets<'a>,
    effective: bool,
    because: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxied: Option<&'a Proxied>,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

#[derive(Serialize)]
struct Sched<'a> {
    tid: Option<i32>,
    policy: &'a str,
    priority: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    nice: i32,
    affinity: &'a [u16],
    own_thread: bool,
}

#[derive(Serialize)]
struct Packets<'a> {
    tos: Option<u8>,
    dscp: Option<String>,
    class: Option<qos::Class>,
    socket_priority: Option<u32>,
    pace: Option<u64>,
    device: Option<&'a str>,
    band: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocking_us: Option<f64>,
}

impl<'a> Shown<'a> {
    /// All ends.
    pub(crate) fn all(reports: &'a [EndReport]) -> Vec<Self> {
        reports.iter().map(Self::of).collect()
    }

    fn of(report: &'a EndReport) -> Self {
        let EndReport { publisher, subscriber, end, carrier, asked, tid, policy, affinity, .. } = report;
        Self {
            publisher,
            subscriber,
            end,
            carrier: carrier.as_str(),
            asked,
            sched: Sched {
                tid: *tid,
                policy,
                priority: report.priority,
                reservation: report.reservation.map(|reserved| reserved.to_string()),
                nice: report.nice,
                affinity,
                own_thread: report.own_thread,
            },
            qos: Packets {
                tos: report.tos,
                dscp: report.dscp.map(|dscp: Dscp| dscp.to_string()),
                class: report.class,
                socket_priority: report.socket_priority,
                pace: report.pace,
                device: report.device.as_deref(),
                band: &report.band,
                blocking_us: report.blocking_us,
            },
            effective: report.effective,
            because: &report.because,
            proxied: report.proxied.as_ref(),
            note: &report.note,
        }
    }
}

/// Prints ends of channels.
pub(crate) fn print(participant: &Participant, publisher: &str, subscriber: &str, reports: &[EndReport]) -> Result {
    let effective = reports.iter().all(|report| report.effective);
    let document = json!({
        "publisher": publisher,
        "subscriber": subscriber,
        "effective": effective,
        "ends": Shown::all(reports),
    });
    participant.output.result(&document, || text(reports))
}

fn text(reports: &[EndReport]) -> String {
    let mut lines = Vec::new();
    let mut before = None;
    for report in reports {
        let channel = (&report.publisher, &report.subscriber);
        if report.end != "process" && before != Some(channel) {
            let over = if report.carrier.as_str().is_empty() {
                "not connected".to_owned()
            } else {
                format!("over {}", report.carrier)
            };
            lines.push(format!("{} → {} {over}", report.publisher, report.subscriber));
            before = Some(channel);
        }
        lines.extend(end(report));
    }
    lines.join("\n")
}

fn end(report: &EndReport) -> Vec<String> {
    let mut lines = vec![format!("  {:<10}  sched  {}", report.end, thread(report))];
    let below = |what: &str, text: &str| format!("  {:<10}  {what:<5}  {text}", "");
    if report.end != "process" {
        lines.push(below("qos", &packets(report)));
        let answer = if report.effective { "yes" } else { "no" };
        lines.push(format!("  {:<10}  effective: {answer}, because {}", "", report.because));
    }
    if let Some(proxied) = &report.proxied {
        lines.push(below("proxy", &proxied.to_string()));
    }
    if !report.note.is_empty() {
        lines.push(below("note", &report.note));
    }
    lines
}

fn thread(report: &EndReport) -> String {
    let Some(tid) = report.tid else {
        return "none of its own".to_owned();
    };
    let policy = &report.policy;
    let sched = match (policy.as_str(), report.reservation) {
        (_, Some(reserved)) => reserved.to_string(),
        ("fifo" | "rr", None) => format!("{policy} {}", report.priority),
        _ => format!("{policy}, nice {}", report.nice),
    };
    let kind = if report.own_thread { "thread of its own" } else { "thread" };
    format!("{sched}, {kind} {tid}, processors {}", ranges(&report.affinity))
}

fn packets(report: &EndReport) -> String {
    let Some(tos) = report.tos else {
        return format!("no packets: nothing is marked{}{}", policing(report), gathering(report));
    };
    let dscp = report.dscp.map_or_else(String::new, |dscp| format!(", DSCP {dscp}"));
    let class = report.class.map_or_else(String::new, |class| format!(", class {class}"));
    let priority =
        report.socket_priority.map_or_else(String::new, |p| format!(", socket priority {}", priority_text(p)));
    let pace = report.pace.map_or_else(String::new, |bytes| format!(", pace {}", bit_rate(bytes)));
    let device = report.device.as_ref().map_or_else(String::new, |device| format!(", device {device}"));
    let band = if report.band.is_empty() { String::new() } else { format!(", {}", report.band) };
    let limits = format!("{}{}", policing(report), gathering(report));
    format!("tos {tos}{dscp}{class}{priority}{pace}{limits}{device}{band}{}", blocking(report))
}

/// The latency budget that was set.
fn gathering(report: &EndReport) -> String {
    let shown = |ns: u64| format!(", latency budget {}", qos::show_time(ns as f64 / 1e3));
    report.asked.latency_budget_ns.map_or_else(String::new, shown)
}

/// The samples that it may send, if it is policed.
fn policing(report: &EndReport) -> String {
    report.asked.police.map_or_else(String::new, |police| format!(", at most {police}"))
}

/// Longest time that its packets wait for less urgent ones, if it is known.
pub(crate) fn blocking(report: &EndReport) -> String {
    report.blocking_us.map_or_else(String::new, |us| format!(", waits ≤ {us:.0} µs for lower classes"))
}

/// Bytes per second in the notation of `pace=`.
fn bit_rate(bytes: u64) -> String {
    let bits = bytes.saturating_mul(8);
    let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1000, "kbit/s")];
    let fits = units.into_iter().find(|(unit, _)| bits >= *unit && bits.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{bits}bit/s"), |(unit, name)| format!("{}{name}", bits / unit))
}

/// Numbers in ranges, such as `0-3,5`.
fn ranges(numbers: &[u16]) -> String {
    let mut text = Vec::new();
    let mut rest = numbers;
    while let Some((first, _)) = rest.split_first() {
        let run = rest.iter().zip(*first..).take_while(|(number, wanted)| *number == wanted).count();
        let last = rest[run - 1];
        text.push(if run == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[run..];
    }
    text.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_what_it_has() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        let report = EndReport {
            publisher: "/out".into(),
            subscriber: "/in".into(),
            end: "publisher".into(),
            carrier: "tcp".into(),
            tid: Some(7),
            policy: "fifo".into(),
            priority: 30,
            affinity: vec![1],
            own_thread: true,
            tos: Some(144),
            dscp: Dscp::new(36),
            class: Some(qos::Class::High),
            socket_priority: Some(6),
            pace: Some(2_500_000),
            blocking_us: Some(256.4),
            because: "lo has no queue".into(),
            ..EndReport::default()
        };
        let wanted = "/out → /in over tcp\n  publisher   sched  fifo 30, thread of its own 7, processors 1\n              \
                      qos    tos 144, DSCP AF42, class high, socket priority 6, pace 20Mbit/s, waits ≤ 256 µs for lower classes\n              effective: no, because lo has no queue";
        assert_eq!(text(&[report]), wanted);
    }
}
