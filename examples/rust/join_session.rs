//! Publishes as part of a session that a broker has admitted: `join_session SESSION /TOPIC`.

use thalweg::Node;
use thalweg::codec::Raw;

fn main() -> thalweg::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [session, topic] = &words[..] else {
        eprintln!("usage: join_session SESSION /TOPIC");
        std::process::exit(2)
    };
    let node = Node::open("joiner")?;
    let mut publisher = node.publisher::<Raw>(topic).session(session).open()?;
    publisher.publish(b"hello")?;
    println!("{} publishes as part of {session}", publisher.name());
    Ok(())
}
