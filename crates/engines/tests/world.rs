//! Nodes and addresses of a test, apart from those of all other tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thalweg::Node;

pub const LONG: Duration = Duration::from_secs(20);

/// A realm that no other test has: at most 32 characters, so that a long name is cut off.
pub fn realm(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut realm = format!("e{}-{}-{name}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    realm.truncate(32);
    realm
}

pub fn node(name: &str, realm: &str) -> Node {
    let settings = thalweg::Settings { name: name.to_owned(), realm: realm.to_owned(), ..thalweg::Settings::default() };
    Node::with_settings(settings).unwrap()
}

/// An address of loopback that no other test has.
pub fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("tcp/127.{}.{}.{}:7447", 1 + std::process::id() % 250, number / 250, 1 + number % 250)
}
