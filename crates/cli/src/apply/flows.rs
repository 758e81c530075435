//! Flows with a queue and rate of their own: the tables `[[device.flow]]` of a host file.

use super::host_file::{Text, Wrong, packets, wrong};
use linux::queueing::{Flow, LONGEST, Leaf, MOST_LEAVES, SLOWEST, Transport, Whose};
use qos::Class;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use toml::Spanned;

/// A `[[device.flow]]` table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowEntry {
    to: Text,
    from: Option<Text>,
    protocol: Option<Text>,
    class: Text,
    rate: Text,
    burst: Option<Text>,
    queue: Option<Spanned<i64>>,
}

/// Packets that wait if nobody says otherwise: at 500 kbit/s, full packets take 0.2 s.
const QUEUE: u32 = 8;
/// Bytes at once after a pause if nobody says otherwise: three full packets.
const BURST: u32 = 3 * 1514;
/// Largest burst: a second at 128 Mbit/s.
const LARGEST_BURST: u64 = 16 << 20;

/// The leaves of a device of this rate, whose classes have the sum of `shares`, all in bits per second.
pub(super) fn leaves(entries: &[Spanned<FlowEntry>], rate: u64, shares: u64) -> Result<Vec<Leaf>, Wrong> {
    if let Some(beyond) = entries.get(MOST_LEAVES) {
        return Err((beyond.span(), format!("{} flows: allowed are {MOST_LEAVES} for each device", entries.len())));
    }
    let mut left = rate.saturating_sub(shares);
    let mut leaves: Vec<Leaf> = Vec::new();
    for entry in entries {
        let (leaf, flow) = entry.get_ref().read()?;
        if leaves.iter().any(|other| other.whose == leaf.whose) {
            return Err((entry.span(), format!("{flow}: each flow once")));
        }
        left = left.checked_sub(leaf.rate).ok_or_else(|| {
            let text = format!("shares and flows add up to more than the device's {rate} bit/s: {left} bit/s are left; lower the shares");
            (entry.get_ref().rate.span(), text)
        })?;
        leaves.push(leaf);
    }
    Ok(leaves)
}

impl FlowEntry {
    fn read(&self) -> Result<(Leaf, Flow), Wrong> {
        let rate = match qos::parse_bit_rate(self.rate.get_ref()) {
            Ok(rate) if rate >= SLOWEST => rate,
            _ => {
                return wrong(
                    &self.rate,
                    "rate",
                    "a rate from 1 kbit/s up, with a unit: bit/s, kbit/s, Mbit/s, Gbit/s",
                );
            }
        };
        let class = match self.class.get_ref().parse::<Class>() {
            Ok(class) => class,
            Err(_) => return wrong(&self.class, "class", "low, normal, high or critical"),
        };
        let queue = packets("queue", self.queue.as_ref(), LONGEST.into())?.unwrap_or(QUEUE);
        let flow = self.flow()?;
        Ok((Leaf { class, rate, burst: self.burst()?, queue, whose: Whose::Flow(flow) }, flow))
    }

    fn burst(&self) -> Result<u32, Wrong> {
        let Some(text) = &self.burst else { return Ok(BURST) };
        match qos::parse_bytes(text.get_ref()) {
            Ok(bytes) if (1514..=LARGEST_BURST).contains(&bytes) => Ok(bytes as u32),
            _ => wrong(text, "burst", "1514 B, a full packet, to 16 MiB"),
        }
    }

    fn flow(&self) -> Result<Flow, Wrong> {
        let Ok(to) = self.to.get_ref().parse::<SocketAddr>() else {
            return wrong(&self.to, "to", "an address and port, such as 10.0.0.2:7400 or [fd00::2]:7400");
        };
        let source = match self.from.as_ref().map(|from| (from, from.get_ref().parse::<IpAddr>())) {
            None => None,
            Some((_, Ok(source))) if source.is_ipv4() == to.is_ipv4() => Some(source),
            Some((from, _)) => return wrong(from, "from", "an address of the same version as that in `to`"),
        };
        let transport = match self.protocol.as_ref().map(|text| (text, text.get_ref().as_str())) {
            None | Some((_, "udp")) => Transport::Udp,
            Some((_, "tcp")) => Transport::Tcp,
            Some((text, _)) => return wrong(text, "protocol", "udp or tcp"),
        };
        Ok(Flow { source, destination: to.ip(), transport, port: to.port() })
    }
}
