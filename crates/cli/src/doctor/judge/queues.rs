//! Does the queue of each device do what a channel's class asks for?

use crate::doctor::finding::Severity::{Note, Warning};
use crate::doctor::finding::{Finding, Kind};
use linux::probe::devices::Device;
use linux::queueing::{self, Placement};
use qos::Class;
use qos::priority::{Dscp, Mark};

/// All kinds of this module.
pub const KINDS: &[&Kind] = &[&NO_BANDS, &CLASS_IGNORED, &V6_IGNORED, &DSCP_IGNORED];

const NO_BANDS: Kind = Kind {
    id: "no-bands",
    severity: Warning,
    when: "the queue of a device sends no class first",
    why: "class=high and class=critical change nothing there: a file transfer delays them like everything else",
    fixable: false,
};
const CLASS_IGNORED: Kind = Kind {
    id: "class-ignored",
    severity: Warning,
    when: "the queue of a device sends one of the classes high and critical first, not the other",
    why: "the other one waits behind best effort, or with it",
    fixable: false,
};
const V6_IGNORED: Kind = Kind {
    id: "ipv6-ignored",
    severity: Warning,
    when: "the queue of a device sends high classes first over IPv4, not over IPv6",
    why: "the same channel is fast or slow, depending on which address its peer was found by",
    fixable: false,
};
const DSCP_IGNORED: Kind = Kind {
    id: "dscp-ignored",
    severity: Note,
    when: "the queue of a device sends high classes first, but not packets with DSCP EF alone",
    why: "dscp=EF without a class, and packets that this host forwards, wait with best effort",
    fixable: false,
};

/// Where marked packets land on one device.
#[derive(Clone, Debug)]
pub struct Lands {
    /// The device.
    pub device: String,
    /// The class high over IPv4, and over IPv6.
    pub high: [Placement; 2],
    /// The class critical over IPv4, and over IPv6.
    pub critical: [Placement; 2],
    /// DSCP EF alone, over IPv4.
    pub expedited: Placement,
}

/// Asks the kernel about all devices that have something at their other end.
pub fn read(devices: &[Device]) -> Vec<Lands> {
    let real = devices.iter().filter(|device| device.running && !device.loopback);
    real.filter_map(|device| lands(&device.name)).collect()
}

fn lands(device: &str) -> Option<Lands> {
    let queues = queueing::read(device).ok()?;
    let of = |mark: Mark, v6| queues.placement(mark.tos(), mark.socket_priority(), v6);
    let class = |class| [of(Mark::Class(class), false), of(Mark::Class(class), true)];
    let expedited = of(Mark::Dscp(Dscp::new(46)?), false);
    Some(Lands { device: device.to_owned(), high: class(Class::High), critical: class(Class::Critical), expedited })
}

/// Judges them; IPv6 counts where there is any.
pub fn judge(lands: &[Lands], v6: bool) -> Vec<Finding> {
    lands.iter().filter_map(|lands| device(lands, v6)).collect()
}

fn device(lands: &Lands, v6: bool) -> Option<Finding> {
    let Lands { device, high, critical, expedited } = lands;
    let what = format!("the queue of {device}");
    let install =
        || format!("thalweg apply (queues by class on {device}), or: tc qdisc replace dev {device} root pfifo_fast");
    let found = |kind: &'static Kind, at: &Placement, limit: &str| Some(kind.found(&what, &at.because, limit));
    // Where no packet waits, none has to be first.
    if !high[0].waits {
        return None;
    }
    match (high[0].effective, critical[0].effective) {
        (false, false) => found(&NO_BANDS, &high[0], "one that sends by class").map(|f| f.remedy(install())),
        (false, true) => found(&CLASS_IGNORED, &high[0], "one that sends both first").map(|f| f.remedy(install())),
        (true, false) => found(&CLASS_IGNORED, &critical[0], "one that sends both first").map(|f| f.remedy(install())),
        (true, true) if v6 && !high[1].effective => {
            found(&V6_IGNORED, &high[1], "the same for both").map(|f| f.remedy(install()))
        }
        (true, true) if !expedited.effective => found(&DSCP_IGNORED, expedited, "one that looks at the DSCP")
            .map(|f| f.remedy("use class=high or class=critical, which set the socket's priority, too")),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(effective: bool, waits: bool) -> Placement {
        let because = "EF lands in band 1 = best effort of pfifo_fast on eth0".to_owned();
        let (device, discipline, place) = ("eth0".to_owned(), "pfifo_fast".to_owned(), "band 1".to_owned());
        Placement { device, discipline, place, rank: 1, of: 3, waits, effective, because }
    }

    fn judged(high: bool, critical: bool, v6: bool, expedited: bool, waits: bool) -> Option<&'static str> {
        let both = |v4| [at(v4, waits), at(v4 && v6, waits)];
        let (high, critical) = (both(high), both(critical));
        let lands = Lands { device: "eth0".into(), high, critical, expedited: at(expedited, waits) };
        judge(&[lands], true).first().map(|found| found.kind.id)
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
