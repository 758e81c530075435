//! The packets of a domain on loopback, captured by `tshark`.

use super::super::world::LONG;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The mark and the content of each packet.
type Packets = Arc<Mutex<Vec<(u8, Vec<u8>)>>>;

/// A running capture.
pub(super) struct Capture {
    child: Child,
    packets: Packets,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// `None`, with the reason printed, if it cannot be.
    pub(super) fn start(domain: u32) -> Option<Self> {
        let (first, last) = (7400 + 250 * domain, 7649 + 250 * domain); // DDSI-RTPS 2.5 §9.6.2.3
        let filter = format!("udp dst portrange {first}-{last}");
        let mut command = Command::new("tshark");
        command.args(["-i", "lo", "-l", "-B", "16", "-f", &filter, "-T", "fields"]);
        command.args(["-e", "ip.dsfield", "-e", "udp.payload"]);
        let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            println!("skipped: because tshark is not installed");
            return None;
        };
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let packets = Packets::default();
        let keep = packets.clone();
        let thread = std::thread::spawn(move || {
            let came = lines.map_while(Result::ok).filter_map(|line| packet(&line));
            came.for_each(|packet| keep.lock().unwrap().push(packet));
        });
        let mut capture = Self { child, packets, thread: Some(thread) };
        capture.has_begun(last).then_some(capture)
    }

    /// Waits until a packet to this port of loopback, which nobody uses, is captured.
    fn has_begun(&mut self, port: u32) -> bool {
        let (probe, end) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Instant::now() + LONG);
        while self.packets.lock().unwrap().is_empty() {
            if self.child.try_wait().unwrap().is_some() {
                println!("skipped: because tshark does not capture on lo: it needs root");
                return false;
            }
            assert!(Instant::now() < end, "no packet is captured within {LONG:?}");
            let _ = probe.send_to(b"probe", ("127.0.0.1", u16::try_from(port).unwrap())); // refused: nobody is there
            std::thread::sleep(Duration::from_millis(20)); // between two looks
        }
        true
    }

    /// The samples with the text `NAME#NUMBER`: numbers and marks, in their order on the wire.
    pub(super) fn samples(&self, name: &str) -> Vec<(u32, u8)> {
        let begin = format!("{name}#");
        let number = |content: &[u8]| {
            let digits = content.strip_prefix(begin.as_bytes())?.iter().take_while(|byte| byte.is_ascii_digit());
            digits.map(|byte| char::from(*byte)).collect::<String>().parse().ok()
        };
        let packets = self.packets.lock().unwrap();
        let in_packet = |(mark, content): &(u8, Vec<u8>)| {
            (0..content.len()).filter_map(|at| Some((number(&content[at..])?, *mark))).collect::<Vec<_>>()
        };
        packets.iter().flat_map(in_packet).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SIGTERM: killed, it would leave behind the program by which it captures.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A line of `tshark`: `0xb0`, a tab, and the content in hexadecimal digits.
fn packet(line: &str) -> Option<(u8, Vec<u8>)> {
    let (mark, content) = line.trim_end().split_once('\t')?;
    let bytes = (0..content.len()).step_by(2).map(|at| u8::from_str_radix(content.get(at..at + 2)?, 16).ok());
    Some((u8::from_str_radix(mark.strip_prefix("0x")?, 16).ok()?, bytes.collect::<Option<_>>()?))
}
