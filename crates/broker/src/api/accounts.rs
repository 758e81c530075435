//! The accounts: who had how much.

use super::{Answer, Broker, Refused, Shared, User};
use agent::accounts::MOST_RECORDS;
use agent::message::End;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Time between two notes of what went through sessions that go on.
const INTERIM_EVERY: Duration = Duration::from_secs(3600);

impl Broker {
    /// An agent has counted what went through the ends of channels.
    pub(super) fn count(&self, host: &str, ends: &[End]) {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).reported(host, ends);
    }

    /// Notes what went through sessions that go on, as long as the broker runs.
    pub(crate) async fn account(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(INTERIM_EVERY).await;
            // What the disk does not take is noted the next time.
            let _ = self.note_interim().await;
        }
    }

    /// The same at the end, when no request is served any more: a broker that starts again counts from then on.
    pub(crate) fn account_last(&self) {
        let crossings = self.crossings().map(|crossings| crossings.domains().kept()).unwrap_or_default();
        if let Ok(mut disk) = self.store.try_lock() {
            let _ = disk.keep_interim(crossings.iter());
        }
    }

    async fn note_interim(&self) -> std::io::Result<()> {
        let mut disk = self.disk().await;
        let crossings = self.crossings().map(|crossings| crossings.domains().kept()).unwrap_or_default();
        let noted = tokio::task::spawn_blocking(move || disk.keep_interim(crossings.iter())).await;
        noted.map_err(std::io::Error::other)?
    }
}

/// The records that are asked for: those behind this number.
#[derive(Debug, Deserialize)]
pub(super) struct Behind {
    #[serde(default)]
    after: u64,
}

pub(super) async fn lines(
    _: User,
    State(broker): Shared,
    behind: Result<Query<Behind>, QueryRejection>,
) -> Answer<Vec<String>> {
    let Query(Behind { after }) = behind?;
    let mut disk = broker.disk().await;
    let read = tokio::task::spawn_blocking(move || disk.accounts(after, MOST_RECORDS)).await;
    let failed =
        |what: String| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the accounts cannot be read: {what}"));
    let lines = read.map_err(|e| failed(e.to_string()))?;
    lines.map(Json).map_err(|e| failed(e.to_string()))
}
