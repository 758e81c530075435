//! A relay that lies: about its load, and about its streams.

use super::super::client::{Frame, packed};
use super::super::extremes::{NUMBERS, mutated};
use super::super::pair::LURES;
use super::super::stranger::Stranger;
use super::{Asked, FLOW, Liar};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A relay's statement of its load.
fn load() -> Value {
    json!({"proxies": 1, "samples_per_s": 1, "bytes_per_s": 1, "keeps": 1,
        "not_kept": [{"topic": "/x", "publisher": "/y", "because": "\u{1b}]0;pwned\u{7}"}]})
}

/// A relay with the name that the lured subscriber requests, which accepts streams that it cannot have, and answers
/// with extremes.
pub fn hosts(stranger: &mut Stranger) -> io::Result<()> {
    let mut liar = Liar::start_with(stranger, &LURES[5..6], |document| {
        document["relay"] = json!({"proxies": 0, "samples_per_s": 0, "bytes_per_s": 0})
    })?;
    let mut revision = 1;
    while stranger.goes_on() {
        let change =
            json!({"base": revision, "revision": revision + 1, "relay": mutated(&load(), &mut stranger.dice, 3000)});
        revision += 1;
        liar.links.retain_mut(|link| link.say(super::kind::CHANGE, change.to_string().as_bytes()).is_ok());
        stranger.tried("loads");
        if liar.links.is_empty() {
            for door in stranger.doors(false) {
                liar.tell(stranger, &door);
            }
        }
        let Some(Asked { mut stream, request }) = liar.asked(stranger, 50) else { continue };
        let mut answer = liar.acceptance(&request);
        answer["accepted"]["last_seq"] = NUMBERS[stranger.dice.below(14) as usize].into();
        answer["accepted"]["incarnation"] = NUMBERS[stranger.dice.below(14) as usize].into();
        answer["accepted"]["scaled"] = mutated(
            &json!({"selection": "1/2", "picture": "1x1", "from": 7, "node": "stranger"}),
            &mut stranger.dice,
            3000,
        );
        stranger.tried("answers of the relay");
        let _ = stream.write_all(&packed(&answer));
        for sequence in 0..20 {
            let sample = NUMBERS[stranger.dice.below(14) as usize];
            if stream.write_all(&Frame::message(FLOW, sequence, sample, &[7; 64]).bytes()).is_err() {
                break;
            }
        }
    }
    Ok(())
}
