//! The installed library, as programs outside of the workspace find it: by pkg-config and by CMake.

use crate::support::{Bench, Running, built, has, home, root};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn done(command: &mut Command) -> Output {
    let done = command.output().unwrap();
    let said = [done.stdout.as_slice(), &done.stderr].map(String::from_utf8_lossy).concat();
    assert!(done.status.success(), "{command:?}: {said}");
    done
}

/// The library, installed to a folder of the bench, and the folder of its libraries below that one.
fn installed(bench: &Bench, libraries: &str) -> (PathBuf, PathBuf) {
    let prefix = bench.folder.join("prefix");
    done(Command::new(home().join("install")).arg(&prefix).arg(built()).arg(libraries));
    let libraries = prefix.join(libraries);
    (prefix, libraries)
}

/// An example that needs no other end.
fn example() -> PathBuf {
    root().join("examples/c/join_session.c")
}

/// Runs the example, which finds no agent; the loader looks for libraries in this folder only.
fn runs(bench: &Bench, program: &Path, libraries: &Path) {
    let mut command = bench.command(program);
    let output = command.args(["teleop", "/video"]).env("LD_LIBRARY_PATH", libraries).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && errors.contains("session teleop: no agent answers at"), "{errors}");
}

#[test]
fn pkg_config_finds_the_library() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let bench = Bench::new();
    let (_, libraries) = installed(&bench, "lib/x86_64-linux-gnu");
    let mut asked = Command::new("pkg-config");
    let found = done(asked.args(["--cflags", "--libs", "thalweg"]).env("PKG_CONFIG_PATH", libraries.join("pkgconfig")));
    let flags = String::from_utf8(found.stdout).unwrap();
    let program = bench.folder.join("join_session");
    done(Command::new("cc").arg("-std=c11").arg(example()).arg("-o").arg(&program).args(flags.split_whitespace()));
    runs(&bench, &program, &libraries);
}

#[test]
fn cmake_finds_both_libraries() {
    if !has("cc") || !has("cmake") {
        return;
    }
    let bench = Bench::new();
    let (prefix, libraries) = installed(&bench, "lib");
    let project = bench.folder.join("project");
    std::fs::create_dir(&project).unwrap();
    let lists = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(example LANGUAGES C)\nfind_package(thalweg 0.1 REQUIRED)\n\
         foreach(kind c c_static)\nadd_executable(with_${{kind}} {})\ntarget_link_libraries(with_${{kind}} thalweg::${{kind}})\nendforeach()\n",
        example().display()
    );
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let build = project.join("build");
    let prefixed = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    done(Command::new("cmake").arg("-S").arg(&project).arg("-B").arg(&build).arg(prefixed));
    done(Command::new("cmake").arg("--build").arg(&build));
    runs(&bench, &build.join("with_c"), &libraries);
    runs(&bench, &build.join("with_c_static"), &bench.folder.join("none"));
}

/// What `thalweg new c` writes, built as its README says.
#[test]
fn a_new_project_keeps_its_promise() {
    if !has("cc") || !has("make") || !has("pkg-config") {
        return;
    }
    let bench = Bench::new();
    let (_, libraries) = installed(&bench, "lib");
    let project = bench.folder.join("arm");
    std::fs::create_dir(&project).unwrap();
    for entry in std::fs::read_dir(root().join("crates/cli/templates/c")).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), project.join(entry.file_name())).unwrap();
    }
    let mut make = Command::new("make");
    make.arg("CFLAGS=-Wall -Wextra -Werror -pedantic").current_dir(&project);
    done(make.env("PKG_CONFIG_PATH", libraries.join("pkgconfig")));
    let start = |name: &str| Running::start(bench.command(&project.join(name)).env("LD_LIBRARY_PATH", &libraries));
    let (mut publisher, mut subscriber) = (start("publisher"), start("subscriber"));
    assert_eq!(publisher.line(), "/publisher/position/pub1 publishes /position; stop with Ctrl-C");
    // Until the first position comes it says that there is none.
    let position = (0..100).map(|_| subscriber.line()).find(|line| line.starts_with('(') && line.ends_with(" us"));
    assert!(position.is_some(), "no position came");
}

#[test]
fn a_library_that_is_not_built_is_named() {
    let bench = Bench::new();
    let output =
        Command::new(home().join("install")).arg(bench.folder.join("prefix")).arg("/does/not/exist").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("no /does/not/exist/libthalweg_c.so") && errors.contains("cargo build --release -p thalweg-c"),
        "{errors}"
    );
    assert_eq!(Command::new(home().join("install")).output().unwrap().status.code(), Some(2));
}
