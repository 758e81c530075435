//! Prints positions with their latency, and says so if none comes in time. A publisher that promises less is not matched.

#[path = "../message.rs"]
mod message;

use message::{DEADLINE, Position, TOPIC};
use thalweg::Node;

fn main() -> thalweg::Result<()> {
    let node = Node::open("subscriber")?;
    let mut subscriber = node.subscriber::<Position>(TOPIC).deadline(DEADLINE).open()?;
    loop {
        match subscriber.wait(DEADLINE) {
            Some(position) => {
                let micros = position.info().latency_ns().unwrap_or(0) / 1000;
                println!("({:.2}, {:.2}) after {micros} us", position.x, position.y);
            }
            None => println!("no position within {DEADLINE:?}"),
        }
    }
}
