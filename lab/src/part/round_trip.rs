//! The roles `ping` and `pong`: round trips over two channels, `/ping` there and `/pong` back.

use super::Orders;
use super::node::NodeSettings;
use super::stream::set;
use crate::error::{Error, Result};
use crate::stalls::Timed;
use linux::clock::monotonic_ns;
use qos::priority::Changes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::Publisher;
use thalweg::codec::Raw;
use thalweg::testing::Dice;

/// What both roles are given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The node.
    pub node: NodeSettings,
    /// Bytes of a sample, at least 16.
    pub size: usize,
    /// The carrier.
    pub carrier: String,
    /// Of the times between two samples.
    pub seed: u64,
}

/// What both roles do when told; each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Order {
    /// Waits until both channels are there.
    Connected,
    /// As [`super::stream::Order::Set`], for both channels of this process.
    Set {
        /// What changes.
        changes: Changes,
    },
    /// Sends so many samples (`ping`): [`Trips`].
    Run {
        /// How many.
        count: u64,
        /// How many a second, on average: times between two are even plus or minus half.
        hz: f64,
    },
}

/// What came of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trips {
    /// Samples that were sent.
    pub sent: u64,
    /// Of each that came back: when it was sent, and how long it took.
    pub trips: Vec<Timed>,
}

/// Nothing that works takes this long.
const LONG: Duration = Duration::from_secs(30);
/// What does not come back within this time is lost.
const LOST: Duration = Duration::from_secs(1);

/// Ports by role: the one that sends, the one that receives, and their channels' other ends.
const PING: [&str; 4] = ["/ping/out", "/ping/in", "/pong/in", "/pong/out"];
const PONG: [&str; 4] = ["/pong/out", "/pong/in", "/ping/in", "/ping/out"];

/// Sends, and notes when it comes back.
pub(super) fn ping(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let back: Arc<Mutex<Vec<Timed>>> = Arc::default();
    let seen = back.clone();
    let [out, inn, ..] = PING;
    let mut publisher = node.publisher::<Raw>("/ping").named(out).open()?;
    let subscriber =
        node.subscriber::<Raw>("/pong").named(inn).carriers([&settings.carrier]).callback(move |sample| {
            let sent = sample.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or_default();
            let trip = Timed { from_ns: sent, ns: sample.info().received_ns.saturating_sub(sent) };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(trip);
        })?;
    let mut dice = Dice::new(settings.seed);
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected => {
                let both = || publisher.connected() > 0 && subscriber.connected() > 0;
                connected(&mut orders, node.wait_until(LONG, both))?;
            }
            Order::Set { changes } => orders.say(&set_both(&node, PING, &changes)?)?,
            Order::Run { count, hz } => {
                take(&back, count as usize);
                send(&mut publisher, &settings, count, hz, &mut dice)?;
                let until = Instant::now() + LOST;
                while (back.lock().unwrap_or_else(PoisonError::into_inner).len() as u64) < count
                    && Instant::now() < until
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                orders.say(&Trips { sent: count, trips: take(&back, 0) })?;
            }
        }
    }
    Ok(())
}

/// What is there, and room for what comes.
fn take(back: &Mutex<Vec<Timed>>, room: usize) -> Vec<Timed> {
    std::mem::replace(&mut *back.lock().unwrap_or_else(PoisonError::into_inner), Vec::with_capacity(room))
}

fn send(port: &mut Publisher<Raw>, settings: &Settings, count: u64, hz: f64, dice: &mut Dice) -> Result {
    let mut message = vec![0; settings.size.max(16)];
    let period = (1e9 / hz) as u64;
    let mut due = Instant::now();
    for _ in 0..count {
        // Not in step with the scheduler's own tick.
        due += Duration::from_nanos(dice.around(period, period / 2));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
        port.publish(&message)?;
    }
    Ok(())
}

/// Sends back what comes, on the receiving thread.
pub(super) fn pong(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let [out, inn, ..] = PONG;
    let publisher = Arc::new(Mutex::new(node.publisher::<Raw>("/pong").named(out).open()?));
    let answers = publisher.clone();
    let subscriber =
        node.subscriber::<Raw>("/ping").named(inn).carriers([&settings.carrier]).callback(move |sample| {
            // Closed: then nobody waits for it.
            let _ = answers.lock().unwrap_or_else(PoisonError::into_inner).publish(&sample);
        })?;
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected => {
                let both = || {
                    subscriber.connected() > 0
                        && publisher.lock().unwrap_or_else(PoisonError::into_inner).connected() > 0
                };
                connected(&mut orders, node.wait_until(LONG, both))?;
            }
            Order::Set { changes } => orders.say(&set_both(&node, PONG, &changes)?)?,
            Order::Run { .. } => return Err(Error::Usage("pong sends nothing by itself".into())),
        }
    }
    Ok(())
}

fn connected(orders: &mut Orders, yes: bool) -> Result {
    if !yes {
        return Err(Error::Failed(format!("ping and pong did not connect within {} s", LONG.as_secs())));
    }
    orders.say(&json!({"connected": true}))
}

fn set_both(
    node: &thalweg::Node,
    [out, inn, out_to, in_from]: [&str; 4],
    changes: &Changes,
) -> Result<serde_json::Value> {
    let ends = [set(node, out, out_to, changes)?, set(node, inn, in_from, changes)?];
    Ok(json!({"ends": ends}))
}
