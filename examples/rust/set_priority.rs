//! Sets the priority of a live channel: `set_priority /talker /listener "class=high sched=fifo:30"`.

use std::time::Duration;
use thalweg::Node;
use thalweg::admin::{Reply, Request};
use thalweg::qos::priority::Changes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [publisher, subscriber, settings] = &words[..] else {
        eprintln!("usage: set_priority PUBLISHER SUBSCRIBER SETTINGS");
        std::process::exit(2)
    };
    let (node, changes) = (Node::open("administrator")?, settings.parse::<Changes>()?);
    let holder = |port: &String| node.holder(port).ok_or_else(|| format!("no port {port} is known"));
    let ends = [(holder(publisher)?.0, publisher, subscriber), (holder(subscriber)?.0, subscriber, publisher)];
    for (holder, port, other) in ends {
        let request = Request::Set { port: port.clone(), other: other.clone(), changes: changes.clone() };
        if let Reply::Settings(ends) = node.ask(holder, &request, Duration::from_secs(3))? {
            ends.iter().for_each(|end| println!("{}: effective: {}, because {}", end.end, end.effective, end.because));
        }
    }
    Ok(())
}
