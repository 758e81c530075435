//! The text of a contract file: its lines, and what the TOML reader says of them.

use super::value::Wrong;

/// Most letters of a line that are shown.
const SHOWN: usize = 64;

/// Where the lines of a file begin.
pub(super) struct Starts(Vec<usize>);

impl Starts {
    pub fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// The line, counted from 1, in which a byte stands.
    pub fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }
}

/// What the TOML reader says, in a line, with what is written there.
pub(super) fn unreadable(text: &str, error: &toml::de::Error) -> Wrong {
    let at = error.span().unwrap_or(0..0);
    let line = written(text, at.start);
    let single = line.starts_with('[') && !line.starts_with("[[");
    let problem = match error.message() {
        said if said.contains("recurs") => {
            "nested too deeply: allowed are the tables and lists of a contract".to_owned()
        }
        said if said.ends_with("expected a sequence") || (single && said == "duplicate key") => {
            "there may be several: allowed are tables in double brackets, such as [[node]]".to_owned()
        }
        said if said.contains("expected struct") => "allowed is one table, in single brackets or in braces".to_owned(),
        said => said.replace('\n', "; "),
    };
    (at, if line.is_empty() { problem } else { format!("{line}: {problem}") })
}

/// The beginning of the line in which a byte stands, without what no terminal should get.
fn written(text: &str, at: usize) -> String {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| before.len() + newline);
    let line = text[start..end].trim();
    let is_plain = |c: &char| matches!(c, '"' | '\'' | '\\');
    let shown =
        line.chars().take(SHOWN).map(|c| if is_plain(&c) { c.to_string() } else { c.escape_debug().to_string() });
    let more = if line.chars().nth(SHOWN).is_some() { "…" } else { "" };
    shown.collect::<String>() + more
}
