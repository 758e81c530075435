//! The controller over a bottleneck in virtual time: alone, with another of its kind, and beside TCP.

mod bottleneck;
mod tcp;

use super::*;
use bottleneck::{Path, Run, Source};
use tcp::{Growth, Tcp};

const DATAGRAM: usize = 1500;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const LINE: u64 = 12_500_000; // 100 Mbit/s
const SHARED: u64 = 2_500_000; // 20 Mbit/s

/// A flow that always has something to send.
struct Ours(Congestion, u64);

impl Ours {
    fn boxed() -> Box<dyn Source> {
        Box::new(Self(Congestion::new(CongestionSettings { datagram: DATAGRAM, buffer: 64 << 20, reserved: None }), 0))
    }
}

fn named(number: u64) -> Datagram {
    Datagram { sequence: number as u32, offset: 0, mark: 2 }
}

impl Source for Ours {
    fn next(&mut self, now: u64) -> Result<(u64, usize), Option<u64>> {
        match self.0.room(now, DATAGRAM) {
            Ok(()) => {
                self.1 += 1;
                self.0.on_sent(now, named(self.1), DATAGRAM);
                Ok((self.1, DATAGRAM))
            }
            Err(Wait::Until(at)) => Err(Some(at)),
            Err(Wait::Receipt) => {
                let at = self.0.probe_at();
                if at <= now {
                    // A keep-alive asks, and is answered: a datagram that is not here by then is lost.
                    self.0.on_probe();
                    self.1 += 1;
                    self.0.on_sent(now, named(self.1), DATAGRAM);
                    return Ok((self.1, DATAGRAM));
                }
                Err(Some(at))
            }
        }
    }

    fn answered(&mut self, now: u64, number: u64, received: u64) {
        self.0.on_ack(now, &Receipt { received, newest: named(number), ago_ns: 0, window: u64::MAX });
    }

    fn every(&self) -> u64 {
        2
    }
}

fn tcp(growth: Growth) -> Box<dyn Source> {
    Box::new(Tcp::new(growth))
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one flow has all (DEC-TR-301, 1984).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

fn path(bytes_per_s: u64, trip_ms: u64, loss_percent: u32, queue_trips: f64) -> Path {
    let trip_ns = trip_ms * MS;
    let queue_bytes = ((bytes_per_s * trip_ns / SECOND) as f64 * queue_trips).max(20.0 * DATAGRAM as f64) as u64;
    Path { bytes_per_s, queue_bytes, trip_ns, loss: f64::from(loss_percent) / 100.0 }
}

/// Share of the line that each flow has from the 5th second on.
fn shares(seed: u64, path: Path, until_s: u64, flows: Vec<Box<dyn Source>>) -> Vec<f64> {
    let goodput = Run::new(seed, path, flows).goodput(5 * SECOND, until_s * SECOND);
    goodput.into_iter().map(|bytes| bytes / path.bytes_per_s as f64).collect()
}

#[test]
fn alone_it_fills_the_line_whatever_chance_loses() {
    println!("100 Mbit/s, share of the line; queue of a round trip\ntrip ms  loss %  ours   CUBIC  Reno");
    for round_trip in [1, 50] {
        for loss in [0, 1, 5, 10] {
            let path = path(LINE, round_trip, loss, 1.0);
            let ours = shares(1, path, 20, vec![Ours::boxed()])[0];
            let [cubic, reno] = [Growth::Cubic, Growth::Reno].map(|growth| shares(1, path, 20, vec![tcp(growth)])[0]);
            println!("{round_trip:>7}  {loss:>6}  {ours:.3}  {cubic:.3}  {reno:.3}");
            if loss == 0 {
                assert!(ours >= 0.8 * cubic, "{ours} of {cubic}");
            } else {
                assert!(ours >= cubic.max(reno), "{ours}, {cubic}, {reno}");
            }
            if (round_trip, loss) == (50, 10) {
                assert!(ours >= 5.0 * cubic.max(reno), "{ours}, {cubic}, {reno}");
            }
        }
    }
}

#[test]
fn two_share_fairly_with_each_other_and_with_tcp() {
    println!(
        "100 Mbit/s, shares of the line, Jain's index\ntrip ms  queue  ours+ours          ours+CUBIC         ours+Reno          CUBIC+CUBIC"
    );
    let mut unfair = Vec::new();
    for round_trip in [10, 50] {
        for queue in [0.5, 1.0, 2.0] {
            let path = path(SHARED, round_trip, 0, queue);
            let pairs: [Vec<Box<dyn Source>>; 4] = [
                vec![Ours::boxed(), Ours::boxed()],
                vec![Ours::boxed(), tcp(Growth::Cubic)],
                vec![Ours::boxed(), tcp(Growth::Reno)],
                vec![tcp(Growth::Cubic), tcp(Growth::Cubic)],
            ];
            print!("{round_trip:>7}  {queue:>5}");
            for (index, pair) in pairs.into_iter().enumerate() {
                let got = shares(7, path, 65, pair);
                let index_of = jain(&got);
                print!("  {:.2} {:.2} J {index_of:.3}", got[0], got[1]);
                if index < 2 && index_of < 0.9 {
                    unfair.push((round_trip, queue, index, index_of));
                }
                assert!(got.iter().sum::<f64>() > 0.8, "{got:?}");
            }
            println!();
        }
    }
    assert!(unfair.is_empty(), "{unfair:?}");
}

/// A policer has no visible queue: a path that loses a third of all datagrams is still full.
#[test]
fn a_path_without_a_queue_is_left_some_room() {
    let path = Path { queue_bytes: 3 * DATAGRAM as u64, ..path(LINE, 20, 0, 0.0) };
    let mut run = Run::new(3, path, vec![Ours::boxed()]);
    let share = run.goodput(5 * SECOND, 20 * SECOND)[0] / LINE as f64;
    assert!(share > 0.5, "{share}");
}

/// Samples of 64 B at 1 kHz never wait, neither for the window nor for the pace.
#[test]
fn a_small_periodic_flow_never_waits() {
    for round_trip in [MS / 10, 10 * MS, 100 * MS] {
        let mut control = Congestion::new(CongestionSettings { datagram: DATAGRAM, buffer: 212_992, reserved: None });
        let (mut received, mut answers) = (0, std::collections::VecDeque::new());
        for n in 0..10_000u64 {
            let now = n * MS;
            while let Some((_, number, received)) = answers.pop_front_if(|answer: &mut (u64, u64, u64)| answer.0 <= now)
            {
                let receipt = Receipt { received, newest: named(number), ago_ns: 0, window: u64::MAX };
                control.on_ack(now, &receipt);
            }
            assert_eq!(control.room(now, 96), Ok(()), "sample {n}, round_trip {round_trip}");
            control.on_sent(now, named(n), 96);
            received += 96;
            if n % 16 == 15 {
                answers.push_back((now + round_trip, n, received));
            }
        }
    }
}

#[test]
fn a_reserved_rate_is_kept_whatever_is_lost() {
    let reserved = Some(1_000_000);
    let mut flow = Congestion::new(CongestionSettings { datagram: DATAGRAM, buffer: 64 << 20, reserved });
    let (mut now, mut sent) = (0, 0u64);
    while now < 10 * SECOND {
        match flow.room(now, DATAGRAM) {
            Ok(()) => {
                sent += 1;
                flow.on_sent(now, named(sent), DATAGRAM);
                if sent % 2 == 0 {
                    // Half of it is lost.
                    let receipt =
                        Receipt { received: sent * DATAGRAM as u64 / 2, newest: named(sent), ago_ns: 0, window: 0 };
                    flow.on_ack(now, &receipt);
                }
            }
            Err(Wait::Until(at)) => now = at,
            Err(Wait::Receipt) => panic!("it waits for a window"),
        }
    }
    assert!((9_900_000..10_100_000).contains(&(sent * DATAGRAM as u64)), "{sent}");
    assert_eq!(flow.counters().reductions, 0);
}

#[test]
fn the_receivers_socket_is_never_sent_more_than_it_holds() {
    let mut flow = Congestion::new(CongestionSettings { datagram: 65_507, buffer: 425_984, reserved: None });
    let mut sent = 0;
    while flow.room(0, 65_507).is_ok() {
        flow.on_sent(0, named(sent), 65_507);
        sent += 1;
    }
    assert_eq!(sent, 4);
    let mut small = Congestion::new(CongestionSettings { datagram: 65_507, buffer: 212_992, reserved: None });
    let mut count = 0;
    while small.room(0, 96).is_ok() {
        small.on_sent(0, named(count), 96);
        count += 1;
    }
    assert!((100..212_992 / 768).contains(&count), "{count} datagrams of 768 B of the kernel's memory each");
}

/// Samples of 64 B behind long datagrams need room for their own length only.
#[test]
fn a_short_datagram_finds_room_where_a_long_one_does() {
    let mut flow =
        Congestion::new(CongestionSettings { datagram: DATAGRAM, buffer: 1 << 20, reserved: Some(u64::MAX) });
    let mut sent = 0;
    while flow.room(0, DATAGRAM).is_ok() {
        flow.on_sent(0, named(sent), DATAGRAM);
        sent += 1;
        assert!(flow.room(0, 96).is_ok() || flow.room(0, DATAGRAM).is_err(), "{sent} datagrams are under way");
    }
    assert_eq!(sent, (1 << 20) / 4 * 3 / (DATAGRAM as u64 + OVERHEAD));
}

/// In an outage no receipt comes for the bytes in flight: the window falls to the least. Later receipts count again.
#[test]
fn after_an_outage_it_begins_anew() {
    let mut flow = Congestion::new(CongestionSettings { datagram: DATAGRAM, buffer: 64 << 20, reserved: None });
    let mut sent = 0;
    while flow.room(0, DATAGRAM).is_ok() {
        sent += 1;
        flow.on_sent(0, named(sent), DATAGRAM);
    }
    let mut now = 0;
    for _ in 0..10 {
        now = flow.probe_at();
        flow.on_probe();
    }
    assert_eq!((flow.counters().collapses, flow.window()), (1, (LEAST * DATAGRAM) as u64));
    flow.on_sent(now, named(99), 32);
    flow.on_ack(now + MS, &Receipt { received: 32, newest: named(99), ago_ns: 0, window: 0 });
    flow.on_ack(now + 100 * MS, &Receipt { received: 64, newest: named(99), ago_ns: 0, window: 0 });
    assert!(flow.under_way() <= 32, "{} bytes are under way", flow.under_way());
    assert_eq!(flow.room(now + 200 * MS, DATAGRAM), Ok(()));
}
