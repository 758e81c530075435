//! The frames that leave on a stream: their order and the number of calls, from any sending thread.

mod cut_off;
mod datagrams;

use super::*;
use crate::channel::buffer::Buffer;
use crate::wire::{HEADER, Header, StreamParser};

/// A stream that takes as many bytes as the test allows, and keeps them.
#[derive(Default)]
struct Taken {
    calls: usize,
    /// Bytes of the largest send.
    largest: usize,
    /// A subscriber sends datagrams without end.
    flooded: bool,
    heard: usize,
    bytes: Vec<u8>,
    /// Bytes that the stream still takes; `None`: any number.
    room: Option<usize>,
    /// Bytes that its peer acknowledged.
    acknowledged: usize,
    broken: bool,
}

#[derive(Clone, Default)]
struct Link(Arc<PiMutex<Taken>>);

impl SendHalf for Link {
    fn send(&self, parts: &[std::io::IoSlice<'_>]) -> io::Result<usize> {
        let Taken { calls, largest, bytes, room, broken, .. } = &mut *self.0.lock();
        if *broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if *room == Some(0) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        *calls += 1;
        let before = bytes.len();
        for part in parts {
            let count = room.map_or(part.len(), |room| part.len().min(room - (bytes.len() - before)));
            bytes.extend_from_slice(&part[..count]);
        }
        let taken = bytes.len() - before;
        *room = room.map(|room| room - taken);
        *largest = taken.max(*largest);
        Ok(taken)
    }

    fn receive_feedback(&self, _buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let Taken { flooded, heard, .. } = &mut *self.0.lock();
        *heard += 1;
        if *flooded { Ok((5, 1)) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn outstanding(&self) -> Option<usize> {
        let taken = self.0.lock();
        Some(taken.bytes.len() - taken.acknowledged)
    }

    fn close(&self) {
        self.0.lock().broken = true;
    }
}

impl Link {
    fn takes(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }

    fn calls(&self) -> usize {
        self.0.lock().calls
    }

    /// Numbers of the samples that left whole, from the frames of all sent bytes.
    fn samples(&self) -> Vec<u64> {
        let all = self.0.lock().bytes.len();
        self.samples_within(all)
    }

    /// The numbers of the samples within the first `count` bytes.
    fn samples_within(&self, count: usize) -> Vec<u64> {
        let bytes = self.0.lock().bytes[..count].to_vec();
        let (mut parser, mut samples) = (StreamParser::new(1 << 20, Some(7)), vec![]);
        for part in bytes.chunks(10_000) {
            for piece in part.chunks(parser.space().len().min(10_000)) {
                parser.space()[..piece.len()].copy_from_slice(piece);
                parser.filled(piece.len());
                while let Some(frame) = parser.next().unwrap() {
                    let Header { sample, sequence, .. } = frame.header;
                    assert_eq!(u64::from(sequence) + 1, samples.len() as u64 + 1, "numbered as it leaves");
                    assert!(parser.payload(frame.range).iter().all(|byte| *byte == sample as u8));
                    samples.push(sample);
                }
            }
        }
        samples
    }
}

const STREAM: Capabilities = crate::carrier::tcp::CAPABILITIES;
const LONG: Duration = Duration::from_secs(20);

fn flow(policy: qos::Queue, sending: Sending) -> (Arc<Flow>, Link, Arc<Senders>) {
    flow_of(policy, sending, None, STREAM, false)
}

fn flow_of(
    policy: qos::Queue,
    sending: Sending,
    reliable: Option<SenderSettings>,
    capabilities: Capabilities,
    outlasts: bool,
) -> (Arc<Flow>, Link, Arc<Senders>) {
    let (link, senders) = (Link::default(), Arc::new(Senders::new(Box::new(|_, _| {}))));
    let account = crate::channel::memory::Account::new(1 << 30);
    let (bytes, burst) = (64 << 20, 0);
    let settings = FlowSettings {
        id: 7,
        policy,
        bytes,
        account,
        burst,
        sending,
        lifespan: None,
        reliable,
        control: None,
        outlasts,
    };
    let flow = Flow::new(settings, Class::Normal, Box::new(link.clone()), capabilities, senders.clone());
    (Arc::new(flow), link, senders)
}

/// A flow over datagrams that one subscriber acknowledges.
fn reliable_flow(useful_ns: Option<u64>) -> (Arc<Flow>, Link, Arc<Senders>) {
    let repairs = Limit { rate: 1 << 30, burst: 1 << 20 };
    let (window, bytes, drops_oldest, hurries, largest) = (16, 1 << 20, true, false, 1400);
    let settings = SenderSettings { window, bytes, drops_oldest, useful_ns, hurries, largest, repairs };
    let capabilities = Capabilities { max_datagram: Some(1472), ..crate::carrier::udp::CAPABILITIES };
    let (flow, link, senders) =
        flow_of(qos::Queue::KeepLast(16), Sending::default(), Some(settings), capabilities, false);
    flow.admit(1, None);
    (flow, link, senders)
}

fn publish(flow: &Arc<Flow>, seq: u64, size: usize, together: bool) -> Outcome {
    let mut buffer = Arc::new(Buffer::default());
    Arc::get_mut(&mut buffer).unwrap().start().resize(HEADER + size, seq as u8);
    let mut message = Outgoing::pooled(seq, 0, &mut buffer);
    (message.now, message.together) = (linux::clock::monotonic_ns(), together);
    flow.offer(&mut message)
}

fn is_taken(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Sent | Outcome::Queued | Outcome::DroppedOldest { .. })
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn waiting_samples_leave_together() {
    let (flow, link, senders) = flow(qos::Queue::KeepAll(10_000), Sending::default());
    link.takes(Some(0));
    let outcomes: Vec<_> = (0..10_001).map(|seq| publish(&flow, seq, 64, false)).collect();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Queued));
    link.takes(None);
    wait("everything leaves", || flow.waiting() == 0);
    assert!(link.samples().into_iter().eq(0..10_001));
    assert!(link.calls() <= 1 + 10_000 * 96 / (64 << 10) + 1, "{} calls", link.calls());
    senders.close();
}

#[test]
fn samples_alone_and_large_ones_leave_one_by_one() {
    let (flow, link, senders) = flow(qos::Queue::KeepLast(16), Sending::default());
    for seq in 0..100 {
        assert_eq!(publish(&flow, seq, 64, false), Outcome::Sent);
        assert_eq!(link.calls() as u64, seq + 1);
    }
    for seq in 100..110 {
        publish(&flow, seq, 100_000, true);
        assert_eq!(link.calls() as u64, seq + 1);
    }
    assert!(link.samples().into_iter().eq(0..110));
    senders.close();
}

#[test]
fn a_publisher_that_outruns_its_calls_makes_few_and_its_last_sample_leaves_in_time() {
    let (flow, link, senders) = flow(qos::Queue::KeepLast(16), Sending::default());
    publish(&flow, 0, 64, true);
    wait("its thread makes room", || flow.batch.lock().frames.capacity() > 0);
    for seq in 1..10_000 {
        assert_eq!(publish(&flow, seq, 64, true), Outcome::Sent);
    }
    wait("the last batch leaves", || flow.waiting() == 0);
    assert!(link.samples().into_iter().eq(0..10_000));
    // A batch leaves when it is full or after `WITHIN`: on a machine with other work more often, but never one by one.
    assert!(link.calls() < 10_000 / 4, "{} calls", link.calls());
    // A large sample, and one that does not wait for others, leave behind the batched ones.
    publish(&flow, 10_000, 64, true);
    publish(&flow, 10_001, 100_000, true);
    publish(&flow, 10_002, 64, true);
    publish(&flow, 10_003, 64, false);
    assert!(link.samples().into_iter().eq(0..10_004));
    senders.close();
}

#[test]
fn with_a_budget_the_first_leaves_at_once_and_those_after_it_together() {
    let sending = Sending::default().within(Some(Duration::from_millis(1)));
    assert_eq!(sending.batching.map(|batching| batching.within), Some(Duration::from_micros(500)));
    let (flow, link, senders) = flow(qos::Queue::KeepLast(16), sending);
    assert_eq!(publish(&flow, 0, 64, false), Outcome::Sent);
    assert_eq!(link.samples(), [0]);
    (1..5).for_each(|seq| assert_eq!(publish(&flow, seq, 64, false), Outcome::Sent));
    wait("they leave", || flow.waiting() == 0);
    assert_eq!(link.samples(), [0, 1, 2, 3, 4]);
    assert!(link.calls() < 5, "{} calls", link.calls());
    let longest = Sending::default().within(Some(LONG)).batching.map(|batching| batching.within);
    assert_eq!((longest, Sending::default().within(None).batching), (Some(qos::gathering::LONGEST), None));
    senders.close();
}

/// A budget set on a flow that is in use, and taken back: samples gather from then on, and leave one by one again.
#[test]
fn a_budget_may_be_set_while_the_flow_is_in_use() {
    let opened = Sending::default().within(Some(Duration::from_millis(1)));
    for (sending, gathers) in [(Sending::default(), false), (opened, true)] {
        let (flow, link, senders) = flow(qos::Queue::KeepLast(16), sending);
        let mut published = 0;
        let mut publish_five = || {
            let calls = link.calls();
            (published..published + 5).for_each(|seq| assert_eq!(publish(&flow, seq, 64, false), Outcome::Sent));
            published += 5;
            wait("they leave", || flow.waiting() == 0);
            link.calls() - calls
        };
        // Room is made when it is asked for the first time.
        let five = |publish_five: &mut dyn FnMut() -> usize, few: bool| {
            wait("gathering is as it was set", || (publish_five() < 5) == few);
        };
        five(&mut publish_five, gathers);
        flow.set_latency_budget(Some(2_000_000));
        five(&mut publish_five, true);
        flow.set_latency_budget(Some(0));
        assert_eq!([publish_five(), publish_five()], [5, 5], "one by one");
        flow.set_latency_budget(None);
        five(&mut publish_five, gathers);
        assert!(link.samples().into_iter().eq(0..published));
        senders.close();
    }
}

#[test]
fn a_batch_stays_within_the_burst_of_a_limit() {
    let limit = Some(Limit { rate: 1 << 20, burst: 1250 });
    let sending = Sending { limit, ..Sending::default() }.within(Some(Duration::from_millis(1)));
    let (flow, link, senders) = flow(qos::Queue::KeepAll(10_000), sending);
    (0..200).for_each(|seq| assert!(is_taken(publish(&flow, seq, 64, false))));
    wait("they leave", || flow.waiting() == 0);
    assert!(link.samples().into_iter().eq(0..200));
    assert!(link.0.lock().largest <= 1250, "{} B at once", link.0.lock().largest);
    senders.close();
}

/// A port with a stream and a channel over datagrams: the datagrams leave the note of the stream's system call as it is.
#[test]
fn that_a_stream_was_called_is_not_forgotten() {
    let (datagrams, _, senders) = reliable_flow(None);
    let mut buffer = Arc::new(Buffer::default());
    Arc::get_mut(&mut buffer).unwrap().start().resize(HEADER + 64, 1);
    let mut message = Outgoing::pooled(1, 0, &mut buffer);
    message.called = true;
    assert_eq!((datagrams.offer(&mut message), message.called), (Outcome::Sent, true));
    senders.close();
}

/// A relay forwards stamps of another host's clock, which do not show when a message left here.
#[test]
fn a_stamp_of_another_clock_changes_no_timer_and_ends_no_life() {
    for stamp in [1, u64::MAX / 2] {
        let (flow, _, senders) = reliable_flow(Some(Duration::from_secs(3600).as_nanos() as u64));
        let mut buffer = Arc::new(Buffer::default());
        Arc::get_mut(&mut buffer).unwrap().start().resize(HEADER + 64, 1);
        let mut message = Outgoing::pooled(1, stamp, &mut buffer);
        message.now = linux::clock::monotonic_ns();
        let soon = message.now..=message.now + Duration::from_secs(1).as_nanos() as u64;
        assert_eq!(flow.offer(&mut message), Outcome::Sent);
        let kept = flow.kept.as_ref().unwrap();
        let due = kept.sender().next_deadline();
        assert!(due.is_some_and(|due| soon.contains(&due)), "{stamp}: {due:?} is not in {soon:?}");
        flow.retransmit(linux::clock::monotonic_ns());
        assert_eq!(kept.unacknowledged(), 1, "{stamp}: it is kept");
        senders.close();
    }
}

/// One thread of a node receives for all its flows.
#[test]
fn a_subscriber_that_floods_its_flow_is_left_for_others() {
    let (flow, link, senders) = reliable_flow(None);
    link.0.lock().flooded = true;
    flow.receive_feedback();
    assert!((1..=100).contains(&link.0.lock().heard));
    senders.close();
}

#[test]
fn the_latest_wait_behind_a_full_socket_and_the_rest_is_counted() {
    let (flow, link, senders) = flow(qos::Queue::KeepLast(16), Sending::default());
    link.takes(Some(100_000));
    let publish_all = |all: std::ops::Range<u64>| all.for_each(|seq| assert!(is_taken(publish(&flow, seq, 64, true))));
    publish_all(0..10_000);
    wait("the socket is full", || link.0.lock().room == Some(0));
    publish_all(10_000..20_000);
    link.takes(None);
    wait("the rest leaves", || flow.waiting() == 0);
    let samples = link.samples();
    assert!(samples.is_sorted() && samples.ends_with(&(19_984..20_000).collect::<Vec<_>>()), "{samples:?}");
    assert_eq!(samples.len() as u64 + flow.dropped.load(Relaxed), 20_000);
    senders.close();
}

/// Samples leave in pieces of any size, inline or handed over, small and large, alone and in batches.
#[test]
fn samples_are_neither_lost_nor_overtaken_on_any_way_out() {
    for seed in 0..30 {
        let mut dice = crate::carrier::Dice::new(seed);
        let (flow, link, senders) = flow(qos::Queue::KeepAll(100_000), Sending::default());
        for seq in 0..3000 {
            if dice.chance(0.02) {
                link.takes(Some((dice.around(4000, 4000)) as usize));
            }
            if dice.chance(0.02) {
                link.takes(None);
            }
            if dice.chance(0.01) {
                flow.right.hand_over_always(dice.chance(0.5));
            }
            if dice.chance(0.01) {
                flow.set_class(if dice.chance(0.5) { Class::High } else { Class::Normal });
            }
            let size = if dice.chance(0.02) { 40_000 } else { dice.around(200, 200) as usize };
            let outcome = publish(&flow, seq, size, dice.chance(0.8));
            assert!(is_taken(outcome), "{outcome:?}");
        }
        link.takes(None);
        wait("everything leaves", || flow.waiting() == 0);
        assert!(link.samples().into_iter().eq(0..3000), "seed {seed}");
        senders.close();
    }
}

#[test]
fn samples_that_a_broken_stream_did_not_take_are_counted() {
    for ended in [false, true] {
        // Long enough for all to be in one batch.
        let batching = Batching { within: Duration::from_millis(100), ..Batching::default() };
        let sending = Sending { batching: Some(batching), ..Sending::default() };
        let (flow, link, senders) = flow(qos::Queue::KeepLast(16), sending);
        link.takes(Some(960));
        let took = (0..100).filter(|seq| publish(&flow, *seq, 64, true) == Outcome::Sent).count();
        if ended {
            flow.end();
        } else {
            link.0.lock().broken = true;
        }
        wait("it ends", || flow.has_ended());
        assert_eq!((publish(&flow, 100, 64, true), took), (Outcome::NotConnected, 100));
        wait("nothing is left", || flow.waiting() == 0);
        let arrived = link.samples().len() as u64;
        assert_eq!(arrived + flow.dropped.load(Relaxed), 100, "{arrived} arrived");
        senders.close();
    }
}

/// The thread makes the room for a batch. The room goes when no batch gathered between two looks.
#[test]
fn a_flow_that_gathers_no_more_keeps_no_room() {
    let (flow, _link, senders) = flow(qos::Queue::KeepLast(16), Sending::default());
    let room = || flow.batch.lock().frames.capacity();
    for round in 0..2 {
        publish(&flow, round * 2, 64, true);
        wait("its thread makes room", || room() > 0);
        publish(&flow, round * 2 + 1, 64, true);
        wait("the batch leaves", || flow.waiting() == 0);
        flow.trim();
        assert!(room() > 0, "it was used");
        flow.trim();
        assert_eq!(room(), 0);
    }
    senders.close();
}
