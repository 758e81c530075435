//! Counting the system calls of one thread with strace.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A running count.
pub struct Strace {
    child: Child,
    output: BufReader<ChildStderr>,
}

/// System calls by name: their number, and the number of failed ones.
pub type Calls = BTreeMap<String, (u64, u64)>;

impl Strace {
    /// Attaches to one thread.
    ///
    /// # Errors
    /// The reason of a failure: no strace, no permission.
    pub fn attach(thread: i64) -> Result<Self, String> {
        let mut command = Command::new("strace");
        command.args(["-c", "-U", "name,calls,errors", "-p", &thread.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("strace cannot be started: {e}"))?;
        let mut output = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line.contains("attached") {
            return Ok(Self { child, output });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(format!("strace cannot attach: {}", line.trim()))
    }

    /// Detaches and returns the counts.
    pub fn finish(mut self) -> Calls {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        text.lines().filter_map(call).collect()
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line such as `sendto 1000 3`; a call that never failed has no third word.
fn call(line: &str) -> Option<(String, (u64, u64))> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let errors = words.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    Some((words.first()?.to_string(), (words.get(1)?.parse().ok()?, errors))).filter(|(name, _)| name != "total")
}

/// All calls whose name is one of these.
pub fn sum(calls: &Calls, names: &[&str]) -> (u64, u64) {
    let found = names.iter().filter_map(|n| calls.get(*n));
    found.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}
