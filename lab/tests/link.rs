//! A link in user space between two namespaces: it has the requested properties, and leaves no leftovers.
#![allow(clippy::unwrap_used)] // all of this is test

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use thalweg_lab::link::{Behaviour, LinkReport};
use thalweg_lab::topology::{DEVICE, Line, Topology};
use thalweg_lab::{Lab, Options, Program, Stop};

const DELAY: Duration = Duration::from_millis(20);

struct World {
    hosts: Topology,
    _lab: Lab,
}

/// Two hosts, or the reason why there are none here.
fn world(test: &str, there: Behaviour, back: Behaviour) -> Option<World> {
    let options = Options { seed: 7, ..Options::default() };
    let lab = Lab::open(options, Stop::default(), Program::this(&[]).unwrap(), |_| {}).unwrap();
    let hosts = Topology::link(&lab, &[Line { from: there, to: back, ..Line::both(1, there) }]);
    let hosts = hosts.map_err(|why| println!("skipped: {test}: because {why}")).ok()?;
    Some(World { hosts, _lab: lab })
}

impl World {
    fn finish(&mut self) -> Vec<LinkReport> {
        let reports = self.hosts.end_lines();
        // A process that another test starts has the device open between fork and exec.
        let until = Instant::now() + Duration::from_secs(5);
        let is_left = |n: &u8| self.hosts.host(*n).ip(&["link", "show", "dev", DEVICE]).is_ok();
        while [1, 2].iter().any(is_left) {
            assert!(Instant::now() < until, "one is left");
            std::thread::yield_now();
        }
        reports
    }
}

#[test]
fn a_delay_is_kept_in_both_directions() {
    let behaviour = Behaviour { delay: DELAY, ..Behaviour::default() };
    let Some(mut world) = world("a_delay_is_kept_in_both_directions", behaviour, behaviour) else { return };
    let listener = world.hosts.host(2).within(|| TcpListener::bind("10.99.2.1:0").unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let began = Instant::now();
    let connected = world.hosts.host(1).within(|| TcpStream::connect(address).unwrap()).unwrap();
    // At least one way there and back; the rest depends on the machine.
    assert!(began.elapsed() >= DELAY * 2, "{:?}", began.elapsed());
    drop(connected);
    let reports = world.finish();
    assert!(reports.len() == 2 && reports.iter().all(|p| p.counts.released > 0 && p.counts.lost == 0), "{reports:?}");
}

#[test]
fn losses_are_those_of_the_seed_and_counted() {
    let lossy = Behaviour { loss: 0.5, ..Behaviour::default() };
    let Some(mut world) = world("losses_are_those_of_the_seed_and_counted", lossy, Behaviour::default()) else {
        return;
    };
    let receiver = world.hosts.host(2).within(|| UdpSocket::bind("10.99.2.1:0").unwrap()).unwrap();
    let sender = world.hosts.host(1).within(|| UdpSocket::bind("10.99.1.1:0").unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut came = 0;
    for number in 0..200_u32 {
        sender.send_to(&number.to_le_bytes(), receiver.local_addr().unwrap()).unwrap();
    }
    let mut buffer = [0; 16];
    while receiver.recv(&mut buffer).is_ok() {
        came += 1;
    }
    let counts = world.finish()[0].counts;
    assert!(came > 0 && counts.arrived >= 100 && counts.overflowed == 0, "{came} came; {counts:?}");
    // Half of them, within five standard deviations of 100.
    let half = counts.arrived / 4..=counts.arrived * 3 / 4;
    assert!(half.contains(&counts.lost), "{counts:?}");
    assert!(came <= counts.released && counts.arrived == counts.lost + counts.released, "{came} came; {counts:?}");
}
