//! Administrators' lines, priorities as text, and requests from other nodes.

use crate::admin::Request;
use crate::admin::grammar::Command;
use crate::bottle::{Bottle, DEEPEST, LONGEST, MOST_ITEMS, Value};
use qos::priority::Changes;

/// Initial lines.
pub(super) fn lines() -> Vec<Vec<u8>> {
    let lines = [
        "prop set /subscriber1 (sched ((policy SCHED_FIFO) (priority 30))) (qos ((priority HIGH)))",
        "prop set /self (process ((priority -1) (policy 2))) (qos ((dscp AF42) (tos 144)))",
        "[atch] [in] (type arbitrate) (input (from /a) (level 15) (tc 0.5) (ex (/b -10)))",
        "add udp://in, list [out] /x (((((((((((((((a \"b\\\"\" -0x1f 1e3",
        "class=high sched=deadline:1ms/10ms affinity=0-3,5 priority=6",
        "level:high; priority:10; policy:1; tos:144",
        r#"{"verb":"command","port":"/a","text":"prop get"}"#,
    ];
    lines.map(|line| line.as_bytes().to_vec()).into()
}

/// Any text. A list that is read is within its limits, and is written and read back unchanged; so is a command. A
/// refusal names the position and the reason.
pub fn administration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Bottle::parse(&text) {
        Ok(bottle) => {
            let written = bottle.to_string();
            assert!(text.len() <= LONGEST && depth(&bottle.0) <= DEEPEST && items(&bottle.0) <= MOST_ITEMS);
            if written.len() <= LONGEST {
                assert_eq!(Bottle::parse(&written).as_ref(), Ok(&bottle), "a list survives being written");
                assert_eq!(Command::parse(&text), Command::parse(&written), "so does a command");
            }
        }
        Err(error) => {
            assert!(error.at >= 1 && error.at <= text.len().max(1) + 1 && !error.reason.is_empty());
            assert!(Command::parse(&text).is_err_and(|why| !why.is_empty()));
        }
    }
    for read in [text.parse::<Changes>(), Changes::from_yarp(&text)].into_iter().flatten() {
        let mut settings = Default::default();
        read.apply(&mut settings);
        let again: Result<Changes, _> = serde_json::from_str(&serde_json::to_string(&read).unwrap_or_default());
        assert_eq!(again.ok(), Some(read), "changes survive the way to another node");
    }
    if let Ok(Request::Command { text, .. }) = serde_json::from_slice(bytes) {
        let _ = Command::parse(&text);
    }
}

fn depth(values: &[Value]) -> usize {
    values.iter().filter_map(|v| v.list().map(|inner| 1 + depth(inner))).max().unwrap_or(0)
}

fn items(values: &[Value]) -> usize {
    values.iter().map(|v| 1 + v.list().map_or(0, items)).sum()
}
