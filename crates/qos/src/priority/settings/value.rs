//! Values of settings as they are written.

use crate::priority::{PriorityError, refuse};
use crate::quantity::{parse_bit_rate, parse_duration};
use std::time::Duration;

/// Highest processor number that is believed.
const MOST_CPU: u16 = 1023;

pub(super) fn number(value: &str) -> Result<u8, PriorityError> {
    value.parse().map_or_else(|_| refuse("tos", value, "0 to 255"), Ok)
}

/// The slowest useful pace.
const SLOWEST: u64 = 1000;

pub(super) fn pace(value: &str) -> Result<u64, PriorityError> {
    let bytes = parse_bit_rate(value).ok().map(|bits| bits / 8).filter(|bytes| *bytes >= SLOWEST);
    bytes.map_or_else(|| refuse("pace", value, "a rate from 8kbit/s up, such as 20Mbit/s"), Ok)
}

/// The longest latency budget: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

pub(super) fn latency_budget(value: &str) -> Result<u64, PriorityError> {
    let budget = parse_duration(value).ok().filter(|budget| *budget <= LONGEST);
    let ns = budget.and_then(|budget| u64::try_from(budget.as_nanos()).ok());
    ns.map_or_else(
        || refuse("latency-budget", value, "0us to 86400s with a unit, such as 2ms; 0us: nothing gathers"),
        Ok,
    )
}

/// A socket priority as it is written: a number, or from 65536 on a class of a queue (`MAJOR:MINOR`, hexadecimal).
pub fn priority_text(priority: u32) -> String {
    match priority >> 16 {
        0 => priority.to_string(),
        major => format!("{major:x}:{:x}", priority & 0xffff),
    }
}

/// A class of a queue: HTB and others put packets there whose priority names it (`htb_classify`).
fn class_of_a_queue(value: &str) -> Option<u32> {
    let (major, minor) = value.split_once(':')?;
    let number = |text: &str| u16::from_str_radix(text, 16).ok().filter(|number| *number > 0);
    // The kernel takes a signed number.
    let major = number(major).filter(|major| *major < 0x8000)?;
    Some(u32::from(major) << 16 | u32::from(number(minor)?))
}

pub(super) fn socket_priority(value: &str) -> Result<u32, PriorityError> {
    value.parse().ok().filter(|p| *p < 16).or_else(|| class_of_a_queue(value)).map_or_else(
        || {
            refuse(
                "priority",
                value,
                "0 to 15, or a class of a queue such as 7a2:1a0 (7 and above need CAP_NET_ADMIN); for threads say sched=fifo:N",
            )
        },
        Ok,
    )
}

/// Processors as `1`, `0,2` or `0-3`.
pub(super) fn processors(value: &str) -> Result<Vec<u16>, PriorityError> {
    let wrong = || refuse("affinity", value, "processor numbers such as 1, 0,2 or 0-3 (0 to 1023)");
    let mut cpus = Vec::new();
    for part in value.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else { return wrong() };
        if first > last || last > MOST_CPU {
            return wrong();
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}
