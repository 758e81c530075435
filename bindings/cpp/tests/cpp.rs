//! The C++ interface: its headers compile alone and without a warning, and programs that use them talk to nodes in Rust. Its examples
//! run in `examples/tests`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod codec;
mod compiler;
mod valgrind;
mod values;

use compiler::{Build, Running, accepts, builds, built, has, program, refuses, root, run, written};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use thalweg::codec::{Plain, Raw, Untyped, to_cdr};
use thalweg::{Node, Settings};
use values::{Dice, Everything, Nested, Sum, Total, Value};

const LONG: Duration = Duration::from_secs(60);

/// The files of a folder with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} in {folder}");
    found
}

fn realm(name: &str) -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("cpp-{name}-{}-{count}", std::process::id())
}

/// A node in Rust, and a program in C++ that plays its part in the same realm.
fn ends(scenario: &str, build: Build) -> (Node, Running) {
    let realm = realm(scenario);
    let node = Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap();
    let program = program(&[&root().join("bindings/cpp/tests/ports.cpp")], build);
    (node, Running::start(Command::new(program).args([scenario, &realm])))
}

#[test]
fn each_header_compiles_alone() {
    let headers = [files("bindings/cpp/include", "hpp"), files("bindings/cpp/include/thalweg", "hpp")].concat();
    for build in builds().into_iter().take(1) {
        headers.iter().for_each(|header| accepts(header, build));
    }
}

/// What cannot be sent is refused when the program is compiled, with the remedy.
#[test]
fn wrong_types_are_refused_with_a_remedy() {
    let cases = [
        ("pointer", "struct A { int* p; }; THALWEG_STRUCT(A, p)", "name the fields of a struct with THALWEG_STRUCT"),
        ("fewer", "struct A { int x; double y; }; THALWEG_STRUCT(A, x)", "names fewer fields than the struct has"),
        (
            "unlisted",
            "struct B { int x; }; struct A { B b; }; THALWEG_STRUCT(A, b)",
            "name the fields of a struct with THALWEG_STRUCT",
        ),
        ("padded", "using A = thalweg::Plain<bool>;", "numbers only and no padding"),
    ];
    for build in builds().into_iter().take(1) {
        for (name, declared, remedy) in cases {
            let text = format!(
                "#include <thalweg.hpp>\n{declared}\nvoid open(const thalweg::Node& node) {{ node.publisher<A>(\"/a\").open().publish({{}}); }}\n"
            );
            let said = refuses(name, &text, build);
            assert!(said.contains(remedy), "{name}: {said}");
        }
    }
}

#[test]
fn a_program_needs_no_other_end() {
    for build in builds() {
        let program = program(&[&root().join("bindings/cpp/tests/alone.cpp")], build);
        let output = run(Command::new(program).arg(realm("alone")));
        let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(said, "ok\n");
        assert!(wrong.contains("/unhandled failed: nobody handles this"), "{wrong}");
    }
}

/// Values go to the program and come back as they went. That the ports find each other shows that the types are the same.
fn come_back<T: Value + Serialize + DeserializeOwned + Send + 'static>(node: &Node, topic: &str, dice: &mut Dice) {
    let mut questions = node.publisher::<T>(topic).open().unwrap();
    let mut answers = node.subscriber::<T>(&format!("{topic}/back")).open().unwrap();
    assert!(questions.wait_connected(1, LONG) && answers.wait_connected(1, LONG), "{topic}");
    for _ in 0..20 {
        let value = T::draw(dice);
        questions.publish(&value).unwrap();
        let answer = answers.wait(LONG).unwrap();
        assert_eq!(answer.show(), value.show(), "{topic}");
    }
}

#[test]
fn values_come_back_as_they_went() {
    let mut dice = Dice::new();
    for build in builds() {
        let (node, mut program) = ends("echo", build);
        assert_eq!(program.line(), "ready");
        come_back::<Everything>(&node, "/everything", &mut dice);
        come_back::<Nested>(&node, "/nested", &mut dice);
        come_back::<String>(&node, "/text", &mut dice);
        come_back::<Vec<f64>>(&node, "/numbers", &mut dice);
        program.finish();
    }
}

#[test]
fn images_are_written_in_place() {
    for build in builds() {
        let (node, mut program) = ends("image", build);
        assert_eq!(program.line(), "ready");
        let mut images = node.publisher::<Raw>("/images").carriers(["shm"]).open().unwrap();
        let mut inverted = node.subscriber::<Raw>("/inverted").carriers(["shm"]).open().unwrap();
        assert!(images.wait_connected(1, LONG) && inverted.wait_connected(1, LONG));
        for length in [2, 1000, 640 * 480 * 3, 3] {
            let image: Vec<u8> = (0..length).map(|at| at as u8).collect();
            images.publish(&image).unwrap();
            let answer = inverted.wait(LONG).unwrap();
            assert!(answer.len() == length && answer.iter().zip(&image).all(|(one, other)| *one == !*other));
        }
        images.publish(&[0]).unwrap();
        program.finish();
    }
}

#[test]
fn plain_values_are_those_of_rust() {
    for build in builds() {
        let (node, mut program) = ends("plain", build);
        assert_eq!(program.line(), "ready");
        let mut values = node.publisher::<Plain<[f64; 3]>>("/values").open().unwrap();
        let mut turned = node.subscriber::<Plain<[f64; 3]>>("/turned").open().unwrap();
        assert!(values.wait_connected(1, LONG) && turned.wait_connected(1, LONG), "the types are the same");
        values.publish(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(*turned.wait(LONG).unwrap(), [3.0, 2.0, 1.0]);
        program.finish();
    }
}

#[test]
fn a_server_answers_a_client_in_rust() {
    for build in builds() {
        let (node, mut program) = ends("server", build);
        assert_eq!(program.line(), "ready");
        let mut client = node.client::<Sum, Total>("/add").unwrap();
        let total = client.call(Sum { left: -3, right: 5 }, LONG).unwrap();
        assert_eq!((total.total, total.text.as_str()), (2, "-3 + 5"));
        // It throws, answers nothing, and goes on.
        assert!(client.call(Sum { left: 1, right: 0 }, Duration::from_millis(50)).is_err());
        assert_eq!(client.call(Sum { left: 1, right: 1 }, LONG).unwrap().total, 2);
        program.finish();
    }
}

#[test]
fn a_client_asks_a_server_in_rust() {
    for build in builds() {
        let (node, mut program) = ends("client", build);
        let _server = node.server("/add", |sum: &Sum| Total {
            total: sum.left + sum.right,
            text: format!("{}+{}", sum.left, sum.right),
        });
        for n in 1..=3 {
            assert_eq!(program.line(), format!("{n}+{} = {}", 10 * n, 11 * n));
        }
        program.finish();
    }
}

#[test]
fn types_of_ros_are_told_to_others() {
    for build in builds() {
        let (node, mut program) = ends("ros", build);
        assert_eq!(program.line(), "ready");
        for (topic, text) in [("/chatter", "hello"), ("/encoded", "bytes")] {
            let mut subscriber = node.subscriber::<Untyped>(topic).transient_local(1).open().unwrap();
            let sample = subscriber.wait(LONG).unwrap();
            let publisher = subscriber.publisher(sample.info()).unwrap();
            let ros = publisher.message.ros.as_ref().map(|ros| ros.name.as_str());
            assert_eq!((ros, publisher.message.name.as_str()), (Some("std_msgs/msg/String"), "String"));
            assert_eq!(sample[..], to_cdr(text).unwrap());
        }
        program.finish();
    }
}

/// The examples as users build them: installed headers and library, one `find_package`.
#[test]
fn cmake_finds_the_headers() {
    if builds().is_empty() {
        return;
    }
    if !has("cmake") {
        return println!("skipped: because there is no cmake");
    }
    let house = std::env::temp_dir().join(realm("cmake"));
    let (prefix, build) = (house.join("prefix"), house.join("build"));
    run(Command::new(root().join("bindings/c/install")).arg(&prefix).arg(built()));
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(root().join("examples/cpp")).arg("-B").arg(&build);
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    // The one that needs no other end: it finds no agent.
    let mut example = Command::new(build.join("join_session"));
    let output = example.args(["teleop", "/video"]).env("THALWEG_RUN_DIR", &house).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("session teleop: no agent answers at"), "{said}");
    std::fs::remove_dir_all(&house).unwrap();
}

/// What `thalweg new cpp` writes.
#[test]
fn a_new_project_keeps_its_promise() {
    let Some(build) = builds().into_iter().next() else { return };
    let template = root().join("crates/cli/templates/cpp");
    let run_dir = std::env::temp_dir().join(realm("new"));
    let start = |name: &str| {
        let source = template.join(name).with_extension("cpp");
        Running::start(Command::new(program(&[&source], build)).env("THALWEG_RUN_DIR", &run_dir))
    };
    let (mut publisher, mut subscriber) = (start("publisher"), start("subscriber"));
    assert_eq!(publisher.line(), "/publisher/position/pub1 publishes /position; stop with Ctrl-C");
    // Until the first position comes it says that there is none.
    let position = (0..100).map(|_| subscriber.line()).find(|line| line.starts_with('(') && line.ends_with(" us"));
    assert!(position.is_some(), "no position came");
    drop((publisher, subscriber));
    std::fs::remove_dir_all(&run_dir).unwrap();
}

/// The C++ in README.md and in the pages: whole programs as they are, pieces as the body of a function.
#[test]
fn the_pages_compile() {
    let Some(build) = builds().into_iter().next() else { return };
    let pages = [files("docs", "md"), vec![root().join("README.md")]].concat();
    let texts: Vec<String> = pages.iter().map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let after = texts.iter().flat_map(|text| text.split("```cpp\n").skip(1));
    let blocks: Vec<&str> = after.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 8, "{} blocks", blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        let text = match block.contains("int main") {
            true => (*block).to_owned(),
            false => format!(
                "{}\n[[maybe_unused]] static void piece(thalweg::Node& node) {{\n{block}\n}}\n",
                include_str!("page.hpp")
            ),
        };
        accepts(&written(&format!("page-{number}.cpp"), &text), build);
    }
}

/// Nothing in the headers is defined twice in a program of several files.
#[test]
fn several_files_of_a_program_include_it() {
    let Some(build) = builds().into_iter().next() else { return };
    let other = written("other.cpp", "#include <thalweg.hpp>\nstd::string other() { return thalweg::version(); }\n");
    let main = "std::string other();\nint main() { return other() == thalweg_version() ? 0 : 1; }\n";
    let main = written("main.cpp", &format!("#include <thalweg.hpp>\n#include <thalweg.h>\n{main}"));
    run(&mut Command::new(program(&[&main, &other], build)));
}
