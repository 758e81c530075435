//! Requests about sessions. They are decided one after the other, so that no two of them are admitted to the same room.

use super::domains::{Crossings, taken};
use super::{Answer, Broker, OwnHost, Refused, Shared, User, check};
use crate::degradation::{AT_LEISURE, adapt};
use crate::domains::Domains;
use crate::hosts::Kept;
use crate::ledger::Demand;
use crate::links::Links;
use crate::planning::{Admitted, Change, Present, Reduction, Unadmitted};
use crate::sessions::{end, request, stop};
use agent::keys::Keys;
use agent::message::{Accepted, Admission, LARGEST_PLAN, Refusal, Session, SessionState};
use axum::Json;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qos::contract::Contract;
use qos::contract::rule::Right;
use qos::placement::Watch;
use qos::plan::Plan;
use serde::Deserialize;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// The planner's clock.
pub(super) struct Clock(Instant);

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.0.elapsed()
    }
}

/// Time between two looks at the ends of leases.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Most refusals that are remembered.
const MOST_REFUSALS: usize = 100;
/// Time after which a session that could not end is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

pub(super) fn clock() -> Clock {
    Clock(Instant::now())
}

/// A change, and the turn in which it is made.
type Decided = (OwnedMutexGuard<()>, Change);

impl From<Unadmitted> for Refused {
    fn from(unadmitted: Unadmitted) -> Self {
        let status = match &unadmitted {
            Unadmitted::Malformed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Unadmitted::Unfit(_) | Unadmitted::Needed(..) | Unadmitted::Cut(..) | Unadmitted::TooMany => {
                StatusCode::CONFLICT
            }
            Unadmitted::Anothers(_) | Unadmitted::Forbidden(_) => StatusCode::FORBIDDEN,
            Unadmitted::Unknown(_) => StatusCode::NOT_FOUND,
        };
        let error = match &unadmitted {
            Unadmitted::Malformed(error) => format!("line {error}"),
            other => other.to_string(),
        };
        match unadmitted {
            Unadmitted::Unfit(refusals) | Unadmitted::Forbidden(refusals) => Self(status, Refusal { error, refusals }),
            _ => Self::new(status, error),
        }
    }
}

impl Broker {
    /// From now on the broker with these keys admits sessions beside this contract. Those that were admitted before stay.
    ///
    /// # Errors
    /// The contract does not fit with them, or cannot be kept.
    pub fn plan_for(&self, contract: &str, keys: &Keys) -> Result<(), String> {
        let kept = self.hosts().kept().clone();
        let read = Contract::read(contract).map_err(|error| format!("line {error}"))?;
        let mut links = Links::new(&read, &kept.stated, &kept.links).with(self.hysteresis);
        let Kept { reduction, sessions, .. } = &kept;
        let links_now = links.now(self.now());
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A contract that has not what is sold is refused below.
        let parts = Domains::start(keys.identity.name(), &read, before, kept.epoch, self.now());
        let sold = parts.map(|(domains, _)| domains.demand()).unwrap_or_default();
        let present = Present { contract, links: &links_now, reduction, sessions, sold: &sold };
        // If there is no plan for the links as they are, the broker starts with those of before, or as if all were up, and goes on to look for one.
        let nothing = Default::default();
        let mut each = [&links_now, &kept.links, &nothing].into_iter();
        let change = loop {
            let links = each.next();
            match adapt(Present { links: links.unwrap_or(&nothing), ..present }, AT_LEISURE, &mut clock()) {
                Err(Unadmitted::Unfit(_)) if links.is_some() => {}
                found => break found,
            }
        };
        let change = change.map_err(|why| match why {
            Unadmitted::Malformed(error) => format!("line {error}"),
            other => other.to_string(),
        })?;
        let mut store = self.store.try_lock().map_err(|e| e.to_string())?;
        let kept = self.kept_with(change).map_err(|why| why.text())?;
        let before = std::mem::take(&mut *self.before.lock().unwrap_or_else(PoisonError::into_inner));
        let (crossings, effects) = Crossings::start(contract, keys, (&kept, before), self.now())?;
        if self.crossings.set(Arc::new(crossings)).is_err() {
            return Err("the broker has a contract already".to_owned());
        }
        let kept = Kept { contract: Some(contract.to_owned()), stated: links.stated().clone(), ..kept };
        *self.links() = links;
        store.keep(&kept).map_err(|e| format!("the broker cannot keep it: {e}"))?;
        self.tell(kept);
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = effects;
        Ok(())
    }

    /// Goes on with the contract that was kept, if there is one.
    ///
    /// # Errors
    /// As [`Self::plan_for`].
    pub fn plan_on(&self, keys: &Keys) -> Result<(), String> {
        let contract = self.hosts().kept().contract.clone();
        contract.map_or(Ok(()), |contract| self.plan_for(&contract, keys))
    }

    /// What has to be kept with this change.
    fn kept_with(&self, Change { sessions, links, reduction, plan, hurried: _ }: Change) -> Result<Kept, Refused> {
        let text = plan.to_text();
        if text.len() > LARGEST_PLAN {
            let said = format!("the plan would have {} bytes: allowed are {LARGEST_PLAN}", text.len());
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, said));
        }
        let checked = check(text.as_bytes())?;
        Ok(Kept { sessions, links, reduction, ..self.hosts().with(Some(checked)) })
    }

    /// Decides on a change of sessions. Nobody else's turn comes before that is done, even if the request is given up meanwhile: one
    /// planner runs at a time.
    pub(super) async fn decide<F>(&self, turn: OwnedMutexGuard<()>, kept: Kept, decide: F) -> Result<Decided, Refused>
    where
        F: FnOnce(Present<'_>, u64) -> Result<Change, Unadmitted> + Send + 'static,
    {
        let sold = self.sold(&kept);
        let Kept { contract, sessions, links, reduction, revision, .. } = kept;
        let Some(contract) = contract else {
            let said =
                "this broker has no contract beside which sessions could be admitted: start it with --contract FILE";
            return Err(Refused::new(StatusCode::CONFLICT, said.to_owned()));
        };
        let decided = move || {
            let present =
                Present { contract: &contract, links: &links, reduction: &reduction, sessions: &sessions, sold: &sold };
            decide(present, revision + 1).map(|change| (turn, change))
        };
        let decided = tokio::task::spawn_blocking(decided).await;
        Ok(decided.map_err(|e| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))??)
    }

    /// What is sold of pipes, where it makes a difference.
    pub(super) fn sold(&self, kept: &Kept) -> Demand {
        let is_whole = kept.links.is_empty() && kept.reduction == Reduction::default();
        let crossings = self.crossings().filter(|_| !is_whole);
        crossings.map(|crossings| crossings.domains().demand()).unwrap_or_default()
    }

    /// Makes a change of sessions, in a turn that ends with it. Revisions may have come since it was decided: those of sessions through pipes.
    pub(super) async fn make(
        self: &Arc<Self>,
        turn: OwnedMutexGuard<()>,
        mut change: Change,
        planned: u64,
    ) -> Result<Accepted, Refused> {
        let disk = self.disk().await;
        let revision = self.hosts().kept().revision + 1;
        let before = self.hosts().kept().reduction.suspended.clone();
        let resumes = |name: &String| before.contains_key(name) && !change.reduction.suspended.contains_key(name);
        for session in &mut change.sessions {
            // What goes on again is active when all hosts have it.
            if session.revision == planned || resumes(&session.name) {
                session.revision = revision;
            }
            if session.asked == planned {
                session.asked = revision;
            }
        }
        let kept = self.kept_with(change)?;
        let made = self.keep(disk, kept).await;
        drop(turn);
        made
    }

    /// Ends sessions whose lease is over, as long as the broker runs.
    pub(crate) async fn end_leases(self: &Arc<Self>) {
        let mut pause = LOOK_EVERY;
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, LOOK_EVERY)).await;
            if self.leases().over(self.now()).is_empty() {
                continue;
            }
            let turn = self.turn().await;
            let over = self.leases().over(self.now()); // one may have been renewed meanwhile
            let kept = self.hosts().kept().clone();
            let planned = kept.revision + 1;
            let decided = self.decide(turn, kept, move |present, _| end(present, &over, &mut clock())).await;
            // What another session needs, or the disk does not take, is tried again, but does not keep the planner busy.
            let made = match decided {
                Ok((turn, change)) => self.make(turn, change, planned).await.map(drop),
                Err(why) => Err(why),
            };
            if made.is_err() {
                pause = TRY_AGAIN;
            }
        }
    }

    /// A session as it is now.
    fn shown(&self, admitted: &Admitted, plan: Option<&Plan>) -> Session {
        let hosts = self.hosts();
        let (state, because) = match hosts.kept().reduction.suspended.get(&admitted.name) {
            Some(because) => (SessionState::Suspended, Some(because.clone())),
            None => hosts.reached(admitted.revision),
        };
        let is_suspended = state == SessionState::Suspended;
        let (offers, said) = if is_suspended { self.offers_for(&admitted.name) } else { (Vec::new(), None) };
        let because: Vec<String> =
            because.into_iter().chain(said).chain(thinned(admitted, &hosts.kept().reduction)).collect();
        let because = (!because.is_empty()).then(|| because.join("; "));
        let mut channels = plan.map(|plan| admitted.channels(plan)).unwrap_or_default();
        hosts.mark_set(&mut channels);
        Session {
            session: admitted.name.clone(),
            owner: admitted.owner.clone(),
            revision: admitted.revision,
            state,
            because,
            channels,
            lease_left_ms: self.leases().left(self.now(), &admitted.name).map(|left| left.as_millis() as u64),
            text: None,
            domains: Vec::new(),
            offers,
            exceeded: Vec::new(),
        }
    }

    /// Renews the lease of the session of this text, if it is there.
    fn renewed(&self, name: &str, owner: &str, text: &str) -> bool {
        let has = |session: &Admitted| session.name == name && session.owner == owner && session.text == text;
        let is_there = self.hosts().kept().sessions.iter().any(has);
        if is_there {
            self.leases().renew(self.now(), name);
        }
        is_there
    }

    /// The session of this name as it would be after a change.
    fn offered(&self, name: &str, change: &Change) -> Result<Session, Refused> {
        let found = change.sessions.iter().find(|session| session.name == name);
        let admitted = found.ok_or_else(|| Unadmitted::Unknown(name.to_owned()))?;
        Ok(Session {
            state: SessionState::Fits,
            because: None,
            offers: Vec::new(),
            ..self.shown(admitted, Some(&change.plan))
        })
    }

    /// Whether a topic is part of a session that is active.
    fn admission(&self, name: &str, topic: &str) -> Admission {
        let bare = |topic: &str| topic.trim_start_matches('/').to_owned();
        let found = self.crossing(name).map_or_else(|| self.session(name).ok(), Some);
        let from_abroad = || self.crossings().is_some_and(|crossings| crossings.domains().has_topic(name, topic));
        let could_have = |session: &Session| session.offers.iter().map(|offer| offer.what.clone()).collect();
        let offers: Vec<String> = found.as_ref().map(could_have).unwrap_or_default();
        let because = match found {
            Some(session) if session.state != SessionState::Active => {
                Some(session.because.unwrap_or_else(|| "it is not active".to_owned()))
            }
            Some(session) if session.channels.iter().any(|channel| bare(&channel.topic) == bare(topic)) => None,
            Some(_) => Some(format!("{topic} is no topic of it")),
            None if from_abroad() => None,
            None => return self.refusal(name),
        };
        Admission { admitted: because.is_none(), because, offers }
    }

    /// For a session that is not there: why it was refused last.
    fn refusal(&self, name: &str) -> Admission {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Refusal { error, refusals }) = refusals.get(name) else {
            let because = "nobody has asked for it: `thalweg session request FILE` does".to_owned();
            return Admission { because: Some(because), ..Admission::default() };
        };
        let offers = refusals.first().map(|first| first.offers.iter().map(|offer| offer.what.clone()).collect());
        Admission { admitted: false, because: Some(error.clone()), offers: offers.unwrap_or_default() }
    }

    /// Notes how a request for a session ended.
    fn note(&self, name: &str, refused: Option<&Refused>) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_none() {
            refusals.remove(name);
        }
        if let Some(Refused(_, refusal)) = refused.filter(|Refused(_, refusal)| !refusal.refusals.is_empty()) {
            if refusals.len() >= MOST_REFUSALS {
                refusals.pop_first();
            }
            refusals.insert(name.to_owned(), refusal.clone());
        }
    }

    /// The session of this name, with its text.
    fn session(&self, name: &str) -> Result<Session, Refused> {
        let kept = self.hosts().kept().clone();
        let found = kept.sessions.iter().find(|session| session.name == name);
        let admitted = found.ok_or_else(|| Unadmitted::Unknown(name.to_owned()))?;
        Ok(Session { text: Some(admitted.text.clone()), ..self.shown(admitted, plan_of(&kept).as_ref()) })
    }
}

/// The ports of a session that get fewer samples than they asked for, and why.
fn thinned(admitted: &Admitted, reduction: &Reduction) -> Option<String> {
    let its = reduction.scaled.iter().filter(|(port, _)| admitted.subscribers.contains(port));
    let each: Vec<String> = its.map(|(port, scale)| format!("{port} gets one of {scale} samples")).collect();
    (!each.is_empty()).then(|| format!("{}: {}", each.join(", "), reduction.because))
}

fn plan_of(kept: &Kept) -> Option<Plan> {
    Plan::from_text(kept.plan.as_deref()?).ok()
}

pub(super) async fn list(_: User, State(broker): Shared) -> Answer<Vec<Session>> {
    let kept = broker.hosts().kept().clone();
    let plan = plan_of(&kept);
    let own = kept.sessions.iter().map(|admitted| broker.shown(admitted, plan.as_ref()));
    Ok(Json(own.chain(broker.all_crossings()).collect()))
}

pub(super) async fn show(_: User, State(broker): Shared, Path(name): Path<String>) -> Answer<Session> {
    broker.crossing(&name).map_or_else(|| broker.session(&name), Ok).map(Json)
}

/// The kind of a request for a session.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Mode {
    /// It is only asked whether it would be admitted.
    #[serde(default)]
    dry_run: bool,
}

/// The same file again, such as after an answer that was lost, changes nothing, and renews the lease.
pub(super) async fn put(
    user: User,
    State(broker): Shared,
    path: Path<String>,
    mode: Result<Query<Mode>, QueryRejection>,
    text: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let (name, dry_run) = (path.0.clone(), mode.as_ref().is_ok_and(|Query(mode)| mode.dry_run));
    let asked = ask(user, State(broker.clone()), path, mode, text).await;
    if !dry_run {
        broker.note(&name, asked.as_ref().err());
    }
    asked
}

async fn ask(
    User(user): User,
    State(broker): Shared,
    Path(name): Path<String>,
    mode: Result<Query<Mode>, QueryRejection>,
    text: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let wrong = |said: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, said);
    let Query(Mode { dry_run }) = mode?;
    let text = String::from_utf8(text?.to_vec()).map_err(|e| wrong(format!("the session is no text: {e}")))?;
    let read = qos::contract::session::Session::read(&text).map_err(Unadmitted::Malformed)?;
    if read.name != name {
        return Err(wrong(format!("the file is of the session {:?}, and {name:?} was asked for", read.name)));
    }
    let owner = user.to_string();
    if !read.abroad.is_empty() {
        return broker.cross(&read, owner, dry_run).await.map(|session| Json(session).into_response());
    }
    // A renewal waits for nobody's planning.
    if !dry_run && broker.renewed(&name, &owner, &text) {
        return Ok(Json(broker.session(&name)?).into_response());
    }
    let turn = broker.turn().await;
    if !dry_run && broker.renewed(&name, &owner, &text) {
        return Ok(Json(broker.session(&name)?).into_response());
    }
    if broker.crossing(&name).is_some() {
        return Err(taken(&name, "over several domains"));
    }
    broker.check_links()?;
    let kept = broker.hosts().kept().clone();
    let planned = kept.revision + 1;
    let crossings = broker.crossings();
    let decide = move |present: Present<'_>, revision| {
        crossings.map_or(Ok(()), |crossings| crossings.permit(present, (&owner, &text)))?;
        request(present, (&owner, &text), revision, &mut clock())
    };
    let (turn, change) = broker.decide(turn, kept, decide).await?;
    if dry_run {
        return Ok(Json(broker.offered(&name, &change)?).into_response());
    }
    broker.make(turn, change, planned).await?;
    Ok(Json(broker.session(&name)?).into_response())
}

/// A program's question, through the agent of its host.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    session: String,
    topic: String,
}

pub(super) async fn admitted(
    OwnHost(_): OwnHost,
    State(broker): Shared,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Admission> {
    let Query(Question { session, topic }) = question?;
    Ok(Json(broker.admission(&session, &topic)))
}

pub(super) async fn delete(User(user): User, State(broker): Shared, Path(name): Path<String>) -> Answer<Accepted> {
    if let Some(stopped) = broker.stop_crossing(&name, &user.to_string()).await {
        return stopped.map(Json);
    }
    let turn = broker.turn().await;
    let (owner, kept) = (user.to_string(), broker.hosts().kept().clone());
    let planned = kept.revision + 1;
    let stops_others = broker.may(&owner, Right::Stop);
    let decide = move |present: Present<'_>, _| {
        let its = present.sessions.iter().find(|session| session.name == name).filter(|_| stops_others);
        stop(present, (its.map_or(&owner, |session| &session.owner), &name), &mut clock())
    };
    let (turn, change) = broker.decide(turn, kept, decide).await?;
    broker.make(turn, change, planned).await.map(Json)
}
