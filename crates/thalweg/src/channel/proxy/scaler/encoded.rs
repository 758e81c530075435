//! JPEG and PNG pictures, alone or in the layout of `sensor_msgs/CompressedImage`.

use super::layout::{Bytes, CompressedImage};
use super::{MOST_PIXELS, Scaler, Unscalable};
use crate::channel::proxy::Picture;
use crate::codec::{from_cdr, to_cdr_into};
use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use std::fmt::Display;
use std::io::Cursor;

/// Scales encoded pictures, and encodes them as they were.
pub struct Encoded {
    in_message: bool,
}

impl Encoded {
    /// The message is the picture.
    pub fn alone() -> Self {
        Self { in_message: false }
    }
    /// The message has the picture in it.
    pub fn in_message() -> Self {
        Self { in_message: true }
    }
}

impl Scaler for Encoded {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        if !self.in_message {
            return smaller(message, picture).map(|bytes| out.extend_from_slice(&bytes));
        }
        let mut image: CompressedImage = from_cdr(message)?;
        image.data = Bytes(smaller(&image.data.0, picture)?);
        Ok(to_cdr_into(&image, out)?)
    }
}

fn smaller(bytes: &[u8], picture: Picture) -> Result<Vec<u8>, Unscalable> {
    let reader = || ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| unreadable(&e));
    let found = reader()?;
    let Some(format) = found.format().filter(|format| matches!(format, ImageFormat::Jpeg | ImageFormat::Png)) else {
        return Err(Unscalable("neither a JPEG nor a PNG picture".into()));
    };
    // The size comes from the header alone: a few bytes can promise gigabytes.
    let (width, height) = found.into_dimensions().map_err(|e| unreadable(&e))?;
    let area = u64::from(width) * u64::from(height);
    if area == 0 || area > MOST_PIXELS {
        return Err(Unscalable(format!("{width}x{height} pixels: 1 to {MOST_PIXELS} are scaled")));
    }
    let (to_width, to_height) = picture.fit(width, height);
    if (to_width, to_height) == (width, height) {
        return Ok(bytes.to_vec());
    }
    let mut reader = reader()?;
    reader.limits(limits());
    let decoded = reader.decode().map_err(|e| unreadable(&e))?;
    let scaled = decoded.resize_exact(to_width, to_height, FilterType::Triangle);
    encode(&scaled, format)
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MOST_PIXELS * 8);
    limits
}

fn encode(image: &DynamicImage, format: ImageFormat) -> Result<Vec<u8>, Unscalable> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).map_err(|e| Unscalable(format!("cannot be encoded again: {e}")))?;
    Ok(bytes.into_inner())
}

fn unreadable(problem: &dyn Display) -> Unscalable {
    Unscalable(format!("a picture that cannot be read: {problem}"))
}
