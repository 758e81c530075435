//! The carriers of a host's devices, at the ends of links, the rates that they have agreed on, and those that they take of a full queue: the broker
//! hears of each change, and of all of them again and again, since it may have started anew. What is to be said is decided without a clock of its
//! own.

use crate::client::Client;
use crate::drained::{Draining, Look};
use crate::message::{Carrier, Drained, MOST_DEVICES};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time after which all is said again.
const AGAIN_EVERY: Duration = Duration::from_secs(2);
/// Shortest and longest pause before a broker that does not answer, or refuses, is asked or told again.
pub(crate) const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The least by which a look is late.
const LATE: Duration = Duration::from_millis(2);

/// What the broker was told last.
#[derive(Debug, Default)]
struct Told {
    carriers: Vec<Carrier>,
    /// When all is to be said again, whether it has changed or not.
    again_at: Duration,
    /// The pause after which a failure is tried again; none: there was none.
    pause: Option<Duration>,
}

impl Told {
    /// `true` if this has to be told now.
    fn is_due(&self, now: Duration, carriers: &[Carrier]) -> bool {
        let is_news = self.carriers != carriers && self.pause.is_none();
        !carriers.is_empty() && (is_news || now >= self.again_at)
    }

    /// It was told, and heard or not.
    fn told(&mut self, now: Duration, carriers: Vec<Carrier>, is_heard: bool) {
        self.carriers = carriers;
        self.pause = (!is_heard).then(|| self.pause.map_or(PAUSES[0], |last| (2 * last).min(PAUSES[1])));
        self.again_at = now + self.pause.unwrap_or(AGAIN_EVERY);
    }
}

/// Tells the broker until `ended`. A broker that does not answer is told at a later look.
pub(crate) fn tell(client: &Client, host: &str, devices: &dyn Fn() -> Vec<(String, u64)>, ended: &dyn Fn() -> bool) {
    let (began, mut told, mut queues) = (Instant::now(), Told::default(), Queues::default());
    let mut is_late = false;
    while !ended() {
        let devices: Vec<(String, u64)> = devices().into_iter().take(MOST_DEVICES).collect();
        let drained = queues.see(&devices, began, is_late);
        // Where the kernel does not say, nothing is said.
        let look = |(device, _): (String, u64)| {
            let up = linux::queueing::carrier(&device).ok()?;
            let rate_bits_per_s = linux::queueing::agreed_rate(&device).filter(|_| up);
            let drained = drained.get(&device).copied().filter(|_| up);
            Some(Carrier { device, up, rate_bits_per_s, drained })
        };
        let carriers: Vec<Carrier> = devices.into_iter().filter_map(look).collect();
        let now = began.elapsed();
        if told.is_due(now, &carriers) {
            let is_heard = client.report_carriers(host, &carriers).is_ok();
            told.told(now, carriers, is_heard);
        }
        is_late = sleeps_late(LOOK_EVERY);
    }
}

/// Sleeps so long; `true`: it became longer by more than a tenth.
fn sleeps_late(time: Duration) -> bool {
    let before = Instant::now();
    std::thread::sleep(time);
    before.elapsed() > time + LATE.max(time / 10)
}

/// The queues of the devices, as they were seen last.
#[derive(Debug, Default)]
struct Queues(BTreeMap<String, Draining>);

impl Queues {
    /// What devices (with the rates of their queues) took since the last look. A queue that would have drained before the next one is looked at
    /// once more before that.
    fn see(&mut self, devices: &[(String, u64)], began: Instant, is_late: bool) -> BTreeMap<String, Drained> {
        self.0.retain(|name, _| devices.iter().any(|(device, _)| device == name));
        let mut all = BTreeMap::new();
        self.look(devices, (began, is_late), &mut all);
        let soon = devices.iter().filter(|(device, _)| !all.contains_key(device));
        let soon = soon.filter_map(|(device, rate)| self.0.get(device)?.half(*rate)).min();
        if let Some(time) = soon.filter(|time| *time < LOOK_EVERY) {
            let is_late = sleeps_late(time);
            self.look(devices, (began, is_late), &mut all);
        }
        all
    }

    fn look(
        &mut self,
        devices: &[(String, u64)],
        (began, is_late): (Instant, bool),
        all: &mut BTreeMap<String, Drained>,
    ) {
        for (device, rate) in devices {
            let Ok(Some(backlog)) = linux::queueing::backlog(device) else { continue };
            let seen = self.0.entry(device.clone()).or_default().see(Look { at: began.elapsed(), is_late, backlog });
            if let Some(rate_bits_per_s) = seen {
                all.insert(device.clone(), Drained { rate_bits_per_s, queue_bits_per_s: *rate });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_at_once_and_all_again_later() {
        let at = Duration::from_millis;
        let carriers = |up| vec![Carrier { device: "eth0".into(), up, ..Carrier::default() }];
        let mut told = Told::default();
        assert!(told.is_due(at(0), &carriers(true)) && !told.is_due(at(0), &[]));
        told.told(at(0), carriers(true), true);
        assert!(!told.is_due(at(1999), &carriers(true)) && told.is_due(at(2000), &carriers(true)));
        assert!(told.is_due(at(100), &carriers(false)));
        // The broker does not hear it: again after 0.1, 0.2 … 5 s.
        let mut now = 100;
        for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            told.told(at(now), carriers(false), false);
            assert!(!told.is_due(at(now + pause - 1), &carriers(true)), "{pause}");
            assert!(told.is_due(at(now + pause), &carriers(false)), "{pause}");
            now += pause;
        }
        told.told(at(now), carriers(false), true);
        assert!(!told.is_due(at(now + 1), &carriers(false)) && told.is_due(at(now + 1), &carriers(true)));
    }
}
