use super::*;
use cyclone::{Layout, Member, Shape};
use serde::{Deserialize, Serialize};
use thalweg::codec::{TypeDescription, from_cdr, to_cdr};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Kind {
    #[default]
    Arm,
    Leg,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    x: f64,
    frame: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Joint {
    is_left: bool,
    place: Place,
    angles: Vec<f64>,
    kind: Kind,
    number: i64,
    load: [u16; 3],
}

fn schema<T: serde::de::DeserializeOwned>() -> Arc<Schema> {
    TypeDescription::of::<T>().schema.unwrap()
}

fn key_of<T: serde::de::DeserializeOwned>(paths: &[&str]) -> Result<Key> {
    Key::new(&schema::<T>(), &paths.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Stated in another order than that of the message.
fn key() -> Key {
    key_of::<Joint>(&["number", "kind", "place.frame", "is_left"]).unwrap()
}

fn joint() -> Joint {
    let place = Place { x: 0.5, frame: "odom".to_owned() };
    Joint { is_left: true, place, angles: vec![1.0, 2.0], kind: Kind::Leg, number: -2, load: [1, 2, 3] }
}

/// The key alone in version 1: a truth value, a text, an enum, and a number at a multiple of 8.
#[rustfmt::skip]
const ALONE: [u8; 36] = [
    0, 1, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, b'o', b'd', b'o', b'm', 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];

fn ended() -> Joint {
    let place = Place { frame: "odom".to_owned(), ..Place::default() };
    Joint { is_left: true, place, kind: Kind::Leg, number: -2, ..Joint::default() }
}

fn read(message: Result<Vec<u8>>) -> Joint {
    from_cdr(&message.unwrap()).unwrap()
}

#[test]
fn a_key_leaves_its_message_in_the_order_of_the_message_and_comes_back_as_a_value() {
    let alone = key().of(&to_cdr(&joint()).unwrap()).unwrap();
    assert_eq!(alone, ALONE);
    assert_eq!(read(key().whole(&alone)), ended());
}

/// Big-endian, and of version 2, in which numbers of 8 bytes are at multiples of 4, plain and with lengths before structs.
#[test]
fn keys_of_all_encodings_are_read() {
    let text = |length: [u8; 4]| [&length[..], b"odom\0\0\0\0"].concat();
    let (little, big) = (text([5, 0, 0, 0]), text([0, 0, 0, 5]));
    let (two, minus) = ((-2_i64).to_le_bytes(), (-2_i64).to_be_bytes());
    let plain = [&[0, 7, 0, 0, 1, 0, 0, 0][..], &little, &[1, 0, 0, 0], &two].concat();
    let reversed = [&[0, 0, 0, 0, 1, 0, 0, 0][..], &big, &[0, 0, 0, 1], &[0; 4], &minus].concat();
    let lengths = [&[0, 9, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0][..], &little, &[1, 0, 0, 0], &two].concat();
    for message in [plain, reversed, lengths] {
        assert_eq!(read(key().whole(&message)), ended(), "{message:?}");
    }
}

#[test]
fn a_key_that_is_cut_off_or_of_no_such_type_is_refused() {
    for length in 0..ALONE.len() {
        assert!(key().whole(&ALONE[..length]).is_err(), "{length}");
    }
    for (at, wrong) in [(1, 2), (4, 2), (8, 200), (12, 0xff), (16, b'x'), (20, 2)] {
        let mut message = ALONE;
        message[at] = wrong;
        assert!(key().whole(&message).is_err(), "{at}");
    }
    assert!(key().of(&[0, 1, 0, 0, 1]).is_err());
}

#[test]
fn a_hash_is_the_key_if_that_always_fits_in() {
    let short = key_of::<Joint>(&["kind", "number"]).unwrap();
    let hash = [&[0, 0, 0, 0][..], &[0, 0, 0, 1, 0, 0, 0, 0], &(-2_i64).to_be_bytes()].concat();
    let expected = Joint { kind: Kind::Leg, number: -2, ..Joint::default() };
    assert_eq!(read(short.of_hash(&hash)), expected);
    assert!(key().of_hash(&hash).unwrap_err().contains("digest"), "a text may be of any length");
    assert!(key_of::<(u64, u64, u64)>(&["0"]).is_err());
}

#[test]
fn what_dds_has_no_key_for_is_refused_with_the_reason() {
    #[derive(Deserialize)]
    #[allow(dead_code)] // read by its structure
    struct Odd {
        choice: Option<u32>,
        list: Vec<u32>,
        id: u32,
    }
    for (paths, why) in [
        (["choice"], "its member choice is optional"),
        (["list"], "its member list is no single"),
        (["id.part"], "nothing has a part"),
        (["other"], "is none of the type"),
    ] {
        let refused = key_of::<Odd>(&paths).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert!(key_of::<Odd>(&["id"]).unwrap().layout().unwrap_err().contains("optional"));
}

#[test]
fn a_type_has_its_structure_with_the_key_in_it() {
    let member = |shape, is_key| Member { shape, is_key };
    let expected = [
        member(Shape::Bool, true),
        member(Shape::Bytes8, false),
        member(Shape::Text, true),
        member(Shape::Sequence(vec![Shape::Bytes8]), false),
        member(Shape::Bytes4, true),
        member(Shape::Bytes8, true),
        member(Shape::Array(3, vec![Shape::Bytes2]), false),
    ];
    assert_eq!(key().layout(), Ok(Layout::new(&expected).unwrap()));
}

/// A type of a stranger's definition.
#[test]
fn a_value_of_endless_arrays_is_refused() {
    let array = |element| Schema::Array { len: u32::MAX, element: Box::new(element) };
    let field = |name: &str, schema| thalweg::codec::Field { name: name.to_owned(), schema };
    for (endless, fits) in [(array(Schema::U64), false), (array(array(Schema::Unit)), true)] {
        let fields = vec![field("id", Schema::U32), field("endless", endless)];
        let schema = Arc::new(Schema::Struct { name: "Endless".to_owned(), fields });
        let key = Key::new(&schema, &["id".to_owned()]).unwrap();
        assert_eq!(key.whole(&[0, 1, 0, 0, 7, 0, 0, 0]).is_ok(), fits);
    }
}
