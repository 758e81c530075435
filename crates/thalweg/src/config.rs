//! Settings from outside a program: by the environment, else by a file. What a program itself states, or a flag of the command, counts more.
//!
//! The file is `$THALWEG_CONFIG`, else the first that is there of `$XDG_CONFIG_HOME/thalweg/config.toml` (`~/.config` without that
//! variable) and `/etc/thalweg/config.toml`. Its keys are the names in [`SETTINGS`]. `docs/configuration.md` has the same table.

mod file;

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// A setting: a key of the file, and an environment variable. Most are flags of the command, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key and flag, such as `admin-from`.
    pub name: &'static str,
    /// The value without any other.
    pub default: &'static str,
    /// The unit of a plain number; empty: it is none.
    pub unit: &'static str,
    /// The allowed values.
    pub allowed: &'static str,
    /// Its effect.
    pub about: &'static str,
}

/// All settings. The last three are those of the command for a domain; the others those of a node.
pub const SETTINGS: [Setting; 13] = [
    Setting {
        name: "realm",
        default: "default",
        unit: "",
        allowed: "1 to 32 letters, digits, - and _",
        about: "nodes of other realms are not seen",
    },
    Setting {
        name: "listen",
        default: "none",
        unit: "",
        allowed: "list of IP or IP:port of this host",
        about: "addresses to listen on besides loopback",
    },
    Setting {
        name: "peer",
        default: "none",
        unit: "",
        allowed: "list of IP, HOST:port or tcp/HOST:port",
        about: "nodes or routers of other hosts",
    },
    Setting {
        name: "discovery",
        default: "none",
        unit: "",
        allowed: "static:FILE",
        about: "a file with the nodes of other hosts, instead of a search",
    },
    Setting {
        name: "admin-from",
        default: "none",
        unit: "",
        allowed: "list of networks, such as 10.0.0.0/8",
        about: "other hosts that may change a node",
    },
    Setting {
        name: "run-dir",
        default: "$XDG_RUNTIME_DIR/thalweg, else /tmp/thalweg-UID",
        unit: "",
        allowed: "a directory",
        about: "where the nodes of a host meet",
    },
    Setting {
        name: "memory",
        default: "1GiB",
        unit: "B",
        allowed: "from 1, or with B kB MB GB KiB MiB GiB",
        about: "what all channels of a node may hold together",
    },
    Setting {
        name: "lock-memory",
        default: "false",
        unit: "",
        allowed: "true, false",
        about: "keeps the process resident (mlockall)",
    },
    Setting {
        name: "channels",
        default: "64",
        unit: "",
        allowed: "1 to 4294967295",
        about: "channels of a publisher that may lead to other hosts",
    },
    Setting {
        name: "pictures",
        default: "4",
        unit: "",
        allowed: "1 to 4294967295",
        about: "different pictures that are made of a publisher's",
    },
    Setting {
        name: "broker",
        default: "none",
        unit: "",
        allowed: "list of HOST:port",
        about: "the broker that the command asks",
    },
    Setting { name: "keys", default: "none", unit: "", allowed: "a directory", about: "the user's keys for a broker" },
    Setting {
        name: "user",
        default: "$USER, else root",
        unit: "",
        allowed: "a name in the realm of the keys",
        about: "who asks the broker",
    },
];

impl Setting {
    /// Its environment variable, such as `THALWEG_ADMIN_FROM`.
    pub fn variable(&self) -> String {
        format!("THALWEG_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// The setting with this name.
    ///
    /// # Errors
    /// [`Error::Usage`] with the name that is most like it, if one is, and all others.
    pub fn named(name: &str) -> Result<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let names = SETTINGS.map(|setting| setting.name);
            let shown: String = name.chars().take(MOST_SHOWN).collect();
            let nearest = qos::nearest(name, names);
            let nearest = nearest.map_or(String::new(), |nearest| format!("the nearest is {nearest}, and "));
            Error::Usage(format!("no setting has the name {shown:?}; {nearest}all are {}", names.join(", ")))
        })
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag of the command, such as `--realm`.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// A line, counted from 1, of the file.
    File(PathBuf, usize),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(name) | Source::Environment(name) => f.write_str(name),
            Source::File(file, line) => write!(f, "{}:{line}", file.display()),
        }
    }
}

/// A value, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The value; those of a list are separated by commas.
    pub text: String,
    /// Its source.
    pub source: Source,
}

/// The values that flags, environment and file give.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
    given: BTreeMap<&'static str, Given>,
}

impl Configuration {
    /// Reads the file, and the environment over it.
    ///
    /// # Errors
    /// [`Error::Configuration`]: a file that cannot be read, is no TOML or has an unknown key, with file and line; a variable that is no text.
    pub fn read() -> Result<Self> {
        Self::of_environment(&|name| std::env::var_os(name))
    }

    fn of_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (file, mut given) = file::read(&set)?.map_or_else(Default::default, |(file, given)| (Some(file), given));
        for setting in &SETTINGS {
            let name = setting.variable();
            let Some(value) = set(&name) else { continue };
            let wrong = |value: OsString| Error::Configuration(format!("{name}: {value:?} is no text in UTF-8"));
            let text = value.into_string().map_err(wrong)?;
            given.insert(setting.name, Given { text, source: Source::Environment(name) });
        }
        Ok(Self { file, given })
    }

    /// The same, but for what flags state, by the names of their settings.
    #[must_use]
    pub fn overridden(mut self, stated: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let by_flag = |(name, text)| (name, Given { text, source: Source::Flag(format!("--{name}")) });
        self.given.extend(stated.into_iter().map(by_flag));
        self
    }

    /// The value of a setting, if one is given.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// As [`get`](Self::get), read by `parse`.
    pub(crate) fn value<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(Given { text, source }) = self.get(name) else { return Ok(None) };
        let read = parse(text.trim());
        read.map(Some).map_err(|wrong| Error::Configuration(format!("{source}: {name}: {text:?}: {wrong}")))
    }

    /// As [`value`](Self::value), of each part of a list.
    pub(crate) fn list<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<Vec<T>>> {
        self.value(name, |text| text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(&parse).collect())
    }
}

/// The files in which settings may stand, best first.
pub fn files() -> Vec<PathBuf> {
    file::candidates(&|name| std::env::var_os(name).filter(|value| !value.is_empty())).0
}

/// An address to listen on: IP, or IP:port.
///
/// # Errors
/// The allowed values.
pub fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    text.parse().or(bare).map_err(|_| {
        "an IP address of this host with or without a port, such as 10.0.0.1, 0.0.0.0:7400 or [::]:7400".to_owned()
    })
}

/// A node or router on another host, as [`Settings::peers`](crate::Settings::peers) has it: `10.0.0.1` is `tcp/10.0.0.1:7447`.
///
/// # Errors
/// The allowed values.
pub fn peer(text: &str) -> std::result::Result<String, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(format!("tcp/{}", SocketAddr::new(ip, PEER_PORT)));
    }
    let address = text.split_once('/').map_or(text, |(_, address)| address);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if port && !host.is_empty() {
        return Ok(if text.contains('/') { text.to_owned() } else { format!("tcp/{text}") });
    }
    Err("an address of a node or router, such as 10.0.0.1, 10.0.0.1:7447 or tcp/robot.local:7447".to_owned())
}

/// A way of discovery: `static:FILE`.
///
/// # Errors
/// The allowed values.
pub fn discovery(text: &str) -> std::result::Result<PathBuf, String> {
    match text.strip_prefix("static:") {
        Some(file) if !file.is_empty() => Ok(PathBuf::from(file)),
        _ => Err("static:FILE, where FILE has [[node]] tables with address = \"IP:PORT\"".to_owned()),
    }
}

/// Port of a node or router on another host if none is given.
const PEER_PORT: u16 = 7447;
/// Most characters of a wrong name that are shown.
const MOST_SHOWN: usize = 40;

/// `true` if a value in a file depends on the directory in which a program happens to run.
fn is_relative(name: &str, text: &str) -> bool {
    let path = match name {
        "discovery" => text.strip_prefix("static:"),
        "run-dir" | "keys" => Some(text),
        _ => None,
    };
    path.is_some_and(|path| !Path::new(path).is_absolute())
}

#[cfg(test)]
mod tests;
