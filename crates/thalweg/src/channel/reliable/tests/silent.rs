//! A silent member of a group, and the time for which it holds up a full window.

use super::*;
use crate::wire::feedback::Writer;

const WINDOW: u32 = 4;
const PRESENT: u64 = 1;
const SILENT: u64 = 2;

/// A full window that one of two members does not acknowledge.
fn held_up() -> Sender {
    held_up_by(WINDOW, 8)
}

/// A sender of `count` messages of `size` bytes.
fn held_up_by(count: u32, size: usize) -> Sender {
    let repairs = Limit { rate: 4_000_000, burst: 256 << 10 };
    let window = count as usize;
    let settings = SenderSettings {
        window,
        bytes: usize::MAX,
        drops_oldest: false,
        useful_ns: None,
        hurries: false,
        largest: MOST,
        repairs,
    };
    let (mut sender, mut pool) = (Sender::new(settings), Pool::default());
    sender.join(PRESENT);
    sender.join(SILENT);
    let bytes = vec![0; size];
    for sequence in 0..count {
        let entry = Outgoing::external(u64::from(sequence) + 1, 0, &bytes, &mut pool).keep();
        sender.sent(MS, sequence, entry);
    }
    answer(&mut sender, MS, PRESENT, count);
    sender
}

fn answer(sender: &mut Sender, now: u64, member: u64, upto: u32) {
    let head =
        Header { length: 0, kind: Kind::KeepAlive, flags: 4, flow: FLOW, sequence: upto, sample: 0, stamp_ns: 0 };
    let mut writer = Writer::default();
    let bytes = writer.finish(head, upto, 0).to_vec();
    let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
    sender.acknowledge(now, member, upto.max(WINDOW), &header, &Acknowledgement::parse(payload).unwrap()).unwrap();
}

/// Retransmits to a group have 4 MB/s: a member cannot acknowledge half a window of large messages in a second.
#[test]
fn a_member_that_takes_retransmits_as_fast_as_they_come_loses_no_message() {
    const COUNT: u32 = 16;
    let mut sender = held_up_by(COUNT, 1 << 20);
    let mut now = MS;
    for got in 0..COUNT {
        let (next, until) = (COUNT + got, now + 260 * MS);
        while now < until {
            now = sender.next_deadline().unwrap().min(until);
            while sender.poll(now).is_some() {
                answer(&mut sender, now, PRESENT, next);
                answer(&mut sender, now, SILENT, got);
            }
            assert!(sender.is_full(now), "given up when it had {got} of {COUNT}");
        }
        answer(&mut sender, now, SILENT, got + 1);
        let entry = Outgoing::external(u64::from(next) + 1, 0, &vec![0; 1 << 20], &mut Pool::default()).keep();
        sender.sent(now, next, entry);
    }
}

/// A member reports a thousand times a second that it waits for a message that is gone: the answers go to it alone. Another member,
/// which answers late, does not count as standing still for that.
#[test]
fn a_member_that_waits_for_a_gone_message_costs_the_others_nothing() {
    const SLOW: u64 = 3;
    let mut sender = held_up();
    assert_eq!(sender.join(SLOW), WINDOW);
    let mut now = 2 * MS;
    for number in WINDOW..2 * WINDOW {
        let entry = Outgoing::external(u64::from(number) + 1, 0, &[0; 8], &mut Pool::default()).keep();
        sender.sent(now, number, entry); // the oldest are given up
        answer(&mut sender, now, PRESENT, number + 1);
    }
    assert!(sender.is_full(now));
    let (mut told, mut asked, until) = (0, 0, now + 600 * MS);
    while now < until {
        now += MS;
        answer(&mut sender, now, SILENT, 0);
        while let Some(Action::KeepAlive { to, .. }) = sender.poll(now) {
            let alone = to == To::One(1);
            (told, asked) = (told + u32::from(alone), asked + u32::from(!alone));
            if !alone {
                answer(&mut sender, now, PRESENT, 2 * WINDOW);
                answer(&mut sender, now, SLOW, WINDOW);
            }
        }
    }
    assert!(asked <= 600 / 20 && told == 600, "{asked} for all, {told} for it alone");
    assert!(sender.is_full(now), "the slow one was given up");
}

/// A publisher asked no question while its thread did not run: a member that answers its first questions loses no message.
#[test]
fn a_member_that_was_not_asked_is_not_given_up() {
    let mut sender = held_up();
    let late = 10_000 * MS;
    assert!(sender.is_full(late));
    for question in 0..10 {
        assert!(matches!(sender.poll(late + question * 50 * MS), Some(Action::KeepAlive { .. })));
        assert!(sender.is_full(late + question * 50 * MS), "given up after {question} questions");
    }
    answer(&mut sender, late + 500 * MS, SILENT, WINDOW);
    assert_eq!((sender.unacknowledged(), sender.is_full(late + 500 * MS)), (0, false));
}

/// The sending thread asks between the loss of the last member and the end of the flow's connection: a message that was given up
/// there was missing when the member came back (1 run of 24 beside six busy loops, over `mcast`).
#[test]
fn no_message_is_given_up_for_a_group_whose_members_were_all_cut_off() {
    for members in [&[SILENT][..], &[PRESENT, SILENT]] {
        let mut sender = held_up();
        [PRESENT].iter().filter(|member| !members.contains(member)).for_each(|member| sender.leave(*member));
        assert!(members.iter().all(|member| sender.loses(*member)));
        assert!(sender.is_full(MS) && !sender.may_drop_oldest(), "{members:?}");
        sender.shrink_to(0);
        assert_eq!(sender.unacknowledged(), WINDOW as usize, "{members:?}");
    }
}

#[test]
fn a_silent_member_holds_up_the_others_for_a_second_at_most() {
    let mut sender = held_up();
    let mut now = MS;
    while sender.is_full(now) {
        now = sender.next_deadline().unwrap();
        assert!(matches!(sender.poll(now), Some(Action::KeepAlive { .. })));
        answer(&mut sender, now, PRESENT, WINDOW);
    }
    assert!((500 * MS..1000 * MS).contains(&now), "{} ms", now / MS);
}

/// A member that answers each question, and reports often without one, but never advances cannot stop the group. A member that
/// advances by a message at a time may slow the group, by half a window each time.
#[test]
fn a_member_that_answers_without_progress_holds_up_the_others_for_two_seconds_at_most() {
    for every in [u64::MAX, 50, 5] {
        let mut sender = held_up();
        let mut now = MS;
        while sender.is_full(now) {
            let due = sender.next_deadline().unwrap();
            now = due.min(now.saturating_add(every.saturating_mul(MS)));
            while sender.poll(now).is_some() {
                answer(&mut sender, now, PRESENT, WINDOW);
                answer(&mut sender, now, SILENT, 0);
            }
            answer(&mut sender, now, SILENT, 0);
            assert!(now < 2000 * MS, "it holds up the others for good");
        }
        assert!(now >= 500 * MS, "{} ms", now / MS);
        // The member does not hold up the next message either, though it continues to answer.
        let entry = Outgoing::external(9, 0, &[0; 8], &mut Pool::default()).keep();
        sender.sent(now, WINDOW, entry);
        let head =
            Header { length: 0, kind: Kind::KeepAlive, flags: 4, flow: FLOW, sequence: 0, sample: 0, stamp_ns: 0 };
        let bytes = Writer::default().finish(head, 0, 0).to_vec();
        let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
        sender.acknowledge(now, SILENT, WINDOW + 1, &header, &Acknowledgement::parse(payload).unwrap()).unwrap();
        assert!(!sender.is_full(now));
    }
}
