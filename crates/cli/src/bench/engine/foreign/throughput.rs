//! A stream at full speed. The receiver counts, and tells its count when the stream has ended.

use super::{
    EngineName, Error, GREET_AGAIN, GREETING, Line, SILENCE, Settings, failed, follow, hear_words, lead, message,
    number, number_of, qos, topic,
};
use crate::bench::figures::Meter;
use baseline::Terms;
use baseline::meeting::write_words;
use baseline::throughput::Arrived;
use engines::Sample;
use linux::clock::monotonic_ns;
use linux::poll::wait_readable;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const STREAM: &str = "/bench/stream";
/// The receiver waits for the last messages as long as some come within this time.
const LAST: Duration = Duration::from_secs(1);

/// Sends to a receiver, as fast as the engine takes messages.
pub(super) fn send(engine: EngineName, settings: &Settings, control: &UnixStream) -> Result<(Arrived, Meter), Error> {
    let terms = &settings.terms;
    let program = lead(engine, terms, control)?;
    let line = Line::open(&*program, STREAM)?;
    let mut message = message(terms.size);
    greet(&line, &mut message, control)?;
    let mut meter = Meter::new();
    let mut start = monotonic_ns();
    for at in 0..terms.warmup + terms.count {
        if at == terms.warmup {
            meter.start();
            start = monotonic_ns();
        }
        number(&mut message, at);
        line.publish(&message)?;
    }
    write_words(control, &[0])?;
    let [messages, last] = hear_words(control)?;
    meter.stop();
    Ok((Arrived { messages, nanoseconds: last.saturating_sub(start) }, meter))
}

/// Sends greetings until the receiver says that one has come.
fn greet(line: &Line, message: &mut [u8], control: &UnixStream) -> Result<(), Error> {
    number(message, GREETING);
    for _ in 0..SILENCE.as_millis() / GREET_AGAIN.as_millis() {
        line.publish(message)?;
        if wait_readable(control, Some(GREET_AGAIN))? {
            return hear_words::<1>(control).map(|_| ());
        }
    }
    Err(Error::Peer(format!("no greeting came through within {SILENCE:?}")))
}

/// The count of the receiver.
#[derive(Default)]
struct Count {
    greetings: AtomicU64,
    /// Measured messages.
    messages: AtomicU64,
    /// The arrival of the last one.
    last: AtomicU64,
}

/// Counts what a sender sends.
pub(super) fn receive(engine: EngineName, control: &UnixStream) -> Result<(), Error> {
    let (terms, program) = follow(engine, control)?;
    let count = Arc::new(Count::default());
    let (counting, from) = (count.clone(), terms.warmup);
    let deliver = Box::new(move |sample: &Sample<'_>| counting.take(sample.message, from));
    let _subscriber = program.subscriber(&topic(STREAM)?, &qos(), deliver).map_err(failed)?;
    while count.greetings.load(Relaxed) == 0 {
        if wait_readable(control, Some(GREET_AGAIN))? {
            return hear_words::<1>(control).map(|_| ()); // the sender has given up
        }
    }
    write_words(control, &[0])?;
    let [_sent] = hear_words(control)?;
    count.settle(&terms);
    Ok(write_words(control, &[count.messages.load(Relaxed), count.last.load(Relaxed)])?)
}

impl Count {
    fn take(&self, message: &[u8], from: u64) {
        match number_of(message) {
            Some(GREETING) => drop(self.greetings.fetch_add(1, Relaxed)),
            Some(number) if number >= from => {
                self.messages.fetch_add(1, Relaxed);
                self.last.store(monotonic_ns(), Relaxed);
            }
            _ => {}
        }
    }

    /// Waits until all have come, or no more come.
    fn settle(&self, terms: &Terms) {
        let mut before = None;
        loop {
            let now = self.messages.load(Relaxed);
            if now >= terms.count || before.replace(now) == Some(now) {
                return;
            }
            std::thread::sleep(LAST);
        }
    }
}
