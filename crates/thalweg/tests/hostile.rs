//! A peer that sends malformed data, or lies, harms no other: its channel or connection is dropped with a named reason,
//! memory stays within limits, and other channels continue.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thalweg::carrier::Parameters;
use thalweg::testing::wire::{Header, Kind};
use world::agent::{Agent, number};
use world::fake::{Fake, acceptance, batch, fragment, frame, header};
use world::{World, eventually, figure};

/// A publisher and a subscriber of `/good`, which must continue, and the subscriber of `/a` that is lied to.
struct Victims {
    publisher: Agent,
    good: Agent,
    rss: f64,
}

impl Victims {
    fn new(world: &World) -> Self {
        let mut publisher = Agent::start(world, "publisher topic=/good");
        let mut good = Agent::start(world, "subscriber topic=/good carriers=tcp,shm");
        good.connected(1);
        publisher.ask("publish count=100");
        let rss = number(&publisher.ask("status"), "rss_kib");
        Self { publisher, good, rss }
    }

    /// Publishes during `attack`, and checks that it had no effect.
    fn during(&mut self, attack: impl FnOnce()) {
        self.good.ask("reset");
        self.publisher.tell("publish count=1500");
        attack();
        let published = self.publisher.answer();
        assert_eq!(number(&published, "not_connected") + number(&published, "dropped"), 0.0, "{published}");
        let last = number(&published, "last");
        assert!(self.good.ask(&format!("until last={last}"))["ok"] == true);
        assert_eq!(number(&self.good.ask("report"), "missing"), 0.0);
        let rss = number(&self.publisher.ask("status"), "rss_kib");
        figure("hostile", format!("resident memory {} KiB before, {rss} after", self.rss));
        assert!(rss < self.rss + 16_384.0, "memory grew from {} to {rss} KiB", self.rss);
    }
}

/// Malformed data of several kinds, the same in every run.
fn nonsense() -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut random = move |length: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let prefixed = |first: &[u8], rest: Vec<u8>| [first, &rest].concat();
    let nested = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
    vec![
        random(1),
        random(100),
        random(100_000),
        prefixed(b"H\xff\xff\xff\xff", random(1000)),
        prefixed(b"H\x10\x00\x00\x00", random(16)),
        prefixed(b"H\x00\x00\x00\x00", Vec::new()),
        prefixed(b"H\x00\x00\x01\x00", random(70_000)),
        prefixed(b"H\x61\xea\x00\x00", nested.into_bytes()),
        prefixed(b"C\xff\xff\xff\xff", random(1000)),
        prefixed(b"C", random(10_000)),
        prefixed(b"GET / HTTP/1.1\r\n\r\n", Vec::new()),
        Vec::new(),
    ]
}

#[test]
fn malformed_data_at_the_listeners_harms_nobody() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let status = victims.publisher.ask("status");
    let address = status["addresses"][0].as_str().unwrap().to_owned();
    let name = format!("{}.sock", status["id"].as_str().unwrap());
    let name = world.left_behind().into_iter().find(|socket| socket.ends_with(&name)).unwrap();
    victims.during(|| {
        for _ in 0..20 {
            for bytes in nonsense() {
                let mut stream = TcpStream::connect(&address).unwrap();
                let _ = stream.write_all(&bytes); // it may be closed before all of it is taken
                let mut here = UnixStream::connect(world.run_dir().join(&name)).unwrap();
                let _ = here.write_all(&bytes);
            }
        }
    });
    assert!(victims.publisher.told("unknown_first_byte", Duration::from_secs(3)));
    assert!(victims.publisher.told("no_readable_request", Duration::from_secs(3)));
    let mut late = Agent::start(&world, "subscriber topic=/good carriers=tcp");
    late.connected(1);
}

#[test]
fn silent_connections_are_few_and_end() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let address = victims.publisher.ask("status")["addresses"][0].as_str().unwrap().to_owned();
    let (mut streams, mut kept) = (Vec::new(), 0);
    let open = |streams: &mut Vec<TcpStream>| {
        streams.retain_mut(|s| s.read(&mut [0]).is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock)));
        streams.len()
    };
    let began = Instant::now();
    victims.during(|| {
        for index in 0..400 {
            let mut stream = TcpStream::connect(&address).unwrap();
            if index % 2 == 0 {
                let _ = stream.write_all(b"H\x40\x00\x00\x00{");
            }
            stream.set_nonblocking(true).unwrap();
            streams.push(stream);
        }
        // The oldest streams beyond the limit of one address give way as soon as newer ones arrive.
        eventually(Duration::from_secs(1), || (open(&mut streams) <= 16).then_some(()));
        kept = streams.len();
    });
    assert!(kept <= 16, "{kept} silent connections are kept");
    let closed = eventually(world::LONG, || (open(&mut streams) == 0).then_some(()));
    figure("hostile", format!("{kept} of 400 silent connections were kept, all closed after {:?}", began.elapsed()));
    assert!(closed.is_some() && began.elapsed() < Duration::from_secs(15));
    assert!(victims.publisher.told("said_nothing_in_time", Duration::from_secs(3)));
    assert!(victims.publisher.told("beyond_the_limit", Duration::from_secs(3)));
}

#[test]
fn a_lying_tcp_publisher_ends_its_own_channel_only() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=tcp max=65536");
    let fake = Fake::new(&world, &["tcp"]);
    let good = header(1);
    let mut version = frame(good);
    version[5] = 9;
    let mut kind = frame(good);
    kind[4] = 77;
    let lies: [(Vec<u8>, &str); 7] = [
        (version, "frame_version_9"),
        (kind, "frame_kind_77"),
        (frame(Header { flags: 0x8000, ..good }), "reserved_flags"),
        (frame(Header { flow: 1, ..good }), "flow_id"),
        (frame(Header { length: u32::MAX, ..good }), "over_the_limit_of_65536"),
        (frame(good)[..20].to_vec(), "cut_off_within_a_message"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\nand so on".to_vec(), "protocol_violation"),
    ];
    victims.during(|| {
        for (bytes, reason) in lies {
            let told = eventually(world::LONG, || {
                let mut stream = fake.accepted(); // it may be an attempt that was given up since
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                lied_to.told(reason, Duration::from_millis(700)).then_some(())
            });
            assert!(told.is_some(), "no event says {reason}: {}", lied_to.ask("status")["events"]);
        }
        // Malformed answers.
        for bytes in [&b"\xff\xff\xff\xffx"[..], b"\x04\x00\x00\x00null", b"\x00\x00"] {
            let (mut stream, _) = fake.asked();
            stream.write_all(bytes).unwrap();
        }
    });
    // Replayed frames are delivered once, in order.
    lied_to.ask("reset");
    let reached = eventually(world::LONG, || {
        let mut stream = fake.accepted();
        for sample in [1, 2, 2, 1, 3, 2, 3] {
            let _ = stream.write_all(&frame(header(sample)));
        }
        (lied_to.ask("until last=3 ms=700")["ok"] == true).then_some(())
    });
    assert!(reached.is_some(), "{}", lied_to.ask("status"));
    let report = lied_to.ask("report");
    assert_eq!((number(&report, "received"), number(&report, "again")), (3.0, 0.0), "{report}");
}

#[test]
fn hostile_datagrams_are_dropped_and_bounded() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=udp max=1048576");
    let fake = Fake::new(&world, &["udp"]);
    let (_stream, socket, port) = fake.accepted_udp();
    lied_to.connected(1);
    let before = number(&lied_to.ask("status"), "rss_kib");
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    victims.during(|| {
        flood(|bytes| drop(socket.send(bytes)));
        for sample in 1..100 {
            let _ = stranger.send_to(&frame(header(sample)), (Ipv4Addr::LOCALHOST, port)); // right, but from elsewhere
        }
        eventually(world::LONG, || {
            let _ = socket.send(&frame(header(10_001)));
            (number(&lied_to.ask("until last=10001 ms=50"), "last") == 10_001.0).then_some(())
        })
        .expect("the flow goes on");
    });
    let report = lied_to.ask("report");
    assert_eq!((number(&report, "received"), number(&report, "again")), (1.0, 0.0), "{report}");
    bounded(&mut lied_to, before);
}

/// A batch is delivered whole or not at all, and a malformed one does not count as received.
#[test]
fn a_malformed_batch_is_dropped_whole() {
    let _alone = world::alone();
    let world = World::new();
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=udp reliable=1");
    let fake = Fake::new(&world, &["udp"]);
    let (mut stream, request) = fake.asked();
    let says = (request.parameters.batches, request.parameters.short_headers);
    assert_eq!(says, (true, true), "it says that it reads them: {request:?}");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, request.parameters.udp_port.unwrap())).unwrap();
    let udp_port = Some(socket.local_addr().unwrap().port());
    let parameters = Parameters { udp_port, first: Some(0), window: Some(16), ..Parameters::default() };
    stream.write_all(&acceptance(parameters)).unwrap();
    lied_to.connected(1);
    let message = |sample| Header { sequence: 0, ..header(sample) };
    let wrong = [
        Header { flow: 1, ..message(2) },
        Header { sequence: 1, ..message(2) },
        Header { kind: Kind::Fragment, ..message(2) },
        Header { kind: Kind::Batch, ..message(2) },
        Header { length: 5, ..message(2) },
        Header { length: u32::MAX, ..message(2) },
    ];
    for wrong in wrong {
        socket.send(&batch(&[frame(message(1)), frame(wrong)])).unwrap();
    }
    // Behind the second frame with a short header, of a message of 4 bytes, or 5 where there are 4.
    let short = |length| [&[length, 0, 1, 0x80, 0, 0, 0, 0][..], &[7; 4]].concat();
    socket.send(&batch(&[frame(message(1)), frame(message(2)), short(5)])).unwrap();
    socket.send(&batch(&[frame(message(1)), frame(message(2)), short(4)])).unwrap();
    assert_eq!(lied_to.ask("until last=3 ms=5000")["ok"], true, "{}", lied_to.ask("status"));
    let (report, status) = (lied_to.ask("report"), lied_to.ask("status"));
    assert_eq!((number(&report, "received"), number(&report, "again")), (3.0, 0.0), "{report}");
    assert_eq!(number(&status["channels"][0], "strange"), wrong.len() as f64 + 1.0, "{status}");
}

#[test]
fn forged_multicast_is_dropped_and_bounded() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=mcast max=1048576");
    let fake = Fake::new(&world, &["mcast"]);
    let (mut stream, _) = fake.asked();
    let group = std::net::SocketAddr::from(([239, 255, 77, std::process::id() as u8], 31_000));
    stream.write_all(&acceptance(Parameters { group: Some(group), ..Parameters::default() })).unwrap();
    lied_to.connected(1);
    let before = number(&lied_to.ask("status"), "rss_kib");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    victims.during(|| {
        flood(|bytes| drop(socket.send_to(bytes, group)));
        eventually(world::LONG, || {
            let _ = socket.send_to(&frame(header(10_001)), group);
            (number(&lied_to.ask("until last=10001 ms=50"), "last") == 10_001.0).then_some(())
        })
        .expect("the flow goes on");
    });
    assert_eq!(number(&lied_to.ask("report"), "again"), 0.0);
    bounded(&mut lied_to, before);
}

/// Bytes without a valid message.
fn flood(mut send: impl FnMut(&[u8])) {
    for round in 0..20u64 {
        nonsense().iter().filter(|bytes| bytes.len() < 60_000).for_each(|bytes| send(bytes));
        send(&frame(Header { flow: 1, ..header(1) }));
        send(&frame(Header { length: u32::MAX, ..header(1) }));
        for sample in 0..100 {
            let sample = 1 + round * 100 + sample;
            send(&fragment(sample, 0, 1 << 20, 1000)); // begun and never ended
            send(&fragment(sample, 0, u32::MAX, 1000));
            send(&fragment(sample, u32::MAX - 10, 1000, 1000));
            send(&fragment(sample, 500, 1 << 20, 1)); // pieces of one byte would need a large map
            send(&batch(&[frame(header(sample)), frame(header(sample + 1))])); // only reliable flows have them
        }
    }
}

/// Memory is bounded by two unfinished messages, the buffers of socket and datagram, and the allocator's reserve.
fn bounded(lied_to: &mut Agent, before: f64) {
    let status = lied_to.ask("status");
    let after = number(&status, "rss_kib");
    figure("hostile", format!("who was flooded: {before} KiB before, {after} after; {}", status["channels"]));
    assert!(number(&status["channels"][0], "strange") > 100.0, "it was not counted: {status}");
    assert!(after < before + 8192.0, "memory grew from {before} to {after} KiB");
}

/// A ring descriptor states the length of its message; the subscriber reads no more of it than its limit.
#[test]
fn a_message_in_shared_memory_that_is_too_large_ends_the_channel() {
    use linux::memory::{Arena, Meta, Policy, Pushed, RingWriter};
    let _alone = world::alone();
    let world = World::new();
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=shm max=65536");
    let fake = Fake::new(&world, &["shm"]);
    let mut arena = Arena::create(64 << 20, 16 << 20).unwrap();
    let (mut ring, ring_fd) = RingWriter::create(8, 8, 0).unwrap();
    let before = number(&lied_to.ask("status"), "rss_kib");
    let loan = arena.loan(16 << 20).unwrap();
    arena.bytes_mut(&loan).fill(1);
    let large = arena.seal(loan);
    let stream = fake.asked_here();
    let both = [arena.payload_fd(), ring_fd.as_fd()];
    linux::socket::send_with_descriptors(stream.as_fd(), &acceptance(Parameters::default()), &both).unwrap();
    let meta = Meta { seq: 1, stamp_ns: 1, flow_seq: 0, kind: 0 };
    assert_eq!(ring.push(&mut arena, &large, meta, Policy::Refuse), Pushed::Sent);
    arena.wake(u32::MAX);
    assert!(lied_to.told("over_the_limit_of_65536", world::LONG), "{}", lied_to.ask("status"));
    assert_eq!(number(&lied_to.ask("report"), "received"), 0.0);
    let after = number(&lied_to.ask("status"), "rss_kib");
    assert!(after < before + 8192.0, "memory grew from {before} to {after} KiB");
}

#[test]
fn descriptors_that_are_not_shared_memory_are_refused() {
    let _alone = world::alone();
    let world = World::new();
    let mut victims = Victims::new(&world);
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=shm");
    let fake = Fake::new(&world, &["shm"]);
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let file_path = world.dir().join("file");
    std::fs::write(&file_path, vec![0xff; 1 << 16]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&file_path).unwrap();
    let bytes = acceptance(Parameters::default());
    victims.during(|| {
        let null = null.as_fd();
        for descriptors in [&[][..], &[null], &[null, null], &[file.as_fd(), file.as_fd()], &[null, null, null]] {
            let stream = fake.asked_here();
            linux::socket::send_with_descriptors(stream.as_fd(), &bytes, descriptors).unwrap();
        }
    });
    assert!(lied_to.told("shm_failed", world::LONG));
    let events = lied_to.ask("status")["events"].to_string();
    assert!(events.contains("without the two descriptors"), "{events}");
    assert_eq!(number(&lied_to.ask("report"), "received"), 0.0);
}
