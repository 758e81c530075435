//! The programs of the ends: made once for a measurement, in a folder that is removed afterwards.
//!
//! | engine | made of |
//! |---|---|
//! | `python` | `end.py`, and the package `thalweg`: the source tree's with the module built beside this command, else the installed one |
//! | `cpp` | `end.cpp`, compiled with the source tree's headers and the library built beside this command, else with the installed ones |

use crate::bench::{EngineName, name_of};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder with an engine's program; removed when dropped.
pub(in crate::bench) struct Programs {
    folder: PathBuf,
    about: String,
}

impl Programs {
    /// Makes the program of `engine`. `tree` is Thalweg's source tree; by default the one in which this command was built.
    ///
    /// # Errors
    /// The reason why the program cannot run here, with the remedy.
    pub(in crate::bench) fn make(engine: EngineName, tree: Option<&Path>) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-bench-{}-{}-{number}", name_of(engine), std::process::id());
        let folder = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut programs = Self { folder, about: String::new() };
        let tree = tree.map(Path::to_owned).or_else(own_tree);
        programs.about = match engine {
            EngineName::Cpp => programs.compile(tree.as_deref())?,
            _ => programs.package(tree.as_deref())?,
        };
        Ok(programs)
    }

    /// The folder.
    pub(in crate::bench) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the program is made of, for people.
    pub(in crate::bench) fn about(&self) -> &str {
        &self.about
    }

    /// The program of `engine` in a folder.
    pub(in crate::bench) fn command(engine: EngineName, folder: &Path) -> Command {
        match engine {
            EngineName::Cpp => Command::new(folder.join("end")),
            _ => {
                let mut command = Command::new(python());
                command.arg(folder.join("end.py"));
                command
            }
        }
    }

    /// Puts the program beside the package. Python looks for modules beside the program first.
    fn package(&self, tree: Option<&Path>) -> Result<String, String> {
        let python = python();
        runs(&python, "import sys; sys.exit(sys.version_info < (3, 11))", &self.folder)
            .map_err(|_| format!("{python} is not there, or older than 3.11 (THALWEG_PYTHON names another)"))?;
        self.write("end.py", include_str!("../../../../../../bench/languages/end.py"))?;
        if let Some((tree, library)) = tree.zip(built("lib_thalweg.so")) {
            self.copy_package(&tree.join("bindings/python/thalweg"))?;
            symlink(library, self.folder.join("thalweg/_thalweg.abi3.so")).map_err(|e| e.to_string())?;
        }
        let shown = "import sys, thalweg; print(sys.version.split()[0], thalweg.__path__[0])";
        let about = runs(&python, shown, &self.folder).map_err(|said| {
            format!(
                "no module thalweg is importable by {python}: build it by `cargo build --release -p thalweg-python`, or install it by \
                 `pip install ./bindings/python` ({})",
                said.lines().last().unwrap_or_default()
            )
        })?;
        runs(&python, "import numpy", &self.folder).map_err(|_| {
            format!("{python} has no numpy, with which memory is seen in place (THALWEG_PYTHON names another)")
        })?;
        Ok(format!("{python}, {about}"))
    }

    fn copy_package(&self, from: &Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", from.display());
        let into = self.folder.join("thalweg");
        fs::create_dir(&into).map_err(failed)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|end| end == "py")) {
                fs::copy(&path, into.join(name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Compiles the program as a user would.
    fn compile(&self, tree: Option<&Path>) -> Result<String, String> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        self.write("end.cpp", include_str!("../../../../../../bench/languages/end.cpp"))?;
        let (flags, about) = match tree.zip(built("libthalweg_c.so")) {
            Some((tree, library)) => self.flags_of_tree(tree, &library)?,
            None => installed_flags()?,
        };
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-O3", "-pthread", "-o"]).arg(self.folder.join("end"));
        command.arg(self.folder.join("end.cpp")).args(flags).stdin(Stdio::null());
        let done =
            command.output().map_err(|e| format!("{compiler}: {e}: install g++ (CXX names another compiler)"))?;
        if done.status.success() {
            return Ok(format!("{compiler} -O3, {about}"));
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let first = said.lines().find(|line| line.contains("error")).or_else(|| said.lines().next());
        Err(format!("{compiler} does not compile it: {}", first.unwrap_or_default()))
    }

    fn flags_of_tree(&self, tree: &Path, library: &Path) -> Result<(Vec<String>, String), String> {
        let links = self.folder.join("lib");
        fs::create_dir(&links).map_err(|e| e.to_string())?;
        for name in ["libthalweg.so", "libthalweg.so.0"] {
            symlink(library, links.join(name)).map_err(|e| e.to_string())?;
        }
        let include = |room: &str| format!("-I{}", tree.join(room).display());
        let flags = vec![
            include("bindings/cpp/include"),
            include("bindings/c/include"),
            format!("-L{}", links.display()),
            "-lthalweg".to_owned(),
            format!("-Wl,-rpath,{}", links.display()),
        ];
        Ok((flags, library.display().to_string()))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.folder.join(name), text).map_err(|e| format!("{}: {e}", self.folder.join(name).display()))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The interpreter.
fn python() -> String {
    std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// What a short program of Python says; else its complaint.
fn runs(python: &str, text: &str, folder: &Path) -> Result<String, String> {
    let done = Command::new(python).args(["-c", text]).current_dir(folder).stdin(Stdio::null()).output();
    let done = done.map_err(|e| e.to_string())?;
    let said = if done.status.success() { &done.stdout } else { &done.stderr };
    let said = String::from_utf8_lossy(said).trim().to_owned();
    if done.status.success() { Ok(said) } else { Err(said) }
}

/// The source tree around this command.
fn own_tree() -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?;
    let is_tree = |folder: &&Path| folder.join("bindings/cpp/include/thalweg.hpp").is_file();
    command.ancestors().find(is_tree).map(Path::to_owned)
}

/// A library that cargo built beside this command.
fn built(name: &str) -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?;
    let folder = command.parent()?;
    [folder.join(name), folder.join("deps").join(name)].into_iter().find(|path| path.is_file())
}

/// Flags for the installed headers and library, by pkg-config.
fn installed_flags() -> Result<(Vec<String>, String), String> {
    let missing = || {
        "no library thalweg is built or installed: build it by `cargo build --release -p thalweg-c`, or install it by \
         `bindings/c/install PREFIX` (pkg-config finds it by PKG_CONFIG_PATH)"
            .to_owned()
    };
    let ask = |flags: &[&str]| {
        let done = Command::new("pkg-config").args(flags).arg("thalweg").stdin(Stdio::null()).output();
        let done = done.ok().filter(|done| done.status.success()).ok_or_else(missing)?;
        Ok::<_, String>(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let library = ask(&["--variable=libdir"])?;
    let mut flags: Vec<String> = ask(&["--cflags", "--libs"])?.split_whitespace().map(str::to_owned).collect();
    flags.push(format!("-Wl,-rpath,{library}"));
    Ok((flags, library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_programs() {
        let folder = match Programs::make(EngineName::Python, None) {
            Ok(programs) => {
                assert!(programs.folder().join("end.py").is_file() && !programs.about().is_empty());
                programs.folder().to_owned()
            }
            Err(because) => {
                assert!(!because.is_empty());
                return println!("skipped: the programs of python: because {because}");
            }
        };
        assert!(!folder.exists());
    }

    #[test]
    fn python_s_complaint_is_heard() {
        if Command::new("python3").arg("--version").output().is_err() {
            return println!("skipped: python's complaint: because python3 is not installed");
        }
        let here = std::env::temp_dir();
        assert_eq!(runs("python3", "print(' a ')", &here), Ok("a".to_owned()));
        assert!(runs("python3", "import no_such_module", &here).unwrap_err().contains("no_such_module"));
        assert!(runs("/does/not/exist", "", &here).is_err());
    }
}
