//! Queues of control traffic before links, as the kernel of this host counts them: those of the plan's nodes whose programs run here.

use crate::output::table;
use linux::queueing::{self, Counters};
use qos::plan::{Link, Plan};
use serde::Serialize;
use std::collections::BTreeSet;

/// A queue of control traffic, with what it has sent and dropped since the first look at it.
#[derive(Debug, Serialize)]
pub(crate) struct ControlQueue<'a> {
    link: &'a str,
    from: &'a str,
    device: &'a str,
    packets: u64,
    dropped: u64,
    /// Packets that waited at the last look.
    waiting: u32,
    #[serde(skip)]
    last: Counters,
}

impl ControlQueue<'_> {
    /// A counter that went back is that of a queue that was made anew.
    fn add(&mut self, now: Counters) {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        self.packets += since(now.packets, self.last.packets);
        self.dropped += since(now.drops.into(), self.last.drops.into());
        (self.waiting, self.last) = (now.waiting, now);
    }

    fn cells(&self) -> Vec<String> {
        let names = [self.link, self.from, self.device].map(str::to_owned);
        let counts = [self.packets.to_string(), self.dropped.to_string(), self.waiting.to_string()];
        names.into_iter().chain(counts).collect()
    }
}

/// Those that were seen.
#[derive(Debug, Default)]
pub(super) struct ControlQueues<'a>(Vec<ControlQueue<'a>>);

impl<'a> ControlQueues<'a> {
    /// Looks at those of the nodes that are on this host.
    pub(super) fn look(&mut self, plan: &'a Plan, here: &BTreeSet<&str>) {
        for link in plan.links.iter().filter(|link| link.control.is_some() && here.contains(link.from.as_str())) {
            let Some(device) = link.device.as_deref() else { continue };
            let now = queueing::read(device).ok().and_then(|queues| queues.control());
            now.into_iter().for_each(|now| self.count(link, device, now));
        }
    }

    fn count(&mut self, Link { name, from, .. }: &'a Link, device: &'a str, now: Counters) {
        match self.0.iter_mut().find(|one| one.link == name && one.from == from) {
            Some(known) => known.add(now),
            None => {
                let (packets, dropped, waiting) = (0, 0, now.waiting);
                self.0.push(ControlQueue { link: name, from, device, packets, dropped, waiting, last: now });
            }
        }
    }

    /// Each of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &ControlQueue<'a>> {
        self.0.iter()
    }
}

/// For people; `None`: none was seen.
pub(super) fn text(all: &[&ControlQueue<'_>]) -> Option<String> {
    let names = [("link", '<'), ("from", '<'), ("device", '<')];
    let counts = [("packets", '>'), ("dropped", '>'), ("waiting", '>')];
    let headers: Vec<_> = names.into_iter().chain(counts).collect();
    let rows: Vec<Vec<String>> = all.iter().map(|one| one.cells()).collect();
    (!rows.is_empty()).then(|| format!("queues of control traffic\n{}", table(&headers, &rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_counts_from_the_first_look_at_it() {
        let link = Link { name: "air".into(), from: "robot".into(), ..Link::default() };
        let mut queues = ControlQueues::default();
        let seen = |packets, drops, waiting| Counters { packets, drops, waiting, ..Counters::default() };
        for now in [seen(70, 7, 3), seen(90, 9, 1), seen(4, 2, 0)] {
            queues.count(&link, "wlan0", now);
        }
        let all: Vec<_> = queues.all().collect();
        let shown = serde_json::to_value(&all).unwrap();
        let expected = serde_json::json!([
            { "link": "air", "from": "robot", "device": "wlan0", "packets": 24, "dropped": 4, "waiting": 0 }
        ]);
        assert_eq!(shown, expected, "20 and 2, and 4 and 2 of a queue that was made anew");
        let says = "\
queues of control traffic
link  from   device  packets  dropped  waiting
air   robot  wlan0        24        4        0";
        assert_eq!((text(&all).as_deref(), text(&[])), (Some(says), None));
    }
}
