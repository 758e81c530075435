//! Opening a node: listeners, its socket in the run directory, back ends, the control thread.

use super::admission::Admission;
use super::calls::Calls;
use super::control::{Command, Control, WAKER};
use super::entries::{Descriptors, Entry};
use super::host::Relay;
use super::housekeeping::Housekeeping;
use super::matching::Matching;
use super::news::Discoveries;
use super::peering::Peering;
use super::priority::Priorities;
use super::state::NodeState;
use crate::carrier;
use crate::control::local::LocalEndpoint;
use crate::control::{self, Document, NodeId, Origin, Sink};
use crate::error::{Error, Result};
use crate::guard::{or_abort, parsing};
use crate::settings::Settings;
use linux::poll::{Poller, Readiness, Waker};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait of a node that opens for the peers that are on this host already.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// The port for discovery links of a node that listens beyond loopback, so that others can name the node by its address alone.
#[cfg(feature = "zenoh")]
const DISCOVERY_PORT: u16 = 7447;

/// [`DISCOVERY_PORT`] if it is free on all these addresses, else 0: any port. The second node of a host cannot be named by its address.
#[cfg(feature = "zenoh")]
fn discovery_port(addresses: &[std::net::IpAddr]) -> u16 {
    let free = |ip: &std::net::IpAddr| TcpListener::bind((*ip, DISCOVERY_PORT)).is_ok();
    if addresses.iter().all(free) { DISCOVERY_PORT } else { 0 }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// Opens a node: listeners, back ends, thread.
    pub(crate) fn start(settings: Settings) -> Result<(Arc<NodeState>, JoinHandle<()>)> {
        let waker = Arc::new(Waker::new().map_err(|e| Error::system("cannot make an eventfd", e))?);
        let poller = Poller::new().map_err(|e| Error::system("cannot make an epoll set", e))?;
        let listeners = listen(&settings)?;
        let id = NodeId(random());
        let (unix, endpoint) = LocalEndpoint::bind(&settings.realm, id)
            .and_then(|(unix, endpoint)| unix.set_nonblocking(true).map(|()| (unix, endpoint)))
            .map_err(|e| Error::system("cannot make the node's socket in the run directory", e))?;
        let document = describe(&settings, id, &listeners, &endpoint)?;
        let (sender, commands) = mpsc::channel();
        let state = Arc::new(NodeState::new(settings, endpoint.users(), document, waker.clone(), sender));
        poller.add(&*waker, WAKER, Readiness::IN).map_err(|e| Error::system("cannot watch an eventfd", e))?;
        let mut control = Self {
            state: state.clone(),
            descriptors: Descriptors::new(poller),
            commands,
            discoveries: Discoveries::default(),
            groups: Default::default(),
            interfaces: Default::default(),
            matching: matching(&state),
            ends: BTreeMap::new(),
            attachments: Default::default(),
            cut_off: Default::default(),
            calls: Calls::new(random()),
            lasting: Default::default(),
            priorities: priorities(&state),
            moves: Default::default(),
            heartbeat: Default::default(),
            relay: Relay::new(state.settings.relay, Instant::now()),
            housekeeping: Housekeeping::new(Instant::now()),
            policies: Default::default(),
            peering: Peering::new(state.settings.relay.is_some(), Instant::now()),
            admission: Admission::new(rustix::process::geteuid().as_raw()),
            #[cfg(test)]
            panics: false,
        };
        for listener in listeners {
            control.watch(Entry::Tcp(listener), Readiness::IN);
        }
        control.watch(Entry::Unix(unix), Readiness::IN);
        control.directory_event(Origin::Own, control::Event::Document(Box::new(state.document().as_ref().clone())));
        // The control thread runs while the back ends settle: the first links of other nodes arrive at this node's listeners.
        let mut endpoint = endpoint;
        endpoint.tell(control.peering.told()).map_err(|e| Error::system("cannot use the run directory", e))?;
        let sources = control.link_sources(&endpoint)?;
        if endpoint.users() == control::local::Users::Everybody {
            let dir = endpoint.path().parent().unwrap_or(endpoint.path()).display().to_string();
            control.warn(format!("the run directory {dir} is open to every user of this host (its mode says so)"));
        }
        control.discoveries.endpoint = Some(endpoint);
        let links = control::links::Links::start(state.document(), sources, control.sink())
            .map_err(|e| Error::system("cannot start the control links", e))?;
        let settled = links.settlement();
        let _ = state.settlement.set(links.settlement());
        control.discoveries.add(links);
        control.start_zenoh();
        let thread = linux::thread::spawn(parsing("control"), move || or_abort("the control thread", || control.run()))
            .map_err(|e| Error::system("cannot start a thread", e))?;
        settled.wait(SETTLE);
        // The documents of the peers are in the mailbox. After the barrier they are known, so that an open node can check names.
        let (tell, told) = mpsc::channel();
        state.command(Command::Barrier(tell));
        let _ = told.recv_timeout(SETTLE);
        Ok((state, thread))
    }

    pub(super) fn link_sources(&self, endpoint: &LocalEndpoint) -> Result<Vec<control::links::Source>> {
        use crate::settings::DiscoverySource;
        match &self.state.settings.discovery {
            DiscoverySource::Automatic => Ok(vec![endpoint.sockets_of(&endpoint.sharing(self.peering.told()))]),
            DiscoverySource::Static(file) => {
                let nodes = control::static_file::read(file).map_err(|e| Error::Configuration(e.to_string()))?;
                let here = endpoint.sockets_of(&endpoint.sharing(self.peering.told()));
                Ok(vec![here, control::static_file::source(&nodes)])
            }
        }
    }

    #[cfg(feature = "zenoh")]
    pub(super) fn start_zenoh(&mut self) {
        use crate::settings::DiscoverySource;
        let settings = &self.state.settings;
        let beyond: Vec<std::net::IpAddr> =
            settings.listen.iter().map(|a| a.ip()).filter(|ip| !ip.is_loopback()).collect();
        if settings.discovery != DiscoverySource::Automatic || (beyond.is_empty() && settings.peers.is_empty()) {
            return;
        }
        let port = discovery_port(&beyond);
        if port == 0 {
            self.warn(format!("port {DISCOVERY_PORT} is taken: others find this node by scouting, by a router, or when this node names them, but not by naming it"));
        }
        let zenoh =
            control::zenoh::ZenohSettings { listen: beyond, peers: settings.peers.clone(), scouting: true, port };
        match control::zenoh::Zenoh::start(self.state.document(), &zenoh, self.sink()) {
            Ok(opened) => self.discoveries.add(opened),
            Err(problem) => self.warn(format!("no discovery across hosts: {problem}")),
        }
    }

    #[cfg(not(feature = "zenoh"))]
    pub(super) fn start_zenoh(&mut self) {
        let settings = &self.state.settings;
        let automatic = settings.discovery == crate::settings::DiscoverySource::Automatic;
        if automatic && !(settings.listen.is_empty() && settings.peers.is_empty()) {
            self.warn("this build has no discovery across hosts: use --discovery static:FILE, or build with the feature zenoh, as `cargo install --path crates/cli` does".into());
        }
    }

    pub(super) fn sink(&self) -> Sink {
        let state = Arc::downgrade(&self.state);
        let there = state.clone();
        let deliver = move |origin: Origin, event: control::Event| {
            if let Some(state) = state.upgrade() {
                state.mailbox.put(origin, event);
                state.waker.wake();
            }
        };
        // A closing node always has room: it does not hold up its links.
        let has_room = move || there.upgrade().is_none_or(|state| state.is_closed() || state.mailbox.has_room());
        Sink::with_origin(deliver, has_room)
    }
}

fn matching(state: &NodeState) -> Matching {
    let carriers = state.settings.carriers.iter().map(|carrier| carrier::Name::from(carrier.name()));
    Matching::new(state.id, carriers.filter(|name| !name.is_built_in()).collect(), !state.settings.around.is_nothing())
}

fn priorities(state: &NodeState) -> Priorities {
    Priorities::new(state.id, linux::sched::read(0).map(|found| found.affinity).unwrap_or_default())
}

pub(super) fn listen(settings: &Settings) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in settings.listen.iter().filter(|a| !a.ip().is_loopback() || a.port() != 0) {
        let listener =
            TcpListener::bind(address).map_err(|e| Error::system(format!("cannot listen on {address}"), e))?;
        listeners.push(listener);
    }
    // A host without IPv6 (or without loopback addresses) still has the other family.
    let own: Vec<_> = crate::settings::loopback().iter().map(TcpListener::bind).collect();
    let failed = own.iter().all(std::result::Result::is_err);
    for result in own {
        match result {
            Ok(listener) => listeners.push(listener),
            Err(error) if failed && listeners.is_empty() => {
                return Err(Error::system("cannot listen on 127.0.0.1 or ::1", error));
            }
            Err(_) => {}
        }
    }
    for listener in &listeners {
        listener.set_nonblocking(true).map_err(|e| Error::system("cannot make a listener non-blocking", e))?;
    }
    Ok(listeners)
}

pub(super) fn describe(
    settings: &Settings,
    node: NodeId,
    listeners: &[TcpListener],
    endpoint: &LocalEndpoint,
) -> Result<Document> {
    let mut addresses = Vec::new();
    for address in listeners.iter().filter_map(|l| l.local_addr().ok()) {
        if address.ip().is_unspecified() {
            let all = linux::net::interfaces().map_err(|e| Error::system("cannot list interfaces", e))?;
            let same_family = all.iter().filter(|i| i.up && !i.loopback && i.address.is_ipv4() == address.is_ipv4());
            addresses.extend(same_family.map(|i| std::net::SocketAddr::new(i.address, address.port())));
        } else {
            addresses.push(address);
        }
    }
    Ok(Document {
        node,
        name: settings.name.clone(),
        realm: settings.realm.clone(),
        host: linux::clock::host_id(),
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        clock: linux::clock::clock_id(),
        pid: std::process::id(),
        incarnation: linux::clock::wall_ns(),
        revision: 1,
        addresses,
        socket: Some(endpoint.path().to_owned()),
        ports: control::Ports::new(),
        relay: settings.relay.map(|_| control::RelayLoad::default()),
    })
}

/// Random bits from the standard library's hash keys, which come from the kernel: unguessable enough for ids.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(linux::clock::wall_ns());
    hasher.finish()
}
