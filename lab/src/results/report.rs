//! Results as tables: in Markdown, and all of a folder as one HTML page.

use super::svg::{draw, escaped};
use super::{Cell, Check, Document, Rates, Verdict, refused};
use crate::error::{Error, Result};
use crate::statistics::Distribution;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the page.
const PAGE: &str = "report.html";

/// Writes `report.html` of all results in a folder; gives its path and the experiments it shows.
///
/// # Errors
/// [`Error::Usage`] when there are none, or one cannot be read.
pub fn report(folder: &Path) -> Result<(PathBuf, Vec<String>)> {
    let documents = documents(folder)?;
    if documents.is_empty() {
        let text = format!("{}: no results; `thalweg lab run NAME --out {0}` writes some", folder.display());
        return Err(Error::Usage(text));
    }
    let mut page = HEAD.to_owned();
    page.push_str("<h1>Thalweg: experiments</h1>\n<ul>\n");
    for document in &documents {
        let (name, verdict) = (escaped(&document.experiment), verdict(document));
        let _ = writeln!(page, "<li><a href=\"#{name}\">{name}</a>: {verdict}</li>");
    }
    page.push_str("</ul>\n");
    documents.iter().for_each(|document| page.push_str(&part(document)));
    page.push_str("</body></html>\n");
    let path = folder.join(PAGE);
    fs::write(&path, page).map_err(|e| refused(&path, &e))?;
    Ok((path, documents.into_iter().map(|document| document.experiment).collect()))
}

/// All results in a folder, by name. Other JSON files are skipped; an unreadable result is an error.
fn documents(folder: &Path) -> Result<Vec<Document>> {
    let entries = fs::read_dir(folder)
        .map_err(|e| Error::Usage(format!("{}: {e}; name a folder that `lab run --out` wrote to", folder.display())))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let unreadable = |e: &dyn std::fmt::Display| Error::Usage(format!("{}: {e}; write it anew", file.display()));
        let text = fs::read_to_string(&file).map_err(|e| unreadable(&e))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| unreadable(&e))?;
        if value.get("experiment").is_some() {
            found.push(serde_json::from_value(value).map_err(|e| unreadable(&e))?);
        }
    }
    Ok(found)
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Thalweg: experiments</title>\n<style>\
body{font:15px/1.45 sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#222}\
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}\
td,th{border-bottom:1px solid #ddd;padding:3px 9px;text-align:left;white-space:nowrap}\
.fail{color:#b00020;font-weight:bold}svg{max-width:100%;height:auto}</style></head><body>\n";

fn part(document: &Document) -> String {
    let name = escaped(&document.experiment);
    let mut text = format!("<h2 id=\"{name}\">{name}: {}</h2>\n{}", verdict(document), draw(&document.figure));
    let (heads, rows) = cells(document);
    if !rows.is_empty() {
        text.push_str(&html_table(&heads, &rows));
    }
    text.push_str("<h3>Checks</h3>\n");
    text.push_str(&html_table(&CHECK_HEADS.map(String::from), &checks(document)));
    for shown in &document.tables {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(&shown.title));
        text.push_str(&html_table(&shown.heads, &shown.rows));
    }
    let skipped = document.skipped.iter().map(|s| format!("{}: {}", s.name, s.because)).collect();
    for (title, lines) in
        [("Skipped", skipped), ("How it was measured", document.notes.clone()), ("Machine", machine(document))]
    {
        html_section(&mut text, title, &lines);
    }
    text
}

fn html_section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "<h3>{title}</h3>\n<ul>");
    for line in lines {
        let _ = writeln!(text, "<li>{}</li>", escaped(&line.replace('`', "")));
    }
    text.push_str("</ul>\n");
}

fn html_table(heads: &[String], rows: &[Vec<String>]) -> String {
    let head: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    let mut text = format!("<table><tr>{head}</tr>\n");
    for row in rows {
        let cell = |cell: &String| match cell.strip_prefix(STRONG).and_then(|cell| cell.strip_suffix(STRONG)) {
            Some(strong) => format!("<td class=\"fail\">{}</td>", escaped(strong)),
            None => format!("<td>{}</td>", escaped(cell)),
        };
        let _ = writeln!(text, "<tr>{}</tr>", row.iter().map(cell).collect::<String>());
    }
    text.push_str("</table>\n");
    text
}

/// Heads of a table of checks.
pub(super) const CHECK_HEADS: [&str; 5] = ["check", "found", "with stalls", "wanted", ""];
/// The mark around important text.
pub(super) const STRONG: &str = "**";

/// The verdict, in words.
pub(super) fn verdict(document: &Document) -> String {
    let passed = document.checks.iter().filter(|check| check.pass).count();
    let word = match document.verdict {
        Verdict::Pass => "passed",
        Verdict::Fail => "failed",
        Verdict::Inconclusive => "inconclusive",
    };
    format!("{word} ({passed} of {} checks)", document.checks.len())
}

/// The machine it ran on, line by line.
pub(super) fn machine(document: &Document) -> Vec<String> {
    let here = &document.environment;
    let versions: Vec<String> = here.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let load: Vec<String> = here.load.iter().map(f64::to_string).collect();
    let mut lines = vec![
        here.kernel.clone(),
        format!("{} processors; load before it began {}", here.cpus, load.join(" ")),
        format!("{}; {}; seed {}", here.clock, versions.join(", "), here.seed),
    ];
    let Rates { idle, idle_s, loaded, loaded_s, stolen } = document.stalls;
    lines.push(format!(
        "stalls (SCHED_FIFO 80 more than 0.2 ms late): {idle} in {idle_s:.1} s of processors before and after it, {loaded} in {loaded_s:.1} s during it; \
         the host took {:.2} % of the processors' time away",
        100.0 * stolen
    ));
    lines.extend(here.qdiscs.iter().map(|queue| format!("`{queue}`")));
    lines
}

/// Heads and rows: all factors that any cell has, then figures.
pub(super) fn cells(document: &Document) -> (Vec<String>, Vec<Vec<String>>) {
    let mut factors: Vec<&String> = Vec::new();
    for (name, _) in document.cells.iter().flat_map(|cell| cell.factors.iter()) {
        if !factors.contains(&name) {
            factors.push(name);
        }
    }
    let heads = factors.iter().map(|name| name.replace('_', " "));
    let figures =
        ["n", "mean µs", "stdev", "p50", "p99", "p99.9", "max", "lost", "stalled", "p99 without", "max without"]
            .map(String::from);
    let rows = document.cells.iter().map(|cell| {
        let set = factors.iter().map(|name| cell.factors.get(name).map_or(String::new(), plain));
        set.chain(figures_of(cell)).collect()
    });
    (heads.chain(figures).collect(), rows.collect())
}

fn figures_of(cell: &Cell) -> Vec<String> {
    let mut row = vec![cell.n.to_string()];
    match cell.rtt_us.or(cell.latency_us) {
        Some(Distribution { mean, stdev, p50, p99, p999, max, .. }) => {
            row.extend([mean, stdev, p50, p99, p999, max].map(|us| format!("{us:.1}")));
        }
        None => row.extend(std::iter::repeat_n(String::new(), 6)),
    }
    row.extend([cell.lost.to_string(), cell.stalled.map_or(String::new(), |stalled| stalled.n.to_string())]);
    let without = |figure: fn(&Distribution) -> f64| {
        cell.without_stalled_us.as_ref().map_or(String::new(), |found| format!("{:.1}", figure(found)))
    };
    row.extend([without(|d| d.p99), without(|d| d.max)]);
    row
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Rows of [`CHECK_HEADS`].
pub(super) fn checks(document: &Document) -> Vec<Vec<String>> {
    let row = |check: &Check| {
        let found = check.value.map_or("nothing".to_owned(), |value| value.to_string());
        let raw = check.raw.map_or(String::new(), |raw| raw.to_string());
        let word = match (check.verdict, &check.because) {
            (Verdict::Pass, _) if check.needs_excuse() => "pass, less stalls".to_owned(),
            (Verdict::Pass, _) => "pass".to_owned(),
            (Verdict::Fail, _) => "**FAIL**".to_owned(),
            (Verdict::Inconclusive, because) => format!("inconclusive: {}", because.as_deref().unwrap_or_default()),
        };
        vec![check.name.clone(), found, raw, format!("{} {}", check.relation, check.limit), word]
    };
    document.checks.iter().map(row).collect()
}

/// The results as Markdown.
pub fn markdown(document: &Document) -> String {
    let mut text = format!("# {}: {}\n\n", document.experiment, verdict(document));
    let (heads, rows) = cells(document);
    if !rows.is_empty() {
        let _ = writeln!(text, "{}", markdown_table(&heads, &rows));
    }
    text.push_str("## Checks\n\n");
    text.push_str(&markdown_table(&CHECK_HEADS.map(String::from), &checks(document)));
    for shown in &document.tables {
        let _ = write!(text, "\n## {}\n\n{}", shown.title, markdown_table(&shown.heads, &shown.rows));
    }
    markdown_section(&mut text, "Skipped", document.skipped.iter().map(|s| format!("{}: {}", s.name, s.because)));
    markdown_section(&mut text, "How it was measured", document.notes.iter().cloned());
    markdown_section(&mut text, "Machine", machine(document).into_iter());
    text
}

fn markdown_section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    for (n, line) in lines.enumerate() {
        if n == 0 {
            let _ = write!(text, "\n## {title}\n\n");
        }
        let _ = writeln!(text, "- {line}");
    }
}

fn markdown_table(heads: &[String], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
