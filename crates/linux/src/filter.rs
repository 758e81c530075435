//! Packet filters of sockets (socket(7), `SO_ATTACH_FILTER`): unwanted packets are dropped on arrival, in the time of
//! the sender or of the network card, and wake no thread.

use socket2::{SockFilter, SockRef};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Most hosts that [`not_from`] takes: a jump of the program is at most 255 instructions long.
pub const MOST_HOSTS: usize = 64;

/// Restricts the UDP socket to packets from this address, and from this port unless it is 0.
///
/// # Errors
/// The error of setsockopt(2).
pub fn only_from(socket: impl AsFd, sender: SocketAddr) -> io::Result<()> {
    let mut program = Vec::with_capacity(12);
    for (offset, word) in words_of_source(sender.ip()) {
        program.extend([load(NETWORK + offset), if_equal(word, 1, 0), DROP]);
    }
    if sender.port() != 0 {
        program.extend([LOAD_SOURCE_PORT, if_equal(sender.port().into(), 1, 0), DROP]);
    }
    program.push(TAKE);
    SockRef::from(&socket).attach_filter(&program)
}

/// Makes the listening TCP socket ignore these hosts, with IPv6 their networks of 64 bits; it answers those beyond
/// [`MOST_HOSTS`]. Accepted connections continue, and later ones inherit the filter ([`nothing`] removes it).
///
/// # Errors
/// The error of setsockopt(2).
pub fn not_from(listener: impl AsFd, hosts: &[IpAddr]) -> io::Result<()> {
    if hosts.is_empty() {
        return nothing(listener);
    }
    let hosts = &hosts[..hosts.len().min(MOST_HOSTS)];
    let mut v4 = vec![load(NETWORK + V4_SOURCE)];
    let mut v6 = Vec::new();
    for host in hosts {
        match (host, &words_of_source(*host)[..]) {
            (IpAddr::V4(_), [(_, word)]) => v4.extend([if_equal(*word, 0, 1), DROP]),
            (_, [(at, word), (after, next), ..]) => {
                let both =
                    [load(NETWORK + at), if_equal(*word, 0, 3), load(NETWORK + after), if_equal(*next, 0, 1), DROP];
                v6.extend(both);
            }
            _ => {}
        }
    }
    v4.push(TAKE);
    v6.push(TAKE);
    let past_v4 = u8::try_from(v4.len()).map_err(io::Error::other)?;
    let mut program = vec![load_version(), TO_VERSION, if_equal(4, 0, past_v4)];
    program.extend(v4);
    program.extend(v6);
    SockRef::from(&listener).attach_filter(&program)
}

/// Removes the socket's filter, if it has one.
///
/// # Errors
/// The error of setsockopt(2).
pub fn nothing(socket: impl AsFd) -> io::Result<()> {
    match SockRef::from(&socket).detach_filter() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Start of the network header (`SKF_NET_OFF`); offset 0 is the transport header.
const NETWORK: u32 = libc::SKF_NET_OFF.cast_unsigned();
/// The source in a header of IPv4 and of IPv6.
const V4_SOURCE: u32 = 12;
const V6_SOURCE: u32 = 8;

const DROP: SockFilter = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
const TAKE: SockFilter = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX);
const LOAD_SOURCE_PORT: SockFilter = SockFilter::new((libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16, 0, 0, 0);
/// The upper four bits of the first byte.
const TO_VERSION: SockFilter = SockFilter::new((libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16, 0, 0, 4);

const fn load_version() -> SockFilter {
    SockFilter::new((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, NETWORK)
}

const fn load(at: u32) -> SockFilter {
    SockFilter::new((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, at)
}

/// Skips `then` instructions if the value is this one, else `otherwise`.
const fn if_equal(value: u32, then: u8, otherwise: u8) -> SockFilter {
    SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, then, otherwise, value)
}

/// The words of a packet's source, by their offset in the network header.
fn words_of_source(address: IpAddr) -> Vec<(u32, u32)> {
    let (first, bytes) = match address {
        IpAddr::V4(v4) => (V4_SOURCE, v4.octets().to_vec()),
        IpAddr::V6(v6) => (V6_SOURCE, v6.octets().to_vec()),
    };
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    bytes.chunks(4).enumerate().map(|(index, bytes)| (first + 4 * index as u32, word(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    const SOON: Duration = Duration::from_millis(200);

    #[test]
    fn a_socket_hears_one_sender_only() {
        for (any, other) in [("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:0", "127.0.0.2:0"), ("[::1]:0", "[::1]:0")] {
            let (Ok(hears), Ok(its), Ok(other)) = (UdpSocket::bind(any), UdpSocket::bind(any), UdpSocket::bind(other))
            else {
                continue;
            };
            only_from(&hears, its.local_addr().unwrap()).unwrap();
            other.send_to(b"no", hears.local_addr().unwrap()).unwrap();
            its.send_to(b"yes", hears.local_addr().unwrap()).unwrap();
            hears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 8];
            let length = hears.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"yes", "{any}");
        }
    }

    /// Each word of an address counts.
    #[test]
    fn addresses_that_differ_in_one_bit_are_other_senders() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(hears), Ok(its)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else { continue };
            let (to, from) = (hears.local_addr().unwrap(), its.local_addr().unwrap());
            let others: Vec<IpAddr> = match from.ip() {
                IpAddr::V4(v4) => (0..32).map(|bit| Ipv4Addr::from_bits(v4.to_bits() ^ 1 << bit).into()).collect(),
                IpAddr::V6(v6) => (0..128).map(|bit| Ipv6Addr::from_bits(v6.to_bits() ^ 1 << bit).into()).collect(),
            };
            for other in others {
                only_from(&hears, (other, from.port()).into()).unwrap();
                its.send_to(b"no", to).unwrap();
            }
            only_from(&hears, from).unwrap();
            its.send_to(b"yes", to).unwrap();
            hears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 8];
            assert_eq!(hears.recv(&mut buffer).unwrap(), 3, "{any}");
        }
    }

    #[test]
    fn with_port_0_any_port_of_the_address_is_heard() {
        let (hears, one) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let elsewhere = UdpSocket::bind("127.0.0.3:0").unwrap();
        only_from(&hears, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        elsewhere.send_to(b"no", hears.local_addr().unwrap()).unwrap();
        one.send_to(b"yes", hears.local_addr().unwrap()).unwrap();
        hears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(hears.recv(&mut buffer).unwrap(), 3);
    }

    #[test]
    fn a_listener_answers_nobody_at_hosts_that_are_barred_until_it_is_told_to() {
        let v6 = TcpListener::bind("[::]:0").ok();
        for listener in [TcpListener::bind("0.0.0.0:0").ok(), v6].into_iter().flatten() {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
            let from = |last: u8| {
                let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
                socket.connect_timeout(&to.into(), SOON).map(|()| TcpStream::from(socket))
            };
            let hosts: Vec<IpAddr> =
                (2..80).map(|last| IpAddr::from([127, 0, 0, last])).chain(["2001:db8::".parse().unwrap()]).collect();
            not_from(&listener, &hosts[14..]).unwrap(); // 127.0.0.16 and those after
            assert!(from(16).is_err() && from(79).is_err());
            assert!(from(15).is_ok(), "another one is answered");
            not_from(&listener, &[]).unwrap();
            assert!(from(16).is_ok());
        }
        let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
        let to = listener.local_addr().unwrap();
        let networks = (0..64).map(|bit| IpAddr::from(Ipv6Addr::from_bits(1 << (64 + bit)))).collect::<Vec<_>>();
        not_from(&listener, &networks).unwrap();
        assert!(TcpStream::connect_timeout(&to, SOON).is_ok(), "other networks");
        not_from(&listener, &["::".parse().unwrap()]).unwrap(); // the network of ::1
        assert!(TcpStream::connect_timeout(&to, SOON).is_err());
        nothing(&listener).unwrap();
        nothing(&listener).unwrap();
        assert!(TcpStream::connect_timeout(&to, SOON).is_ok());
    }
}
