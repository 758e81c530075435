//! The part's end of the pipes.

use super::process::{Place, Start};
use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What a part says when it cannot go on.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Why.
    pub failed: String,
    /// As [`Error::exit_code`].
    pub code: u8,
}

/// What the experiment tells a part, and the way to answer.
#[derive(Debug)]
pub struct Orders {
    settings: Value,
    lines: Option<Receiver<String>>,
}

/// Reads the first line.
pub fn listen() -> Result<(Place, String, Orders)> {
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

    /// Says something to the experiment.
    ///
    /// # Errors
    /// When it is no longer there.
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

/// Says why the part ends early; nobody listening is no error any more.
pub fn say_failed(error: &Error) {
    let _ = say(&Failed { failed: error.to_string(), code: error.exit_code() });
}
