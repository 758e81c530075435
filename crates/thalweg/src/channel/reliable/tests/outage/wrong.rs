//! Single frames with wrong numbers and stamps: forged, flipped on the way, or of a publisher that is mistaken.

use super::*;
use proptest::prelude::*;

const KEEPS_ALL: Flow = Flow { window: 64, drops_oldest: false, ..KILOHERTZ };
const DEADLINE: Flow = Flow { deadline_ns: Some(50 * MS), ..KEEPS_ALL };

/// A frame that its publisher never sent; only its flow is right.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    kind: Kind,
    /// The distance from the number that the subscriber expects.
    ahead: u32,
    /// The oldest retransmittable message of a keep-alive, as a distance from the same number.
    oldest: u32,
    sample: u64,
    stamp: u64,
}

const MESSAGE: Wrong = Wrong { kind: Kind::Message, ahead: 0, oldest: 0, sample: 301, stamp: 301 * MS };
const KEEP_ALIVE: Wrong = Wrong { kind: Kind::KeepAlive, stamp: 2 * MS, ..MESSAGE };

/// Runs a flow with this wrong frame. Returns how many messages were given up, and the longest silence after the frame.
fn with(flow: Flow, wrong: Wrong) -> (u64, u64) {
    let what = format!("{wrong:?}: {flow:?}");
    let mut field = Field::new(flow);
    // Between two messages, when all have arrived.
    field.until(300 * MS + MS / 2, true);
    field.until(303 * MS + MS / 2, false);
    let expected = field.subscribers[0].receiver.next();
    assert_eq!(expected, field.sequence, "{what}");
    let sequence = expected.wrapping_add(wrong.ahead);
    let (sample, length) = match wrong.kind {
        Kind::KeepAlive => (expected.wrapping_add(wrong.oldest).into(), 0),
        _ => (wrong.sample, 64),
    };
    let (kind, flags, stamp_ns) = (wrong.kind, ASK, wrong.stamp);
    let header = Header { length, kind, flags, flow: FLOW, sequence, sample, stamp_ns };
    field.send(header, &[1; 64][..length as usize], To::All);
    let from = field.now;
    field.until(from + 400 * MS, true);
    field.until(from + 900 * MS, false);
    let subscriber = &field.subscribers[0];
    let skipped = subscriber.receiver.counters().skipped;
    assert_eq!((subscriber.receiver.next(), field.sender.unacknowledged()), (field.sequence, 0), "{what}");
    // One message may lose its place to the wrong frame, and the wrong number itself may be left out or delivered.
    let count = subscriber.delivered.len() as u64 + skipped;
    assert!(count.abs_diff(field.published - field.refused) <= 2, "{count} of {}: {what}", field.published);
    let times = subscriber.delivered.iter().map(|(_, at)| *at).filter(|at| *at + 5 * MS > from);
    let times: Vec<u64> = times.collect();
    let silence = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    assert!(times.last().is_some_and(|last| *last > from + 390 * MS), "silent at the end: {what}");
    (skipped, silence)
}

#[test]
fn a_message_far_ahead_or_with_the_greatest_sample_number_makes_nobody_silent() {
    for flow in [KEEPS_ALL, DEADLINE, KILOHERTZ] {
        for ahead in [100, 1000, 1023, 1024, 5000, 1 << 20, (1 << 31) - 1, 1 << 31, u32::MAX] {
            let (skipped, silence) = with(flow, Wrong { ahead, ..MESSAGE });
            // With a deadline the message is too old when its turn comes.
            let most = u64::from(flow.deadline_ns.is_some());
            assert!(skipped <= most && silence <= BACK_NS, "{ahead}: {skipped} skipped, {} ms: {flow:?}", silence / MS);
        }
        for sample in [u64::MAX, 1 << 63, 1 << 40, 1 << 20, 0] {
            let (skipped, silence) = with(flow, Wrong { sample, ..MESSAGE });
            assert!(skipped == 0 && silence <= BACK_NS, "{sample}: {skipped} skipped, {} ms: {flow:?}", silence / MS);
        }
    }
}

#[test]
fn no_single_keep_alive_makes_anybody_do_without_messages() {
    for flow in [KEEPS_ALL, DEADLINE, KILOHERTZ] {
        for ahead in [65, 1000, 5000, 1 << 20, 1 << 30, (1 << 31) - 1] {
            for oldest in [0, 65, ahead] {
                let (skipped, silence) = with(flow, Wrong { ahead, oldest, ..KEEP_ALIVE });
                assert!(skipped == 0 && silence <= BACK_NS, "{ahead}, {oldest}: {skipped} skipped, {flow:?}");
            }
        }
    }
}

#[test]
fn one_wrong_stamp_makes_nothing_else_late() {
    for stamp in [0, 1, 1 << 62, 1 << 63, u64::MAX, 400 * MS, 600 * MS, 90_000 * MS] {
        let (skipped, silence) = with(DEADLINE, Wrong { stamp, ..MESSAGE });
        assert!(skipped <= 1 && silence <= BACK_NS, "{stamp}: {skipped} skipped, {} ms", silence / MS);
        with(DEADLINE, Wrong { stamp, ..KEEP_ALIVE });
    }
}

/// A flipped bit in the numbers that the checksum of UDP missed: the message is retransmitted like any loss.
#[test]
fn flipped_bits_silence_nobody() {
    // All bits of the sequence; a selection of those of sample and stamp.
    let bits = (96..128).chain((128..256).step_by(5));
    for (flow, bit) in bits.flat_map(|bit| [(KEEPS_ALL, bit), (DEADLINE, bit)]) {
        let mut field = Field::new(flow);
        field.flips = Some(bit);
        field.until(500 * MS, true);
        field.flips = None;
        field.until(700 * MS, true);
        field.until(1_000 * MS, false);
        let subscriber = &field.subscribers[0];
        let times = subscriber.delivered.windows(2).map(|pair| pair[1].1 - pair[0].1);
        let silence = times.max().unwrap_or(u64::MAX);
        let too_far = subscriber.receiver.next().wrapping_sub(field.sequence);
        let left = field.sender.unacknowledged();
        assert!(too_far <= 64 && left == 0, "bit {bit}: {too_far}, {left} left, {flow:?}");
        // A sample number that is wrong by up to 1024 is believed, and costs that many samples.
        let believed = (128..=138).contains(&bit);
        assert!(believed || silence <= BACK_NS, "bit {bit}: silent for {} ms, {flow:?}", silence / MS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_single_frame_silences_a_flow(
        ahead: u32, oldest: u32, near in 0u32..2048, is_near: bool, sample: u64, stamp: u64, deadline: bool, keep_alive: bool,
    ) {
        let ahead = if is_near { near } else { ahead };
        let kind = if keep_alive { Kind::KeepAlive } else { Kind::Message };
        let flow = if deadline { DEADLINE } else { KEEPS_ALL };
        let (skipped, _) = with(flow, Wrong { kind, ahead, oldest, sample, stamp });
        // A jump that is believed at once.
        prop_assert!(skipped <= 65, "{skipped} skipped");
    }
}
