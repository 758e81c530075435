//! One way, as fast as it goes: one write per message, and a receiver that counts.

use crate::link::ring::Shape;
use crate::link::{AnyLink, End, Link, each};
use crate::meeting::{self, Meeting};
use crate::{Carrier, Terms, peer_left};
use linux::clock::monotonic_ns;
use linux::poll::wait_readable;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The receiver's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Messages that the receiver counted.
    pub messages: u64,
    /// From the first send to the last receive.
    pub nanoseconds: u64,
}

/// The end that sends.
pub struct Sender {
    link: AnyLink,
    control: UnixStream,
    batched: bool,
}

impl Sender {
    /// Meets a receiver and sends it the terms.
    ///
    /// # Errors
    /// If the terms do not suit the carrier, no receiver is met, or the kernel refuses.
    pub fn open(meeting: &Meeting, carrier: Carrier, terms: &Terms) -> io::Result<Self> {
        terms.check(carrier)?;
        let control = meeting.join()?;
        meeting::tell(&control, terms)?;
        let link = AnyLink::open(carrier, &control, End::Active, terms.size, Shape::stream(terms.size))?;
        Ok(Self { link, control, batched: terms.batched })
    }

    /// Sends `count` messages, and asks the receiver for the arrived ones.
    ///
    /// # Errors
    /// If the receiver leaves or the kernel refuses.
    pub fn run(&mut self, count: u64) -> io::Result<Arrived> {
        let (control, batched) = (&self.control, self.batched);
        let start = monotonic_ns();
        each!(&mut self.link, link => send(link, control, count, batched))?;
        let [messages, last] = meeting::read_words(control)?;
        Ok(Arrived { messages, nanoseconds: last.saturating_sub(start) })
    }
}

fn send<L: Link>(link: &mut L, control: &UnixStream, count: u64, batched: bool) -> io::Result<()> {
    if batched {
        link.send_batched(count)?;
    } else {
        for _ in 0..count {
            link.send(|_| ())?;
        }
    }
    link.finish()?;
    while !wait_readable(control, Some(Duration::from_millis(10)))? {
        link.finish()?; // a datagram that says so may be lost like any other
    }
    Ok(())
}

/// Meets a sender, and counts its messages in the warm-up and then in the measured part.
///
/// # Errors
/// If no sender is met, the sender leaves early, or the kernel refuses.
pub fn receive(meeting: &Meeting, carrier: Carrier) -> io::Result<()> {
    for control in meeting.host(1)? {
        let terms = meeting::hear(&control)?;
        terms.check(carrier)?;
        let mut any = AnyLink::open(carrier, &control, End::Passive, terms.size, Shape::stream(terms.size))?;
        for count in [terms.warmup, terms.count].into_iter().filter(|c| *c > 0) {
            let (bytes, last) = each!(&mut any, link => take(link, count * terms.size as u64))?;
            if carrier != Carrier::Udp && bytes < count * terms.size as u64 {
                return Err(peer_left());
            }
            meeting::write_words(&control, &[bytes / terms.size as u64, last])?;
        }
    }
    Ok(())
}

/// Takes until `wanted` bytes came, or fewer and then the end. Returns the number of bytes, and the time of the
/// last.
fn take<L: Link>(link: &mut L, wanted: u64) -> io::Result<(u64, u64)> {
    let (mut bytes, mut ends) = (0, 0);
    while bytes < wanted && ends < 1000 {
        match link.take()? {
            0 if bytes > 0 => break,
            0 => ends += 1, // late ends of the warm-up; or the sender is gone
            n => bytes += n as u64,
        }
    }
    Ok((bytes, monotonic_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_a_reliable_carrier_is_counted_in_both_parts() {
        for (carrier, batched) in
            [(Carrier::Tcp, false), (Carrier::Tcp, true), (Carrier::Unix, false), (Carrier::Shm, false)]
        {
            let (arrived, warm) = run(carrier, batched, 3000);
            assert_eq!((warm.messages, arrived.messages), (100, 3000), "{carrier:?}");
            assert!(arrived.nanoseconds > 0);
        }
    }

    #[test]
    fn a_datagram_run_ends_whatever_is_lost() {
        let (arrived, _) = run(Carrier::Udp, false, 20_000);
        assert!(arrived.messages > 0 && arrived.messages <= 20_000, "{arrived:?}");
    }

    fn run(carrier: Carrier, batched: bool, count: u64) -> (Arrived, Arrived) {
        let meeting = Meeting::test(&format!("test-throughput-{}-{batched}", carrier.name()));
        let other = meeting.clone();
        let receiver = std::thread::spawn(move || receive(&other, carrier));
        let terms = Terms { batched, ..Terms::new(64, count, 100) };
        let mut sender = Sender::open(&meeting, carrier, &terms).unwrap();
        let warm = sender.run(100).unwrap();
        let arrived = sender.run(count).unwrap();
        receiver.join().unwrap().unwrap();
        (arrived, warm)
    }
}
