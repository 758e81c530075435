//! A subscriber with excessive requests (finding 7).

use super::super::stranger::Stranger;
use serde_json::{Value, json};
use std::io::{self, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// 300 channels of one port, all of which are read.
pub fn channels(stranger: &mut Stranger) -> io::Result<()> {
    many(stranger, 300, |_, request| request)
}

/// 300 channels, each in the name of another node.
pub fn names(stranger: &mut Stranger) -> io::Result<()> {
    many(stranger, 300, |index, mut request| {
        request["node"] = format!("{:016x}", 0x5eed_0000_0000_0000 + index).into();
        request
    })
}

/// 300 pictures of different size, and as many selections.
pub fn pictures(stranger: &mut Stranger) -> io::Result<()> {
    many(stranger, 300, |index, mut request| {
        let picture = format!("{}x{}", 1 + index, 1 + index % 7);
        request["proxy"] = json!({"selection": format!("1/{}", 2 + index), "picture": picture, "place": "publisher"});
        if index % 2 == 0
            && let Some(proxy) = request["proxy"].as_object_mut()
        {
            proxy.remove("picture");
        }
        request
    })
}

/// Filters of many steps: long parameters, deep expressions.
pub fn filters(stranger: &mut Stranger) -> io::Result<()> {
    many(stranger, 300, |index, mut request| {
        let expression = match index % 4 {
            0 => "name LIKE %0".to_owned(),
            1 => format!("{}x = 1{}", "(".repeat(2000), ")".repeat(2000)),
            2 => vec!["x = 1"; 4000].join(" OR "),
            _ => format!("{}x = 1", "NOT ".repeat(5000)),
        };
        request["subscriber"]["qos"]["filter"] = json!({"expression": expression, "parameters": ["%a".repeat(10_000)]});
        request
    })
}

/// Channels over `udp` and `mcast`, whose feedback requests every retransmission.
pub fn repeats(stranger: &mut Stranger) -> io::Result<()> {
    let door = stranger.victim("publisher")?.tcp.clone();
    let mut flows = Vec::new();
    for carrier in ["udp", "mcast", "udp", "mcast"] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut request = stranger.request(carrier)?;
        request["parameters"]["udp_port"] = socket.local_addr()?.port().into();
        if let Ok((stream, accepted)) = stranger.subscribe(&door, &request) {
            let parameters = &accepted["parameters"];
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let (port, first) = (number(&parameters["udp_port"]) as u16, number(&parameters["first"]) as u32);
            flows.push((stream, socket, port, first, number(&accepted["flow"]) as u32));
        }
    }
    let mut seen = 0u32;
    while stranger.goes_on() && !flows.is_empty() {
        seen = seen.wrapping_add(1);
        for (_, socket, port, first, flow) in &flows {
            let gap = [first.to_le_bytes(), 1000u32.to_le_bytes(), [0; 4], [0; 4]].concat();
            let payload = [&first.wrapping_add(seen).to_le_bytes()[..], &[0; 4], &gap.repeat(64)].concat();
            let frame = super::super::client::Frame {
                kind: 5,
                payload,
                ..super::super::client::Frame::message(*flow, *first, 0, &[])
            };
            let _ = socket.send_to(&frame.bytes(), (Ipv4Addr::LOCALHOST, *port));
            stranger.tried("acknowledgements");
        }
        stranger.pause(1);
    }
    Ok(())
}

/// Sends `count` requests; accepted channels are read to the end.
fn many(stranger: &mut Stranger, count: u64, change: impl Fn(u64, Value) -> Value) -> io::Result<()> {
    let door = stranger.victim("publisher")?.tcp.clone();
    for index in 0..count {
        let request = change(index, stranger.request("tcp")?);
        if let Ok((socket, _)) = stranger.subscribe(&door, &request) {
            socket.set_nonblocking(true)?;
            stranger.held.push(socket);
        }
        if !stranger.goes_on() {
            break;
        }
    }
    let mut bytes = vec![0; 1 << 16];
    while stranger.goes_on() {
        for stream in &mut stranger.held {
            while stream.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
