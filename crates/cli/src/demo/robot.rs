//! The robot: its processes and channels.

use serde::{Deserialize, Serialize};

/// Contents of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// [`Imu`] values.
    Imu,
    /// [`Command`] values.
    Command,
    /// Bytes of this number.
    Bytes(usize),
}

/// One channel of the robot.
#[derive(Debug)]
pub(super) struct Line {
    /// The topic.
    pub topic: &'static str,
    /// The process that publishes.
    pub from: &'static str,
    /// The publishing port.
    pub publisher: &'static str,
    /// The process that subscribes.
    pub to: &'static str,
    /// The subscribing port.
    pub subscriber: &'static str,
    /// Samples per second.
    pub hz: f64,
    /// Contents of the samples.
    pub content: Content,
}

/// All channels of the robot.
pub(super) const LINES: [Line; 4] = [
    Line {
        topic: "/robot/imu",
        from: "imu-driver",
        publisher: "/imu-driver/imu",
        to: "controller",
        subscriber: "/controller/imu",
        hz: 1000.0,
        content: Content::Imu,
    },
    Line {
        topic: "/robot/camera",
        from: "camera-driver",
        publisher: "/camera-driver/image",
        to: "mapper",
        subscriber: "/mapper/image",
        hz: 30.0,
        content: Content::Bytes(640 * 480 * 3),
    },
    Line {
        topic: "/robot/command",
        from: "controller",
        publisher: "/controller/command",
        to: "base",
        subscriber: "/base/command",
        hz: 100.0,
        content: Content::Command,
    },
    Line {
        topic: "/robot/map",
        from: "mapper",
        publisher: "/mapper/map",
        to: "viewer",
        subscriber: "/viewer/map",
        hz: 10.0,
        content: Content::Bytes(1_000_000),
    },
];

/// The process that computes all the time.
pub(super) const BUSY: &str = "mapper";
/// The process on the host beside the robot, where there are two hosts.
pub(super) const BESIDE: &str = "controller";
/// The channel that needs low latency: publisher, subscriber.
pub(super) const URGENT: [&str; 2] = ["/controller/command", "/base/command"];

/// All processes, without duplicates.
pub(super) fn parts() -> Vec<&'static str> {
    let mut parts: Vec<_> = LINES.iter().flat_map(|line| [line.from, line.to]).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// A measurement of an inertial measurement unit: 96 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Imu {
    /// Time of the measurement, in nanoseconds.
    pub stamp_ns: u64,
    /// A quaternion.
    pub orientation: Quaternion,
    /// In rad/s.
    pub angular_velocity: Vector,
    /// In m/s².
    pub linear_acceleration: Vector,
    /// In °C.
    pub temperature: f64,
}

/// A command to the robot's base: 56 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Command {
    /// Number of the command.
    pub number: u64,
    /// In m/s.
    pub linear: Vector,
    /// In rad/s.
    pub angular: Vector,
}

/// Three axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Vector {
    /// Forward.
    pub x: f64,
    /// Left.
    pub y: f64,
    /// Up.
    pub z: f64,
}

/// An orientation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Quaternion {
    /// Imaginary, first.
    pub x: f64,
    /// Imaginary, second.
    pub y: f64,
    /// Imaginary, third.
    pub z: f64,
    /// Real.
    pub w: f64,
}

impl Imu {
    /// A measurement of a robot that turns slowly on the spot.
    pub(super) fn at(stamp_ns: u64) -> Self {
        let half = (stamp_ns as f64 / 1e9 * 0.5) / 2.0;
        Self {
            stamp_ns,
            orientation: Quaternion { z: half.sin(), w: half.cos(), ..Quaternion::default() },
            angular_velocity: Vector { z: 0.5, ..Vector::default() },
            linear_acceleration: Vector { z: 9.81, ..Vector::default() },
            temperature: 36.5,
        }
    }
}

impl Command {
    /// The command that keeps it turning.
    pub(super) fn numbered(number: u64) -> Self {
        Self { number, linear: Vector::default(), angular: Vector { z: 0.5, ..Vector::default() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_talks_to_itself() {
        assert_eq!(parts(), ["base", "camera-driver", "controller", "imu-driver", "mapper", "viewer"]);
        assert!(LINES.iter().all(|line| line.from != line.to));
        assert!(parts().contains(&BUSY) && parts().contains(&BESIDE));
        assert!(LINES.iter().any(|line| [line.publisher, line.subscriber] == URGENT));
    }
}
