//! Carries out the actions of [`Priorities`](super::Priorities): gives ends their settings, and tells other nodes.

use super::kept::{Action, Names, Source};
use crate::admin::{self, Reply, Request};
use crate::channel::PortRef;
use crate::driver::calls::Asker;
use crate::driver::control::Control;
use qos::priority::PrioritySettings;

impl Control {
    /// Keeps the settings of an end.
    pub(super) fn keep(&mut self, end: Names, asked: PrioritySettings, source: Source) {
        let other = self.known(&end.1).map(|(at, _)| at.node);
        if let Some(action) = self.priorities.keep(end, asked, source, other) {
            self.prioritise(action);
        }
    }

    /// A port came: its node is told the settings that concern it.
    pub(in crate::driver) fn tell_of_priorities(&mut self, at: PortRef, name: &str) {
        for action in self.priorities.came(at.node, name) {
            self.prioritise(action);
        }
    }

    /// Another node, or a file, says the settings of the first port's end.
    pub(in crate::driver) fn remember(&mut self, end: Names, settings: PrioritySettings, source: Source) -> Reply {
        let is_own = self.find_port(&end.0).is_ok();
        match self.priorities.learn(end, settings, source, is_own) {
            Ok(Some(action)) => self.prioritise(action),
            Ok(None) => Reply::Done,
            Err(why) => Reply::No(why),
        }
    }

    fn prioritise(&mut self, action: Action) -> Reply {
        match action {
            Action::Tell(to, (port, other), settings) => {
                self.ask(to, &admin::pack(&Request::Remember { port, other, settings }), Asker::Nobody);
                Reply::Done
            }
            Action::Set((name, other), settings, source) => {
                let end = self.find_end(&name, &other).map_err(Into::into);
                let Err(why) = end.and_then(|end| self.carry_out(&end, settings, source)) else { return Reply::Done };
                self.warn(format!("{name} to {other}: its priority is not as it was before the start: {why}"));
                why.reply()
            }
        }
    }
}
