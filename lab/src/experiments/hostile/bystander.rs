//! A process that is no node, in the nodes' place: it reads a stranger's data and drops it. If a stranger sends
//! it as much, the effect on the pair is the machine's share of an attack; the rest is the nodes' share.

use super::client::Door;
use super::pair::LONG;
use crate::error::Result;
use crate::lab::Lab;
use crate::part::{Orders, Part, Place};
use linux::poll::{Poller, Readiness};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Name of the role.
pub const ROLE: &str = "bystander";
/// Largest number of connections: as many as nodes let strangers wait (16 of a peer), and links they have.
const MOST_HELD: usize = 64;
/// The slice of a node's control threads, so that the pair takes the processor from both equally soon.
const SLICE_NS: u64 = 10_000_000;

/// Its listeners in place of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listens {
    /// Over TCP.
    pub tcp: SocketAddr,
    /// By a unix socket.
    pub unix: PathBuf,
}

impl Listens {
    /// Its listeners as doors: TCP, unix.
    pub fn doors(&self) -> (Door, Door) {
        (Door::Tcp(self.tcp), Door::Unix(self.unix.clone()))
    }
}

/// Starts it; returns its listeners in place of each of these nodes.
///
/// # Errors
/// As [`Part::start`] and [`Part::hear`].
pub fn start(lab: &Lab, place: &Place, roles: &[String]) -> Result<(Part, BTreeMap<String, Listens>)> {
    let folder = lab.folder().join(ROLE);
    std::fs::create_dir_all(&folder)?;
    let mut part = Part::start(lab, place.clone(), ROLE, &json!({"roles": roles, "folder": folder}))?;
    let listens = part.hear(lab, LONG)?;
    Ok((part, listens))
}

/// The role. Its thread ends with the process.
pub(crate) fn play(mut orders: Orders) -> Result {
    let settings: Value = orders.settings()?;
    let folder = PathBuf::from(settings["folder"].as_str().unwrap_or_default());
    let (mut listeners, mut listens) = (Vec::<OwnedFd>::new(), BTreeMap::new());
    for role in settings["roles"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let unix = folder.join(role);
        let _ = std::fs::remove_file(&unix); // of the attack before
        listens.insert(role.to_owned(), Listens { tcp: tcp.local_addr()?, unix: unix.clone() });
        listeners.extend([tcp.into(), UnixListener::bind(&unix)?.into()]);
    }
    let body = move || drop(serve(&listeners));
    let settings = linux::thread::Settings { slice_ns: Some(SLICE_NS), ..linux::thread::Settings::named(ROLE) };
    linux::thread::spawn(settings, body)?;
    orders.say(&listens)?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}

/// Accepts every connection, reads everything, and holds the latest ones.
fn serve(listeners: &[OwnedFd]) -> io::Result<()> {
    let poller = Poller::new()?;
    for (index, listener) in listeners.iter().enumerate() {
        rustix::io::ioctl_fionbio(listener, true)?;
        poller.add(listener, index as u64, Readiness::IN)?;
    }
    let (mut ready, mut held, mut next) = (Vec::with_capacity(64), HashMap::new(), listeners.len() as u64);
    let mut bytes = vec![0; 64 << 10];
    loop {
        poller.wait(&mut ready, None)?;
        for event in &ready {
            if let Some(listener) = listeners.get(event.token as usize) {
                let Ok(stream) = rustix::net::accept(listener) else { continue };
                poller.add(&stream, next, Readiness::IN)?;
                held.insert(next, stream);
                held.remove(&next.saturating_sub(MOST_HELD as u64));
                next += 1;
                continue;
            }
            let Some(stream) = held.get(&event.token) else { continue };
            let read = rustix::net::recv(stream, &mut bytes[..], RecvFlags::DONTWAIT);
            if matches!(read, Ok((0, _))) || read.is_err_and(|e| e != rustix::io::Errno::AGAIN) {
                held.remove(&event.token);
            }
        }
    }
}
