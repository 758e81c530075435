//! Sources of the samples of `thalweg pub`.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use thalweg::PublisherBuilder;
use thalweg::codec::{Message, Raw};

/// The next sample of a source.
pub(super) enum Next<'a, M: Message> {
    /// A sample, and its size in bytes.
    Sample(&'a M::Value, usize),
    /// No sample yet.
    Nothing,
    /// The end of the input.
    End,
}

/// A source of samples.
pub(super) trait Source {
    /// The message type of the topic.
    type Message: Message;

    /// The next sample; waits a short time for one.
    fn next(&mut self) -> Result<Next<'_, Self::Message>>;

    /// Gives the publisher the type of the samples, where it is known at run time only.
    fn describe(&self, builder: PublisherBuilder<Self::Message>) -> PublisherBuilder<Self::Message> {
        builder
    }
}

/// Samples of one size that start with their number.
pub(super) struct Counters {
    sample: Vec<u8>,
    number: u64,
}

impl Counters {
    /// Counters in samples of `size` bytes.
    pub(super) fn of(size: usize) -> Self {
        Self { sample: (0..size).map(|i| i as u8).collect(), number: 0 }
    }
}

impl Source for Counters {
    type Message = Raw;

    fn next(&mut self) -> Result<Next<'_, Raw>> {
        self.number += 1;
        self.sample.iter_mut().zip(self.number.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
        Ok(Next::Sample(&self.sample[..], self.sample.len()))
    }
}

/// A file in blocks.
pub(super) struct Blocks {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    size: usize,
}

impl Blocks {
    /// The blocks of `path`, `size` bytes each; the last may be shorter.
    pub(super) fn open(path: &Path, size: usize) -> Result<Self> {
        let file = File::open(path).map_err(|e| unreadable(path, &e))?;
        Ok(Self { path: path.to_owned(), file, block: Vec::with_capacity(size), size })
    }
}

impl Source for Blocks {
    type Message = Raw;

    fn next(&mut self) -> Result<Next<'_, Raw>> {
        self.block.clear();
        let read = (&mut self.file).take(self.size as u64).read_to_end(&mut self.block);
        match read.map_err(|e| unreadable(&self.path, &e))? {
            0 => Ok(Next::End),
            count => Ok(Next::Sample(&self.block[..], count)),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("--file {}: {error}; give a file that this user may read", path.display()))
}

/// Lines of standard input.
pub(super) struct Lines {
    lines: Receiver<Result<String>>,
    line: String,
}

/// Lines that were read and not yet published.
const AHEAD: usize = 64;
/// Time that `next` waits for a line.
const TICK: Duration = Duration::from_millis(50);

impl Lines {
    /// Reads standard input on a thread of its own, so that Ctrl-C is obeyed while no line comes.
    pub(super) fn read_stdin(longest: usize) -> Result<Self> {
        let (tell, lines) = sync_channel(AHEAD);
        let read = move || forward(io::stdin().lock(), longest, &tell);
        linux::thread::spawn(linux::thread::Settings::named("stdin"), read)?;
        Ok(Self { lines, line: String::new() })
    }
}

fn forward(mut input: impl BufRead, longest: usize, tell: &SyncSender<Result<String>>) {
    for number in 1u64.. {
        let Some(line) = read_line(&mut input, longest, number).transpose() else { return };
        let bad = line.is_err();
        if tell.send(line).is_err() || bad {
            return;
        }
    }
}

/// The next line without its end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead, longest: usize, number: u64) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    input.take(longest as u64 + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() > longest {
        return Err(Failure::Usage(format!("standard input, line {number}: longer than {longest} bytes")));
    }
    let end = if bytes.ends_with(b"\r\n") { 2 } else { usize::from(bytes.ends_with(b"\n")) };
    bytes.truncate(bytes.len() - end);
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to() + 1;
        Failure::Usage(format!("standard input, line {number}, byte {at}: no UTF-8 text; publish bytes with --file"))
    })?;
    Ok(Some(text))
}

impl Source for Lines {
    type Message = String;

    fn next(&mut self) -> Result<Next<'_, String>> {
        match self.lines.recv_timeout(TICK) {
            Ok(line) => {
                self.line = line?;
                Ok(Next::Sample(&self.line, self.line.len()))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Next::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Next::End),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut input: &[u8], longest: usize) -> Vec<std::result::Result<String, String>> {
        let next = |number| read_line(&mut input, longest, number).map_err(|e| e.text().to_owned()).transpose();
        (1..).map_while(next).take(4).collect()
    }

    #[test]
    fn lines_come_without_their_end() {
        let read: Vec<_> = lines(b"one\r\n\ntwo\nlast", 100).into_iter().flatten().collect();
        assert_eq!(read, ["one", "", "two", "last"]);
    }

    #[test]
    fn an_invalid_line_is_refused_with_its_place() {
        let refused = |input: &[u8]| lines(input, 8).into_iter().find_map(std::result::Result::err).unwrap();
        assert!(refused(b"ok\na\xffb\n").contains("line 2, byte 2"));
        assert!(refused(b"123456789\n").contains("line 1: longer than 8 bytes"));
    }
}
