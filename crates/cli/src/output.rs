//! Standard output for results, standard error for everything else.

use crate::failure::Result;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;

/// Format of results: text for people, or JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Results are JSON documents, one per line.
    pub json: bool,
}

impl Output {
    /// Writes one result: a JSON document, or the text.
    pub(crate) fn result(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result {
        if self.json { self.document(value) } else { line(&text()) }
    }

    /// Writes one JSON document on a line of its own.
    pub(crate) fn document(self, value: &impl Serialize) -> Result {
        line(&serde_json::to_string(value).map_err(io::Error::from)?)
    }
}

/// Writes a line (or several) to standard output, at once.
pub(crate) fn line(text: &str) -> Result {
    write(text, "\n")
}

/// Prints a prompt for input.
pub(crate) fn prompt(text: &str) -> Result {
    write(text, "")
}

fn write(text: &str, end: &str) -> Result {
    static TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    let mut out = io::stdout().lock();
    match *TERMINAL {
        true => write!(out, "{}{end}", for_terminal(text))?,
        false => write!(out, "{text}{end}")?,
    }
    Ok(out.flush()?)
}

/// Writes a diagnostic to standard error. A closed standard error is no failure.
pub(crate) fn tell(text: &str) {
    static TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stderr().is_terminal());
    let mut errors = io::stderr().lock();
    let _ = match *TERMINAL {
        true => writeln!(errors, "{}", for_terminal(text)),
        false => writeln!(errors, "{text}"),
    };
}

/// Text that is safe to show on a terminal: control characters are escaped. Text from peers (names, samples, reasons) may hold sequences that
/// move the cursor, write to the clipboard, or imitate another line. Line ends and tabs stay.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    // Characters that reverse the direction of text (UAX #9) are not control characters, but hide text as well.
    let turns =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}');
    let harms = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().flat_map(|c| {
        let escaped = harms(c).then(|| c.escape_unicode());
        let itself = if escaped.is_some() { None } else { Some(c) };
        escaped.into_iter().flatten().chain(itself)
    });
    Cow::Owned(shown.collect())
}

/// A table that repaints itself in place on a terminal; elsewhere each new table is printed below the last one.
#[derive(Debug, Default)]
pub(crate) struct Live {
    painted: usize,
}

impl Live {
    /// Replaces the text shown so far by `text`.
    pub(crate) fn show(&mut self, text: &str) -> Result {
        let mut screen = String::new();
        if io::stdout().is_terminal() {
            if self.painted > 0 {
                let _ = write!(screen, "\x1b[{}A", self.painted);
            }
            // Without automatic wrapping: a line too long for the terminal is cut, and stays one line.
            screen.push_str("\x1b[?7l");
            text.lines().for_each(|line| screen.push_str(&format!("\r{}\x1b[K\n", for_terminal(line))));
            screen.push_str("\x1b[J\x1b[?7h");
        } else {
            let _ = writeln!(screen, "{text}");
        }
        self.painted = text.lines().count();
        let mut out = io::stdout().lock();
        out.write_all(screen.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// A line on standard error that is repainted in place, beside results on standard output. It is not shown where
/// standard error is no terminal.
#[derive(Debug, Default)]
pub(crate) struct Status {
    shown: bool,
}

impl Status {
    /// Replaces the text shown so far by `text`. A closed standard error is no failure.
    pub(crate) fn show(&mut self, text: &str) {
        let mut errors = io::stderr().lock();
        if errors.is_terminal() {
            // Without automatic wrapping: a line too long for the terminal is cut.
            let _ = write!(errors, "\x1b[?7l\r{}\x1b[K\x1b[?7h", for_terminal(text));
            let _ = errors.flush();
            self.shown = true;
        }
    }

    /// Removes the line, before other output.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut errors = io::stderr().lock();
            let _ = write!(errors, "\r\x1b[K").and_then(|()| errors.flush());
        }
    }
}

/// Columns of a table: `<` left, `>` right.
pub(crate) fn table(headers: &[(&str, char)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headers[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(headers).zip(&widths).map(|((cell, (_, side)), width)| match side {
            '>' => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(headers.iter().map(|(name, _)| *name).collect());
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
}

/// A number of bytes for people.
pub(crate) fn bytes(count: f64) -> String {
    match count {
        c if c < 1e3 => format!("{c:.0} B"),
        c if c < 1e6 => format!("{:.1} kB", c / 1e3),
        c if c < 1e9 => format!("{:.1} MB", c / 1e6),
        c => format!("{:.2} GB", c / 1e9),
    }
}

/// Microseconds for people, with three significant digits.
pub(crate) fn micros(us: f64) -> String {
    match us {
        u if u < 1e3 => format!("{u:.1} us"),
        u if u < 1e6 => format!("{:.2} ms", u / 1e3),
        u => format!("{:.2} s", u / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["/imu".into(), "1000.0".into()], vec!["/camera/left".into(), "30.0".into()]];
        let text = table(&[("topic", '<'), ("rate", '>')], &rows);
        assert_eq!(text, "topic           rate\n/imu          1000.0\n/camera/left    30.0");
    }

    #[test]
    fn control_characters_are_escaped_for_a_terminal() {
        assert_eq!(for_terminal("é ⌊x⌋\n\t→"), "é ⌊x⌋\n\t→");
        assert_eq!(for_terminal("a\u{1b}[2Jb\rc\u{9b}1m\u{7f}"), "a\\u{1b}[2Jb\\u{d}c\\u{9b}1m\\u{7f}");
        assert_eq!(for_terminal("evil\u{202e}txt"), "evil\\u{202e}txt");
    }

    #[test]
    fn quantities_have_a_unit_that_fits() {
        assert_eq!((bytes(12.0), bytes(921_600.0)), ("12 B".into(), "921.6 kB".into()));
        assert_eq!((micros(12.34), micros(1234.0), micros(2e6)), ("12.3 us".into(), "1.23 ms".into(), "2.00 s".into()));
    }
}
