//! Round trips: every callback publishes the next message.

use super::{FAILED, Line, PASSED, PATIENCE, Ports, Settings, connected, hear, hear_words, taken, tell};
use crate::bench::figures::Meter;
use crate::bench::{Carrier, Error};
use baseline::meeting::{Meeting, write_words};
use baseline::{Payload, Terms, payload};
use linux::clock::monotonic_ns;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thalweg::Publisher;
use thalweg::codec::Raw;

const PING: &str = "/bench/ping";
const PONG: &str = "/bench/pong";

/// Meets a pong and makes round trips with it.
pub(super) fn ping(meeting: &Meeting, settings: &Settings) -> Result<Meter, Error> {
    let (carrier, terms) = (settings.carrier, &settings.terms);
    let line = Line::join(meeting, "latency", settings)?;
    let control = &line.control;
    tell(control, terms)?;
    let ports =
        Ports::open("ping", std::process::id().into(), carrier, terms, line.node())?.reliable(settings.reliable);
    let (give, given) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let trips = RoundTrips { meter: Meter::new(), warmup: terms.warmup, start: 0 };
    let mut player = Player::new(given, end, trips, terms, control.try_clone()?);
    let subscriber = ports.subscriber(PONG).callback(move |sample| player.take(&sample))?;
    let builder = ports.publisher(PING);
    let publisher = if settings.plain { builder.open()? } else { builder.answered_at(&subscriber).open()? };
    connected(&publisher, 1)?;
    if settings.stages {
        ports.measure([PING, PONG])?;
    }
    let _ = give.send(Turn::new(publisher, terms, carrier));
    let heard = hear_words(control);
    let (_turn, trips) = played(&ended, &heard)?;
    let [answer] = heard?;
    if answer == PASSED { Ok(trips.meter) } else { Err(Error::Peer("the other process found wrong echoes".to_owned())) }
}

/// Meets a ping and echoes its messages.
pub(super) fn pong(meeting: &Meeting, settings: &Settings) -> Result<(), Error> {
    let line = Line::host(meeting, "latency", settings)?;
    let control = &line.control;
    let (terms, realm) = hear(control, settings)?;
    let ports = Ports::open("pong", realm, settings.carrier, &terms, line.node())?.reliable(settings.reliable);
    let mut publisher = ports.publisher(PONG).open()?;
    let (give, given) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let mut player = Player::new(given, end, Echoes, &terms, control.try_clone()?);
    let builder = ports.subscriber(PING);
    let builder = if settings.plain { builder } else { builder.answering_with(&publisher) };
    let _subscriber = builder.callback(move |sample| player.take(&sample))?;
    connected(&publisher, 1)?;
    if settings.stages {
        ports.measure([PING, PONG])?;
    }
    publisher.publish(&[])?; // the ping may begin
    let _ = give.send(Turn::new(publisher, &terms, settings.carrier));
    let heard = hear_words::<1>(control);
    let played = played(&ended, &heard);
    let _ = write_words(control, &[if played.is_ok() { PASSED } else { FAILED }]); // an error: the other end has gone
    played.and(heard)?;
    Ok(())
}

/// The callback's result. Its own error says more than the message that the other end then left.
///
/// If the last echo wakes the ping at once, the other end speaks before this one's callback has returned.
fn played<P>(ended: &mpsc::Receiver<Played<P>>, heard: &Result<[u64; 1], Error>) -> Played<P> {
    let returns = if matches!(heard, Ok([PASSED])) { PATIENCE } else { Duration::ZERO };
    let early = || Error::Peer("the other process ended before all round trips were made".to_owned());
    ended.recv_timeout(returns).map_err(|_| early())?
}

/// The work of one end: its answer to a message.
trait Part: Send + 'static {
    /// `true` for the end that announces the end of the measurement.
    const LEADS: bool;
    /// The other end is ready.
    fn begin(&mut self, turn: &mut Turn) -> Result<(), Error>;
    /// A message arrived; `left` more are to come.
    fn go_on(&mut self, turn: &mut Turn, bytes: &[u8], left: u64) -> Result<(), Error>;
}

/// The ping.
struct RoundTrips {
    meter: Meter,
    warmup: u64,
    start: u64,
}

impl RoundTrips {
    #[inline]
    fn set_out(&mut self, turn: &mut Turn) -> Result<(), Error> {
        if turn.number == self.warmup {
            self.meter.start();
        }
        self.start = monotonic_ns();
        turn.send()
    }
}

impl Part for RoundTrips {
    const LEADS: bool = true;

    fn begin(&mut self, turn: &mut Turn) -> Result<(), Error> {
        self.set_out(turn)
    }

    #[inline]
    fn go_on(&mut self, turn: &mut Turn, bytes: &[u8], left: u64) -> Result<(), Error> {
        turn.receive(bytes)?;
        let took = monotonic_ns() - self.start;
        if turn.number >= self.warmup {
            self.meter.record(took);
        }
        turn.number += 1;
        if left == 0 {
            self.meter.stop();
            return Ok(());
        }
        self.set_out(turn)
    }
}

/// The pong.
struct Echoes;

impl Part for Echoes {
    const LEADS: bool = false;

    fn begin(&mut self, _turn: &mut Turn) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn go_on(&mut self, turn: &mut Turn, bytes: &[u8], _left: u64) -> Result<(), Error> {
        turn.receive(bytes)?;
        turn.send()?;
        turn.number += 1;
        Ok(())
    }
}

type Played<P> = Result<(Turn, P), Error>;

/// Plays a part on the receiving thread. The player gets its publisher when both directions are connected, which may
/// be after the first message, and gives it back at the end.
struct Player<P> {
    given: mpsc::Receiver<Turn>,
    end: mpsc::Sender<Played<P>>,
    playing: Option<(Turn, P)>,
    waiting: Option<P>,
    left: u64,
    control: UnixStream,
}

impl<P: Part> Player<P> {
    fn new(
        given: mpsc::Receiver<Turn>,
        end: mpsc::Sender<Played<P>>,
        part: P,
        terms: &Terms,
        control: UnixStream,
    ) -> Self {
        Self { given, end, playing: None, waiting: Some(part), left: terms.warmup + terms.count, control }
    }

    #[inline]
    fn take(&mut self, bytes: &[u8]) {
        if self.playing.is_none() && !self.start() {
            return;
        }
        let Some((turn, part)) = &mut self.playing else { return };
        let done = if bytes.is_empty() {
            part.begin(turn)
        } else {
            self.left = self.left.saturating_sub(1);
            part.go_on(turn, bytes, self.left)
        };
        if self.left == 0 || done.is_err() {
            self.finish(done);
        }
    }

    #[cold]
    fn start(&mut self) -> bool {
        let Some(part) = self.waiting.take() else { return false };
        self.playing = self.given.recv().ok().map(|turn| (turn, part));
        self.playing.is_some()
    }

    #[cold]
    fn finish(&mut self, done: Result<(), Error>) {
        let Some(played) = self.playing.take() else { return };
        let (failed, word) = (done.is_err(), if done.is_ok() { PASSED } else { FAILED });
        let _ = self.end.send(done.map(|()| played));
        if P::LEADS || failed {
            let _ = write_words(&self.control, &[word]); // fails when the other end is gone, which the main thread sees
        }
    }
}

/// Both ends in this process, on the publisher's thread.
pub(super) fn local(settings: &Settings) -> Result<Meter, Error> {
    let terms = &settings.terms;
    let ports = Ports::open("local", std::process::id().into(), Carrier::Local, terms, None)?;
    let (ping, pong) = (ports.publisher(PING).open()?, ports.publisher(PONG).open()?);
    let (seen, echoes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut turn = Turn::new(ping, terms, Carrier::Local);
    let mut echo = Turn::new(pong, terms, Carrier::Local);
    let (size, payload) = (terms.size, terms.payload);
    let count = seen.clone();
    let back = ports.subscriber(PONG).on_publisher_thread().callback(move |sample| {
        let number = count.load(Relaxed);
        let right = payload != Payload::Checked || payload::verify(&sample, number).is_ok();
        if sample.len() == size && right {
            count.store(number + 1, Relaxed);
        }
    })?;
    connected(&echo.publisher, 1)?;
    let count = echoes.clone();
    let there = ports.subscriber(PING).on_publisher_thread().callback(move |sample| {
        if echo.receive(&sample).and_then(|()| echo.send()).is_ok() {
            echo.number += 1;
            count.store(echo.number, Relaxed);
        }
    })?;
    connected(&turn.publisher, 1)?;
    let mut meter = Meter::new();
    for number in 0..terms.warmup + terms.count {
        if number == terms.warmup {
            meter.start();
        }
        turn.number = number;
        let start = monotonic_ns();
        turn.send()?;
        let took = monotonic_ns() - start;
        if number >= terms.warmup {
            meter.record(took);
        }
    }
    meter.stop();
    drop((there, back));
    let (wanted, seen, echoes) = (terms.warmup + terms.count, seen.load(Relaxed), echoes.load(Relaxed));
    if (seen, echoes) != (wanted, wanted) {
        return Err(Error::System(format!("of {wanted} messages {echoes} came right, and {seen} of the echoes")));
    }
    Ok(meter)
}

/// A publisher, and its work on the payload of one message after the other.
struct Turn {
    publisher: Publisher<Raw>,
    payload: Payload,
    copies_out: bool,
    own: Vec<u8>, // where a payload is copied from, and to when it was received in memory that the peer shares
    number: u64,
}

impl Turn {
    fn new(publisher: Publisher<Raw>, terms: &Terms, carrier: Carrier) -> Self {
        let copies_out = carrier == Carrier::Shm && terms.payload == Payload::Copied;
        Self { publisher, payload: terms.payload, copies_out, own: vec![0; terms.size], number: 0 }
    }

    #[inline]
    fn send(&mut self) -> Result<(), Error> {
        let published = match self.payload {
            Payload::Copied => self.publisher.publish(&self.own)?,
            Payload::Untouched => self.publisher.loan(self.own.len())?.publish()?,
            Payload::Checked => {
                let mut loan = self.publisher.loan(self.own.len())?;
                payload::fill(loan.bytes_mut(), self.number);
                loan.publish()?
            }
        };
        taken(published, 1)
    }

    #[inline]
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() != self.own.len() {
            return Err(Error::Peer(format!("a message has {} bytes, not {}", bytes.len(), self.own.len())));
        }
        if self.copies_out {
            self.own.copy_from_slice(bytes);
        }
        if self.payload == Payload::Checked { Ok(payload::verify(bytes, self.number)?) } else { Ok(()) }
    }
}
