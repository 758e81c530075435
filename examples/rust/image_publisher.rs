//! Publishes images over shared memory, each written where its subscribers read it: nothing is copied. See
//! `image_subscriber.rs`.

use std::time::Duration;
use thalweg::Node;
use thalweg::codec::Raw;

const BYTES: usize = 640 * 480 * 3;

fn main() -> thalweg::Result<()> {
    let node = Node::open("camera")?;
    let mut publisher = node.publisher::<Raw>("/image").carriers(["shm"]).open()?;
    for number in (0..=u8::MAX).cycle() {
        let mut loan = publisher.loan(BYTES)?;
        loan.bytes_mut().fill(number);
        let (published, sum) = (loan.publish()?, BYTES * usize::from(number));
        println!("sample {}: {BYTES} bytes, sum {sum} sent on {} channels", published.seq, published.sent);
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
