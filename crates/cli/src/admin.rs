//! `thalweg admin`: YARP's administration of a port, one command or a prompt.

use crate::ends::{PATIENCE, find};
use crate::failure::{Failure, Result};
use crate::output::{self, line, prompt};
use crate::participant::{Common, Participant};
use crate::signals::TICK;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use thalweg::admin::{Reply, Request};
use thalweg::bottle::{Bottle, Value};
use thalweg::control::NodeId;

/// Administer a port in YARP's words: one command, or a prompt that reads commands from standard input
///
/// `help` lists the commands. A command may be given as one argument or as several.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg admin /subscriber1 'prop set /publisher1 (sched ((policy SCHED_FIFO) (priority 30)))'\n         thalweg admin rpc /publisher1"
)]
pub(crate) struct Arguments {
    /// The port (`rpc /port` as in YARP, too), and a command
    #[arg(value_name = "/PORT [COMMAND]", required = true, num_args = 1..)]
    words: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Carries out a command, or those of a prompt.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let words = words.strip_prefix(&["rpc"]).unwrap_or(&words);
    let Some((port, command)) = words.split_first().filter(|(port, _)| port.starts_with('/')) else {
        let text = "a port is needed, such as /publisher1: thalweg admin /publisher1 [COMMAND]";
        return Err(Failure::Usage(text.into()));
    };
    let mut participant = arguments.common.open("admin")?;
    participant.settled();
    let node = find(&participant, port)?.0;
    let asked = Asked { participant: &participant, node, port };
    if command.is_empty() { asked.prompt() } else { asked.once(&joined(command)) }
}

/// Arguments such as `-1)))`, left of a command that the shell cut at its spaces, are not options. A space put before
/// each tells the parser so.
pub(crate) fn without_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|verb| verb == "admin") {
        for argument in arguments.iter_mut().skip(2) {
            let number =
                |text: &str| text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if argument.to_str().is_some_and(number) {
                let text = format!(" {}", argument.to_string_lossy());
                *argument = text.into();
            }
        }
    }
    arguments
}

/// One command from several arguments. A word that the shell unquoted is quoted again, unless it is a list itself.
fn joined(words: &[&str]) -> String {
    let [one] = words else {
        let word = |word: &&str| {
            let word = word.strip_prefix(' ').filter(|number| number.starts_with('-')).unwrap_or(word);
            let text = word.is_empty() || word.contains(char::is_whitespace);
            let list = word.trim_start().starts_with(['(', '[', '"']) || word.contains(['(', ')']);
            if text && !list { Value::text(word).to_string() } else { word.to_owned() }
        };
        return words.iter().map(word).collect::<Vec<_>>().join(" ");
    };
    (*one).to_owned()
}

struct Asked<'a> {
    participant: &'a Participant,
    node: NodeId,
    port: &'a str,
}

impl Asked<'_> {
    fn ask(&self, text: &str) -> Result<(bool, String)> {
        let request = Request::Command { port: self.port.to_owned(), text: text.to_owned() };
        match self.participant.node.ask(self.node, &request, PATIENCE)? {
            Reply::Text { ok, text } => Ok((ok, text)),
            other => Err(Failure::No(format!("an answer that does not fit: {other:?}"))),
        }
    }

    fn answer(&self, command: &str) -> Result<bool> {
        let (ok, answer) = self.ask(command)?;
        let document = json!({"port": self.port, "command": command, "ok": ok, "answer": answer});
        self.participant.output.result(&document, || for_people(&answer))?;
        Ok(ok)
    }

    fn once(&self, command: &str) -> Result {
        // The answer gives the reason of the failure.
        if self.answer(command)? { Ok(()) } else { Err(Failure::No(String::new())) }
    }

    /// Reads commands until the input ends or the user asks to end. A failed command is answered, and the next one is
    /// read.
    fn prompt(&self) -> Result {
        let people = std::io::stdin().is_terminal() && !self.participant.output.json;
        let commands = read_stdin();
        loop {
            if people {
                prompt(">> ")?;
            }
            let Some(command) = self.next(&commands) else { return if people { line("") } else { Ok(()) } };
            let command = command.map_err(|e| Failure::Usage(format!("standard input: {e}")))?;
            if !command.trim().is_empty() {
                self.tell(&command)?;
            }
        }
    }

    fn next(&self, commands: &Receiver<std::io::Result<String>>) -> Option<std::io::Result<String>> {
        while !self.participant.stop.asked() {
            match commands.recv_timeout(TICK) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    fn tell(&self, command: &str) -> Result {
        match self.answer(command) {
            Err(Failure::No(why)) => {
                output::tell(&format!("thalweg: {why}"));
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// The lines of standard input, read on a thread of their own: a signal does not end a read.
fn read_stdin() -> Receiver<std::io::Result<String>> {
    let (tell, told) = sync_channel(0);
    std::thread::spawn(move || {
        for command in std::io::stdin().lock().lines() {
            if tell.send(command).is_err() {
                return;
            }
        }
    });
    told
}

/// Answers that hold only texts, such as those of `help`, line by line; others unchanged.
fn for_people(answer: &str) -> String {
    match Bottle::parse(answer) {
        Ok(Bottle(values))
            if values.len() > 1 && values.iter().all(|v| matches!(v, Value::Text(t) if t.contains(' '))) =>
        {
            values.iter().filter_map(Value::word).collect::<Vec<_>>().join("\n")
        }
        _ => answer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_one_command() {
        let one = "prop set /in (sched ((policy SCHED_FIFO) (priority 30)))";
        assert_eq!(joined(&[one]), one);
        assert_eq!(joined(&one.split(' ').collect::<Vec<_>>()), one);
        assert_eq!(joined(&["prop", "set", "/in", "(sched ((priority -1)))"]), "prop set /in (sched ((priority -1)))");
        assert_eq!(joined(&["prop", "set", "colour", "dark red"]), "prop set colour \"dark red\"");
        assert_eq!(joined(&["prop", "set", "colour", ""]), "prop set colour \"\"");
        assert_eq!(joined(&["list"]), "list");
        let given = without_options(["thalweg", "admin", "/a", "-1)))", "--json"].map(OsString::from).into_iter());
        assert_eq!(given, ["thalweg", "admin", "/a", " -1)))", "--json"]);
        assert_eq!(joined(&["(priority", " -1)))"]), "(priority -1)))");
    }
}
