//! Engines of others, all by the same face ([`engines::Engine`]): round trips and streams between two programs on this host, which find each
//! other at addresses that the active end chooses.
//!
//! A message is CDR of a type with one field, `uint8[] data`, which every engine takes. Each engine sends by its own transport. Ends that
//! their engine has not matched yet lose messages, so the active end sends greetings until one has come through.

mod latency;
mod place;
mod throughput;

use super::thalweg::hear_words;
use super::{Engine, EngineName, Settings};
use crate::bench::figures::{Fanout, Latency, Throughput};
use crate::bench::{Error, Payload, name_of};
use baseline::Terms;
use baseline::meeting::{self, write_words};
use engines::{Sample, Topic};
use place::{End, Place};
use qos::{Qos, Queue};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use thalweg::Change;
use thalweg::codec::{Definitions, TypeDescription};

/// An engine of others.
pub(super) struct Foreign(pub EngineName);

impl Engine for Foreign {
    fn name(&self) -> &'static str {
        place::name(self.0)
    }

    fn ping(&self, settings: &Settings) -> Result<Latency, Error> {
        let (settings, control) = (self.checked(settings)?, settings.meeting(self.name(), "latency").join()?);
        let meter = latency::ping(self.0, &settings, &control)?;
        Ok(Latency::new(self.name(), &settings, &meter))
    }

    fn pong(&self, settings: &Settings) -> Result<(), Error> {
        latency::pong(self.0, &settings.visited(self.name(), "latency")?)
    }

    fn send(&self, settings: &Settings) -> Result<Throughput, Error> {
        let (settings, control) = (self.checked(settings)?, settings.meeting(self.name(), "throughput").join()?);
        let (arrived, meter) = throughput::send(self.0, &settings, &control)?;
        Ok(Throughput::new(self.name(), &settings, arrived.messages, arrived.nanoseconds, &meter))
    }

    fn receive(&self, settings: &Settings) -> Result<(), Error> {
        throughput::receive(self.0, &settings.visited(self.name(), "throughput")?)
    }

    fn publish(&self, _: &Settings) -> Result<Fanout, Error> {
        Err(self.no_fanout())
    }

    fn subscribe(&self, _: &Settings) -> Result<(), Error> {
        Err(self.no_fanout())
    }
}

impl Foreign {
    fn no_fanout(&self) -> Error {
        let lab = "thalweg lab run dali-single";
        Error::Usage(format!("engine \"{}\": several subscribers are measured by `{lab}`", self.name()))
    }

    /// The settings with the engine's own transport, if it can do what is asked.
    fn checked(&self, settings: &Settings) -> Result<Settings, Error> {
        let terms = &settings.terms;
        terms.check(baseline::Carrier::Shm)?;
        if terms.size < LEAST {
            return Err(Error::Usage(format!("{} bytes per message: with a head at least {LEAST}", terms.size)));
        }
        if terms.payload != baseline::Payload::Copied {
            let only = name_of(Payload::Copied);
            return Err(Error::Usage(format!("engine \"{}\" copies messages; allowed: --payload {only}", self.name())));
        }
        Ok(Settings { carrier: place::transport(self.0), ..settings.clone() })
    }
}

/// Opens the active end's program, and tells the other end the terms and the places: the program is there when the other one looks for it.
fn lead(engine: EngineName, terms: &Terms, control: &UnixStream) -> Result<Box<dyn engines::Engine>, Error> {
    let ports = [place::free_port()?, place::free_port()?];
    let program = Place { end: End::Active, ports }.open(engine).map_err(failed)?;
    meeting::tell(control, terms)?;
    write_words(control, &ports.map(u64::from))?;
    Ok(program)
}

/// Opens the passive end's program as the other end says.
fn follow(engine: EngineName, control: &UnixStream) -> Result<(Terms, Box<dyn engines::Engine>), Error> {
    let terms = meeting::hear(control)?;
    let words: [u64; 2] = meeting::read_words(control)?;
    let ports = words.map(|word| u16::try_from(word).unwrap_or_default());
    Ok((terms, Place { end: End::Passive, ports }.open(engine).map_err(failed)?))
}

/// Each end loses nothing: a publisher waits for room.
fn qos() -> Qos {
    Qos { queue: Queue::Block { limit: 64, up_to_us: 1_000_000 }, ..Qos::default() }
}

const TYPE: &str = "thalweg_bench/msg/Bytes";
/// Bytes before the number: encapsulation (OMG DDSI-RTPS 2.5, clause 10.2: little-endian CDR) and length of the data.
const HEAD: usize = 8;
/// Bytes of the smallest message: its head and its number.
const LEAST: usize = HEAD + 8;
/// The number of a greeting.
const GREETING: u64 = u64::MAX;
/// Pause between greetings.
const GREET_AGAIN: Duration = Duration::from_millis(50);
/// Longest silence of the other end.
const SILENCE: Duration = Duration::from_secs(20);

fn topic(name: &str) -> Result<Topic, Error> {
    Ok(Topic { name: name.to_owned(), message: description()? })
}

fn description() -> Result<TypeDescription, Error> {
    let mut definitions = Definitions::new();
    let described = definitions.add(TYPE, "uint8[] data\n").and_then(|()| definitions.describe(TYPE));
    described.map_err(|wrong| Error::System(format!("{TYPE}: {wrong}")))
}

/// A message of `size` bytes.
fn message(size: usize) -> Vec<u8> {
    let mut message = vec![0; size.max(LEAST)];
    let length = u32::try_from(message.len() - HEAD).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&[0, 1, 0, 0]);
    message[4..HEAD].copy_from_slice(&length.to_le_bytes());
    message
}

fn number(message: &mut [u8], number: u64) {
    message[HEAD..LEAST].copy_from_slice(&number.to_le_bytes());
}

fn number_of(message: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*message.get(HEAD..)?.first_chunk()?))
}

/// A publisher with its topic; callbacks publish, too.
#[derive(Clone)]
struct Line {
    publisher: Arc<dyn engines::Publisher>,
    to: String,
}

impl Line {
    fn open(program: &dyn engines::Engine, to: &str) -> Result<Self, Error> {
        let publisher = program.publisher(&topic(to)?, &qos()).map_err(failed)?;
        Ok(Self { publisher: Arc::from(publisher), to: to.to_owned() })
    }

    fn publish(&self, message: &[u8]) -> Result<(), Error> {
        let (origin, change) = (None, Change::Written);
        let sample = Sample { topic: &self.to, message, publisher: 0, origin, change, age_ns: 0, historical: false };
        self.publisher.publish(&sample).map_err(failed)
    }
}

fn failed(error: engines::Error) -> Error {
    match error {
        engines::Error::Usage(_) => Error::Usage(error.to_string()),
        _ => Error::System(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Carrier;
    use crate::participant::Reach;
    use clap::ValueEnum;

    #[test]
    fn a_number_comes_back_from_a_message_of_any_size() {
        for size in [0, LEAST, 1000] {
            let mut bytes = message(size);
            number(&mut bytes, 7);
            assert_eq!((bytes.len(), number_of(&bytes)), (size.max(LEAST), Some(7)));
            assert_eq!(number_of(&bytes[..LEAST - 1]), None);
        }
    }

    #[test]
    fn what_an_engine_of_others_cannot_do_is_refused() {
        let others = EngineName::value_variants().iter();
        let own = [EngineName::Raw, EngineName::Thalweg, EngineName::Cpp, EngineName::Python];
        let mut others = others.filter(|name| !own.contains(name));
        let engine = Foreign(*others.next().unwrap());
        let settings = |payload, size| Settings {
            carrier: Carrier::Tcp,
            terms: Terms { payload, ..Terms::new(size, 1, 0) },
            subscribers: 1,
            key: None,
            reliable: false,
            latency_budget: None,
            plain: false,
            stages: false,
            reach: Reach::default(),
            host: None,
            hosts: None,
            programs: None,
            beside: None,
        };
        assert!(engine.checked(&settings(baseline::Payload::Copied, LEAST)).is_ok());
        assert!(engine.checked(&settings(baseline::Payload::Copied, LEAST - 1)).is_err());
        assert!(engine.checked(&settings(baseline::Payload::Untouched, LEAST)).is_err());
    }
}
