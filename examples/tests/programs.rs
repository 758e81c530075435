//! The examples as programs: those in C and C++ are compiled once by each run of the tests, those in Rust by cargo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A language that has the examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
    Cpp,
    Python,
}

/// All warnings, and none is left.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-pthread"];

/// The folder of the examples.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

impl Language {
    /// The folder of its examples.
    pub fn folder(self) -> PathBuf {
        home().join(match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Python => "python",
        })
    }

    /// The extension of the examples.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Rust => "rs",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Python => "py",
        }
    }

    /// `true` if this machine runs the example; otherwise the reason is printed why a test does nothing.
    pub fn runs(self, name: &str) -> bool {
        let lacks = match self {
            Self::Rust => None,
            Self::C => (!is_there("cc")).then(|| "there is no cc (Debian's package gcc)".to_owned()),
            Self::Cpp => (!is_there("c++")).then(|| "there is no c++ (Debian's package g++)".to_owned()),
            Self::Python => python_lacks(name.starts_with("image")),
        };
        if let Some(lacks) = &lacks {
            println!("\nskipped: because {lacks}");
        }
        lacks.is_none()
    }

    /// The example as a program. `refused` is one of the tests' own.
    pub fn program(self, name: &str) -> Command {
        let folder = if name == "refused" { home().join("tests") } else { self.folder() };
        let source = folder.join(name).with_extension(self.extension());
        match self {
            Self::Rust => Command::new(built_by_cargo(name)),
            Self::C => Command::new(compiled("cc", "-std=c11", &source)),
            Self::Cpp => Command::new(compiled("c++", "-std=c++17", &source)),
            Self::Python => {
                let mut command = Command::new(interpreter());
                command.arg(source).env("PYTHONPATH", package()).env("PYTHONUTF8", "1");
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        }
    }
}

fn is_there(compiler: &str) -> bool {
    let version = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn interpreter() -> String {
    std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// The reason why the interpreter runs no example, or none with arrays.
fn python_lacks(with_arrays: bool) -> Option<String> {
    let python = interpreter();
    let runs = |text: &str| {
        let status = Command::new(&python).args(["-c", text]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !runs("import sys; sys.exit(sys.version_info < (3, 11))") {
        return Some(format!("{python} is not there, or older than 3.11 (THALWEG_PYTHON names another)"));
    }
    let lacks_numpy = with_arrays && !runs("import numpy");
    lacks_numpy.then(|| format!("{python} has no numpy (THALWEG_PYTHON names another)"))
}

/// The folder in which cargo puts this program and the libraries.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn built_by_cargo(example: &str) -> PathBuf {
    let program = built().with_file_name("examples").join(example);
    assert!(program.exists(), "no {}: `cargo build --examples`, with the same profile, makes it", program.display());
    program
}

/// A folder for what tests make.
fn made(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pairs").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Gives a file a further name.
fn link(file: &Path, name: &Path) {
    assert!(file.exists(), "no {}: cargo builds it before this program", file.display());
    if std::fs::read_link(name).ok().as_deref() != Some(file) {
        let _ = std::fs::remove_file(name);
        std::os::unix::fs::symlink(file, name).unwrap();
    }
}

/// The folder in which the C library has the names that programs look for.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = made("library");
        for name in ["libthalweg.so", "libthalweg.so.0"] {
            link(&built().join("libthalweg_c.so"), &folder.join(name));
        }
        folder
    })
}

/// The folder that has the package of Python, as if it were installed there.
fn package() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let package = made("python/thalweg");
        for entry in std::fs::read_dir(home().join("../bindings/python/thalweg")).unwrap() {
            let file = entry.unwrap().path();
            if file.is_file() {
                link(&file, &package.join(file.file_name().unwrap()));
            }
        }
        link(&built().join("lib_thalweg.so"), &package.join("_thalweg.abi3.so"));
        made("python")
    })
}

/// The program of a source file.
fn compiled(compiler: &str, standard: &str, source: &Path) -> PathBuf {
    static MADE: Mutex<BTreeMap<PathBuf, Arc<OnceLock<PathBuf>>>> = Mutex::new(BTreeMap::new());
    let place = MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(source.to_owned()).or_default().clone();
    place.get_or_init(|| compile(compiler, standard, source)).clone()
}

/// Compiles a program; the compiler's complaints fail the test.
fn compile(compiler: &str, standard: &str, source: &Path) -> PathBuf {
    let name = source.file_name().unwrap().to_string_lossy().replace('.', "-");
    let folder = made("programs");
    // Another run of the tests may be using the program: it gets its name when it is complete.
    let (program, fresh) = (folder.join(&name), folder.join(format!("{name}-{}", std::process::id())));
    let mut command = Command::new(compiler);
    command.arg(standard).args(STRICT);
    for headers in ["../bindings/cpp/include", "../bindings/c/include"] {
        command.arg("-I").arg(home().join(headers));
    }
    command.arg(source).arg("-o").arg(&fresh).arg("-L").arg(library()).arg("-lthalweg");
    let output = command.arg(format!("-Wl,-rpath,{}", library().display())).output().unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &program).unwrap();
    program
}
