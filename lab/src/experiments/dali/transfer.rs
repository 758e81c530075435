//! A file transfer beside a system.

use super::RATE;
use super::boards::Boards;
use super::system::{Run, System};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::load::{Generator, Load, Pattern, Protocol, Sink};
use crate::part::Place;
use crate::topology::Topology;
use std::time::Duration;
use thalweg::carrier::Dice;

/// Streams of the transfer: one alone cannot fill its own host's queue (TCP small queues).
pub(super) const STREAMS: u32 = 32;
/// Time for the transfer to fill the line.
const RAMP: Duration = Duration::from_millis(300);
/// Runs beside it until the line does not stand still.
const ATTEMPTS: u32 = 3;
/// A line that stood still for this share of the time delays a quarter of the samples: what it could not send meanwhile leaves at 2 % of its rate, in
/// front of marked packets, too.
pub(super) const STOOD_STILL: f64 = 0.005;

/// The transfer meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// Its payload, in Mbit/s.
    pub goodput: f64,
    /// Share of the time in which the line stood still.
    pub stood_still: f64,
}

/// A file that is sent from the second board to the first as fast as it goes, without a mark.
pub(super) struct Transfer {
    generator: Generator,
    sink: Sink,
}

impl Transfer {
    pub(super) fn new(lab: &Lab, boards: &Boards) -> Result<Self> {
        let place = |host| Place::at(boards.topology().host(host), &[boards.beside()]);
        let sink = Sink::new(lab, place(1), Topology::address_of(1))?;
        Ok(Self { generator: Generator::new(lab, place(2), sink.target)?, sink })
    }

    /// Runs a system beside it, again while the line stands still.
    ///
    /// # Errors
    /// As [`System::run`].
    pub(super) fn beside(
        &mut self,
        lab: &Lab,
        boards: &Boards,
        system: &mut System,
        time: Duration,
        phases: &Dice,
    ) -> Result<(Run, Beside)> {
        for attempt in 1..=ATTEMPTS {
            let (seed, pattern) = (lab.options.seed, Pattern::Greedy(STREAMS));
            let stood = boards.stood_still_ms();
            self.generator.start(lab, &Load { protocol: Protocol::Tcp, rate: RATE, pattern, gso: false, seed })?;
            lab.stop.sleep(RAMP)?;
            let before = self.sink.count(lab)?;
            let run = system.run(lab, time, Some(phases.clone()))?;
            let goodput = self.sink.count(lab)?.mbit_since(&before);
            self.generator.stop(lab)?;
            let stood = boards.stood_still_ms() - stood;
            let stood_still = stood / (time.as_secs_f64() * 1e3);
            if stood_still <= STOOD_STILL || attempt == ATTEMPTS {
                return Ok((run, Beside { goodput, stood_still }));
            }
        }
        Err(Error::Failed("no run beside the transfer".into()))
    }
}
