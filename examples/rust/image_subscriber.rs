//! Reads ten images in the shared memory in which they were written. See `image_publisher.rs`.

use std::time::Duration;
use thalweg::Node;
use thalweg::codec::Raw;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open("viewer")?;
    let mut images = node.subscriber::<Raw>("/image").carriers(["shm"]).open()?;
    for _ in 0..10 {
        let image = images.wait(Duration::from_secs(20)).ok_or("no image came within 20 s")?;
        let sum: usize = image.iter().map(|byte| usize::from(*byte)).sum();
        let us = image.info().latency_ns().unwrap_or(0) as f64 / 1e3;
        println!("sample {}: {} bytes, sum {sum} after {us} us", image.info().seq, image.len());
    }
    Ok(())
}
