//! Succession of channels. A subscriber that comes again, perhaps from another address, takes the place of its channel while the publisher
//! still sends to the former place. The names of node and port in a request are known to everybody, so they prove nothing. The proof is the
//! token, which only the publisher gets. A channel without a token gives way to the address of its stream.
//!
//! A subscriber without a proof is served beside the older channel, like a subscriber of any other name. If it were refused, a peer that
//! comes first with another's name would keep the owner of the name out.

use super::control::Control;
use super::entries::Entry;
use super::offer::ends;
use crate::channel::Channel;
use crate::handshake::Request;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The channel of a request's ports that was opened before.
pub(super) enum Before {
    /// There is no such channel.
    Nothing,
    /// A channel of the same subscriber, which gives way, with its index among the entries; without one, it is cut off.
    Its(Option<usize>, Arc<Channel>),
    /// A channel that is not proven to be the subscriber's.
    Anothers,
}

impl Before {
    /// The number of the channel that gives way.
    pub(super) fn as_channel(&self) -> Option<u64> {
        if let Before::Its(_, channel) = self { Some(channel.id) } else { None }
    }

    pub(super) fn is_anothers(&self) -> bool {
        matches!(self, Before::Anothers)
    }
}

impl Control {
    /// The channel that was opened before for the ports of a request. Channels over shared memory do not count: a ring's slots are free
    /// only when the subscriber's own sign shows that they are not read any more.
    pub(super) fn opened_before(&self, request: &Request, stream: &OwnedFd) -> Before {
        let mut found = Before::Nothing;
        for (index, entry) in self.descriptors.iter() {
            let (Entry::Served(its, Some(channel)) | Entry::Shared(its, Some(channel), _)) = entry else {
                continue;
            };
            if (channel.publisher, channel.subscriber) != ends(request) {
                continue;
            }
            if gives_way(channel.token.get().copied(), its, request.token, stream) {
                return Before::Its(Some(index), channel.clone());
            }
            found = Before::Anothers;
        }
        self.waiting_for(request).map_or(found, |channel| Before::Its(None, channel))
    }
}

/// `true` if a channel with token `opened` over stream `its` gives way to a request with token `shown` over `stream`.
fn gives_way(opened: Option<u64>, its: &TcpStream, shown: Option<u64>, stream: &OwnedFd) -> bool {
    match opened {
        Some(_) => opened == shown,
        // The kernel has no address for a stream that is over. A subscriber at the unix socket was admitted by its user.
        None => address(its).is_none_or(|before| address(stream).is_none_or(|now| now == before)),
    }
}

fn address(stream: &impl AsFd) -> Option<IpAddr> {
    let peer = socket2::SockRef::from(stream).peer_addr().ok()?;
    Some(peer.as_socket()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    fn from(address: [u8; 4], listener: &TcpListener) -> (TcpStream, TcpStream) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        (listener.accept().unwrap().0, socket.into())
    }

    #[test]
    fn a_channel_gives_way_to_its_token_and_without_one_to_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (old, _one) = from([127, 0, 0, 2], &listener);
        let (same, _two) = from([127, 0, 0, 2], &listener);
        let (other, _three) = from([127, 0, 0, 3], &listener);
        let unix = OwnedFd::from(UnixStream::pair().unwrap().0);
        let [same, other] = [same, other].map(OwnedFd::from);
        assert!(gives_way(Some(7), &old, Some(7), &other), "from another address");
        for stream in [&same, &other, &unix] {
            assert!(!gives_way(Some(7), &old, Some(8), stream) && !gives_way(Some(7), &old, None, stream));
        }
        assert!(gives_way(None, &old, None, &same) && gives_way(None, &old, Some(7), &same), "an older version's");
        assert!(!gives_way(None, &old, None, &other) && !gives_way(None, &old, Some(7), &other));
        assert!(gives_way(None, &old, None, &unix), "a user that was admitted");
    }
}
