//! Starting, stopping and listening to the robot's processes.

use super::part::Order;
use super::report::{ChannelStates, PartReport};
use super::stage::Stage;
use super::{PART, robot};
use crate::failure::{Failure, Result};
use crate::signals::{Stop, TICK};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// One process of the robot. It ends when its standard input does.
struct Part {
    name: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    ready: bool,
}

/// News of a part: a line, or the end of its output.
type Heard = (usize, Option<PartReport>);

/// All processes of the robot. Dropping it ends them.
pub(super) struct Processes {
    parts: Vec<Part>,
    heard: Receiver<Heard>,
    board: ChannelStates,
}

/// Time in which the processes have to find each other.
const START: Duration = Duration::from_secs(15);
/// Time in which publishers have to end.
const FINISH: Duration = Duration::from_secs(6);
/// Time of silence after which missing samples are lost.
const SILENCE: Duration = Duration::from_secs(1);
/// Time in which processes have to end before they are killed.
const END: Duration = Duration::from_secs(3);

impl Processes {
    /// Starts all processes, each in its place.
    pub(super) fn start(stage: &Stage, realm: &str) -> Result<Self> {
        let program = std::env::current_exe()?;
        let (tell, heard) = channel();
        let mut processes = Self { parts: Vec::new(), heard, board: ChannelStates::default() };
        for (index, name) in robot::parts().into_iter().enumerate() {
            let mut command = Command::new(&program);
            command.args([PART, name]).args(stage.place(name, realm).arguments());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child =
                command.spawn().map_err(|e| Failure::System(format!("cannot start {}: {e}", program.display())))?;
            let (orders, lines) = (child.stdin.take(), child.stdout.take());
            processes.parts.push(Part { name, child, orders, ready: false });
            let tell = tell.clone();
            let read = move || lines.into_iter().for_each(|lines| forward(index, lines, &tell));
            linux::thread::spawn(linux::thread::Settings::named(name), read)?;
        }
        Ok(processes)
    }

    /// The state of all channels.
    pub(super) fn board(&self) -> &ChannelStates {
        &self.board
    }

    /// Waits until all parts are connected; `false` if the user asked to end first.
    pub(super) fn wait_until_ready(&mut self, stop: &Stop) -> Result<bool> {
        let until = Instant::now() + START;
        while self.parts.iter().any(|part| !part.ready) {
            if stop.asked() {
                return Ok(false);
            }
            if Instant::now() > until {
                let late: Vec<_> = self.parts.iter().filter(|p| !p.ready).map(|p| p.name).collect();
                let text = format!("not connected within {} s: {}", START.as_secs(), late.join(", "));
                return Err(Failure::No(text));
            }
            self.listen(Instant::now() + TICK)?;
        }
        Ok(true)
    }

    /// Waits until `until` or the next message of a part.
    pub(super) fn listen(&mut self, until: Instant) -> Result {
        let wait = until.saturating_duration_since(Instant::now()).min(TICK);
        let Ok(first) = self.heard.recv_timeout(wait) else { return Ok(()) };
        self.note(first)?;
        while let Ok(heard) = self.heard.try_recv() {
            self.note(heard)?;
        }
        Ok(())
    }

    fn note(&mut self, (index, say): Heard) -> Result {
        let Some(part) = self.parts.get_mut(index) else { return Ok(()) };
        match say {
            Some(PartReport::Ready) => part.ready = true,
            Some(say) => self.board.note(say),
            None => return Err(part.ended()),
        }
        Ok(())
    }

    /// Resets all counters; `false` if the user asked to end first.
    pub(super) fn prepare(&mut self, stop: &Stop) -> Result<bool> {
        self.parts.iter_mut().for_each(|part| part.ready = false);
        self.order(Order::Prepare)?;
        let ready = self.wait_until_ready(stop)?;
        // Reports from before belong to the previous phase.
        self.board = ChannelStates::default();
        Ok(ready)
    }

    /// Makes the busy process fill the processors.
    pub(super) fn fill_processors(&mut self) -> Result {
        self.order(Order::Busy)
    }

    /// Starts all publishers.
    pub(super) fn start_publishing(&mut self) -> Result {
        self.order(Order::Start)
    }

    /// Stops all publishers, and waits for the samples on their way.
    pub(super) fn stop_publishing(&mut self) -> Result {
        self.order(Order::Stop)?;
        let until = Instant::now() + FINISH;
        while !self.board.is_finished() && Instant::now() < until {
            self.listen(until)?;
        }
        let (mut received, mut since) = (self.board.received(), Instant::now());
        while !self.board.is_complete() && since.elapsed() < SILENCE {
            self.listen(until)?;
            if self.board.received() > received {
                (received, since) = (self.board.received(), Instant::now());
            }
            if Instant::now() > until {
                self.listen(Instant::now() + TICK)?;
            }
        }
        Ok(())
    }

    fn order(&mut self, order: Order) -> Result {
        for part in &mut self.parts {
            let told = part.orders.as_mut().map(|pipe| writeln!(pipe, "{}", order.word()));
            if !matches!(told, Some(Ok(()))) {
                return Err(part.ended());
            }
        }
        Ok(())
    }

    /// Ends all processes: by closing their standard input, and by force after a time.
    pub(super) fn end(&mut self) {
        self.parts.iter_mut().for_each(|part| part.orders = None);
        let until = Instant::now() + END;
        for mut part in self.parts.drain(..) {
            while matches!(part.child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            // Neither call affects a process that has ended.
            let _ = part.child.kill();
            let _ = part.child.wait();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end();
    }
}

impl Part {
    /// The failure of the whole robot because of this part; its own message is on standard error.
    fn ended(&mut self) -> Failure {
        self.orders = None;
        let status = self.child.wait();
        let how = status.as_ref().map_or("in an unknown way".to_owned(), ToString::to_string);
        let text = format!("the process {} ended early ({how})", self.name);
        match status.ok().and_then(|status| status.code()) {
            Some(3) => Failure::System(text),
            _ => Failure::No(text),
        }
    }
}

fn forward(index: usize, lines: ChildStdout, tell: &Sender<Heard>) {
    for line in BufReader::new(lines).lines().map_while(std::result::Result::ok) {
        let Ok(say) = serde_json::from_str(&line) else { continue };
        if tell.send((index, Some(say))).is_err() {
            return;
        }
    }
    let _ = tell.send((index, None));
}
