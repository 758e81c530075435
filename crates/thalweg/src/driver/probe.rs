//! A multicast channel opens only after a datagram has come through. The publisher sends keep-alives of the flow to the group until the
//! subscriber reports on the handshake's stream that one has arrived. A group may carry nothing, because a route or a querier is missing,
//! or a firewall blocks it. Then the carrier has failed, with a reason, and the next one is tried.

use super::admission::oldest_of_most;
use super::control::Control;
use super::entries::Entry;
use super::handshake_client::ClientHandshake;
use super::handshake_server::answer;
use crate::carrier::mcast::{cannot, nothing_came};
use crate::carrier::{Carrier, Place};
use crate::channel::flow::{Flow, FlowSettings};
use crate::control::Peer;
use crate::control::matching::Subject;
use crate::handshake::{Answer, HEARD, Probe, Refused, Request};
use crate::port::AnyPublisher;
use linux::poll::{Poller, Readiness};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A subscriber that has received no probe within this time tries another way. Multicast that works takes less than a millisecond. A path
/// that loses half of all datagrams loses all nine probes of this time in one attempt of 500.
const HEARD_WITHIN: Duration = Duration::from_millis(250);
/// Longest wait of a publisher. It is longer than the subscriber's, whose time begins later.
const ASKED_WITHIN: Duration = Duration::from_millis(500);
/// Pause after the first probe. It doubles each time: 1, 2, 4 … 128 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Most probes of one attempt.
const MOST_PROBES: u32 = 9;
/// Most subscribers that are probed at once. Beyond them, the oldest of the peer that has most gives way. A subscriber that answers is
/// probed for a millisecond only, so it is a silent one that gives way.
const MOST_PROBED: usize = 64;

/// At the publisher: a subscriber that is to receive a probe first.
pub(crate) struct Probing {
    stream: OwnedFd,
    peer: Peer,
    request: Request,
    publisher_port: Arc<dyn AnyPublisher>,
    flow: Arc<Flow>,
    sent: u32,
    next: Instant,
    until: Instant,
}

/// At the subscriber: the probe that it waits for.
pub(super) struct Hearing {
    probe: Probe,
    /// Readable when the stream or the carrier's end is readable.
    both: Poller,
}

impl Probing {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The time of the next probe, or of giving up.
    pub(crate) fn due(&self) -> Instant {
        if self.sent < MOST_PROBES { self.next.min(self.until) } else { self.until }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl ClientHandshake {
    /// The descriptor that is readable when an answer or a probe has arrived.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.hearing.as_ref().map_or(self.stream.as_fd(), |hearing| hearing.both.as_fd())
    }

    /// The reason for which the handshake is given up now.
    pub(crate) fn late(&self) -> String {
        match (&self.hearing, &self.place) {
            (Some(hearing), Some(place)) => nothing_came(hearing.probe.parameters.group, place.local.ip()),
            _ => "no answer in time".to_owned(),
        }
    }

    /// Looks for the probe, if one is waited for, and reports its arrival.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        let (Some(hearing), Some(opening)) = (&self.hearing, &mut self.opening) else { return Ok(()) };
        if opening.probed(hearing.probe.flow, &hearing.probe.parameters)? { self.heard() } else { Ok(()) }
    }

    /// Reports the arrival of the probe. The answer may take as long as any other.
    fn heard(&mut self) -> io::Result<()> {
        self.hearing = None;
        self.until = Instant::now() + self.patience();
        linux::socket::send(self.stream.as_fd(), &[HEARD]).map(drop) // one byte always fits
    }

    /// Waits for a probe of this flow from now on.
    fn listen(&mut self, probe: Probe) -> io::Result<()> {
        let Some(opening) = &mut self.opening else { return Err(crate::carrier::invalid("nobody asked for a probe")) };
        if self.hearing.is_none() {
            self.until = Instant::now() + HEARD_WITHIN;
        }
        // The carrier's end is asked first: it may join another group than it expected.
        let heard = opening.probed(probe.flow, &probe.parameters)?;
        let both = Poller::new()?;
        both.add(&self.stream, 0, Readiness::IN)?;
        opening.descriptor().map(|fd| both.add(fd, 1, Readiness::IN)).transpose()?;
        self.hearing = Some(Hearing { probe, both });
        if heard { self.heard() } else { Ok(()) }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The publisher sends probes: this end listens for one.
    pub(super) fn probed(&mut self, mut handshake: Box<ClientHandshake>, probe: Probe) {
        match handshake.listen(probe) {
            Ok(()) => self.await_answer(handshake),
            Err(error) => self.handshake_failed(handshake.pair, handshake.moves, &error.to_string()),
        }
    }

    /// Sends probes to a subscriber that asks for one.
    pub(super) fn begin_probe(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        publisher_port: &Arc<dyn AnyPublisher>,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
        stream: OwnedFd,
    ) -> Result<(), (Refused, OwnedFd)> {
        let refused = |why: String| refused(request, why);
        let Some(peer) = Peer::of(&stream) else { return Ok(()) }; // the subscriber is gone
        self.let_probed_give_way();
        let (flow, parameters) = match self.group_flow(carrier, request, publisher_port.as_ref(), place, settings) {
            Ok(opened) => opened,
            Err(error) => return Err((refused(error.to_string()), stream)),
        };
        if let Err(error) = flow.probe() {
            let group = parameters.group.unwrap_or(place.local);
            self.forget_unused(publisher_port.as_ref(), &flow);
            return Err((refused(cannot("send to", group, place.local.ip(), &error)), stream));
        }
        let probe = Probe { flow: flow.settings.id, parameters };
        if answer(&stream, &Answer::Probe(probe)).is_err() {
            self.forget_unused(publisher_port.as_ref(), &flow);
            return Ok(()); // the subscriber is gone
        }
        let now = Instant::now();
        let (next, until) = (now + FIRST_PAUSE, now + ASKED_WITHIN);
        let (request, publisher_port) = (request.clone(), publisher_port.clone());
        let probing = Probing { stream, peer, request, publisher_port, flow, sent: 1, next, until };
        self.watch(Entry::Probing(Box::new(probing)), Readiness::IN | Readiness::RDHUP);
        Ok(())
    }

    /// Makes room for another subscriber to probe.
    fn let_probed_give_way(&mut self) {
        let probed = self.descriptors.iter().filter_map(|(index, entry)| match entry {
            Entry::Probing(probing) => Some((probing.until, index, probing.peer)),
            _ => None,
        });
        let probed: Vec<_> = probed.collect();
        if probed.len() >= MOST_PROBED
            && let Some(index) = oldest_of_most(&probed)
        {
            self.hear_probed(index, true);
        }
    }

    /// The subscriber has sent something, or is gone.
    pub(super) fn probing_ready(&mut self, index: usize) {
        self.hear_probed(index, false);
    }

    /// Reads the report of a subscriber that is probed. With `gives_way`, a subscriber that has sent nothing is refused.
    fn hear_probed(&mut self, index: usize, gives_way: bool) {
        let Some(Entry::Probing(probing)) = self.unwatch(index) else { return };
        let mut said = [0];
        match linux::socket::receive_stream(probing.stream.as_fd(), &mut said, false) {
            Ok(1) if said == [HEARD] => self.serve_probed(probing.request, probing.stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && gives_way => {
                let why = format!("{MOST_PROBED} subscribers are probed already: come again");
                let _ = answer(&probing.stream, &Answer::Refused(refused(&probing.request, why)));
                self.forget_unused(probing.publisher_port.as_ref(), &probing.flow);
                self.count("subscribers that did not say whether they hear multicast: the oldest gave way");
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.watch(Entry::Probing(probing), Readiness::IN | Readiness::RDHUP);
            }
            _ => self.forget_unused(probing.publisher_port.as_ref(), &probing.flow),
        }
    }

    /// Another probe is due, or the time is over.
    pub(super) fn probe_due(&mut self, index: usize, now: Instant) {
        let Some(Entry::Probing(probing)) = self.descriptors.get_mut(index) else { return };
        if probing.until > now && probing.flow.takes_members() {
            probing.next = now + FIRST_PAUSE * (1 << probing.sent.min(7));
            probing.sent += 1;
            let _ = probing.flow.probe(); // an error shows as a probe that does not arrive
            return;
        }
        let Some(Entry::Probing(probing)) = self.unwatch(index) else { return };
        if probing.until > now {
            return self.serve_now(probing.request, probing.stream); // the group's last member left: a new flow is opened
        }
        self.forget_unused(probing.publisher_port.as_ref(), &probing.flow);
    }

    /// Ends a flow to a group that has no member and no subscriber that is about to join.
    fn forget_unused(&mut self, publisher_port: &dyn AnyPublisher, flow: &Arc<Flow>) {
        let sends = |channel: &Arc<crate::channel::Channel>| channel.sent_by().is_some_and(|of| Arc::ptr_eq(&of, flow));
        let probes = |entry: &Entry| matches!(entry, Entry::Probing(probing) if Arc::ptr_eq(&probing.flow, flow));
        if publisher_port.channels().iter().any(sends)
            || self.cut_off.channels().any(sends)
            || self.descriptors.all().any(probes)
        {
            return;
        }
        self.groups.retired(|of| Arc::ptr_eq(of, flow));
        flow.retire();
        flow.end();
    }
}

fn refused(request: &Request, why: String) -> Refused {
    let (policy, offered) = (Subject::Carrier.into(), "carriers that work here".to_owned());
    Refused { policy, offered, requested: request.carrier.to_string(), remedy: why, others: Vec::new() }
}
