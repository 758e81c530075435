//! Small things that unit tests share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory of its own for one test, removed with its contents.
pub struct TempDir(PathBuf);

impl TempDir {
    /// An empty directory.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("thalweg-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A reliable publisher of bytes on `/topic`, with this name.
pub fn port_info(name: &str) -> crate::control::PortInfo {
    crate::control::PortInfo {
        name: name.to_owned(),
        direction: crate::control::Direction::Publisher,
        topic: "/topic".to_owned(),
        message: crate::codec::TypeDescription::opaque("bytes"),
        qos: qos::Qos::default(),
        carriers: vec!["tcp".into()],
        answers: None,
        pull: Default::default(),
        foreign: None,
    }
}
