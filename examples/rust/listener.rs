//! Prints positions with their latency; `listener COUNT` ends after so many. See `talker.rs`.

use serde::{Deserialize, Serialize};
use std::sync::mpsc;
use thalweg::Node;

#[derive(Serialize, Deserialize)]
struct Position {
    robot: String,
    x: f64,
    y: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(usize::MAX), |text| text.parse())?;
    let node = Node::open("listener")?;
    let (tell, told) = mpsc::channel();
    let _subscriber = node.subscriber::<Position>("/position").named("/listener").callback(move |at| {
        // This runs on the receiving thread, so it is short. `at` is valid until the callback returns.
        let (seq, us) = (at.info().seq, at.info().latency_ns().unwrap_or(0) as f64 / 1e3);
        let _ = tell.send(format!("sample {seq}: {} at ({:.2}, {:.2}) after {us} us", at.robot, at.x, at.y));
    })?;
    told.iter().take(count).for_each(|line| println!("{line}"));
    Ok(())
}
