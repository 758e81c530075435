//! Effect of a mark: its place compared with its purpose.

use super::placement::{Packet, Spot};
use super::tree::Queues;
use qos::priority::{Dscp, Mark};
use std::cmp::Ordering;

/// Purpose of a mark, compared with unmarked packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Ahead,
    Behind,
    Nothing,
}

impl Packet {
    /// The wish of a mark: LE, CS1 and class low (AF11) ask for less than no mark, every other mark for more (RFC 4594, RFC 8622).
    fn wish(self) -> Wish {
        match (self.tos >> 2, qos::priority::band(self.priority)) {
            (1 | 8 | 10, _) | (0, 2) => Wish::Behind,
            (0, 1) => Wish::Nothing,
            _ => Wish::Ahead,
        }
    }
    fn name(self) -> String {
        let dscp = Dscp::new(self.tos >> 2).unwrap_or_default();
        match (dscp.value(), self.priority) {
            (0, 0) => "an unmarked packet".to_owned(),
            (0, priority) => format!("socket priority {priority}"),
            _ => dscp.to_string(),
        }
    }
}

impl Queues {
    pub(super) fn judge(&self, spot: &Spot, unmarked: &Spot, packet: Packet) -> (bool, String) {
        let (device, name, wish) = (&self.device, packet.name(), packet.wish());
        let Spot { discipline, place, .. } = spot;
        if spot.dropped {
            return (false, format!("{discipline} on {device} has no class for {name} and drops it"));
        }
        if !spot.waits {
            return match wish {
                Wish::Nothing => (true, format!("no priority is asked for, and nothing queues on {device}")),
                _ => (false, format!("nothing queues on {device}: no packet waits there, so none can be sent first")),
            };
        }
        if wish == Wish::Nothing {
            return (true, format!("{name} is best effort: {place} of {discipline} on {device}"));
        }
        if !spot.chosen {
            return (false, format!("{discipline} on {device} ({place}) looks at no mark; {INSTALL}"));
        }
        let on = format!("of {discipline} on {device}");
        if place == &unmarked.place {
            let remedy = self.remedy(packet, unmarked);
            return (false, format!("{name} lands in {place} = best effort {on}; {remedy}"));
        }
        let (effective, compared) = match (wish, spot.rank.cmp(&unmarked.rank)) {
            (_, Ordering::Equal) => (true, "with a share of its own beside"),
            (wish, Ordering::Less) => (wish == Wish::Ahead, "ahead of"),
            (wish, Ordering::Greater) => (wish == Wish::Behind, "behind"),
        };
        let text = format!("{name} lands in {place} {on}, {compared} best effort ({})", unmarked.place);
        match effective {
            true => (true, text),
            false => (false, format!("{text}; {}", self.remedy(packet, unmarked))),
        }
    }

    /// The class whose packets get the treatment that this mark asks for.
    fn remedy(&self, packet: Packet, unmarked: &Spot) -> String {
        let wanted = match packet.wish() {
            Wish::Behind => qos::Class::Low,
            _ => qos::Class::High,
        };
        let mark = Mark::Class(wanted);
        let spot = self.spot(Packet { tos: mark.tos(), priority: mark.socket_priority(), ..packet });
        match spot.rank == unmarked.rank {
            false => format!("class={wanted} would be {}", spot.place),
            true => INSTALL.to_owned(),
        }
    }
}

const INSTALL: &str = "`thalweg apply` installs queues that look at marks";
