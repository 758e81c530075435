//! An interpreter, the package as it would be installed, and programs.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The longest run of a program, in steps; one that takes longer hangs.
const STEPS: u32 = 1800;
const STEP: Duration = Duration::from_millis(100);

pub fn skipped(why: impl fmt::Display) {
    println!("skipped: because {why}");
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn examples() -> Vec<PathBuf> {
    let folder = root().join("../../examples/python").canonicalize().unwrap();
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "py"));
    found.sort();
    found
}

/// The compiled library, beside this program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2).map(|folder| folder.join("lib_thalweg.so"));
    folders.find(|path| path.exists()).expect("lib_thalweg.so beside this program: cargo builds it before")
}

/// The package in a folder of its own, and a run directory; removed when dropped.
pub struct Package(PathBuf);

impl Package {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("thalweg-python-{}-{number}", std::process::id()));
        let package = folder.join("thalweg");
        std::fs::create_dir_all(&package).unwrap();
        for entry in std::fs::read_dir(root().join("thalweg")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
            }
        }
        std::os::unix::fs::symlink(library(), package.join("_thalweg.abi3.so")).unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An interpreter.
pub struct Python(String);

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Python {
    /// One that is new enough and has these modules; `None`, with the reason printed, if there is none.
    pub fn find(modules: &[&str]) -> Option<Self> {
        let python = Self(std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned()));
        let runs = |text: &str| {
            let status = Command::new(&python.0).args(["-c", text]).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        if !runs("import sys; sys.exit(sys.version_info < (3, 11))") {
            skipped(format!("{python} is not there, or older than 3.11 (THALWEG_PYTHON names another)"));
            return None;
        }
        let missing = modules.iter().find(|module| !runs(&format!("import {module}")));
        if let Some(module) = missing {
            skipped(format!("{python} has no {module} (THALWEG_PYTHON names another)"));
            return None;
        }
        Some(python)
    }

    /// The interpreter with the package, and no files written beside the sources.
    pub fn command(&self, package: &Package) -> Command {
        let mut command = Command::new(&self.0);
        command.env("PYTHONPATH", &package.0).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        command.stdin(Stdio::null());
        command
    }

    /// An example, apart from other nodes of this user.
    pub fn example(&self, package: &Package, name: &str) -> Command {
        let mut command = self.command(package);
        command
            .arg(root().join(format!("../../examples/python/{name}.py")))
            .env("THALWEG_RUN_DIR", package.path("run"));
        command
    }
}

/// What a program prints until it ends by itself, in time and with success.
pub fn output(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    std::thread::scope(|scope| {
        let (said, told) = (scope.spawn(|| read(&mut stdout)), scope.spawn(|| read(&mut stderr)));
        let ended = (0..STEPS).find_map(|_| {
            std::thread::sleep(STEP);
            child.try_wait().unwrap()
        });
        if ended.is_none() {
            child.kill().unwrap();
        }
        let text = format!("{}{}", said.join().unwrap(), told.join().unwrap());
        println!("{text}");
        assert!(ended.is_some_and(|status| status.success()), "{command:?}: {ended:?} (none: it hung)\n{text}");
        text
    })
}

/// A program that prints lines; killed when dropped.
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended: {:?}", self.child.try_wait());
        line.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
