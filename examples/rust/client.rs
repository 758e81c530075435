//! Asks a server for 6 / 3, or another division: `client LEFT RIGHT`. See `server.rs`.

use serde::{Deserialize, Serialize};
use std::time::Duration;
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at: usize, default: i64| std::env::args().nth(at).map_or(Ok(default), |text| text.parse());
    let (left, right) = (number(1, 6)?, number(2, 3)?);
    let node = Node::open("client")?;
    let mut client = node.client::<Division, Quotient>("/divide")?;
    let quotient = client.call(Division { left, right }, Duration::from_secs(5))?;
    println!("{left} / {right} = {}", quotient.value);
    Ok(())
}
