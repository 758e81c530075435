//! Round trips: ping sends and waits for the echo, pong echoes.

use crate::link::ring::Shape;
use crate::link::{AnyLink, End, Link, each};
use crate::meeting::{self, Meeting};
use crate::payload::{fill, verify};
use crate::{Carrier, Payload, Terms};
use linux::clock::monotonic_ns;
use std::io;

/// The end that measures.
pub struct Ping {
    link: AnyLink,
    turn: Turn,
}

impl Ping {
    /// Meets a pong and sends it the terms.
    ///
    /// # Errors
    /// If the terms do not suit the carrier, no pong is met, or the kernel refuses.
    pub fn open(meeting: &Meeting, carrier: Carrier, terms: &Terms) -> io::Result<Self> {
        terms.check(carrier)?;
        let control = meeting.join()?;
        meeting::tell(&control, terms)?;
        let link = AnyLink::open(carrier, &control, End::Active, terms.size, Shape::exchange(terms.size))?;
        Ok(Self { link, turn: Turn::new(terms) })
    }

    /// Makes `count` round trips and gives `record` the nanoseconds of each.
    ///
    /// # Errors
    /// If the pong leaves or the kernel refuses.
    pub fn run(&mut self, count: u64, record: impl FnMut(u64)) -> io::Result<()> {
        let turn = &mut self.turn;
        each!(&mut self.link, link => round_trips(link, turn, count, record))
    }
}

/// Meets a ping, and echoes as many messages as its terms state.
///
/// # Errors
/// If no ping is met, the ping leaves early, or the kernel refuses.
pub fn pong(meeting: &Meeting, carrier: Carrier) -> io::Result<()> {
    for control in meeting.host(1)? {
        let terms = meeting::hear(&control)?;
        terms.check(carrier)?;
        let mut any = AnyLink::open(carrier, &control, End::Passive, terms.size, Shape::exchange(terms.size))?;
        let mut turn = Turn::new(&terms);
        each!(&mut any, link => echoes(link, &mut turn, terms.warmup + terms.count))?;
    }
    Ok(())
}

fn round_trips<L: Link>(link: &mut L, turn: &mut Turn, count: u64, mut record: impl FnMut(u64)) -> io::Result<()> {
    for _ in 0..count {
        let start = monotonic_ns();
        turn.send(link)?;
        turn.receive(link)?;
        record(monotonic_ns() - start);
        turn.number += 1;
    }
    Ok(())
}

fn echoes<L: Link>(link: &mut L, turn: &mut Turn, count: u64) -> io::Result<()> {
    for _ in 0..count {
        turn.receive(link)?;
        turn.send(link)?;
        turn.number += 1;
    }
    Ok(())
}

/// The work on one message's payload.
struct Turn {
    payload: Payload,
    own: Vec<u8>, // where a shared payload is copied from and to; a socket has such a buffer itself
    number: u64,
}

impl Turn {
    fn new(terms: &Terms) -> Self {
        Self { payload: terms.payload, own: vec![0; terms.size], number: 0 }
    }

    #[inline]
    fn send<L: Link>(&self, link: &mut L) -> io::Result<()> {
        match self.payload {
            Payload::Copied if L::SHARED => link.send(|slot| slot.copy_from_slice(&self.own)),
            Payload::Checked => link.send(|slot| fill(slot, self.number)),
            Payload::Copied | Payload::Untouched => link.send(|_| ()),
        }
    }

    #[inline]
    fn receive<L: Link>(&mut self, link: &mut L) -> io::Result<()> {
        match self.payload {
            Payload::Copied if L::SHARED => link.receive(|got| self.own.copy_from_slice(got)),
            Payload::Checked => link.receive(|got| verify(got, self.number))?,
            Payload::Copied | Payload::Untouched => link.receive(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_carrier_echoes_every_kind_of_payload() {
        for carrier in [Carrier::Tcp, Carrier::Udp, Carrier::Unix, Carrier::Shm] {
            for payload in [Payload::Copied, Payload::Untouched, Payload::Checked] {
                let meeting = Meeting::test(&format!("test-latency-{}", carrier.name()));
                let other = meeting.clone();
                let pong = std::thread::spawn(move || pong(&other, carrier));
                let terms = Terms { payload, ..Terms::new(1000, 20, 5) };
                let mut ping = Ping::open(&meeting, carrier, &terms).unwrap();
                let mut times = Vec::new();
                ping.run(5, |_| ()).unwrap();
                ping.run(20, |ns| times.push(ns)).unwrap();
                pong.join().unwrap().unwrap();
                assert!(times.len() == 20 && times.iter().all(|t| *t > 0), "{carrier:?} {payload:?}");
            }
        }
    }

    #[test]
    fn a_ping_that_leaves_ends_its_pong_with_an_error() {
        for carrier in [Carrier::Tcp, Carrier::Udp, Carrier::Unix, Carrier::Shm] {
            let meeting = Meeting::test(&format!("test-leave-{}", carrier.name()));
            let other = meeting.clone();
            let pong = std::thread::spawn(move || pong(&other, carrier));
            let mut ping = Ping::open(&meeting, carrier, &Terms::new(64, 20, 0)).unwrap();
            ping.run(3, |_| ()).unwrap();
            drop(ping);
            let error = pong.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{carrier:?}: {error}");
        }
    }
}
