//! A session over several domains, as one of them has it.

use super::REPEAT;
use agent::peer::{Flow, Key, Menu};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The state of a session over several domains, at one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Menus are asked for.
    Quoting,
    /// Domains behind are asked to hold.
    Holding,
    /// Held here and behind.
    Held,
    /// At the first domain: it is decided, and domains behind are asked to commit.
    Starting,
    /// It is decided, and kept. At the first domain it is active.
    Committed,
    /// Domains behind are told that it is over.
    Stopping,
    /// At the first domain: another one has lost it.
    Lost,
}

/// Who asked for a session here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Asker {
    /// The user's identity.
    pub owner: String,
    /// The text of the session's file.
    pub text: String,
    /// The time after which it ends unless it is asked for again.
    #[serde(default)]
    pub lease: Option<Duration>,
    /// It is only asked whether it would be admitted.
    #[serde(skip)]
    pub dry_run: bool,
}

/// The domain behind this one for some of a session's flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    /// The domain.
    pub domain: String,
    /// The flows (indices).
    pub flows: Vec<usize>,
    /// It has answered the present step.
    #[serde(skip)]
    pub(super) done: bool,
    /// For each flow, the ratio of the publisher's samples to those that there is room for there and behind; empty: all that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scales: Vec<u32>,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) because: String,
}

/// A session over several domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Crossing {
    /// Its name and version.
    pub key: Key,
    /// The domains before this one; empty: it was asked for here.
    pub passed: Vec<String>,
    /// Who asked for it, if that was here.
    pub asker: Option<Asker>,
    /// Its flows, as they come in.
    pub flows: Vec<Flow>,
    /// For each of them, the classes with the parts of all domains from here.
    pub menus: Vec<Menu>,
    /// The domains behind this one.
    pub legs: Vec<Leg>,
    /// Its state.
    pub phase: Phase,
    /// Why it is lost.
    #[serde(default)]
    pub because: Option<String>,
    /// For each flow, the ratio of the publisher's samples to those that there is room for here and behind; empty: all that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) limits: Vec<u32>,
    /// The same for those that it gets, as the first domain has decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<u32>,
    /// Why there is less room.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinned: String,
    /// The revision of the plan that its channels came with; 0: none yet.
    #[serde(skip)]
    pub revision: u64,
    /// It has to be on disk, since it was committed or starting.
    #[serde(skip)]
    pub(super) kept: bool,
    /// The state that is on disk: nobody hears of another one.
    #[serde(skip)]
    pub(super) written: Option<Phase>,
    /// The beginning of the present step, or of being held or committed.
    #[serde(skip)]
    pub(super) since: Duration,
    /// The last message of the present step.
    #[serde(skip)]
    pub(super) sent: Duration,
    /// The time until that is repeated.
    #[serde(skip)]
    pub(super) repeat: Duration,
    /// It was refused to the domain before: nothing more is said until that stops it.
    #[serde(skip)]
    pub(super) failed: bool,
}

impl Crossing {
    /// `true` if its present state is on disk.
    pub(super) fn is_written(&self) -> bool {
        self.written == Some(self.phase)
    }

    /// `true`: it is only asked whether it would be admitted.
    pub(super) fn is_question(&self) -> bool {
        self.asker.as_ref().is_some_and(|asker| asker.dry_run)
    }

    /// `true`: it is active here, and a crash would not change that.
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Committed && self.is_written()
    }

    /// One that comes in now, from the last of these domains; its menus are to be asked for.
    pub(crate) fn new(key: Key, passed: Vec<String>, flows: Vec<Flow>, now: Duration) -> Self {
        Self {
            key,
            passed,
            asker: None,
            flows,
            menus: Vec::new(),
            legs: Vec::new(),
            phase: Phase::Quoting,
            because: None,
            limits: Vec::new(),
            scales: Vec::new(),
            thinned: String::new(),
            revision: 0,
            kept: false,
            written: None,
            since: now,
            sent: now,
            repeat: REPEAT,
            failed: false,
        }
    }
}
