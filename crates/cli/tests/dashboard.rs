//! `thalweg dashboard`: what a browser and Prometheus get, who may change something, and what hostile clients can do.
#![allow(clippy::unwrap_used)]

use crate::support::{LONG, Running, Testbed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const TOKEN: &str = "0123456789abcdef";

/// A dashboard, and a pair of ports beside it.
pub struct Scene {
    pub house: Testbed,
    _dashboard: Running,
    pub address: String,
    _listener: Running,
    _talker: Running,
}

impl Scene {
    pub fn new(options: &str) -> Self {
        let house = Testbed::new();
        std::fs::write(house.path("token.txt"), format!("{TOKEN}\n")).unwrap();
        let options = options.replace("TOKEN", &house.path("token.txt").display().to_string());
        let listener = house.start("sub /word --port /in");
        let talker = house.start("pub /word --port /out --rate 200");
        let dashboard = house.start(&format!("dashboard --at 127.0.0.1:0 --interval 100ms --json {options}"));
        let about = dashboard.json_line();
        let page = about["page"].as_str().unwrap();
        let address = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { house, _dashboard: dashboard, address, _listener: listener, _talker: talker }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Status, header and body of an answer to a whole request.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {request:?}: {text:?}"));
        (status.unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    fn set(&self, headers: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let (status, _, body) = self.ask(&format!(
            "POST /api/set HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}",
            self.address
        ));
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The answer at this path, once it fits.
    pub fn until(&self, path: &str, fits: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + LONG;
        loop {
            let (status, _, body) = self.get(path);
            if status == 200 && fits(&body) {
                return body;
            }
            assert!(Instant::now() < end, "{path}: {status} {body}");
        }
    }
}

#[test]
fn a_browser_and_prometheus_see_the_channels() {
    let scene = Scene::new("");
    let (status, head, page) = scene.get("/");
    assert_eq!(status, 200);
    assert!(head.contains("content-security-policy: default-src 'none'") && head.contains("text/html"), "{head}");
    assert!(page.contains("<script type=\"module\" src=\"page.js\">"));
    assert_eq!((scene.get("/page.js").0, scene.get("/page.css").0), (200, 200));
    let map = scene.until("/map.svg", |text| text.contains("/word</title>"));
    assert!(map.matches("class=\"node\"").count() == 2 && map.contains("B/s"), "{map}");
    let of = |text: &str| -> Value {
        let state: Value = serde_json::from_str(text).unwrap();
        state["channels"].as_array().unwrap().iter().find(|one| one["publisher"] == "/out").cloned().unwrap_or_default()
    };
    let text = scene.until("/api/state", |text| of(text)["received_hz"].as_f64().is_some_and(|hz| hz > 0.0));
    let channel = of(&text);
    assert_eq!((&channel["topic"], &channel["subscriber"]), (&"/word".into(), &"/in".into()));
    let series = "thalweg_channel_samples_total{topic=\"/word\",publisher=\"/out\",subscriber=\"/in\"";
    scene.until("/metrics", |text| text.contains(series));
    let stages =
        scene.until("/api/stages?topic=/word", |text| text.contains("\"total\"") || text.contains("\"callback\""));
    let stages: Value = serde_json::from_str(&stages).unwrap();
    assert_eq!(stages[0]["publisher"], "/out");
}

/// Events come by themselves, and the log tells of a channel that ends.
#[test]
fn states_come_as_events() {
    let Scene { house, _dashboard, address, _listener, _talker } = Scene::new("");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let mut next = |fits: &dyn Fn(&Value) -> bool| {
        let mut data = lines.by_ref().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
        data.find(|value: &Value| fits(value)).unwrap()
    };
    assert_eq!(next(&|value| value["may_set"].is_boolean())["may_set"], false);
    next(&|value| value["channels"].to_string().contains("/out"));
    drop(_listener);
    next(&|value| value["log"].to_string().contains("/out → /in: closed"));
    drop(house);
}

/// Nodes tell nobody of a change: it is seen by asking them.
#[test]
fn the_log_tells_what_was_set_elsewhere() {
    let scene = Scene::new("");
    scene.until("/api/state", |text| text.contains("/out"));
    // The log tells what differs from the last answer of the node, so that one change is not told if nothing was asked before it.
    let until = Instant::now() + LONG;
    let mut classes = ["high", "low"].into_iter().cycle();
    let state = loop {
        let class = classes.next().unwrap();
        scene.house.run(&format!("set /out /in class={class} --end publisher"));
        let (_, _, state) = scene.get("/api/state");
        if state.contains("publisher's end: class ") {
            break state;
        }
        assert!(Instant::now() < until, "{state}");
    };
    let state: Value = serde_json::from_str(&state).unwrap();
    let entry = state["log"].as_array().unwrap().iter().find(|entry| entry["kind"] == "setting").unwrap();
    assert!(entry["at_unix_ms"].as_u64().is_some_and(|ms| ms > 0) && entry["by"].is_null(), "{entry}");
}

#[test]
fn only_who_knows_the_token_may_set() {
    let scene = Scene::new("--allow-set TOKEN");
    scene.until("/api/state", |text| text.contains("/out"));
    let (words, known) = (r#"{"words": ["/out", "/in", "class=high"]}"#, format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(scene.set("", words).0, 401);
    assert_eq!(scene.set("Authorization: Bearer 0123456789abcdeF\r\n", words).0, 401);
    assert_eq!(scene.set(&format!("{known}Origin: http://evil.example\r\n"), words).0, 403);
    assert_eq!(scene.set(&known, r#"{"words": ["--end=both"]}"#).0, 400);
    let (status, said) = scene.set(&known, r#"{"words": ["/out", "/nowhere", "class=high"]}"#);
    assert!(status == 409 && said["error"].as_str().unwrap().contains("/nowhere"), "{status} {said}");
    let (status, said) = scene.set(&format!("{known}Origin: http://{}\r\n", scene.address), words);
    assert_eq!((status, said["ends"].as_array().map(Vec::len)), (200, Some(2)), "{said}");
    let got = scene.house.run("get /out /in --json").json();
    assert!(got.to_string().contains("\"high\""), "{got}");
    let log = scene.until("/api/state", |text| text.contains("set /out /in class=high"));
    assert!(log.contains("refused") && log.contains("the page, with the token"), "{log}");
    assert_eq!(Scene::new("").set(&known, words).0, 403, "without --allow-set nobody may");
}

#[test]
fn hostile_clients_get_nothing_and_hold_up_nobody() {
    let scene = Scene::new("--allow-set TOKEN");
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1"] {
        let (status, _, body) =
            scene.ask(&format!("GET /api/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert!(status == 421 && body.contains("--host"), "{host}: {status} {body}");
    }
    let (status, ..) = scene.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(status, 421, "no host at all");
    // Connections that say nothing, half of those there may be, and an endless header.
    let silent: Vec<TcpStream> = (0..32).map(|_| scene.connect()).collect();
    let mut endless = scene.connect();
    let line = [b"X-Long: ", &[b'x'; 8000][..], b"\r\n"].concat();
    let _ = endless.write_all(b"GET / HTTP/1.1\r\n");
    let ended = (0..1000).any(|_| endless.write_all(&line).is_err());
    assert!(ended, "8 MB of headers are not taken");
    let large = "x".repeat(20_000);
    let known = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(scene.set(&known, &format!("{{\"words\": [\"{large}\"]}}")).0, 413);
    assert_eq!(scene.get("/api/stages?topic=a//b").0, 400);
    let stages = |site: &str| {
        let (path, host) = ("/api/stages?topic=/word", &scene.address);
        scene
            .ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: {site}\r\nConnection: close\r\n\r\n"))
            .0
    };
    assert_eq!((stages("cross-site"), stages("same-origin")), (403, 200));
    assert_eq!(scene.get("/api/state").0, 200);
    drop(silent);
}

#[test]
fn unusable_arguments_are_refused_with_the_reason() {
    let house = Testbed::new();
    std::fs::write(house.path("short.txt"), "short\n").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(house.path("umlauts.txt"), "äöüäöüäöüäöüäöüäöü\n").unwrap();
    let [short, umlauts] = ["short.txt", "umlauts.txt"].map(|name| house.path(name).display().to_string());
    for (arguments, says) in [
        (format!("dashboard --at 127.0.0.1:0 --allow-set {short}"), "at least 16"),
        (format!("dashboard --at 127.0.0.1:0 --allow-set {umlauts}"), "ASCII"),
        (format!("dashboard --at {}", taken.local_addr().unwrap()), "name another port"),
        ("dashboard --at 127.0.0.1:0 --plan /does/not/exist".to_owned(), "/does/not/exist"),
    ] {
        let done = house.run(&arguments);
        assert!(done.code() == 2 && done.errors.contains(says), "{arguments}: {}", done.errors);
    }
}
