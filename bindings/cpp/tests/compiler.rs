//! The C++ compiler, and programs that it made, linked with the library that cargo built for this test.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// All warnings, and none is left.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];
const PLAIN: &[&str] = &["-std=c++17", "-O2"];
const SANITIZED: &[&str] = &["-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// The flags of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Build(&'static [&'static str]);

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder for what tests make.
fn made() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn compiler() -> Command {
    let mut command = Command::new("c++");
    command.args(STRICT);
    for folder in ["bindings/cpp/include", "bindings/c/include"] {
        command.arg("-I").arg(root().join(folder));
    }
    command
}

/// `true` if the compiler makes a program with these flags.
fn can(flags: &[&str]) -> bool {
    let source = made().join("empty.cpp");
    std::fs::write(&source, "int main() {}\n").unwrap();
    let made = Command::new("c++").args(flags).arg(source).arg("-o").arg(made().join("empty")).output();
    made.is_ok_and(|output| output.status.success())
}

/// The builds that this machine can make: C++17, and C++20 with sanitizers. Empty, with the reason printed, without a compiler.
pub fn builds() -> Vec<Build> {
    static FOUND: Mutex<Option<Vec<Build>>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found =
        found.get_or_insert_with(|| [PLAIN, SANITIZED].into_iter().filter(|flags| can(flags)).map(Build).collect());
    if found.is_empty() {
        println!("skipped: because there is no c++ with C++17 (Debian's package g++)");
    } else if !found.contains(&Build(SANITIZED)) {
        println!("skipped: because c++ has no C++20 with libasan and libubsan (Debian's package g++)");
    }
    found.clone()
}

/// Compiles a file without making a program of it. Fails with what the compiler says.
pub fn accepts(source: &Path, build: Build) {
    let output = compiler().args(build.0).arg("-fsyntax-only").args(["-x", "c++"]).arg(source).output().unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
}

/// The reason why the compiler refuses a text.
pub fn refuses(name: &str, text: &str, build: Build) -> String {
    let source = made().join(format!("{name}.cpp"));
    std::fs::write(&source, text).unwrap();
    let output = compiler().args(build.0).arg("-fsyntax-only").arg(&source).output().unwrap();
    assert!(!output.status.success(), "{name} was accepted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A source file with this text.
pub fn written(name: &str, text: &str) -> PathBuf {
    let source = made().join(name);
    std::fs::write(&source, text).unwrap();
    source
}

/// `true` if the machine has this program.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The folder of this program, beside which cargo builds the library.
pub fn built() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libthalweg_c.so").exists(), "no libthalweg_c.so in {}", folder.display());
    folder
}

/// The folder in which the library has the names that programs look for.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let built = built().join("libthalweg_c.so");
        let folder = made().join("library");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libthalweg.so", "libthalweg.so.0"] {
            let link = folder.join(name);
            if std::fs::read_link(&link).ok().as_ref() != Some(&built) {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(&built, &link).unwrap();
            }
        }
        folder
    })
}

/// The program of some source files, made once by each run of the tests. Different programs are made at the same time.
pub fn program(sources: &[&Path], build: Build) -> PathBuf {
    type Programs = HashMap<(Vec<PathBuf>, Build), Arc<OnceLock<PathBuf>>>;
    static ALL: Mutex<Option<Programs>> = Mutex::new(None);
    let key = (sources.iter().map(|source| source.to_path_buf()).collect(), build);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let program = all.get_or_insert_default().entry(key).or_default().clone();
    drop(all);
    program.get_or_init(|| compiled(sources, build)).clone()
}

fn compiled(sources: &[&Path], build: Build) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let program = made().join(format!("program-{number}-{}", std::process::id()));
    let library = library();
    let mut command = compiler();
    command.args(build.0).args(sources).arg("-o").arg(&program).arg("-L").arg(library).arg("-lthalweg");
    let output = command.arg(format!("-Wl,-rpath,{}", library.display())).output().unwrap();
    assert!(output.status.success(), "{sources:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program to its end, which has to be a good one.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}: {said:?}", output.status);
    output
}

/// A program that runs beside the test, and that does not outlive it.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the program ended after {line:?}: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends its input; it has to end well by that.
    pub fn finish(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
