//! The parts of a service: one answers, the other asks.

use super::roles::Words;
use serde_json::json;
use std::io::BufRead;
use std::time::Duration;
use thalweg::Node;
use thalweg::admin::{Reply, Request};

/// Answers until the test ends it.
pub fn answer(node: &Node) {
    let _server = node.server("/echo", |number: &u64| *number).unwrap();
    println!("\n@{{}}");
    std::io::stdin().lock().lines().map_while(Result::ok).for_each(drop);
}

/// Asks on request: `call number=7 ms=200`; `channels` returns the channels of its node.
pub fn ask(node: &Node) {
    let mut client = node.client::<u64, u64>("/echo").unwrap();
    println!("\n@{{}}");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (verb, words) = Words::parse(&line);
        let answer = match verb.as_str() {
            "call" => {
                let (number, patience) = (words.number("number", 0), words.number("ms", 20_000));
                json!({"ok": client.call(number, Duration::from_millis(patience)).is_ok_and(|answer| answer == number)})
            }
            "channels" => match node.ask(node.id(), &Request::Channels, super::LONG) {
                Ok(Reply::Channels(channels)) => json!(channels),
                other => panic!("{other:?}"),
            },
            _ => panic!("no such command: {verb}"),
        };
        println!("\n@{answer}");
    }
}
