//! Pictures and points of any content: the output is a message of the same kind, no larger than requested.

use crate::channel::proxy::Picture;
use crate::channel::proxy::scaler::{Encoded, Points, Raw, Scaler};

const SMALL: Picture = Picture { width: 8, height: 8 };

/// Any bytes are scaled or refused by each scaler. A scaled message can be scaled again, and is then unchanged.
pub fn pictures(bytes: &[u8]) {
    let scalers: [Box<dyn Scaler>; 4] =
        [Box::new(Raw::default()), Box::new(Points), Box::new(Encoded::in_message()), Box::new(Encoded::alone())];
    for mut scaler in scalers {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if scaler.scale(bytes, SMALL, &mut once).is_ok() {
            assert_eq!(scaler.scale(&once, SMALL, &mut twice), Ok(()), "what was scaled is a message");
            assert_eq!(once, twice, "what fits stays as it is");
        }
    }
}

/// A raw picture of 16 × 16, and the beginnings of encoded ones.
pub fn pictures_to_begin_from() -> Vec<Vec<u8>> {
    let mut raw = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    raw.extend([16, 0, 0, 0, 16, 0, 0, 0, 6, 0, 0, 0]);
    raw.extend(b"mono8\0");
    raw.extend([0, 0, 16, 0, 0, 0, 0, 1, 0, 0]);
    raw.extend([7; 256]);
    let png = [137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 16, 0, 0, 0, 16, 8, 0, 0, 0, 0];
    vec![raw, png.to_vec(), vec![0xff, 0xd8, 0xff, 0xe0, 0, 16]]
}
