//! Rules that the compiler does not check, and promises of the documents: what they tell to run exists.
#![allow(clippy::unwrap_used)] // all of this is test

use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules on the way of every sample. They contain no lock without priority inheritance, and no channel of std's.
const DATA_PATH: &[&str] =
    &["carrier", "channel", "port", "wire", "wire.rs", "node/publisher.rs", "node/subscriber.rs", "driver/reader"];

/// Types that the data path must not contain; it uses `linux::lock::PiMutex` instead.
const LOCKS: &[&str] = &["Mutex<", "RwLock<", "Condvar", "parking_lot", "mpsc"];

/// Lists that only joining, leaving and closing touch: file, declaration, and the reason why no sample meets the
/// lock.
const EXEMPT: &[(&str, &str, &str)] = &[
    ("channel/flow/opening.rs", "Condvar", "stands for the futex in loom's model"),
    ("port/mod.rs", "OnceLock<Mutex<HashMap<PortRef", "all ports of the process; looked up when a channel opens"),
    ("port/mod.rs", "-> MutexGuard<'_, HashMap<PortRef", "the same"),
    (
        "port/subscriber.rs",
        "Mutex<Vec<Arc<Channel>>>",
        "the port's channels; changed when one opens or closes, read by reports",
    ),
];

/// Where unsafe code is: the kernel's calls, bindings to libraries of others, and bindings for other languages.
const UNSAFE: [&str; 4] = ["crates/linux/", "crates/cyclone/", "crates/libzmq/", "bindings/"];

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below `path` (or itself) with this extension, except in `target` and hidden folders.
fn files(path: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    if path.is_dir() && name != "target" && !name.starts_with('.') {
        let mut entries: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| files(entry, extension, found));
    } else if path.is_file() && path.extension().is_some_and(|e| e == extension) {
        found.push(path.to_owned());
    }
}

/// Lines of code with their numbers, up to the module of the file's tests (which stands at its end), without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let of_tests = |first: &str| first.starts_with("#[cfg(") && first.contains("test");
    let begins = |(line, next): (&str, &str)| of_tests(line) && next.starts_with("mod ") && next.ends_with('{');
    let end = text.lines().zip(text.lines().skip(1)).position(begins).unwrap_or(usize::MAX);
    text.lines().take(end).enumerate().map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default()))
}

#[test]
fn locks_of_the_data_path_inherit_priority() {
    let source = root().join("crates/thalweg/src");
    let mut sources = Vec::new();
    for module in DATA_PATH {
        let path = source.join(module);
        assert!(path.exists(), "{module} is gone: name the data path's modules anew");
        files(&path, "rs", &mut sources);
    }
    let mut wrong = Vec::new();
    for file in sources.iter().filter(|f| !f.ends_with("tests.rs")) {
        let name = file.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(file).unwrap();
        for (number, line) in code(&text) {
            let bare = line.replace("PiMutex<", "");
            let exempt = EXEMPT.iter().any(|(at, what, _)| *at == name && line.contains(what));
            if LOCKS.iter().any(|lock| bare.contains(lock)) && !exempt {
                wrong.push(format!("crates/thalweg/src/{name}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use linux::lock::PiMutex, or exempt it with a reason:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_is_in_linux_and_bindings_only() {
    let root = root();
    let mut sources = Vec::new();
    for room in ["bindings", "crates", "bench", "examples", "fuzz", "lab"] {
        files(&root.join(room), "rs", &mut sources);
    }
    assert!(sources.len() > 20, "only {} sources found", sources.len());
    let mut wrong = Vec::new();
    for file in &sources {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        if UNSAFE.iter().any(|room| name.starts_with(room)) || name == file!() {
            continue;
        }
        let text = std::fs::read_to_string(file).unwrap();
        let unsafe_lines = text.lines().enumerate().filter(|(_, line)| {
            let code = line.split("//").next().unwrap_or_default();
            code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
                || code.contains("allow(unsafe_code)")
        });
        wrong.extend(unsafe_lines.map(|(n, line)| format!("{name}:{}: {}", n + 1, line.trim())));
    }
    assert!(wrong.is_empty(), "unsafe code belongs into {UNSAFE:?}:\n{}", wrong.join("\n"));
}

/// Code that writes to a terminal, or to a file that may be one.
const WRITES: &[&str] = &["print!(", "println!(", "dbg!(", "stdout()", "stderr()", "/dev/std", "/dev/tty"];

/// Names, samples and reasons come from peers and may hold terminal sequences. `output.rs` escapes them, so only it
/// writes.
#[test]
fn the_command_writes_to_a_terminal_in_one_place() {
    let source = root().join("crates/cli/src");
    let mut sources = Vec::new();
    files(&source, "rs", &mut sources);
    let (mut wrong, mut allowed) = (Vec::new(), 0);
    for file in sources.iter().filter(|f| !f.ends_with("tests.rs")) {
        let name = file.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(file).unwrap();
        for (number, line) in code(&text) {
            let asks_only = line.contains(".is_terminal()");
            if WRITES.iter().any(|word| line.contains(word)) && !asks_only {
                match name.as_str() {
                    "output.rs" => allowed += 1,
                    _ => wrong.push(format!("crates/cli/src/{name}:{number}: {}", line.trim())),
                }
            }
        }
    }
    assert!(allowed > 3, "output.rs writes nothing any more: name the place anew");
    assert!(wrong.is_empty(), "write by crate::output, which escapes what peers said:\n{}", wrong.join("\n"));
}

/// All documents by their names, but those of fuzz.
pub fn documents() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    files(&root, "md", &mut found);
    let named = found
        .iter()
        .map(|f| (f.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(f).unwrap()));
    named.filter(|(name, _)| !name.starts_with("fuzz/")).collect()
}

/// The lines of a document's shell blocks, without prompt and comment.
fn shell_lines(text: &str) -> Vec<String> {
    let (mut lines, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && language.trim() == "sh";
        } else if inside {
            let line = line.split(" #").next().unwrap_or_default().trim();
            lines.push(line.strip_prefix("$ ").unwrap_or(line).to_owned());
        }
    }
    lines
}

/// The error in a command of a document, if there is one. Those of `thalweg` are parsed by crates/cli/src/tests.rs.
fn command_fails(line: &str) -> Option<String> {
    let assignment =
        |word: &&str| word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_uppercase() || c == '_'));
    let words: Vec<&str> = line.split_whitespace().skip_while(|w| assignment(w) || w.ends_with("loom'")).collect();
    let after = |flag: &str| words.iter().position(|w| *w == flag).and_then(|i| words.get(i + 1)).copied();
    match words.as_slice() {
        ["cargo", ..] => {
            let mut all = Vec::new();
            ["crates", "bench", "examples", "lab"].iter().for_each(|room| files(&root().join(room), "rs", &mut all));
            let exists = |kind: &str, name: &str| all.iter().any(|f| f.ends_with(format!("{kind}/{name}.rs")));
            let missing =
                |kind: &str, flag| after(flag).filter(|name| !exists(kind, name)).map(|n| format!("no {kind}/{n}.rs"));
            let elsewhere = after("--example").is_some_and(|name| exists("examples/rust", name));
            missing("tests", "--test").or_else(|| missing("examples", "--example").filter(|_| !elsewhere))
        }
        [script @ ("./test" | ".ci/run"), flags @ ..] => {
            let text = std::fs::read_to_string(root().join(script)).unwrap_or_default();
            let unknown = flags.iter().find(|flag| !text.contains(**flag));
            unknown
                .map(|flag| format!("{script} knows no {flag}"))
                .or_else(|| text.is_empty().then(|| format!("no {script}")))
        }
        _ => None,
    }
}

#[test]
fn commands_in_the_documents_exist() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (name, text) in documents() {
        for line in shell_lines(&text) {
            seen += 1;
            wrong.extend(command_fails(&line).map(|why| format!("{name}: {line}: {why}")));
        }
    }
    assert!(seen > 5, "only {seen} commands found: are the blocks still marked sh?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The IDs of requirements in a text: `P-09`, `YS-53`, `E-V4`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| match word.split_once('-') {
        Some(("E", error)) => matches!(error.as_bytes(), [b'Y' | b'P' | b'V' | b'D', b'1'..=b'9', ..]),
        Some(("Y" | "P" | "V" | "D" | "YS" | "U" | "F", n)) => {
            matches!(n.len(), 1..=2) && n.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    })
}

/// The page has exactly one line for each ID that is cited anywhere.
#[test]
fn ids_of_requirements_are_explained() {
    let root = root();
    let page = std::fs::read_to_string(root.join("docs/requirements.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let explained: Vec<&str> = rows.filter_map(|(first, _)| ids(first).next()).collect();
    let mut wrong: Vec<String> = explained
        .iter()
        .enumerate()
        .filter(|(n, id)| explained[..*n].contains(id))
        .map(|(_, id)| format!("{id} is explained twice"))
        .collect();
    let mut sources = Vec::new();
    ["rs", "md", "toml"].iter().for_each(|extension| files(&root, extension, &mut sources));
    let mut cited = 0;
    for file in sources {
        let text = std::fs::read_to_string(&file).unwrap();
        let missing = ids(&text).inspect(|_| cited += 1).filter(|id| !explained.contains(id));
        let name = file.strip_prefix(&root).unwrap().display();
        wrong.extend(missing.map(|id| format!("{name}: {id}")));
    }
    assert!(cited > 100, "only {cited} IDs found: are they still written so?");
    assert!(wrong.is_empty(), "not (or twice) in docs/requirements.md:\n{}", wrong.join("\n"));
}

/// Packages with their features, as cargo compiles them for the whole workspace.
fn compiled(edges: &str) -> std::collections::BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--workspace", "-f", "{p} {f}", "--prefix", "none", "-e", edges]);
    let output = tree.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let package = |line: &str| line.trim_end_matches(" (*)").trim_end().replace(",testing", "");
    lines.lines().map(package).collect()
}

/// Other features would compile the dependencies twice, for the tests and for the command
/// (docs/decisions/0004-one-profile.md). The feature `testing` of the library has no dependencies and is left out.
#[test]
fn tests_enable_no_other_features_of_common_dependencies() {
    let (command, tests) = (compiled("normal,build"), compiled("normal,build,dev"));
    let differ: Vec<_> = command.difference(&tests).collect();
    assert!(differ.is_empty(), "built with other features for tests: {differ:?}");
}

/// Cargo does not search for tests here (`autotests = false`): a file that is no module of a program would never run,
/// nor would a program that `./test` does not name.
#[test]
fn every_file_of_tests_is_run() {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let script = read(&root().join("test"));
    let mut wrong = Vec::new();
    for room in [
        "bindings/c",
        "bindings/python",
        "crates/agent",
        "crates/broker",
        "crates/qos",
        "crates/linux",
        "crates/models",
        "crates/thalweg",
        "crates/cli",
        "bindings/cpp",
        "examples/tests",
        "lab",
        "bench",
    ] {
        let manifest: toml::Table = read(&root().join(room).join("Cargo.toml")).parse().unwrap();
        let programs = manifest.get("test").and_then(toml::Value::as_array).into_iter().flatten();
        let programs: Vec<&str> = programs.map(|program| program["name"].as_str().unwrap()).collect();
        let unnamed = programs.iter().filter(|name| !script.contains(&format!("--test {name} ")));
        wrong.extend(unnamed.map(|name| format!("./test runs no --test {name}")));
        // A package that is nothing but tests has them beside its manifest.
        let folder = root().join(room.strip_suffix("/tests").unwrap_or(room)).join("tests");
        let mut sources = Vec::new();
        files(&folder, "rs", &mut sources);
        let declares = |file: &Path, name: &str| {
            file.exists() && read(file).lines().any(|line| line.trim_start_matches("pub ") == format!("mod {name};"))
        };
        for file in sources {
            let (above, name) = (file.parent().unwrap(), file.file_stem().unwrap().to_str().unwrap());
            let is_module = match name {
                "mod" => programs
                    .iter()
                    .any(|p| declares(&folder.join(format!("{p}.rs")), above.file_name().unwrap().to_str().unwrap())),
                "main" => programs.contains(&above.file_name().unwrap().to_str().unwrap()),
                _ if above == folder => {
                    programs.contains(&name) || programs.iter().any(|p| declares(&folder.join(format!("{p}.rs")), name))
                }
                _ => {
                    let parents = [above.with_extension("rs"), above.join("mod.rs"), above.join("main.rs")];
                    parents.iter().any(|parent| declares(parent, name))
                }
            };
            if !is_module {
                wrong.push(format!("{} is no module of a program", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
