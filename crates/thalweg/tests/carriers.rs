//! The conformance suite for every carrier.
#![allow(clippy::unwrap_used)] // the makers below are tests, too

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use thalweg::carrier::fault::{self, FaultSettings};
use thalweg::carrier::record::{RecordReceive, RecordSend, Recorder, Way};
use thalweg::carrier::{Capabilities, ReceiveHalf, SendHalf};
use thalweg::carrier_conformance;
use thalweg::testing::carrier::mcast::{self, McastReceive, McastSend};
use thalweg::testing::carrier::sim::{SimNetwork, SimSettings, SimWorld};
use thalweg::testing::carrier::tcp::{self, TcpReceive, TcpSend};
use thalweg::testing::carrier::udp::{self, UdpReceive, UdpSend};
use thalweg::testing::carrier::{local, shm};
use thalweg::testing::conformance::Made;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

carrier_conformance!(local_ring, local());
carrier_conformance!(shm_pair, shared_memory());
carrier_conformance!(sim, simulated(SimSettings::default()));
carrier_conformance!(sim_slow, simulated(slow()));
carrier_conformance!(fault_of_nothing, faulty(local(), ""));
carrier_conformance!(fault_delay, faulty(local(), "delay=2ms,jitter=1ms,seed=5"));
carrier_conformance!(fault_rate, faulty(local(), "rate=1Gbit/s"));
carrier_conformance!(fault_of_a_stream, faulty(tcp(V4), "delay=1ms,loss=10%,stall=1ms"));
carrier_conformance!(recorded, recorded(local()));
carrier_conformance!(recorded_stream, recorded(tcp(V4)));
carrier_conformance!(tcp_v4, tcp(V4));
carrier_conformance!(tcp_v6, tcp(V6), missing(V6));
carrier_conformance!(udp_v4, udp(V4));
carrier_conformance!(udp_v6, udp(V6), missing(V6));
carrier_conformance!(mcast_v4, multicast(false), no_multicast(false));
carrier_conformance!(mcast_v6, multicast(true), no_multicast(true));

#[test]
fn check_all_is_the_same_suite() {
    thalweg::testing::conformance::check_all(local);
}

#[test]
#[should_panic(expected = "arrived as")]
fn the_suite_notices_changed_bytes() {
    let claimed = faulty(local(), "corrupt=100%");
    thalweg::testing::conformance::arrives_unchanged(claimed);
}

#[test]
#[should_panic(expected = "the limit is 99")]
fn the_suite_notices_a_false_limit() {
    let (send, receive, capabilities) = local();
    let claimed = Capabilities { max_datagram: Some(99), ..capabilities };
    thalweg::testing::conformance::too_long_is_refused_and_harmless((send, receive, claimed));
}

/// The receiving thread panics, and the sending one by its end: the fault is named by a carrier that differs in it only.
#[test]
fn the_suite_notices_a_message_that_comes_twice() {
    let passes = |faults: &str| {
        let (send, receive, capabilities) = faulty(local(), faults);
        let claimed = Capabilities { reliable: true, ..capabilities };
        let checks = || thalweg::testing::conformance::nothing_is_lost_under_back_pressure((send, receive, claimed));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(checks)).is_ok()
    };
    assert!(passes("duplicate=0%,seed=2") && !passes("duplicate=1%,seed=2"));
}

#[test]
fn one_multicast_send_reaches_all_members() {
    for v6 in [false, true] {
        if let Some(why) = no_multicast(v6) {
            println!("skipped: {why}");
            continue;
        }
        let (group, interface) = (group(v6), lo());
        let send = McastSend::new(group, interface).unwrap();
        let mut members: Vec<_> = (0..5).map(|_| McastReceive::new(group, interface).unwrap()).collect();
        assert_eq!(send.send(&[IoSlice::new(b"to "), IoSlice::new(b"all")]).unwrap(), 6);
        for member in &mut members {
            let mut buffer = [0; 16];
            assert_eq!(member.receive(&mut buffer, true).unwrap(), 6);
            assert_eq!(&buffer[..6], b"to all");
        }
    }
}

#[test]
fn a_udp_peer_that_is_gone_is_an_error_of_the_flow() {
    for ip in [V4, V6] {
        if let Some(why) = missing(ip) {
            println!("skipped: {why}");
            continue;
        }
        let (send, receive, _) = udp(ip);
        drop(receive);
        let refused = (0..1000).find_map(|_| send.send(&[IoSlice::new(b"x")]).err());
        assert_eq!(refused.map(|e| e.kind()), Some(io::ErrorKind::ConnectionRefused), "{ip}");
    }
}

#[test]
fn the_path_of_udp_tells_its_largest_datagram() {
    let a = UdpSocket::bind((V4, 0)).unwrap();
    a.connect(a.local_addr().unwrap()).unwrap();
    assert_eq!(UdpSend::new(a).unwrap().most().unwrap(), udp::MOST);
    let group = SocketAddr::from(([192, 0, 2, 1], 9));
    let error = McastSend::new(group, 1).err().unwrap();
    assert!(error.to_string().contains("192.0.2.1 is no multicast address"), "{error}");
}

fn shared_memory() -> Made {
    let (send, receive) = shm::pair(1 << 16, 64).unwrap();
    (Box::new(send), Box::new(receive), shm::capabilities(1 << 16))
}

fn local() -> Made {
    let (send, receive) = local::pair(64, 1 << 16);
    (Box::new(send), Box::new(receive), local::capabilities(1 << 16))
}

fn simulated(settings: SimSettings) -> Made {
    let (send, receive, capabilities) = SimWorld::new(SimNetwork::new(7, settings)).link(0);
    (Box::new(send), Box::new(receive), capabilities)
}

fn slow() -> SimSettings {
    let ms = std::time::Duration::from_millis;
    let settings = SimSettings { delay: ms(30), jitter: ms(5), rate_bytes_per_s: Some(100_000), ..Default::default() };
    SimSettings { mtu: 9000, ..settings }
}

fn faulty((send, receive, capabilities): Made, settings: &str) -> Made {
    let settings: FaultSettings = settings.parse().unwrap();
    let (send, receive, capabilities) = fault::pair(send, receive, capabilities, settings);
    (Box::new(send), Box::new(receive), capabilities)
}

fn recorded((send, receive, capabilities): Made) -> Made {
    let recorder = Recorder::new(Box::new(io::sink())).unwrap();
    let at = |port| std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let way = Way { from: at(1), to: at(2) };
    let receive = RecordReceive::new(receive, recorder.clone(), way);
    (Box::new(RecordSend::new(send, recorder, way)), Box::new(receive), capabilities)
}

fn tcp(ip: IpAddr) -> Made {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (Box::new(TcpSend::new(client).unwrap()), Box::new(TcpReceive::new(server).unwrap()), tcp::CAPABILITIES)
}

fn udp(ip: IpAddr) -> Made {
    let [a, b] = [(); 2].map(|()| UdpSocket::bind((ip, 0)).unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    let send = UdpSend::new(a).unwrap();
    let limits = Capabilities { max_datagram: Some(send.most().unwrap()), ..udp::CAPABILITIES };
    (Box::new(send), Box::new(UdpReceive::new(b).unwrap()), limits)
}

fn multicast(v6: bool) -> Made {
    let group = group(v6);
    let receive = McastReceive::new(group, lo()).unwrap();
    let send = McastSend::new(group, lo()).unwrap();
    let most = if v6 { udp::MOST_V6 } else { udp::MOST };
    (Box::new(send), Box::new(receive), Capabilities { max_datagram: Some(most), ..mcast::CAPABILITIES })
}

fn lo() -> u32 {
    mcast::interface("lo").unwrap()
}

/// A group of its own for each test, also between processes that run at the same time: address and port vary.
fn group(v6: bool) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let port = 20_000 + next;
    if v6 {
        let ip = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0x7468, u16::from_be_bytes([high, low]), next);
        return (ip, port).into();
    }
    (Ipv4Addr::new(239, 192, high, low), port).into()
}

/// The reason why an address cannot be used here.
fn missing(ip: IpAddr) -> Option<String> {
    UdpSocket::bind((ip, 0)).err().map(|e| format!("{ip}: {e}"))
}

/// The reason why there is no multicast on the loopback interface here, found without our own halves. Linux delivers
/// IPv6 groups on it only after `ip -6 route add local ff00::/8 dev lo table local` (in a namespace of its own).
fn no_multicast(v6: bool) -> Option<String> {
    let group = group(v6);
    let attempt = || {
        let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, group.port()))?;
        let options = socket2::SockRef::from(&socket);
        match group.ip() {
            IpAddr::V4(ip) => {
                options.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
                socket.join_multicast_v4(&ip, &Ipv4Addr::LOCALHOST)?;
            }
            IpAddr::V6(ip) => {
                options.set_multicast_if_v6(lo())?;
                socket.join_multicast_v6(&ip, lo())?;
            }
        }
        socket.set_read_timeout(Some(thalweg::carrier::TICK))?;
        socket.send_to(b"?", group)?;
        socket.recv(&mut [0; 8])
    };
    attempt().err().map(|e: io::Error| format!("multicast to {group} on lo: {e}"))
}
