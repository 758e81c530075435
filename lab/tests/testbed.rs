//! The lab with real namespaces, processes and packets.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod hostile;
mod link;
mod load;
mod topology;

/// The body of the processes that tests start: this program again.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_part() {
    let _ = thalweg_lab::play(); // an error was reported already
}
