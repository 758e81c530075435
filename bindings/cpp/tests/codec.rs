//! The encoding, byte by byte the same as that of Rust, for random values and for damaged messages.

use crate::compiler::{Build, Running, builds, program, root};
use crate::values::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::Command;
use thalweg::codec::{from_cdr, to_cdr};

/// Random values of each type.
const VALUES: usize = 60;
/// Damaged messages of each value.
const DAMAGED: usize = 20;

fn codec(build: Build) -> Running {
    Running::start(&mut Command::new(program(&[&root().join("bindings/cpp/tests/codec.cpp")], build)))
}

/// What C++ says of a message.
fn asked(codec: &mut Running, name: &str, message: &[u8]) -> String {
    codec.tell(&format!("{name} {}", hex(message)));
    codec.line()
}

/// C++ reads the message as Rust does, or both refuse it.
fn agree<T: Value + Serialize + DeserializeOwned>(codec: &mut Running, name: &str, message: &[u8]) {
    let found = asked(codec, name, message);
    match from_cdr::<T>(message) {
        Ok(value) => {
            let again = to_cdr(&value).unwrap();
            assert_eq!(found, format!("ok {} {}", hex(&again), value.show()), "{name} {}", hex(message));
        }
        Err(wrong) => assert!(found.starts_with("error "), "{name} {}: Rust says {wrong}, C++ {found}", hex(message)),
    }
}

/// A message with some bytes changed, cut off or added.
fn damaged(message: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut damaged = message.to_vec();
    for _ in 0..=dice.below(2) {
        let at = dice.below(damaged.len().max(1));
        match dice.below(4) {
            0 => damaged.truncate(at),
            1 => damaged.insert(at.min(damaged.len()), dice.number() as u8),
            2 if !damaged.is_empty() => damaged[at] = dice.number() as u8,
            _ if !damaged.is_empty() => damaged[at] ^= 1 << dice.below(8),
            _ => {}
        }
    }
    damaged
}

fn compare<T: Value + Serialize + DeserializeOwned>(codec: &mut Running, name: &str, dice: &mut Dice) {
    for _ in 0..VALUES {
        let value = T::draw(dice);
        let message = to_cdr(&value).unwrap();
        assert_eq!(asked(codec, name, &message), format!("ok {} {}", hex(&message), value.show()));
        for _ in 0..DAMAGED {
            agree::<T>(codec, name, &damaged(&message, dice));
        }
    }
}

#[test]
fn values_and_damaged_messages_are_read_as_in_rust() {
    let mut dice = Dice::new();
    for build in builds() {
        let mut codec = codec(build);
        compare::<Vector3>(&mut codec, "Vector3", &mut dice);
        compare::<Stamp>(&mut codec, "Stamp", &mut dice);
        compare::<Padded>(&mut codec, "Padded", &mut dice);
        compare::<Turned>(&mut codec, "Turned", &mut dice);
        compare::<Everything>(&mut codec, "Everything", &mut dice);
        compare::<Nested>(&mut codec, "Nested", &mut dice);
        compare::<Tree>(&mut codec, "Tree", &mut dice);
        compare::<Wide>(&mut codec, "Wide", &mut dice);
        compare::<String>(&mut codec, "text", &mut dice);
        compare::<Vec<f64>>(&mut codec, "numbers", &mut dice);
        codec.finish();
    }
}

#[test]
fn every_early_end_is_noticed() {
    let mut dice = Dice::new();
    for build in builds() {
        let mut codec = codec(build);
        let message = to_cdr(&Everything::draw(&mut dice)).unwrap();
        for length in 0..message.len() {
            agree::<Everything>(&mut codec, "Everything", &message[..length]);
        }
        codec.finish();
    }
}

#[test]
fn the_other_byte_order_is_read() {
    let message = [&[0, 0, 0, 0][..], &7u32.to_be_bytes(), &(-2i32).to_be_bytes(), &0.5f64.to_be_bytes()].concat();
    for build in builds() {
        let mut codec = codec(build);
        agree::<Stamp>(&mut codec, "Stamp", &message);
        assert!(asked(&mut codec, "Stamp", &message).ends_with(&format!("(7,-2,{},)", 0.5f64.to_bits())));
        codec.finish();
    }
}

#[test]
fn counts_and_levels_have_limits() {
    for build in builds() {
        let mut codec = codec(build);
        let claims = [&[0, 1, 0, 0][..], &u32::MAX.to_le_bytes()].concat();
        assert!(asked(&mut codec, "numbers", &claims).contains("fits 0 bytes, found 4294967295"));
        assert!(asked(&mut codec, "text", &claims).contains("found the end after 0 bytes"));
        for levels in 30..36 {
            // Written by hand: Rust refuses to write more than it reads.
            let inner = [&[1u8, 0, 0, 0][..], &1u32.to_le_bytes()].concat().repeat(levels - 1);
            agree::<Tree>(
                &mut codec,
                "Tree",
                &[&[0, 1, 0, 0][..], &inner, &[0, 0, 0, 0], &0u32.to_le_bytes()].concat(),
            );
        }
        let deepest = to_cdr(&Tree::deep(32)).unwrap();
        assert!(asked(&mut codec, "Tree", &deepest).starts_with("ok ") && to_cdr(&Tree::deep(33)).is_err());
        codec.finish();
    }
}
