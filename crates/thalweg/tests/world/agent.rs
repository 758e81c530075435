//! A process that plays a part in a test. It reads commands as lines of standard input, and answers with lines on
//! standard output, `@` and a JSON document each. Killed when dropped.

use super::{LONG, World};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Environment variable with the part.
pub const PART: &str = "THALWEG_TEST_PART";

/// One process.
pub struct Agent {
    child: Child,
    input: ChildStdin,
    answers: mpsc::Receiver<Value>,
    name: String,
}

impl Agent {
    /// Starts a process with a part, such as `publisher topic=/a carriers=tcp`, and waits for its first answer.
    pub fn start(world: &World, part: &str) -> Self {
        Self::start_by(world, part, &[])
    }

    /// As [`Agent::start`], under another command (`ip netns exec NAME`).
    pub fn start_by(world: &World, part: &str, under: &[&str]) -> Self {
        let agent = Self::begin(world, part, under);
        agent.answer();
        agent
    }

    /// As [`Agent::start_by`], without waiting for the first answer.
    pub fn begin(world: &World, part: &str, under: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let command = match under {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command.env("THALWEG_ADMIN_FROM", super::net::HOSTS); // the hosts of a test are one administration's
                command
            }
        };
        Self::run(world, part, command)
    }

    /// As [`Agent::start`], as another user and in no other group than this one. Only root may.
    pub fn start_as(world: &World, part: &str, user: u32, group: u32) -> Self {
        let agent = Self::begin_as(world, part, user, group);
        agent.answer();
        agent
    }

    /// As [`Agent::start_as`], without waiting for the first answer.
    pub fn begin_as(world: &World, part: &str, user: u32, group: u32) -> Self {
        // By an open file: the program may be where only root can read.
        let program = rustix::fs::open(std::env::current_exe().unwrap(), OFlags::RDONLY, Mode::empty()).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.uid(user).gid(group);
        Self::run(world, part, command)
    }

    fn run(world: &World, part: &str, mut command: Command) -> Self {
        command.args(["the_part", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(PART, format!("{part} realm={}", world.realm())).env("THALWEG_RUN_DIR", world.run_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (tell, answers) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match line.strip_prefix('@').map(serde_json::from_str) {
                    Some(Ok(answer)) => drop(tell.send(answer)),
                    Some(Err(problem)) => panic!("{line}: {problem}"),
                    None => {}
                }
            }
        });
        let input = child.stdin.take().unwrap();
        Self { child, input, answers, name: part.to_owned() }
    }

    /// Gives a command without waiting for its answer.
    pub fn tell(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// The next answer.
    pub fn answer(&self) -> Value {
        let answer = self.answers.recv_timeout(LONG * 5);
        answer.unwrap_or_else(|problem| panic!("{} did not answer: {problem}", self.name))
    }

    /// Gives a command and waits for its answer.
    pub fn ask(&mut self, command: &str) -> Value {
        self.tell(command);
        self.answer()
    }

    /// A number of an answer.
    pub fn number(&mut self, command: &str, key: &str) -> f64 {
        number(&self.ask(command), key)
    }

    /// Waits until the port has this many channels.
    pub fn connected(&mut self, count: usize) {
        let answer = self.ask(&format!("connected n={count}"));
        assert!(answer["ok"] == true, "{}: not {count} channels: {answer}", self.name);
    }

    /// Waits until its node reported an event that contains `text`.
    pub fn told(&mut self, text: &str, within: Duration) -> bool {
        let text = text.replace(' ', "_");
        self.ask(&format!("told ms={} text={text}", within.as_millis()))["ok"] == true
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        // The process is stopped when the kernel says so.
        let stopped = super::eventually(LONG, || (self.state() == 'T').then_some(()));
        assert!(stopped.is_some(), "{} did not stop", self.name);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in order.
    pub fn finish(mut self) {
        self.tell("end");
        let ended = super::eventually(LONG, || self.child.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{}: {ended:?}", self.name);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of an answer.
pub fn number(answer: &Value, key: &str) -> f64 {
    answer[key].as_f64().unwrap_or_else(|| panic!("no {key} in {answer}"))
}
