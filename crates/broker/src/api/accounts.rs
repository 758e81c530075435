//! The accounts: who had how much, signed by the broker itself and by its neighbours.

use super::domains::{Crossings, Peer};
use super::{Answer, Broker, Refused, Shared, User};
use crate::store::{Store, unix_ms};
use agent::accounts::claim::{Check, Claim, countersigned, last_signed};
use agent::accounts::signatures::sign;
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as Turn;

/// Time between two notes of what went through sessions that go on, unless somebody says otherwise.
const ACCOUNTS_EVERY: Duration = Duration::from_secs(3600);

/// Time after which a claim is made again that a neighbour had no time for, and how often.
const CLAIM_AGAIN: Duration = Duration::from_secs(1);
const CLAIM_WAITS: u32 = 300;
/// After a claim no other one of the same neighbour is checked for so many times as long as it took: a tenth of a processor.
const REST: u32 = 9;
/// Records that are younger are not claimed: the neighbour may not have them yet.
const SETTLED: Duration = Duration::from_secs(10);
/// Longest wait for the disk at the end.
const AT_LAST: Duration = Duration::from_secs(2);

/// Who signs the accounts, and when.
#[derive(Debug)]
pub(super) struct Signing {
    signer: Option<(Arc<Signer>, CertificateDer<'static>)>,
    every: Duration,
    /// What each neighbour has signed, once that is known.
    signed: Mutex<BTreeMap<String, Progress>>,
    /// One claim is checked at a time.
    checking: Arc<Turn<()>>,
    /// When a claim of each neighbour is checked again.
    rested: Mutex<BTreeMap<String, Instant>>,
}

/// How far a neighbour has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The last record that it has signed.
    last: u64,
    /// Nothing up to this record is left to sign.
    looked: u64,
}

impl Default for Signing {
    fn default() -> Self {
        Self {
            signer: None,
            every: ACCOUNTS_EVERY,
            signed: Mutex::default(),
            checking: Arc::default(),
            rested: Mutex::default(),
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
            // What the disk does not take is noted the next time.
            let _ = self.note_interim().await;
            if let Some(crossings) = self.crossings() {
                self.claim(&crossings).await;
            }
        }
    }

    /// The same at the end, when no request is served any more: a broker that starts again counts from then on.
    pub(crate) fn account_last(&self) {
        let began = Instant::now();
        while began.elapsed() < AT_LAST {
            if let Ok(mut disk) = self.store.try_lock() {
                return drop(self.note_and_sign(&mut disk));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    async fn note_interim(self: &Arc<Self>) -> io::Result<()> {
        let (broker, mut disk) = (self.clone(), self.disk().await);
        let noted = tokio::task::spawn_blocking(move || broker.note_and_sign(&mut disk)).await;
        noted.map_err(io::Error::other)?
    }

    fn note_and_sign(&self, disk: &mut Store) -> io::Result<()> {
        let crossings = self.crossings().map(|crossings| crossings.domains().kept()).unwrap_or_default();
        disk.keep_interim(crossings.iter())?;
        match &self.signing.signer {
            Some((signer, _)) if !disk.is_signed()? => disk.keep_signature(|head| sign(signer, head, unix_ms())),
            _ => Ok(()),
        }
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
                    waits = if is_signed { 0 } else { waits + 1 };
                    if !is_signed {
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
        let Progress { last: after, looked } = self.progress(neighbour).ok()?;
        let now = unix_ms();
        let mut claim = Claim { after, unix_ms: now, ..Claim::default() };
        let (mut last, mut seen) = (after, looked);
        let settled = SETTLED.as_millis() as u64;
        let read = self.lines(looked, |record, line| {
            let is_asked = record.entry.owner == neighbour && record.entry.is_of_neighbour();
            let takes = record.unix_ms.saturating_add(settled) <= now && (!is_asked || claim.take(line));
            if takes {
                (seen, last) = (record.number, if is_asked { record.number } else { last });
            }
            takes
        });
        read.ok()?;
        let known = |progress: Progress| {
            self.signed().insert(neighbour.to_owned(), progress);
        };
        if claim.lines.is_empty() {
            known(Progress { last, looked: seen });
            return None;
        }
        let signed = match client.claim(&claim) {
            Err(ClientError::Refused(503, _)) => return Some(false),
            answer => answer.ok()?,
        };
        let entry = countersigned(&claim, (domain, neighbour), signed, realm).ok()?;
        if self.store.blocking_lock().keep_signature(|_| Ok(entry)).is_err() {
            // It may be there all the same: it is looked for before the next claim.
            self.signed().remove(neighbour);
            return None;
        }
        known(Progress { last, looked: last });
        Some(true)
    }

    fn signed(&self) -> MutexGuard<'_, BTreeMap<String, Progress>> {
        self.signing.signed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far a neighbour has come, by the accounts themselves the first time.
    fn progress(&self, neighbour: &str) -> io::Result<Progress> {
        if let Some(known) = self.signed().get(neighbour) {
            return Ok(*known);
        }
        let mut last = 0;
        self.lines(0, |record, _| {
            if record.entry.event == Event::Countersign && record.entry.owner == neighbour {
                last = record.entry.signed.as_ref().and_then(last_signed).unwrap_or(last);
            }
            true
        })?;
        let progress = Progress { last, looked: last };
        self.signed().insert(neighbour.to_owned(), progress);
        Ok(progress)
    }

    /// Reads the lines behind a record, until `next` has enough of them. The disk is free between two pages.
    fn lines(&self, after: u64, mut next: impl FnMut(&Record, &str) -> bool) -> io::Result<()> {
        let mut after = after;
        loop {
            let lines = self.store.blocking_lock().accounts(after, MOST_RECORDS)?;
            if lines.is_empty() {
                return Ok(());
            }
            for line in &lines {
                let record: Record = serde_json::from_str(line).map_err(io::Error::other)?;
                after = record.number;
                if !next(&record, line) {
                    return Ok(());
                }
            }
        }
    }

    /// Checks a neighbour's claim by the own accounts.
    fn check_claim(&self, own: &str, neighbour: &str, claim: &Claim) -> Result<Signed, Refused> {
        let failed = |what: String| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, what);
        let wrong = |what: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, what);
        let (signer, _) = self.signing.signer.as_ref().ok_or_else(|| failed("this broker cannot sign".to_owned()))?;
        let mut check = Check::new(claim, (own, neighbour)).map_err(wrong)?;
        let read = self.lines(0, |record, _| {
            check.read(record);
            true
        });
        read.map_err(|error| failed(format!("the accounts cannot be read: {error}")))?;
        check.sign(signer, unix_ms()).map_err(failed)
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
    let busy = || {
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, "claims are checked one at a time: ask again later".to_owned())
    };
    let rested = || broker.signing.rested.lock().unwrap_or_else(PoisonError::into_inner);
    if rested().get(from.name()).is_some_and(|until| Instant::now() < *until) {
        return Err(busy());
    }
    let turn = broker.signing.checking.clone().try_lock_owned().map_err(|_| busy())?;
    let (checker, own, neighbour, began) = (broker.clone(), crossings.name.clone(), from.clone(), Instant::now());
    // To the end, even if the neighbour gives up: the turn is over when the check is.
    let checked = tokio::task::spawn_blocking(move || {
        let checked = checker.check_claim(&own, neighbour.name(), &claim);
        let until = Instant::now() + began.elapsed() * REST;
        let mut rested = checker.signing.rested.lock().unwrap_or_else(PoisonError::into_inner);
        rested.insert(neighbour.name().to_owned(), until);
        drop(turn);
        checked
    });
    let failed = |e: tokio::task::JoinError| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    checked.await.map_err(failed)?.map(Json)
}
