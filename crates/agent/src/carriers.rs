//! The carriers of a host's devices, at the ends of links: the broker hears of each change, and of all of them again and again, since it may have
//! started anew. What is to be said is decided without a clock of its own.

use crate::client::Client;
use crate::message::{Carrier, MOST_DEVICES};
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time after which all is said again.
const AGAIN_EVERY: Duration = Duration::from_secs(2);

/// What the broker was told last.
#[derive(Debug, Default)]
struct Told {
    carriers: Vec<Carrier>,
    /// `None`: it has not heard it.
    at: Option<Duration>,
}

impl Told {
    /// `true` if this has to be told now.
    fn is_due(&self, now: Duration, carriers: &[Carrier]) -> bool {
        let fresh = self.at.is_some_and(|at| now.saturating_sub(at) < AGAIN_EVERY);
        let is_old = fresh && self.carriers == carriers;
        !(is_old || carriers.is_empty())
    }
}

/// Tells the broker until `ended`. A broker that does not answer is told at a later look.
pub(crate) fn tell(client: &Client, host: &str, devices: &dyn Fn() -> Vec<String>, ended: &dyn Fn() -> bool) {
    let (began, mut told) = (Instant::now(), Told::default());
    while !ended() {
        let devices = devices().into_iter().take(MOST_DEVICES);
        // Where the kernel does not say, nothing is said.
        let look = |device: String| linux::queueing::carrier(&device).ok().map(|up| Carrier { device, up });
        let carriers: Vec<Carrier> = devices.filter_map(look).collect();
        let now = began.elapsed();
        if told.is_due(now, &carriers) {
            let at = client.report_carriers(host, &carriers).ok().map(|()| now);
            told = Told { carriers, at };
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_at_once_and_all_again_later() {
        let at = Duration::from_millis;
        let carriers = |up| vec![Carrier { device: "eth0".into(), up }];
        let mut told = Told::default();
        assert!(told.is_due(at(0), &carriers(true)) && !told.is_due(at(0), &[]));
        told = Told { carriers: carriers(true), at: Some(at(0)) };
        assert!(!told.is_due(at(1999), &carriers(true)) && told.is_due(at(2000), &carriers(true)));
        assert!(told.is_due(at(100), &carriers(false)));
        told = Told { carriers: carriers(false), at: None };
        assert!(told.is_due(at(200), &carriers(false)), "the broker has not heard it");
    }
}
