//! A sensor at 1 kHz beside images of 1280 × 720 (RGB), which are 120 % of what a line carries: the sensor's latency over DDS (ROS 2) without marks,
//! and through a bridge to DDS. `bridge_camera [--quick] [ROUNDS [MBIT]]`, as root; exit 1 if a target is missed, 4 if the machine was too noisy to
//! tell.
//!
//! Two hosts (network namespaces) have a line of MBIT (100) between them, with a queue by class in front of it in both arms. Each sensor, bridge and
//! reader is a process. In the arm `bridge` the same sensors write to DDS on loopback, a bridge beside each publishes that in a class, and the
//! readers on the other host are programs of Thalweg. A bridge beside them (docs/bridges.md, "Joining two hosts") would make them readers of DDS.
//!
//! At 30 Hz such images are 120 % of 553 Mbit/s. Lines of the lab are exact up to 250 Mbit/s on two processors, and leave these time for other work
//! up to 100 (docs/lab.md, "Lines"). So the images' rate goes with the line's: 5.4 Hz at 100 Mbit/s, 30 Hz at 553.
#![allow(clippy::disallowed_methods)] // a measurement: it reads the clock

mod camera;
#[path = "../../crates/broker/examples/targets/mod.rs"]
mod targets;

use camera::{Arm, Came, READERS, ROLES, SENSORS, Seat, Stream};
use linux::clock::monotonic_ns;
use serde_json::Value;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use targets::{Limit, Targets};
use thalweg_lab::part::{LONG, Part, Place, play};
use thalweg_lab::statistics::{Distribution, median};
use thalweg_lab::topology::{DEVICE, Line, Queue, Topology, Wire};
use thalweg_lab::{Error, Lab, Options, Program, Result, Stop, processor_time};

/// The target of the sensor's p99: so many times better than through unmarked DDS.
const LEAST_RATIO: f64 = 20.0;
/// The images' bits as a share of the line's.
const LOAD: f64 = 1.2;
const IMU_PERIOD: Duration = Duration::from_millis(1);
/// Samples of the sensor while the line fills. They are not measured, but none may be lost.
const WARM: u64 = 500;
/// A run tells nothing if more of the processors' time was taken away, the line stood still for a larger part, or less of it was used. The first two
/// are the lab's own limits.
const MOST_STOLEN: f64 = 0.02;
const MOST_STILL: f64 = 0.005;
const LEAST_USED: f64 = 0.9;
/// The argument of the processes.
const PART: &str = "part";

/// One run.
struct Run {
    imu_us: Distribution,
    lost: u64,
    images_per_s: f64,
    /// Parts: of the line's rate that was used, of the time in which it stood still, of the processors' time that was taken away.
    used: f64,
    still: f64,
    stolen: f64,
}

impl Run {
    fn is_unsure(&self) -> bool {
        self.stolen > MOST_STOLEN || self.still > MOST_STILL || self.used < LEAST_USED
    }
}

/// So far: the time, bytes that left for the line, seconds in which it stood still, ticks of the processors that were taken away, and all.
fn look(hosts: &Topology) -> Result<[f64; 5]> {
    let ([_, bytes], (taken, all)) = (hosts.host(SENSORS).traffic()?, processor_time()?);
    let still: f64 = hosts.stood_still().iter().map(|stood| stood.ns as f64 / 1e9).sum();
    Ok([monotonic_ns() as f64 / 1e9, bytes, still, taken as f64, all as f64])
}

/// The size of all runs.
struct Plan {
    rounds: u64,
    /// In bit/s.
    rate: u64,
    /// Samples of the sensor that are measured in each run.
    samples: u64,
}

impl Plan {
    fn of(arguments: &[String]) -> Result<Self> {
        let quick = arguments.first().is_some_and(|first| first == "--quick");
        let numbers = &arguments[usize::from(quick)..];
        let number = |at: usize, default: u64| match numbers.get(at).map(|text| text.parse::<u64>()) {
            None => Ok(default),
            Some(Ok(number @ 1..=10_000)) => Ok(number),
            Some(_) => {
                Err(Error::Usage("bridge_camera [--quick] [ROUNDS [MBIT]], with numbers from 1 to 10000".into()))
            }
        };
        let (rounds, samples) = if quick { (3, 1000) } else { (5, 10_000) };
        Ok(Self { rounds: number(0, rounds)?, rate: number(1, 100)? * 1_000_000, samples })
    }

    /// All runs, in turns.
    fn measure(&self) -> Result<ExitCode> {
        let lab = Lab::open(Options::default(), Stop::default(), Program::this(&[PART])?, |_| {})?;
        let hosts = Topology::link(&lab, &[Line::of(SENSORS, self.rate)])?;
        for host in [SENSORS, READERS] {
            Wire { rate: self.rate, limit: 100, queue: Queue::Classes }.install(hosts.host(host), DEVICE)?;
        }
        println!("round  arm     IMU p50       p99    max µs  lost  images/s   % of: line used, still, time stolen");
        let (mut runs, mut number) = ([Vec::new(), Vec::new()], 0);
        for round in 1..=self.rounds {
            for ((name, arm), runs) in [("dds", Arm::Dds), ("bridge", Arm::Bridge)].into_iter().zip(&mut runs) {
                number += 1;
                let run = self.run(&lab, &hosts, arm, number)?;
                let (Distribution { p50, p99, max, .. }, lost, images) = (run.imu_us, run.lost, run.images_per_s);
                let [used, still, stolen] = [run.used, run.still, run.stolen].map(|part| part * 100.0);
                print!("{round:>5}  {name:<6} {p50:>8.0} {p99:>9.0} {max:>9.0} {lost:>5} {images:>9.1}");
                println!(" {used:>17.1} {still:>6.2} {stolen:>12.2}");
                runs.push(run);
            }
        }
        Ok(judge(&runs))
    }

    fn run(&self, lab: &Lab, hosts: &Topology, arm: Arm, number: usize) -> Result<Run> {
        let [sensors, readers] = [Seat::both(lab, arm, number, SENSORS)?, Seat::both(lab, arm, number, READERS)?];
        let start = |role: &str, [imu, camera]: &[Seat; 2]| {
            let part = |seat: &Seat| Part::ready(lab, Place::at(hosts.host(seat.host), &[]), role, seat);
            Ok::<_, Error>([part(imu)?, part(camera)?])
        };
        let [mut reader, mut viewer] = start("read", &readers)?;
        let _bridges = if arm == Arm::Bridge { Some(start("bridge", &sensors)?) } else { None };
        let [mut imu, mut camera] = start("publish", &sensors)?;
        let (count, image) = (WARM + self.samples, Stream::Camera.message().len() as f64 * 8.0);
        camera.tell(&(Duration::from_secs_f64(image / (self.rate as f64 * LOAD)), u64::MAX))?;
        imu.tell(&(IMU_PERIOD, count))?;
        lab.stop.sleep(IMU_PERIOD * WARM as u32)?;
        viewer.ask::<Came>(lab, &0, LONG)?; // images before are of no interest
        let before = look(hosts)?;
        imu.hear::<Value>(lab, IMU_PERIOD * self.samples as u32 + LONG)?;
        let after = look(hosts)?;
        let images = viewer.ask::<Came>(lab, &0, LONG)?.samples.len();
        let [seconds, bytes, still, taken, all]: [f64; 5] = std::array::from_fn(|at| after[at] - before[at]);
        let came = reader.ask::<Came>(lab, &count, LONG)?.samples;
        let numbers: HashSet<u64> = came.iter().map(|[number, _]| *number).collect();
        let measured = came.iter().filter(|came| came[0] >= WARM).map(|came| came[1] as f64 / 1e3);
        let imu_us = Distribution::of(&measured.collect::<Vec<_>>());
        Ok(Run {
            imu_us: imu_us.ok_or_else(|| Error::Failed("no sample of the sensor arrived".into()))?,
            lost: count - numbers.len() as u64,
            images_per_s: images as f64 / seconds,
            used: bytes * 8.0 / (seconds * self.rate as f64),
            still: still / seconds,
            stolen: taken / all.max(1.0),
        })
    }
}

/// Judges the runs through DDS, and those through bridges.
fn judge(runs: &[Vec<Run>; 2]) -> ExitCode {
    let p99s = |runs: &Vec<Run>| runs.iter().map(|run| run.imu_us.p99).collect::<Vec<_>>();
    let [dds_us, bridge_us] = runs.each_ref().map(|runs| median(&p99s(runs)));
    let lost: u64 = runs[1].iter().map(|run| run.lost).sum();
    let mut targets = Targets::default();
    let what = "the sensor's p99 through unmarked DDS ÷ through the bridge (medians)";
    targets.judge(what, dds_us / bridge_us, "times", Limit::AtLeast(LEAST_RATIO));
    targets.judge("lost of the sensor's through the bridge", lost as f64, "samples", Limit::AtMost(0.0));
    let unsure = runs.iter().flatten().filter(|run| run.is_unsure()).count();
    if unsure == 0 {
        return targets.exit();
    }
    let [stolen, still, used] = [MOST_STOLEN, MOST_STILL, LEAST_USED].map(|part| part * 100.0);
    println!(
        "inconclusive: {unsure} runs with more than {stolen} % stolen or {still} % stood still, or less than {used} % used"
    );
    ExitCode::from(4)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first() {
        Some(first) if first == PART => play(&[ROLES]).map(|()| ExitCode::SUCCESS),
        _ => Plan::of(&arguments).and_then(|plan| plan.measure()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(error.exit_code())
    })
}
