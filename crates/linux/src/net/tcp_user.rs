//! The user at the other end of a TCP connection within this host. The kernel is asked for that one socket: reading
//! the table of all (`/proc/net/tcp`) takes longer the more connections strangers leave behind.

use crate::netlink::{Socket, u32_at};
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED` (tcp_states.h).
const ESTABLISHED: u8 = 1;

/// The user at the other end of a TCP connection; `None`: that end is not in this network namespace, has no owner any
/// more, or the kernel does not tell (built without `CONFIG_INET_DIAG`).
pub fn tcp_user(own: SocketAddr, far: SocketAddr) -> Option<u32> {
    let answer = Socket::for_sockets().ok()?.ask(BY_FAMILY, 0, &request(far, own)).ok()?.ok()?;
    user_of(&answer.first()?.body)
}

/// `struct inet_diag_req_v2` (linux/inet_diag.h): the socket with address `from`, connected to `to`. A socket of IPv6 that speaks IPv4
/// is found by its addresses of IPv4.
fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let interface = if let SocketAddr::V6(v6) = from { v6.scope_id() } else { 0 };
    let (source, destination) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend_from_slice(&u32::MAX.to_ne_bytes()); // in any state
    body.extend_from_slice(&from.port().to_be_bytes());
    body.extend_from_slice(&to.port().to_be_bytes());
    body.extend_from_slice(&sixteen(source));
    body.extend_from_slice(&sixteen(destination));
    body.extend_from_slice(&interface.to_ne_bytes());
    body.extend_from_slice(&[0xff; 8]); // INET_DIAG_NOCOOKIE
    body
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
    }
}

/// `struct inet_diag_msg`: state at 1, user at 64, inode at 68. Without a connection the kernel returns the listener;
/// a closing socket has no inode, and is listed as root's.
fn user_of(body: &[u8]) -> Option<u32> {
    let (state, user, inode) = (*body.get(1)?, u32_at(body, 64)?, u32_at(body, 68)?);
    if state == ESTABLISHED && inode != 0 { Some(user) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_within_the_host_tells_its_user_until_it_is_closed() {
        for any in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, far) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            assert_eq!(tcp_user(own, far), Some(rustix::process::geteuid().as_raw()), "{any}");
            assert_eq!(tcp_user(far, SocketAddr::from(([192, 0, 2, 1], 9))), None);
            drop(stream);
            assert_eq!(tcp_user(own, far), None, "{any}: nobody has it any more");
        }
    }
}
