//! Targets of the planner, and whether a measured system keeps them.

use crate::planner::{Measured, target};
use crate::system::{Binding, Size};
use std::fmt;
use std::time::Duration;

/// Those of each system; time and gap depend on its size ([`target`]).
const ADMISSION: Duration = Duration::from_millis(10);
const MEMORY: u64 = 1_000_000_000;
/// Part of the used links that must bind, so that there is a problem to solve; and the sizes, in subscribers, for which the targets ask that.
const BINDING: f64 = 0.2;
const BOUND: [usize; 2] = [1000, 10_000];

/// A target: its name, the limit, the measured value, and whether that keeps it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The system and the figure.
    pub name: String,
    /// The limit, with its relation.
    pub limit: String,
    /// The measured value.
    pub found: String,
    /// It keeps the limit. What was not measured does not.
    pub kept: bool,
}

impl Target {
    /// A time that is at most the limit; `None`: there was no answer.
    pub fn at_most(name: String, limit: Duration, found: Option<Duration>) -> Self {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let kept = found.is_some_and(|found| found <= limit);
        Self { name, limit: format!("≤ {}", ms(limit)), found: found.map_or_else(|| "none".to_owned(), ms), kept }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, found, kept } = self;
        write!(f, "| {name} | {limit} | {found} | {} |", if *kept { "yes" } else { MISSED })
    }
}

/// The verdict of a missed target.
pub const MISSED: &str = "**no**";

/// Bytes as text, rounded up.
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// The targets of one system.
pub fn of(measured: &Measured) -> Vec<Target> {
    let Measured { size, proxies, outcome, .. } = measured;
    let Size { nodes, subscribers, topics } = size;
    let named = |what: &str| format!("{nodes} × {subscribers} × {topics}, {proxies:?}: {what}");
    let (gap, time) = target(*size);
    let found = outcome.gap();
    let mut all = vec![
        Target::at_most(named("placing"), time, outcome.value.map(|_| measured.placing)),
        Target {
            name: named("gap"),
            limit: format!("≤ {}", percent(gap)),
            found: found.map_or_else(|| "none".to_owned(), percent),
            kept: found.is_some_and(|found| found <= gap),
        },
        Target::at_most(named("slowest of the admissions"), ADMISSION, Some(measured.admitting.0)),
        Target {
            name: named("memory"),
            limit: format!("≤ {}", megabytes(MEMORY)),
            found: measured.memory.map_or_else(|| "unknown".to_owned(), megabytes),
            kept: measured.memory.is_some_and(|bytes| bytes <= MEMORY),
        },
    ];
    if BOUND.contains(subscribers) {
        all.extend(binding(measured.links).map(|(what, target)| Target { name: named(what), ..target }));
    }
    all
}

/// The links that bind, by either count: as parts of those that carry something.
fn binding(Binding { used, overloaded, priced, .. }: Binding) -> [(&'static str, Target); 2] {
    [("links overloaded by best places", overloaded), ("links with a price", priced)].map(|(what, count)| {
        let part = count as f64 / used.max(1) as f64;
        let limit = format!("≥ {}", percent(BINDING));
        (what, Target { name: String::new(), limit, found: percent(part), kept: part >= BINDING })
    })
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::placement::{Outcome, Status};
    use qos::system::Proxies;

    /// A system that just keeps each target.
    fn kept() -> Measured {
        let outcome = Outcome {
            status: Status::Feasible,
            placed: Vec::new(),
            value: Some(100.0),
            bound: Some(95.0),
            solver: "decomposition",
            loads: Vec::new(),
            prices: Vec::new(),
            proxied: Vec::new(),
            processors: Vec::new(),
            conflicts: Vec::new(),
        };
        Measured {
            size: Size { nodes: 1000, subscribers: 10_000, topics: 500 },
            proxies: Proxies::Merged,
            outcome,
            placing: Duration::from_secs(30),
            memory: Some(MEMORY),
            analysing: Default::default(),
            admitting: (ADMISSION, 50),
            links: Binding { used: 100, overloaded: 20, priced: 20, charged: None },
            dearer: 0.1,
        }
    }

    /// The names of the missed targets, without their system.
    fn missed(change: impl FnOnce(&mut Measured)) -> Vec<String> {
        let mut measured = kept();
        change(&mut measured);
        let all = of(&measured).into_iter().filter(|target| !target.kept);
        all.map(|target| target.name.split(": ").nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn each_target_can_be_missed() {
        assert_eq!(missed(|_| ()), Vec::<String>::new());
        assert_eq!(missed(|m| m.links.overloaded = 19), ["links overloaded by best places"]);
        // Links that are full, but none of whose limits makes the answer dearer, do not bind.
        assert_eq!(missed(|m| m.links.priced = 19), ["links with a price"]);
        assert_eq!(missed(|m| m.placing += Duration::from_millis(1)), ["placing"]);
        assert_eq!(missed(|m| m.outcome.bound = Some(94.9)), ["gap"]);
        assert_eq!(missed(|m| m.memory = Some(MEMORY + 1)), ["memory"]);
        assert_eq!(missed(|m| m.admitting.0 *= 2), ["slowest of the admissions"]);
        assert_eq!(missed(|m| m.outcome.value = None), ["placing", "gap"], "there was no answer");
    }

    #[test]
    fn a_small_system_need_not_bind_and_a_missed_target_is_marked() {
        let nothing = Binding { used: 10, ..Binding::default() };
        let small = Size { nodes: 50, subscribers: 250, topics: 12 };
        let change = |m: &mut Measured| {
            (m.size, m.links, m.placing, m.outcome.bound) = (small, nothing, Duration::from_secs(2), Some(99.0));
        };
        assert_eq!(missed(change), Vec::<String>::new());
        let late = Target::at_most("t".into(), ADMISSION, None);
        assert!(late.to_string().contains(MISSED));
    }
}
