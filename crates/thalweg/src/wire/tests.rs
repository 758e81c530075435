use super::*;
use proptest::prelude::*;

fn header(kind: Kind, length: usize, sequence: u32) -> Header {
    Header { length: length as u32, kind, flags: 0, flow: 7, sequence, sample: u64::from(sequence) + 9, stamp_ns: 3 }
}

fn emit(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; HEADER];
    header.emit(&mut out);
    [&out[..], payload].concat()
}

/// Reads `bytes` through a parser, `sizes` at a time, and returns the payloads; checks that it never grows past its
/// limit.
fn parse_all(bytes: &[u8], max: usize, sizes: &[usize]) -> Result<Vec<Vec<u8>>, WireError> {
    let (mut parser, mut out, mut rest, mut turn) = (StreamParser::new(max, Some(7)), Vec::new(), bytes, 0);
    while !rest.is_empty() {
        let space = parser.space();
        let n = space.len().min(rest.len()).min(sizes[turn % sizes.len()]);
        assert!(n > 0, "no space");
        space[..n].copy_from_slice(&rest[..n]);
        parser.filled(n);
        (rest, turn) = (&rest[n..], turn + 1);
        while let Some(frame) = parser.next()? {
            out.push(parser.payload(frame.range).to_vec());
        }
        assert!(parser.capacity() <= INITIAL.max(max + HEADER + FRAGMENT_HEADER));
    }
    assert_eq!(parser.partial(), 0);
    Ok(out)
}

#[test]
fn the_layout_is_this_to_the_byte() {
    let h = Header {
        length: 0x0403_0201,
        kind: Kind::Fragment,
        flags: 1,
        flow: 0x0807_0605,
        sequence: 0x0c0b_0a09,
        sample: 0x1413_1211_100f_0e0d,
        stamp_ns: 0x1c1b_1a19_1817_1615,
    };
    let want = [
        1, 2, 3, 4, 2, 1, 1, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28,
    ];
    assert_eq!(emit(&h, &[]), want);
}

#[test]
fn an_error_names_the_field_and_its_value() {
    let good = emit(&header(Kind::Message, 5, 0), b"hello");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        datagram(&bytes, 100, Some(7)).unwrap_err()
    };
    assert_eq!(with(5, 9), WireError::Version(9));
    assert_eq!(with(4, 0), WireError::Kind(0));
    assert_eq!(with(6, 0x82), WireError::Flags(0x82));
    assert_eq!(with(8, 8), WireError::Flow { found: 8, expected: 7 });
    assert_eq!(with(0, 101), WireError::Length { length: 101, limit: 100 });
    assert_eq!(with(0, 6), WireError::Short { length: 37, needed: 38 });
    assert_eq!(Header::parse(&good[..31]).unwrap_err(), WireError::Short { length: 31, needed: 32 });
    let text = with(0, 101).to_string();
    assert!(text.contains("101") && text.contains("100") && text.contains("max_message"), "{text}");
    assert_eq!(datagram(&good, 100, Some(7)).unwrap().1, b"hello");
}

#[test]
fn a_fragment_lies_inside_its_message() {
    let mut out = [0; FRAGMENT_HEADER];
    Fragment { offset: 6, total: 10 }.emit(&mut out);
    let whole = |tail: &[u8]| [&out[..], tail].concat();
    assert_eq!(Fragment::parse(&whole(b"four")).unwrap(), (Fragment { offset: 6, total: 10 }, &b"four"[..]));
    let wrong = WireError::Fragment { offset: 6, length: 5, total: 10 };
    assert_eq!(Fragment::parse(&whole(b"fives")).unwrap_err(), wrong);
    assert_eq!(Fragment::parse(&out[..7]).unwrap_err(), WireError::Short { length: 7, needed: 8 });
}

#[test]
fn equal_messages_are_read_in_place_without_growing_twice_and_memory_is_given_back() {
    let (mut parser, big) = (StreamParser::new(1 << 20, None), 300_000);
    let feed = |parser: &mut StreamParser, payload: usize| {
        let bytes = emit(&header(Kind::Message, payload, 0), &vec![1; payload]);
        let mut rest = &bytes[..];
        let mut got = None;
        while got.is_none() {
            let space = parser.space();
            let n = space.len().min(rest.len());
            space[..n].copy_from_slice(&rest[..n]);
            parser.filled(n);
            rest = &rest[n..];
            got = parser.next().unwrap();
        }
        got.unwrap().range
    };
    for _ in 0..3 {
        assert_eq!(feed(&mut parser, big), HEADER..HEADER + big, "each begins at offset 0");
        assert_eq!(parser.capacity(), (HEADER + big).next_multiple_of(INITIAL));
    }
    (0..1100).for_each(|_| assert_eq!(feed(&mut parser, 100).len(), 100));
    assert_eq!(parser.capacity(), INITIAL);
}

#[test]
fn after_a_wrong_frame_the_stream_stays_wrong_and_asks_for_no_memory() {
    let mut parser = StreamParser::new(1000, Some(7));
    let mut bytes = emit(&header(Kind::Message, 1001, 0), &[]);
    bytes.resize(60, 0);
    parser.space()[..60].copy_from_slice(&bytes);
    parser.filled(60);
    for _ in 0..2 {
        assert_eq!(parser.next(), Err(WireError::Length { length: 1001, limit: 1000 }));
    }
    assert!(!parser.space().is_empty());
    assert_eq!(parser.capacity(), INITIAL);
}

proptest! {
    #[test]
    fn emitted_frames_are_parsed_back(
        length: u32, kind in 1u8..7, flags in 0u16..32, flow: u32, sequence: u32, sample: u64, stamp_ns: u64,
    ) {
        let h = Header { length, kind: Kind::parse(kind).unwrap(), flags, flow, sequence, sample, stamp_ns };
        prop_assert_eq!(Header::parse(&emit(&h, &[])), Ok(h));
    }

    #[test]
    fn chunks_of_any_size_give_the_same_frames(
        lengths in prop::collection::vec(prop_oneof![0usize..200, 0usize..5_000, 60_000usize..200_000], 1..12),
        sizes in prop::collection::vec(prop_oneof![1usize..50, 1usize..200_000], 1..20),
    ) {
        let sizes: Vec<_> = sizes.into_iter().chain([70_000]).collect();
        let payloads: Vec<Vec<u8>> = lengths.iter().map(|n| (0..*n).map(|i| (i * 31 + n) as u8).collect()).collect();
        let frame = |(i, p): (usize, &Vec<u8>)| emit(&header(Kind::Message, p.len(), i as u32), p);
        let bytes: Vec<u8> = payloads.iter().enumerate().flat_map(frame).collect();
        prop_assert!(parse_all(&bytes, 200_000, &sizes).unwrap() == payloads);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_grow_past_the_limit(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1usize..100, seed_header: bool,
    ) {
        if seed_header && bytes.len() > 12 {
            bytes[4..12].copy_from_slice(&[1, 1, 0, 0, 7, 0, 0, 0]);
        }
        let mut parser = StreamParser::new(100_000, Some(7));
        for chunk in bytes.chunks(size) {
            parser.space()[..chunk.len()].copy_from_slice(chunk);
            parser.filled(chunk.len());
            while let Ok(Some(frame)) = parser.next() {
                prop_assert!(parser.payload(frame.range).len() <= 100_008);
            }
            prop_assert!(parser.capacity() <= 100_040);
        }
        let _ = datagram(&bytes, 100, None);
        let _ = Fragment::parse(&bytes);
    }
}
