//! Brokers of MQTT: Debian's mosquitto, and its programs.

use super::running::{Running, until};
use super::world::{LONG, address};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg::Node;
use thalweg_engines::bridge::Rules;
use thalweg_engines::mqtt::{Mqtt, Settings};

/// A broker of its own; it ends with this program at the latest.
pub struct Broker {
    process: Child,
    /// `HOST:PORT`; no other test has the host.
    address: String,
    configuration: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Below the ports that the kernel gives: no end of a connection has it while a broker is gone.
const PORT: u16 = 18_830;

/// `None`, with the reason printed, if there is no mosquitto.
fn is_installed() -> Option<()> {
    let version = |program: &str| command(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version("mosquitto").is_ok() && version("mosquitto_pub").is_ok() {
        return Some(());
    }
    println!("skipped: because mosquitto is not installed (Debian's packages mosquitto and mosquitto-clients)");
    None
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

impl Broker {
    /// Starts one with more lines of configuration.
    pub fn start(more: &str) -> Option<Self> {
        is_installed()?;
        let address = address();
        let (host, _) = parts(address.trim_start_matches("tcp/"));
        let (address, configuration) =
            (format!("{host}:{PORT}"), format!("listener {PORT} {host}\npersistence false\nlog_dest none\n{more}\n"));
        let process = Self::run(&configuration, &address);
        Some(Self { process, address, configuration })
    }

    /// The shell ends the broker when its input ends, which it does with this program.
    fn run(configuration: &str, address: &str) -> Child {
        let name = format!("thalweg-mqtt-{}-{}.conf", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, configuration).unwrap();
        let script = "mosquitto -c \"$0\" & broker=$!; cat >/dev/null; kill -9 $broker; wait";
        let mut process = command("sh");
        process.args(["-c", script]).arg(&file).stdin(Stdio::piped());
        let process = process.spawn().unwrap();
        until("the broker answers", || answers(address).is_ok_and(|first| first == CONNACK));
        std::fs::remove_file(file).unwrap(); // it has read it
        process
    }

    /// Kills it.
    pub fn kill(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }

    /// Starts it again, without anything that it had.
    pub fn again(&mut self) {
        self.process = Self::run(&self.configuration, &self.address);
    }

    /// A data space that no other test has.
    pub fn space(&self) -> Space {
        let prefix = format!("space{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Space { address: self.address.clone(), prefix }
    }
}

/// Host and port.
fn parts(address: &str) -> (&str, &str) {
    address.split_once(':').unwrap()
}

/// First byte of the answer to a first packet.
const CONNACK: u8 = 0x20;

/// First byte of what is said at an address to a program of MQTT 3.1.1 without a name, which a broker need not let in.
fn answers(address: &str) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.write_all(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00")?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    Ok(first[0])
}

/// A file with one user, as `mosquitto_passwd` writes it.
pub fn users(user: &str, password: &str) -> Option<PathBuf> {
    is_installed()?;
    let name = format!("thalweg-mqtt-{}-{}.users", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(name);
    let written = command("mosquitto_passwd").args(["-b", "-c"]).arg(&file).args([user, password]).status();
    assert!(written.unwrap().success());
    // Mosquitto as root reads it as another user.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    Some(file)
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A data space at the broker that all tests share.
pub fn space() -> Option<Space> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(|| Broker::start("allow_anonymous true")).as_ref().map(Broker::space)
}

/// A data space at a broker: the topics below a prefix.
#[derive(Clone)]
pub struct Space {
    pub address: String,
    pub prefix: String,
}

impl Space {
    pub fn settings(&self) -> Settings {
        let (broker, prefix) = (self.address.clone(), self.prefix.clone());
        Settings { broker, prefix, ..Settings::default() }
    }

    pub fn open(&self) -> Mqtt {
        Mqtt::open(self.settings(), None).unwrap()
    }

    pub fn bridge(&self, node: Node, rules: &str) -> Running {
        let identity = Rules::parse(rules).unwrap().identity(node.id());
        let engine = Mqtt::open(self.settings(), Some(identity)).unwrap();
        Running::with(node, Box::new(engine), rules)
    }

    fn program(&self, name: &str, version: &str, arguments: &[&str]) -> Command {
        let (mut command, (host, port)) = (command(name), parts(&self.address));
        command.args(["-h", host, "-p", port, "-V", version, "-q", "1"]).args(arguments);
        command
    }

    /// `mosquitto_pub` publishes one message, retained or not.
    pub fn put(&self, topic: &str, message: &str, retain: bool) {
        let topic = format!("{}/{topic}", self.prefix);
        let more: &[&str] = if retain { &["-r"] } else { &[] };
        let mut program = self.program("mosquitto_pub", "mqttv311", &["-t", &topic, "-m", message]);
        assert!(program.args(more).status().unwrap().success());
    }

    /// `mosquitto_pub`, which publishes the lines of its input.
    pub fn talker(&self, topic: &str, version: &str) -> Program<ChildStdin> {
        let topic = format!("{}/{topic}", self.prefix);
        let mut child =
            self.program("mosquitto_pub", version, &["-l", "-t", &topic]).stdin(Stdio::piped()).spawn().unwrap();
        let end = child.stdin.take();
        Program { child, end }
    }

    /// `mosquitto_sub`, once it is subscribed: it prints so many messages of the topic, each with its retain flag, and ends.
    pub fn listener(&self, topic: &str, version: &str, count: usize) -> Program<BufReader<ChildStdout>> {
        // Retained messages come in the order of the topics: after what the topic has, if it has any.
        self.put("subscribed", "it is", true);
        let topics = [topic, "subscribed"].map(|topic| format!("{}/{topic}", self.prefix));
        let count = (count + 1).to_string();
        let arguments = ["-F", "%r %p", "-C", &count, "-t", &topics[0], "-t", &topics[1]];
        let mut child = self.program("mosquitto_sub", version, &arguments).stdout(Stdio::piped()).spawn().unwrap();
        let end = child.stdout.take().map(BufReader::new);
        Program { child, end }
    }
}

/// A program, and its end of a pipe until that is closed.
pub struct Program<T> {
    child: Child,
    end: Option<T>,
}

impl Program<ChildStdin> {
    /// Writes these lines, and waits until all of them are published.
    pub fn say(mut self, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.end.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Program<BufReader<ChildStdout>> {
    /// All lines that it prints.
    pub fn lines(mut self) -> Vec<String> {
        let lines = self.end.take().unwrap().lines().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }

    /// Its lines up to that which says that it is subscribed.
    pub fn subscribed(&mut self) -> Vec<String> {
        let lines = self.end.as_mut().unwrap().lines().map(Result::unwrap);
        lines.take_while(|line| line != "1 it is").collect()
    }
}

impl<T> Drop for Program<T> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
