//! Findings of the doctor, and their remedies.

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Good to know; harmless by itself. Shown with `--verbose`.
    Note,
    /// A promise is kept only in part, or only most of the time.
    Warning,
    /// A promise cannot be kept on this host.
    Fault,
}

impl Severity {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

/// A kind of finding: a row of docs/diagnosis.md.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The condition.
    pub when: &'static str,
    /// Its effect on real-time promises.
    pub why: &'static str,
    /// `true` if `--fix` has a remedy.
    pub fixable: bool,
}

/// A finding on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The kind.
    pub kind: &'static Kind,
    /// The wrong value's name, such as `net.core.rmem_max`.
    pub what: String,
    /// The value.
    pub value: String,
    /// The value that it should have.
    pub limit: String,
    /// The remedy: a command where there is one.
    pub remedy: String,
    /// The remedy of `--fix`.
    pub fix: Option<Fix>,
}

/// A remedy of `--fix` at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// Writes this value into each of these files of `proc` or `sys` (paths without the first '/').
    Write {
        /// The files.
        files: Vec<String>,
        /// The value.
        value: String,
    },
    /// Installs queues by class on this device.
    Queues {
        /// The device.
        device: String,
        /// Rate of its link, in Mbit/s.
        speed: u64,
    },
    /// Removes the queues that an ended process left.
    Recover,
}

impl Kind {
    /// A finding of this kind.
    pub(super) fn found(
        &'static self,
        what: impl Into<String>,
        value: impl ToString,
        limit: impl Into<String>,
    ) -> Finding {
        let (what, value, limit) = (what.into(), value.to_string(), limit.into());
        Finding { kind: self, what, value, limit, remedy: String::new(), fix: None }
    }
}

impl Finding {
    /// Adds a remedy.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Adds a value to write, which is also the remedy.
    pub(super) fn write(mut self, files: Vec<String>, value: impl ToString) -> Self {
        let value = value.to_string();
        let commands = files.iter().map(|file| match file.strip_prefix("proc/sys/") {
            Some(name) => format!("sysctl -w {}={value}", name.replace('/', ".")),
            None => format!("echo {value} > /{file}"),
        });
        self.remedy = match files.len() {
            0..=2 => commands.collect::<Vec<_>>().join(" && "),
            _ => format!("for each processor: {}", commands.take(1).collect::<String>()),
        };
        self.fix = Some(Fix::Write { files, value });
        self
    }
}

/// A finding as JSON.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    id: &'a str,
    severity: Severity,
    what: &'a str,
    value: &'a str,
    limit: &'a str,
    why: &'a str,
    remedy: &'a str,
    fixable: bool,
}

impl<'a> From<&'a Finding> for Shown<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding { kind, what, value, limit, remedy, fix } = finding;
        let fixable = fix.is_some();
        Self { id: kind.id, severity: kind.severity, what, value, limit, why: kind.why, remedy, fixable }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, what, value, limit, remedy, .. } = self;
        writeln!(f, "{:<8} {}: {what}: {value} (should be: {limit})", kind.severity.name(), kind.id)?;
        write!(f, "         why     {}\n         remedy  {remedy}", kind.why)
    }
}
