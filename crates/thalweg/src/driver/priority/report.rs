//! The present priority of an end of a channel, read back from the kernel.

use super::ends::sockets;
use super::{End, Refusal, Side};
use crate::admin::EndReport;
use crate::carrier;
use crate::channel::Channel;
use crate::control::PortId;
use crate::driver::control::Control;
use linux::marks::{self, Marks};
use linux::queueing;
use linux::sched::{self, Scheduled};
use qos::priority::{Changes, Dscp, Mark, Policy};
use socket2::{SockAddr, SockRef};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

impl Control {
    /// The settings of the end, and those that the kernel reports.
    pub(super) fn report(&self, end: &End, channel: Option<&Channel>) -> EndReport {
        let (publisher, subscriber) = match end.side {
            Side::Publisher => (end.name.clone(), end.other.clone()),
            Side::Subscriber => (end.other.clone(), end.name.clone()),
        };
        let asked = self.asked_for(end);
        let proxy = match end.side {
            Side::Publisher => None,
            Side::Subscriber => self.proxy_asked(end),
        };
        let end_name = end.side.name().into();
        let mut report = EndReport { publisher, subscriber, asked, proxy, end: end_name, ..EndReport::default() };
        let Some(channel) = channel else {
            report.note = format!("stored: applies when the two are connected; {}", self.no_channel(end));
            report.because = "the two are not connected".into();
            return report;
        };
        report.carrier.clone_from(&channel.carrier);
        report.proxied.clone_from(&channel.proxied);
        self.describe_packets(channel, &mut report);
        self.describe_thread(end, channel, &mut report);
        report.without_effect = without_effect(end.side, channel, &report);
        if !report.without_effect.is_empty() {
            let said = report.without_effect.clone();
            add(&mut report.note, &said);
        }
        report
    }

    /// The reports of all channels of a port, and of ends whose settings are kept for later.
    pub(super) fn reports_of(&self, side: Side, port: PortId, name: &str) -> Vec<EndReport> {
        let channels = self.channels_at(side, port);
        let kept = self.priorities.kept_with(name);
        let mut others: Vec<String> = channels.iter().map(|c| side.other_name(c)).chain(kept).cloned().collect();
        others.sort_unstable();
        others.dedup();
        let end = |other| End { side, port, name: name.to_owned(), other };
        others.into_iter().map(end).map(|end| self.report(&end, self.channel_of(&end).as_deref())).collect()
    }

    fn describe_packets(&self, channel: &Channel, report: &mut EndReport) {
        let sockets = sockets(channel);
        let Some(found) = sockets.first().and_then(|socket| marks::read(socket.as_fd()).ok()) else {
            report.because = format!("no packets on this carrier ({}): marks have no effect", channel.carrier);
            return;
        };
        let dscp = Dscp::new(found.tos >> 2);
        (report.tos, report.dscp, report.socket_priority) = (Some(found.tos), dscp, Some(found.priority));
        report.pace = sockets.first().and_then(|socket| linux::socket::pace(socket.as_fd()).ok()).flatten();
        report.class = dscp.and_then(|dscp| Mark::Dscp(dscp).class());
        if report.asked.mark.is_some_and(|mark| mark.tos() != found.tos && mark.dscp() == Mark::Tos(found.tos).dscp()) {
            report.note = "the two lowest bits of the octet (ECN) are TCP's own: the kernel keeps them".into();
        }
        if self.shares((channel.publisher, channel.subscriber)) {
            add(&mut report.note, "its connection also carries the other direction: both have the mark set last");
        }
        // A multicast socket has no peer; the channel's TCP stream leaves by the same device.
        let placed = placement_of(sockets.iter().find_map(|socket| ends_of(socket.as_fd())), &found);
        (report.device, report.band) = (placed.device, placed.band);
        (report.waits, report.blocking_us) = (placed.waits, placed.blocking_us);
        (report.effective, report.because) = (placed.effective, placed.because);
    }

    fn describe_thread(&self, end: &End, channel: &Channel, report: &mut EndReport) {
        if end.side == Side::Subscriber {
            let Ok(thread) = self.state.readers.report(channel.id) else { return };
            thread.scheduled.iter().for_each(|found| describe_scheduled(found, report));
            (report.tid, report.own_thread) = (thread.tid, thread.own_thread);
            return add(&mut report.note, &format!("received by {}", thread.served_by));
        }
        if channel.flow.get().is_none() {
            return add(
                &mut report.note,
                "the publishing thread hands samples over itself: there is no sending thread",
            );
        }
        match channel.sent_by().and_then(|flow| flow.own()) {
            Some(own) => describe_scheduling(own.tid(), report),
            None => add(&mut report.note, "samples leave on the publishing thread"),
        }
        report.own_thread = report.tid.is_some();
    }

    // --- the process -------------------------------------------------------------------------------------------

    /// Schedules all threads of the process.
    pub(super) fn set_process(&self, port: &str, changes: &Changes) -> Result<EndReport, Refusal> {
        self.find_port(port)?;
        if !changes.is_without_packets() {
            return Err(format!(
                "{port} and itself mean its process, which has no packets: name the port at the channel's other end, or set sched and affinity only"
            )
            .into());
        }
        let asked = self.priorities.of_process(changes)?;
        let threads =
            sched::set_process(0, asked.sched.as_ref(), asked.affinity.as_deref()).map_err(Refusal::kernel)?;
        let mut report = self.process_report(port)?;
        (report.asked, report.note) = (asked, format!("{threads} threads"));
        Ok(report)
    }

    pub(super) fn process_report(&self, port: &str) -> Result<EndReport, String> {
        self.find_port(port)?;
        let (publisher, subscriber) = (port.to_owned(), port.to_owned());
        let mut report = EndReport { publisher, subscriber, end: "process".into(), ..EndReport::default() };
        describe_scheduling(std::process::id() as i32, &mut report);
        report.because = "a process has no packets of its own".into();
        report.note = format!("{} threads; this is the first", linux::thread::count());
        Ok(report)
    }
}

/// Adds the kernel's scheduling of a thread.
fn describe_scheduling(tid: i32, report: &mut EndReport) {
    if let Ok(found) = sched::read(tid) {
        describe_scheduled(&found, report);
    }
}

fn describe_scheduled(found: &Scheduled, report: &mut EndReport) {
    report.tid = Some(found.tid);
    report.policy = found.policy_name().to_owned();
    report.priority = found.priority().into();
    report.nice = found.nice.into();
    report.reservation = found.scheduling().filter(|found| matches!(found.policy, Policy::Deadline { .. }));
    report.affinity.clone_from(&found.affinity);
}

/// The settings that have no effect at this end.
fn without_effect(side: Side, channel: &Channel, report: &EndReport) -> String {
    let EndReport { asked, carrier, .. } = report;
    let without_packets = sockets(channel).is_empty();
    let mut said = String::new();
    if without_packets && (asked.mark.is_some() || asked.socket_priority.is_some()) {
        add(&mut said, &format!("the mark has no effect here: {carrier} has no packets"));
    }
    if asked.pace.is_some() && side == Side::Subscriber {
        add(&mut said, "pace has no effect here: a subscriber's end sends no samples, set it at the publisher's");
    } else if asked.pace.is_some() && without_packets {
        add(&mut said, &format!("pace has no effect here: {carrier} has no packets"));
    }
    if asked.police.is_some() && side == Side::Subscriber {
        add(&mut said, "police has no effect here: a subscriber's end sends no samples, set it at the publisher's");
    } else if asked.police.is_some() && *carrier == carrier::Name::Local {
        add(&mut said, "police has no effect here: within a process no link is used");
    }
    if let (Some(_), Some(why)) = (asked.latency_budget_ns, gathers_nothing(side, channel)) {
        add(&mut said, &format!("latency-budget has no effect here: {why}"));
    }
    if asked.wants_own_thread() && side == Side::Publisher && channel.flow.get().is_none() {
        add(&mut said, "sched and affinity have no effect here: set those of the thread that publishes");
    }
    said
}

/// The reason why a latency budget has no effect at this end.
fn gathers_nothing(side: Side, channel: &Channel) -> Option<&'static str> {
    match (side, channel.sent_by()) {
        (Side::Subscriber, _) => Some("a subscriber's end sends no samples, set it at the publisher's"),
        (Side::Publisher, None) => Some("the publishing thread hands samples over itself, one by one"),
        (Side::Publisher, Some(flow)) if flow.own().is_some() => {
            Some("a thread of its own sends each sample as soon as it can (sched, affinity)")
        }
        (Side::Publisher, Some(flow)) if !flow.takes_latency_budget() => {
            Some("samples leave one by one on this carrier, or by a limit")
        }
        _ => None,
    }
}

fn add(note: &mut String, more: &str) {
    if !note.is_empty() {
        note.push_str("; ");
    }
    note.push_str(more);
}

/// The queue in which packets wait on their way out of this host.
struct Placed {
    device: Option<String>,
    band: String,
    blocking_us: Option<f64>,
    waits: bool,
    effective: bool,
    because: String,
}

/// The addresses of a connected socket.
fn ends_of(socket: BorrowedFd<'_>) -> Option<(IpAddr, IpAddr)> {
    let socket = SockRef::from(&socket);
    let address = |end: SockAddr| end.as_socket().map(|address| address.ip());
    Some((address(socket.local_addr().ok()?)?, address(socket.peer_addr().ok()?)?))
}

/// The queue of packets with these marks, as the kernel reports it.
fn placement_of(ends: Option<(IpAddr, IpAddr)>, found: &Marks) -> Placed {
    let nothing = |device, because| Placed {
        device,
        band: String::new(),
        blocking_us: None,
        waits: false,
        effective: false,
        because,
    };
    let Some((local, peer)) = ends else {
        return nothing(None, "it is not known by which device its packets leave".into());
    };
    let device = match queueing::egress(local, peer) {
        Ok(device) => device,
        Err(error) => return nothing(None, error.to_string()),
    };
    match queueing::placement(&device, found.tos, found.priority, found.v6) {
        Ok(placed) => Placed {
            band: match placed.waits {
                true => format!("{} of {}", placed.place, placed.discipline),
                false => format!("none: {device} has no queue"),
            },
            device: Some(device),
            blocking_us: placed.blocking_us,
            waits: placed.waits,
            effective: placed.effective,
            because: placed.because,
        },
        Err(error) => nothing(Some(device), error.to_string()),
    }
}
