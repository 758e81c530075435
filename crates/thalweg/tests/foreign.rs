//! A carrier that is not the library's own, by its public traits only: datagrams of unix sockets, which are reliable.
#![allow(clippy::unwrap_used)] // all of this is test

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg::carrier::{Capabilities, Carrier, Opening, Parameters, Place, ReceiveHalf, SendHalf, Sender, TICK};
use thalweg::codec::Raw;
use thalweg::{Node, Settings};

const NAME: &str = "pigeon";
const LONG: Duration = Duration::from_secs(20);

/// The carrier, and the number of datagrams that it took.
#[derive(Default)]
struct Pigeon(Arc<AtomicU64>);

struct Send(UnixDatagram, Arc<AtomicU64>);
struct Receive(UnixDatagram);

impl Carrier for Pigeon {
    fn name(&self) -> &str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        let max_datagram = Some(60_000);
        let (reliable, ordered) = (true, true);
        Capabilities { reliable, ordered, stream: false, multicast: false, loan: false, marks: false, max_datagram }
    }
    fn receiver(&self, _: &Place) -> io::Result<(Box<dyn Opening>, Parameters)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{NAME}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_read_timeout(Some(TICK))?;
        Ok((Box::new(Receive(socket)), Parameters { other: name.into_bytes(), ..Parameters::default() }))
    }
    fn sender(&self, _: &Place, subscriber: &Parameters) -> io::Result<Sender> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&SocketAddr::from_abstract_name(&subscriber.other)?)?;
        socket.set_nonblocking(true)?;
        let (half, parameters) = (Box::new(Send(socket, self.0.clone())), Parameters::default());
        Ok(Sender { half, capabilities: self.capabilities(), parameters })
    }
}

impl Opening for Receive {
    fn complete(self: Box<Self>, _: &Parameters) -> io::Result<Box<dyn ReceiveHalf>> {
        Ok(self)
    }
}

impl SendHalf for Send {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        // Before it is sent: the receiver may have it before this thread goes on.
        self.1.fetch_add(1, Relaxed);
        self.0.send(&bytes).inspect_err(|_| {
            self.1.fetch_sub(1, Relaxed);
        })
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
    fn close(&self) {}
}

impl ReceiveHalf for Receive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        self.0.set_nonblocking(!wait)?;
        self.0.recv(buffer)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

fn node(name: &str, carriers: Vec<Arc<dyn Carrier>>) -> Node {
    let realm = format!("foreign-{}", std::process::id());
    Node::with_settings(Settings { name: name.into(), realm, carriers, ..Settings::default() }).unwrap()
}

/// Samples of any size pass (Y-08), whole and in order, and nothing else carries them.
#[test]
fn samples_pass_over_an_added_carrier() {
    let [here, there] = [(); 2].map(|()| Arc::new(Pigeon::default()));
    let (a, b) = (node("a", vec![here.clone()]), node("b", vec![there]));
    let (tell, told) = channel();
    let subscriber = b.subscriber::<Raw>("/letters").carriers([NAME]);
    let subscriber =
        subscriber.callback(move |sample| tell.send((sample.info().seq, sample.to_vec())).unwrap()).unwrap();
    let mut publisher = a.publisher::<Raw>("/letters").carriers([NAME]).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG), "{:?}", subscriber.channels());
    for (index, size) in [0, 1, 64, 50_000, 300_000].into_iter().cycle().take(200).enumerate() {
        let message: Vec<u8> = (0..size).map(|i| (i * 7 + index) as u8).collect();
        let seq = publisher.publish(&message).unwrap().seq;
        let (came, got) = told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{size} bytes did not arrive"));
        assert!(came == seq && got == message, "{size} bytes changed on the way");
    }
    assert_eq!(subscriber.channels()[0].carrier, NAME);
    let taken = here.0.load(Relaxed);
    assert!(taken >= 160 + 40 * 6, "{taken} datagrams of 160 small samples and 40 of 300,000 B");
}

/// A node without the carrier has no channel over it; with another one beside it, it takes that.
#[test]
fn a_node_without_an_added_carrier_takes_another() {
    let realm = format!("foreign-lacks-{}", std::process::id());
    let open = |name: &str, carriers| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), carriers, ..Settings::default() })
            .unwrap()
    };
    let (a, b) = (open("a", Vec::new()), open("b", vec![Arc::new(Pigeon::default()) as Arc<dyn Carrier>]));
    let subscriber = b.subscriber::<Raw>("/letters").carriers([NAME, "tcp"]).open().unwrap();
    let _publisher = a.publisher::<Raw>("/letters").open().unwrap();
    assert!(subscriber.wait_connected(1, LONG));
    assert_eq!(subscriber.channels()[0].carrier, "tcp");
}
