//! The requests to a broker, and who may make them: [`agent::message`] has the bodies.
//!
//! | request | who |
//! |---|---|
//! | `GET`, `PUT`, `DELETE /v1/plan`, `GET /v1/hosts` | users; `DELETE` whom a rule lets, if there are some |
//! | `GET /v1/sessions`, `GET`, `PUT /v1/sessions/NAME` | users; the session of a name is its owner's; new ones as rules permit |
//! | `DELETE /v1/sessions/NAME` | its owner, and whom a rule lets |
//! | `GET /v1/pipes`, `GET /v1/accounts` | users |
//! | `POST /v1/peer`, `POST /v1/peer/claim` | the brokers of neighbouring domains |
//! | `GET /v1/links`, `PUT`, `DELETE /v1/links/NAME` | users; changes whom a rule lets, if there are some |
//! | `GET /v1/hosts/NAME/desired`, `POST /v1/hosts/NAME/actual`, `POST /v1/hosts/NAME/links`, `GET /v1/hosts/NAME/admitted` | the agent of this host |

mod accounts;
mod domains;
mod links;
mod offers;
mod rules;
mod sessions;
mod unread;

use crate::accounts::Meter;
use crate::degradation::AT_ONCE;
use crate::domains::{Crossing, Effect};
use crate::hosts::{Hosts, Kept, MOST_HOSTS};
use crate::leases::Leases;
use crate::links::Links;
use crate::links::measured::Hysteresis;
use crate::store::Store;
use accounts::Signing;
use agent::identity::{Identity, Kind};
use agent::message::{Accepted, Actual, Desired, Host, LARGEST, LARGEST_PLAN, LARGEST_SESSION, LONGEST_WAIT, Refusal};
use agent::{borders, queues};
use axum::extract::rejection::{BytesRejection, ExtensionRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use domains::Crossings;
use qos::contract::rule::Right;
use qos::plan::Plan;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as Turn, Notify, OwnedMutexGuard, watch};

/// Longest time for a request, with its body and its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Largest message of a neighbour, in bytes: a summary of all sessions.
const LARGEST_OF_PEER: usize = 1 << 20;

/// A broker.
#[derive(Debug)]
pub struct Broker {
    started: Instant,
    hosts: Mutex<Hosts>,
    leases: Mutex<Leases>,
    links: Mutex<Links>,
    /// An agent has reported links.
    news_of_links: Notify,
    /// The longest search when links have changed.
    at_once: Duration,
    /// When rates count that agents have measured.
    hysteresis: Hysteresis,
    /// The links for which no plan was found.
    unplanned: Mutex<Option<links::Unplanned>>,
    /// What sessions could have that are suspended.
    offered: Mutex<offers::Offered>,
    /// Who plans. One planner runs at a time; locked before the store.
    planner: Arc<Turn<()>>,
    /// Changes are made one after the other: kept, then told. Nobody plans meanwhile.
    store: Arc<Turn<Store>>,
    meter: Arc<Mutex<Meter>>,
    /// Who signs the accounts, and when.
    signing: Signing,
    changed: watch::Sender<u64>,
    /// Its part in sessions over several domains, once it has a contract.
    crossings: OnceLock<Arc<Crossings>>,
    /// What has to be done for them first.
    first: Mutex<Vec<Effect>>,
    /// The sessions over several domains that it had when it started, until it has a contract.
    before: Mutex<Vec<Crossing>>,
    /// The last refusals, by session, for programs that were to be part of one.
    refusals: Mutex<BTreeMap<String, Refusal>>,
}

/// A request that is refused.
#[derive(Debug)]
pub struct Refused(StatusCode, Refusal);

impl Refused {
    fn new(status: StatusCode, error: String) -> Self {
        Self(status, Refusal { error, ..Refusal::default() })
    }

    /// The reason.
    pub fn text(self) -> String {
        self.1.error
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(status, refusal) = self;
        (status, Json(refusal)).into_response()
    }
}

impl From<JsonRejection> for Refused {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<BytesRejection> for Refused {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Refused {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Refused {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<ExtensionRejection> for Refused {
    fn from(rejection: ExtensionRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl Broker {
    /// A broker that continues from what its store keeps; its new epoch, later than `after`, is kept first.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn start(mut store: Store, kept: Kept, after: u64) -> std::io::Result<Self> {
        let before = kept.crossings.clone();
        let hosts = Hosts::start(kept, after);
        store.keep(hosts.kept())?;
        let (changed, _) = watch::channel(hosts.kept().revision);
        let mut leases = Leases::default();
        leases.are(Duration::ZERO, &hosts.kept().sessions, hosts.kept().revision);
        let (hosts, leases, meter) = (Mutex::new(hosts), Mutex::new(leases), store.meter());
        let (started, crossings) = (Instant::now(), OnceLock::new());
        Ok(Self {
            started,
            hosts,
            leases,
            links: Mutex::default(),
            news_of_links: Notify::new(),
            at_once: AT_ONCE,
            hysteresis: Hysteresis::default(),
            unplanned: Mutex::default(),
            offered: Mutex::default(),
            planner: Arc::default(),
            store: Arc::new(Turn::new(store)),
            meter,
            signing: Signing::default(),
            changed,
            crossings,
            first: Mutex::default(),
            before: Mutex::new(before),
            refusals: Mutex::default(),
        })
    }

    /// Waits until nobody else plans.
    async fn turn(&self) -> OwnedMutexGuard<()> {
        self.planner.clone().lock_owned().await
    }

    /// Waits until no other change is written.
    async fn disk(&self) -> OwnedMutexGuard<Store> {
        self.store.clone().lock_owned().await
    }

    fn crossings(&self) -> Option<Arc<Crossings>> {
        self.crossings.get().cloned()
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Changes the plan, if nobody else did since that revision. A broker with a contract plans by itself: that is no user's change, and sessions alone
    /// stand against taking its plan away.
    async fn change(self: &Arc<Self>, plan: Option<(String, Vec<String>)>, after: u64) -> Result<Accepted, Refused> {
        let _turn = self.turn().await;
        let disk = self.disk().await;
        let Kept { revision: present, contract, sessions, .. } = self.hosts().kept().clone();
        let refused = |text: String| Err(Refused::new(StatusCode::CONFLICT, text));
        if contract.is_some() && plan.is_some() {
            return refused("this broker plans by itself, beside its contract: ask for sessions instead".to_owned());
        }
        if let Some(session) = sessions.first() {
            let (count, name) = (sessions.len(), &session.name);
            return refused(format!("{count} sessions are admitted, such as {name}: stop them first"));
        }
        if let Some(name) = self.crossings().and_then(|crossings| crossings.domains().any()) {
            return refused(format!(
                "this domain has a part in sessions over several, such as {name}: who asked for them stops them first"
            ));
        }
        if contract.is_none() && present != after {
            return refused(format!(
                "somebody else changed the plan: it has revision {present}, not {after}; look, and try again"
            ));
        }
        let kept = self.hosts().with(plan);
        self.keep(disk, kept).await
    }

    /// Keeps a change, and tells it to all agents. It is done on a thread of its own to the end, even if the request is given up
    /// meanwhile: disk and memory never differ.
    async fn keep(self: &Arc<Self>, mut disk: OwnedMutexGuard<Store>, kept: Kept) -> Result<Accepted, Refused> {
        let (broker, revision) = (self.clone(), kept.revision);
        let written = tokio::task::spawn_blocking(move || {
            disk.keep(&kept)?;
            broker.tell(kept);
            broker.fit_pipes();
            Ok::<(), std::io::Error>(())
        });
        let written = written.await;
        let refused = |text: String| Refused::new(StatusCode::INSUFFICIENT_STORAGE, text);
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::TimedOut => refused(format!(
                "no host hears of it now, but it is not known whether it was kept: {error}; look when the broker answers again"
            )),
            _ => refused(format!("the broker cannot keep it, nothing changes: {error}")),
        };
        written.map_err(|e| failed(std::io::Error::other(e)))?.map_err(failed)?;
        Ok(Accepted { revision })
    }

    /// A change is kept.
    fn tell(&self, kept: Kept) {
        let revision = kept.revision;
        let is_new = self.hosts().kept().revision != revision;
        if is_new {
            self.leases().are(self.now(), &kept.sessions, revision);
        }
        self.hosts().change(kept);
        self.changed.send_replace(revision);
    }
}

/// The requests of a party that has shown this identity.
pub fn router(broker: Arc<Broker>, caller: Identity) -> Router {
    let plan = get(plan).put(put_plan).delete(delete_plan).layer(DefaultBodyLimit::max(LARGEST_PLAN));
    let session = get(sessions::show).put(sessions::put).delete(sessions::delete);
    let session = session.layer(DefaultBodyLimit::max(LARGEST_SESSION));
    Router::new()
        .route("/v1/plan", plan)
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{name}", session)
        .route("/v1/pipes", get(domains::pipes))
        .route("/v1/peer", post(domains::peer).layer(DefaultBodyLimit::max(LARGEST_OF_PEER)))
        .route("/v1/peer/claim", post(accounts::claimed).layer(DefaultBodyLimit::max(LARGEST_OF_PEER)))
        .route("/v1/hosts", get(list))
        .route("/v1/accounts", get(accounts::lines))
        .route("/v1/links", get(links::list))
        .route("/v1/links/{link}", axum::routing::put(links::put).delete(links::delete))
        .route("/v1/hosts/{host}/links", post(links::reported))
        .route("/v1/hosts/{host}/desired", get(desired))
        .route("/v1/hosts/{host}/actual", post(actual))
        .route("/v1/hosts/{host}/admitted", get(sessions::admitted))
        .fallback(async || {
            Refused::new(StatusCode::NOT_FOUND, "there is no such request: docs/hosts.md has all".to_owned())
        })
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn(unread::read_out))
        .layer(Extension(caller))
        .with_state(broker)
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = || {
        Refused::new(StatusCode::REQUEST_TIMEOUT, format!("the request took more than {PATIENCE:?}")).into_response()
    };
    tokio::time::timeout(PATIENCE, next.run(request)).await.unwrap_or_else(|_| late())
}

/// A caller that is a user. Known before a body is read: who may not ask sends nothing that is kept.
struct User(Identity);

impl<S: Send + Sync> FromRequestParts<S> for User {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let caller = caller(parts, state).await?;
        match caller.kind() {
            Kind::User => Ok(Self(caller)),
            _ => Err(Refused::new(
                StatusCode::FORBIDDEN,
                format!("{caller} may not: only users may, see `thalweg keys issue user`"),
            )),
        }
    }
}

/// The host of a request's path, whose agent is the caller; known before a body is read.
struct OwnHost(String);

impl<S: Send + Sync> FromRequestParts<S> for OwnHost {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let caller = caller(parts, state).await?;
        let Path(host) = Path::<String>::from_request_parts(parts, state).await?;
        match caller.kind() {
            Kind::Host if caller.name() == host => Ok(Self(host)),
            _ => Err(Refused::new(StatusCode::FORBIDDEN, format!("{caller} may not speak for the host {host:?}"))),
        }
    }
}

async fn caller<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Identity, Refused> {
    let Extension(caller) = Extension::from_request_parts(parts, state).await?;
    Ok(caller)
}

type Answer<T> = Result<Json<T>, Refused>;
type Shared = State<Arc<Broker>>;

async fn plan(_: User, State(broker): Shared) -> Answer<Desired> {
    let desired = broker.hosts().desired();
    Ok(Json(broker.with_sold(desired)))
}

/// The revision after which a change is meant.
#[derive(Debug, Deserialize)]
struct After {
    after: u64,
}

async fn put_plan(
    _: User,
    State(broker): Shared,
    after: Result<Query<After>, QueryRejection>,
    text: Result<axum::body::Bytes, BytesRejection>,
) -> Answer<Accepted> {
    let (Query(After { after }), text) = (after?, text?);
    let checked = tokio::task::spawn_blocking(move || check(&text)).await;
    let plan = checked.map_err(|e| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))??;
    broker.change(Some(plan), after).await.map(Json)
}

async fn delete_plan(
    User(user): User,
    State(broker): Shared,
    after: Result<Query<After>, QueryRejection>,
) -> Answer<Accepted> {
    broker.check_may(&user.to_string(), Right::Plan)?;
    let Query(After { after }) = after?;
    broker.change(None, after).await.map(Json)
}

/// A plan that fits, with the hosts that it has queues for. Each is checked before any of them hears of it.
fn check(text: &[u8]) -> Result<(String, Vec<String>), Refused> {
    let wrong = |what: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, what);
    let text = std::str::from_utf8(text).map_err(|e| wrong(format!("the plan is no text: {e}")))?;
    let plan = Plan::from_text(text).map_err(|e| wrong(format!("plan:{e}")))?;
    if !plan.feasible {
        return Err(wrong("the plan does not fit (`thalweg plan` says why): nothing is applied".to_owned()));
    }
    let hosts: Vec<String> = queues::hosts(&plan).into_iter().map(str::to_owned).collect();
    if plan.links.iter().all(|link| link.device.is_none()) {
        return Err(wrong("the plan names no devices: give `devices` to the links of its contract".to_owned()));
    }
    if hosts.len() > MOST_HOSTS {
        return Err(wrong(format!("the plan has queues for {} hosts: allowed is {MOST_HOSTS}", hosts.len())));
    }
    let check = |host: &String| {
        queues::queues(&plan, host, true)?;
        borders::tunnels(&plan, host)?;
        borders::boundaries(&plan, host).map(drop)
    };
    hosts.iter().try_for_each(check).map_err(|e: queues::Unfit| wrong(e.to_string()))?;
    Ok((text.to_owned(), hosts))
}

async fn list(_: User, State(broker): Shared) -> Answer<Vec<Host>> {
    Ok(Json(broker.hosts().list(broker.now())))
}

/// The state that an agent knows, and its patience in seconds.
#[derive(Debug, Deserialize)]
struct Known {
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    since: u64,
    #[serde(default)]
    wait: u64,
}

async fn desired(
    OwnHost(host): OwnHost,
    State(broker): Shared,
    known: Result<Query<Known>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(Known { epoch, since, wait }) = known?;
    let until = tokio::time::Instant::now() + Duration::from_secs(wait).min(LONGEST_WAIT);
    let mut changes = broker.changed.subscribe();
    let asked = broker.hosts().asked(broker.now(), &host, epoch);
    asked.map_err(|replaced| Refused::new(StatusCode::CONFLICT, replaced.to_string()))?;
    loop {
        let newer = broker.hosts().newer_than((epoch, since)).map(|desired| broker.with_sold(desired));
        if let Some(desired) = newer {
            return Ok(Json(desired).into_response());
        }
        if !matches!(tokio::time::timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
            broker.hosts().heard(broker.now(), &host);
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
}

async fn actual(
    OwnHost(host): OwnHost,
    State(broker): Shared,
    report: Result<Json<Actual>, JsonRejection>,
) -> Result<StatusCode, Refused> {
    let Json(report) = report?;
    if !report.is_bounded() {
        return Err(Refused::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a list or text of the report is too long".to_owned(),
        ));
    }
    broker.count(&host, &report.ends);
    broker.hosts().reported(broker.now(), &host, report);
    Ok(StatusCode::NO_CONTENT)
}
