//! Sessions, as programs join them: `thalweg agent` on the host says whether the broker has admitted one.
//!
//! A program asks over a unix socket in the run directory, in one line of JSON ([`Question`]), and gets one line ([`Admission`]).

#![allow(clippy::disallowed_methods)] // a user waits

use crate::control::local::{run_dir, short};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for the agent, which asks its broker.
const PATIENCE: Duration = Duration::from_secs(8);
/// Longest wait of the agent for a program's question.
const QUESTION: Duration = Duration::from_secs(1);
/// Longest line, in bytes.
const LONGEST: usize = 64 << 10;

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

    /// Waits so long for a program with a question.
    ///
    /// # Errors
    /// The socket is lost.
    pub fn next(&self, within: Duration) -> io::Result<Option<Asking>> {
        Ok(if is_readable(&self.listener, within)? { Some(Asking(self.listener.accept()?.0)) } else { None })
    }
}

/// A program that asks.
#[derive(Debug)]
pub struct Asking(UnixStream);

impl Asking {
    /// Hears the question, for a second at most, and answers it. One that is malformed, or whose program gives up, is passed over.
    pub fn answer(self, answer: impl FnOnce(&Question) -> Admission) {
        let _ = answered(&self.0, answer);
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
    stream.set_write_timeout(Some(QUESTION))?;
    let question: Question = serde_json::from_str(&line_of(stream, QUESTION)?)?;
    say(stream, &answer(&question))
}

/// One line that comes within this time, piece by piece or at once.
fn line_of(mut stream: &UnixStream, within: Duration) -> io::Result<String> {
    let until = Instant::now() + within;
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    while !line.contains(&b'\n') && line.len() < LONGEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            count => line.extend_from_slice(&piece[..count]),
        }
    }
    String::from_utf8(line).map_err(io::Error::other)
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
        stream.set_write_timeout(Some(QUESTION))?;
        say(stream, &Question { session: session.to_owned(), topic: topic.to_owned() })?;
        Ok(serde_json::from_str::<Admission>(&line_of(stream, PATIENCE)?)?)
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
        (done, line_of(&program, QUESTION).unwrap_or_default())
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
