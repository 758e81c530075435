//! The accounts: who had how much, signed by the broker itself and by its neighbours.

use super::domains::{Crossings, Peer};
use super::{Answer, Broker, Refused, Shared, User};
use crate::store::Store;
use agent::accounts::statement::{Check, Claim, countersigned, sign};
use agent::accounts::{Event, MOST_RECORDS, Record};
use agent::client::{Client, ClientError};
use agent::keys::Keys;
use agent::message::End;
use agent::signature::{Signed, Signer};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex as Turn;

/// Time between two notes of what went through sessions that go on, unless somebody says otherwise.
pub const ACCOUNTS_EVERY: Duration = Duration::from_secs(3600);

/// Time after which a claim is made again that a neighbour had no time for, and how often.
const CLAIM_AGAIN: Duration = Duration::from_secs(1);
const CLAIM_WAITS: u32 = 30;
/// After a claim no other is checked for so many times as long as it took: neighbours have no more than a tenth of a processor for claims.
const REST: u32 = 9;

/// Who signs the accounts, and when.
#[derive(Debug)]
pub(super) struct Signing {
    signer: Option<(Arc<Signer>, CertificateDer<'static>)>,
    every: Duration,
    /// The last record up to which all that name a neighbour are claimed now: what is there since a while, so that it has it, too.
    settled: Mutex<u64>,
    /// The last record that each neighbour has signed, once that is known.
    seen: Mutex<BTreeMap<String, u64>>,
    /// One claim of a neighbour is checked at a time.
    checking: Arc<Turn<()>>,
}

impl Default for Signing {
    fn default() -> Self {
        Self {
            signer: None,
            every: ACCOUNTS_EVERY,
            settled: Mutex::default(),
            seen: Mutex::default(),
            checking: Arc::default(),
        }
    }
}

impl Broker {
    /// Who signs the accounts.
    pub(crate) fn sign_with(&mut self, keys: &Keys) -> Result<(), String> {
        self.signing.signer = Some((Arc::new(Signer::new(keys)?), keys.realm.clone()));
        Ok(())
    }

    /// Notes what went through sessions that go on, and signs, each time after so long.
    #[must_use]
    pub fn accounts_every(mut self, time: Duration) -> Self {
        self.signing.every = time;
        self
    }

    /// An agent has counted what went through the ends of channels.
    pub(super) fn count(&self, host: &str, ends: &[End]) {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).reported(host, ends);
    }

    /// Notes what went through sessions that go on, and lets lines be signed, as long as the broker runs.
    pub(crate) async fn account(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(self.signing.every).await;
            if let Some(crossings) = self.crossings() {
                self.claim(&crossings).await;
            }
            // What the disk does not take is noted the next time.
            if let Ok(last) = self.note_interim().await {
                let mut settled = self.signing.settled.lock().unwrap_or_else(PoisonError::into_inner);
                *settled = last.max(*settled);
            }
        }
    }

    /// The same at the end, when no request is served any more: a broker that starts again counts from then on.
    pub(crate) fn account_last(&self) {
        if let Ok(mut disk) = self.store.try_lock() {
            let _ = self.note_and_sign(&mut disk);
        }
    }

    async fn note_interim(self: &Arc<Self>) -> io::Result<u64> {
        let (broker, mut disk) = (self.clone(), self.disk().await);
        let noted = tokio::task::spawn_blocking(move || broker.note_and_sign(&mut disk)).await;
        noted.map_err(io::Error::other)?
    }

    /// Gives the number of the last line but for its signature.
    fn note_and_sign(&self, disk: &mut Store) -> io::Result<u64> {
        let crossings = self.crossings().map(|crossings| crossings.domains().kept()).unwrap_or_default();
        disk.keep_interim(crossings.iter())?;
        let (last, is_signed) = disk.signed()?;
        if let Some((signer, _)) = self.signing.signer.as_ref().filter(|_| !is_signed) {
            disk.keep_signature(|head| sign(signer, head, unix_ms()))?;
        }
        Ok(last)
    }

    /// Asks each neighbour to sign the lines that name it. Who does not answer is asked the next time.
    async fn claim(self: &Arc<Self>, crossings: &Arc<Crossings>) {
        for (neighbour, client) in &crossings.clients {
            let (broker, domain) = (self.clone(), crossings.name.clone());
            let (neighbour, client) = (neighbour.clone(), client.clone());
            let claimed = tokio::task::spawn_blocking(move || {
                let mut waits = 0;
                while let Some(is_signed) = broker.claim_some(&domain, &neighbour, &client)
                    && waits < CLAIM_WAITS
                {
                    if !is_signed {
                        waits += 1;
                        std::thread::sleep(CLAIM_AGAIN);
                    }
                }
            });
            let _ = claimed.await;
        }
    }

    /// The same for as many lines as one claim takes; `false`: the neighbour has no time now. `None`: there is nothing more, or it is not signed.
    fn claim_some(&self, domain: &str, neighbour: &str, client: &Client) -> Option<bool> {
        let (_, realm) = self.signing.signer.as_ref()?;
        let settled = *self.signing.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let after = self.seen_by(neighbour).ok()?;
        let mut claim = Claim { after, unix_ms: unix_ms(), ..Claim::default() };
        let mut last = after;
        self.lines(after, |record, line| {
            let is_asked = record.entry.owner == neighbour && record.entry.is_of_neighbour();
            let takes = record.number <= settled && (!is_asked || claim.take(line));
            if takes && is_asked {
                last = record.number;
            }
            takes
        })
        .ok()?;
        if claim.lines.is_empty() {
            return None;
        }
        let signed = match client.claim(&claim) {
            Err(ClientError::Refused(503, _)) => return Some(false),
            answer => answer.ok()?,
        };
        let entry = countersigned(&claim, (domain, neighbour), signed, realm).ok()?;
        self.store.blocking_lock().keep_signature(|_| Ok(entry)).ok()?;
        self.signing.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(neighbour.to_owned(), last);
        Some(true)
    }

    /// The last record that a neighbour has signed.
    fn seen_by(&self, neighbour: &str) -> io::Result<u64> {
        let known = self.signing.seen.lock().unwrap_or_else(PoisonError::into_inner).get(neighbour).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut last = 0;
        self.lines(0, |record, _| {
            if record.entry.event == Event::Countersign && record.entry.owner == neighbour {
                last = record.entry.signed.as_ref().and_then(agent::accounts::statement::last).unwrap_or(last);
            }
            true
        })?;
        self.signing.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(neighbour.to_owned(), last);
        Ok(last)
    }

    /// Reads the lines behind a record, until `next` has enough of them. The disk is free between two pages.
    fn lines(&self, after: u64, mut next: impl FnMut(&Record, &str) -> bool) -> io::Result<()> {
        let mut after = after;
        loop {
            let lines = self.store.blocking_lock().accounts(after, MOST_RECORDS)?;
            for line in &lines {
                let record: Record = serde_json::from_str(line).map_err(io::Error::other)?;
                after = record.number;
                if !next(&record, line) {
                    return Ok(());
                }
            }
            if lines.len() < MOST_RECORDS {
                return Ok(());
            }
        }
    }

    /// Checks a neighbour's claim by the own accounts.
    fn check_claim(&self, own: &str, neighbour: &str, claim: &Claim) -> Result<Signed, Refused> {
        let failed = |what: String| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, what);
        let wrong = |what: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, what);
        let (signer, _) = self.signing.signer.as_ref().ok_or_else(|| failed("this broker cannot sign".to_owned()))?;
        let mut check = Check::new(claim, (own, neighbour)).map_err(wrong)?;
        let read = self.lines(0, |_, line| {
            check.read(line);
            true
        });
        read.map_err(|error| failed(format!("the accounts cannot be read: {error}")))?;
        check.sign(signer, unix_ms()).map_err(failed)
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
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

pub(super) async fn claimed(
    Peer(from): Peer,
    State(broker): Shared,
    claim: Result<Json<Claim>, JsonRejection>,
) -> Answer<Signed> {
    let Json(claim) = claim?;
    if !claim.is_bounded() {
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "a claim is too large, or empty".to_owned()));
    }
    let crossings = broker.crossings_with(&from)?;
    let Ok(turn) = broker.signing.checking.clone().try_lock_owned() else {
        let said = "another claim is checked: ask again later".to_owned();
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, said));
    };
    let (checker, began) = (broker.clone(), Instant::now());
    let checked = tokio::task::spawn_blocking(move || checker.check_claim(&crossings.name, from.name(), &claim)).await;
    let rest = began.elapsed() * REST;
    tokio::spawn(async move {
        tokio::time::sleep(rest).await;
        drop(turn);
    });
    let failed = |e: tokio::task::JoinError| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    checked.map_err(failed)?.map(Json)
}
