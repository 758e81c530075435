//! Prints ten positions (or the number given as argument) with their latency. See `talker.rs`.

use serde::{Deserialize, Serialize};
use std::sync::mpsc;
use thalweg::Node;

#[derive(Serialize, Deserialize)]
struct Position {
    x: f64,
    y: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let node = Node::open("listener")?;
    let (tell, told) = mpsc::channel();
    let _subscriber = node.subscriber::<Position>("/position").named("/listener").callback(move |position| {
        // This runs on the receiving thread, so it is short. `position` is valid until the callback returns.
        let micros = position.info().latency_ns().unwrap_or(0) / 1000;
        let _ = tell.send(format!(
            "sample {}: ({:.2}, {:.2}) after {micros} µs",
            position.info().seq,
            position.x,
            position.y
        ));
    })?;
    for line in told.iter().take(count) {
        println!("{line}");
    }
    Ok(())
}
