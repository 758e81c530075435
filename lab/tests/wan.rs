//! The wide-area link between two namespaces: what it was asked for is what happens, and nothing is left.
#![allow(clippy::unwrap_used)] // all of this is test

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use thalweg_lab::part::Program;
use thalweg_lab::topology::Namespace;
use thalweg_lab::wan::{Behaviour, End, Passage, Wan};
use thalweg_lab::{Lab, Options, Result, Stop};

const DEVICE: &str = "wan0";
const DELAY: Duration = Duration::from_millis(20);

struct World {
    hosts: [Namespace; 2],
    wan: Option<Wan>,
    _lab: Lab,
}

/// Two hosts, 10.98.0.1 and 10.98.0.2, or why there are none here.
fn world(test: &str, there: Behaviour, back: Behaviour) -> Option<World> {
    let lab = Lab::open(Options::default(), Stop::default(), Program::this(&[]).unwrap(), |_| {}).unwrap();
    let build = || -> Result<World> {
        let hosts = [Namespace::new(&lab, "a")?, Namespace::new(&lab, "b")?];
        let [a, b] = [0, 1].map(|n: usize| End { namespace: hosts[n].name().to_owned(), device: DEVICE.into() });
        let wan = Wan::start(&a, &b, there, back, 7)?;
        for (number, host) in hosts.iter().enumerate() {
            host.ip(&["address", "add", &format!("10.98.0.{}/24", number + 1), "dev", DEVICE])?;
            host.ip(&["link", "set", DEVICE, "address", &format!("02:00:00:00:00:0{}", number + 1), "up"])?;
            // Known from the start: no question for an address is lost on the way.
            let (other, hardware) = (format!("10.98.0.{}", 2 - number), format!("02:00:00:00:00:0{}", 2 - number));
            host.ip(&["neighbor", "replace", &other, "lladdr", &hardware, "nud", "permanent", "dev", DEVICE])?;
        }
        Ok(World { hosts, wan: Some(wan), _lab: lab })
    };
    build().map_err(|why| println!("skipped: {test}: because {why}")).ok()
}

impl World {
    fn finish(&mut self) -> Vec<Passage> {
        let passages = self.wan.take().unwrap().finish();
        assert!(self.hosts.iter().all(|host| host.ip(&["link", "show", "dev", DEVICE]).is_err()), "a device is left");
        passages
    }
}

#[test]
fn a_delay_is_kept_in_both_directions() {
    let behaviour = Behaviour { delay: DELAY, ..Behaviour::default() };
    let Some(mut world) = world("a_delay_is_kept_in_both_directions", behaviour, behaviour) else { return };
    let listener = world.hosts[1].within(|| TcpListener::bind("10.98.0.2:0").unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let began = Instant::now();
    let connected = world.hosts[0].within(|| TcpStream::connect(address).unwrap()).unwrap();
    // There and back once, at least; how much later is the machine's business.
    assert!(began.elapsed() >= DELAY * 2, "{:?}", began.elapsed());
    drop(connected);
    let passages = world.finish();
    assert!(
        passages.len() == 2 && passages.iter().all(|p| p.counts.released > 0 && p.counts.lost == 0),
        "{passages:?}"
    );
}

#[test]
fn losses_are_those_of_the_seed_and_counted() {
    let lossy = Behaviour { loss: 0.5, ..Behaviour::default() };
    let Some(mut world) = world("losses_are_those_of_the_seed_and_counted", lossy, Behaviour::default()) else {
        return;
    };
    let receiver = world.hosts[1].within(|| UdpSocket::bind("10.98.0.2:0").unwrap()).unwrap();
    let sender = world.hosts[0].within(|| UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
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
    assert!(came > 0 && counts.lost > 0 && counts.overflowed == 0, "{came} came; {counts:?}");
    assert!(came <= counts.released && counts.arrived == counts.lost + counts.released, "{came} came; {counts:?}");
}
