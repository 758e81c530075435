//! Round trips: every callback publishes the next message.

use super::{
    EngineName, Error, GREET_AGAIN, GREETING, Line, SILENCE, Settings, failed, follow, hear_words, lead, message,
    number, number_of, qos, topic,
};
use crate::bench::figures::Meter;
use baseline::Terms;
use baseline::meeting::write_words;
use engines::Sample;
use linux::clock::monotonic_ns;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

const PING: &str = "/bench/ping";
const PONG: &str = "/bench/pong";

/// Makes round trips with a pong.
pub(super) fn ping(engine: EngineName, settings: &Settings, control: &UnixStream) -> Result<Meter, Error> {
    let terms = &settings.terms;
    let program = lead(engine, terms, control)?;
    let line = Line::open(&*program, PING)?;
    let (end, ended) = mpsc::channel();
    let echoes = Arc::new(AtomicU64::new(0));
    let mut trips = Trips::new(line.clone(), terms, echoes.clone(), end);
    let deliver = Box::new(move |sample: &Sample<'_>| trips.take(sample.message));
    let subscriber = program.subscriber(&topic(PONG)?, &qos(), deliver).map_err(failed)?;
    greet(&line, terms, &echoes)?;
    let outcome = wait(&ended, &echoes);
    drop(subscriber);
    write_words(control, &[0])?;
    outcome
}

/// Sends greetings until one has come back.
fn greet(line: &Line, terms: &Terms, echoes: &AtomicU64) -> Result<(), Error> {
    let mut greeting = message(terms.size);
    number(&mut greeting, GREETING);
    for _ in 0..SILENCE.as_millis() / GREET_AGAIN.as_millis() {
        line.publish(&greeting)?;
        std::thread::sleep(GREET_AGAIN);
        if echoes.load(Relaxed) > 0 {
            return Ok(());
        }
    }
    Err(Error::Peer(format!("no greeting came back within {SILENCE:?}")))
}

/// Waits for the end, as long as echoes come.
fn wait(ended: &mpsc::Receiver<Result<Meter, Error>>, echoes: &AtomicU64) -> Result<Meter, Error> {
    loop {
        let before = echoes.load(Relaxed);
        match ended.recv_timeout(SILENCE) {
            Ok(outcome) => return outcome,
            Err(_) if echoes.load(Relaxed) > before => {}
            Err(_) => return Err(Error::Peer(format!("no echo within {SILENCE:?}, after {before}"))),
        }
    }
}

/// The state of the active end, on the engine's thread.
struct Trips {
    line: Line,
    message: Vec<u8>,
    warmup: u64,
    last: u64,
    next: u64,
    start: u64,
    meter: Option<Meter>,
    echoes: Arc<AtomicU64>,
    end: mpsc::Sender<Result<Meter, Error>>,
}

impl Trips {
    fn new(line: Line, terms: &Terms, echoes: Arc<AtomicU64>, end: mpsc::Sender<Result<Meter, Error>>) -> Self {
        let (message, meter) = (message(terms.size), Some(Meter::new()));
        let (warmup, last) = (terms.warmup, terms.warmup + terms.count);
        Self { line, message, warmup, last, next: 0, start: 0, meter, echoes, end }
    }

    fn take(&mut self, echo: &[u8]) {
        let arrived = monotonic_ns();
        let Some(came) = number_of(echo) else { return };
        match came {
            GREETING if self.echoes.fetch_add(1, Relaxed) > 0 => return, // the first one begins
            GREETING => {}
            _ if came != self.next => return, // an engine that gives a message twice
            _ => self.count(arrived),
        }
        if self.meter.is_some() {
            self.set_out();
        }
    }

    fn count(&mut self, arrived: u64) {
        self.echoes.fetch_add(1, Relaxed);
        if let Some(meter) = self.meter.as_mut().filter(|_| self.next >= self.warmup) {
            meter.record(arrived - self.start);
        }
        self.next += 1;
        if self.next == self.last
            && let Some(mut meter) = self.meter.take()
        {
            meter.stop();
            let _ = self.end.send(Ok(meter));
        }
    }

    fn set_out(&mut self) {
        if let Some(meter) = self.meter.as_mut().filter(|_| self.next == self.warmup) {
            meter.start();
        }
        number(&mut self.message, self.next);
        self.start = monotonic_ns();
        if let Err(error) = self.line.publish(&self.message) {
            self.meter = None;
            let _ = self.end.send(Err(error));
        }
    }
}

/// Echoes what a ping sends, until it says that it is over.
pub(super) fn pong(engine: EngineName, control: &UnixStream) -> Result<(), Error> {
    let (_, program) = follow(engine, control)?;
    let line = Line::open(&*program, PONG)?;
    let (tell, told) = mpsc::channel();
    // The sender of a sample is told by its silence that an echo could not leave.
    let deliver = Box::new(move |sample: &Sample<'_>| drop(line.publish(sample.message).map_err(|e| tell.send(e))));
    let subscriber = program.subscriber(&topic(PING)?, &qos(), deliver).map_err(failed)?;
    let over = hear_words::<1>(control);
    drop(subscriber);
    told.try_recv().map_or(over.map(|_| ()), Err)
}
