//! The processes of `bridge_camera`: sensors, bridges, readers.

use engines::bridge::Rules;
use engines::dds::{Dds, Settings};
use engines::native::Native;
use engines::{Bridge, Engine, Identity, Sample, Topic};
use linux::clock::monotonic_ns;
use qos::Qos;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use thalweg::codec::Definitions;
use thalweg_lab::part::{NodeSettings, Orders, Role};
use thalweg_lab::topology::Topology;
use thalweg_lab::{Error, Lab, Result};

/// The roles.
pub const ROLES: &[(&str, Role)] = &[("publish", publish), ("bridge", bridge), ("read", read)];
/// The host of sensors and bridges, and that of readers.
pub const SENSORS: u8 = 1;
pub const READERS: u8 = 2;
/// The longest wait for the last samples.
const PATIENCE: Duration = Duration::from_secs(3);

/// Cyclone on the line, as is best for the sensor: a message fits a frame, so that IP fragments none, and the send buffer, in which images wait in
/// front of the sensor, is what Cyclone asks for at least. Samples are not batched: that is its default.
const ON_LINE: [&str; 2] = [
    "<General><MaxMessageSize>1456 B</MaxMessageSize><FragmentSize>1344 B</FragmentSize></General>",
    "<SocketSendBufferSize min=\"default\" max=\"64 KiB\"/>",
];
/// Cyclone in both arms: room for an image.
const RECEIVING: &str = "<SocketReceiveBufferSize min=\"default\" max=\"4 MiB\"/>";

/// What the bridges add. Of the images the last two wait.
const RULES: &str = r#"
    [[rule]]
    topic = "/imu"
    class = "critical"
    [[rule]]
    topic = "/camera"
    class = "low"
    queue = "keep-last 2"
"#;

/// What carries the samples: DDS between the hosts, or bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arm {
    Dds,
    Bridge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    Imu,
    Camera,
}

impl Stream {
    fn name(self) -> &'static str {
        if self == Stream::Imu { "imu" } else { "camera" }
    }

    fn topic(self) -> Result<Topic> {
        const TYPE: &str = "lab_msgs/msg/Bytes";
        let mut definitions = Definitions::new();
        let described = definitions.add(TYPE, "uint8[] data\n").and_then(|()| definitions.describe(TYPE));
        let message = described.map_err(|wrong| Error::Failed(wrong.to_string()))?;
        Ok(Topic { name: format!("/{}", self.name()), message })
    }

    /// A message: CDR of version 1 (little-endian), the data's length, and as many bytes as a `sensor_msgs/Imu` and the pixels have.
    pub fn message(self) -> Vec<u8> {
        let data: u32 = if self == Stream::Imu { 320 } else { 1280 * 720 * 3 };
        let mut message = vec![0; 8 + data as usize];
        message[1] = 1;
        message[4..8].copy_from_slice(&data.to_le_bytes());
        message
    }

    fn address(self, host: u8) -> SocketAddr {
        SocketAddr::new(Topology::address_of(host), if self == Stream::Imu { 20_000 } else { 20_001 })
    }
}

/// The place of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    arm: Arm,
    stream: Stream,
    /// Its host.
    pub host: u8,
    node: NodeSettings,
}

impl Seat {
    /// For the sensor and for the camera, on one host.
    pub fn both(lab: &Lab, arm: Arm, run: usize, host: u8) -> Result<[Self; 2]> {
        let streams = [Stream::Imu, Stream::Camera];
        let all = streams.map(|stream| [SENSORS, READERS].map(|host| stream.address(host))).concat();
        let [imu, camera] = streams.map(|stream| {
            let (name, realm) = (format!("{}_{host}", stream.name()), format!("camera-{run}"));
            let node = NodeSettings::at(lab, &name, &realm, stream.address(host), &all)?;
            Ok::<_, Error>(Self { arm, stream, host, node })
        });
        Ok([imu?, camera?])
    }

    /// As it is ordered. Threads on the sensor's way are before all ordinary ones in both arms: waiting for a processor is not compared.
    fn take(orders: &Orders) -> Result<Self> {
        let seat: Self = orders.settings()?;
        let first = Scheduling::from(Policy::Fifo(30));
        let wanted = (seat.stream == Stream::Imu).then_some(&first);
        linux::sched::apply(0, wanted, None).map_err(|refused| Error::System(refused.to_string()))?;
        Ok(seat)
    }

    /// What a sensor or reader speaks.
    fn engine(&self) -> Result<Box<dyn Engine>> {
        match self.arm {
            Arm::Bridge if self.host == READERS => Ok(Box::new(Native::new(self.node.open()?))),
            Arm::Dds | Arm::Bridge => Ok(Box::new(self.dds(None)?)),
        }
    }

    /// A node of ROS 2 over DDS: between the hosts, or on loopback.
    fn dds(&self, bridge: Option<Identity>) -> Result<Dds> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (own, other, [general, sending]) = match self.arm {
            Arm::Dds => (Topology::address_of(self.host), Topology::address_of(SENSORS + READERS - self.host), ON_LINE),
            Arm::Bridge => (loopback, loopback, ["", ""]),
        };
        let (known, kind) = (self.stream.topic()?.message, if bridge.is_some() { "bridge" } else { "node" });
        let settings = Settings {
            interfaces: vec![own],
            peers: vec![other],
            multicast: false,
            configuration: format!(
                "<CycloneDDS><Domain Id=\"any\">{general}<Internal>{sending}{RECEIVING}</Internal></Domain></CycloneDDS>"
            ),
            describe: Arc::new(move |_| Some(known.clone())),
            node: Some(format!("{}_{kind}", self.node.name)),
            ..Settings::default()
        };
        Dds::open(settings, bridge).map_err(failed)
    }
}

fn failed(error: engines::Error) -> Error {
    Error::Failed(error.to_string())
}

/// A sensor: says `{}` once it is subscribed to, is told a period and a number of samples, and says `{}` when these are published. It catches up
/// when late.
fn publish(mut orders: Orders) -> Result {
    let seat = Seat::take(&orders)?;
    let (engine, mut message) = (seat.engine()?, seat.stream.message());
    let publisher = engine.publisher(&seat.stream.topic()?, &Qos::default()).map_err(failed)?;
    while !publisher.is_wanted() {
        std::thread::sleep(Duration::from_millis(5)); // between two looks, until the experiment's patience ends
    }
    orders.say(&json!({}))?;
    let Some((period, count)) = orders.wait::<(Duration, u64)>()? else { return Ok(()) };
    let mut due = Instant::now();
    for number in 0..count {
        due += period;
        if matches!(orders.wait_within::<Value>(due.saturating_duration_since(Instant::now()))?, Some(None)) {
            return Ok(()); // the run is over
        }
        message[8..16].copy_from_slice(&number.to_le_bytes());
        message[16..24].copy_from_slice(&monotonic_ns().to_le_bytes());
        let (change, message) = (thalweg::Change::Written, &message[..]);
        let sample = Sample { topic: "", message, publisher: 0, origin: None, change, age_ns: 0, historical: false };
        let _ = publisher.publish(&sample); // what is refused does not arrive, and counts as lost
    }
    orders.say(&json!({}))?;
    while orders.wait::<Value>()?.is_some() {} // the last ones may still be on their way
    Ok(())
}

/// A bridge, as `thalweg bridge dds --ros-node NAME --allow TOPIC --config RULES` runs it.
fn bridge(mut orders: Orders) -> Result {
    let seat = Seat::take(&orders)?;
    let (node, only) = (seat.node.open()?, [seat.stream.topic()?.name]);
    let rules = Rules::parse(RULES).and_then(|rules| rules.within(&only, &[]));
    let rules = rules.map_err(|wrong| Error::Failed(wrong.to_string()))?;
    let engine = seat.dds(Some(rules.identity(node.id())))?;
    let mut bridge = Bridge::new(node, Box::new(engine), rules);
    orders.say(&json!({}))?;
    while !matches!(orders.wait_within::<Value>(Duration::ZERO)?, Some(None)) {
        bridge.turn(Duration::from_millis(50)).iter().for_each(|notice| eprintln!("bridge: {notice}"));
    }
    Ok(())
}

/// Numbers of samples, and nanoseconds from their publication to the callback.
#[derive(Debug, Serialize, Deserialize)]
pub struct Came {
    pub samples: Vec<[u64; 2]>,
}

/// A reader: says `{}`, is told how many samples to wait for, and says what [`Came`].
fn read(mut orders: Orders) -> Result {
    let seat = Seat::take(&orders)?;
    let (engine, (tell, told)) = (seat.engine()?, channel());
    let deliver = Box::new(move |sample: &Sample<'_>| {
        let now = monotonic_ns();
        let at = |from: usize| Some(u64::from_le_bytes(*sample.message.get(from..)?.first_chunk()?));
        if let (Some(number), Some(published)) = (at(8), at(16)) {
            let _ = tell.send([number, now.saturating_sub(published)]);
        }
    });
    let _subscriber = engine.subscriber(&seat.stream.topic()?, &Qos::default(), deliver).map_err(failed)?;
    orders.say(&json!({}))?;
    while let Some(wanted) = orders.wait::<usize>()? {
        let (until, mut samples) = (Instant::now() + PATIENCE, told.try_iter().collect::<Vec<[u64; 2]>>());
        while samples.len() < wanted {
            let Ok(came) = told.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
            samples.push(came);
        }
        orders.say(&Came { samples })?;
    }
    Ok(())
}
