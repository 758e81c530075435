//! Publishes the position of a robot ten times a second. See `listener.rs`.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg::Node;

#[derive(Serialize, Deserialize)]
struct Position {
    robot: String,
    x: f64,
    y: f64,
}

fn main() -> thalweg::Result<()> {
    let node = Node::open("talker")?;
    let mut publisher = node.publisher::<Position>("/position").named("/talker").open()?;
    for step in 0.. {
        let x = f64::from(step) / 10.0;
        let published = publisher.publish(&Position { robot: "Zoë".to_owned(), x, y: x * x })?;
        println!("sample {}: Zoë at ({x:.2}, {:.2}) sent on {} channels", published.seq, x * x, published.sent);
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
