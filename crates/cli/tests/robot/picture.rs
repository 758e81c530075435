//! A picture of a wanted size in bytes (PNG, ISO/IEC 15948), part noise, so that a smaller one takes bytes, too.

/// Larger than what the operator asks for.
const WIDTH: usize = 320;
const HEIGHT: usize = 300;
/// Rows of noise.
const NOISE: usize = 35;

/// A picture of so many bytes, its pixels not compressed.
pub fn of(bytes: usize) -> Vec<u8> {
    let size = [WIDTH as u32, HEIGHT as u32].map(u32::to_be_bytes).concat();
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.extend(chunk(b"IHDR", &[&size[..], &[8, 0, 0, 0, 0]].concat())); // eight bits of grey
    picture.extend(chunk(b"IDAT", &stored(&rows())));
    let end = chunk(b"IEND", &[]);
    // What decoders pass over.
    let padding = bytes.checked_sub(picture.len() + end.len() + 12).expect("room for the picture");
    picture.extend(chunk(b"paDd", &vec![0; padding]));
    [picture, end].concat()
}

/// Each row behind its filter, which is none.
fn rows() -> Vec<u8> {
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let row = |number: usize| {
        let pixels: Vec<u8> = (0..WIDTH).map(|_| if number < NOISE { noise() } else { 128 }).collect();
        [vec![0], pixels].concat()
    };
    (0..HEIGHT).flat_map(row).collect()
}

/// A zlib stream of stored blocks (RFC 1950, RFC 1951 §3.2.4).
fn stored(data: &[u8]) -> Vec<u8> {
    let blocks: Vec<&[u8]> = data.chunks(0xffff).collect();
    let block = |(number, block): (usize, &&[u8])| {
        let (is_last, length) = (u8::from(number + 1 == blocks.len()), block.len() as u16);
        [&[is_last][..], &length.to_le_bytes(), &(!length).to_le_bytes(), block].concat()
    };
    let body: Vec<u8> = blocks.iter().enumerate().flat_map(block).collect();
    let sums = data.iter().fold((1_u32, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    [&[0x78, 0x01][..], &body, &((sums.1 << 16) | sums.0).to_be_bytes()].concat()
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [&kind[..], data].concat();
    [&(data.len() as u32).to_be_bytes()[..], &body, &crc(&body).to_be_bytes()].concat()
}

/// CRC-32 of ISO 3309.
fn crc(data: &[u8]) -> u32 {
    let shifted = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !data.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shifted(sum)))
}
