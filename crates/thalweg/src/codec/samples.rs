//! Message types for the tests of codecs: some of ROS 2, and one with everything serde knows.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `std_msgs/String`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Text {
    pub data: String,
}

/// `builtin_interfaces/Time`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    pub sec: i32,
    pub nanosec: u32,
}

/// `std_msgs/Header`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub stamp: Time,
    pub frame_id: String,
}

/// `geometry_msgs/Vector3`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vector3 {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

/// `geometry_msgs/Quaternion`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quaternion {
    pub x: f64,
    pub y: f64,
    pub z: f64,
    pub w: f64,
}

/// `geometry_msgs/Twist`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Twist {
    pub linear: Vector3,
    pub angular: Vector3,
}

/// The first fields of `sensor_msgs/Imu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imu {
    pub header: Header,
    pub orientation: Quaternion,
    pub orientation_covariance: [f64; 9],
}

/// `sensor_msgs/Image`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    pub header: Header,
    pub height: u32,
    pub width: u32,
    pub encoding: String,
    pub is_bigendian: u8,
    pub step: u32,
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    Idle,
    Run,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Stop,
    Speed(f32),
    Move(i16, u64),
    Say { text: String, loud: bool },
    Header(Box<Header>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meters(pub f64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit;

/// Every kind of type, in an order that needs padding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Everything {
    pub flag: bool,
    pub small: (u8, i8, i16),
    pub letter: char,
    pub wide: Option<u64>,
    pub floats: (f32, Meters),
    pub text: String,
    pub commands: Vec<Command>,
    pub stamps: [Time; 2],
    pub by_name: BTreeMap<String, Option<Mode>>,
    pub by_number: BTreeMap<i32, Vec<u8>>,
    pub by_mode: BTreeMap<Mode, (char, u16)>,
    pub by_letter: BTreeMap<char, Vec<Vec<i64>>>,
    pub nothing: ((), Unit),
    pub last: u8,
}

pub fn header() -> impl Strategy<Value = Header> {
    (time(), ".{0,9}").prop_map(|(stamp, frame_id)| Header { stamp, frame_id })
}

fn time() -> impl Strategy<Value = Time> {
    any::<(i32, u32)>().prop_map(|(sec, nanosec)| Time { sec, nanosec })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        Just(Command::Stop),
        any::<f32>().prop_map(Command::Speed),
        any::<(i16, u64)>().prop_map(|(a, b)| Command::Move(a, b)),
        (".{0,5}", any::<bool>()).prop_map(|(text, loud)| Command::Say { text, loud }),
        header().prop_map(|header| Command::Header(Box::new(header))),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Idle), Just(Mode::Run)]
}

pub fn everything() -> impl Strategy<Value = Everything> {
    let simple = any::<(bool, (u8, i8, i16), char, Option<u64>, (f32, f64), u8)>();
    let text = (".{0,7}", vec(command(), 0..4), [time(), time()]);
    let maps = (
        btree_map(".{0,5}", option::of(mode()), 0..4),
        btree_map(any::<i32>(), vec(any::<u8>(), 0..5), 0..4),
        btree_map(mode(), any::<(char, u16)>(), 0..3),
        btree_map(any::<char>(), vec(vec(any::<i64>(), 0..3), 0..3), 0..3),
    );
    (simple, text, maps).prop_map(|(simple, (text, commands, stamps), (by_name, by_number, by_mode, by_letter))| {
        let (flag, small, letter, wide, (float, double), last) = simple;
        let floats = (float, Meters(double));
        let nothing = ((), Unit);
        Everything {
            flag,
            small,
            letter,
            wide,
            floats,
            text,
            commands,
            stamps,
            by_name,
            by_number,
            by_mode,
            by_letter,
            nothing,
            last,
        }
    })
}
