//! The boundary of a domain at a device: forwarded packets that come in there in a reserved class, and belong to no known flow, are counted, and
//! get another class (RFC 2475 §2.3.3.3: marking at a boundary node; V-46). Known pairs of hosts may have a limit (`police`). Rules and counters
//! stand in our `nft` tables.

use super::leaf::Flow;
use super::map::{Hook, TABLE};
use super::nft::output;
use super::police::Limit;
use super::wanted::class_of;
use super::{QueueError, police};
use qos::Class;
use qos::priority::Dscp;
use std::collections::HashMap;
use std::net::IpAddr;

/// The boundary of a domain at one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The device by which packets come in.
    pub device: String,
    /// The way of the packets.
    pub hook: Hook,
    /// The reserved classes.
    pub classes: Vec<Class>,
    /// The class that packets of no known flow get instead.
    pub instead: Class,
    /// Flows that may have any class.
    pub flows: Vec<Flow>,
    /// Pairs of hosts that may have one class.
    pub pairs: Vec<Pair>,
}

/// Packets of one class from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The class.
    pub class: Class,
    /// The sender.
    pub source: IpAddr,
    /// The receiver. Of the same version as the sender.
    pub destination: IpAddr,
    /// What may come in at most; `None`: all.
    pub limit: Option<Limit>,
}

/// What a boundary has kept out of a class, since the boundary is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOut {
    /// The device by which it came in.
    pub device: String,
    /// The class that it asked for.
    pub class: Class,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

impl Boundary {
    /// The input of `nft -f -`.
    pub(super) fn script(&self) -> String {
        let (family, priority) = (self.hook.family(), self.hook.priority());
        let mut declared = String::new();
        let mut rules: String =
            self.flows.iter().map(|flow| self.rule(&format!("{} return", flow.matching()))).collect();
        for class in &self.classes {
            declared += &declaration(&counter(&self.device, *class), 0, 0);
            for version in ["ip", "ip6"] {
                let pairs = self.pairs(*class, version);
                let policed = police::chain(&self.device, *class, version, &pairs);
                let (chain, verdict) = policed
                    .map_or((String::new(), "return".to_owned()), |(chain, name)| (chain, format!("goto {name}")));
                declared += &chain;
                rules += &self.of_class(*class, version, (&pairs, &verdict));
            }
        }
        format!(
            "table {family} {TABLE} {{\n{declared}  chain boundary {{\n    type filter hook forward priority {priority}; policy accept;\n{rules}  }}\n}}\n"
        )
    }

    fn rule(&self, rest: &str) -> String {
        format!("    iifname \"{}\" {rest}\n", self.device)
    }

    /// The pairs of a class for one IP version, each once.
    fn pairs(&self, class: Class, version: &str) -> Vec<&Pair> {
        let is_its = |pair: &&Pair| pair.class == class && pair.source.is_ipv4() == (version == "ip");
        let mut pairs: Vec<&Pair> = self.pairs.iter().filter(is_its).collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| (pair.source, pair.destination));
        pairs
    }

    /// The rules of a class for one IP version: known pairs pass, as far as their limits let them; all others are counted and get another mark.
    /// The kernel has given the packet a priority by its former mark already.
    fn of_class(&self, class: Class, version: &str, (pairs, verdict): (&[&Pair], &str)) -> String {
        let marks = (0..64u8).filter(|dscp| Dscp::new(*dscp).is_some_and(|dscp| class_of(dscp) == class));
        let marks: Vec<String> = marks.map(|dscp| dscp.to_string()).collect();
        let has = format!("{version} dscp {{ {} }}", marks.join(", "));
        let mut rules = String::new();
        if !pairs.is_empty() {
            let pairs: Vec<String> =
                pairs.iter().map(|pair| format!("{} . {}", pair.source, pair.destination)).collect();
            let known = format!("{version} saddr . {version} daddr {{ {} }}", pairs.join(", "));
            rules += &self.rule(&format!("{has} {known} {verdict}"));
        }
        let (counter, dscp) = (counter(&self.device, class), self.instead.dscp());
        rules +=
            &self.rule(&format!("{has} counter name \"{counter}\" {version} dscp set {dscp} meta priority set 0:0"));
        rules
    }
}

/// The name of the counter of a class: of letters that `nft` takes in names, whatever the device is called.
fn counter(device: &str, class: Class) -> String {
    format!("{COUNTER}{}_{}", digits(device), class.name())
}

/// A device's name in the names of counters and limits.
pub(super) fn digits(device: &str) -> String {
    device.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The names of all counters begin so.
const COUNTER: &str = "kept_out_";

pub(super) fn declaration(counter: &str, packets: u64, bytes: u64) -> String {
    format!("  counter {counter} {{ packets {packets} bytes {bytes} }}\n")
}

/// The packets of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// The same script, with counters that go on from there.
pub(super) fn counted_on(script: &str, counts: &[Count]) -> String {
    let known: HashMap<String, String> = counts
        .iter()
        .map(|Count { name, packets, bytes }| (declaration(name, 0, 0), declaration(name, *packets, *bytes)))
        .collect();
    let line = |line: &str| known.get(line).cloned().unwrap_or_else(|| line.to_owned());
    script.split_inclusive('\n').map(line).collect()
}

/// What the boundaries of this network namespace have kept out.
///
/// # Errors
/// `nft` cannot be run.
pub fn kept_out() -> Result<Vec<KeptOut>, QueueError> {
    let mut all = Vec::new();
    for hook in [Hook::Router, Hook::Bridge] {
        all.extend(counts_of(hook.family())?.into_iter().filter_map(named));
    }
    Ok(all)
}

/// The counters of one family; none where we have no table.
pub(super) fn counts_of(family: &str) -> Result<Vec<Count>, QueueError> {
    let said = output(&["list", "counters", "table", family, TABLE])?;
    Ok(said.map_or_else(Vec::new, |said| read(&said)))
}

/// What `nft list counters` prints: `counter NAME {`, and `packets N bytes N` in the next line.
fn read(said: &str) -> Vec<Count> {
    let mut lines = said.lines().map(str::trim);
    let mut all = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("counter ").and_then(|rest| rest.strip_suffix(" {")) else { continue };
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let ["packets", packets, "bytes", bytes] = words[..] else { continue };
        let (Ok(packets), Ok(bytes)) = (packets.parse(), bytes.parse()) else { continue };
        all.push(Count { name: name.trim_matches('"').to_owned(), packets, bytes });
    }
    all
}

/// What a counter has kept out, if it is one for that.
fn named(Count { name, packets, bytes }: Count) -> Option<KeptOut> {
    let (device, class) = name.strip_prefix(COUNTER)?.split_once('_')?;
    let (device, class) = device_and_class(device, class)?;
    Some(KeptOut { device, class, packets, bytes })
}

/// The device and the class in the name of a counter.
pub(super) fn device_and_class(digits: &str, class: &str) -> Option<(String, Class)> {
    let digits = digits.as_bytes().chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
    let device = String::from_utf8(digits.collect::<Option<Vec<_>>>()?).ok()?;
    Some((device, Class::ALL.into_iter().find(|one| one.name() == class)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(device: &str) -> Boundary {
        let pair = |class, source: &str, destination: &str| Pair {
            class,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            limit: None,
        };
        let one = pair(Class::High, "10.0.0.1", "10.0.0.2");
        let pairs =
            vec![one, one, pair(Class::High, "fd00::1", "fd00::2"), pair(Class::Normal, "10.0.0.3", "10.0.0.4")];
        let classes = vec![Class::High, Class::Critical];
        Boundary { device: device.into(), hook: Hook::Router, classes, instead: Class::Low, flows: Vec::new(), pairs }
    }

    #[test]
    fn known_pairs_pass_before_all_others_are_counted() {
        let script = boundary("eth0").script();
        let rules: Vec<&str> = script.lines().map(str::trim).filter(|line| line.starts_with("iifname")).collect();
        let has = |at: usize, words: &[&str]| words.iter().all(|word| rules[at].contains(word));
        assert_eq!(rules.len(), 6, "{script}");
        assert!(has(0, &["ip dscp { 16, ", "ip saddr . ip daddr { 10.0.0.1 . 10.0.0.2 } return"]), "{script}");
        assert!(has(1, &["counter name \"kept_out_65746830_high\" ip dscp set 10 meta priority set 0:0"]), "{script}");
        assert!(has(2, &["ip6 saddr . ip6 daddr { fd00::1 . fd00::2 } return"]), "{script}");
        assert!(has(4, &["ip dscp { 44, 46, 48, ", "counter name \"kept_out_65746830_critical\""]), "{script}");
        assert!(!script.contains("10.0.0.3"), "of a class that is not reserved: {script}");
    }

    #[test]
    fn counters_go_on_and_are_read_by_device_and_class() {
        let count = |device: &str, class| Count { name: counter(device, class), packets: 3, bytes: 400 };
        let (one, other) = (count("a.b@c:d-e_f", Class::High), count("eth0", Class::Critical));
        let script = counted_on(&boundary("a.b@c:d-e_f").script(), &[one.clone(), other]);
        assert_eq!(script.matches("packets 3 bytes 400").count(), 1, "{script}");
        let said = format!(
            "table inet thalweg {{\n\tcounter {} {{\n\t\tpackets 3 bytes 400\n\t}}\n\tcounter mine {{\n\t\tpackets 1 bytes 2\n\t}}\n}}\n",
            one.name
        );
        let kept = KeptOut { device: "a.b@c:d-e_f".into(), class: Class::High, packets: 3, bytes: 400 };
        assert_eq!(read(&said).into_iter().filter_map(named).collect::<Vec<_>>(), [kept]);
        for strange in [
            "counter kept_out_6_high {\npackets x bytes 2",
            "counter kept_out_ff_high {\npackets 1 bytes 2",
            "counter {",
        ] {
            assert_eq!(read(strange).into_iter().find_map(named), None, "{strange}");
        }
    }
}
