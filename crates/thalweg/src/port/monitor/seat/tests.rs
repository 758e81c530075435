use super::super::Delay;
use super::*;
use crate::channel::Change;
use crate::control::{NodeId, PortId};

fn pass_late(seat: &Seat, size: usize) -> Late {
    let info = SampleInfo {
        node: NodeId(1),
        port: PortId(1),
        incarnation: 1,
        seq: 1,
        source_ns: 0,
        received_ns: 0,
        same_clock: true,
        scaled: None,
        historical: false,
        change: Change::Written,
    };
    assert_eq!(seat.judge(&info, 0, &vec![1; size], None, |_| None), Judged::Gone);
    seat.next_due().unwrap()
}

#[test]
fn memory_of_late_samples_is_kept_up_to_a_limit_and_while_there_is_a_monitor() {
    let seat = Seat::default();
    seat.attach(Box::new(Delay::of(Duration::from_nanos(1))));
    let spare = || seat.held.lock().spare.buffers.len();
    let late: Vec<Late> = (0..3).map(|_| pass_late(&seat, MOST_SPARE_BYTES / 2)).collect();
    late.into_iter().for_each(|late| seat.released(late));
    assert_eq!(spare(), 2, "the third is too much");
    seat.released(pass_late(&seat, 1));
    assert_eq!(spare(), 2, "it used the memory of one");
    let last = pass_late(&seat, 1);
    assert!(seat.detach());
    assert_eq!(spare(), 1, "a sample is on its way still");
    seat.released(last);
    assert_eq!((spare(), seat.held.lock().spare.bytes), (0, 0));
}
