//! Requests of all parties, in any order, with any contents: each is answered, none by 500, and the broker goes on.

use super::CONTRACT;
use super::memory::Memory;
use crate::api::{Broker, router};
use crate::store::Store;
use agent::accounts::claim::Claim;
use agent::identity::{Identity, Kind};
use agent::keys::{Keys, init, issue};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tower::ServiceExt;

/// The parties that ask, by their place.
const PARTIES: [(Kind, &str); 6] = [
    (Kind::User, "ann"),
    (Kind::User, "bob"),
    (Kind::Host, "rw"),
    (Kind::Host, "wb"),
    (Kind::Broker, "robot"),
    (Kind::Broker, "mallory"),
];
/// Most requests of one input.
const MOST: usize = 12;
/// Time after which a party gives a request up: some wait for other domains, or for news.
const PATIENCE: Duration = Duration::from_millis(20);
/// Largest answer, bytes.
const LARGEST: usize = 64 << 20;

fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("thalweg-fuzz-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let made = init("world", &dir).and_then(|_| issue(&dir, Kind::Broker, "wan", 1, &dir));
        let keys = made.and_then(|_| Keys::read(&dir, Kind::Broker, "wan")).unwrap_or_else(|error| panic!("{error}"));
        let _ = std::fs::remove_dir_all(&dir);
        keys
    })
}

fn broker() -> Arc<Broker> {
    let started = Store::on(Box::new(Memory::default())).and_then(|(store, kept)| Broker::start(store, kept, 0));
    let mut broker = started.unwrap_or_else(|error| panic!("{error}")).decides_within(Duration::ZERO);
    broker.sign_with(keys()).and_then(|()| broker.plan_for(CONTRACT, keys())).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(broker)
}

/// Requests, with a zero byte between two: the place of a party as a digit, a method, a blank, a path, a line break, and the body.
pub fn requests(bytes: &[u8]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap_or_else(|error| panic!("{error}"));
    let broker = broker();
    runtime.block_on(async {
        for request in bytes.split(|byte| *byte == 0).take(MOST) {
            let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let body = request.get(line.len() + 1..).unwrap_or_default();
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let place = line.bytes().next().unwrap_or_default().wrapping_sub(b'0');
            let Some(party) = PARTIES.get(usize::from(place)) else { continue };
            let Some((method, path)) = line.get(1..).and_then(|rest| rest.split_once(' ')) else { continue };
            let status = ask(&broker, *party, (method, path), body).await;
            assert_ne!(status, Some(StatusCode::INTERNAL_SERVER_ERROR), "{line:?}");
        }
        let status = ask(&broker, PARTIES[0], ("GET", "/v1/plan"), &[]).await;
        assert_eq!(status, Some(StatusCode::OK), "it goes on");
    });
    // What was given up may go on for a while.
    runtime.shutdown_background();
}

/// The status of an answer; `None`: it is no request, or was given up.
async fn ask(
    broker: &Arc<Broker>,
    (kind, name): (Kind, &str),
    (method, path): (&str, &str),
    body: &[u8],
) -> Option<StatusCode> {
    let identity = Identity::new("world", kind, name).unwrap_or_else(|error| panic!("{error}"));
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Body::from(body.to_vec())).ok()?;
    let answer = tokio::time::timeout(PATIENCE, router(broker.clone(), identity).oneshot(request)).await;
    let answer = answer.ok()?.unwrap_or_else(|never| match never {});
    let status = answer.status();
    let body = to_bytes(answer.into_body(), LARGEST).await;
    assert!(body.is_ok(), "{method} {path}: its answer has more than {LARGEST} bytes, or none");
    Some(status)
}

/// Conversations of all parties.
pub fn asked() -> Vec<Vec<u8>> {
    let session = |name: &str, to: &str| {
        format!(
            "[[session]]\nname = {name:?}\nlease = \"30 s\"\n[[topic]]\nname = {name:?}\nsize = \"500 B\"\nrate = \"20 Hz\"\npublisher = \"rw\"\n\
             [[subscriber]]\ntopic = {name:?}\nnode = {to:?}\ndeadline = \"500 ms\"\nscale_max = 4\n"
        )
    };
    let report = r#"{"epoch":1,"revision":1,"state":"applied","devices":["next"],"ends":[{"topic":"t","publisher":"rw","subscriber":"/t@wb","end":"publisher","counts":{"samples":9,"bytes":90}}]}"#;
    let carriers = r#"[{"device":"next","up":true,"rate_bits_per_s":1000000},{"device":"other","up":false}]"#;
    let line = r#"{"number":7,"unix_ms":1000,"event":"start","session":"wan/t/1","owner":"robot","rate_bits_per_s":9,"price":1,"before":""}"#;
    let claim = Claim { after: 6, lines: vec![line.to_owned()], unix_ms: 5000 };
    let claim = serde_json::to_string(&claim).unwrap_or_default();
    let said = r#"{"request":{"key":{"first":"robot","session":"s","version":1},"passed":["robot"],"step":"stop"}}"#;
    let each: [&[(&str, &str)]; 5] = [
        &[
            ("0PUT /v1/sessions/t", &session("t", "wb")),
            ("0GET /v1/sessions", ""),
            ("1DELETE /v1/sessions/t", ""),
            ("0DELETE /v1/sessions/t", ""),
        ],
        &[
            ("0PUT /v1/sessions/far?dry_run=true", &session("far", "base/desk")),
            ("0PUT /v1/sessions/own", &session("own", "wan/wb")),
            ("0GET /v1/pipes", ""),
        ],
        &[
            ("0PUT /v1/sessions/t", &session("t", "wb")),
            ("2POST /v1/hosts/rw/links", carriers),
            ("0PUT /v1/links/line", r#"{"rate_bits_per_s":50000}"#),
            ("0GET /v1/links", ""),
            ("0DELETE /v1/links/line", ""),
            ("0GET /v1/accounts?after=1", ""),
        ],
        &[
            ("2POST /v1/hosts/rw/actual", report),
            ("2GET /v1/hosts/rw/desired?epoch=0&since=0&wait=1", ""),
            ("2GET /v1/hosts/rw/admitted?session=t&topic=t", ""),
            ("0GET /v1/hosts", ""),
        ],
        &[
            ("4POST /v1/peer", said),
            ("4POST /v1/peer/claim", &claim),
            ("5POST /v1/peer", said),
            ("0PUT /v1/plan?after=1", "plan"),
            ("0DELETE /v1/plan?after=1", ""),
        ],
    ];
    let text = |all: &&[(&str, &str)]| {
        all.iter().map(|(line, body)| format!("{line}\n{body}")).collect::<Vec<_>>().join("\0").into_bytes()
    };
    each.iter().map(text).collect()
}
