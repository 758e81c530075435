//! The ends of sessions that have to be asked for again and again. Pure: times come as arguments, of any monotonic clock.
//!
//! Ends are not kept on disk: a broker that starts again gives every session its whole lease, so that a robot whose broker was away
//! loses nothing.

use crate::planning::Admitted;
use std::collections::BTreeMap;
use std::time::Duration;

/// When which session ends, unless it is asked for again.
#[derive(Debug, Default)]
pub struct Leases(BTreeMap<String, Lease>);

#[derive(Debug)]
struct Lease {
    lasts: Duration,
    end: Duration,
}

impl Leases {
    /// These are the sessions from now on, in a plan of this revision. One that came or was changed with it has its whole lease.
    pub fn are(&mut self, now: Duration, sessions: &[Admitted], revision: u64) {
        self.0.retain(|name, _| sessions.iter().any(|session| session.name == *name && session.lease.is_some()));
        for session in sessions {
            let Some(lasts) = session.lease else { continue };
            if session.asked == revision || !self.0.contains_key(&session.name) {
                self.0.insert(session.name.clone(), Lease { lasts, end: now + lasts });
            }
        }
    }

    /// A session has its whole lease from now on, or none.
    pub fn begin(&mut self, now: Duration, name: &str, lasts: Option<Duration>) {
        match lasts {
            Some(lasts) => drop(self.0.insert(name.to_owned(), Lease { lasts, end: now + lasts })),
            None => drop(self.0.remove(name)),
        }
    }

    /// A session was asked for again.
    pub fn renew(&mut self, now: Duration, name: &str) {
        if let Some(lease) = self.0.get_mut(name) {
            lease.end = now + lease.lasts;
        }
    }

    /// The time that is left of a session's lease; `None`: it has none.
    pub fn left(&self, now: Duration, name: &str) -> Option<Duration> {
        self.0.get(name).map(|lease| lease.end.saturating_sub(now))
    }

    /// The sessions whose lease is over.
    pub fn over(&self, now: Duration) -> Vec<String> {
        self.0.iter().filter(|(_, lease)| lease.end <= now).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn session(name: &str, lease: Option<u64>, revision: u64) -> Admitted {
        let (name, lease) = (name.into(), lease.map(at));
        Admitted { name, owner: "ann".into(), asked: revision, lease, ..Admitted::default() }
    }

    #[test]
    fn a_session_ends_unless_it_is_asked_for_again() {
        let mut leases = Leases::default();
        let all = [session("camera", Some(10), 1), session("log", None, 2), session("map", Some(30), 3)];
        leases.are(at(100), &all, 3);
        assert_eq!((leases.left(at(104), "camera"), leases.left(at(104), "log")), (Some(at(6)), None));
        assert!(leases.over(at(109)).is_empty());
        assert_eq!(leases.over(at(110)), ["camera"]);
        leases.renew(at(109), "camera");
        leases.renew(at(109), "log");
        leases.are(at(112), &all, 4); // another session went
        assert_eq!((leases.over(at(118)), leases.over(at(119))), (Vec::new(), vec!["camera".to_owned()]));
        assert_eq!(leases.over(at(130)), ["camera", "map"]);
    }

    #[test]
    fn a_changed_session_has_its_whole_lease_and_a_stopped_one_has_none() {
        let mut leases = Leases::default();
        leases.are(at(0), &[session("camera", Some(10), 1)], 1);
        leases.are(at(9), &[session("camera", Some(10), 2)], 2);
        assert_eq!(leases.left(at(9), "camera"), Some(at(10)));
        leases.are(at(10), &[session("camera", None, 3)], 3);
        assert_eq!((leases.left(at(10), "camera"), leases.over(at(1000))), (None, Vec::new()));
    }
}
