//! Sessions, as programs join them: `thalweg agent` on the host says whether the broker has admitted one.
//!
//! A program asks over a unix socket in the run directory, in one line of JSON ([`Question`]), and gets one line ([`Admission`]).

#![allow(clippy::disallowed_methods)] // a user waits

use crate::control::local::{run_dir, short};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for the agent, which asks its broker.
const PATIENCE: Duration = Duration::from_secs(8);
/// Longest wait of the agent for a program's question.
const QUESTION: Duration = Duration::from_secs(1);
/// Longest line, in bytes.
const LONGEST: u64 = 64 << 10;

/// A program's question: is this topic part of this session?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The session's name.
    pub session: String,
    /// The topic.
    pub topic: String,
}

/// The answer of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The session is active, and the topic is part of it.
    pub admitted: bool,
    /// The reason, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Changes with which it would have been admitted, when it was last asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<String>,
}

/// The agent's socket; removed when dropped.
#[derive(Debug)]
pub struct AgentSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AgentSocket {
    /// The socket in this user's run directory, in place of one that an agent left which was killed.
    ///
    /// # Errors
    /// The directory takes none, or another agent listens there.
    pub fn open() -> io::Result<Self> {
        let path = path();
        if UnixStream::connect(&path).is_ok() {
            let text = format!("{}: another agent listens there", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // Who may enter the directory may ask.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self { listener, path })
    }

    /// Waits so long for a question, and answers it. One that is malformed, or whose program gives up, is passed over.
    ///
    /// # Errors
    /// The socket is lost.
    pub fn answer_next(&self, within: Duration, answer: impl FnOnce(&Question) -> Admission) -> io::Result<()> {
        if !is_readable(&self.listener, within)? {
            return Ok(());
        }
        let (stream, _) = self.listener.accept()?;
        // Whatever a program does is its own matter.
        let _ = answered(&stream, answer);
        Ok(())
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_readable(listener: &UnixListener, within: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    match poll(&mut fds, Some(&within)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn answered(stream: &UnixStream, answer: impl FnOnce(&Question) -> Admission) -> io::Result<()> {
    stream.set_read_timeout(Some(QUESTION))?;
    stream.set_write_timeout(Some(QUESTION))?;
    let question: Question = serde_json::from_str(&line_of(stream)?)?;
    say(stream, &answer(&question))
}

fn line_of(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(line)
}

fn say(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn path() -> PathBuf {
    run_dir().0.join(format!("{}.agent", short(&linux::clock::host_id())))
}

/// Checks that the topic is part of a session that is active.
pub(crate) fn join(session: &str, topic: &str) -> Result<()> {
    let path = path();
    let asked = |stream: &UnixStream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(QUESTION))?;
        say(stream, &Question { session: session.to_owned(), topic: topic.to_owned() })?;
        Ok(serde_json::from_str::<Admission>(&line_of(stream)?)?)
    };
    let answer = UnixStream::connect(&path).and_then(|stream| asked(&stream));
    let answer = answer.map_err(|error| {
        let path = path.display();
        Error::Peer(format!(
            "session {session}: no agent answers at {path}: {error}; start `thalweg agent` on this host, with the same THALWEG_RUN_DIR"
        ))
    })?;
    if answer.admitted {
        return Ok(());
    }
    let because = answer.because.unwrap_or_else(|| "the agent gave no reason".to_owned());
    Err(Error::NotAdmitted { session: session.to_owned(), because, offers: answer.offers })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One agent for a test: both ends of a connection, without a run directory.
    fn exchange(question: &[u8], admission: Admission) -> (io::Result<()>, String) {
        let (mut program, agent) = UnixStream::pair().unwrap();
        program.write_all(question).unwrap();
        program.shutdown(std::net::Shutdown::Write).unwrap();
        let done = answered(&agent, |_| admission);
        drop(agent);
        (done, line_of(&program).unwrap())
    }

    #[test]
    fn a_question_is_answered_and_what_is_malformed_is_passed_over() {
        let offers = vec!["scale 2".to_owned()];
        let refused = Admission { admitted: false, because: Some("it does not fit".into()), offers };
        let (done, said) = exchange(b"{\"session\":\"teleop\",\"topic\":\"/video\"}\n", refused.clone());
        assert!(done.is_ok());
        assert_eq!(serde_json::from_str::<Admission>(&said).unwrap(), refused);
        for malformed in [&b""[..], b"\n", b"{}\n", b"{\"session\":1}\n", &[0xff; 70_000]] {
            let (done, said) = exchange(malformed, Admission::default());
            assert!(done.is_err() && said.is_empty(), "{:?}", &malformed[..malformed.len().min(20)]);
        }
    }
}
