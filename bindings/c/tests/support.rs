//! The built library, and programs that are compiled against it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder of this crate.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the workspace.
pub fn root() -> &'static Path {
    home().ancestors().nth(2).unwrap()
}

/// The folder with the libraries: cargo builds them beside this test program.
pub fn built() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libthalweg_c.so").exists(), "no libthalweg_c.so in {}", folder.display());
    folder
}

/// `true` if the machine has this program; otherwise the reason is printed why a test does nothing.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("\nskipped: because there is no {program}");
    }
    found
}

/// A folder for programs and the run directory of their nodes, which is deleted in the end.
pub struct Bench {
    pub folder: PathBuf,
}

impl Bench {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("thalweg-c-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("run")).unwrap();
        // As the linker and the loader look for it.
        for name in ["libthalweg.so", "libthalweg.so.0"] {
            std::os::unix::fs::symlink(built().join("libthalweg_c.so"), folder.join(name)).unwrap();
        }
        Self { folder }
    }

    /// Compiles a program in C; the compiler's complaints fail the test.
    pub fn compile(&self, source: &Path) -> PathBuf {
        let (program, done) = self.cc(source);
        assert!(done.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&done.stderr));
        program
    }

    /// What the compiler makes of a program in C, and says.
    pub fn cc(&self, source: &Path) -> (PathBuf, Output) {
        let program = self.folder.join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"]).arg(home().join("include"));
        cc.arg(source).arg("-o").arg(&program).arg("-L").arg(&self.folder).args(["-lthalweg", "-pthread"]);
        let done = cc.output().unwrap();
        (program, done)
    }

    /// A program that finds the library, in a world of its own.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.folder).env("THALWEG_RUN_DIR", self.folder.join("run"));
        command
    }

    /// Runs a program to its end.
    pub fn run<A: AsRef<OsStr>>(&self, program: &Path, arguments: impl IntoIterator<Item = A>) -> Output {
        self.command(program).args(arguments).output().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that runs until the test ends.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        self.lines.next().expect("the program ended").unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
