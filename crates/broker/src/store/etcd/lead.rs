//! Leading: of several brokers of a domain the one whose lease stands in etcd.

use super::gateway::{First, Gateway, Lease, Number};
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Time after its last renewal for which a broker leads: longer than etcd takes to replace a member that leads it.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// Time between two renewals.
const RENEWAL: Duration = Duration::from_millis(700);
/// Longest time for a lease to be given back.
const LAST: Duration = Duration::from_secs(1);

/// The lead of a broker, until it is lost.
#[derive(Debug)]
pub struct Lead {
    lost: AtomicBool,
    until: Mutex<Instant>,
}

impl Lead {
    fn new(asked: Instant) -> Self {
        Self { lost: AtomicBool::new(false), until: Mutex::new(asked + LEASE) }
    }

    /// `true` if another broker may lead now.
    pub fn is_lost(&self) -> bool {
        if *self.until() < Instant::now() {
            self.lose(); // it does not come back with a late answer
        }
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that is renewed as long as this is there, and given back then.
#[derive(Debug)]
pub(super) struct Renewed {
    pub lead: Arc<Lead>,
    renewal: Option<thread::JoinHandle<()>>,
}

impl Renewed {
    /// `asked`: the time at which the lease was asked for.
    pub fn begin(gateway: Gateway, lease: Number, asked: Instant) -> io::Result<Self> {
        let lead = Arc::new(Lead::new(asked));
        let followed = Arc::downgrade(&lead);
        let named = thread::Builder::new().name("lease".to_owned());
        let renewal = named.spawn(move || renew(gateway, lease, &followed))?;
        Ok(Self { lead, renewal: Some(renewal) })
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        self.lead.lose();
        if let Some(renewal) = self.renewal.take() {
            renewal.thread().unpark();
            let _ = renewal.join(); // the process may end behind this
        }
    }
}

/// Renews a lease until its lead is lost, and gives it back then: another broker need not wait for its end.
fn renew(mut gateway: Gateway, lease: Number, lead: &Weak<Lead>) {
    while let Some(lead) = lead.upgrade().filter(|lead| !lead.is_lost()) {
        let asked = Instant::now();
        match kept_alive(&mut gateway, lease) {
            Ok(true) => *lead.until() = asked + LEASE,
            Ok(false) => lead.lose(),
            Err(_) => {} // the lead ends with its time
        }
        drop(lead);
        thread::park_timeout(RENEWAL);
    }
    let _ = gateway.ask_within::<serde_json::Value>(LAST, "/v3/lease/revoke", &json!({"ID": lease.0.to_string()}));
}

/// `false`: the lease is over.
fn kept_alive(gateway: &mut Gateway, lease: Number) -> io::Result<bool> {
    let answer =
        gateway.ask_within::<First<Lease>>(LEASE / 2, "/v3/lease/keepalive", &json!({"ID": lease.0.to_string()}))?;
    Ok(answer.result.ttl.0 > 0)
}

/// A new lease.
pub(super) fn granted(gateway: &mut Gateway) -> io::Result<Number> {
    let answer = gateway.ask::<Lease>("/v3/lease/grant", &json!({"TTL": LEASE.as_secs().to_string()}))?;
    Ok(answer.id)
}
