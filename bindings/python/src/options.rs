//! Settings of nodes and policies of ports from Python's arguments, which come as text: `Qos::set` and `Changes::add` say what is allowed.

use crate::error::UsageError;
use pyo3::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use thalweg::qos::Qos;
use thalweg::qos::priority::{Changes, PrioritySettings};
use thalweg::{DiscoverySource, Settings};

/// The longest time that is told apart from forever.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86400);

/// What a publisher or a subscriber may be given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    pub(crate) name: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) carriers: Option<Vec<String>>,
    policies: Vec<(String, String)>,
    priority: Vec<String>,
}

impl Options {
    /// The policies, by the names that profiles and the command have for them.
    pub(crate) fn qos(&self) -> PyResult<Qos> {
        let mut qos = Qos::default();
        for (name, value) in &self.policies {
            qos.set(name, value)
                .map_err(|wrong| UsageError::new_err(format!("{}: {wrong}", name.replace('-', "_"))))?;
        }
        Ok(qos)
    }

    /// The settings of the port's ends of channels.
    pub(crate) fn priority(&self) -> PyResult<PrioritySettings> {
        let mut settings = PrioritySettings::default();
        changes(&self.priority)?.apply(&mut settings);
        Ok(settings)
    }
}

/// Changes of a priority, from words such as `class=high`.
fn changes(words: &[String]) -> PyResult<Changes> {
    let mut changes = Changes::default();
    for word in words {
        changes.add(word).map_err(|wrong| UsageError::new_err(wrong.to_string()))?;
    }
    Ok(changes)
}

/// The settings of a node.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NodeOptions {
    name: Option<String>,
    realm: Option<String>,
    listen: Vec<String>,
    peers: Vec<String>,
    discovery: Option<PathBuf>,
    lock_memory: bool,
    memory: Option<usize>,
    admin_from: Vec<String>,
    channels: Option<u32>,
    pictures: Option<u32>,
}

impl NodeOptions {
    pub(crate) fn settings(self) -> PyResult<Settings> {
        // What is not given is that of the environment, of the configuration file, or the default.
        let mut settings = Settings::default();
        settings.lock_memory |= self.lock_memory;
        settings.name = self.name.unwrap_or(settings.name);
        settings.realm = self.realm.unwrap_or(settings.realm);
        settings.memory = self.memory.unwrap_or(settings.memory);
        settings.limits.channels = self.channels.unwrap_or(settings.limits.channels);
        settings.limits.pictures = self.pictures.unwrap_or(settings.limits.pictures);
        settings.discovery = self.discovery.map_or(settings.discovery, DiscoverySource::Static);
        if !self.listen.is_empty() {
            settings.listen = self.listen.iter().map(|text| address(text)).collect::<PyResult<_>>()?;
        }
        if !self.peers.is_empty() {
            settings.peers = self.peers;
        }
        let network = |text: &String| text.parse().map_err(|wrong| UsageError::new_err(format!("admin_from: {wrong}")));
        if !self.admin_from.is_empty() {
            settings.admin_from = self.admin_from.iter().map(network).collect::<PyResult<_>>()?;
        }
        Ok(settings)
    }
}

/// An address to listen on, with or without a port.
fn address(text: &str) -> PyResult<SocketAddr> {
    let bare = |_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    text.parse::<SocketAddr>().or_else(bare).map_err(|_| {
        UsageError::new_err(format!("listen: {text:?} is no address of this host, such as 10.0.0.1 or 10.0.0.1:7447"))
    })
}

/// A time-out in seconds; `None`: forever.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Duration> {
    let Some(seconds) = seconds else { return Ok(FOREVER) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(UsageError::new_err(format!(
            "timeout: {seconds} is no time: a number of seconds from 0 up, or None to wait forever"
        )));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(FOREVER).min(FOREVER))
}

/// Gives the builder of a publisher or a subscriber its options.
macro_rules! with_options {
    ($builder:expr, $options:expr) => {{
        let mut builder = $builder.qos($options.qos()?).priority($options.priority()?);
        if let Some(name) = &$options.name {
            builder = builder.named(name);
        }
        if let Some(session) = &$options.session {
            builder = builder.session(session);
        }
        if let Some(carriers) = &$options.carriers {
            builder = builder.carriers(carriers.iter().map(String::as_str));
        }
        builder
    }};
}
pub(crate) use with_options;
