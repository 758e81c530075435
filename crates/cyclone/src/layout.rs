//! The structure of a type with a key, as a program of Cyclone's serializer (`dds_opcodes.h`). With it Cyclone finds the key of a message that
//! is written, and keeps the history of each instance.
//!
//! Structs within a struct are its members in their place, as they are in plain CDR: the program has no more than it needs.

use crate::blob::Topic;
use crate::{Error, Result, c_text, checked};
use cyclors::*;
use std::ptr::null;

/// A part of a message in plain CDR (DDS-XTypes 1.3 §7.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A truth value of 1 byte.
    Bool,
    /// A number of 1 byte.
    Bytes1,
    /// A number of 2 bytes.
    Bytes2,
    /// A number of 4 bytes.
    Bytes4,
    /// A number of 8 bytes.
    Bytes8,
    /// A text with its length, which ends with a zero byte.
    Text,
    /// Any number of elements, each of these parts.
    Sequence(Vec<Shape>),
    /// This number of elements, each of these parts.
    Array(u32, Vec<Shape>),
}

/// A part of a message, which may belong to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its structure.
    pub shape: Shape,
    /// It belongs to the key.
    pub is_key: bool,
}

/// The structure of a type with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    program: Vec<u32>,
    /// Places of the key's members in the program.
    keys: Vec<u32>,
    /// Size and alignment of a value in memory, where Cyclone puts it to compute a hash.
    size: u32,
    align: u32,
}

// Of `dds_opcodes.h`: a member at an offset in memory, and the end of a type.
const MEMBER: u32 = 1 << 24;
const END: u32 = 0;
const KEY: u32 = 1;
const SEQUENCE: u32 = 0x07;
const ARRAY: u32 = 0x08;
const STRUCT: u32 = 0x0a;
/// Size and alignment of a sequence in memory (`dds_sequence_t`), and of a pointer.
const SEQUENCE_SIZE: u32 = 24;
const POINTER: u32 = 8;

/// The largest value in memory, in bytes.
const LARGEST: u32 = 1 << 30;
/// The longest program of an element: jumps in programs are numbers of 16 bit.
const LONGEST: usize = 1 << 14;

impl Shape {
    /// The code and the size in memory of a part without parts.
    fn simple(&self) -> Option<(u32, u32)> {
        Some(match self {
            Shape::Bool => (0x0e, 1),
            Shape::Bytes1 => (0x01, 1),
            Shape::Bytes2 => (0x02, 2),
            Shape::Bytes4 => (0x03, 4),
            Shape::Bytes8 => (0x04, 8),
            Shape::Text => (0x05, POINTER),
            Shape::Sequence(_) | Shape::Array(..) => return None,
        })
    }
}

impl Layout {
    /// The structure of a type with these members, in the order of the message.
    ///
    /// # Errors
    /// [`Error`] without a key, for a key that is no single number, text or truth value, for elements without content, or beyond 1 GiB.
    pub fn new(members: &[Member]) -> Result<Self> {
        let layout = Self::of(members)?;
        match layout.keys.is_empty() {
            true => Err(Error("the type has no key".to_owned())),
            false => Ok(layout),
        }
    }

    fn of(members: &[Member]) -> Result<Self> {
        let mut layout = Self { program: Vec::new(), keys: Vec::new(), size: 0, align: 1 };
        members.iter().try_for_each(|member| layout.add(member))?;
        layout.program.push(END);
        layout.size = layout.size.next_multiple_of(layout.align);
        Ok(layout)
    }

    fn element(parts: &[Shape]) -> Result<Self> {
        let member = |shape: &Shape| Member { shape: shape.clone(), is_key: false };
        let layout = Self::of(&parts.iter().map(member).collect::<Vec<_>>())?;
        match layout.program.len() {
            2..LONGEST => Ok(layout),
            ..2 => Err(Error("elements without content".to_owned())),
            length => Err(Error(format!("an element of {length} steps; {LONGEST} at most are possible"))),
        }
    }

    fn add(&mut self, Member { shape, is_key }: &Member) -> Result<()> {
        match (shape, shape.simple()) {
            (_, Some((code, size))) => {
                if *is_key {
                    self.keys.push(self.program.len() as u32); // below 2^32: each step is a part that somebody has listed
                }
                let place = self.place(size, size)?;
                self.program.extend([MEMBER | code << 16 | if *is_key { KEY } else { 0 }, place]);
                Ok(())
            }
            _ if *is_key => Err(Error("a key that is no single number, text or truth value".to_owned())),
            (Shape::Array(count, parts), _) => self.array(*count, parts),
            (Shape::Sequence(parts), _) => self.sequence(parts),
            _ => Ok(()), // all others are simple
        }
    }

    fn sequence(&mut self, parts: &[Shape]) -> Result<()> {
        let place = self.place(SEQUENCE_SIZE, POINTER)?;
        if let Some((code, _)) = single(parts) {
            self.program.extend([MEMBER | SEQUENCE << 16 | code << 8, place]);
            return Ok(());
        }
        let element = Self::element(parts)?;
        let step = [MEMBER | SEQUENCE << 16 | STRUCT << 8, place, element.size];
        self.program.extend(step.into_iter().chain([jump(4, &element)]).chain(element.program));
        Ok(())
    }

    fn array(&mut self, count: u32, parts: &[Shape]) -> Result<()> {
        let whole = |size: u32| count.checked_mul(size).ok_or_else(too_large);
        if let Some((code, size)) = single(parts) {
            let place = self.place(whole(size)?, size)?;
            self.program.extend([MEMBER | ARRAY << 16 | code << 8, place, count]);
            return Ok(());
        }
        let element = Self::element(parts)?;
        let place = self.place(whole(element.size)?, element.align)?;
        let step = [MEMBER | ARRAY << 16 | STRUCT << 8, place, count, jump(5, &element), element.size];
        self.program.extend(step.into_iter().chain(element.program));
        Ok(())
    }

    /// The place of a member in memory.
    fn place(&mut self, size: u32, align: u32) -> Result<u32> {
        let place = self.size.next_multiple_of(align);
        self.size = place.checked_add(size).filter(|end| *end <= LARGEST).ok_or_else(too_large)?;
        self.align = self.align.max(align);
        Ok(place)
    }
}

fn too_large() -> Error {
    Error(format!("a value beyond {LARGEST} bytes"))
}

/// Code and size of elements that have one part, and that no parts.
fn single(parts: &[Shape]) -> Option<(u32, u32)> {
    match parts {
        [one] => one.simple(),
        _ => None,
    }
}

/// The way behind an element's program, and to it, from the start of the step.
fn jump(step: u32, element: &Layout) -> u32 {
    (step + element.program.len() as u32) << 16 | step // `LONGEST` keeps both in their 16 bits
}

impl Topic {
    /// A topic with a key, for writers.
    pub(crate) fn open_described(
        participant: dds_entity_t,
        name: &str,
        type_name: &str,
        layout: &Layout,
    ) -> Result<Self> {
        let (topic, type_text) = (c_text("topic", name)?, c_text("type", type_name)?);
        let key =
            |(place, index): (&u32, u32)| dds_key_descriptor_t { m_name: c"".as_ptr(), m_offset: *place, m_idx: index };
        let keys: Vec<dds_key_descriptor_t> = layout.keys.iter().zip(0..).map(key).collect();
        // SAFETY: numbers and pointers, for which all zeros are a value.
        let mut described: dds_topic_descriptor_t = unsafe { std::mem::zeroed() };
        (described.m_size, described.m_align) = (layout.size, layout.align);
        (described.m_nkeys, described.m_keys) = (keys.len() as u32, keys.as_ptr());
        (described.m_nops, described.m_ops) = (layout.program.len() as u32, layout.program.as_ptr());
        described.m_typename = type_text.as_ptr();
        // SAFETY: the program ends, its jumps stay in it, and its members lie within `m_size` (`Layout::of`). Cyclone copies all of it.
        let opened = unsafe { dds_create_topic(participant, &described, topic.as_ptr(), null(), null()) };
        checked(name, opened).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(shape: Shape) -> Member {
        Member { shape, is_key: false }
    }

    fn key(shape: Shape) -> Member {
        Member { shape, is_key: true }
    }

    /// The steps that `idlc` makes of `struct { long a; @key long b; @key string c; sequence<octet> d; struct { octet e; long long f; } g[3]; }`.
    #[test]
    fn a_structure_is_a_program() {
        let element = vec![Shape::Bytes1, Shape::Bytes8];
        let members = [
            plain(Shape::Bytes4),
            key(Shape::Bytes4),
            key(Shape::Text),
            plain(Shape::Sequence(vec![Shape::Bytes1])),
            plain(Shape::Array(3, element)),
        ];
        let layout = Layout::new(&members).unwrap();
        let [first, second, third] = [[0x0103_0000, 0], [0x0103_0001, 4], [0x0105_0001, 8]];
        let array = [0x0108_0a00, 40, 3, 10 << 16 | 5, 16];
        let element = [0x0101_0000, 0, 0x0104_0000, 8, 0];
        let program = [&first[..], &second, &third, &[0x0107_0100, 16], &array, &element, &[0]].concat();
        assert_eq!((layout.program, layout.keys), (program, vec![2, 4]));
        assert_eq!((layout.size, layout.align), (88, 8));
    }

    #[test]
    fn a_sequence_of_structs_leads_to_their_program_and_behind_it() {
        let layout = Layout::new(&[key(Shape::Bool), plain(Shape::Sequence(vec![Shape::Text, Shape::Bool]))]).unwrap();
        let sequence = [0x0107_0a00, 8, 16, 9 << 16 | 4];
        let element = [0x0105_0000, 0, 0x010e_0000, 8, 0];
        assert_eq!(layout.program, [&[0x010e_0001, 0][..], &sequence, &element, &[0]].concat());
    }

    #[test]
    fn what_has_no_program_is_refused() {
        let nothing = || Shape::Sequence(Vec::new());
        for (members, why) in [
            (vec![plain(Shape::Bool)], "no key"),
            (vec![key(Shape::Sequence(vec![Shape::Bytes1]))], "no single"),
            (vec![key(Shape::Bool), plain(nothing())], "without content"),
            (vec![key(Shape::Bool), plain(Shape::Array(u32::MAX, vec![Shape::Bytes8]))], "beyond"),
            (vec![key(Shape::Bool), plain(Shape::Array(1, vec![Shape::Bool; LONGEST]))], "at most"),
        ] {
            let refused = Layout::new(&members).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
