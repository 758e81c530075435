//! Requests about sessions. They are decided one after the other, so that no two of them are admitted to the same room.

use super::{Answer, Broker, Refused, Shared, User, check};
use crate::hosts::Kept;
use crate::sessions::{Admitted, Change, Unadmitted, planned, request, stop};
use crate::store::Store;
use agent::message::{Accepted, LARGEST_PLAN, Refusal, Session, SessionChannel};
use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qos::placement::Watch;
use qos::plan::Plan;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::MutexGuard;

/// The planner's clock.
struct Clock(Instant);

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.0.elapsed()
    }
}

fn clock() -> Clock {
    Clock(Instant::now())
}

impl From<Unadmitted> for Refused {
    fn from(unadmitted: Unadmitted) -> Self {
        let status = match &unadmitted {
            Unadmitted::Malformed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Unadmitted::Unfit(_) | Unadmitted::Needed(..) | Unadmitted::TooMany => StatusCode::CONFLICT,
            Unadmitted::Anothers(_) => StatusCode::FORBIDDEN,
            Unadmitted::Unknown(_) => StatusCode::NOT_FOUND,
        };
        let error = match &unadmitted {
            Unadmitted::Malformed(error) => format!("line {error}"),
            other => other.to_string(),
        };
        match unadmitted {
            Unadmitted::Unfit(refusals) => Self(status, Refusal { error, refusals }),
            _ => Self::new(status, error),
        }
    }
}

impl Broker {
    /// From now on the broker admits sessions beside this contract. Those that were admitted before stay.
    ///
    /// # Errors
    /// The contract does not fit with them, or cannot be kept.
    pub fn plan_for(&self, contract: &str) -> Result<(), String> {
        let kept = self.hosts().kept().clone();
        let change = planned(contract, kept.sessions, None, &mut clock()).map_err(|why| match why {
            Unadmitted::Malformed(error) => format!("line {error}"),
            other => other.to_string(),
        })?;
        let store = self.store.try_lock().map_err(|e| e.to_string())?;
        let kept = Kept { contract: Some(contract.to_owned()), ..self.kept_with(change).map_err(|why| why.text())? };
        store.keep(&kept).map_err(|e| format!("the broker cannot keep it: {e}"))?;
        self.changed.send_replace(kept.revision);
        self.hosts().change(kept);
        Ok(())
    }

    /// What has to be kept with this change.
    fn kept_with(&self, Change { sessions, plan }: Change) -> Result<Kept, Refused> {
        let text = plan.to_text();
        if text.len() > LARGEST_PLAN {
            let said = format!("the plan would have {} bytes: allowed are {LARGEST_PLAN}", text.len());
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, said));
        }
        let checked = check(text.as_bytes())?;
        Ok(Kept { sessions, ..self.hosts().with(Some(checked)) })
    }

    /// Decides on a change of sessions, and makes it.
    async fn admit<F>(&self, store: &MutexGuard<'_, Arc<Store>>, kept: Kept, decide: F) -> Result<Accepted, Refused>
    where
        F: FnOnce((&str, &[Admitted]), u64) -> Result<Change, Unadmitted> + Send + 'static,
    {
        let Some(contract) = kept.contract else {
            let said =
                "this broker has no contract beside which sessions could be admitted: start it with --contract FILE";
            return Err(Refused::new(StatusCode::CONFLICT, said.to_owned()));
        };
        let (sessions, revision) = (kept.sessions, kept.revision + 1);
        let decided = tokio::task::spawn_blocking(move || decide((&contract, &sessions), revision)).await;
        let change = decided.map_err(|e| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))??;
        let kept = self.kept_with(change)?;
        self.keep(store, kept).await
    }

    /// A session as it is now.
    fn shown(&self, admitted: &Admitted, plan: Option<&Plan>) -> Session {
        let hosts = self.hosts();
        let (state, because) = hosts.reached(admitted.revision);
        let mut channels = plan.map(|plan| admitted.channels(plan)).unwrap_or_default();
        for end in hosts.ends() {
            let is_its = |channel: &&mut SessionChannel| {
                (&channel.topic, &channel.publisher, &channel.subscriber)
                    == (&end.topic, &end.publisher, &end.subscriber)
            };
            channels.iter_mut().filter(is_its).for_each(|channel| channel.set.push(end.end));
        }
        for channel in &mut channels {
            channel.set.sort_unstable();
            channel.set.dedup();
        }
        Session {
            session: admitted.name.clone(),
            owner: admitted.owner.clone(),
            revision: admitted.revision,
            state,
            because,
            channels,
            text: None,
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

fn plan_of(kept: &Kept) -> Option<Plan> {
    Plan::from_text(kept.plan.as_deref()?).ok()
}

pub(super) async fn list(_: User, State(broker): Shared) -> Answer<Vec<Session>> {
    let kept = broker.hosts().kept().clone();
    let plan = plan_of(&kept);
    Ok(Json(kept.sessions.iter().map(|admitted| broker.shown(admitted, plan.as_ref())).collect()))
}

pub(super) async fn show(_: User, State(broker): Shared, Path(name): Path<String>) -> Answer<Session> {
    broker.session(&name).map(Json)
}

/// The same file again, such as after an answer that was lost, changes nothing.
pub(super) async fn put(
    User(user): User,
    State(broker): Shared,
    Path(name): Path<String>,
    text: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let wrong = |said: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, said);
    let text = String::from_utf8(text?.to_vec()).map_err(|e| wrong(format!("the session is no text: {e}")))?;
    let read = qos::contract::session::Session::read(&text).map_err(Unadmitted::Malformed)?;
    if read.name != name {
        return Err(wrong(format!("the file is of the session {:?}, and {name:?} was asked for", read.name)));
    }
    let store = broker.store.lock().await;
    let (owner, kept) = (user.to_string(), broker.hosts().kept().clone());
    let has = |session: &Admitted| session.name == name && session.owner == owner && session.text == text;
    if !kept.sessions.iter().any(has) {
        let decide =
            move |present: (&str, &[Admitted]), revision| request(present, (&owner, &text), revision, &mut clock());
        broker.admit(&store, kept, decide).await?;
    }
    Ok(Json(broker.session(&name)?).into_response())
}

pub(super) async fn delete(User(user): User, State(broker): Shared, Path(name): Path<String>) -> Answer<Accepted> {
    let store = broker.store.lock().await;
    let (owner, kept) = (user.to_string(), broker.hosts().kept().clone());
    let decide = move |present: (&str, &[Admitted]), _| stop(present, (&owner, &name), &mut clock());
    broker.admit(&store, kept, decide).await.map(Json)
}
