//! Connections of browsers and of Prometheus: HTTP/1.1, each bounded in number, time and size. What needs the node is asked of the node's
//! thread ([`Asked`]).

mod updates;

use super::access::Access;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use thalweg::control::matching::check_name;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use updates::Updates;

/// Most connections.
const CONNECTIONS: usize = 64;
/// Longest time until the header of a request is complete.
const HEADER: Duration = Duration::from_secs(10);
/// Longest time until the answer begins: a body may come slowly, and the node's thread may be busy.
const REQUEST: Duration = Duration::from_secs(20);
/// Most bytes of a request's body.
const BODY: usize = 16 << 10;
/// Most words of one change, and bytes of one.
const WORDS: usize = 16;
const WORD: usize = 512;
/// Most questions that wait for the node's thread.
const WAITING: usize = 32;
/// Longest wait for its answer.
const ANSWER: Duration = Duration::from_secs(10);
/// After a request for the state or for metrics the channels are looked at for so long.
const WATCHED: Duration = Duration::from_secs(30);
/// Pause after a connection could not be taken: too many open files.
const AGAIN: Duration = Duration::from_millis(50);

/// The state at one look.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) state: Arc<str>,
    pub(super) metrics: Arc<str>,
    /// The network, as SVG.
    pub(super) map: Arc<str>,
}

/// A question to the node's thread.
pub(super) enum Ask {
    /// Look now.
    Look,
    /// The stages of a topic's channels.
    Stages(String),
    /// Change a priority: the words of `thalweg set`.
    Set(Vec<String>),
}

/// The same, with the way back.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) answer: oneshot::Sender<Result<Value, String>>,
}

/// What connections and the node's thread share.
pub(super) struct Shared {
    access: Access,
    ask: SyncSender<Asked>,
    now: watch::Sender<Option<Snapshot>>,
    /// The last request for the state, by CLOCK_MONOTONIC; 0: none.
    asked_ns: AtomicU64,
}

impl Shared {
    /// Nothing is known yet.
    pub(super) fn new(access: Access) -> (Arc<Self>, Receiver<Asked>) {
        let (ask, asked) = sync_channel(WAITING);
        let now = watch::Sender::new(None);
        (Arc::new(Self { access, ask, now, asked_ns: AtomicU64::new(0) }), asked)
    }

    /// `true` while a page is open, or somebody has asked lately.
    pub(super) fn is_watched(&self) -> bool {
        self.now.receiver_count() > 0 || self.was_asked()
    }

    fn was_asked(&self) -> bool {
        let asked = self.asked_ns.load(Relaxed);
        asked > 0 && linux::clock::monotonic_ns().saturating_sub(asked) < WATCHED.as_nanos() as u64
    }

    /// Shows this to all pages.
    pub(super) fn show(&self, snapshot: Snapshot) {
        self.now.send_replace(Some(snapshot));
    }

    /// The state now. The first one who asks has the node look.
    async fn snapshot(&self) -> Result<Snapshot, Refused> {
        let watched = self.was_asked() || self.now.receiver_count() > 0;
        self.asked_ns.store(linux::clock::monotonic_ns(), Relaxed);
        if !watched || self.now.borrow().is_none() {
            self.ask(Ask::Look).await?;
        }
        self.now.borrow().clone().ok_or(Refused(StatusCode::SERVICE_UNAVAILABLE, "no look yet: ask again".to_owned()))
    }

    async fn ask(&self, ask: Ask) -> Result<Value, Refused> {
        let (answer, answered) = oneshot::channel();
        let full = || Refused(StatusCode::SERVICE_UNAVAILABLE, format!("{WAITING} questions wait already: ask again"));
        self.ask.try_send(Asked { ask, answer }).map_err(|_| full())?;
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(answer)) => answer.map_err(|why| Refused(StatusCode::CONFLICT, why)),
            _ => Err(Refused(StatusCode::GATEWAY_TIMEOUT, format!("no answer within {ANSWER:?}"))),
        }
    }
}

/// Listens, and serves on threads of its own for as long as the process lives. Returns the address.
///
/// # Errors
/// The address cannot be listened to, or there is no thread.
pub(super) fn start(at: SocketAddr, shared: Arc<Shared>) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    linux::thread::spawn(linux::thread::Settings::named("dashboard"), move || {
        let served = runtime.block_on(async { serve(TcpListener::from_std(listener)?, router(shared)).await });
        if let Err(error) = served {
            crate::output::tell(&format!("thalweg dashboard: the page ended: {error}"));
        }
    })?;
    Ok(bound)
}

async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        // Beyond the most, a connection is closed at once.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(hyper_util::rt::TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER);
    // A connection that breaks is its peer's matter.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

fn router(shared: Arc<Shared>) -> Router {
    const HTML: &str = "text/html; charset=utf-8";
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    const STYLE: &str = "text/css; charset=utf-8";
    let file = |kind: &'static str, text: &'static str| get(move || async move { ([(CONTENT_TYPE, kind)], text) });
    Router::new()
        .route("/", file(HTML, include_str!("page/index.html")))
        .route("/page.js", file(SCRIPT, include_str!("page/page.js")))
        .route("/page.css", file(STYLE, include_str!("page/page.css")))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT })) // browsers ask for it, and report its absence as an error
        .route("/map.svg", get(map))
        .route("/metrics", get(metrics))
        .route("/api/state", get(state))
        .route("/api/events", get(events))
        .route("/api/stages", get(stages))
        .route("/api/set", post(set))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(shared.clone(), guarded))
        .with_state(shared)
}

/// Answers only those who mean this server, and tells browsers to trust nothing else.
async fn guarded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let host = text_of(request.headers(), &HOST).unwrap_or_default().to_owned();
    let mut response = if shared.access.is_host(&host) {
        let answered = tokio::time::timeout(REQUEST, next.run(request)).await;
        let late = || Refused(StatusCode::REQUEST_TIMEOUT, format!("the request took more than {REQUEST:?}"));
        answered.unwrap_or_else(|_| late().into_response())
    } else {
        let why = format!("this server is not {host:?}: name it with --host");
        Refused(StatusCode::MISDIRECTED_REQUEST, why).into_response()
    };
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn text_of<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

async fn map(State(shared): State<Arc<Shared>>) -> Result<Response, Refused> {
    let map = shared.snapshot().await?.map.to_string();
    Ok(([(CONTENT_TYPE, "image/svg+xml")], map).into_response())
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Refused> {
    let text = shared.snapshot().await?.metrics.to_string();
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn state(State(shared): State<Arc<Shared>>) -> Result<Response, Refused> {
    let text = shared.snapshot().await?.state.to_string();
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

async fn events(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, Refused> {
    let first = shared.snapshot().await?;
    let about = json!({"may_set": shared.access.may_set()}).to_string();
    let first = vec![Event::default().data(&*first.state), Event::default().event("about").data(about)];
    let updates = Updates::new(first, shared.now.subscribe());
    Ok(Sse::new(updates).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
struct Topic {
    topic: String,
}

async fn stages(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    topic: Result<Query<Topic>, QueryRejection>,
) -> Result<Json<Value>, Refused> {
    // A link or picture on a page of another site would have channels measured, although that page cannot read the answer.
    if headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"cross-site") {
        return Err(Refused(StatusCode::FORBIDDEN, "a page of another site may have nothing measured".to_owned()));
    }
    let Query(Topic { topic }) = topic.map_err(|wrong| Refused(StatusCode::BAD_REQUEST, wrong.body_text()))?;
    check_name(&topic).map_err(|wrong| Refused(StatusCode::BAD_REQUEST, format!("topic {wrong}")))?;
    shared.ask(Ask::Stages(topic)).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    words: Vec<String>,
}

async fn set(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    change: Result<Json<Change>, JsonRejection>,
) -> Result<Json<Value>, Refused> {
    let host = text_of(&headers, &HOST).unwrap_or_default();
    let refused = |status, why: &str| Err(Refused(status, why.to_owned()));
    if !shared.access.may_set() {
        return refused(
            StatusCode::FORBIDDEN,
            "nothing may be changed here: start the dashboard with --allow-set FILE",
        );
    }
    if !shared.access.is_own_page(text_of(&headers, &ORIGIN), host) {
        return refused(StatusCode::FORBIDDEN, "a page of another site may change nothing");
    }
    if !shared.access.knows_token(text_of(&headers, &AUTHORIZATION)) {
        return refused(
            StatusCode::UNAUTHORIZED,
            "Authorization: Bearer and the token in the file of --allow-set are needed",
        );
    }
    let Json(Change { words }) = change.map_err(|wrong| Refused(wrong.status(), wrong.body_text()))?;
    if words.len() > WORDS || words.iter().any(|word| word.len() > WORD || word.starts_with('-')) {
        return Err(Refused(
            StatusCode::BAD_REQUEST,
            format!("at most {WORDS} words of {WORD} bytes, as of thalweg set, and no options"),
        ));
    }
    shared.ask(Ask::Set(words)).await.map(Json)
}

/// A refusal, with its reason as JSON.
#[derive(Debug)]
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}
