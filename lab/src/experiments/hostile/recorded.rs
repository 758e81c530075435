//! Recorded traffic of the legitimate nodes, cut, flipped, mixed, lengthened and replayed.

use super::client::{Door, Frame, PULL, opening};
use super::stranger::Stranger;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use thalweg::carrier::Dice;

/// Data on the wire, recorded by a proxy between two nodes ([`super::proxy`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Bytes of the connecting ends, a connection each.
    pub streams: Vec<Vec<u8>>,
    /// Bytes of the accepting ends.
    pub answers: Vec<Vec<u8>>,
    /// Datagrams, both ways.
    pub datagrams: Vec<Vec<u8>>,
}

/// A few changes of recorded bytes.
pub fn changed(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..dice.below(4) {
        let at = dice.below(bytes.len() as u64 + 1) as usize;
        let to = (at + dice.below(64) as usize).min(bytes.len());
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 => dice.flip(&mut bytes),
            2 => drop(bytes.drain(at..to)),
            3 => bytes.splice(at..at, other.iter().copied()).for_each(drop),
            4 => bytes.extend_from_within(at..to),
            5 => bytes.splice(at..to, dice.bits().to_le_bytes()).for_each(drop),
            _ => length(&mut bytes, dice),
        }
        bytes.truncate(1 << 18);
    }
    bytes
}

/// Lengths stand at the first bytes of frames, and after the first byte of connections.
fn length(bytes: &mut [u8], dice: &mut Dice) {
    let at = dice.below(2) as usize;
    let extreme = [0, 1, 0xffff, 0x1_0000, 0x10_0000, i32::MAX as u32, 1 << 31, u32::MAX][dice.below(8) as usize];
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&u32::to_le_bytes(extreme));
    }
}

/// Recorded streams at the listeners of all nodes over TCP.
pub fn tcp(stranger: &mut Stranger) -> io::Result<()> {
    let doors = stranger.doors(false);
    streams(stranger, &doors)
}

/// The same at their unix sockets.
pub fn unix(stranger: &mut Stranger) -> io::Result<()> {
    let doors = stranger.doors(true);
    streams(stranger, &doors)
}

fn streams(stranger: &mut Stranger, doors: &[Door]) -> io::Result<()> {
    let mut all = stranger.task.recording.streams.clone();
    all.extend(own(stranger)?);
    let answers = stranger.task.recording.answers.clone();
    while stranger.goes_on() {
        let (Some(stream), Some(other)) = (stranger.pick(&all).cloned(), stranger.pick(&all).cloned()) else { break };
        let answer = stranger.pick(&answers).cloned().unwrap_or_default();
        let from = if stranger.dice.below(8) == 0 { &answer } else { &stream };
        let bytes = changed(from, &other, &mut stranger.dice);
        let Some(door) = stranger.pick(doors).cloned() else { break };
        stranger.throw(&door, &bytes, "streams");
    }
    Ok(())
}

/// A stranger's own announcements, for nodes without a recording.
fn own(stranger: &Stranger) -> io::Result<Vec<Vec<u8>>> {
    let request = stranger.request("tcp")?;
    let question = json!({
        "version": 1, "realm": stranger.task.realm, "to_node": request["to_node"], "to_port": request["to_port"],
        "topic": super::pair::TOPIC, "message": {"name": "any", "hash": 0}, "max_message": 65536, "query": {"nth": 1},
    });
    Ok(vec![opening(super::client::HANDSHAKE, &request), opening(PULL, &question)])
}

/// Recorded datagrams to every port of a flow, of a group and of a channel's feedback.
pub fn datagrams(stranger: &mut Stranger) -> io::Result<()> {
    let (mut targets, mut frames) = (Vec::new(), stranger.task.recording.datagrams.clone());
    let door = stranger.victim("publisher")?.tcp.clone();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut streams = Vec::new();
    for carrier in ["udp", "mcast"] {
        let mut request = stranger.request(carrier)?;
        request["parameters"]["udp_port"] = socket.local_addr()?.port().into();
        let Ok((stream, accepted)) = stranger.subscribe(&door, &request) else { continue };
        let flow = accepted["flow"].as_u64().unwrap_or(0) as u32;
        frames.push(Frame::message(flow, 0, 1, &[7; 64]).bytes());
        frames.push(Frame { kind: 3, flags: 4, ..Frame::message(flow, 1, 1, &[]) }.bytes());
        frames.push(Frame { kind: 5, ..Frame::message(flow, 1, 1, &[0; 24]) }.bytes());
        let port = accepted["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16;
        targets.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        targets.extend(accepted["parameters"]["group"].as_str().and_then(|group| group.parse::<SocketAddr>().ok()));
        streams.push(stream);
    }
    let outward = multicast()?;
    while stranger.goes_on() {
        let (Some(frame), Some(other)) = (stranger.pick(&frames).cloned(), stranger.pick(&frames).cloned()) else {
            break;
        };
        let bytes = changed(&frame, &other, &mut stranger.dice);
        let Some(target) = stranger.pick(&targets).copied() else { break };
        let by = if target.ip().is_multicast() && stranger.dice.below(2) == 0 { &outward } else { &socket };
        let _ = by.send_to(&bytes[..bytes.len().min(60_000)], target); // the part beyond the limit is dropped
        stranger.tried(if target.ip().is_multicast() { "datagrams to a group" } else { "datagrams" });
    }
    drop(streams);
    Ok(())
}

/// A socket from which datagrams go to groups on the loopback.
pub fn multicast() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    Ok(socket)
}

/// Sends all of it, over a stream that may be closed.
pub fn send(stream: &mut impl Write, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_changes() {
        let (mut one, mut other) = (Dice::new(3), Dice::new(3));
        let bytes: Vec<u8> = (0..200).collect();
        for _ in 0..500 {
            let made = changed(&bytes, b"other", &mut one);
            assert_eq!(made, changed(&bytes, b"other", &mut other));
            assert!(made.len() <= 1 << 18);
        }
    }
}
