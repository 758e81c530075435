//! The examples in Rust, C, C++ and Python, as programs against each other: each pair of languages, both ways.
//!
//! `THALWEG_PYTHON` names the interpreter; else it is `python3`. A test whose language is not here skips itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod alone;
mod lines;
mod programs;
mod roles;
mod world;

use programs::Language;
use std::time::Instant;
use world::{Ended, LONG, Running, World};

/// Positions that a listener hears, each with a text.
const POSITIONS: usize = 20;
/// Images that a subscriber reads.
const IMAGES: usize = 10;

/// A test for each pair of languages.
macro_rules! pairs {
    ($($check:ident)*) => {$(
        pairs! { $check:
            rust_to_rust Rust Rust, rust_to_c Rust C, rust_to_cpp Rust Cpp, rust_to_python Rust Python,
            c_to_rust C Rust, c_to_c C C, c_to_cpp C Cpp, c_to_python C Python,
            cpp_to_rust Cpp Rust, cpp_to_c Cpp C, cpp_to_cpp Cpp Cpp, cpp_to_python Cpp Python,
            python_to_rust Python Rust, python_to_c Python C, python_to_cpp Python Cpp, python_to_python Python Python
        }
    )*};
    ($check:ident: $($name:ident $from:ident $to:ident),*) => {
        mod $check {
            use crate::programs::Language;
            $(
                #[test]
                fn $name() {
                    super::$check(Language::$from, Language::$to);
                }
            )*
        }
    };
}

pairs! { texts images services }

/// The part of a line that publisher and subscriber print alike: the sample's number and content.
fn sample(line: &str, end: &str) -> String {
    let (sample, _) = line.split_once(end).unwrap_or_else(|| panic!("{line:?} has no {end:?}"));
    assert!(sample.starts_with("sample "), "{line:?}");
    sample.to_owned()
}

/// What came is what was sent, in order and without a gap. A publisher prints a line for each sample, from number 1.
fn came_as_sent(came: &Ended, publisher: &mut Running, count: usize) {
    assert!(came.code == Some(0) && came.lines.len() == count, "{came:?}");
    let came: Vec<String> = came.lines.iter().map(|line| sample(line, " after ")).collect();
    let first: usize = came[0].split([' ', ':']).nth(1).unwrap().parse().unwrap();
    let sent = (1..first + count).map(|_| sample(&publisher.line(), " sent on ")).skip(first - 1);
    assert_eq!(came, sent.collect::<Vec<_>>());
}

/// A listener hears a talker: structs with a text and numbers.
fn texts(from: Language, to: Language) {
    if from.runs("talker") && to.runs("listener") {
        let world = World::new();
        let listener = world.start(to, "listener", &[&POSITIONS.to_string()]);
        let mut talker = world.start(from, "talker", &[]);
        came_as_sent(&listener.end(), &mut talker, POSITIONS);
    }
}

/// Images written in loans are read where they are: both ports allow no carrier but `shm`.
fn images(from: Language, to: Language) {
    if from.runs("image_publisher") && to.runs("image_subscriber") {
        let world = World::new();
        let subscriber = world.start(to, "image_subscriber", &[]);
        let mut publisher = world.start(from, "image_publisher", &[]);
        came_as_sent(&subscriber.end(), &mut publisher, IMAGES);
    }
}

/// A client gets answers; where the server's function fails it gets an error, and the server goes on.
fn services(from: Language, to: Language) {
    if from.runs("client") && to.runs("server") {
        let world = World::new();
        let mut server = world.start(to, "server", &[]);
        assert_eq!(server.line(), "serves /divide");
        // A client gives up after 5 s; a busy machine may take longer.
        let answered = |left: &str, right: &str, said: &str| {
            let until = Instant::now() + LONG;
            let done = std::iter::repeat_with(|| world.run(from, "client", &[left, right]))
                .find(|done| done.code == Some(0) || Instant::now() >= until)
                .unwrap();
            assert!(done.code == Some(0) && done.lines == [said], "{done:?}");
        };
        answered("6", "3", "6 / 3 = 2");
        let failed = world.run(from, "client", &["1", "0"]);
        assert!(failed.code == Some(1) && failed.lines.is_empty(), "{failed:?}");
        assert!(failed.errors.contains("no answer on /divide within 5"), "{failed:?}");
        answered("-8", "2", "-8 / 2 = -4");
    }
}
