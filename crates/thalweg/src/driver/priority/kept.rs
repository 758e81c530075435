//! What was asked for single channels: kept by the names of the two ports at both nodes, so that a process that starts anew
//! is told by the other one (YS-53). It is forgotten when neither is there any more.

use super::{End, Refusal};
use crate::admin::{self, Reply, Request};
use crate::channel::PortRef;
use crate::control::NodeId;
use crate::driver::calls::Asker;
use crate::driver::control::Control;
use crate::driver::keep::refuse_names;
use qos::priority::PrioritySettings;
use std::collections::BTreeMap;

/// Settings by the names of the port whose end has them and the other port.
pub(in crate::driver) type ByNames = BTreeMap<(String, String), PrioritySettings>;

/// Where settings come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Somebody set them.
    Set,
    /// The file of a kept connection, as it was before the port was there.
    File,
}

/// Ends for which settings are kept, of this node's ports and of others'.
const MOST: usize = 4096;

impl Control {
    /// What was asked for the end; none: nothing, or all of it was taken back.
    pub(super) fn kept_for(&self, end: &End) -> Option<&PrioritySettings> {
        self.kept.get(&end.key()).filter(|kept| **kept != PrioritySettings::default())
    }

    /// What is kept for the end of `port`, here or for another's port.
    pub(in crate::driver) fn remembered(&self, port: &str, other: &str) -> Option<&PrioritySettings> {
        let key = (port.to_owned(), other.to_owned());
        self.kept.get(&key).or_else(|| self.kept_for_others.get(&key))
    }

    /// Makes room for what is asked for one more end, if need be.
    pub(super) fn make_room(&mut self, end: &End) -> Result<(), Refusal> {
        if has_room(&mut self.kept, &end.key()) {
            return Ok(());
        }
        Err(format!("settings of {MOST} channels are kept already: take some back (NAME=default)").into())
    }

    /// Keeps what was asked for an end, here and at the other port's node. That all was taken back is kept, too: what the
    /// other node said of it before is over. What a file says the other node is not told: it may know of something newer.
    pub(super) fn keep(&mut self, key: (String, String), asked: PrioritySettings, source: Source) {
        if source == Source::File {
            self.kept_by_files.insert(key.clone());
        } else {
            self.kept_by_files.remove(&key);
            if let Some((at, _)) = self.known(&key.1) {
                self.tell(at.node, &key, &asked);
            }
        }
        self.kept.insert(key, asked);
    }

    /// A port came: its node is told what was set at this end of channels with it, and what was set at its own before.
    pub(in crate::driver) fn tell_of_priorities(&mut self, at: PortRef, name: &str) {
        let set = |(key, _): &(&(String, String), _)| key.1 == name && !self.kept_by_files.contains(*key);
        let own = self.kept.iter().filter(set);
        let its = self.kept_for_others.iter().filter(|((port, _), _)| port == name);
        let all: Vec<_> = own.chain(its).map(|(key, settings)| (key.clone(), settings.clone())).collect();
        all.iter().for_each(|(key, settings)| self.tell(at.node, key, settings));
    }

    fn tell(&mut self, to: NodeId, (port, other): &(String, String), settings: &PrioritySettings) {
        if to != self.state.id {
            let (port, other, settings) = (port.clone(), other.clone(), settings.clone());
            self.ask(to, &admin::pack(&Request::Remember { port, other, settings }), Asker::Nobody);
        }
    }

    /// Another node says what was set at the end of the first port: for one of this node that is news only while nothing was
    /// set here, for another's it is kept until that starts anew.
    pub(in crate::driver) fn remember(&mut self, key: (String, String), settings: PrioritySettings) -> Reply {
        self.learn(key, settings, Source::Set)
    }

    /// The file of a kept connection says what the first port's end is to have unless something is set.
    pub(in crate::driver) fn find_in_file(&mut self, key: (String, String), settings: PrioritySettings) -> Reply {
        self.learn(key, settings, Source::File)
    }

    fn learn(&mut self, key: (String, String), settings: PrioritySettings, source: Source) -> Reply {
        let wrong = refuse_names([&key.0, &key.1]).or_else(|| settings.check().err().map(|wrong| wrong.to_string()));
        if let Some(why) = wrong {
            return Reply::No(why);
        }
        let in_file = source == Source::File;
        if self.find_port(&key.0).is_err() {
            if in_file && self.kept_for_others.contains_key(&key) {
                return Reply::Done;
            }
            if settings == PrioritySettings::default() {
                self.kept_for_others.remove(&key);
            } else if has_room(&mut self.kept_for_others, &key) {
                self.kept_for_others.insert(key, settings);
            }
            return Reply::Done;
        }
        let set_here = self.kept.contains_key(&key) && (in_file || !self.kept_by_files.contains(&key));
        let known = self.kept.get(&key) == Some(&settings);
        if set_here || known || settings == PrioritySettings::default() {
            return Reply::Done;
        }
        let end = self.find_end(&key.0, &key.1).map_err(Refusal::from);
        match end.and_then(|end| self.carry_out(&end, settings, source)) {
            Ok(_) => Reply::Done,
            Err(why) => {
                self.warn(format!("{} to {}: its priority is not as it was before the start: {why}", key.0, key.1));
                why.reply()
            }
        }
    }
}

/// Whether one more has room: where there is none, those that were taken back give way.
fn has_room(all: &mut ByNames, key: &(String, String)) -> bool {
    if all.len() >= MOST && !all.contains_key(key) {
        all.retain(|_, settings| *settings != PrioritySettings::default());
    }
    all.len() < MOST || all.contains_key(key)
}
