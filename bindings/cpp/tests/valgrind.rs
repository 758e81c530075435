//! A program under valgrind's memcheck, as for C (`bindings/c/tests/valgrind.rs`), with a node in Rust at the other end.

use crate::compiler::{Running, builds, has, program, root};
use crate::values::{Dice, Everything, Value};
use crate::{LONG, realm};
use std::process::Command;
use thalweg::{Node, Settings};

#[test]
fn a_program_in_cpp_is_clean() {
    let Some(build) = builds().into_iter().next() else { return };
    if !has("valgrind") {
        return println!("skipped: because there is no valgrind");
    }
    let realm = realm("valgrind");
    let node = Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=9", "--fair-sched=try", "--num-callers=24"]);
    valgrind.args(["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    valgrind.arg(format!("--suppressions={}", root().join("bindings/c/tests/valgrind.supp").display()));
    valgrind.arg(program(&[&root().join("bindings/cpp/tests/ports.cpp")], build)).args(["echo", &realm]);
    let mut running = Running::start(&mut valgrind);
    assert_eq!(running.line(), "ready");
    let mut dice = Dice::new();
    for carrier in ["shm", "tcp"] {
        let mut questions = node.publisher::<Everything>("/everything").carriers([carrier]).open().unwrap();
        let mut answers = node.subscriber::<Everything>("/everything/back").carriers([carrier]).open().unwrap();
        assert!(questions.wait_connected(1, LONG) && answers.wait_connected(1, LONG), "{carrier}");
        for _ in 0..20 {
            let value = Everything::draw(&mut dice);
            questions.publish(&value).unwrap();
            assert_eq!(answers.wait(LONG).unwrap().show(), value.show(), "{carrier}");
        }
    }
    running.finish();
}
