//! Results as Markdown.

use super::Document;
use super::tables::{CHECK_HEADS, cells, checks, machine, verdict};
use std::fmt::Write;

/// The results as Markdown.
pub fn markdown(document: &Document) -> String {
    let mut text = format!("# {}: {}\n\n", document.experiment, verdict(document));
    let (heads, rows) = cells(document);
    text.push_str(&table(&heads, &rows));
    text.push_str("\n## Checks\n\n");
    text.push_str(&table(&CHECK_HEADS.map(String::from), &checks(document)));
    for shown in &document.tables {
        let _ = write!(text, "\n## {}\n\n{}", shown.title, table(&shown.heads, &shown.rows));
    }
    section(&mut text, "Skipped", document.skipped.iter().map(|s| format!("{}: {}", s.name, s.because)));
    section(&mut text, "How it was measured", document.notes.iter().cloned());
    section(&mut text, "Machine", machine(document).into_iter());
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    for (n, line) in lines.enumerate() {
        if n == 0 {
            let _ = write!(text, "\n## {title}\n\n");
        }
        let _ = writeln!(text, "- {line}");
    }
}

fn table(heads: &[String], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
