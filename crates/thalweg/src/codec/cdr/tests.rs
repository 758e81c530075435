use super::super::samples::*;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

/// Both directions of one message, byte by byte.
fn exact<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, pieces: &[&[u8]]) {
    let bytes = [&[0x00, 0x01, 0x00, 0x00], pieces.concat().as_slice()].concat();
    assert_eq!(to_cdr(&value).unwrap(), bytes);
    assert_eq!(from_cdr::<T>(&bytes).unwrap(), value);
}

/// The error of decoding a value behind a right header.
fn refused<T: DeserializeOwned + Debug>(value: &[u8]) -> String {
    from_cdr::<T>(&[&[0x00, 0x01, 0x00, 0x00], value].concat()).unwrap_err().to_string()
}

fn header(frame_id: &str) -> Header {
    Header { stamp: Time { sec: -2, nanosec: 500_000_000 }, frame_id: frame_id.into() }
}

#[test]
fn std_msgs_string() {
    exact(Text { data: "hello".into() }, &[&[6, 0, 0, 0], b"hello\0"]);
    exact(Text { data: String::new() }, &[&[1, 0, 0, 0, 0]]);
    exact(Text { data: "Öl".into() }, &[&[4, 0, 0, 0, 0xc3, 0x96, b'l', 0]]);
}

#[test]
fn geometry_msgs_twist() {
    let linear = Vector3 { x: 1.0, y: -2.0, z: 0.5 };
    let angular = Vector3 { x: 0.0, y: -0.0, z: 3.0 };
    exact(
        Twist { linear, angular },
        &[
            &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            &[0, 0, 0, 0, 0, 0, 0x00, 0xc0],
            &[0, 0, 0, 0, 0, 0, 0xe0, 0x3f],
            &[0, 0, 0, 0, 0, 0, 0x00, 0x00],
            &[0, 0, 0, 0, 0, 0, 0x00, 0x80],
            &[0, 0, 0, 0, 0, 0, 0x08, 0x40],
        ],
    );
}

#[test]
fn sensor_msgs_imu() {
    let one = [0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
    let zero = [0; 8];
    exact(
        Imu {
            header: header("base"),
            orientation: Quaternion { x: 0.0, y: 0.0, z: 0.0, w: 1.0 },
            orientation_covariance: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        },
        &[
            &[0xfe, 0xff, 0xff, 0xff],
            &[0x00, 0x65, 0xcd, 0x1d],
            &[5, 0, 0, 0],
            b"base\0",
            &[0; 7], // from 17 to 24
            &[zero, zero, zero, one].concat(),
            &[one, zero, zero, zero, one, zero, zero, zero, one].concat(),
        ],
    );
}

#[test]
fn sensor_msgs_image() {
    exact(
        Image {
            header: header("cam"),
            height: 1,
            width: 3,
            encoding: "mono8".into(),
            is_bigendian: 0,
            step: 3,
            data: vec![7, 8, 9],
        },
        &[
            &[0xfe, 0xff, 0xff, 0xff, 0x00, 0x65, 0xcd, 0x1d],
            &[4, 0, 0, 0],
            b"cam\0",
            &[1, 0, 0, 0, 3, 0, 0, 0],
            &[6, 0, 0, 0],
            b"mono8\0",
            &[0],
            &[0], // from 35 to 36
            &[3, 0, 0, 0],
            &[3, 0, 0, 0, 7, 8, 9],
        ],
    );
}

#[test]
fn types_that_ros_lacks() {
    exact(Some(0x0102_u16), &[&[1, 0, 2, 1]]);
    exact(None::<u16>, &[&[0]]);
    exact('ä', &[&[0xe4, 0, 0, 0]]);
    exact(Command::Stop, &[&[0, 0, 0, 0]]);
    exact(Command::Move(-1, 2), &[&[2, 0, 0, 0], &[0xff, 0xff, 0, 0], &[2, 0, 0, 0, 0, 0, 0, 0]]);
    exact(Command::Say { text: "a".into(), loud: true }, &[&[3, 0, 0, 0], &[2, 0, 0, 0, b'a', 0], &[1]]);
    exact(BTreeMap::from([(1u8, 2u16), (3, 4)]), &[&[2, 0, 0, 0], &[1, 0, 2, 0], &[3, 0, 4, 0]]);
    exact(((), Unit, Meters(1.0)), &[&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f]]);
    exact(vec![(); 3], &[&[3, 0, 0, 0]]);
}

#[test]
fn alignment_counts_from_this_message() {
    for before in 0..9 {
        let mut out = vec![0xaa; before];
        to_cdr_into(&(1u8, 2.0f64), &mut out).unwrap();
        assert_eq!(out[..before], vec![0xaa; before]);
        assert_eq!(out[before..], [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40]);
    }
}

#[test]
fn a_buffer_with_room_is_not_moved() {
    let mut out = Vec::with_capacity(256);
    let (place, capacity) = (out.as_ptr(), out.capacity());
    for _ in 0..3 {
        out.clear();
        to_cdr_into(&vec![header("base"), header("cam")], &mut out).unwrap();
    }
    assert_eq!((out.as_ptr(), out.capacity()), (place, capacity));
}

/// The value is refused for this reason, and the buffer stays as it was.
fn fails<T: Serialize>(value: T, because: &str) {
    let mut out = vec![1, 2, 3];
    let error = to_cdr_into(&value, &mut out).unwrap_err();
    assert!(error.problem.contains(because), "{error}");
    assert_eq!(out, [1, 2, 3]);
}

#[derive(Serialize)]
struct Skips {
    first: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<u8>,
}

#[derive(Serialize)]
struct Flat {
    first: u8,
    #[serde(flatten)]
    rest: HashMap<String, u8>,
}

#[test]
fn a_failed_encoding_leaves_the_buffer_unchanged() {
    fails((1u8, 1i128), "i128");
    fails((1u8, 1u128), "u128");
    fails(Skips { first: 1, second: None }, "`second` is skipped");
    fails(Flat { first: 1, rest: HashMap::new() }, "flattened");
    fails(chain(MAX_DEPTH + 1), "64 levels");
    fails(vec![(); FREE_ELEMENTS + 1], "without bytes");
    to_cdr(&Skips { first: 1, second: Some(2) }).unwrap();
}

/// Serializes as a sequence of unknown length and as text without a `String`.
struct Lazy;

impl Serialize for Lazy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0u8..9).filter(|number| number % 4 == 0))
    }
}

struct Shown;

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", 1, "b"))
    }
}

#[test]
fn lengths_known_only_at_the_end() {
    assert_eq!(to_cdr(&(0u8, Lazy)).unwrap()[8..], [3, 0, 0, 0, 0, 4, 8]);
    assert_eq!(to_cdr(&(0u8, Shown)).unwrap()[8..], [4, 0, 0, 0, b'1', b'-', b'b', 0]);
}

#[test]
fn encapsulations() {
    assert_eq!(from_cdr::<u8>(&[0, 1, 0xff, 0xff, 5]), Ok(5));
    assert_eq!(from_cdr::<(u8, u32)>(&[0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 1, 2]), Ok((5, 258)), "big-endian");
    for (header, name) in [
        ([0, 3], "parameter list CDR, little-endian"),
        ([0, 7], "XCDR version 2, little-endian"),
        ([0, 9], "delimited XCDR version 2, little-endian"),
        ([1, 0], "no encapsulation known here"),
    ] {
        let error = from_cdr::<u8>(&[header[0], header[1], 0, 0, 5]).unwrap_err();
        assert!(error.offset == 0 && error.problem.contains(name), "{error}");
    }
    let error = from_cdr::<u8>(&[0, 1, 0]).unwrap_err();
    assert_eq!(error.problem, "expected an encapsulation header of 4 bytes, found 3 bytes in all");
}

#[test]
fn padding_behind_the_value() {
    for length in 1..=4 {
        assert_eq!(from_cdr::<u8>(&[0, 1, 0, 0, 5, 0, 0, 0][..4 + length]), Ok(5));
    }
    assert!(refused::<u8>(&[5, 0, 0, 0, 0]).starts_with("byte 5: expected the end"));
}

#[test]
fn errors_name_position_value_and_expectation() {
    assert_eq!(refused::<u64>(&[1, 2, 3]), "byte 4: expected u64 (8 bytes), found the end after 3 bytes");
    assert_eq!(refused::<(u8, bool)>(&[1, 2]), "byte 5: expected a bool (0 or 1), found 2");
    assert_eq!(refused::<Option<u8>>(&[3, 2]), "byte 4: expected the mark of an option (0 or 1), found 3");
    assert_eq!(refused::<char>(&[0, 0xd8, 0, 0]), "byte 4: expected a Unicode scalar value, found 0xd800");
    assert_eq!(refused::<String>(&[2, 0, 0, 0, b'a', b'b']), "byte 9: expected the NUL that ends a string, found 0x62");
    assert_eq!(refused::<String>(&[3, 0, 0, 0, b'a', 0xff, 0]), "byte 9: expected a string in UTF-8, found 0xff");
    assert_eq!(refused::<String>(&[9, 0, 0, 0]), "byte 8: expected a string (9 bytes), found the end after 0 bytes");
    assert_eq!(from_cdr::<String>(&[0, 1, 0, 0, 0, 0, 0, 0]), Ok(String::new()));
    let variant = refused::<(u32, Mode)>(&[0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(variant, "byte 8: invalid value: integer `2`, expected variant index 0 <= i < 2");
    let zero = refused::<(u16, std::num::NonZeroU16)>(&[0; 4]);
    assert!(zero.starts_with("byte 8: ") && zero.contains("nonzero"), "{zero}");
    assert!(refused::<serde_json::Value>(&[0]).contains("expected a type that CDR has"));
    assert!(refused::<u128>(&[0; 16]).contains("found u128"));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

fn chain(links: usize) -> Chain {
    (0..links).fold(Chain(None), |inner, _| Chain(Some(Box::new(inner))))
}

#[derive(Debug, Serialize, Deserialize)]
enum Term {
    Zero,
    Next(Box<Term>),
}

#[test]
fn depth_is_limited_alike_in_both_directions() {
    assert_eq!(Chain(None), from_cdr(&to_cdr(&Chain(None)).unwrap()).unwrap());
    from_cdr::<Chain>(&to_cdr(&chain(MAX_DEPTH)).unwrap()).unwrap();
    let one_deeper = [&[1; MAX_DEPTH + 1][..], &[0]].concat();
    assert!(refused::<Chain>(&one_deeper).contains("64 levels"));
    assert!(refused::<Chain>(&[1; 100_000]).contains("64 levels"));
    let terms = [1, 0, 0, 0].repeat(100_000);
    assert!(refused::<Term>(&terms).contains("64 levels"));
    let term = (0..MAX_DEPTH).fold(Term::Zero, |inner, _| Term::Next(Box::new(inner)));
    from_cdr::<Term>(&to_cdr(&term).unwrap()).unwrap();
}

/// Records the number of elements for which a reader would reserve room.
#[derive(Debug)]
struct Hint(Option<usize>);

impl<'de> Deserialize<'de> for Hint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Probe;
        impl<'de> Visitor<'de> for Probe {
            type Value = Hint;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Hint, A::Error> {
                let hint = elements.size_hint();
                while elements.next_element::<u8>()?.is_some() {}
                Ok(Hint(hint))
            }
        }
        deserializer.deserialize_seq(Probe)
    }
}

#[test]
fn a_claimed_count_reserves_little() {
    assert!(refused::<Vec<u8>>(&[0xff; 100]).contains("found 4294967295"));
    assert!(refused::<Vec<()>>(&[0xff, 0xff, 0xff, 0x7f]).contains("found 2147483647"));
    assert!(refused::<HashMap<String, u8>>(&[0, 0, 0, 1, 0]).contains("the count of a map"));
    let Hint(hint) = from_cdr(&to_cdr(&vec![0u8; 800]).unwrap()).unwrap();
    assert_eq!(hint, Some(100));
    // 1025 elements fit when they take no bytes, but no message has more of them than 1024.
    assert!(refused::<Vec<()>>(&[&[1, 4, 0, 0][..], &[0; 3]].concat()).contains("without bytes"));
}

#[derive(Debug)]
struct TakesOne;

impl<'de> Deserialize<'de> for TakesOne {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = TakesOne;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("one element")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<TakesOne, A::Error> {
                elements.next_element::<u8>().map(|_| TakesOne)
            }
        }
        deserializer.deserialize_seq(One)
    }
}

#[test]
fn elements_left_over_are_an_error() {
    assert_eq!(refused::<TakesOne>(&[2, 0, 0, 0, 7, 7]), "byte 9: expected 1 elements (all the type takes), found 2");
}

/// Decodes as several types; a decoded value is no bigger than the bytes allow, and encodes again.
fn decode_all(bytes: &[u8]) {
    let _ = from_cdr::<Everything>(bytes);
    let _ = from_cdr::<Image>(bytes);
    let _ = from_cdr::<Chain>(bytes);
    let _ = from_cdr::<Vec<Command>>(bytes);
    let _ = from_cdr::<HashMap<String, Vec<()>>>(bytes);
    if let Ok(lists) = from_cdr::<Vec<Vec<u16>>>(bytes) {
        let room: usize = lists.iter().map(|list| list.capacity() * 2 + 4).sum();
        assert!(room <= 4 * bytes.len() && lists.capacity() <= bytes.len());
        assert_eq!(from_cdr::<Vec<Vec<u16>>>(&to_cdr(&lists).unwrap()).unwrap(), lists);
    }
    if let Ok(units) = from_cdr::<Vec<Unit>>(bytes) {
        assert!(units.len() <= FREE_ELEMENTS);
    }
}

proptest! {
    #[test]
    fn values_come_back(value in everything()) {
        let bytes = to_cdr(&value).unwrap();
        let back: Everything = from_cdr(&bytes).unwrap();
        // Compared as bytes, as no NaN equals itself.
        prop_assert_eq!(to_cdr(&back).unwrap(), bytes);
    }

    #[test]
    fn every_shorter_message_is_refused_or_padding(value in everything(), cut in 4usize..40) {
        let bytes = to_cdr(&value).unwrap();
        let cut = bytes.len().saturating_sub(cut);
        prop_assert!(from_cdr::<Everything>(&bytes[..cut]).is_err());
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        decode_all(&bytes);
        decode_all(&[&[0, 1, 0, 0], bytes.as_slice()].concat());
    }

    #[test]
    fn small_bytes_do_no_harm(bytes in vec(prop_oneof![4 => Just(0u8), 1 => 1u8..6], 0..200)) {
        decode_all(&[&[0, 1, 0, 0], bytes.as_slice()].concat());
    }

    #[test]
    fn spoilt_messages_do_no_harm(value in everything(), spoilt in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = to_cdr(&value).unwrap();
        for (place, byte) in spoilt {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        decode_all(&bytes);
    }
}
