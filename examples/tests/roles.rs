//! Parts that this program plays in a process of its own, so that it has the run directory of a test.

use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Admission, AgentSocket, Event, Node, Question};

/// The environment variable with which a test starts a role. Whoever runs all ignored tests runs none.
pub const ROLE: &str = "THALWEG_TEST_ROLE";

fn is_played(role: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|played| played == role)
}

/// An agent whose broker has admitted one session, `teleop`. Runs until it is killed.
#[test]
#[ignore = "a role in other tests"]
fn agent() {
    if !is_played("agent") {
        return;
    }
    let socket = AgentSocket::open().unwrap();
    println!("listens");
    loop {
        if let Some(asking) = socket.next(Duration::from_secs(1)).unwrap() {
            asking.answer(admission);
        }
    }
}

fn admission(question: &Question) -> Admission {
    match question.session.as_str() {
        "teleop" => Admission { admitted: true, ..Admission::default() },
        _ => Admission {
            admitted: false,
            because: Some("the link is full".to_owned()),
            offers: vec!["scale 2".to_owned()],
        },
    }
}

/// A subscriber of another type than the talker's, as `refused.c`.
#[test]
#[ignore = "a role in other tests"]
fn refused() {
    if !is_played("refused") {
        return;
    }
    let node = Node::open("refused").unwrap();
    let mut events = node.events();
    let _subscriber = node.subscriber::<Raw>("/position").open().unwrap();
    let event = std::iter::from_fn(|| events.wait(Duration::from_secs(20)))
        .find(|event| matches!(event, Event::Incompatible { policy, .. } if policy == "type"));
    println!("{}", event.unwrap());
}
