//! The page of `thalweg dashboard` in Chromium, by its DevTools protocol over a pipe.
#![allow(clippy::unwrap_used)]

use crate::support::{LONG, Running, Testbed};
use crate::verify::{pair, planned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// A browser with one page; killed when dropped.
struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    sent: u64,
    /// Errors of the page.
    problems: Vec<Value>,
}

impl Browser {
    /// `None`, with the reason printed: Chromium is not installed.
    fn open(house: &Testbed, page: &str) -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            println!("skipped: because chromium is not installed (apt-get install chromium)");
            return None;
        }
        // Commands are read from descriptor 3, answers are written to descriptor 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--window-size=1400,1000", "--remote-debugging-pipe"]);
        command.arg(format!("--user-data-dir={}", house.path("profile").display()));
        command.arg("about:blank").env("HOME", house.path(""));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let _ = tell.send(serde_json::from_slice(&message).unwrap_or_default());
            }
        });
        let mut browser = Self { child, input, messages, session: String::new(), sent: 0, problems: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        browser.call("Runtime.enable", json!({}));
        browser.call("Log.enable", json!({}));
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({"url": page}));
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut request = json!({"id": self.sent, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        self.input.write_all(request.to_string().as_bytes()).unwrap();
        self.input.write_all(&[0]).unwrap();
        loop {
            let message = self.messages.recv_timeout(LONG).expect("an answer of the browser");
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            let is_problem = message["method"] == "Runtime.exceptionThrown"
                || (message["method"] == "Log.entryAdded" && message["params"]["entry"]["level"] == "error");
            if is_problem {
                self.problems.push(message);
            }
        }
    }

    /// The value of an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        answer["result"]["value"].clone()
    }

    /// The value, once it fits.
    fn until(&mut self, expression: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LONG;
        loop {
            let value = self.value(expression);
            if fits(&value) {
                return value;
            }
            assert!(Instant::now() < until, "{expression}: {value} {:?}", self.problems);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A dashboard, and the address of its page.
fn dashboard(house: &Testbed, options: &str) -> (Running, String) {
    let dashboard = house.start(&format!("dashboard --at 127.0.0.1:0 --interval 250ms --json {options}"));
    let page = dashboard.json_line()["page"].as_str().unwrap().to_owned();
    (dashboard, page)
}

/// Topic, word and colour of the promise of each row.
const ROWS: &str = "[...document.querySelectorAll('#channels tbody tr')].map(row => \
    [row.cells[0].textContent, row.cells[4].textContent, getComputedStyle(row.cells[4]).color])";
/// The colour of a promise that is broken.
const RED: &str = "rgb(176, 0, 32)";

fn is(rows: &Value, topic: &str, word: &str) -> bool {
    rows.as_array().is_some_and(|rows| rows.iter().any(|row| row[0] == topic && row[1] == word))
}

#[test]
fn a_delay_turns_that_channel_red_and_no_other_one() {
    let (house, plan) = planned();
    let (_dashboard, page) = dashboard(&house, &format!("--plan {plan}"));
    let Some(mut browser) = Browser::open(&house, &page) else { return };
    let [well, _joints] = pair(&house, "joints", "udp", "");
    let _gaze = pair(&house, "gaze", "tcp", "");
    browser.until(ROWS, |rows| is(rows, "/joints", "kept") && is(rows, "/gaze", "kept"));
    drop(well);
    let _late = house.start("sub /joints --port /base/joints --carrier udp --json --fault delay=200ms");
    // On a busy machine the other channel may be late, too, but not always.
    let fits = |rows: &Value| is(rows, "/joints", "broken") && is(rows, "/gaze", "kept");
    let rows = browser.until(ROWS, fits);
    for row in rows.as_array().unwrap() {
        assert_eq!(row[2] == RED, row[0] == "/joints", "{rows}");
    }
    let summary = browser.value("document.getElementById('summary').textContent");
    assert!(summary.as_str().unwrap().contains("broken"), "{summary}");
}

#[test]
fn the_page_shows_network_stages_losses_and_log_without_an_error() {
    let house = Testbed::new();
    let (_dashboard, page) = dashboard(&house, "");
    let Some(mut browser) = Browser::open(&house, &page) else { return };
    browser.until("document.getElementById('none').hidden", |hidden| hidden == false);
    let _listener = house.start("sub /word --port /in");
    let _talker = house.start("pub /word --port /out --rate 200");
    browser.until(ROWS, |rows| is(rows, "/word", ""));
    browser.until("document.querySelectorAll('#map .node').length", |count| count == 2);
    browser.until("document.querySelector('#map line title')?.textContent", |title| {
        title.as_str().is_some_and(|title| title.contains("/word"))
    });
    browser.value("document.querySelector('#channels tbody tr').click()");
    browser.until("document.querySelectorAll('#stages tbody tr').length", |count| count.as_u64() > Some(2));
    house.run("set /out /in class=high");
    browser.until("document.getElementById('log').textContent", |log| {
        log.as_str().is_some_and(|log| log.contains("/out → /in: opened") && log.contains("class high"))
    });
    assert_eq!(browser.value("document.getElementById('losses').hidden"), true);
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

/// The picture of the page in the README: the page during the demo. `THALWEG_PICTURE` names the file.
#[test]
#[ignore = "makes the picture of the README"]
fn picture() {
    use base64::Engine;
    let file = std::env::var("THALWEG_PICTURE").expect("THALWEG_PICTURE names the file");
    let house = Testbed::new();
    let _demo = house.start("demo --seconds 30 --realm demo --json");
    let (_dashboard, page) = dashboard(&house, "--realm demo");
    let Some(mut browser) = Browser::open(&house, &page) else { return };
    browser.until(ROWS, |rows| rows.as_array().is_some_and(|rows| rows.len() >= 4));
    browser.value("document.querySelector('#channels tbody tr').click()");
    browser.until("document.querySelectorAll('#stages tbody tr').length", |count| count.as_u64() > Some(2));
    let picture = browser.call("Page.captureScreenshot", json!({"format": "png"}));
    let bytes = base64::prelude::BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
}
