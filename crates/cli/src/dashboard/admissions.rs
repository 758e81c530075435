//! Sessions that a broker admits, changes and ends, as its accounts have them: with the time, and with who asked.

use crate::output::tell;
use agent::accounts::{Entry, Event, Record};
use agent::client::Client;
use linux::thread;
use qos::show_bit_rate;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Pause between two questions to the broker, while somebody looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Records of before that are told at first.
const BEFORE: usize = 20;
/// News that wait for the next look.
const WAITING: usize = 256;

/// What became of a session.
#[derive(Debug)]
pub(super) struct Admission {
    /// The broker's time, milliseconds since 1970.
    pub(super) at_unix_ms: u64,
    pub(super) text: String,
    /// Who asked for it.
    pub(super) by: String,
}

/// Follows the accounts of a broker, on a thread of its own: the broker may be far away.
pub(super) struct Admissions {
    news: Receiver<Admission>,
    watched: Arc<AtomicBool>,
}

impl Admissions {
    /// Follows while somebody looks, for as long as the process lives.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(client: Client) -> std::io::Result<Self> {
        let (tell, news) = sync_channel(WAITING);
        let watched = Arc::new(AtomicBool::new(false));
        let asked = watched.clone();
        // TLS needs more than threads have by default.
        let settings = thread::Settings { stack: 2 << 20, ..thread::Settings::named("admissions") };
        thread::spawn(settings, move || follow(&client, &asked, &tell))?;
        Ok(Self { news, watched })
    }

    /// Whether somebody looks.
    pub(super) fn watch(&self, watched: bool) {
        self.watched.store(watched, Relaxed);
    }

    /// What has come since the last call.
    pub(super) fn take(&self) -> impl Iterator<Item = Admission> {
        self.news.try_iter()
    }
}

/// Asks until nobody takes the news any more.
fn follow(client: &Client, watched: &AtomicBool, news: &SyncSender<Admission>) {
    let (mut last, mut first, mut failed) = (0, true, false);
    loop {
        if watched.load(Relaxed) {
            match records_behind(client, last) {
                Ok(records) => {
                    last = records.last().map_or(last, |record| record.number);
                    let told: Vec<Admission> = records.iter().filter_map(admission).collect();
                    let skipped = if first { told.len().saturating_sub(BEFORE) } else { 0 };
                    (first, failed) = (false, false);
                    if told.into_iter().skip(skipped).any(|one| news.send(one).is_err()) {
                        return;
                    }
                }
                Err(why) if !failed => {
                    failed = true;
                    tell(&format!("warning: no admissions are shown: {why}"));
                }
                Err(_) => {}
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn records_behind(client: &Client, mut last: u64) -> Result<Vec<Record>, String> {
    let mut found: Vec<Record> = Vec::new();
    loop {
        let lines = client.accounts(last).map_err(|error| error.to_string())?;
        let read = lines.iter().map(|line| serde_json::from_str(line).map_err(|error| format!("a record: {error}")));
        let records: Vec<Record> = read.collect::<Result<_, _>>()?;
        match records.last() {
            Some(record) if record.number > last => last = record.number,
            _ => return Ok(found),
        }
        found.extend(records);
        // Of a long past only the end is told.
        found.drain(..found.len().saturating_sub(WAITING));
    }
}

/// What a record says of a session; `None`: nothing that anybody decided.
fn admission(Record { unix_ms, entry, .. }: &Record) -> Option<Admission> {
    let Entry { event, session, owner, rate_bits_per_s, because, .. } = entry;
    let what = match event {
        Event::Start => "admitted",
        Event::Change => "admitted with another file",
        Event::Suspend => "suspended",
        Event::Resume => "runs again",
        Event::Thin => "gets another rate",
        Event::Stop => "ended",
        Event::Interim | Event::Sign | Event::Countersign => return None,
    };
    let rate =
        if *rate_bits_per_s > 0 { format!(", {}", show_bit_rate(*rate_bits_per_s as f64)) } else { String::new() };
    let why = if because.is_empty() { String::new() } else { format!(": {because}") };
    Some(Admission { at_unix_ms: *unix_ms, text: format!("session {session} {what}{rate}{why}"), by: owner.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_became_of_a_session_and_who_asked() {
        let record = |event: &str, rate: u64| -> Record {
            let record = serde_json::json!({
                "number": 1, "unix_ms": 7, "event": event, "session": "camera", "owner": "realm/user/ada", "rate_bits_per_s": rate, "price": 0, "before": "",
            });
            serde_json::from_value(record).unwrap()
        };
        let Admission { at_unix_ms, text, by } = admission(&record("start", 2_000_000)).unwrap();
        assert_eq!(
            (at_unix_ms, text.as_str(), by.as_str()),
            (7, "session camera admitted, 2 Mbit/s", "realm/user/ada")
        );
        assert_eq!(admission(&record("stop", 0)).unwrap().text, "session camera ended");
        assert!(admission(&record("interim", 1)).is_none());
    }
}
