//! A part as a process: the experiment's end of its pipes ([`Part`]), and its own ([`Orders`]).

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::topology::Namespace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The place of a part: namespace, processors, nice value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// Name of the network namespace; `None`: the experiment's own.
    pub namespace: Option<String>,
    /// Processors all its threads may run on; none: all.
    pub processors: Vec<usize>,
    /// Nice value of all its threads, −20 (before all others of ordinary priority) … 19.
    #[serde(default)]
    pub nice: i32,
}

impl Place {
    /// In a host, on these processors.
    pub fn at(host: &Namespace, processors: &[usize]) -> Self {
        Self { namespace: Some(host.name().to_owned()), ..Self::here(processors) }
    }

    /// In the experiment's own namespace, on these processors.
    pub fn here(processors: &[usize]) -> Self {
        Self { processors: processors.to_vec(), ..Self::default() }
    }

    /// At a priority above all ordinary processes: other work of the machine is not measured.
    pub fn first(self) -> Self {
        Self { nice: -20, ..self }
    }
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub place: Place,
    pub role: String,
    pub settings: Value,
}

/// A process that plays a part. Ended when dropped, by force if it does not obey.
#[derive(Debug)]
pub struct Part {
    role: String,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<Value>,
}

/// Time for a part to end before it is killed.
const END: Duration = Duration::from_secs(1);
/// Interval at which a waiting caller checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Part {
    /// Starts a part. It does not wait for its first words.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be started.
    pub fn start(lab: &Lab, place: Place, role: &str, settings: &impl Serialize) -> Result<Self> {
        let program = &lab.program;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).arg(role).env("THALWEG_RUN_DIR", lab.folder().join("run"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::system(&program.path.display().to_string(), &e, "check that it can be started"))?;
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        let (tell, lines) = channel();
        // The part is held from here on, so that an error below ends it.
        let mut part = Self { role: role.to_owned(), child, orders, lines };
        let read = move || said.into_iter().for_each(|said| forward(said, &tell));
        linux::thread::spawn(linux::thread::Settings::named(role), read)?;
        let settings = serde_json::to_value(settings).map_err(std::io::Error::from)?;
        part.tell(&Start { place, role: role.to_owned(), settings })?;
        Ok(part)
    }

    /// As [`Part::start`], and waits until it says that it is ready.
    ///
    /// # Errors
    /// As there, and as [`Part::hear`].
    pub fn ready(lab: &Lab, place: Place, role: &str, settings: &impl Serialize) -> Result<Self> {
        let mut part = Self::start(lab, place, role, settings)?;
        part.hear::<Value>(lab, super::LONG)?;
        Ok(part)
    }

    /// Sends the part an order.
    ///
    /// # Errors
    /// [`Error::Failed`] when it is no longer there.
    pub fn tell(&mut self, order: &impl Serialize) -> Result {
        let line = serde_json::to_string(order).map_err(std::io::Error::from)?;
        let told = self.orders.as_mut().map(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush()));
        if matches!(told, Some(Ok(()))) { Ok(()) } else { Err(self.ended()) }
    }

    /// Waits at most `time` for its next words.
    ///
    /// # Errors
    /// [`Error::Failed`] when they do not come, are not of this type, or the part ended; its own message is passed on.
    /// [`Error::Stopped`].
    pub fn hear<T: DeserializeOwned>(&mut self, lab: &Lab, time: Duration) -> Result<T> {
        let said = self.listen(lab, time)?;
        said.ok_or_else(|| Error::Failed(format!("{} did not answer within {} ms", self.role, time.as_millis())))
    }

    /// As [`Part::hear`]; `None`: no message has come yet.
    ///
    /// # Errors
    /// As there, but for that.
    pub fn listen<T: DeserializeOwned>(&mut self, lab: &Lab, time: Duration) -> Result<Option<T>> {
        let until = Instant::now() + time;
        loop {
            lab.stop.check()?;
            match self.lines.recv_timeout(LOOK.min(until.saturating_duration_since(Instant::now()))) {
                Ok(said) => return self.understand(said).map(Some),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends the part an order, and waits for the answer.
    ///
    /// # Errors
    /// As [`Part::tell`] and [`Part::hear`].
    pub fn ask<T: DeserializeOwned>(&mut self, lab: &Lab, order: &impl Serialize, time: Duration) -> Result<T> {
        self.tell(order)?;
        self.hear(lab, time)
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that it has used so far, in nanoseconds.
    ///
    /// # Errors
    /// It is no longer there.
    pub fn processor_ns(&self) -> Result<u64> {
        Ok(linux::clock::cpu_ns_of(self.child.id())?)
    }

    fn understand<T: DeserializeOwned>(&self, said: Value) -> Result<T> {
        if let Ok(Failed { failed, code }) = Failed::deserialize(&said) {
            let text = format!("{}: {failed}", self.role);
            return Err(if code == 3 { Error::System(text) } else { Error::Failed(text) });
        }
        T::deserialize(&said).map_err(|e| Error::Failed(format!("{} said {said}: {e}", self.role)))
    }

    /// The reason why it ended: in its own words, if it had time for some.
    fn ended(&mut self) -> Error {
        let last = self.lines.recv_timeout(LOOK).ok().map(|said| self.understand::<Failed>(said));
        match last {
            Some(Err(error)) => error,
            _ => Error::Failed(format!("{} (process {}) ended early", self.role, self.child.id())),
        }
    }

    /// Lets it end, and waits for that.
    pub fn end(&mut self) {
        self.orders = None;
        let until = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Neither has an effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lines that are no JSON object are not the part's (a test harness speaks first).
fn forward(said: ChildStdout, tell: &std::sync::mpsc::Sender<Value>) {
    for line in BufReader::new(said).lines().map_while(std::result::Result::ok) {
        let Some(start) = line.find('{') else { continue };
        let Ok(value) = serde_json::from_str::<Value>(&line[start..]) else { continue };
        if tell.send(value).is_err() {
            return;
        }
    }
}

/// A part's last message when it cannot continue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    /// The reason.
    pub failed: String,
    /// As [`Error::exit_code`].
    pub code: u8,
}

/// Orders of the experiment to a part, and the way to answer.
#[derive(Debug)]
pub struct Orders {
    settings: Value,
    lines: Option<Receiver<String>>,
}

/// Reads the first line.
pub(super) fn listen() -> Result<(Place, String, Orders)> {
    let mut first = String::new();
    std::io::stdin().lock().read_line(&mut first)?;
    let start: Start = parse(&first)?;
    Ok((start.place, start.role, Orders { settings: start.settings, lines: None }))
}

impl Orders {
    /// The settings of the role.
    ///
    /// # Errors
    /// [`Error::Usage`] when they are not of this type.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_value(self.settings.clone()).map_err(|e| Error::Usage(format!("settings: {e}")))
    }

    /// The next order; `None` when there will be no more, and the part ends.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is not of this type.
    pub fn wait<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.lines()?.recv().ok().map(|line| parse(&line)).transpose()
    }

    /// The next order if it comes within `time`: `None` when it does not, `Some(None)` when there will be no more.
    ///
    /// # Errors
    /// As [`Orders::wait`].
    pub fn wait_within<T: DeserializeOwned>(&mut self, time: Duration) -> Result<Option<Option<T>>> {
        match self.lines()?.recv_timeout(time) {
            Ok(line) => parse(&line).map(|order| Some(Some(order))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Ok(Some(None)),
        }
    }

    /// Sends a message to the experiment.
    ///
    /// # Errors
    /// If it no longer exists.
    pub fn say(&self, what: &impl Serialize) -> Result {
        say(what)
    }

    /// Read by a thread that is started once the part is where it belongs.
    fn lines(&mut self) -> Result<&Receiver<String>> {
        if self.lines.is_none() {
            let (tell, told) = channel();
            let read = move || {
                let lines = std::io::stdin().lock().lines().map_while(std::result::Result::ok);
                lines.filter(|line| !line.is_empty()).try_for_each(|line| tell.send(line).ok());
            };
            linux::thread::spawn(linux::thread::Settings::named("orders"), read)?;
            self.lines = Some(told);
        }
        self.lines.as_ref().ok_or_else(|| Error::Failed("nobody reads the orders".into()))
    }
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).map_err(|e| Error::Usage(format!("order {:?}: {e}", line.trim())))
}

fn say(what: &impl Serialize) -> Result {
    let line = serde_json::to_string(what).map_err(std::io::Error::from)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Tells the experiment why the part ends early. It need not listen any more.
pub(super) fn say_failed(error: &Error) {
    let _ = say(&Failed { failed: error.to_string(), code: error.exit_code() });
}
