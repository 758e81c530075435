//! The contract's rules in requests: who may ask for how much.

use super::domains::Crossings;
use super::{Broker, Refused};
use crate::planning::{Present, Unadmitted};
use crate::rules::{self, Ask, Party};
use crate::sessions;
use axum::http::StatusCode;
use qos::contract::flow::Flow;
use qos::contract::rule::Right;
use qos::contract::session::Session as File;

impl Crossings {
    /// Permits a user's session in this domain.
    pub(super) fn permit(&self, present: Present<'_>, asked: (&str, &str)) -> Result<(), Unadmitted> {
        sessions::permit(self.rules(), present, asked, || self.domains().usage(asked.0, None))
    }
}

impl Broker {
    /// Permits a user's session over several domains.
    pub(super) fn permit_crossing(
        &self,
        crossings: &Crossings,
        file: &File,
        owner: &str,
        flows: &[Flow],
    ) -> Result<(), Unadmitted> {
        if Party::User(owner).is_free(crossings.rules()) {
            return Ok(());
        }
        let here = sessions::usage(self.hosts().kept().sessions.iter(), owner);
        let usage = here.plus(crossings.domains().usage(owner, Some(&file.name)));
        let ask = Ask { lease: file.lease, importance: file.importance, ..Ask::of_wanted(flows) };
        rules::permit(crossings.rules(), Party::User(owner), &ask, usage).map_err(Unadmitted::Forbidden)
    }

    /// Whether a user may do what is no session of the own.
    pub(super) fn may(&self, owner: &str, right: Right) -> bool {
        let crossings = self.crossings();
        let rules = crossings.as_ref().map(|crossings| crossings.rules()).unwrap_or_default();
        rules::may(rules, Party::User(owner), right)
    }

    /// Refuses what no rule lets a user do.
    pub(super) fn check_may(&self, owner: &str, right: Right) -> Result<(), Refused> {
        if self.may(owner, right) {
            return Ok(());
        }
        let said = format!(
            "no [[rule]] of the contract with may = [\"{right}\"] is for {}: who keeps the contract can add one",
            Party::User(owner)
        );
        Err(Refused::new(StatusCode::FORBIDDEN, said))
    }
}
