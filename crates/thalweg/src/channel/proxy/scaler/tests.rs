use super::pictures::{Bytes, CompressedImage, Header, Image, PointCloud2};
use super::*;
use crate::codec::{from_cdr, to_cdr};
use proptest::prelude::*;

fn picture(text: &str) -> Picture {
    text.parse().unwrap()
}

fn scale(scaler: &mut dyn Scaler, message: &[u8], to: &str) -> Result<Vec<u8>, Unscalable> {
    let mut out = Vec::new();
    scaler.scale(message, picture(to), &mut out).map(|()| out)
}

/// A picture whose rows are `extra` bytes longer than they need to be.
fn image(
    encoding: &str,
    (width, height): (u32, u32),
    size: u32,
    extra: u32,
    pixel: impl Fn(u32, u32) -> Vec<u8>,
) -> Image {
    let step = width * size + extra;
    let row =
        |y| (0..width).flat_map(|x| pixel(x, y)).chain(std::iter::repeat_n(0xee, extra as usize)).collect::<Vec<_>>();
    let data = Bytes((0..height).flat_map(row).collect());
    let header = Header { sec: 7, nanosec: 8, frame_id: "camera".into() };
    Image { header, height, width, encoding: encoding.into(), is_bigendian: 0, step, data }
}

fn scaled(from: &Image, to: &str) -> Result<Image, Unscalable> {
    scale(&mut Raw::default(), &to_cdr(from).unwrap(), to).map(|bytes| from_cdr(&bytes).unwrap())
}

#[test]
fn colours_are_averaged_over_areas_and_the_rest_stays() {
    let from = image("rgb8", (640, 480), 3, 5, |x, y| vec![(x / 2 % 2 * 100) as u8, (y / 2 % 2 * 60) as u8, 9]);
    let to = scaled(&from, "160x160").unwrap();
    assert_eq!((to.width, to.height, to.step), (160, 120, 480));
    assert!(to.data.0.chunks(3).all(|pixel| pixel == [50, 30, 9]), "{:?}", &to.data.0[..12]);
    assert_eq!((&to.header, &to.encoding), (&from.header, &from.encoding));
}

#[test]
fn depth_is_never_mixed_at_an_edge() {
    for (encoding, near, far) in [("16UC1", vec![1, 2], vec![9, 9]), ("32FC1", vec![1, 2, 3, 4], vec![9, 9, 9, 9])] {
        let size = near.len() as u32;
        let from = image(encoding, (101, 57), size, 3, |x, _| if x < 50 { near.clone() } else { far.clone() });
        let to = scaled(&from, "10x100").unwrap();
        assert_eq!((to.width, to.height), (10, 5));
        assert!(to.data.0.chunks(size as usize).all(|pixel| pixel == near || pixel == far));
        assert_eq!(to.data.0[..size as usize], near);
    }
}

#[test]
fn a_picture_that_fits_stays_as_it_is() {
    let from = image("mono8", (4, 4), 1, 0, |x, y| vec![(x * y) as u8]);
    assert_eq!(scaled(&from, "4x4").unwrap(), from);
    assert_eq!(picture("320x240").fit(1920, 1), (320, 1));
}

#[test]
fn headers_that_lie_are_told() {
    let fine = image("rgb8", (8, 8), 3, 0, |_, _| vec![1, 2, 3]);
    type Lie = fn(&mut Image);
    let lies: [(Lie, &str); 6] = [
        (|i| i.height = 9, "it has 192"),
        (|i| i.step = 20, "rows of 24"),
        (|i| (i.width, i.height) = (40_000, 30_000), "pixels"),
        (|i| (i.width, i.height, i.step) = (u32::MAX, u32::MAX, u32::MAX), "pixels"),
        (|i| i.width = 0, "pixels"),
        (|i| i.encoding = "yuv422".into(), "encoding \"yuv422\""),
    ];
    for (lie, says) in lies {
        let mut image = fine.clone();
        lie(&mut image);
        let Err(said) = scaled(&image, "2x2") else { panic!("taken: {says}") };
        assert!(said.to_string().contains(says), "{said}");
    }
}

fn encoded(format: image::ImageFormat, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(width, height, image::Rgb([200, 100, 50])).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn jpeg_and_png_are_scaled_alone_and_in_a_message() {
    for format in [image::ImageFormat::Jpeg, image::ImageFormat::Png] {
        let bytes = encoded(format, 64, 32);
        let alone = scale(&mut Encoded::alone(), &bytes, "16x16").unwrap();
        let message = CompressedImage { data: Bytes(bytes), format: "x".into(), ..Default::default() };
        let inside = scale(&mut Encoded::in_message(), &to_cdr(&message).unwrap(), "16x16").unwrap();
        let inside: CompressedImage = from_cdr(&inside).unwrap();
        for bytes in [&alone, &inside.data.0] {
            assert_eq!(image::guess_format(bytes).unwrap(), format);
            let found = image::load_from_memory(bytes).unwrap().to_rgb8();
            assert_eq!(found.dimensions(), (16, 8));
            let near = |pixel: &image::Rgb<u8>| pixel.0.iter().zip([200u8, 100, 50]).all(|(a, b)| a.abs_diff(b) < 6);
            assert!(found.pixels().all(near));
        }
    }
}

#[test]
fn bombs_and_other_bytes_are_refused_before_they_are_decoded() {
    let mut bomb = encoded(image::ImageFormat::Png, 4, 4);
    bomb[16..20].copy_from_slice(&50_000u32.to_be_bytes()); // IHDR: width and height
    bomb[20..24].copy_from_slice(&20_000u32.to_be_bytes());
    // Its checksum is wrong now, so it is refused for that; with a right one it would be refused for its size.
    assert!(scale(&mut Encoded::alone(), &bomb, "2x2").is_err());
    let mut crc = 0xffff_ffffu32;
    for byte in &bomb[12..29] {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
    }
    bomb[29..33].copy_from_slice(&(!crc).to_be_bytes());
    let said = scale(&mut Encoded::alone(), &bomb, "2x2").unwrap_err().to_string();
    assert!(said.contains("50000x20000 pixels"), "{said}");
    assert!(scale(&mut Encoded::alone(), b"no picture", "2x2").unwrap_err().to_string().contains("JPEG"));
}

#[test]
fn points_are_left_out_evenly() {
    let data = (0..10u8).flat_map(|row| (0..10u8).flat_map(move |x| [row * 10 + x, 0]).chain([0xee; 3]));
    let cloud = PointCloud2 {
        height: 10,
        width: 10,
        point_step: 2,
        row_step: 23,
        data: Bytes(data.collect()),
        ..Default::default()
    };
    let out = scale(&mut Points, &to_cdr(&cloud).unwrap(), "5x5").unwrap();
    let out: PointCloud2 = from_cdr(&out).unwrap();
    assert_eq!((out.width, out.height, out.row_step), (25, 1, 50));
    let first: Vec<u8> = out.data.0.chunks(2).map(|point| point[0]).collect();
    assert_eq!(first, (0..25).map(|n| n * 4).collect::<Vec<u8>>());
    let lie = PointCloud2 { height: 11, ..cloud.clone() };
    assert!(scale(&mut Points, &to_cdr(&lie).unwrap(), "5x5").unwrap_err().to_string().contains("it has 230"));
    let (most, height) = (u32::MAX, u32::MAX);
    let worst = PointCloud2 { height, width: most, point_step: most, row_step: most, ..cloud };
    assert!(scale(&mut Points, &to_cdr(&worst).unwrap(), "5x5").unwrap_err().to_string().contains("it has 230"));
}

proptest! {
    #[test]
    fn a_fitted_picture_fits_and_keeps_its_ratio(width in 1..5000u32, height in 1..5000u32, w in 1..3000u16, h in 1..3000u16) {
        let (to_w, to_h) = Picture { width: w, height: h }.fit(width, height);
        prop_assert!(to_w <= u32::from(w).min(width).max(1) && to_h <= u32::from(h).min(height).max(1));
        let error = (f64::from(to_w) * f64::from(height) - f64::from(to_h) * f64::from(width)).abs();
        prop_assert!(to_w == 1 || to_h == 1 || error <= f64::from(width.max(height)));
    }

    #[test]
    fn any_bytes_are_scaled_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), name in 0..4usize) {
        let mut scaler = built_in(["Image", "CompressedImage", "PointCloud2", "bytes"][name]).unwrap();
        let _ = scale(scaler.as_mut(), &bytes, "8x8");
    }
}
