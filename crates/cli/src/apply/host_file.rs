//! The file that `thalweg apply` reads: queues and channels of one host.
//!
//! ```toml
//! [[device]]
//! name = "eth0"
//! rate = "100 Mbit/s"            # just below the rate of the link
//! scheduler = "htb"              # fifo | strict (default) | htb | hfsc
//! shares = { critical = "5 %", high = "30 %", normal = "45 %", low = "20 %" }   # htb, hfsc
//! ceilings = { low = "50 %" }    # htb, hfsc; default: all that is spare
//! delays = { critical = "1 ms" } # hfsc: a full packet is sent within this
//! queue = 100                    # packets per queue, 1 to 100000; default 100
//! gso_max_segs = 1               # most packets of a super-packet that the device is given; default: as it was
//! map = "router"                 # router | bridge: also for packets marked by others; default: none
//! boundary = true                # forwarded packets that come in here marked high or critical, and are of no flow below, get CS0; default false
//!
//! [[device.flow]]                # htb: a flow with a queue and rate of its own
//! to = "10.0.0.2:7400"           # the receiver
//! from = "10.0.0.1"              # the sender; default: any
//! protocol = "udp"               # udp (default) | tcp
//! class = "high"                 # whose priority it has
//! rate = "500 kbit/s"            # guaranteed, and never more; what is sent beyond waits and is dropped in its own queue
//! burst = "4 KiB"                # at once after a pause; default 3 full packets
//! queue = 8                      # packets that wait; default 8
//!
//! [[channel]]
//! publisher = "/arm/out"
//! subscriber = "/controller/in"
//! class = "high"                 # and dscp, tos, priority, sched, affinity, pace, police, latency_budget as `thalweg set` takes them
//! sched = "fifo:30"
//! every = 10                     # and rate, picture, proxy: the part of the stream, and the place where the rest is left out
//! proxy = "relay:gate"
//!
//! [[cgroup]]                     # other programs (docs/reservation.md)
//! name = "system.slice"
//! quota = "50 %"                 # of one processor
//! cpus = "1"
//! ```

use super::flows::{self, FlowEntry};
use super::groups::GroupEntry;
use crate::ends::Which;
use linux::cgroup::Limit;
use linux::queueing::{Boundary, Hook, LONGEST, MOST_SEGMENTS, PerClass, SLOWEST, Scheduler, Service, Share, Wanted};
use linux::tunnel::Tunnel;
use qos::contract::{DEVICE, is_device};
use qos::priority::Changes;
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use thalweg::proxy::ProxyChanges;
use toml::Spanned;

/// The contents of a file.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Devices, with their lines in the file.
    pub devices: Vec<(usize, Wanted)>,
    /// Channels, with their lines in the file.
    pub channels: Vec<(usize, Channel)>,
    /// Limits of control groups.
    pub groups: Vec<Limit>,
    /// The borders of a domain, from a plan.
    pub borders: Borders,
}

/// What a host has at the borders of its domain.
#[derive(Debug, Default)]
pub(crate) struct Borders {
    /// Ends of tunnels.
    pub tunnels: Vec<Tunnel>,
    /// Devices by which packets of no session are kept out.
    pub boundaries: Vec<Boundary>,
}

/// A channel's priority, for both ends.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// The publishing port.
    pub publisher: String,
    /// The subscribing port.
    pub subscriber: String,
    /// The ends that get the priority.
    pub end: Which,
    /// Settings as the file has them, such as `class=high`.
    pub words: Vec<String>,
    /// The priority that these words set.
    pub changes: Changes,
    /// The proxy that these words set.
    pub proxy: ProxyChanges,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Spanned<Device>>,
    #[serde(default)]
    channel: Vec<Spanned<ChannelEntry>>,
    #[serde(default)]
    cgroup: Vec<Spanned<GroupEntry>>,
}

pub(super) type Text = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: Text,
    rate: Text,
    scheduler: Option<Text>,
    shares: Option<Spanned<Classes>>,
    ceilings: Option<Spanned<Classes>>,
    delays: Option<Spanned<Classes>>,
    queue: Option<Spanned<i64>>,
    gso_max_segs: Option<Spanned<i64>>,
    map: Option<Text>,
    boundary: Option<bool>,
    #[serde(default)]
    flow: Vec<Spanned<FlowEntry>>,
}

/// A value per class.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Classes {
    low: Option<Text>,
    normal: Option<Text>,
    high: Option<Text>,
    critical: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelEntry {
    publisher: Text,
    subscriber: Text,
    class: Option<Text>,
    dscp: Option<Text>,
    tos: Option<Text>,
    priority: Option<Text>,
    sched: Option<Text>,
    affinity: Option<Text>,
    pace: Option<Text>,
    police: Option<Text>,
    latency_budget: Option<Text>,
    every: Option<Spanned<u32>>,
    rate: Option<Text>,
    picture: Option<Text>,
    proxy: Option<Text>,
}

/// An error, and its place in the text.
pub(super) type Wrong = (Range<usize>, String);

impl HostFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file, the line, the key, the value and the allowed values.
    pub(crate) fn read(file: &Path, prio: bool) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: cannot be read: {e}", file.display()))?;
        Self::parse(&text, prio).map_err(|(at, problem)| {
            let line = line(&text, at.start);
            format!("{}:{line}: {problem}", file.display())
        })
    }

    /// Reads a file's text, as [`HostFile::read`] does. `prio`: the kernel has the discipline of this name.
    fn parse(text: &str, prio: bool) -> Result<Self, Wrong> {
        let file: File = toml::from_str(text).map_err(|e| (e.span().unwrap_or(0..0), e.message().to_owned()))?;
        if file.device.is_empty() && file.channel.is_empty() && file.cgroup.is_empty() {
            let allowed = "[[device]], [[channel]] and [[cgroup]] tables";
            return Err((0..0, format!("nothing to apply: allowed are {allowed}")));
        }
        let (devices, channels, groups) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = Self { devices, channels, groups, borders: Borders::default() };
        for entry in &file.device {
            let wanted = device(entry.get_ref(), prio)?;
            if found.devices.iter().any(|(_, other)| other.device == wanted.device) {
                return wrong(&entry.get_ref().name, "name", "each device once");
            }
            found.devices.push((line(text, entry.span().start), wanted));
        }
        for entry in &file.channel {
            found.channels.push((line(text, entry.span().start), channel(entry.get_ref(), &entry.span())?));
        }
        for entry in &file.cgroup {
            let limit = entry.get_ref().read(&entry.span())?;
            if found.groups.iter().any(|other| other.group == limit.group) {
                return wrong(&entry.get_ref().name, "name", "each group once");
            }
            found.groups.push(limit);
        }
        Ok(found)
    }
}

fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

pub(super) fn wrong<T>(value: &Text, key: &str, allowed: &str) -> Result<T, Wrong> {
    let shown: String = value.get_ref().chars().take(64).collect();
    Err((value.span(), format!("{key} = {shown:?}: allowed is {allowed}")))
}

fn device(entry: &Device, prio: bool) -> Result<Wanted, Wrong> {
    let name = entry.name.get_ref();
    if !is_device(name) {
        return wrong(&entry.name, "name", DEVICE);
    }
    let rate = match qos::parse_bit_rate(entry.rate.get_ref()) {
        Ok(rate) if rate >= SLOWEST => rate,
        _ => return wrong(&entry.rate, "rate", "a rate from 1 kbit/s up, with a unit: bit/s, kbit/s, Mbit/s, Gbit/s"),
    };
    let queue = packets("queue", entry.queue.as_ref(), LONGEST.into())?.unwrap_or(100);
    let segments = packets("gso_max_segs", entry.gso_max_segs.as_ref(), MOST_SEGMENTS.into())?;
    let map = match entry.map.as_ref().map(|map| (map, map.get_ref().as_str())) {
        None => None,
        Some((_, "router")) => Some(Hook::Router),
        Some((_, "bridge")) => Some(Hook::Bridge),
        Some((map, _)) => return wrong(map, "map", "router or bridge"),
    };
    Ok(Wanted {
        device: name.clone(),
        rate,
        queue,
        scheduler: scheduler(entry, rate, prio)?,
        segments,
        encapsulation: 0,
        labels: false,
        map,
        boundary: entry.boundary.unwrap_or(false),
    })
}

/// A number of packets.
pub(super) fn packets(key: &str, entry: Option<&Spanned<i64>>, most: i64) -> Result<Option<u32>, Wrong> {
    let Some(entry) = entry else { return Ok(None) };
    match u32::try_from(*entry.get_ref()) {
        Ok(packets) if (1..=most).contains(entry.get_ref()) => Ok(Some(packets)),
        _ => Err((entry.span(), format!("{key} = {}: allowed is 1 to {most} packets", entry.get_ref()))),
    }
}

fn scheduler(entry: &Device, rate: u64, prio: bool) -> Result<Scheduler, Wrong> {
    let name = entry.scheduler.as_ref().map_or("strict", |name| name.get_ref());
    let only = |key: &str, value: &Option<Spanned<Classes>>, of: &str| match value {
        Some(value) => Err((value.span(), format!("{key}: only with scheduler = {of}, not with {name:?}"))),
        None => Ok(()),
    };
    if name != "hfsc" {
        only("delays", &entry.delays, "\"hfsc\"")?;
    }
    if let Some(first) = entry.flow.first().filter(|_| name != "htb") {
        return Err((first.span(), format!("flow: only with scheduler = \"htb\", not with {name:?}")));
    }
    if let "fifo" | "strict" = name {
        only("shares", &entry.shares, "\"htb\" or \"hfsc\"")?;
        only("ceilings", &entry.ceilings, "\"htb\" or \"hfsc\"")?;
    }
    match (name, &entry.scheduler) {
        ("fifo", _) => Ok(Scheduler::Fifo),
        ("strict", _) if prio => Ok(Scheduler::StrictPrio),
        ("strict", _) => Ok(Scheduler::Strict),
        ("htb" | "hfsc", _) => {
            let (shares, ceilings) = (shares(entry, rate)?, ceilings(entry, rate)?);
            if name == "htb" {
                let share = |n: usize| Share { rate: shares[n], ceil: ceilings[n], priority: None };
                return Ok(Scheduler::Htb(
                    [0, 1, 2, 3].map(share),
                    flows::leaves(&entry.flow, rate, shares.iter().sum())?,
                ));
            }
            let delays = delays(entry)?;
            Ok(Scheduler::Hfsc([0, 1, 2, 3].map(|n| Service::new(shares[n], delays[n], ceilings[n]))))
        }
        (_, Some(text)) => wrong(text, "scheduler", "fifo, strict, htb or hfsc"),
        (_, None) => Ok(Scheduler::Strict),
    }
}

/// The guaranteed rate of each class, in bits per second.
fn shares(entry: &Device, rate: u64) -> Result<PerClass<u64>, Wrong> {
    let (Some(given), Some(scheduler)) = (&entry.shares, &entry.scheduler) else {
        let at = entry.scheduler.as_ref().map_or(0..0, Spanned::span);
        let example = "shares = { critical = \"5 %\", high = \"30 %\", normal = \"45 %\", low = \"20 %\" }";
        return Err((at, format!("shares are missing; such as {example}")));
    };
    let part = |text: &Option<Text>| match text {
        Some(text) => match qos::parse_share(text.get_ref()) {
            Ok(share) if share > 0.0 => Ok(share),
            _ => wrong(text, "share", "more than 0 % and at most 100 %"),
        },
        None => Err((given.span(), format!("shares of all four classes are needed with {:?}", scheduler.get_ref()))),
    };
    let parts = given.get_ref().each(part)?;
    let sum: f64 = parts.iter().sum();
    if sum > 1.0 + 1e-9 {
        return Err((given.span(), format!("shares add up to {:.0} %: allowed is at most 100 %", sum * 100.0)));
    }
    Ok(parts.map(|part| ((rate as f64 * part) as u64).max(8)))
}

fn ceilings(entry: &Device, rate: u64) -> Result<PerClass<Option<u64>>, Wrong> {
    let part = |text: &Option<Text>| match text {
        None => Ok(None),
        Some(text) => match qos::parse_share(text.get_ref()) {
            Ok(share) if share > 0.0 => Ok(Some(((rate as f64 * share) as u64).max(8))),
            _ => wrong(text, "ceiling", "more than 0 % and at most 100 %"),
        },
    };
    entry.ceilings.as_ref().map_or(Ok([None; 4]), |given| given.get_ref().each(part))
}

/// The time in which a full packet is sent, per class, in microseconds.
fn delays(entry: &Device) -> Result<PerClass<Option<u32>>, Wrong> {
    let part = |text: &Option<Text>| match text {
        None => Ok(None),
        Some(text) => match qos::parse_duration(text.get_ref()).map(|d| u32::try_from(d.as_micros())) {
            Ok(Ok(us)) if (1..=10_000_000).contains(&us) => Ok(Some(us)),
            _ => wrong(text, "delay", "1 us to 10 s, with a unit: us, ms, s"),
        },
    };
    entry.delays.as_ref().map_or(Ok([None; 4]), |given| given.get_ref().each(part))
}

impl Classes {
    /// Low, normal, high, critical, as in [`qos::Class::ALL`].
    fn each<T: Copy + Default>(&self, read: impl Fn(&Option<Text>) -> Result<T, Wrong>) -> Result<PerClass<T>, Wrong> {
        Ok([read(&self.low)?, read(&self.normal)?, read(&self.high)?, read(&self.critical)?])
    }
}

fn channel(entry: &ChannelEntry, at: &Range<usize>) -> Result<Channel, Wrong> {
    for (key, port) in [("publisher", &entry.publisher), ("subscriber", &entry.subscriber)] {
        if !port.get_ref().starts_with('/') {
            return wrong(port, key, "a port's name, which starts with '/'");
        }
    }
    let settings = [
        ("class", &entry.class),
        ("dscp", &entry.dscp),
        ("tos", &entry.tos),
        ("priority", &entry.priority),
        ("sched", &entry.sched),
        ("affinity", &entry.affinity),
        ("pace", &entry.pace),
        ("police", &entry.police),
        ("latency-budget", &entry.latency_budget),
    ];
    let every = entry.every.as_ref().map(|every| Spanned::new(every.span(), every.get_ref().to_string()));
    let scaled = [("every", &every), ("rate", &entry.rate), ("picture", &entry.picture), ("proxy", &entry.proxy)];
    let (mut words, mut changes, mut proxy) = (Vec::new(), Changes::default(), ProxyChanges::default());
    for (key, value) in settings.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        let word = format!("{key}={}", value.get_ref());
        changes.add(&word).map_err(|e| (value.span(), e.to_string()))?;
        words.push(word);
    }
    for (key, value) in scaled.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        let word = format!("{key}={}", value.get_ref());
        proxy.add(&word).map_err(|wrong| (value.span(), wrong.to_string()))?;
        words.push(word);
    }
    if words.is_empty() {
        return Err((
            at.clone(),
            "a channel without class, dscp, tos, priority, sched, affinity, pace, police, latency_budget, every, rate, picture or proxy"
                .to_owned(),
        ));
    }
    let (publisher, subscriber) = (entry.publisher.get_ref().clone(), entry.subscriber.get_ref().clone());
    Ok(Channel { publisher, subscriber, end: Which::Both, words, changes, proxy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::queueing::Curve;
    use proptest::prelude::*;

    const SHARES: &str = "shares = { critical = \"5 %\", high = \"30 %\", normal = \"45 %\", low = \"20 %\" }";

    fn parse(text: &str) -> Result<HostFile, String> {
        HostFile::parse(text, false).map_err(|(at, problem)| format!("{}: {problem}", line(text, at.start)))
    }

    #[test]
    fn a_file_is_read() {
        let text = format!(
            "[[device]]\nname = \"eth0\"\nrate = \"100 Mbit/s\"\n\n[[device]]\nname = \"eth1\"\nrate = \"1 Gbit/s\"\nscheduler = \"htb\"\n\
             {SHARES}\nceilings = {{ low = \"50 %\" }}\nqueue = 50\nmap = \"router\"\n\n\
             [[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\nclass = \"high\"\nsched = \"fifo:30\"\nlatency_budget = \"2ms\"\n\
             [[cgroup]]\nname = \"system.slice\"\nquota = \"150 %\"\ncpus = \"0-1,3\"\n"
        );
        let file = parse(&text).unwrap();
        let (_, first) = &file.devices[0];
        assert_eq!(
            (first.rate, first.queue, &first.scheduler, first.map),
            (100_000_000, 100, &Scheduler::Strict, None)
        );
        let (at, second) = &file.devices[1];
        let Scheduler::Htb(shares, _) = &second.scheduler else { panic!("{second:?}") };
        assert_eq!(shares.map(|s| s.rate / 1_000_000), [200, 450, 300, 50]);
        assert_eq!(shares[0].ceil, Some(500_000_000));
        assert_eq!((*at, second.queue, second.map), (5, 50, Some(Hook::Router)));
        assert_eq!(file.channels[0].1.words, ["class=high", "sched=fifo:30", "latency-budget=2ms"]);
        let limit = Limit { group: "system.slice".into(), quota_us: Some(150_000), cpus: Some("0-1,3".into()) };
        assert_eq!(file.groups, [limit]);
        assert!(matches!(HostFile::parse(&text, true).unwrap().devices[0].1.scheduler, Scheduler::StrictPrio));
    }

    #[test]
    fn a_channel_has_a_place_for_its_proxy() {
        let channel = |more: &str| parse(&format!("[[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\n{more}\n"));
        let file = channel("every = 10\npicture = \"320x240\"\nproxy = \"relay:gate\"").unwrap();
        assert_eq!(file.channels[0].1.words, ["every=10", "picture=320x240", "proxy=relay:gate"]);
        assert!(file.channels[0].1.changes.is_empty() && !file.channels[0].1.proxy.is_empty());
        for (wrong, says) in
            [("every = 0", "4: every: "), ("rate = \"5/4\"", "4: rate: "), ("proxy = \"moon\"", "4: proxy ")]
        {
            let said = channel(wrong).unwrap_err();
            assert!(said.starts_with(says) && said.contains("allowed"), "{said}");
        }
    }

    #[test]
    fn a_flow_has_a_rate_of_its_own_beside_the_shares() {
        let device = |more: &str| {
            let shares = SHARES.replace("45 %", "35 %");
            parse(&format!("[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\nscheduler = \"htb\"\n{shares}\n{more}"))
        };
        let flow = |more: &str| {
            format!("[[device.flow]]\nto = \"10.0.0.2:7400\"\nclass = \"high\"\nrate = \"500 kbit/s\"\n{more}\n")
        };
        let file = device(&(flow("from = \"10.0.0.1\"") + &flow("protocol = \"tcp\"\nburst = \"4 KiB\"\nqueue = 20")))
            .unwrap();
        let Scheduler::Htb(_, leaves) = &file.devices[0].1.scheduler else { panic!("no htb") };
        assert_eq!((leaves[0].rate, leaves[0].burst, leaves[0].queue), (500_000, 4542, 8));
        assert_eq!(leaves[0].flow().unwrap().to_string(), "udp from 10.0.0.1 to 10.0.0.2 port 7400");
        assert_eq!((leaves[1].burst, leaves[1].queue), (4096, 20));
        assert_eq!(leaves[1].flow().unwrap().to_string(), "tcp to 10.0.0.2 port 7400");
        for (wrong, says) in [
            (flow("from = \"fd00::1\""), "10: from = \"fd00::1\": allowed is an address of the same version"),
            (flow("protocol = \"icmp\""), "10: protocol = \"icmp\": allowed is udp or tcp"),
            (flow("burst = \"1 KiB\""), "10: burst = \"1 KiB\": allowed is 1514 B"),
            (flow("queue = 0"), "10: queue = 0: allowed is 1 to"),
            (flow("").replace(":7400", ""), "7: to = \"10.0.0.2\": allowed is an address and port"),
            (flow("").replace("\"high\"", "\"top\""), "8: class = \"top\": allowed is low"),
            (flow("") + &flow(""), "11: udp to 10.0.0.2 port 7400: each flow once"),
            (
                flow("").replace("500 k", "1001 k"),
                "9: shares and flows add up to more than the device's 10000000 bit/s: 1000000 bit/s",
            ),
        ] {
            let said = device(&wrong).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
        let strict = parse(&format!("[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\n{}", flow(""))).unwrap_err();
        assert!(strict.contains("only with scheduler = \"htb\", not with \"strict\""), "{strict}");
    }

    #[test]
    fn a_delay_becomes_a_first_slope() {
        let text = format!(
            "[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\nscheduler = \"hfsc\"\n{SHARES}\ndelays = {{ critical = \"2 ms\" }}\n"
        );
        let Scheduler::Hfsc(services) = parse(&text).unwrap().devices[0].1.scheduler.clone() else { panic!("no hfsc") };
        // 1514 bytes in 2 ms are 6.056 Mbit/s; the share is 5 % of 10 Mbit/s.
        assert_eq!(services[3].real_time, Some(Curve { m1: 6_056_000, d_us: 2000, m2: 500_000 }));
        assert_eq!(services[0].real_time, Some(Curve::linear(2_000_000)));
    }

    #[test]
    fn errors_name_the_line_and_the_allowed_values() {
        let device = |more: &str| format!("[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\n{more}\n");
        let channel = |more: &str| format!("[[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\n{more}\n");
        for (text, says) in [
            ("[[device]]\nname = \"eth0\"\n".to_owned(), "1: missing field `rate`"),
            (String::new(), "1: nothing to apply: allowed are [[device]], [[channel]] and [[cgroup]] tables"),
            ("[[devise]]\n".to_owned(), "1: unknown field `devise`, expected one of `device`, `channel`, `cgroup`"),
            ("[[cgroup]]\nname = \"hogs\"\n".to_owned(), "1: a group without quota and cpus"),
            ("[[cgroup]]\nname = \"../up\"\nquota = \"5 %\"\n".to_owned(), "2: name = \"../up\": allowed is"),
            ("[[cgroup]]\nname = \"hogs\"\nquota = \"0.5 %\"\n".to_owned(), "3: quota = \"0.5 %\": allowed is 1 %"),
            ("[[cgroup]]\nname = \"hogs\"\ncpus = \"a\"\n".to_owned(), "3: cpus = \"a\": allowed is"),
            ("[[device]]\nname = \"eth0\"\nrate = 10\n".to_owned(), "3: invalid type: integer"),
            (
                "[[device]]\nname = \"eth0\"\nrate = \"10\"\n".to_owned(),
                "3: rate = \"10\": allowed is a rate from 1 kbit/s up",
            ),
            ("[[device]]\nname = \"eth0\"\nrate = \"0 Mbit/s\"\n".to_owned(), "3: rate"),
            ("[[device]]\nname = \"a name; drop\"\nrate = \"1 Mbit/s\"\n".to_owned(), "2: name"),
            (device("speed = 3"), "4: unknown field `speed`, expected one of `name`"),
            (device("scheduler = \"fair\""), "4: scheduler = \"fair\": allowed is fifo, strict, htb or hfsc"),
            (device("scheduler = \"htb\""), "4: shares are missing"),
            (device("scheduler = \"htb\"\nshares = { high = \"3 %\" }"), "5: shares of all four classes are needed"),
            (device(&format!("scheduler = \"htb\"\n{}", SHARES.replace("45", "46"))), "5: shares add up to 101 %"),
            (
                device(&format!("scheduler = \"htb\"\n{}", SHARES.replace("45 %", "45"))),
                "5: share = \"45\": allowed is",
            ),
            (device(SHARES), "4: shares: only with scheduler = \"htb\" or \"hfsc\", not with \"strict\""),
            (device(&format!("scheduler = \"htb\"\n{SHARES}\ndelays = {{ high = \"1 ms\" }}")), "6: delays: only with"),
            (device("queue = 0"), "4: queue = 0: allowed is 1 to 100000 packets"),
            (device("map = \"switch\""), "4: map = \"switch\": allowed is router or bridge"),
            (
                device("[[device]]\nname = \"eth0\"\nrate = \"1 Mbit/s\""),
                "5: name = \"eth0\": allowed is each device once",
            ),
            (channel(""), "1: a channel without"),
            (channel("class = \"urgent\""), "4: class \"urgent\": allowed is low, normal (norm)"),
            (channel("class = \"high\"\ndscp = \"EF\""), "5: setting"),
            (channel("sched = \"fifo:100\""), "4: sched"),
            (channel("latency_budget = \"2\""), "4: latency-budget"),
            (
                "[[channel]]\npublisher = \"a\"\nsubscriber = \"/b\"\nclass = \"high\"\n".to_owned(),
                "2: publisher = \"a\"",
            ),
        ] {
            let said = parse(&text).unwrap_err();
            assert!(said.starts_with(says), "{text}\n{said}\nshould start with {says}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(\\[\\[(device|channel)\\]\\]\n|[a-z]{1,9} = (\"[^\"\n]{0,9}\"|[0-9-]{1,20}|\\{ (low|high) = \"[0-9]{1,3} ?%\" \\})\n|.{0,9}\n){0,8}") {
            let _ = parse(&text);
        }
    }
}
