//! One HTML page of all results in a folder.

use super::svg::{draw, escaped};
use super::tables::{CHECK_HEADS, STRONG, cells, checks, machine, verdict};
use super::{Document, refused};
use crate::error::{Error, Result};
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

/// All results in a folder, by name. Other JSON files are left alone; a result that cannot be read is not.
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
    text.push_str(&html_table(&heads, &rows));
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
