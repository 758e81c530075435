//! Messages of brokers of neighbouring domains, and to them.

use super::Crossings;
use crate::api::{Answer, Broker, Refused, Shared, User, caller};
use agent::client::Client;
use agent::identity::{Identity, Kind};
use agent::message::Pipe;
use agent::peer::Message;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Sends what is said to one neighbour, in order. What does not arrive is repeated by who said it.
pub(super) async fn deliver(client: Arc<Client>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        let client = client.clone();
        let _ = tokio::task::spawn_blocking(move || client.tell_peer(&message)).await;
    }
}

/// The broker of a neighbouring domain.
pub(in crate::api) struct Peer(pub Identity);

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let caller = caller(parts, state).await?;
        match caller.kind() {
            Kind::Broker => Ok(Self(caller)),
            _ => Err(Refused::new(StatusCode::FORBIDDEN, format!("{caller} may not: only brokers of neighbours may"))),
        }
    }
}

impl Broker {
    /// The part in sessions over several domains of a broker that has this neighbour.
    pub(in crate::api) fn crossings_with(&self, neighbour: &Identity) -> Result<Arc<Crossings>, Refused> {
        let Some(crossings) = self.crossings() else {
            let said = "this broker has no contract with [[neighbour]]".to_owned();
            return Err(Refused::new(StatusCode::CONFLICT, said));
        };
        match crossings.out.contains_key(neighbour.name()) {
            true => Ok(crossings),
            false => {
                let said = format!("{neighbour} is no neighbour by this domain's contract");
                Err(Refused::new(StatusCode::FORBIDDEN, said))
            }
        }
    }
}

pub(in crate::api) async fn peer(
    Peer(from): Peer,
    State(broker): Shared,
    message: Result<Json<Message>, JsonRejection>,
) -> Result<StatusCode, Refused> {
    let Json(message) = message?;
    if !message.is_bounded() {
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "a list, text or number is too large".to_owned()));
    }
    let crossings = broker.crossings_with(&from)?;
    let effects = crossings.domains().receive(broker.now(), from.name(), message);
    broker.spawn(effects);
    Ok(StatusCode::NO_CONTENT)
}

pub(in crate::api) async fn pipes(_: User, State(broker): Shared) -> Answer<Vec<Pipe>> {
    Ok(Json(broker.crossings().map(|crossings| crossings.domains().pipes()).unwrap_or_default()))
}
