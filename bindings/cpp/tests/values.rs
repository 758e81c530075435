//! Messages of the tests, the same types as in messages.hpp: drawn at random, and shown as codec.cpp shows them.

use serde::{Deserialize, Serialize};

/// Random numbers (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// Begins from the seed of this commit.
    pub fn new() -> Self {
        let seed = std::env::var("THALWEG_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        println!("THALWEG_SEED={seed}");
        Self(seed)
    }
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// Less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }
}

/// A value that both ends can draw and show.
pub trait Value {
    fn draw(dice: &mut Dice) -> Self;
    fn show(&self) -> String;
}

macro_rules! numbers {
    ($($type:ty: $bits:expr),*) => {$(
        impl Value for $type {
            fn draw(dice: &mut Dice) -> Self {
                let from_bits: fn(u64) -> $type = $bits;
                from_bits(dice.number())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers!(u8: |b| b as u8, u16: |b| b as u16, u32: |b| b as u32, u64: |b| b, i8: |b| b as i8, i16: |b| b as i16, i32: |b| b as i32, i64: |b| b as i64);

impl Value for bool {
    fn draw(dice: &mut Dice) -> Self {
        dice.below(2) == 1
    }
    fn show(&self) -> String {
        u8::from(*self).to_string()
    }
}

/// By their bits: infinities, subnormal numbers and those that are none, too.
impl Value for f32 {
    fn draw(dice: &mut Dice) -> Self {
        f32::from_bits(dice.number() as u32)
    }
    fn show(&self) -> String {
        self.to_bits().to_string()
    }
}

/// As `f32`.
impl Value for f64 {
    fn draw(dice: &mut Dice) -> Self {
        f64::from_bits(dice.number())
    }
    fn show(&self) -> String {
        self.to_bits().to_string()
    }
}

impl Value for String {
    fn draw(dice: &mut Dice) -> Self {
        let letters = ['a', '\0', 'ß', '∞', '\u{10ffff}', '\u{d7ff}', '\u{e000}', '\u{10000}', '\u{800}', '\u{7f}'];
        (0..dice.below(7)).map(|_| letters[dice.below(letters.len())]).collect()
    }
    fn show(&self) -> String {
        format!("'{}'", hex(self.as_bytes()))
    }
}

impl<T: Value> Value for Vec<T> {
    fn draw(dice: &mut Dice) -> Self {
        (0..dice.below(5)).map(|_| T::draw(dice)).collect()
    }
    fn show(&self) -> String {
        format!("[{}]", self.iter().map(|element| element.show() + ",").collect::<String>())
    }
}

impl<T: Value, const N: usize> Value for [T; N] {
    fn draw(dice: &mut Dice) -> Self {
        std::array::from_fn(|_| T::draw(dice))
    }
    fn show(&self) -> String {
        format!("[{}]", self.iter().map(|element| element.show() + ",").collect::<String>())
    }
}

macro_rules! structs {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        pub struct $name {
            $(pub $field: $type),*
        }

        impl Value for $name {
            fn draw(dice: &mut Dice) -> Self {
                Self { $($field: Value::draw(dice)),* }
            }
            fn show(&self) -> String {
                let mut text = "(".to_owned();
                $(text += &(self.$field.show() + ",");)*
                text + ")"
            }
        }
    )*};
}

structs! {
    Vector3 { x: f64, y: f64, z: f64 }
    Stamp { sequence: u32, zone: i32, time: f64 }
    Padded { kind: u8, value: f64, valid: bool }
    Turned { first: f32, last: f32 }
    Everything {
        flag: bool,
        tiny: i8,
        small: i16,
        text: String,
        port: u16,
        bytes: Vec<u8>,
        stamps: Vec<Stamp>,
        position: [f64; 3],
        names: Vec<String>,
        padded: Padded,
        many: Vec<Padded>,
        vectors: [Vector3; 2],
        ratio: f32,
        wide: u64,
        flags: Vec<bool>,
        turned: Turned,
        numbers: Vec<f64>,
        last: i64,
    }
    Nested { rows: Vec<Vec<Vec<i16>>>, matrix: [[f32; 2]; 3] }
    Wide {
        a0: u8, a1: u8, a2: u8, a3: u8, a4: u8, a5: u8, a6: u8, a7: u8,
        a8: u8, a9: u8, a10: u8, a11: u8, a12: u8, a13: u8, a14: u8, a15: u8,
        b0: u16, b1: u16, b2: u16, b3: u16, b4: u16, b5: u16, b6: u16, b7: u16,
        b8: u16, b9: u16, b10: u16, b11: u16, b12: u16, b13: u16, b14: u16, b15: u16,
    }
    Sum { left: i64, right: i64 }
    Total { total: i64, text: String }
}

/// Contains itself, so that messages can be nested without end; drawn ones are not deep.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tree {
    pub leaf: u8,
    pub branches: Vec<Tree>,
}

impl Tree {
    /// A tree of so many levels.
    pub fn deep(levels: usize) -> Self {
        (1..levels).fold(Self { leaf: 0, branches: Vec::new() }, |inner, _| Self { leaf: 1, branches: vec![inner] })
    }
}

impl Value for Tree {
    fn draw(dice: &mut Dice) -> Self {
        Self { leaf: Value::draw(dice), branches: (0..dice.below(2)).map(|_| Self::draw(dice)).collect() }
    }
    fn show(&self) -> String {
        format!("({},{},)", self.leaf.show(), self.branches.show())
    }
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
