//! The datagrams of a reliable flow when several small samples wait.

use super::*;
use crate::channel::congestion::CongestionSettings;
use crate::channel::fragment::Reassembly;
use crate::wire::feedback::{Datagram, Gap, Receipt, Writer};
use crate::wire::{self, Kind, Messages, REPAIR};

const MTU: usize = 1472;
const MEMBER: u64 = 0;

#[derive(Default)]
pub(super) struct Line {
    full: bool,
    most: Option<usize>, // longer datagrams are refused
    tells: bool,
    takes: Option<usize>, // datagrams of one call
    together: Vec<usize>, // the numbers of datagrams sent in one call
    left: Vec<Vec<u8>>,
    said: Vec<Vec<u8>>,
}

/// A socket that takes datagrams as the test allows, and receives what the test gives it.
#[derive(Clone, Default)]
pub(super) struct Socket(Arc<PiMutex<Line>>);

/// A frame, and the samples in it.
type Frame = (Header, Vec<u64>);

impl SendHalf for Socket {
    fn send(&self, parts: &[std::io::IoSlice<'_>]) -> io::Result<usize> {
        let Line { full, left, most, .. } = &mut *self.0.lock();
        if *full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if most.is_some_and(|most| parts.iter().map(|part| part.len()).sum::<usize>() > most) {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        left.push(parts.iter().flat_map(|part| part.iter().copied()).collect());
        Ok(left.last().map_or(0, Vec::len))
    }

    fn send_many(&self, datagrams: &[[std::io::IoSlice<'_>; 2]]) -> io::Result<usize> {
        let lengths: Vec<usize> = datagrams.iter().map(|[head, rest]| head.len() + rest.len()).collect();
        let (last, others) = lengths.split_last().unwrap();
        assert!(others.iter().all(|length| *length == lengths[0]) && *last <= lengths[0], "{lengths:?}");
        assert!(lengths.len() <= MOST_TOGETHER && lengths.iter().sum::<usize>() <= MOST_BYTES_TOGETHER);
        let takes = self.0.lock().takes.take();
        if takes == Some(0) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let datagrams = &datagrams[..takes.unwrap_or(datagrams.len()).min(datagrams.len())];
        for (left, datagram) in datagrams.iter().enumerate() {
            match self.send(datagram) {
                Err(error) if left == 0 => return Err(error),
                Err(_) => return Ok(left),
                Ok(_) => {}
            }
        }
        self.0.lock().together.push(datagrams.len());
        Ok(datagrams.len())
    }

    fn receive_feedback(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let said = self.0.lock().said.pop().ok_or(io::ErrorKind::WouldBlock)?;
        buffer[..said.len()].copy_from_slice(&said);
        Ok((said.len(), MEMBER))
    }

    fn max_datagram(&self) -> Option<usize> {
        let line = self.0.lock();
        line.most.filter(|_| line.tells)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(&self) {}
}

impl Socket {
    pub(super) fn is_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// The subscriber reports that it misses one of the datagrams that left.
    fn says_it_misses(&self, missed: &Header, left: &[Frame]) {
        let head = Header { length: 0, flags: 0, sample: 0, stamp_ns: 0, ..*missed };
        let mut writer = Writer::default();
        writer.push(Gap::messages(head.sequence, 1));
        let newest = Datagram::new(&left.last().unwrap().0, 0);
        let receipt = Receipt { received: 1, newest, ago_ns: 0, window: 1 << 30 };
        let upto = left.last().unwrap().0.sequence + 1;
        let said = writer.finish_with(head, upto, upto, Some(&receipt)).to_vec();
        self.0.lock().said.push(said);
    }

    fn left(&self) -> Vec<Frame> {
        let parsed = |bytes: &Vec<u8>| {
            assert!(bytes.len() <= MTU, "{} bytes", bytes.len());
            let (header, payload) = wire::datagram(bytes, 1 << 20, Some(7)).unwrap();
            match header.kind {
                Kind::Batch => {
                    let messages = Messages::parse(&header, payload, 64).unwrap();
                    let samples = messages.map(|(header, bytes)| {
                        assert!(bytes.iter().all(|byte| *byte == header.sample as u8));
                        header.sample
                    });
                    (header, samples.collect())
                }
                _ => (header, vec![header.sample]),
            }
        };
        self.0.lock().left.iter().map(parsed).filter(|(header, _)| header.kind != Kind::KeepAlive).collect()
    }
}

fn flow(batches: bool, socket: &Socket) -> (Arc<Flow>, Arc<Senders>) {
    flow_with(qos::Queue::KeepAll(10_000), (batches, false), socket)
}

pub(super) fn flow_with(
    policy: qos::Queue,
    (batches, short_headers): (bool, bool),
    socket: &Socket,
) -> (Arc<Flow>, Arc<Senders>) {
    let senders = Arc::new(Senders::new(Box::new(|_, _| {})));
    let reliable = SenderSettings {
        window: 1024,
        bytes: 64 << 20,
        drops_oldest: false,
        useful_ns: None,
        hurries: false,
        largest: MTU - HEADER - wire::FRAGMENT_HEADER,
        repairs: Limit { rate: 4_000_000, burst: 256 << 10 },
    };
    let congestion = CongestionSettings { datagram: MTU, buffer: 1 << 20, reserved: None };
    let settings = FlowSettings {
        id: 7,
        policy,
        bytes: 64 << 20,
        account: Account::new(1 << 30),
        burst: 0,
        sending: Sending::default(),
        lifespan: None,
        reliable: Some(reliable),
        control: Some(Control { congestion, window: 1 << 30, batches, short_headers }),
        outlasts: true,
    };
    let capabilities = Capabilities { max_datagram: Some(MTU), ..crate::carrier::udp::CAPABILITIES };
    let flow = Arc::new(Flow::new(settings, Class::Normal, Box::new(socket.clone()), capabilities, senders.clone()));
    assert_eq!(flow.admit(MEMBER, None), Some(0));
    (flow, senders)
}

/// Publishes `count` samples while the socket is full, then lets all of them leave.
fn waited(batches: bool, count: u64) -> (Vec<Frame>, Arc<Flow>, Socket, Arc<Senders>) {
    let socket = Socket::default();
    let (flow, senders) = flow(batches, &socket);
    socket.is_full(true);
    (0..count).for_each(|seq| assert_eq!(publish(&flow, seq, 64, false), Outcome::Queued));
    socket.is_full(false);
    let samples = || socket.left().iter().map(|(_, samples)| samples.len() as u64).sum::<u64>();
    wait("all of them leave", || samples() == count && flow.right.is_free());
    (socket.left(), flow, socket, senders)
}

#[test]
fn waiting_samples_leave_in_batches_with_one_sequence_number_each() {
    let (left, _, _, senders) = waited(true, 100);
    assert!(left.iter().flat_map(|(_, samples)| samples.clone()).eq(0..100));
    assert!(left.iter().map(|(header, _)| header.sequence).eq(0..left.len() as u32));
    // The first left alone. Fourteen of the others fit a datagram.
    assert!(left.len() <= 1 + 99_usize.div_ceil(14), "{} datagrams", left.len());
    senders.close();
}

/// The subscriber reads short headers; a message that is not close behind the others has a whole one.
#[test]
fn a_sample_close_behind_another_has_a_short_header() {
    let socket = Socket::default();
    let (flow, senders) = flow_with(qos::Queue::KeepAll(10_000), (true, true), &socket);
    socket.is_full(true);
    let seqs: Vec<u64> = (0..50).chain(1000..1010).collect();
    seqs.iter().for_each(|seq| assert_eq!(publish(&flow, *seq, 64, false), Outcome::Queued));
    socket.is_full(false);
    let samples = || socket.left().into_iter().flat_map(|(_, samples)| samples).collect::<Vec<_>>();
    wait("all of them leave", || samples().len() == seqs.len());
    assert_eq!(samples(), seqs);
    let lengths: Vec<_> = socket.0.lock().left.iter().map(Vec::len).collect();
    // The first left alone. Nineteen fit a datagram; the first of them has a whole header, and so has one that is not close.
    let bytes = |whole: usize, short: usize| HEADER + whole * (HEADER + 64) + short * (wire::SHORT_HEADER + 64);
    assert_eq!(lengths, [HEADER + 64, bytes(1, 18), bytes(1, 18), bytes(2, 16), bytes(1, 2)]);
    assert_eq!(*socket.0.lock().together, [3, 1]);
    senders.close();
}

/// The queue takes one sample. Samples that wait for the window or the socket still share datagrams.
#[test]
fn small_samples_that_wait_leave_together_however_few_a_queue_that_blocks_takes() {
    let at_once = qos::Queue::Block { limit: 1, up_to_us: 1 };
    let socket = Socket::default();
    let (flow, senders) = flow_with(at_once, (true, false), &socket);
    socket.is_full(true);
    (0..100).for_each(|seq| assert_eq!(publish(&flow, seq, 64, false), Outcome::Queued, "{seq}"));
    let refused = (100..1000).find(|seq| !is_taken(publish(&flow, *seq, 64, false)));
    assert!(refused.is_some(), "it waits for room beyond what leaves together");
    assert!(!is_taken(publish(&flow, 0, 1400, false)), "nor does a large one find room");
    socket.is_full(false);
    // Ten datagrams leave without a receipt.
    wait("they leave", || socket.left().len() >= 10);
    let samples: Vec<_> = socket.left().into_iter().map(|(_, samples)| samples).collect();
    assert!(samples.len() <= 12 && samples[1..].iter().all(|samples| samples.len() == 14), "{samples:?}");
    senders.close();
}

/// Messages of these sizes wait while the socket is full. Then it takes `takes` datagrams of the first call.
fn together(sizes: &[usize], takes: Option<usize>) -> (Vec<Frame>, Vec<usize>) {
    let socket = Socket::default();
    let (flow, senders) = flow(true, &socket);
    socket.is_full(true);
    for (seq, size) in sizes.iter().enumerate() {
        assert_eq!(publish(&flow, seq as u64, *size, false), Outcome::Queued);
    }
    (socket.0.lock().full, socket.0.lock().takes) = (false, takes);
    let samples = || socket.left().iter().map(|(_, samples)| samples.len()).sum::<usize>();
    wait("all of them leave", || samples() == sizes.len());
    wait("nobody sends", || flow.right.is_free());
    let bytes: usize = socket.0.lock().left.iter().map(Vec::len).sum();
    assert_eq!(flow.kept.as_ref().unwrap().sender().under_way(), bytes as u64, "each is under way once");
    senders.close();
    let calls = socket.0.lock().together.clone();
    (socket.left(), calls)
}

#[test]
fn datagrams_of_one_length_leave_in_one_call_and_each_has_its_number() {
    for (sizes, calls) in [
        (vec![1400; 9], vec![8]),                                    // the first is on its way alone
        (vec![64; 43], vec![3]),                                     // fourteen in each
        (vec![64; 45], vec![4]),                                     // the last is shorter
        (vec![500, 1400, 1400, 1000, 1400, 64, 64, 64], vec![3, 2]), // a shorter one is the last
    ] {
        let (left, together) = together(&sizes, None);
        assert!(left.iter().flat_map(|(_, samples)| samples.clone()).eq(0..sizes.len() as u64), "{sizes:?}");
        assert!(left.iter().map(|(header, _)| header.sequence).eq(0..left.len() as u32), "{sizes:?}");
        assert_eq!(together, calls, "{sizes:?}");
    }
}

/// The socket takes some of the datagrams, or none: the others leave when there is room.
#[test]
fn datagrams_that_the_socket_refused_leave_later() {
    for (takes, calls) in [(3, vec![3, 5]), (0, vec![8])] {
        let (left, together) = together(&[1400; 9], Some(takes));
        assert!(left.iter().map(|(header, _)| header.sequence).eq(0..9));
        assert_eq!(together, calls);
    }
}

/// Fragments of a large message; the last is shorter. Ten datagrams leave without a receipt.
#[test]
fn fragments_leave_in_one_call_unless_a_rate_was_reserved() {
    const SIZE: usize = 9 * (MTU - HEADER - wire::FRAGMENT_HEADER) + 100;
    for (pace, takes, calls) in
        [(None, None, vec![10]), (None, Some(4), vec![4, 6]), (Some(1 << 30), None, vec![1; 10])]
    {
        let socket = Socket::default();
        let (flow, senders) = flow(true, &socket);
        flow.set_pace(pace);
        socket.0.lock().takes = takes;
        assert!(is_taken(publish(&flow, 3, SIZE, false)));
        wait("all of it leaves", || socket.0.lock().left.len() == 10 && flow.right.is_free());
        let bytes: usize = socket.0.lock().left.iter().map(Vec::len).sum();
        assert_eq!(flow.kept.as_ref().unwrap().sender().under_way(), bytes as u64);
        let mut reassembly = Reassembly::with_slots(2, 1 << 20, u64::MAX, Account::new(1 << 20));
        let mut whole = None;
        for bytes in &socket.0.lock().left {
            let (header, payload) = wire::datagram(bytes, 1 << 20, Some(7)).unwrap();
            let (at, piece) = wire::Fragment::parse(payload).unwrap();
            whole = reassembly.insert(0, header.sample, at, piece).unwrap().map(<[u8]>::to_vec);
        }
        assert_eq!(whole, Some(vec![3; SIZE]));
        assert_eq!(socket.0.lock().together, calls);
        senders.close();
    }
}

/// A subscriber of an older version does not announce batches.
#[test]
fn a_subscriber_that_did_not_announce_batches_gets_none() {
    let (left, _, _, senders) = waited(false, 60);
    assert_eq!(left.len(), 60);
    assert!(left.iter().all(|(header, _)| header.kind == Kind::Message));
    senders.close();
}

#[test]
fn a_lone_sample_leaves_at_once_as_it_is() {
    let socket = Socket::default();
    let (flow, senders) = flow(true, &socket);
    for seq in 0..8 {
        assert_eq!(publish(&flow, seq, 64, false), Outcome::Sent);
        let (last, count) = (socket.left().last().unwrap().0, socket.left().len() as u64);
        assert_eq!((last.kind, count), (Kind::Message, seq + 1));
    }
    senders.close();
}

/// The publisher is in a loop, and no further message came in time.
#[test]
fn a_batch_of_one_leaves_as_that_message() {
    let socket = Socket::default();
    let (flow, senders) = flow(true, &socket);
    publish(&flow, 0, 64, true);
    wait("its thread makes room", || flow.batch.lock().frames.capacity() > 0);
    assert_eq!(publish(&flow, 5, 64, true), Outcome::Sent);
    wait("it leaves", || socket.left().len() > 1);
    let (header, samples) = socket.left().remove(1);
    assert_eq!((header.kind, header.sequence, samples), (Kind::Message, 1, vec![5]));
    senders.close();
}

#[test]
fn a_batch_that_is_missed_is_repeated_whole() {
    let (left, flow, socket, senders) = waited(true, 40);
    let missed = left.iter().position(|(header, _)| header.kind == Kind::Batch).unwrap();
    socket.says_it_misses(&left[missed].0, &left);
    flow.receive_feedback();
    flow.retransmit(linux::clock::monotonic_ns());
    let again = socket.left().split_off(left.len());
    let expected = Header { flags: REPAIR, ..left[missed].0 };
    assert_eq!(again, [(expected, left[missed].1.clone())]);
    senders.close();
}

/// The path takes 600 bytes from now on, with a kernel that reports this length and with one that does not.
#[test]
fn a_path_that_takes_less_gets_shorter_datagrams_and_what_was_long_in_pieces() {
    const COUNT: u64 = 39;
    for tells in [true, false] {
        let socket = Socket::default();
        let (flow, senders) = flow(true, &socket);
        assert_eq!(publish(&flow, 0, 64, false), Outcome::Sent);
        (socket.0.lock().most, socket.0.lock().tells) = (Some(600), tells);
        // These leave without a receipt. The first of each round leaves alone, the others in datagrams of 1280 and 1088 bytes.
        for round in [1..15, 15..27, 27..COUNT] {
            socket.is_full(true);
            round.for_each(|seq| assert_eq!(publish(&flow, seq, 64, false), Outcome::Queued));
            socket.is_full(false);
            wait("they leave or do not fit", || flow.right.is_free() && flow.pending.lock().queue.is_empty());
        }
        let before = socket.left();
        let samples = |left: &[Frame]| left.iter().flat_map(|(_, samples)| samples.clone()).collect::<Vec<_>>();
        assert!(flow.largest() <= 600, "{}", flow.largest());
        // The messages that did not leave are the numbers missing among those that did.
        let left_out = |n: &u32| before.iter().all(|(header, _)| header.sequence != *n);
        let missing: Vec<u32> = (0..before.last().unwrap().0.sequence).filter(left_out).collect();
        assert_eq!(missing.len(), if tells { 1 } else { 2 }, "one for each length that was tried");
        for sequence in &missing {
            socket.says_it_misses(&Header { sequence: *sequence, ..before[0].0 }, &before);
            flow.receive_feedback();
            flow.retransmit(linux::clock::monotonic_ns());
        }
        let pieces = socket.0.lock().left.clone();
        let mut reassembly = Reassembly::with_slots(2, 1 << 20, u64::MAX, Account::new(1 << 20));
        let mut all = samples(&before);
        for bytes in &pieces {
            let (header, payload) = wire::datagram(bytes, 64, Some(7)).unwrap();
            if header.kind == Kind::Fragment {
                assert!(missing.contains(&header.sequence) && header.flags == REPAIR | wire::OF_BATCH);
                let (at, piece) = wire::Fragment::parse(payload).unwrap();
                if let Some(batch) = reassembly.insert(0, header.sample, at, piece).unwrap() {
                    all.extend(Messages::parse(&header, batch, 64).unwrap().map(|(header, _)| header.sample));
                }
            }
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..COUNT), "each once");
        senders.close();
    }
}
