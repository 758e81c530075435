//! The child that is an end: lines that it says, and its report.

use crate::bench::Error;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An end, killed when dropped.
pub(super) struct End {
    engine: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its processor time when it began to measure.
    cpu_before: Option<u64>,
}

/// The result of an end.
pub(super) struct Report {
    /// Messages in memory that publisher and subscriber do not share; `None`: not counted.
    pub copies: Option<u64>,
    /// Peak resident memory.
    pub rss_kib: u64,
    /// Processor time since [`End::measure`]; 0 without.
    pub cpu_ns: u64,
    /// The latency of each measured message.
    pub nanoseconds: Vec<u64>,
}

/// The line before the latencies.
#[derive(Deserialize)]
struct Counts {
    copies: Option<u64>,
    rss_kib: u64,
    times: u64,
    cpu_ns: u64,
}

impl End {
    /// Starts `command`; its errors go where this process's go.
    pub(super) fn start(engine: &'static str, mut command: Command) -> Result<Self, Error> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().map_err(|e| Error::System(format!("cannot start the end in {engine}: {e}")))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Error::System("a child without a pipe".to_owned()))?;
        Ok(Self { engine, child, input, output: BufReader::new(output), cpu_before: None })
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for this line.
    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), Error> {
        let line = self.line()?;
        if line == wanted { Ok(()) } else { Err(self.strange(&format!("{line:?} instead of {wanted:?}"))) }
    }

    /// Lets an active end begin.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let Some(input) = &mut self.input else { return Ok(()) };
        Ok(input.write_all(b"go\n")?)
    }

    /// Waits for the end of the warm-up: the end says its processor time by then. (Read from here it could be that of a later moment.)
    pub(super) fn measure(&mut self) -> Result<(), Error> {
        let line = self.line()?;
        let cpu_ns = line.strip_prefix("measuring ").and_then(|number| number.parse().ok());
        self.cpu_before =
            Some(cpu_ns.ok_or_else(|| self.strange(&format!("{line:?} instead of \"measuring\" and a time")))?);
        Ok(())
    }

    /// Ends a passive end, and hears its report, of `count` latencies.
    pub(super) fn finish(mut self, count: u64) -> Result<Report, Error> {
        drop(self.input.take());
        self.report(count)
    }

    /// Hears the report of an end that ends by itself.
    pub(super) fn report(mut self, count: u64) -> Result<Report, Error> {
        let line = self.line()?;
        let counts: Counts = serde_json::from_str(&line).map_err(|e| self.strange(&format!("{line:?}: {e}")))?;
        if counts.times != count {
            return Err(self.strange(&format!("{} latencies instead of {count}", counts.times)));
        }
        let mut nanoseconds = Vec::new();
        for _ in 0..count {
            let mut bytes = [0; 8];
            self.output.read_exact(&mut bytes).map_err(|_| self.left())?;
            nanoseconds.push(u64::from_le_bytes(bytes));
        }
        drop(self.input.take());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(self.left());
        }
        let cpu_ns = self.cpu_before.map_or(0, |before| counts.cpu_ns.saturating_sub(before));
        Ok(Report { copies: counts.copies, rss_kib: counts.rss_kib, cpu_ns, nanoseconds })
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.by_ref().take(LONGEST).read_line(&mut line)?;
        if line.pop() == Some('\n') { Ok(line) } else { Err(self.left()) }
    }

    fn left(&self) -> Error {
        Error::Peer(format!("the end in {} left early; its own words above say why", self.engine))
    }

    fn strange(&self, what: &str) -> Error {
        Error::Peer(format!("the end in {} says {what}", self.engine))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill(); // after `wait` this does nothing
        let _ = self.child.wait();
    }
}

/// The longest line of an end, in bytes.
const LONGEST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(script: &str) -> End {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        End::start("sh", command).unwrap()
    }

    #[test]
    fn an_end_says_its_lines_and_reports() {
        let counts = r#"{"copies":3,"rss_kib":7,"times":1,"cpu_ns":9000}"#;
        let mut active = end(&format!("echo ready; read go; echo measuring 2000; echo '{counts}'; printf '12345678'"));
        active.expect("ready").unwrap();
        active.begin().unwrap();
        active.measure().unwrap();
        let report = active.report(1).unwrap();
        assert_eq!((report.copies, report.rss_kib, report.cpu_ns), (Some(3), 7, 7000));
        assert_eq!(report.nanoseconds, [u64::from_le_bytes(*b"12345678")]);
        let passive = end(r#"cat; echo '{"copies":null,"rss_kib":7,"times":0,"cpu_ns":5}'"#);
        assert_eq!(passive.finish(0).unwrap().copies, None);
    }

    #[test]
    fn an_end_that_fails_or_says_something_else_is_an_error() {
        let wrong = |script: &str| end(script).report(1).err().map(|error| error.to_string()).unwrap();
        assert!(wrong("exit 3").contains("left early"));
        assert!(wrong("echo nonsense").contains("nonsense"));
        assert!(
            wrong(r#"echo '{"copies":null,"rss_kib":7,"times":2,"cpu_ns":5}'"#).contains("2 latencies instead of 1")
        );
        assert!(
            wrong(r#"echo '{"copies":null,"rss_kib":7,"times":1,"cpu_ns":9000}'; printf 1234"#).contains("left early")
        );
        assert!(
            wrong(r#"echo '{"copies":null,"rss_kib":7,"times":1,"cpu_ns":9000}'; printf 12345678; exit 1"#)
                .contains("left early")
        );
        assert!(end("echo hello").expect("ready").is_err());
        assert!(end("echo measuring").measure().is_err());
    }
}
