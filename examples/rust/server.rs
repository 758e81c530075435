//! Divides for its clients. See `client.rs`.

use serde::{Deserialize, Serialize};
use thalweg::Node;

#[derive(Serialize, Deserialize)]
struct Division {
    left: i64,
    right: i64,
}

#[derive(Serialize, Deserialize)]
struct Quotient {
    value: i64,
}

fn main() -> thalweg::Result<()> {
    let node = Node::open("server")?;
    // A panic, as by a division by zero, ends this question, not the server: the client's time passes.
    let divide = |asked: &Division| Quotient { value: asked.left / asked.right };
    let _server = node.server::<Division, Quotient>("/divide", divide)?;
    println!("serves /divide");
    loop {
        std::thread::park();
    }
}
