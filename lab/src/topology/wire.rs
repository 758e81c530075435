//! A link that acts as a wire: one rate, one packet at a time, and a queue in front of it.
//!
//! A token bucket with room for two packets is the wire; the queue is its child, so that whatever the queue sends first
//! waits at most for the packet that is being sent. (HTB alone is none: a class within its guarantee would be sent while
//! another's packet is still on the wire.)

use super::Namespace;
use crate::error::Result;

/// What waits in front of the wire, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all (`pfifo`): marks count for nothing.
    Fifo,
    /// Three strict bands by socket priority (`pfifo_fast`): on the sender's own host.
    Bands,
    /// Classes by DSCP (`htb` with filters), in strict order up to the whole rate: anywhere on the way.
    Classes,
}

/// A rate-limited link at one interface, in the direction out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bits per second, Ethernet header included, preamble, checksum and gap not.
    pub rate: u64,
    /// Most packets that wait in each queue.
    pub limit: u32,
    /// How they wait.
    pub queue: Queue,
}

/// Largest packet with its Ethernet header, in bytes.
pub const FULL_PACKET: u64 = 1514;

impl Wire {
    /// Time on the wire of `bytes` with their Ethernet header, in microseconds.
    pub fn transmission_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e6 / self.rate as f64
    }

    /// Puts it at `device` in place of what is there; what waited there is lost.
    ///
    /// # Errors
    /// As [`super::command::tc`].
    pub fn install(&self, at: &Namespace, device: &str) -> Result {
        let rate = format!("{}bit", self.rate);
        // Room for two packets: with timers of high resolution the bucket need not cover a tick.
        let burst = (2 * (FULL_PACKET + 86)).max(self.rate / 8 / 10_000).to_string();
        let tbf = ["root", "handle", "1:", "tbf", "rate", &rate, "burst", &burst, "limit", "10000000"];
        remove(at, device);
        if self.queue == Queue::Bands {
            at.ip(&["link", "set", device, "txqueuelen", &self.limit.to_string()])?;
        }
        qdisc(at, device, &tbf)?;
        match self.queue {
            Queue::Fifo => {
                qdisc(at, device, &["parent", "1:1", "handle", "2:", "pfifo", "limit", &self.limit.to_string()])
            }
            Queue::Bands => qdisc(at, device, &["parent", "1:1", "handle", "2:", "pfifo_fast"]),
            Queue::Classes => self.classes(at, device),
        }
    }

    /// The classes under the wire: a parent above the wire's rate, so that all may borrow and none is held back.
    fn classes(&self, at: &Namespace, device: &str) -> Result {
        qdisc(at, device, &["parent", "1:1", "handle", "2:", "htb", "default", "40"])?;
        let above = format!("{}bit", self.rate * 10);
        class(at, device, "2:", "2:1", &[&above, "ceil", &above])?;
        for (index, (id, share, filters)) in CLASSES.iter().enumerate() {
            let rate = format!("{}bit", self.rate / 100 * share);
            let (name, prio) = (format!("2:{id}"), index.to_string());
            class(
                at,
                device,
                "2:1",
                &name,
                &[&rate, "ceil", &above, "prio", &prio, "burst", "3200", "cburst", "3200"],
            )?;
            let (limit, handle) = (self.limit.to_string(), format!("{id}:"));
            qdisc(at, device, &["parent", &name, "handle", &handle, "pfifo", "limit", &limit])?;
            filters.iter().enumerate().try_for_each(|(n, dscp)| filter(at, device, 10 * index + n, *dscp, &name))?;
        }
        Ok(())
    }
}

/// Takes away what is in front of the interface.
pub fn remove(at: &Namespace, device: &str) {
    // Nothing there is no error: then there is nothing to take away.
    let _ = at.tc(&["qdisc", "delete", "dev", device, "root"]);
}

/// Class, share of the rate in percent, and the DSCPs that lead to it (Table 1 of the paper): critical, high, normal, low.
const CLASSES: [(u32, u64, &[u8]); 4] = [(10, 5, &[44, 46, 48]), (20, 30, &[36]), (40, 45, &[]), (50, 20, &[10])];

fn qdisc(at: &Namespace, device: &str, what: &[&str]) -> Result {
    at.tc(&[&["qdisc", "add", "dev", device], what].concat()).map(drop)
}

fn class(at: &Namespace, device: &str, parent: &str, id: &str, rate: &[&str]) -> Result {
    let begin = ["class", "add", "dev", device, "parent", parent, "classid", id, "htb", "quantum", "1514", "rate"];
    at.tc(&[&begin, rate].concat()).map(drop)
}

fn filter(at: &Namespace, device: &str, number: usize, dscp: u8, class: &str) -> Result {
    let octet = format!("{:#04x}", dscp << 2);
    for (protocol, field, above) in [("ip", ["ip", "tos"], 1), ("ipv6", ["ip6", "priority"], 101)] {
        let prio = (number + above).to_string();
        let begin =
            ["filter", "add", "dev", device, "parent", "2:", "protocol", protocol, "prio", &prio, "u32", "match"];
        at.tc(&[&begin[..], &field[..], &[&octet, "0xfc", "flowid", class]].concat())?;
    }
    Ok(())
}
