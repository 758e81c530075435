//! What happened to sessions, from the broker's accounts: it is there after a crash, and for whoever was not looking.

use crate::domain::failure;
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use agent::accounts::{Event, Record, shown_time};
use agent::client::Client;

/// Shows the events behind a record, of one session or of all.
pub(super) fn log(client: &Client, name: Option<&str>, since: u64, output: Output) -> Result {
    let mut events = Vec::new();
    let mut last = since;
    loop {
        let lines = client.accounts(last).map_err(failure)?;
        for line in &lines {
            let record: Record = serde_json::from_str(line)
                .map_err(|error| Failure::System(format!("the broker's record behind {last}: {error}")))?;
            last = record.number;
            if is_event(record.entry.event) && name.is_none_or(|name| is_of(name, &record.entry.session)) {
                events.push(record);
            }
        }
        if lines.is_empty() {
            return output.result(&events, || shown(&events));
        }
    }
}

fn is_event(event: Event) -> bool {
    !matches!(event, Event::Interim | Event::Sign | Event::Countersign)
}

/// `true` if a record's session has this name, in this domain or in the one that asked for it.
fn is_of(name: &str, session: &str) -> bool {
    session == name || matches!(session.split('/').collect::<Vec<_>>()[..], [_, own, _] if own == name)
}

fn shown(events: &[Record]) -> String {
    if events.is_empty() {
        return "nothing has happened to it that the broker has kept".to_owned();
    }
    let row = |record: &Record| {
        let entry = &record.entry;
        let owner = entry.owner.rsplit('/').next().unwrap_or(&entry.owner);
        let (at, event) = (shown_time(record.unix_ms), entry.event.to_string());
        let texts = [&at, &event, entry.session.as_str(), owner, &entry.because];
        std::iter::once(record.number.to_string()).chain(texts.map(str::to_owned)).collect::<Vec<_>>()
    };
    let headers = [("record", '>'), ("at", '<'), ("event", '<'), ("session", '<'), ("owner", '<'), ("because", '<')];
    table(&headers, &events.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_over_several_domains_has_its_name_in_the_first_one() {
        assert!(is_of("camera", "camera") && is_of("camera", "robot/camera/17"));
        assert!(
            !is_of("camera", "robot/lidar/17") && !is_of("robot", "robot/camera/17") && !is_of("17", "robot/camera/17")
        );
    }
}
