//! A program under valgrind's memcheck: no access outside of memory, nothing given on that was never set, nothing lost.

use crate::support::{Bench, has, home};

#[test]
fn a_program_in_c_is_clean() {
    if !has("cc") || !has("valgrind") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(&home().join("tests/behaviour.c"));
    let mut valgrind = bench.command("valgrind".as_ref());
    valgrind.args(["-q", "--error-exitcode=9", "--fair-sched=try", "--num-callers=24"]);
    valgrind.args(["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    valgrind.arg(format!("--suppressions={}", home().join("tests/valgrind.supp").display()));
    let done = valgrind.arg(program).arg("carriers").output().unwrap();
    assert!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
}
