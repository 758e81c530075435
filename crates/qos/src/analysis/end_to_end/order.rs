//! How each order of service treats what comes to a queue.

use super::{Because, Where, why_not};
use crate::Class;
use crate::analysis::arrivals::BILLION;
use crate::analysis::link::curve::{Bucket, RateLatency};
use crate::analysis::link::lag;
use crate::analysis::link::queue::{Load, Service, Source, Stay, stay};
use crate::analysis::stages::{Outlet, Packets};
use crate::contract::Scheduler;

/// A stream at a queue.
#[derive(Clone, Copy)]
pub struct Member {
    pub load: Load,
    pub class: Class,
    pub packets: Packets,
    /// The packets on the link that they come from.
    pub before: Option<Packets>,
    pub forwarding: u64,
}

/// All that comes to a queue.
pub struct Coming {
    /// Streams whose times are known, apart by the link that brings them.
    pub groups: Vec<Vec<Member>>,
    /// Why something of a class comes at unknown times.
    pub unknown: [Option<Because>; 4],
    /// The largest that the device takes of each class at once, ns of work.
    pub units: [u64; 4],
}

/// A class, and the one that is asked for.
type Compare = fn(Class, Class) -> bool;

impl Coming {
    /// Nothing but the background.
    pub fn new(outlet: &Outlet) -> Self {
        let mut units = [0; 4];
        units[Class::Normal as usize] = outlet.background.map_or(0, |background| background.work);
        Self { groups: Vec::new(), unknown: [None; 4], units }
    }

    /// How long packets of a class stay at most.
    pub fn stay(&self, outlet: &Outlet, class: Class) -> Result<Stay, Because> {
        let unit = self.units.iter().copied().max().unwrap_or(0);
        match outlet.scheduler {
            Scheduler::Fifo => self.served(outlet, class, |_, _| true, |_, _| false, Service::Strict { blocking: 0 }),
            Scheduler::Strict => {
                let blocking = self.units[..class as usize].iter().copied().max().unwrap_or(0);
                self.served(outlet, class, |a, b| a == b, |a, b| a > b, Service::Strict { blocking })
            }
            Scheduler::Htb => self.shared(outlet, class, htb(outlet, class, unit)),
            Scheduler::Hfsc => {
                self.shared(outlet, class, RateLatency { rate: outlet.shares[class as usize], latency: unit })
            }
        }
    }

    /// A class with a share: the better of what its share alone gives it, and what all leave it when they always go first, for the link
    /// never rests while something waits.
    fn shared(&self, outlet: &Outlet, class: Class, curve: RateLatency) -> Result<Stay, Because> {
        let alone = self.served(outlet, class, |a, b| a == b, |_, _| false, Service::Curve(curve));
        let last = self.served(outlet, class, |a, b| a == b, |a, b| a != b, Service::Strict { blocking: 0 });
        match (alone, last) {
            (Ok(alone), Ok(last)) => Ok(if alone.time <= last.time { alone } else { last }),
            (alone, last) => {
                alone.or(last.map_err(|_| alone.err().unwrap_or(Because::TooLong(Where::Link(outlet.direction)))))
            }
        }
    }

    fn served(
        &self,
        outlet: &Outlet,
        class: Class,
        own: Compare,
        higher: Compare,
        by: Service,
    ) -> Result<Stay, Because> {
        let counts = |other: Class| own(other, class) || higher(other, class);
        let unknown =
            Class::ALL.into_iter().filter(|other| counts(*other)).find_map(|other| self.unknown[other as usize]);
        if let Some(because) = unknown {
            return Err(because);
        }
        let ends = self.groups.iter().flatten().filter(|m| own(m.class, class)).map(|m| m.packets.last);
        let Some(last) = ends.min() else { return Ok(Stay::default()) };
        let mut sources: Vec<Source> = self.groups.iter().map(|group| source(group, class, own, higher)).collect();
        if let Some(background) = outlet.background {
            let load = Load { arrivals: background.arrivals, work: background.work };
            let of = |yes: bool| if yes { vec![load] } else { Vec::new() };
            let (own, higher) = (own(Class::Normal, class), higher(Class::Normal, class));
            sources.push(Source { line: None, own: of(own), higher: of(higher) });
        }
        stay(&sources, by, last).map_err(|why| why_not(why, Where::Link(outlet.direction)))
    }
}

fn source(group: &[Member], class: Class, own: Compare, higher: Compare) -> Source {
    let of = |which: Compare| group.iter().filter(move |m| which(m.class, class)).map(|m| m.load);
    let counted: Vec<&Member> = group.iter().filter(|m| own(m.class, class) || higher(m.class, class)).collect();
    Source { line: line(&counted), own: of(own).collect(), higher: of(higher).collect() }
}

/// A link brings its packets one after the other: of those that come within a stretch all but the first were sent within it, or
/// within the time of forwarding before.
fn line(members: &[&Member]) -> Option<Bucket> {
    let mut line = Bucket { burst: 0, rate: 0 };
    let mut forwarding = 0;
    for member in members {
        let before = member.before?;
        let pairs = [(member.packets.first(), before.first()), (member.packets.last, before.last)];
        for (here, there) in pairs {
            let rate = (u128::from(here) * BILLION).div_ceil(u128::from(there.max(1)));
            line.rate = line.rate.max(u64::try_from(rate).ok()?);
        }
        line.burst = line.burst.max(member.packets.largest());
        forwarding = forwarding.max(member.forwarding);
    }
    line.burst = Bucket { burst: line.burst, rate: line.rate }.within(forwarding);
    Some(line)
}

/// What a class of `htb` surely gets. Classes whose buckets are not empty are served before the others, in deficit round robin with
/// quanta in proportion to their shares, the least of them `unit`, the largest packet. Then a class lags its share by at most
/// Σ over others (Qⱼ + unit) + unit · (F − Q) ÷ Q of the link's time, F = Σ Q (Boyer, Stea & Sofack 2012, theorem 1), and by one
/// unit that is being sent. Its bucket is deep enough not to overflow in that time; so at worst it begins a bucket and a unit short.
fn htb(outlet: &Outlet, class: Class, unit: u64) -> RateLatency {
    let own = outlet.shares[class as usize];
    let lag = lag(&outlet.shares, class, unit);
    let short = u128::from(2 * lag.min(u64::MAX / 4)) + u128::from(unit) * 2;
    let latency = (short * BILLION).checked_div(u128::from(own)).unwrap_or(u128::from(u64::MAX));
    RateLatency { rate: own, latency: u64::try_from(latency).unwrap_or(u64::MAX).saturating_add(1) }
}
