//! Treatment of each class in the queues of the devices.

use crate::doctor::judge::Severity::{Note, Warning};
use crate::doctor::judge::{Finding, Fix, Kind};
use linux::probe::devices::Device;
use linux::queueing::{self, Placement, Present};
use qos::Class;
use qos::priority::{Dscp, Mark};

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[&NO_BANDS, &CLASS_IGNORED, &V6_IGNORED, &DSCP_IGNORED, &QUEUES_LEFT];

const NO_BANDS: Kind = Kind {
    id: "no-bands",
    severity: Warning,
    when: "the queue of a device sends no class first",
    why: "class=high and class=critical change nothing there: a file transfer delays them like everything else",
    fixable: true,
};
const CLASS_IGNORED: Kind = Kind {
    id: "class-ignored",
    severity: Warning,
    when: "the queue of a device sends one of the classes high and critical first, not the other",
    why: "the other one waits behind best effort, or with it",
    fixable: true,
};
const V6_IGNORED: Kind = Kind {
    id: "ipv6-ignored",
    severity: Warning,
    when: "the queue of a device sends high classes first over IPv4, not over IPv6",
    why: "the same channel is fast or slow, depending on which address its peer was found by",
    fixable: true,
};
const DSCP_IGNORED: Kind = Kind {
    id: "dscp-ignored",
    severity: Note,
    when: "the queue of a device sends high classes first, but not packets with DSCP EF alone",
    why: "dscp=EF without a class, and packets that this host forwards, wait with best effort",
    fixable: false,
};

const QUEUES_LEFT: Kind = Kind {
    id: "queues-left",
    severity: Warning,
    when: "a process that had installed queues is gone, and its queues are still there",
    why: "they limit rates and sort packets for an experiment or a plan that nobody runs any more",
    fixable: true,
};

/// Bands of marked packets on one device.
#[derive(Clone, Debug)]
pub(crate) struct Lands {
    /// The device.
    pub device: String,
    /// Rate of its link in Mbit/s, if it is known.
    pub speed: Option<u64>,
    /// The class high over IPv4, and over IPv6.
    pub high: [Placement; 2],
    /// The class critical over IPv4, and over IPv6.
    pub critical: [Placement; 2],
    /// DSCP EF alone, over IPv4.
    pub expedited: Placement,
}

/// Asks the kernel about all devices with a link.
pub(crate) fn read(devices: &[Device]) -> Vec<Lands> {
    let real = devices.iter().filter(|device| device.running && !device.loopback);
    real.filter_map(lands).collect()
}

fn lands(device: &Device) -> Option<Lands> {
    let queues = queueing::read(&device.name).ok()?;
    let of = |mark: Mark, v6| queues.placement(mark.tos(), mark.socket_priority(), v6);
    let class = |class| [of(Mark::Class(class), false), of(Mark::Class(class), true)];
    let expedited = of(Mark::Dscp(Dscp::new(46)?), false);
    Some(Lands {
        device: device.name.clone(),
        speed: device.speed,
        high: class(Class::High),
        critical: class(Class::Critical),
        expedited,
    })
}

/// Judges the bands and the installed queues; IPv6 counts if the host has it.
pub(crate) fn judge(lands: &[Lands], present: Option<&Present>, v6: bool) -> Vec<Finding> {
    let left = present.filter(|present| present.orphaned).map(|present| {
        let what = format!("the queues of {}", present.devices.join(", "));
        let found = QUEUES_LEFT.found(what, "left by a process that is gone", "as they were before");
        Finding { fix: Some(Fix::Recover), ..found.remedy("thalweg restore") }
    });
    left.into_iter().chain(lands.iter().filter_map(|lands| device(lands, present.is_some(), v6))).collect()
}

fn device(lands: &Lands, applied: bool, v6: bool) -> Option<Finding> {
    let Lands { device, speed, high, critical, expedited } = lands;
    let what = format!("the queue of {device}");
    let found = |kind: &'static Kind, at: &Placement, limit: &str| kind.found(&what, &at.because, limit);
    // Packets that never wait need no order.
    if !high[0].waits {
        return None;
    }
    let found = match (high[0].effective, critical[0].effective) {
        (false, false) => found(&NO_BANDS, &high[0], "one that sends by class"),
        (false, true) => found(&CLASS_IGNORED, &high[0], "one that sends both first"),
        (true, false) => found(&CLASS_IGNORED, &critical[0], "one that sends both first"),
        (true, true) if v6 && !high[1].effective => found(&V6_IGNORED, &high[1], "the same for both"),
        (true, true) if !expedited.effective => {
            let remedy = "use class=high or class=critical, which set the socket's priority, too";
            return Some(found(&DSCP_IGNORED, expedited, "one that looks at the DSCP").remedy(remedy));
        }
        (true, true) => return None,
    };
    // Applied queues are a user's choice: only the user changes them.
    let fix = speed.filter(|_| !applied).map(|speed| Fix::Queues { device: device.clone(), speed });
    Some(Finding { fix, ..found.remedy(remedy(device, applied)) })
}

fn remedy(device: &str, applied: bool) -> String {
    match applied {
        true => format!("change the file that `thalweg apply` was given: scheduler = \"strict\" for {device}"),
        false => format!(
            "thalweg apply, with {device} and its rate in the file; or: tc qdisc replace dev {device} root pfifo_fast"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(effective: bool, waits: bool) -> Placement {
        let because = "EF lands in band 1 = best effort of pfifo_fast on eth0".to_owned();
        let (device, discipline, place) = ("eth0".to_owned(), "pfifo_fast".to_owned(), "band 1".to_owned());
        Placement { device, discipline, place, rank: 1, of: 3, waits, effective, because, blocking_us: None }
    }

    fn judged(high: bool, critical: bool, v6: bool, expedited: bool, waits: bool) -> Option<&'static str> {
        let both = |v4| [at(v4, waits), at(v4 && v6, waits)];
        let (high, critical) = (both(high), both(critical));
        let lands = Lands { device: "eth0".into(), speed: Some(100), high, critical, expedited: at(expedited, waits) };
        judge(&[lands], None, true).first().map(|found| found.kind.id)
    }

    #[test]
    fn queues_that_a_dead_process_left_are_found_and_others_are_left_to_their_owner() {
        let present = |orphaned| Present { devices: vec!["eth0".into()], orphaned };
        assert_eq!(judge(&[], Some(&present(true)), true)[0].fix, Some(Fix::Recover));
        assert_eq!(judge(&[], Some(&present(false)), true), []);
        let both = || [at(false, true), at(false, true)];
        let (high, critical, expedited) = (both(), both(), at(false, true));
        let lands = [Lands { device: "eth0".into(), speed: Some(100), high, critical, expedited }];
        assert_eq!(judge(&lands, Some(&present(false)), true)[0].fix, None);
        assert_eq!(judge(&lands, None, true)[0].fix, Some(Fix::Queues { device: "eth0".into(), speed: 100 }));
    }

    #[test]
    fn queues_are_judged_by_what_classes_get() {
        assert_eq!(judged(false, false, true, false, true), Some("no-bands"));
        assert_eq!(judged(false, false, true, false, false), None); // no packet waits
        assert_eq!(judged(true, false, true, true, true), Some("class-ignored"));
        assert_eq!(judged(true, true, false, true, true), Some("ipv6-ignored"));
        assert_eq!(judged(true, true, true, false, true), Some("dscp-ignored"));
        assert_eq!(judged(true, true, true, true, true), None);
    }
}
