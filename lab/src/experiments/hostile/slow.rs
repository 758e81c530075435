//! Slow senders, and peers that never read.

use super::client::{CONTROL, Door, HANDSHAKE, Link, PULL, hello, opening};
use super::stranger::Stranger;
use serde_json::json;
use std::io::{self, Write};
use std::time::Duration;

/// Meets the nodes and stays idle.
pub fn nothing(stranger: &mut Stranger) -> io::Result<()> {
    stranger.tried("nothing");
    stranger.pause(u64::from(u32::MAX));
    Ok(())
}

/// A byte a second over TCP.
pub fn bytes_tcp(stranger: &mut Stranger) -> io::Result<()> {
    let doors = stranger.doors(false);
    bytes(stranger, &doors)
}

/// A byte a second at the unix sockets.
pub fn bytes_unix(stranger: &mut Stranger) -> io::Result<()> {
    let doors = stranger.doors(true);
    bytes(stranger, &doors)
}

/// As many streams as a node ever accepts, each a byte further every second; closed ones are opened again.
fn bytes(stranger: &mut Stranger, doors: &[Door]) -> io::Result<()> {
    let request = opening(HANDSHAKE, &stranger.request("tcp")?);
    let greeting = [&[CONTROL][..], &hello(&stranger.task.realm, &stranger.node)].concat();
    let mut streams: Vec<Option<(socket2::Socket, usize)>> = (0..300).map(|_| None).collect();
    while stranger.goes_on() {
        for (index, place) in streams.iter_mut().enumerate() {
            let whole = if index % 2 == 0 { &request } else { &greeting };
            let said = match place.take() {
                Some((mut socket, at)) if at < whole.len() => {
                    socket.write_all(&whole[at..=at]).ok().map(|()| (socket, at + 1))
                }
                _ => None,
            };
            *place = said.or_else(|| {
                let door = &doors[index % doors.len()];
                stranger.throw(door, &whole[..1], "streams").map(|socket| (socket, 1))
            });
            if !stranger.goes_on() {
                return Ok(());
            }
        }
        stranger.tried_many("bytes", 300);
        stranger.pause(1000);
    }
    Ok(())
}

/// Channels whose frames are never read.
pub fn channels(stranger: &mut Stranger) -> io::Result<()> {
    let door = stranger.victim("publisher")?.tcp.clone();
    for _ in 0..300 {
        let request = stranger.request("tcp")?;
        if let Ok((socket, _)) = stranger.subscribe(&door, &request) {
            let _ = socket.set_recv_buffer_size(4096);
            stranger.held.push(socket);
        }
        if !stranger.goes_on() {
            break;
        }
    }
    Ok(())
}

/// Calls whose answers are never read.
pub fn calls(stranger: &mut Stranger) -> io::Result<()> {
    let doors = [stranger.doors(false), stranger.doors(true)].concat();
    let realm = stranger.task.realm.clone();
    let mut number = 0;
    while stranger.goes_on() {
        let Some(door) = stranger.pick(&doors).cloned() else { break };
        let node = format!("{:016x}", stranger.dice.bits());
        stranger.tried("links");
        let Ok(mut link) = Link::open(&door, &realm, &node) else {
            stranger.pause(5);
            continue;
        };
        link.0.set_write_timeout(Some(Duration::from_millis(50)))?;
        while stranger.goes_on() && link.call(number, &json!({"verb": "channels"})).is_ok() {
            number += 1;
            stranger.tried("calls");
        }
        stranger.held.push(link.0);
        if stranger.held.len() > 200 {
            stranger.held.drain(..50);
        }
    }
    Ok(())
}

/// Pull requests whose answers are never read.
pub fn pulls(stranger: &mut Stranger) -> io::Result<()> {
    let victim = stranger.victim("publisher")?;
    let doors = [victim.tcp.clone(), victim.unix.clone()];
    let question = opening(PULL, &super::floods::question(stranger)?);
    while stranger.goes_on() {
        let Some(door) = stranger.pick(&doors).cloned() else { break };
        let stream = stranger.throw(&door, &question, "questions");
        stranger.held.extend(stream);
        if stranger.held.len() > 100 {
            stranger.pause(20);
            stranger.held.drain(..20);
        }
    }
    Ok(())
}
