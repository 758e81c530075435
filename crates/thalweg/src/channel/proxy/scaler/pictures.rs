//! Scalers of pictures and points: raw pictures, JPEG and PNG, and sets of points, in the layouts of ROS 2's messages as CDR has them.

use super::{MOST_PIXELS, Scaler, Unscalable};
use crate::channel::proxy::Picture;
use crate::codec::{from_cdr, to_cdr_into};
use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, ImageFormat, ImageReader, Limits, imageops};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt::{self, Display};
use std::io::Cursor;

/// Scales raw pictures: colours by area, depth by nearest pixel. The nearest pixel never invents a distance between an edge and
/// its background.
#[derive(Default)]
pub struct Raw {
    resizer: Resizer,
}

/// The scaling of an encoding's pixels.
#[derive(Clone, Copy)]
enum Pixels {
    /// Averaged over the area that one pixel of the result covers.
    Colour(PixelType),
    /// The middle pixel of each area; bytes of a pixel.
    Depth(usize),
}

impl Pixels {
    fn of(encoding: &str) -> Option<Self> {
        match encoding {
            "mono8" | "8UC1" => Some(Pixels::Colour(PixelType::U8)),
            "rgb8" | "bgr8" | "8UC3" => Some(Pixels::Colour(PixelType::U8x3)),
            "rgba8" | "bgra8" | "8UC4" => Some(Pixels::Colour(PixelType::U8x4)),
            "16UC1" | "mono16" => Some(Pixels::Depth(2)),
            "32FC1" => Some(Pixels::Depth(4)),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Pixels::Colour(kind) => kind.size(),
            Pixels::Depth(size) => size,
        }
    }
}

impl Scaler for Raw {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        let image: Image = from_cdr(message)?;
        let scaled = self.smaller(image, picture)?;
        Ok(to_cdr_into(&scaled, out)?)
    }
}

impl Raw {
    fn smaller(&mut self, mut image: Image, picture: Picture) -> Result<Image, Unscalable> {
        let pixels = check(&image)?;
        let (width, height) = picture.fit(image.width, image.height);
        if (width, height) == (image.width, image.height) {
            return Ok(image);
        }
        let data = match pixels {
            Pixels::Colour(kind) => self.by_area(&image, kind, (width, height))?,
            Pixels::Depth(size) => by_nearest(&image, size, (width, height)),
        };
        (image.width, image.height) = (width, height);
        (image.step, image.data) = (width * pixels.size() as u32, Bytes(data));
        Ok(image)
    }

    fn by_area(&mut self, image: &Image, kind: PixelType, to: (u32, u32)) -> Result<Vec<u8>, Unscalable> {
        let row = image.width as usize * kind.size();
        let rows = image.data.0.chunks(image.step as usize).take(image.height as usize);
        let packed: Vec<u8> = rows.flat_map(|bytes| &bytes[..row]).copied().collect();
        let wrong = |problem: &dyn std::fmt::Display| Unscalable(format!("a picture that cannot be read: {problem}"));
        let from = ImageRef::new(image.width, image.height, &packed, kind).map_err(|e| wrong(&e))?;
        let mut target = Target::new(to.0, to.1, kind);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box));
        self.resizer.resize(&from, &mut target, &options).map_err(|e| wrong(&e))?;
        Ok(target.into_vec())
    }
}

/// Checks that the image is as its header says. Returns the kind of its pixels.
fn check(image: &Image) -> Result<Pixels, Unscalable> {
    let Image { width, height, encoding, step, data, .. } = image;
    let Some(pixels) = Pixels::of(encoding) else {
        let encoding: String = encoding.chars().take(32).collect();
        let known = "mono8, rgb8, bgr8, rgba8, bgra8, 16UC1 and 32FC1";
        return Err(Unscalable(format!("encoding {encoding:?}: this build scales {known}")));
    };
    let area = u64::from(*width) * u64::from(*height);
    if area == 0 || area > MOST_PIXELS {
        return Err(Unscalable(format!("{width}x{height} pixels: 1 to {MOST_PIXELS} are scaled")));
    }
    let row = u64::from(*width) * pixels.size() as u64;
    let needed = u64::from(*step) * u64::from(height - 1) + row;
    if u64::from(*step) < row || needed > data.0.len() as u64 {
        let has = data.0.len();
        let claims =
            format!("{width}x{height} {encoding} in rows of {step} bytes needs rows of {row} and {needed} bytes");
        return Err(Unscalable(format!("{claims}; it has {has}")));
    }
    Ok(pixels)
}

/// The pixel at the middle of each area.
fn by_nearest(image: &Image, size: usize, (width, height): (u32, u32)) -> Vec<u8> {
    let middle =
        |at: u32, to: u32, from: u32| ((2 * u64::from(at) + 1) * u64::from(from) / (2 * u64::from(to))) as usize;
    let mut data = Vec::with_capacity(width as usize * height as usize * size);
    for y in 0..height {
        let row = middle(y, height, image.height) * image.step as usize;
        for x in 0..width {
            let at = row + middle(x, width, image.width) * size;
            data.extend_from_slice(&image.data.0[at..at + size]);
        }
    }
    data
}

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
    let scaled = decoded.resize_exact(to_width, to_height, imageops::FilterType::Triangle);
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

/// Leaves out points, evenly, until there are no more than a picture has pixels.
pub struct Points;

impl Scaler for Points {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        let cloud = fewer(from_cdr(message)?, picture)?;
        Ok(to_cdr_into(&cloud, out)?)
    }
}

fn fewer(mut cloud: PointCloud2, picture: Picture) -> Result<PointCloud2, Unscalable> {
    let count = u64::from(cloud.width) * u64::from(cloud.height);
    let (step, row) = (u64::from(cloud.point_step), u64::from(cloud.row_step));
    let line = step * u64::from(cloud.width);
    let needed = (row * u64::from(cloud.height.saturating_sub(1))).saturating_add(line); // each term is below 2⁶⁴, but their sum may not be
    if count == 0 || step == 0 || row < line || needed > cloud.data.0.len() as u64 {
        let PointCloud2 { width, height, point_step, row_step, .. } = cloud;
        let has = cloud.data.0.len();
        let claims = format!("{width}x{height} points of {point_step} bytes in rows of {row_step}");
        return Err(Unscalable(format!("{claims} need {needed} bytes; it has {has}")));
    }
    let most = u64::from(picture.width) * u64::from(picture.height);
    if count <= most {
        return Ok(cloud);
    }
    let width = u64::from(cloud.width);
    let point = |number: u64| (number / width * row + number % width * step) as usize;
    // The n-th of `most` stands for the n-th part of all.
    let kept = (0..most).map(|n| point((u128::from(n) * u128::from(count) / u128::from(most)) as u64));
    let data: Vec<u8> = kept.flat_map(|at| &cloud.data.0[at..at + step as usize]).copied().collect();
    (cloud.width, cloud.height) = (most as u32, 1);
    (cloud.row_step, cloud.data) = (data.len() as u32, Bytes(data));
    Ok(cloud)
}

/// `std_msgs/Header`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub sec: i32,
    pub nanosec: u32,
    pub frame_id: String,
}

/// `sensor_msgs/Image`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Image {
    pub header: Header,
    pub height: u32,
    pub width: u32,
    pub encoding: String,
    pub is_bigendian: u8,
    pub step: u32,
    pub data: Bytes,
}

/// `sensor_msgs/CompressedImage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CompressedImage {
    pub header: Header,
    pub format: String,
    pub data: Bytes,
}

/// `sensor_msgs/PointField`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PointField {
    pub name: String,
    pub offset: u32,
    pub datatype: u8,
    pub count: u32,
}

/// `sensor_msgs/PointCloud2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PointCloud2 {
    pub header: Header,
    pub height: u32,
    pub width: u32,
    pub fields: Vec<PointField>,
    pub is_bigendian: bool,
    pub point_step: u32,
    pub row_step: u32,
    pub data: Bytes,
    pub is_dense: bool,
}

/// A sequence of bytes, copied as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(Whole)
    }
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Bytes;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence of bytes")
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Bytes, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(Bytes(bytes))
    }
}
