//! Publishes a position ten times a second. See `listener.rs`.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg::Node;

#[derive(Serialize, Deserialize)]
struct Position {
    x: f64,
    y: f64,
}

fn main() -> thalweg::Result<()> {
    let node = Node::open("talker")?;
    let mut publisher = node.publisher::<Position>("/position").named("/talker").open()?;
    println!("{} publishes {}; stop with Ctrl-C", publisher.name(), publisher.topic());
    for step in 0.. {
        let angle = f64::from(step) / 10.0;
        let published = publisher.publish(&Position { x: angle.cos(), y: angle.sin() })?;
        println!("sample {}: sent on {} channels, waits on {}", published.seq, published.sent, published.queued);
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
