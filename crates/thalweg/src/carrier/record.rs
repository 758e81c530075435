//! Carrier around a carrier that writes every frame to a pcap file that Wireshark opens.
//!
//! Frames get an invented IP header (version 4 or 6, as the ends have) and UDP header (link type RAW), whatever the
//! carrier, so that any reader of such files shows lengths, ports and directions. A frame above 65507 bytes is
//! written as several packets. Stamps are wall time in nanoseconds, as the format requires.

use super::udp::MOST;
use super::{ReceiveHalf, SendHalf, SharedSocket};
use linux::lock::PiMutex;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_RAW: u32 = 101;
const LONGEST_PACKET: u32 = 262_144; // the most that readers take
const FILE_HEAD: usize = 16; // of each packet
const UDP: u8 = 17;
const HOPS: u8 = 64;

/// A pcap file that several halves write to. Each packet is one write, so a reader can follow while it grows.
pub struct Recorder {
    file: PiMutex<Output>,
}

struct Output {
    out: Box<dyn Write + Send>,
    packet: Vec<u8>,
    error: Option<io::Error>,
}

impl Recorder {
    /// Creates the file (or empties it).
    ///
    /// # Errors
    /// The error of open(2) or write(2).
    pub fn create(path: &Path) -> io::Result<Arc<Self>> {
        Self::new(Box::new(File::create(path)?))
    }

    /// Writes to anything.
    ///
    /// # Errors
    /// The error of writing the file's head.
    pub fn new(mut out: Box<dyn Write + Send>) -> io::Result<Arc<Self>> {
        let mut head = Vec::new();
        head.extend_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        head.extend_from_slice(&[2, 0, 4, 0]); // version 2.4
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&LONGEST_PACKET.to_le_bytes());
        head.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        out.write_all(&head)?;
        Ok(Arc::new(Self { file: PiMutex::new(Output { out, packet: head, error: None }) }))
    }

    /// The error that stopped the recording, if there was one. A full disk doesn't end the flow.
    pub fn error(&self) -> Option<io::ErrorKind> {
        self.file.lock().error.as_ref().map(io::Error::kind)
    }

    /// Writes `length` bytes of `parts` as one frame, in as many packets as it needs.
    fn write(&self, way: Way, parts: &[IoSlice<'_>], length: usize) {
        let Output { out, packet, error } = &mut *self.file.lock();
        let stamp = linux::clock::wall_ns();
        let mut bytes = parts.iter().flat_map(|p| p.iter().copied()).take(length);
        let mut left = length;
        while error.is_none() {
            let n = left.min(MOST);
            packet.clear();
            way.write(packet, stamp, bytes.by_ref().take(n), n);
            *error = out.write_all(packet).err();
            left -= n;
            if left == 0 {
                return;
            }
        }
    }
}

/// The ends of a flow as the file shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Publisher.
    pub from: SocketAddr,
    /// Subscriber.
    pub to: SocketAddr,
}

impl Way {
    /// The reverse direction.
    fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// One packet of the file, with `length` bytes of payload.
    fn write(self, out: &mut Vec<u8>, stamp_ns: u64, payload: impl Iterator<Item = u8>, length: usize) {
        out.extend_from_slice(&((stamp_ns / 1_000_000_000) as u32).to_le_bytes());
        out.extend_from_slice(&((stamp_ns % 1_000_000_000) as u32).to_le_bytes());
        out.extend_from_slice(&[0; 8]); // the packet's length, twice, when it is known
        let v6 = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                head_v4(out, from, to, length);
                None
            }
            (from, to) => Some(head_v6(out, v6(from), v6(to), length)),
        };
        let udp = out.len();
        // A checksum of 0 is allowed in IPv4.
        for word in [self.from.port(), self.to.port(), (8 + length) as u16, 0] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend(payload);
        if let Some(pseudo) = v6 {
            let sum = match !folded(pseudo + summed(&out[udp..])) {
                0 => u16::MAX, // zero would say that there is none
                sum => sum,
            };
            out[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        }
        let packet = ((out.len() - FILE_HEAD) as u32).to_le_bytes();
        out[8..12].copy_from_slice(&packet);
        out[12..16].copy_from_slice(&packet);
    }
}

/// The ends of a flow as a capture shows them: the publisher's and the subscriber's address of the handshake's stream.
pub(crate) fn way(publisher: SocketAddr, subscriber: SocketAddr) -> Way {
    // A dual-stack socket shows IPv4 ends as IPv6 ones.
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Way { from: plain(publisher), to: plain(subscriber) }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn head_v4(out: &mut Vec<u8>, from: Ipv4Addr, to: Ipv4Addr, length: usize) {
    let mut ip = [0u8; 20];
    ip[0] = 0x45; // version 4, five words
    ip[2..4].copy_from_slice(&((20 + 8 + length) as u16).to_be_bytes());
    ip[6] = 0x40; // don't fragment
    (ip[8], ip[9]) = (HOPS, UDP);
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let sum = !folded(summed(&ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&ip);
}

/// Writes the header, and returns its part of UDP's checksum.
fn head_v6(out: &mut Vec<u8>, from: Ipv6Addr, to: Ipv6Addr, length: usize) -> u64 {
    let udp = 8 + length;
    out.extend_from_slice(&[0x60, 0, 0, 0]); // version 6
    out.extend_from_slice(&(udp as u16).to_be_bytes());
    out.extend_from_slice(&[UDP, HOPS]);
    let ends = [from.octets(), to.octets()].concat();
    out.extend_from_slice(&ends);
    summed(&ends) + udp as u64 + u64::from(UDP)
}

fn summed(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) * 256 + u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A sending half whose frames are recorded when the wrapped one took them.
pub struct RecordSend {
    inner: Box<dyn SendHalf>,
    recorder: Arc<Recorder>,
    way: Way,
}

impl RecordSend {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn SendHalf>, recorder: Arc<Recorder>, way: Way) -> Self {
        Self { inner, recorder, way }
    }
}

impl SendHalf for RecordSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = self.inner.send(parts)?;
        self.recorder.write(self.way, parts, taken);
        Ok(taken)
    }

    fn max_datagram(&self) -> Option<usize> {
        self.inner.max_datagram()
    }

    fn has_feedback(&self) -> bool {
        self.inner.has_feedback()
    }

    fn admit(&self, member: u64, address: SocketAddr) {
        self.inner.admit(member, address);
    }

    fn dismiss(&self, member: u64) {
        self.inner.dismiss(member);
    }

    fn receive_feedback(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let (length, who) = self.inner.receive_feedback(buffer)?;
        let kept = length.min(buffer.len());
        self.recorder.write(self.way.back(), &[IoSlice::new(&buffer[..kept])], kept);
        Ok((length, who))
    }

    fn retransmit(&self, parts: &[IoSlice<'_>], to: Option<u64>) -> io::Result<usize> {
        let taken = self.inner.retransmit(parts, to)?;
        self.recorder.write(self.way, parts, taken);
        Ok(taken)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.inner.socket()
    }

    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        self.inner.wait_room(timeout)
    }

    fn outstanding(&self) -> Option<usize> {
        self.inner.outstanding()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// A receiving half whose frames are recorded.
pub struct RecordReceive {
    inner: Box<dyn ReceiveHalf>,
    recorder: Arc<Recorder>,
    way: Way,
}

impl RecordReceive {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn ReceiveHalf>, recorder: Arc<Recorder>, way: Way) -> Self {
        Self { inner, recorder, way }
    }
}

impl ReceiveHalf for RecordReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let n = self.inner.receive(buffer, wait)?;
        let kept = n.min(buffer.len());
        self.recorder.write(self.way, &[IoSlice::new(&buffer[..kept])], kept);
        Ok(n)
    }

    fn send_feedback(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.send_feedback(bytes)?;
        self.recorder.write(self.way.back(), &[IoSlice::new(bytes)], taken);
        Ok(taken)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.inner.socket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::local;
    use std::process::Command;

    fn way(ip: &str) -> Way {
        let at = |port| SocketAddr::new(ip.parse().unwrap(), port);
        Way { from: at(7001), to: at(7002) }
    }

    fn record(path: &Path, ip: &str, sizes: &[usize]) {
        let recorder = Recorder::create(path).unwrap();
        let (send, mut receive) = local::pair(8, 200_000);
        let send = RecordSend::new(Box::new(send), recorder.clone(), way(ip));
        for size in sizes {
            send.send(&[IoSlice::new(&[7]), IoSlice::new(&vec![8; size - 1])]).unwrap();
            receive.receive(&mut [0; 8], false).unwrap();
        }
        assert_eq!(recorder.error(), None);
    }

    #[test]
    fn another_program_reads_the_file() {
        if Command::new("tshark").arg("--version").output().is_err() {
            return println!("skipped: tshark is not installed");
        }
        for (ip, address, checksum) in [("127.0.0.1", "ip.src", "ip"), ("fd00::1", "ipv6.src", "udp")] {
            let path = std::env::temp_dir().join(format!("thalweg-record-{}-{checksum}.pcap", std::process::id()));
            record(&path, ip, &[1, 100, 65_507, 65_508]);
            let checksum = format!("{checksum}.checksum.status");
            let fields = [address, "udp.srcport", "udp.dstport", "udp.length", &checksum, "_ws.malformed"];
            let mut command = Command::new("tshark");
            command.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-r"]);
            let fields = fields.iter().flat_map(|field| ["-e", field]);
            let out = command.arg(&path).args(fields).output().unwrap();
            std::fs::remove_file(&path).unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            let lines: Vec<_> = text.lines().map(|l| l.trim_end().split('\t').collect::<Vec<_>>()).collect();
            let want: Vec<_> = ["9", "108", "65515", "65515", "9"].map(|n| vec![ip, "7001", "7002", n, "1"]).into();
            assert_eq!(lines, want, "{}", String::from_utf8_lossy(&out.stderr));
        }
    }

    #[test]
    fn an_ipv6_packet_is_as_the_standards_say() {
        let mut packet = Vec::new();
        way("fd00::1").write(&mut packet, 1, [1, 2, 3].into_iter(), 3);
        let (head, ip) = packet.split_at(FILE_HEAD);
        assert_eq!((head[8], head[12], ip.len()), (51, 51, 51));
        assert_eq!((ip[0] >> 4, ip[5], ip[6]), (6, 11, UDP)); // version, length after the head, next header
        // RFC 768: with its checksum in place, all that the checksum covers sums to all ones.
        let covered = summed(&ip[8..40]) + 11 + u64::from(UDP) + summed(&ip[40..]);
        assert_eq!(folded(covered), 0xffff);
    }

    #[test]
    fn a_full_disk_does_not_end_the_flow() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let recorder = Recorder::new(Box::new(Full(30))).unwrap();
        let (send, mut receive) = local::pair(2, 100);
        let send = RecordSend::new(Box::new(send), recorder.clone(), way("127.0.0.1"));
        assert_eq!(send.send(&[IoSlice::new(b"on")]).unwrap(), 2);
        assert_eq!(receive.receive(&mut [0; 8], false).unwrap(), 2);
        assert_eq!(recorder.error(), Some(io::ErrorKind::StorageFull));
    }
}
