//! Sessions on disk: what has to be there, what is there, and what becomes of a session that the disk did not take.

use super::{Crossing, Domains, Effect, Phase};
use agent::peer::{Key, Said, StepName};
use std::time::Duration;

impl Domains {
    /// A session has to be on disk as it is now.
    pub(super) fn keep(&mut self, key: &Key) -> Effect {
        self.dirty.insert(key.clone());
        Effect::Keep(key.clone())
    }

    /// All that is not on disk as it is: the sessions, or `None` for those that are to be forgotten. If they cannot be written, they are
    /// [`Self::unwritten`].
    pub fn changes(&mut self) -> Vec<(Key, Option<Crossing>)> {
        let kept = |key: Key| {
            let found = self.crossings.get(&key).filter(|crossing| crossing.kept).cloned();
            (key, found)
        };
        std::mem::take(&mut self.dirty).into_iter().map(kept).collect()
    }

    /// These changes are on disk. What is to be done now, and not before, are the effects.
    pub fn wrote(&mut self, now: Duration, changes: &[(Key, Option<Crossing>)]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (key, on_disk) in changes {
            let phase = on_disk.as_ref().map(|crossing| crossing.phase);
            let Some(crossing) = self.crossings.get_mut(key) else { continue };
            let is_news = crossing.written != phase;
            crossing.written = phase;
            if is_news && crossing.passed.is_empty() && crossing.is_written() && phase == Some(Phase::Committed) {
                effects.extend(self.replaced(now, key));
            }
        }
        effects
    }

    /// These could not be written.
    pub fn unwritten(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.dirty.extend(keys);
    }

    /// What has to be on disk.
    pub fn kept(&self) -> Vec<Crossing> {
        self.crossings.values().filter(|crossing| crossing.kept).cloned().collect()
    }

    /// A session could not be kept. `None`: it is on disk all the same, by a later attempt, and what was to follow is still to be done.
    pub fn unkept(&mut self, now: Duration, key: &Key) -> Option<Vec<Effect>> {
        let why = self.refusal(format!("session {key}"), "the broker's disk took nothing".to_owned());
        Some(match self.crossings.get_mut(key) {
            Some(crossing) if crossing.is_written() => return None,
            Some(crossing) if crossing.phase == Phase::Starting => {
                crossing.kept = false;
                self.fail(now, key, why)
            }
            Some(crossing) if crossing.phase == Phase::Committed && !crossing.passed.is_empty() => {
                (crossing.kept, crossing.phase, crossing.since) = (false, Phase::Held, now);
                self.open.insert(key.clone());
                self.say(key, StepName::Commit, Said::Refused(why))
            }
            // The disk has it as starting, and nobody was told.
            Some(crossing) if crossing.phase == Phase::Committed => {
                let told = Effect::Told(key.clone(), Err(why));
                std::iter::once(told).chain(self.end(now, key)).collect()
            }
            _ => Vec::new(),
        })
    }
}
