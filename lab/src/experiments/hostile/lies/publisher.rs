//! A publisher that lies: about its numbers, its stamps, its memory; and one that takes another's place.

use super::super::attacker::Attacker;
use super::super::client::{Frame, PULL, packed};
use super::super::extremes::{NUMBERS, mutated};
use super::super::pair::{LURES, TOPIC};
use super::super::recorded::multicast;
use super::{Asked, FLOW, FalsePeer};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Answers to each request with values at their extremes, `last_seq` 2⁶⁴ − 1 among them.
pub fn answers(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = FalsePeer::start(attacker, &LURES)?;
    while attacker.goes_on() {
        let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 200) else { continue };
        let mut answer = false_peer.acceptance(&request);
        answer["accepted"]["parameters"] = json!({"udp_port": 9, "first": 0, "window": 1024, "group": "239.255.1.2:9"});
        answer["accepted"]["scaled"] = json!({"selection": "1/10", "from": 1, "node": "false_peer"});
        let answer = match attacker.dice.below(4) {
            0 => {
                answer["accepted"]["last_seq"] = NUMBERS[attacker.dice.below(14) as usize].into();
                answer
            }
            1 => mutated(
                &json!({"refused": {"policy": "x", "offered": "y", "requested": "z", "remedy": "\u{1b}[2J",
                    "others": [{"policy": "x", "offered": "y", "requested": "z", "remedy": ""}]}}),
                &mut attacker.dice,
                20_000,
            ),
            _ => mutated(&answer, &mut attacker.dice, 20_000),
        };
        attacker.tried("answers");
        let _ = stream.write_all(&packed(&answer));
        let _ = stream.write_all(&Frame::message(FLOW, 0, 1, &[7; 40]).bytes());
    }
    Ok(())
}

/// A publisher whose relay is to serve every second sample: its numbers begin at 2⁶⁴ − 1 (finding 2).
pub fn relayed(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = FalsePeer::start(attacker, &["/through", LURES[6]])?;
    let relay = attacker.victim("relay")?.tcp.clone();
    let (_, port) = attacker.victim("publisher")?.port("publisher", TOPIC)?;
    let mut last = [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64].into_iter().cycle();
    while attacker.goes_on() {
        let mut request = attacker.request_to(attacker.victim("relay")?, "1", &port, "tcp");
        request["to_node"] = false_peer.document["node"].clone();
        request["subscriber"]["topic"] = "/through".into();
        let place = attacker.victim("relay")?.document["name"].clone();
        // All samples as pictures: then the number after the last selected one overflows.
        let selection = ["1", "1/1", "1/2", "2/3"][attacker.dice.below(4) as usize];
        request["proxy"] = json!({"selection": selection, "picture": "320x240", "place": {"relay": place}});
        if attacker.dice.below(3) == 0
            && let Some(proxy) = request["proxy"].as_object_mut()
        {
            proxy.remove("picture");
        }
        attacker.tried("requests through the relay");
        let Ok(mut socket) = relay.open() else {
            attacker.pause(50);
            continue;
        };
        let _ = socket.write_all(&super::super::client::opening(super::HANDSHAKE, &request));
        while let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 100) {
            let mut answer = false_peer.acceptance(&request);
            let number = last.next().unwrap_or(u64::MAX);
            answer["accepted"]["last_seq"] = number.into();
            attacker.tried("answers with a last number");
            let _ = stream.write_all(&packed(&answer));
            for ahead in [0, 1, 2] {
                let _ = stream
                    .write_all(&Frame::message(FLOW, ahead, number.wrapping_add(u64::from(ahead)), &[7; 40]).bytes());
            }
            attacker.pause(20);
        }
        socket.set_read_timeout(Some(std::time::Duration::from_millis(20)))?;
        let _ = socket.read(&mut [0; 4096]);
    }
    Ok(())
}

/// Stamps and stated round trips at their extremes, in a reliable flow over `udp` (finding 10).
pub fn stamps(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = FalsePeer::start_with(attacker, &LURES[1..2], |document| {
        document["ports"]["1"]["qos"]["deadline"] = 50_000_000u64.into();
    })?;
    while attacker.goes_on() {
        let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 200) else { continue };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut answer = false_peer.acceptance(&request);
        answer["accepted"]["parameters"] = json!({"udp_port": socket.local_addr()?.port(), "first": 0, "window": 1024});
        stream.write_all(&packed(&answer))?;
        let to = (Ipv4Addr::LOCALHOST, request["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16);
        for sequence in 0..200u32 {
            let stamp = NUMBERS[attacker.dice.below(14) as usize];
            let kind = [1, 3, 3][attacker.dice.below(3) as usize];
            let sample = if kind == 1 { u64::from(sequence) + 1 } else { 0 };
            let flags = [0, 4][attacker.dice.below(2) as usize];
            let frame = Frame {
                kind,
                stamp,
                flags,
                ..Frame::message(FLOW, sequence * 2, sample, if kind == 1 { &[7; 40] } else { &[] })
            };
            let _ = socket.send_to(&frame.bytes(), to);
            attacker.tried("stamps");
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    }
    Ok(())
}

/// Frames in the legitimate publisher's name, from elsewhere, to the group of the measured channel: jumps of numbers, a keep-alive far
/// ahead, an end (finding 6).
pub fn forged_multicast(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut request = attacker.request("mcast")?;
    request["parameters"]["udp_port"] = own.local_addr()?.port().into();
    let (_stream, accepted) = attacker.subscribe(&listener, &request)?;
    let group = accepted["parameters"]["group"].as_str().and_then(|group| group.parse::<SocketAddr>().ok());
    let group = group.ok_or_else(|| io::Error::other(format!("no group in {accepted}")))?;
    let flow = accepted["flow"].as_u64().unwrap_or(0) as u32;
    let outward = multicast()?;
    while attacker.goes_on() {
        for frame in jumps(attacker, flow, &accepted) {
            let _ = outward.send_to(&frame.bytes(), group);
            attacker.tried("forged frames");
        }
        attacker.pause(2);
    }
    Ok(())
}

/// The same in the flow of a false peer's own subscribers over `tcp` and `udp`, which harms no one else.
pub fn jumps_of_its_own(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = FalsePeer::start(attacker, &LURES[..2])?;
    while attacker.goes_on() {
        let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 200) else { continue };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut answer = false_peer.acceptance(&request);
        let udp = request["carrier"] == "udp";
        if udp {
            answer["accepted"]["parameters"] =
                json!({"udp_port": socket.local_addr()?.port(), "first": 0, "window": 1024});
        }
        let _ = stream.write_all(&packed(&answer));
        let to = (Ipv4Addr::LOCALHOST, request["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16);
        for frame in jumps(attacker, FLOW, &answer["accepted"]) {
            attacker.tried("frames");
            let sent =
                if udp { socket.send_to(&frame.bytes(), to).is_ok() } else { stream.write_all(&frame.bytes()).is_ok() };
            if !sent {
                break;
            }
        }
        attacker.pause(10);
    }
    Ok(())
}

fn jumps(attacker: &mut Attacker, flow: u32, accepted: &Value) -> Vec<Frame> {
    let last = accepted["last_seq"].as_u64().unwrap_or(0);
    let first = accepted["parameters"]["first"].as_u64().unwrap_or(0) as u32;
    let message =
        |sequence: u32, sample: u64| Frame::message(flow, sequence, sample, &[7; super::super::pair::PAYLOAD]);
    let ahead = attacker.dice.below(4000) as u32;
    let frames = vec![
        message(first.wrapping_add(ahead), u64::MAX),
        message(first.wrapping_add(1 << 31), last + 1),
        message(first.wrapping_add(ahead), last.saturating_add(1 << 40)),
        Frame { kind: 3, flags: 4, ..message(first.wrapping_add(1 << 30), u64::from(first.wrapping_add(1 << 30))) },
        Frame {
            kind: 3,
            payload: Vec::new(),
            ..message(first.wrapping_add(1 << 30), u64::from(first.wrapping_add(1 << 30)))
        },
        Frame { kind: 4, payload: Vec::new(), ..message(first.wrapping_add(ahead), 0) },
        Frame::fragment(flow, first.wrapping_add(ahead), 0, 1 << 24, &[7; 1000]),
        Frame { flags: 8, ..message(first.wrapping_add(ahead), last + u64::from(ahead)) },
    ];
    let headless = |frame: Frame| if frame.kind == 3 { Frame { payload: Vec::new(), ..frame } } else { frame };
    frames.into_iter().map(headless).collect()
}

/// Answers over the unix socket with descriptors that are no shared memory, or without any (finding 10).
pub fn shared_memory(attacker: &mut Attacker) -> io::Result<()> {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixListener;
    let publisher = attacker.task.sockets.get("publisher").cloned().unwrap_or_default();
    let victim = attacker.victim("publisher")?.document["node"].as_str().unwrap_or_default().to_owned();
    let path = publisher.to_str().unwrap_or_default().replace(&victim, &attacker.node);
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    let false_peer =
        FalsePeer::start_with(attacker, &LURES[3..4], |document| document["socket"] = path.clone().into())?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let (pipe, _other) = std::io::pipe()?;
    let memory = rustix::fs::memfd_create("attacker", rustix::fs::MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, 1 << 20)?;
    while attacker.goes_on() {
        let Ok((mut stream, _)) = listener.accept() else {
            attacker.pause(2);
            continue;
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(std::time::Duration::from_millis(300)))?;
        let mut first = [0];
        if stream.read_exact(&mut first).is_err() || first[0] != super::HANDSHAKE {
            continue;
        }
        let Ok(request) = super::read_document(&mut stream) else { continue };
        let all: [BorrowedFd<'_>; 3] = [null.as_fd(), pipe.as_fd(), memory.as_fd()];
        let count = attacker.dice.below(4);
        let descriptors: Vec<_> = (0..count).map(|_| all[attacker.dice.below(3) as usize]).collect();
        attacker.tried("answers with descriptors");
        let _ = linux::socket::send_with_descriptors(
            stream.as_fd(),
            &packed(&false_peer.acceptance(&request)),
            &descriptors,
        );
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// `true` if a pull request is still answered.
pub fn still_answers(attacker: &mut Attacker) -> bool {
    let Ok(question) = super::super::floods::question(attacker) else { return false };
    let Ok(victim) = attacker.victim("publisher") else { return false };
    let Ok(mut stream) = victim.tcp.open() else { return false };
    let _ = stream.write_all(&super::super::client::opening(PULL, &question));
    stream.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}
