//! YARP's own programs, `yarpserver` and `yarp`, which Debian has no package of: on both sides of a bridge, with each name server.

use super::super::running::{Running, until};
use super::super::world::{LONG, node, realm};
use super::{COUNT, bridge, find, mark, serving, topic, using, written};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use thalweg::codec::Raw;
use thalweg_engines::Engine;
use thalweg_engines::yarp::{Settings, Yarp};

/// A network of YARP: where its name server is, and the folder with its programs' settings.
struct Network {
    server: SocketAddr,
    folder: PathBuf,
    /// `None`: the bridge is the name server.
    yarpserver: Option<Program>,
}

/// A program that runs. It ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// The numbers that it prints, one a line. Other lines are for people.
    fn numbers(&mut self) -> Receiver<u32> {
        let (tell, told) = channel();
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let mut numbers = output.lines().map_while(Result::ok).filter_map(|line| line.trim().parse::<u32>().ok());
        std::thread::spawn(move || {
            let _ = numbers.try_for_each(|number| tell.send(number)); // until the test has what it wants
        });
        told
    }
}

/// `false`, with the reason printed, if YARP is not installed.
fn is_installed() -> bool {
    let runs = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let installed = ["yarp", "yarpserver"].iter().all(runs);
    if !installed {
        println!(
            "skipped: because YARP's programs (yarp, yarpserver) are not installed, and Debian has no package of them"
        );
    }
    installed
}

/// An address such that it and the ports behind it, which a name server gives out, are below those that the kernel gives.
fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 11_000 + (std::process::id() % 200) as u16 * 100;
    let mut ports = std::iter::repeat_with(|| first + 10 * NEXT.fetch_add(1, Ordering::Relaxed)).take(10);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    SocketAddr::from(([127, 0, 0, 1], free.unwrap_or_else(|| panic!("no port from {first} on is free"))))
}

impl Network {
    /// Without a name server.
    fn new() -> Self {
        let server = free();
        let folder = std::env::temp_dir().join(format!("thalweg-yarp-{}-{}", std::process::id(), server.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let network = Self { server, folder, yarpserver: None };
        let port = server.port().to_string();
        assert!(network.run(&["conf", "127.0.0.1", &port]).0);
        network
    }

    /// With `yarpserver`.
    fn with_yarpserver() -> Self {
        let mut network = Self::new();
        let port = network.server.port().to_string();
        let mut command = network.command("yarpserver");
        command.args(["--read", "--ip", "127.0.0.1", "--socket", &port]).stdin(Stdio::null()).stdout(Stdio::null());
        network.yarpserver = Some(Program(command.spawn().unwrap()));
        until("yarpserver answers", || network.run(&["exists", "/root"]).0);
        network
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("YARP_CONFIG_HOME", &self.folder).env("YARP_DATA_HOME", &self.folder).stderr(Stdio::null());
        command
    }

    /// `yarp …` to its end, within a time: whether it succeeded, and what it said.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = self.command("timeout");
        let done = command.args(["20", "yarp"]).args(arguments).stdin(Stdio::null()).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// `yarp …`, which goes on.
    fn start(&self, arguments: &[&str]) -> Program {
        let mut command = self.command("yarp");
        Program(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// What a bridge needs to be in it.
    fn settings(&self) -> Settings {
        let open = if self.yarpserver.is_some() { using } else { serving };
        open(self.server, "/thalweg")
    }

    fn knows(&self, name: &str) -> bool {
        find(self.server, name).is_some()
    }

    /// `yarp rpc`, which asks over a binary connection.
    fn knows_by_rpc(&self, name: &str) -> bool {
        let mut command = self.command("timeout");
        command.args(["20", "yarp", "rpc", "/root"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut asking = command.spawn().unwrap();
        asking.stdin.take().unwrap().write_all(format!("bot query {name}\n").as_bytes()).unwrap();
        let said = asking.wait_with_output().unwrap().stdout;
        String::from_utf8_lossy(&said).contains(&format!("(name \"{name}\")"))
    }

    /// `yarp read NAME`, once it can be connected.
    fn reader(&self, name: &str) -> Program {
        let reader = self.start(&["read", name]);
        until("the reader takes connections", || self.run(&["exists", name]).0);
        reader
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The networks that a test is about; none if YARP is not installed.
fn networks() -> impl Iterator<Item = Network> {
    let (installed, all) = (is_installed(), [Network::new as fn() -> Network, Network::with_yarpserver]);
    all.into_iter().filter(move |_| installed).map(|network| network())
}

/// A bottle of one number, by data_rep.dox.
fn bottle(number: u32) -> Vec<u8> {
    [257, 1, number].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn expected() -> Vec<u32> {
    (0..COUNT).collect()
}

/// All of a thousand; what comes instead is told with its number.
fn thousand<T>(told: &Receiver<T>) -> Vec<T> {
    (0..COUNT).map(|at| told.recv_timeout(LONG).unwrap_or_else(|_| panic!("sample {at} has not come"))).collect()
}

struct Publishing {
    _bridge: Running,
    publisher: thalweg::Publisher<Raw>,
    _here: thalweg::Node,
}

impl Publishing {
    /// A publisher of `/robot/pose`, and a bridge to this network.
    fn to(network: &Network) -> Self {
        let realm = realm("yarp-out");
        let here = node("here", &realm);
        let queue = qos::Queue::Block { limit: 1024, up_to_us: 10_000_000 };
        let publisher = here.publisher::<Raw>("/robot/pose").queue(queue).open().unwrap();
        let bridge = bridge("bridge", &realm, network.settings());
        until("the port is there", || network.knows("/thalweg/robot/pose"));
        Self { _bridge: bridge, publisher, _here: here }
    }

    fn publish(&mut self) {
        assert!(self.publisher.wait_connected(1, LONG));
        (0..COUNT).for_each(|number| assert_eq!(self.publisher.publish(bottle(number).as_slice()).unwrap().refused, 0));
    }
}

#[test]
fn yarp_read_gets_a_thousand_samples() {
    for network in networks() {
        let mut publishing = Publishing::to(&network);
        let mut reader = network.reader("/screen");
        let told = reader.numbers();
        let (connected, said) = network.run(&["connect", "/thalweg/robot/pose", "/screen"]);
        assert!(connected, "{said}");
        assert!(network.run(&["exists", "/thalweg/robot/pose", "/screen"]).0, "yarp sees the connection");
        publishing.publish();
        assert_eq!(thousand(&told), expected());
        assert!(network.run(&["disconnect", "/thalweg/robot/pose", "/screen"]).0);
        until("nobody wants it", || publishing.publisher.connected() == 0);
    }
}

/// `yarp read` acknowledges each sample, and prints it: it has not read most of them when the publisher has gone.
#[test]
fn yarp_read_gets_what_was_published_before_the_publisher_went() {
    for network in networks() {
        let yarp = Yarp::open(network.settings(), None).unwrap();
        let publisher = yarp.publisher(&topic("/robot/pose"), &qos::Qos::default()).unwrap();
        let mut reader = network.reader("/screen");
        let told = reader.numbers();
        assert!(network.run(&["connect", "/thalweg/robot/pose", "/screen", "tcp"]).0);
        (0..COUNT).for_each(|number| publisher.publish(&written(&bottle(number))).unwrap());
        drop(publisher);
        assert_eq!(thousand(&told), expected());
    }
}

#[test]
fn a_thousand_samples_come_from_yarp_write() {
    for network in networks() {
        let realm = realm("yarp-in");
        let here = node("here", &realm);
        let (tell, told) = channel();
        let subscriber = here.subscriber::<Raw>("/words").queue(qos::Queue::KeepAll(4096));
        let _subscriber =
            subscriber.callback(move |sample: thalweg::Sample<Raw>| drop(tell.send(sample.to_vec()))).unwrap();
        let _bridge = bridge("bridge", &realm, network.settings());
        until("the port is there", || network.knows("/thalweg/words:i"));
        let mut writer = network.start(&["write", "--wait-connect", "/words"]);
        let mut input = writer.0.stdin.take().unwrap();
        let lines: String = (0..COUNT).map(|number| format!("{number}\n")).collect();
        input.write_all(lines.as_bytes()).unwrap();
        assert_eq!(thousand(&told), (0..COUNT).map(bottle).collect::<Vec<_>>());
    }
}

/// What `yarp` says of our ports, and does to our connections.
#[test]
fn yarp_administers_ports_of_a_bridge() {
    for network in networks() {
        let _publishing = Publishing::to(&network);
        let _reader = network.reader("/screen");
        assert!(network.run(&["connect", "/thalweg/robot/pose", "/screen"]).0);
        let port = find(network.server, "/thalweg/robot/pose").unwrap();
        for (words, tos) in [("LEVEL:HIGH", "144"), ("DSCP:AF12", "48"), ("TOS:40", "40")] {
            let (_, said) = network.run(&["priority-qos", "set", "/thalweg/robot/pose", "/screen", "--src", words]);
            assert_eq!(mark(&port, "/screen"), tos, "{words}: {said}");
        }
        for (arguments, says) in [
            (&["priority-qos", "get", "/thalweg/robot/pose", "/screen", "--src"][..], "(tos 40)"),
            (&["ping", "/thalweg/robot/pose"][..], "connection from \"/thalweg/robot/pose\" to \"/screen\" using tcp"),
            (&["name", "list"][..], "registration name /thalweg/robot/pose ip 127.0.0.1"),
            (&["name", "query", "/thalweg/robot/pose"][..], "registration name /thalweg/robot/pose ip 127.0.0.1"),
        ] {
            let said = network.run(arguments).1;
            assert!(said.contains(says), "{arguments:?}: {said}");
        }
        assert!(!network.run(&["connect", "/thalweg/robot/pose", "/screen", "udp"]).0, "udp is not offered");
        let persistent = network.run(&["connect", "--persist", "/thalweg/robot/pose", "/screen"]).1;
        assert_eq!(persistent.contains("does not support"), network.yarpserver.is_none(), "{persistent}");
        assert!(network.knows_by_rpc("/screen"));
    }
}

/// yarpserver connects ports that were told to it before, when they are announced.
#[test]
fn yarpserver_connects_a_port_of_a_bridge_that_comes_later() {
    if !is_installed() {
        return;
    }
    let network = Network::with_yarpserver();
    let mut reader = network.reader("/screen");
    let told = reader.numbers();
    assert!(network.run(&["connect", "--persist", "/thalweg/robot/pose", "/screen"]).0);
    let mut publishing = Publishing::to(&network);
    publishing.publish();
    assert_eq!(thousand(&told), expected());
}
