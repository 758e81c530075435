//! What was made in a network namespace, on disk before it is made.

use super::Tunnel;
use super::settings::Raised;
use crate::queueing::{QueueError, Reason};
use crate::{clock, namespace, owned};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The tunnels that we made in this network namespace; those of an earlier boot are gone.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
}

/// What a journal names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) settings: Vec<Raised>,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Dated {
    boot: String,
    tunnels: Vec<Tunnel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<Raised>,
}

/// Largest journal in bytes.
const LARGEST: u64 = 1 << 20;

impl Journal {
    pub(super) fn open(directory: &Path) -> Result<Self, QueueError> {
        let open = || {
            owned::directory(directory)?;
            Ok(Self { path: directory.join(format!("tunnels-{}.json", namespace::current_id()?)) })
        };
        open().map_err(|error| unusable(directory, error))
    }

    pub(super) fn load(&self) -> Result<Content, QueueError> {
        let bytes = match owned::read_own(&self.path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
            Err(error) => return Err(unusable(&self.path, error)),
        };
        let Dated { boot, tunnels, settings } =
            serde_json::from_slice(&bytes).map_err(|e| unusable(&self.path, e.into()))?;
        Ok(if boot == clock::boot_id() { Content { tunnels, settings } } else { Content::default() })
    }

    /// Without content there is no file.
    pub(super) fn save(&self, content: &Content) -> Result<(), QueueError> {
        let Content { tunnels, settings } = content;
        let save = || match (&tunnels[..], &settings[..]) {
            ([], []) => match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            _ => {
                let dated = Dated { boot: clock::boot_id(), tunnels: tunnels.clone(), settings: settings.clone() };
                owned::write(&self.path, &serde_json::to_vec(&dated)?)
            }
        };
        save().map_err(|error| unusable(&self.path, error))
    }
}

fn unusable(path: &Path, error: io::Error) -> QueueError {
    QueueError {
        what: format!("the journal of tunnels, {}", path.display()),
        reason: Reason::Other(error),
        remedy:
            "set THALWEG_RUN_DIR to a directory of your own; `ip link delete dev DEVICE` takes a tunnel away by hand"
                .to_owned(),
    }
}
