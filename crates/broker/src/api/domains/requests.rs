//! What users ask for of sessions over several domains: to have one, to see it, to stop it.

use super::{Crossings, offers};
use crate::api::{Broker, Refused};
use crate::domains::{Asker, Crossing, Wanted};
use crate::planning::Unadmitted;
use crate::rules::Party;
use agent::message::{Accepted, Refusal, Session, SessionState};
use agent::peer;
use axum::http::StatusCode;
use qos::contract::flow;
use qos::contract::rule::Right;
use qos::contract::session::Session as File;
use qos::plan::{self, Offer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, oneshot};

/// Longest wait of a user for the other domains.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest search for offers.
const TRYING: Duration = Duration::from_secs(5);
/// Most offers of a refusal.
const MOST_OFFERS: usize = 3;

impl Broker {
    /// Asks for a session all of whose subscribers are named with their domains.
    pub(in crate::api) async fn cross(
        self: &Arc<Self>,
        file: &File,
        owner: String,
        dry_run: bool,
    ) -> Result<Session, Refused> {
        let Some(crossings) = self.crossings() else {
            let said = "this broker has no contract with [[neighbour]]: start it with --contract FILE";
            return Err(Refused::new(StatusCode::CONFLICT, said.to_owned()));
        };
        let flows = flow::flows(&crossings.name, &crossings.text, &crossings.contract, file);
        let flows = flows.map_err(Unadmitted::Malformed)?;
        if let Some(session) = self.known(&crossings, file, &owner, dry_run)? {
            return Ok(session);
        }
        // Sessions of one domain are decided in the planner's turn: so no two of a user are permitted at the same time.
        let mut turn = None;
        if !Party::User(&owner).is_free(crossings.rules()) {
            turn = Some(self.turn().await);
            if let Some(session) = self.known(&crossings, file, &owner, dry_run)? {
                return Ok(session);
            }
        }
        self.check_links()?;
        self.permit_crossing(&crossings, file, &owner, &flows)?;
        let asker = Asker { owner, text: file.text.clone(), lease: file.lease, dry_run };
        let wanted = Wanted { name: file.name.clone(), asker, flows };
        match self.ask(wanted.clone(), turn).await? {
            Ok(Some(fits)) => Ok(fits.shown(0)),
            Ok(None) => self.crossing(&file.name).ok_or_else(gone),
            Err(why) if why.forbidden => Err(Unadmitted::Forbidden(vec![limit(why, Vec::new())]).into()),
            // No limit of a pipe: another time it may be admitted.
            Err(why) if why.needs.is_empty() => {
                let said = format!("{}: {}", why.what, why.because);
                Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, said))
            }
            Err(why) => {
                let offers = self.offers(&wanted, &why).await;
                let error = format!("it does not fit: {}: {}", why.what, why.because);
                Err(Refused(StatusCode::CONFLICT, Refusal { error, refusals: vec![limit(why, offers)] }))
            }
        }
    }

    /// Renews the session of a file that is there already. Refuses one that is another user's, or of this domain alone.
    fn known(
        &self,
        crossings: &Crossings,
        file: &File,
        owner: &str,
        dry_run: bool,
    ) -> Result<Option<Session>, Refused> {
        if self.hosts().kept().sessions.iter().any(|session| session.name == file.name) {
            return Err(taken(&file.name, "of this domain"));
        }
        let asker = crossings.domains().find(&file.name).and_then(|one| one.asker.clone());
        if let Some(other) = asker.filter(|asker| asker.owner != owner) {
            return Err(Unadmitted::Anothers(other.owner).into());
        }
        match !dry_run && crossings.renewed(self.now(), &file.name, owner, &file.text) {
            true => self.crossing(&file.name).map(Some).ok_or_else(gone),
            false => Ok(None),
        }
    }

    /// One request, with its answer: what it would be (a dry run), or that it is active.
    async fn ask(
        self: &Arc<Self>,
        wanted: Wanted,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> Result<Result<Option<Crossing>, peer::Refused>, Refused> {
        let Some(crossings) = self.crossings() else { return Err(gone()) };
        let dry_run = wanted.asker.dry_run;
        let (tell, told) = oneshot::channel();
        let requested = crossings.domains().request(self.now(), wanted);
        drop(turn); // from now on it counts
        let (key, effects) = match requested {
            Ok(requested) => requested,
            Err(why) => return Ok(Err(why)),
        };
        crossings.asked().insert(key.clone(), tell);
        self.spawn(effects);
        let told = tokio::time::timeout(PATIENCE, told).await;
        crossings.asked().remove(&key);
        let Ok(Ok(said)) = told else {
            let effects = crossings.domains().withdraw(self.now(), &key);
            self.spawn(effects);
            let because = "it took too long: `thalweg session show` tells what became of it".to_owned();
            let what = format!("session {key}");
            return Ok(Err(peer::Refused { what, because, ..peer::Refused::default() }));
        };
        let fits = crossings.domains().forget(&key).filter(|_| dry_run);
        Ok(said.map(|()| fits))
    }

    /// Changes of its subscribers with which a session would be admitted, each tried.
    async fn offers(self: &Arc<Self>, wanted: &Wanted, why: &peer::Refused) -> Vec<Offer> {
        let mut offers = Vec::new();
        let until = self.now() + TRYING;
        for (flow, change) in offers::changes(wanted, why) {
            if offers.len() == MOST_OFFERS || self.now() > until {
                break;
            }
            let mut tried = wanted.clone();
            tried.asker.dry_run = true;
            change.make(&mut tried.flows[flow]);
            if matches!(self.ask(tried, None).await, Ok(Ok(_))) {
                offers.push(change.offer(&wanted.flows[flow]));
            }
        }
        offers
    }

    /// A session over several domains that was asked for here, as it is now.
    pub(in crate::api) fn crossing(&self, name: &str) -> Option<Session> {
        let crossings = self.crossings()?;
        let one = crossings.domains().find(name)?.clone();
        Some(self.shown_crossing(&crossings, &one))
    }

    /// All of them.
    pub(in crate::api) fn all_crossings(&self) -> Vec<Session> {
        let Some(crossings) = self.crossings() else { return Vec::new() };
        let all: Vec<Crossing> = crossings.domains().own().into_iter().cloned().collect();
        all.iter().map(|one| Session { text: None, ..self.shown_crossing(&crossings, one) }).collect()
    }

    fn shown_crossing(&self, crossings: &Crossings, one: &Crossing) -> Session {
        let mut session = Session {
            lease_left_ms: crossings.leases().left(self.now(), &one.key.session).map(|left| left.as_millis() as u64),
            text: one.asker.as_ref().map(|asker| asker.text.clone()),
            ..one.shown(one.revision)
        };
        if session.state == SessionState::Active {
            let (state, because) = self.hosts().reached(one.revision);
            let all: Vec<String> = because.into_iter().chain(session.because.take()).collect();
            (session.state, session.because) = (state, (!all.is_empty()).then(|| all.join("; ")));
        }
        self.hosts().mark_set(&mut session.channels);
        session.exceeded = crossings.domains().excess_of(self.now(), &one.key);
        session
    }

    /// Stops a session over several domains; `None`: there is none of this name.
    pub(in crate::api) async fn stop_crossing(
        self: &Arc<Self>,
        name: &str,
        owner: &str,
    ) -> Option<Result<Accepted, Refused>> {
        let crossings = self.crossings()?;
        let asker = crossings.domains().find(name)?.asker.clone()?;
        if asker.owner != owner && !self.may(owner, Right::Stop) {
            return Some(Err(Unadmitted::Anothers(asker.owner).into()));
        }
        crossings.leases().begin(self.now(), name, None);
        let effects = crossings.domains().stop(self.now(), name);
        let (broker, done) = (self.clone(), effects);
        // To the end, even if the user gives up.
        let _ = tokio::spawn(async move { broker.carry_out(done).await }).await;
        Some(Ok(Accepted { revision: self.hosts().kept().revision }))
    }
}

/// The limit of a domain that stands against a session, as a plan has it.
fn limit(why: peer::Refused, offers: Vec<Offer>) -> plan::Refusal {
    let peer::Refused { what, needs, has, because, .. } = why;
    plan::Refusal { what, needs, has, because, offers }
}

/// The name is that of a session of another kind.
pub(in crate::api) fn taken(name: &str, kind: &str) -> Refused {
    let said = format!("there is a session {name} {kind} already: stop it first, or take another name");
    Refused::new(StatusCode::CONFLICT, said)
}

fn gone() -> Refused {
    Refused::new(StatusCode::CONFLICT, "it was stopped meanwhile".to_owned())
}
