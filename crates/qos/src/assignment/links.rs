//! Shares and queue lengths.

use crate::Class;
use crate::analysis::arrivals::BILLION;
use crate::analysis::end_to_end::{Analysis, Room};
use crate::analysis::stages::Stages;
use crate::network::Direction;

/// Shares of the classes of a link's direction in the order of [`Class::ALL`], 0…1, for `htb` and `hfsc` where the contract names none:
/// what each class sends, and of what is left over as much again in proportion; background belongs to class normal. A class
/// that sends nothing gets nothing. `None` where more is sent than the link carries.
pub fn shares(stages: &Stages, analysis: &Analysis, direction: Direction) -> Option<[f64; 4]> {
    let queue = direction.index();
    let background = stages.outlets[queue].background.map_or(0, |background| background.arrivals.load(background.work));
    let mut loads = analysis.queues[queue].map(|bound| u128::from(bound.load));
    loads[Class::Normal as usize] += background;
    let sum: u128 = loads.iter().sum();
    (sum > 0 && sum <= BILLION).then(|| loads.map(|load| load as f64 / sum as f64))
}

/// What a class's queue must hold, so that nothing is lost of what was declared: at least one packet; `None` without a bound. (Background
/// in the same class needs room besides.)
pub fn queue_limit(analysis: &Analysis, direction: Direction, class: Class) -> Option<Room> {
    let bound = analysis.queues[direction.index()][class as usize];
    if bound.streams == 0 {
        return Some(Room { bytes: 0, packets: 1 });
    }
    bound.room.map(|room| Room { packets: room.packets.max(1), ..room })
}
