//! Heartbeats of peers that serve a stream which could come by another way: a subscriber's node asks its relay, and a relay asks the
//! source. A stopped process and a cut link are noticed within 2 s, or sooner where the policies say so.
//!
//! Questions travel on a stream of their own, by the way of the channel ([`streams`]). The channel itself may be silent for long
//! (docs/decisions/0005). While it carries samples, these count as answers.
//!
//! Pure: time is an argument. The caller carries out [`Action::Ask`] and reports the outcome with [`asked`](Heartbeat::asked) or
//! [`declined`](Heartbeat::declined), later with [`answered`](Heartbeat::answered).

mod streams;

pub(super) use streams::Asking;

use super::matching::Route;
use crate::channel::failure_detector::FailureDetector;
use crate::channel::{Channel, PortRef};
use crate::control::NodeId;
use qos::Qos;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Pause before a node that accepts no questions is asked again. Each declined question counts as a failed connection, and a host may have
/// 32 of these per second. With this pause, 320 declining channels do not bar a host.
const DECLINED: Duration = Duration::from_secs(10);

/// Work for the control thread, for the channel with this number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the other end.
    Ask(u64),
    /// The channel has ended: stop asking.
    Stop(u64),
}

/// A channel whose other end gives no sign of life, or reports that it has no source.
pub(super) struct Silent {
    pub channel: Arc<Channel>,
    /// `true` if this silence was not reported before.
    pub first: bool,
}

/// A channel whose other end is asked for signs of life.
struct Watch {
    channel: Arc<Channel>,
    /// The node that is asked, and the route to it.
    node: NodeId,
    route: Route,
    detector: FailureDetector,
    /// The time of the next question.
    next: Instant,
    /// `true` if its silence was reported.
    reported: bool,
}

/// The channels whose other ends are asked for signs of life.
#[derive(Default)]
pub(super) struct Heartbeat(Vec<Watch>);

impl Heartbeat {
    /// Asks the other end of a channel from now on, at the pace of the subscriber's QoS.
    pub(super) fn watch(&mut self, channel: Arc<Channel>, (node, route): (NodeId, Route), asked: &Qos, now: Instant) {
        self.0.push(Watch { channel, node, route, detector: FailureDetector::new(asked), next: now, reported: false });
    }

    /// The time of the next question to any peer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|watch| watch.next).min()
    }

    /// The peers that are to be asked now. Forgets channels that have ended.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Action> {
        if self.0.iter().all(|watch| watch.next > now) {
            return Vec::new();
        }
        let over = self.0.extract_if(.., |watch| watch.channel.is_closed());
        let mut actions: Vec<Action> = over.map(|watch| Action::Stop(watch.channel.id)).collect();
        for watch in self.0.iter_mut().filter(|watch| watch.next <= now) {
            watch.next = now + watch.detector.period();
            watch.detector.brought(watch.channel.counters.samples.load(Relaxed));
            actions.push(Action::Ask(watch.channel.id));
        }
        actions
    }

    /// The publisher that a channel's other end is asked about, the node that is asked, and the route to it.
    pub(super) fn asks(&self, channel: u64) -> Option<(PortRef, NodeId, &Route)> {
        let watch = self.0.iter().find(|watch| watch.channel.id == channel)?;
        Some((watch.channel.publisher, watch.node, &watch.route))
    }

    /// The other end of a channel was asked, or could not be reached.
    pub(super) fn asked(&mut self, channel: u64, now: Instant) -> Option<Silent> {
        let watch = self.of(channel)?;
        watch.detector.asked(now);
        watch.detector.is_silent(now).then(|| watch.silent())
    }

    /// The other end of a channel accepts no questions.
    pub(super) fn declined(&mut self, channel: u64, now: Instant) {
        if let Some(watch) = self.of(channel) {
            watch.detector.excused();
            watch.next = now + DECLINED;
        }
    }

    /// The other end of a channel answered. `well`: it has the source of the stream.
    pub(super) fn answered(&mut self, channel: u64, well: bool) -> Option<Silent> {
        let watch = self.of(channel)?;
        watch.detector.answered(well);
        watch.reported &= !well;
        (!well).then(|| watch.silent())
    }

    /// The channels whose other end is silent.
    pub(super) fn silent(&self, now: Instant) -> impl Iterator<Item = &Channel> {
        self.0.iter().filter(move |watch| watch.detector.is_silent(now)).map(|watch| &*watch.channel)
    }

    fn of(&mut self, channel: u64) -> Option<&mut Watch> {
        self.0.iter_mut().find(|watch| watch.channel.id == channel)
    }
}

impl Watch {
    fn silent(&mut self) -> Silent {
        Silent { channel: self.channel.clone(), first: !std::mem::replace(&mut self.reported, true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier;
    use crate::channel::memory::Account;
    use crate::control::{Direction, PortId};
    use crate::testing::discovery::port;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn channel(id: u64, now: Instant) -> Arc<Channel> {
        let at = |node| PortRef { node: NodeId(node), port: PortId(1) };
        let out = port(Direction::Publisher, "/out", "/t");
        let into = port(Direction::Subscriber, "/in", "/t");
        Arc::new(Channel::new((id, now), (at(1), &out), (at(2), &into), carrier::Name::Tcp, Account::new(usize::MAX)))
    }

    /// A heartbeat that watches a channel with this number.
    fn watching(id: u64, now: Instant) -> (Heartbeat, Arc<Channel>) {
        let (mut heartbeat, channel) = (Heartbeat::default(), channel(id, now));
        heartbeat.watch(channel.clone(), (NodeId(9), Route::Process), &Qos::default(), now);
        (heartbeat, channel)
    }

    /// Asks at each deadline before `until`; returns the time of the first silence and the times of all questions.
    fn run(
        heartbeat: &mut Heartbeat,
        until: Instant,
        mut answer: impl FnMut(&mut Heartbeat, u64, Instant),
    ) -> (Option<Instant>, Vec<Instant>) {
        let (mut silent, mut asked) = (None, Vec::new());
        while let Some(now) = heartbeat.next_deadline().filter(|now| *now < until) {
            for action in heartbeat.poll(now) {
                let Action::Ask(id) = action else { continue };
                asked.push(now);
                if heartbeat.asked(id, now).is_some_and(|silent| silent.first) {
                    assert_eq!(silent.replace(now), None, "reported once");
                }
                answer(heartbeat, id, now);
            }
        }
        (silent, asked)
    }

    #[test]
    fn a_peer_that_answers_nothing_is_silent_after_two_seconds_and_reported_once() {
        let start = Instant::now();
        let (mut heartbeat, channel) = watching(7, start);
        let (silent, asked) = run(&mut heartbeat, start + ms(10_000), |_, _, _| ());
        assert_eq!(silent, Some(start + ms(2000)));
        assert_eq!((asked.len(), asked[1] - asked[0]), (25, ms(400)), "and it is asked on");
        assert_eq!(heartbeat.silent(start + ms(10_000)).map(|of| of.id).collect::<Vec<_>>(), [channel.id]);
        assert!(heartbeat.answered(7, true).is_none());
        let (silent, _) = run(&mut heartbeat, start + ms(20_000), |_, _, _| ());
        assert!(silent.is_some(), "a silence after a sign is reported again");
    }

    #[test]
    fn a_peer_that_answers_or_sends_samples_is_never_silent() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        let answers = |heartbeat: &mut Heartbeat, id, _| assert!(heartbeat.answered(id, true).is_none());
        assert_eq!(run(&mut heartbeat, start + ms(60_000), answers).0, None);
        let (mut heartbeat, channel) = watching(8, start);
        let brings = |_: &mut Heartbeat, _, _| {
            channel.counters.samples.fetch_add(1, Relaxed);
        };
        assert_eq!(run(&mut heartbeat, start + ms(60_000), brings).0, None);
        assert_eq!(heartbeat.silent(start + ms(60_000)).count(), 0);
    }

    #[test]
    fn a_peer_that_reports_no_source_is_silent_at_once() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        assert!(heartbeat.answered(7, false).is_some_and(|silent| silent.first));
        assert!(heartbeat.answered(7, false).is_some_and(|silent| !silent.first));
        assert!(heartbeat.answered(7, true).is_none());
        assert_eq!(heartbeat.silent(start).count(), 0);
        assert!(heartbeat.answered(8, false).is_none(), "nobody watches it");
    }

    #[test]
    fn a_peer_that_accepts_no_questions_is_asked_again_after_ten_seconds() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        let (_, asked) = run(&mut heartbeat, start + ms(60_000), |heartbeat, id, now| heartbeat.declined(id, now));
        let expected: Vec<Instant> = (0..6).map(|nth| start + nth * DECLINED).collect();
        assert_eq!(asked, expected);
        assert_eq!(heartbeat.silent(start + ms(60_000)).count(), 0);
    }

    #[test]
    fn a_channel_that_is_over_is_asked_no_more() {
        let start = Instant::now();
        let (mut heartbeat, first) = watching(7, start);
        heartbeat.watch(channel(8, start), (NodeId(9), Route::Process), &Qos::default(), start);
        first.close();
        assert_eq!(heartbeat.poll(start), [Action::Stop(7), Action::Ask(8)]);
        assert!(heartbeat.asks(7).is_none() && heartbeat.asks(8).is_some());
        assert!(heartbeat.asked(7, start).is_none());
    }
}
