//! A process that is killed before its system call of a number, by `strace`.

use crate::support::Running;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a call is held up, in µs: meanwhile its process is killed.
const HELD: u32 = 8000;
/// Longest wait for a tracer that was told to end.
const LETS_GO: Duration = Duration::from_secs(2);
/// The beginning of the arguments of a call, as `strace -e raw=all` prints them.
const ARGUMENTS: &[u8] = b"(0x";

/// A kind of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// To the disk: the broker's database, the agent's files.
    Write,
    /// To another process, and (netlink) to the kernel's queues.
    Send,
    /// From another process, and from the kernel's queues.
    Receive,
}

impl Calls {
    pub const ALL: [Self; 3] = [Self::Write, Self::Send, Self::Receive];

    fn names(self) -> &'static str {
        match self {
            Self::Write => "pwrite64,fsync,fdatasync,rename",
            Self::Send => "sendto,sendmsg,writev",
            Self::Receive => "recvfrom,recvmsg,readv",
        }
    }

    /// So many of them a process has in any case, or nearly.
    pub fn most_of_small(self) -> usize {
        match self {
            Self::Write => 8,
            Self::Send => 16,
            Self::Receive => 32,
        }
    }
}

/// A tracer of one process. When it is dropped it lets the process go.
pub struct Tracer {
    child: Child,
    counts: Option<JoinHandle<bool>>,
}

impl Tracer {
    /// Kills the process before its call of this number, counted from now over all of its threads. (`inject=…:signal=KILL:when=N` counts for each
    /// thread, and so leaves out points of a process with several.)
    ///
    /// # Errors
    /// The reason why it cannot be traced.
    pub fn attach(process: &Running, calls: Calls, number: u32) -> Result<Self, String> {
        let pid = Pid::from_child(&process.child);
        let (mut child, mut output) = strace(pid, calls)?;
        let mut first = [0; 4096];
        let mut seen = Vec::new();
        while !seen.windows(9).any(|text| text == b" attached") {
            match output.read(&mut first) {
                Ok(count) if count > 0 => seen.extend(&first[..count]),
                _ => {
                    let _ = child.wait();
                    return Err(format!("strace cannot attach: {}", String::from_utf8_lossy(&seen).trim()));
                }
            }
        }
        let counts = std::thread::spawn(move || count(output, seen, number, pid));
        Ok(Self { child, counts: Some(counts) })
    }

    /// Lets the process go; `true` if it was killed.
    pub fn has_struck(mut self) -> bool {
        self.end()
    }

    /// A tracer that is told to end waits for the first thread of its process. If that process was just killed and another thread of it is
    /// still to be waited for, the kernel never tells of the first one, and the tracer waits without end (strace 6.1, `detach`).
    fn end(&mut self) -> bool {
        let tracer = Pid::from_child(&self.child);
        let _ = kill_process(tracer, Signal::INT);
        let until = Instant::now() + LETS_GO;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = kill_process(tracer, Signal::KILL);
            }
            std::thread::sleep(super::TICK);
        }
        self.counts.take().is_some_and(|counts| counts.join().unwrap_or(false))
    }

    /// # Errors
    /// The reason why nothing can be traced.
    pub fn is_permitted() -> Result<(), String> {
        let mut command = Command::new("sleep");
        command.arg("60");
        Self::attach(&Running::start(command), Calls::Write, u32::MAX).map(drop)
    }
}

fn strace(pid: Pid, calls: Calls) -> Result<(Child, ChildStderr), String> {
    let names = calls.names();
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "raw=all", "-e", "signal=none", "-e", &format!("trace={names}")]);
    command.args(["-e", &format!("inject={names}:delay_enter={HELD}"), "-p", &pid.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("strace cannot be started: {e}"))?;
    let output = child.stderr.take().unwrap();
    Ok((child, output))
}

/// Reads calls, which are printed as they are held up, and kills the process at the one of this number: `true` then.
fn count(mut output: ChildStderr, mut seen: Vec<u8>, number: u32, pid: Pid) -> bool {
    let (mut count, mut chunk) = (0, [0; 4096]);
    loop {
        let before = count;
        count += seen.windows(ARGUMENTS.len()).filter(|text| *text == ARGUMENTS).count() as u32;
        if before < number && count >= number {
            let _ = kill_process(pid, Signal::KILL);
        }
        // What may be the beginning of another one.
        seen.drain(..seen.len().saturating_sub(ARGUMENTS.len() - 1));
        match output.read(&mut chunk) {
            Ok(read) if read > 0 => seen.extend(&chunk[..read]),
            _ => return count >= number,
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.counts.is_some() {
            self.end();
        }
    }
}
