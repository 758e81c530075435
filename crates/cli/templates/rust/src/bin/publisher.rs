//! Publishes a position ten times a second, and promises one at least every 200 ms.

#[path = "../message.rs"]
mod message;

use message::{DEADLINE, Position, TOPIC};
use std::time::Duration;
use thalweg::Node;

fn main() -> thalweg::Result<()> {
    let node = Node::open("publisher")?;
    let mut publisher = node.publisher::<Position>(TOPIC).deadline(DEADLINE).open()?;
    println!("{} publishes {}; stop with Ctrl-C", publisher.name(), publisher.topic());
    for step in 0.. {
        let angle = f64::from(step) / 10.0;
        publisher.publish(&Position { x: angle.cos(), y: angle.sin() })?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
