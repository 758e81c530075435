//! Links that carry less than the contract says: agents report devices without a carrier, with a lower rate, or that take less of a full queue than
//! it gives ([`measured`]), and users state rates. Pure: times come as arguments, of any monotonic clock.

pub mod measured;

use agent::message::Drained;
use measured::{Hysteresis, Measured};
use qos::contract::Contract;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time for which a link has to be back before it counts: one that comes and goes is down.
pub const STEADY: Duration = Duration::from_secs(2);
/// The longest such time: it doubles each time that a link is lost again within this time (routes that flap are damped for the same reason, RFC 2439).
pub const LONGEST_STEADY: Duration = Duration::from_secs(64);
/// Lowest rate that can be stated, bit/s: that of the slowest queue.
pub const SLOWEST: u64 = 1000;
/// The same, as a part of the contract's rate.
const LEAST_PART: u64 = 1000;

/// What links carry now, bit/s, by name: those that carry less than the contract says. 0: nothing.
pub type Rates = BTreeMap<String, u64>;

/// A device of a host, at an end of a link.
type Device = (String, String);

/// The links of a contract.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// The rate of each, by the contract.
    rates: Rates,
    /// The link of each device.
    ends: BTreeMap<Device, String>,
    /// What users have stated.
    stated: Rates,
    /// Devices that are, or were, without a carrier.
    lost: BTreeMap<Device, Lost>,
    /// Devices with a lower rate than the contract's.
    slow: BTreeMap<Device, Slow>,
    /// Devices that took less of a full queue than it gives.
    measured: BTreeMap<Device, Measured>,
    hysteresis: Hysteresis,
}

/// A device that has a lower rate than the contract's.
#[derive(Clone, Copy, Debug)]
struct Slow {
    /// bit/s.
    rate: u64,
    /// Since when it has reported higher ones, and the least of them.
    faster: Option<(Duration, u64)>,
}

/// A device that lost its carrier.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// The last time.
    at: Duration,
    /// Since when it has it again.
    back: Option<Duration>,
    /// How long it has to have it.
    steady: Duration,
}

impl Lost {
    fn is_down(&self, now: Duration) -> bool {
        self.back.is_none_or(|back| now.saturating_sub(back) < self.steady)
    }
}

/// A rate that cannot be stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unstated {
    /// There is no such link.
    Unknown(String),
    /// It is neither 0 nor between these, bit/s: the slowest queue, and what the contract says.
    OutOfRange(u64, u64),
}

impl Links {
    /// The links of a contract. Links that were down before a restart are down until the agents of their ends report them up, and slow ones slow.
    pub fn new(contract: &Contract, stated: &Rates, before: &Rates) -> Self {
        let system = &contract.system;
        let mut links = Self::default();
        for link in &system.links {
            links.rates.insert(link.name.clone(), link.rate);
            for (node, device) in link.between.iter().zip(&link.devices) {
                let Some(device) = device else { continue };
                links.ends.insert((system.nodes[*node].name.clone(), device.clone()), link.name.clone());
            }
        }
        let known = |(name, rate): &(&String, &u64)| links.rates.get(*name).is_some_and(|most| *rate < most);
        links.stated = stated.iter().filter(known).map(|(name, rate)| (name.clone(), *rate)).collect();
        let down = |name: &String| before.get(name) == Some(&0) && stated.get(name) != Some(&0);
        let slow = |(end, name): (&Device, &String)| {
            let rate = *before.get(name).filter(|rate| **rate > 0 && stated.get(name) != Some(rate))?;
            Some((end.clone(), Slow { rate, faster: None }))
        };
        links.slow = links.ends.iter().filter_map(slow).collect();
        let lost = Lost { at: Duration::ZERO, back: None, steady: STEADY };
        links.lost = links.ends.iter().filter(|(_, name)| down(name)).map(|(end, _)| (end.clone(), lost)).collect();
        links
    }

    /// Rates that were measured count by this rule.
    #[must_use]
    pub fn with(self, hysteresis: Hysteresis) -> Self {
        Self { hysteresis, ..self }
    }

    /// What users have stated.
    pub fn stated(&self) -> &Rates {
        &self.stated
    }

    /// A link carries this rate; `None`: what the contract says, unless an agent reports again that it is down.
    ///
    /// # Errors
    /// [`Unstated`]; nothing changes.
    pub fn state(&mut self, link: &str, rate: Option<u64>) -> Result<(), Unstated> {
        let most = *self.rates.get(link).ok_or_else(|| Unstated::Unknown(self.names()))?;
        let least = SLOWEST.max(most / LEAST_PART).min(most);
        match rate {
            Some(rate) if rate > most || (1..least).contains(&rate) => return Err(Unstated::OutOfRange(least, most)),
            Some(rate) if rate < most => drop(self.stated.insert(link.to_owned(), rate)),
            _ => {
                self.stated.remove(link);
                self.lost.retain(|end, _| self.ends.get(end).is_none_or(|of| of != link));
                self.slow.retain(|end, _| self.ends.get(end).is_none_or(|of| of != link));
                self.measured.retain(|end, _| self.ends.get(end).is_none_or(|of| of != link));
            }
        }
        Ok(())
    }

    fn names(&self) -> String {
        self.rates.keys().map(String::as_str).take(12).collect::<Vec<_>>().join(", ")
    }

    /// A host's agent reports whether this device has a carrier.
    pub fn reported(&mut self, now: Duration, host: &str, device: &str, up: bool) {
        let end = (host.to_owned(), device.to_owned());
        if !self.ends.contains_key(&end) {
            return;
        }
        match (up, self.lost.get_mut(&end)) {
            (true, Some(lost)) => drop(lost.back.get_or_insert(now)),
            (true, None) => {}
            (false, Some(lost)) if lost.back.is_none() => {}
            (false, before) => {
                let again = before.filter(|lost| now.saturating_sub(lost.at) < LONGEST_STEADY);
                let steady = again.map_or(STEADY, |lost| (2 * lost.steady).min(LONGEST_STEADY));
                self.lost.insert(end, Lost { at: now, back: None, steady });
            }
        }
    }

    /// A host's agent reports the rate that this device has, bit/s; `None`: it does not say. A lower one counts at once, a higher one when it has lasted
    /// for a while.
    pub fn reported_rate(&mut self, now: Duration, host: &str, device: &str, rate: Option<u64>) {
        let end = (host.to_owned(), device.to_owned());
        let Some(most) = self.ends.get(&end).and_then(|link| self.rates.get(link)).copied() else { return };
        // No queue is slower than this part.
        let rate = rate.unwrap_or(most).clamp(SLOWEST.max(most / LEAST_PART).min(most), most);
        let slow = self.slow.get(&end).copied();
        let before = slow.map_or(most, |slow| slow.rate);
        let (since, least) =
            slow.and_then(|slow| slow.faster).map_or((now, rate), |(since, least)| (since, least.min(rate)));
        let slow = match rate > before {
            false => Slow { rate, faster: None },
            true if now.saturating_sub(since) < STEADY => Slow { rate: before, faster: Some((since, least)) },
            true => Slow { rate: least, faster: None },
        };
        if slow.rate == most {
            self.slow.remove(&end);
        } else {
            self.slow.insert(end, slow);
        }
    }

    /// A host's agent reports what this device took of a full queue.
    pub fn took(&mut self, now: Duration, host: &str, device: &str, drained: Drained) {
        let end = (host.to_owned(), device.to_owned());
        let Some(most) = self.ends.get(&end).and_then(|link| self.rates.get(link)).copied() else { return };
        let least = SLOWEST.max(most / LEAST_PART).min(most);
        let Drained { rate_bits_per_s: taken, queue_bits_per_s: queue } = drained;
        let device = self.measured.entry(end).or_insert_with(|| Measured::new(now, least, most, &self.hysteresis));
        device.took(now, &self.hysteresis, taken, queue);
    }

    /// The links whose rate is what a device took of a full queue.
    pub fn measured(&self) -> BTreeSet<&str> {
        let slower = self.measured.iter().filter(|(end, device)| {
            let most = self.ends.get(*end).and_then(|link| self.rates.get(link));
            most.is_some_and(|most| device.rate() < *most)
        });
        slower.filter_map(|(end, _)| self.ends.get(end).map(String::as_str)).collect()
    }

    /// What links carry now.
    pub fn now(&mut self, now: Duration) -> Rates {
        self.measured.values_mut().for_each(|device| device.passes(now));
        self.measured.retain(|_, device| !device.is_forgotten(now));
        self.lost.retain(|_, lost| lost.is_down(now) || now.saturating_sub(lost.at) < LONGEST_STEADY);
        let down = self.lost.iter().filter(|(_, lost)| lost.is_down(now)).map(|(end, _)| end);
        let down = down.filter_map(|end| Some((self.ends.get(end)?.clone(), 0)));
        let slow = self.slow.iter().filter_map(|(end, slow)| Some((self.ends.get(end)?.clone(), slow.rate)));
        let measured = self.measured.iter().filter_map(|(end, device)| {
            let link = self.ends.get(end)?;
            (device.rate() < *self.rates.get(link)?).then(|| (link.clone(), device.rate()))
        });
        let mut now = self.stated.clone();
        for (name, rate) in slow.chain(measured).chain(down) {
            now.entry(name).and_modify(|known| *known = rate.min(*known)).or_insert(rate);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
between = ["a", "b"]
rate = "1 Mbit/s"
devices = { a = "eth0", b = "eth1" }
[[link]]
name = "air"
between = ["a", "b"]
rate = "2 Mbit/s"
"#;

    fn links(stated: &[(&str, u64)], before: &[(&str, u64)]) -> Links {
        Links::new(&Contract::read(CONTRACT).unwrap(), &rates(stated), &rates(before))
    }

    fn rates(all: &[(&str, u64)]) -> Rates {
        all.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect()
    }

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_link_is_down_at_once_and_up_when_both_ends_are_steady() {
        let mut links = links(&[], &[]);
        links.reported(at(0), "a", "eth0", true);
        assert_eq!(links.now(at(0)), rates(&[]));
        links.reported(at(10), "b", "eth1", false);
        assert_eq!(links.now(at(10)), rates(&[("wire", 0)]));
        links.reported(at(20), "a", "eth0", false);
        links.reported(at(100), "a", "eth0", true);
        assert_eq!(links.now(at(5000)), rates(&[("wire", 0)]), "the other end is down");
        links.reported(at(5000), "b", "eth1", true);
        links.reported(at(6000), "b", "eth1", true); // again: it is back since 5000
        assert_eq!((links.now(at(6999)), links.now(at(7000))), (rates(&[("wire", 0)]), rates(&[])));
    }

    #[test]
    fn one_that_comes_and_goes_is_down() {
        let mut links = links(&[], &[]);
        for ms in (0..10_000).step_by(1000) {
            links.reported(at(ms), "a", "eth0", ms % 2000 != 0);
            assert_eq!(links.now(at(ms)), rates(&[("wire", 0)]), "{ms}");
        }
        // The fifth loss within a minute: it has to be back for 32 s.
        links.reported(at(10_000), "a", "eth0", true);
        assert_eq!((links.now(at(40_999)), links.now(at(41_000))), (rates(&[("wire", 0)]), rates(&[])));
        // A loss after a long time is a first one.
        links.now(at(200_000));
        links.reported(at(200_000), "a", "eth0", false);
        links.reported(at(200_001), "a", "eth0", true);
        assert_eq!((links.now(at(202_000)), links.now(at(202_001))), (rates(&[("wire", 0)]), rates(&[])));
    }

    #[test]
    fn a_lower_rate_counts_at_once_and_a_higher_one_when_it_lasts() {
        let mut links = links(&[], &[]);
        let mut at_rate = |ms, end, rate| {
            let device = if end == "a" { "eth0" } else { "eth1" };
            links.reported_rate(at(ms), end, device, rate);
            links.now(at(ms)).get("wire").copied()
        };
        assert_eq!([at_rate(0, "a", Some(1_000_000)), at_rate(0, "b", None)], [None; 2]);
        assert_eq!(at_rate(10, "a", Some(10_000_000)), None, "the contract says less");
        assert_eq!(at_rate(20, "a", Some(100_000)), Some(100_000));
        assert_eq!(at_rate(30, "b", Some(10_000)), Some(10_000), "the slower end");
        assert_eq!(at_rate(40, "b", Some(1)), Some(1_000), "no slower than any queue");
        assert_eq!(at_rate(50, "b", Some(500_000)), Some(1_000));
        assert_eq!(at_rate(2049, "b", Some(500_000)), Some(1_000));
        assert_eq!(at_rate(2050, "b", Some(500_000)), Some(100_000), "the other end");
        assert_eq!(at_rate(3000, "a", Some(1_000_000)), Some(100_000));
        assert_eq!(at_rate(4000, "a", Some(100_000)), Some(100_000));
        assert_eq!(at_rate(5000, "a", Some(1_000_000)), Some(100_000), "it was slow between");
        assert_eq!(at_rate(7000, "a", Some(1_000_000)), Some(500_000));
        assert_eq!(at_rate(7500, "b", Some(800_000)), Some(500_000));
        assert_eq!(at_rate(7900, "b", Some(900_000)), Some(500_000));
        assert_eq!(at_rate(9500, "b", Some(1_000_000)), Some(800_000), "the least of those 2 s");
        assert_eq!(at_rate(9600, "b", Some(500_000)), Some(500_000));
        assert_eq!([at_rate(10_000, "b", None), at_rate(12_000, "b", None)], [Some(500_000), None]);
    }

    #[test]
    fn what_was_slow_before_a_restart_is_slow_until_it_is_reported() {
        let mut links = links(&[("air", 600_000)], &[("wire", 200_000), ("air", 600_000)]);
        assert_eq!(links.now(at(0)), rates(&[("air", 600_000), ("wire", 200_000)]));
        for ms in [0, 2000] {
            links.reported_rate(at(ms), "a", "eth0", Some(1_000_000));
        }
        assert_eq!(links.now(at(2000)).get("wire"), Some(&200_000), "its other end was not heard");
        for ms in [3000, 5000] {
            links.reported_rate(at(ms), "b", "eth1", None);
        }
        assert_eq!(links.now(at(5000)), rates(&[("air", 600_000)]));
        links.reported(at(6000), "a", "eth0", false);
        links.reported_rate(at(6000), "a", "eth0", Some(10_000));
        assert_eq!(links.now(at(6000)).get("wire"), Some(&0), "one that is down carries nothing");
        links.state("wire", None).unwrap();
        assert_eq!(links.now(at(6001)).get("wire"), None, "until its agent says again that it is slow");
    }

    #[test]
    fn what_a_device_takes_of_a_full_queue_is_the_links_rate() {
        let mut links = links(&[("wire", 900_000)], &[]);
        let took = |rate_bits_per_s, queue_bits_per_s| Drained { rate_bits_per_s, queue_bits_per_s };
        for ms in [0, 100, 200] {
            assert_eq!(links.now(at(ms)), rates(&[("wire", 900_000)]));
            links.took(at(ms), "a", "eth0", took(300_000, 1_000_000));
            links.took(at(ms), "b", "eth1", took(950_000, 1_000_000));
            links.took(at(ms), "b", "eth7", took(1, 1_000_000));
        }
        assert_eq!((links.now(at(201)), links.measured()), (rates(&[("wire", 300_000)]), BTreeSet::from(["wire"])));
        assert_eq!(links.now(at(10_200)), rates(&[("wire", 600_000)]), "tried after a while");
        assert_eq!(links.now(at(20_200)), rates(&[("wire", 900_000)]), "what a user has stated");
        for ms in [30_000, 30_100, 30_200] {
            links.took(at(ms), "b", "eth1", took(300_000, 1_000_000));
        }
        links.state("wire", None).unwrap();
        assert_eq!((links.now(at(30_201)), links.measured()), (rates(&[]), BTreeSet::new()), "until it is seen again");
    }

    #[test]
    fn users_state_rates_up_to_those_of_the_contract() {
        let mut links = links(&[("gone", 7)], &[]);
        assert_eq!(links.state("air", Some(600_000)), Ok(()));
        links.reported(at(0), "a", "eth0", false);
        assert_eq!(links.now(at(0)), rates(&[("air", 600_000), ("wire", 0)]));
        for wrong in [1, 1999, 2_000_001] {
            assert_eq!(links.state("air", Some(wrong)), Err(Unstated::OutOfRange(2000, 2_000_000)));
        }
        assert_eq!(links.state("water", None), Err(Unstated::Unknown("air, wire".into())));
        assert_eq!(links.state("air", Some(2_000_000)), Ok(()));
        assert!(links.stated().is_empty());
        links.state("wire", Some(5000)).unwrap();
        assert_eq!(links.now(at(0)), rates(&[("wire", 0)]), "one that is down carries nothing, whatever is stated");
        links.state("wire", None).unwrap();
        assert_eq!(links.now(at(0)), rates(&[]), "until its agent says again that it is down");
    }

    #[test]
    fn what_was_down_before_a_restart_is_down_until_it_is_reported() {
        let mut links = links(&[("air", 0)], &[("wire", 0), ("air", 0)]);
        assert_eq!(links.now(at(0)), rates(&[("air", 0), ("wire", 0)]));
        links.reported(at(0), "a", "eth0", true);
        assert_eq!(links.now(at(9000)), rates(&[("air", 0), ("wire", 0)]), "its other end was not heard");
        links.reported(at(9000), "b", "eth1", true);
        assert_eq!(links.now(at(11_000)), rates(&[("air", 0)]), "what was stated stays");
    }

    #[test]
    fn devices_of_no_link_are_not_remembered() {
        let mut links = links(&[], &[]);
        (0..1000).for_each(|n| links.reported(at(0), "a", &format!("eth{}", n + 5), false));
        assert!(links.lost.is_empty() && links.now(at(0)).is_empty());
    }
}
