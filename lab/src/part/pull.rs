//! The roles `keeper` and `puller`: a history, and repeated pulls of all of it.

use super::{NodeSettings, Orders, PATIENCE};
use crate::error::{Error, Result};
use qos::PullBuffer;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use thalweg::codec::Raw;
use thalweg::{PullFrom, Query, Subscriber};

/// Settings of both roles.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The node.
    pub node: NodeSettings,
    /// The topic.
    pub topic: String,
    /// Bytes of a sample.
    pub size: usize,
    /// Samples that are kept.
    pub samples: u32,
}

/// Orders to a puller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Order {
    /// Pulls until [`Order::Stop`].
    Start {
        /// As fast as it goes, instead of within the limit that a pull has by itself.
        unlimited: bool,
    },
    /// Pulls no more: [`Pulled`].
    Stop,
}

/// Result of pulling since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pulled {
    /// Payload bytes.
    pub bytes: u64,
    /// Duration.
    pub seconds: f64,
    /// Samples that differed from the published ones.
    pub damaged: u64,
    /// The first thing that went wrong.
    pub problem: Option<String>,
}

impl Pulled {
    /// In MB/s.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1e6
    }
}

/// Publishes the samples of the history, each filled with the low byte of its number, and answers until it ends.
pub(super) fn keeper(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let bytes = u64::from(settings.samples) * settings.size as u64;
    let buffer = PullBuffer { samples: settings.samples, bytes, ..PullBuffer::default() };
    let mut port = node.publisher::<Raw>(&settings.topic).history(buffer).open()?;
    for number in 1..=settings.samples {
        port.publish(&vec![number as u8; settings.size])?;
    }
    orders.say(&json!({"node": node.id()}))?;
    while orders.wait::<serde_json::Value>()?.is_some() {}
    Ok(())
}

/// Pulls.
pub(super) fn puller(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let port = node.subscriber::<Raw>(&settings.topic).pull_only().open()?;
    orders.say(&json!({"ok": node.wait_until(PATIENCE, || port.can_pull())}))?;
    let port = Arc::new(Mutex::new(port));
    let mut running: Option<Running> = None;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Start { unlimited } => {
                running = Some(Running::start(&port, &settings, unlimited)?);
                orders.say(&json!({}))?;
            }
            Order::Stop => orders.say(&running.take().map(Running::finish).unwrap_or_default())?,
        }
    }
    running.map(Running::finish);
    Ok(())
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Pulled>,
}

impl Running {
    fn start(port: &Arc<Mutex<Subscriber<Raw>>>, settings: &Settings, unlimited: bool) -> Result<Self> {
        let usual = PullFrom::default();
        let from = if unlimited { PullFrom { limit: None, ..usual } } else { usual };
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, port, settings) = (stop.clone(), port.clone(), settings.clone());
        let body = move || {
            let port = port.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut pulled, start) = (Pulled::default(), Instant::now());
            while !asked.load(Relaxed) && pulled.problem.is_none() {
                pulled.problem =
                    pull(&port, &settings, &from, &asked, &mut pulled).err().map(|error| error.to_string());
            }
            pulled.seconds = start.elapsed().as_secs_f64();
            pulled
        };
        Ok(Self { stop, thread: std::thread::Builder::new().name("pulling".into()).spawn(body)? })
    }

    fn finish(self) -> Pulled {
        self.stop.store(true, Relaxed);
        let failed = || Pulled { problem: Some("the pulling thread failed".into()), ..Pulled::default() };
        self.thread.join().unwrap_or_else(|_| failed())
    }
}

/// All that is kept, once.
fn pull(
    port: &Subscriber<Raw>,
    settings: &Settings,
    from: &PullFrom,
    stop: &AtomicBool,
    pulled: &mut Pulled,
) -> Result {
    let mut samples = port.pull_from(from, Query::Last(u64::from(settings.samples)), PATIENCE)?;
    let mut count = 0;
    for sample in samples.by_ref() {
        let sample = sample?;
        let whole = sample.len() == settings.size && sample.first() == Some(&(sample.info().seq as u8));
        pulled.damaged += u64::from(!whole);
        pulled.bytes += sample.len() as u64;
        count += 1;
        if stop.load(Relaxed) {
            return Ok(());
        }
    }
    match count == settings.samples {
        true => Ok(()),
        false => Err(Error::Failed(format!("{count} of {} samples came", settings.samples))),
    }
}
