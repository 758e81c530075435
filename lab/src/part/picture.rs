//! Grey pictures, and the scaler that makes them smaller at a proxy (P-03): width and height, 16 bits each, then a byte for each pixel.
//! The library's own scalers are a feature that a build may leave out.

use thalweg::proxy::Picture;
use thalweg::proxy::scaler::{Scaler, Scalers, Unscalable};

/// Bytes of width and height.
const HEADER: usize = 4;

/// Bytes of a message with such a picture.
pub(crate) const fn size(picture: Picture) -> usize {
    HEADER + picture.width as usize * picture.height as usize
}

/// A message with a picture of this size that becomes brighter from left to right.
pub(super) fn message(picture: Picture) -> Vec<u8> {
    let row = (0..u32::from(picture.width)).map(|x| (x * 256 / u32::from(picture.width)) as u8);
    let rows = (0..picture.height).flat_map(|_| row.clone());
    header(picture).into_iter().chain(rows).collect()
}

/// The picture's size; `None`: the message is no picture.
pub(super) fn of(message: &[u8]) -> Option<Picture> {
    let [a, b, c, d] = *message.first_chunk::<HEADER>()?;
    let side = |bytes| u32::from(u16::from_le_bytes(bytes));
    Picture::of((side([a, b]), side([c, d]))).filter(|picture| message.len() == size(*picture))
}

/// The scaler of such pictures, for every topic of bytes.
pub(super) fn scalers() -> Scalers {
    Scalers::default().with("bytes", || Grey)
}

fn header(picture: Picture) -> [u8; HEADER] {
    let ([a, b], [c, d]) = (picture.width.to_le_bytes(), picture.height.to_le_bytes());
    [a, b, c, d]
}

/// Takes the nearest pixel.
struct Grey;

impl Scaler for Grey {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        let from = of(message).ok_or_else(|| Unscalable("no grey picture".into()))?;
        let to = picture.fit(from.width.into(), from.height.into());
        let to = Picture::of(to).ok_or_else(|| Unscalable(format!("{from} in {picture}")))?;
        out.extend_from_slice(&header(to));
        let nearest = |at: u16, of: u16, among: u16| (u32::from(at) * u32::from(among) / u32::from(of)) as usize;
        for y in 0..to.height {
            let row = HEADER + nearest(y, to.height, from.height) * usize::from(from.width);
            out.extend((0..to.width).map(|x| message[row + nearest(x, to.width, from.width)]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(text: &str) -> Picture {
        text.parse().unwrap()
    }

    #[test]
    fn a_picture_becomes_smaller_and_shows_the_same() {
        let whole = message(picture("200x150"));
        assert_eq!((whole.len(), of(&whole)), (30_004, Some(picture("200x150"))));
        let mut small = Vec::new();
        Grey.scale(&whole, picture("100x100"), &mut small).unwrap();
        assert_eq!(of(&small), Some(picture("100x75")));
        let wanted = message(picture("100x75"));
        let off = small.iter().zip(&wanted).map(|(found, wanted)| found.abs_diff(*wanted)).max();
        assert!(off <= Some(2), "{off:?}");
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        for bytes in [&[][..], &[0; 4], &[2, 0, 2, 0, 1, 1, 1], &[0x5a; 160]] {
            assert!(of(bytes).is_none() && Grey.scale(bytes, picture("1x1"), &mut Vec::new()).is_err(), "{bytes:?}");
        }
    }
}
