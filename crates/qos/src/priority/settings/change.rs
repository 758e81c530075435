//! A change of one setting.

use serde::{Deserialize, Serialize};

/// A change of one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change<T> {
    /// As it is.
    #[default]
    Keep,
    /// Back to the default.
    Unset,
    /// To this.
    Set(T),
}

impl<T: Clone> Change<T> {
    /// Carries it out.
    pub fn apply(&self, to: &mut Option<T>) {
        match self {
            Change::Keep => {}
            Change::Unset => *to = None,
            Change::Set(value) => *to = Some(value.clone()),
        }
    }
    /// `true` if it changes nothing.
    pub fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }
    /// Takes the change from `other`, if this is none.
    pub fn fill(&mut self, other: &Change<T>) {
        if self.is_keep() {
            self.clone_from(other);
        }
    }
    /// The change as the first, if `other` is one, too; otherwise as the second.
    pub fn apart(&self, other: &Change<T>) -> (Change<T>, Change<T>) {
        if other.is_keep() { (Change::Keep, self.clone()) } else { (self.clone(), Change::Keep) }
    }
}
