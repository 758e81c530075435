//! Raw pictures in the layout of `sensor_msgs/Image`.

use super::layout::{Bytes, Image};
use super::{MOST_PIXELS, Scaler, Unscalable};
use crate::channel::proxy::Picture;
use crate::codec::{from_cdr, to_cdr_into};
use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

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
