//! The node of a verb, with common options and messages for people.

use crate::failure::Result;
use crate::output::{Output, tell};
use crate::quantity;
use crate::signals::Stop;
use clap::Args;
use std::collections::HashSet;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thalweg::carrier::fault::FaultSettings;
use thalweg::carrier::record::Recorder;
use thalweg::control::Document;
use thalweg::{Around, DiscoverySource, Event, EventReader, Network, Node, PortLimits, RelayLimits, Settings};

/// Options of every verb that opens a node. Those that are not given are settings of the environment or the configuration file.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print JSON: one document, or one per line
    #[arg(long)]
    pub json: bool,
    /// Tell on standard error when channels open and close, too
    #[arg(short, long)]
    pub verbose: bool,
    /// This node's name [default: verb and process id]
    #[arg(long, help_heading = "Node")]
    pub name: Option<String>,
    /// Nodes of other realms are not seen [default: default]
    #[arg(long, help_heading = "Node")]
    pub realm: Option<String>,
    /// Settings to reach other hosts.
    #[command(flatten)]
    pub reach: Reach,
    /// Channels of one publisher that may lead to other hosts; one host may have half of them, one node a quarter
    /// [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Node")]
    pub channels: Option<u32>,
    /// Different sizes of pictures that may be made of one publisher's; one other host may have half of them made
    /// [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Node")]
    pub pictures: Option<u32>,
    /// Make the network worse, for tests:
    /// loss=1%,duplicate=1%,delay=5ms,jitter=1ms,reorder=1%,corrupt=1%,stall=50ms,rate=1Mbit/s,seed=7
    #[arg(long, value_name = "FAULTS", help_heading = "Node")]
    pub fault: Option<FaultSettings>,
    /// Write every frame of this node's channels to a capture file that Wireshark opens
    #[arg(long, value_name = "FILE.pcap", help_heading = "Node")]
    pub capture: Option<PathBuf>,
}

/// Settings of a node to reach other hosts.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Reach {
    /// Listen on this address of this host, too, not on loopback only (repeatable): IP or IP:port
    #[arg(long, value_name = "ADDR", value_parser = quantity::listen, help_heading = "Node")]
    pub listen: Vec<SocketAddr>,
    /// A node or router on another host (repeatable): IP:port
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "Node")]
    pub peer: Vec<String>,
    /// Find nodes of other hosts in a file instead of by Zenoh
    #[arg(long, value_name = "static:FILE", value_parser = quantity::discovery, help_heading = "Node")]
    pub discovery: Option<PathBuf>,
    /// Let administrators of this network change something here, too, not those of this host only (repeatable): 10.0.0.0/8
    #[arg(long, value_name = "NET", help_heading = "Node")]
    pub admin_from: Vec<Network>,
}

impl Reach {
    /// `true` if the node reaches other hosts.
    pub(crate) fn beyond(&self) -> bool {
        !self.listen.is_empty() || !self.peer.is_empty() || self.discovery.is_some()
    }

    /// Settings of a node with this reach; what it leaves open is that of the environment or the configuration file.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        if !self.listen.is_empty() {
            settings.listen.clone_from(&self.listen);
        }
        if !self.peer.is_empty() {
            settings.peers.clone_from(&self.peer);
        }
        if !self.admin_from.is_empty() {
            settings.admin_from.clone_from(&self.admin_from);
        }
        if let Some(file) = &self.discovery {
            settings.discovery = DiscoverySource::Static(file.clone());
        }
        settings
    }

    /// The reach of a node with these settings.
    fn of(settings: &Settings) -> Self {
        let discovery = match &settings.discovery {
            DiscoverySource::Automatic => None,
            DiscoverySource::Static(file) => Some(file.clone()),
        };
        let (listen, peer, admin_from) = (settings.listen.clone(), settings.peers.clone(), settings.admin_from.clone());
        Self { listen, peer, discovery, admin_from }
    }

    /// Warns of each address beyond loopback, which any host may reach.
    pub(crate) fn warn_of_open_addresses(&self) {
        for address in self.listen.iter().filter(|a| !a.ip().is_loopback()) {
            tell(&format!(
                "warning: listening on {} without security: whoever reaches it can read and publish everything",
                address.ip()
            ));
        }
    }

    /// The reach as arguments of a process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let listen = self.listen.iter().flat_map(|address| ["--listen".to_owned(), address.to_string()]);
        let peer = self.peer.iter().flat_map(|peer| ["--peer".to_owned(), peer.clone()]);
        let file = self.discovery.iter().map(|file| format!("--discovery=static:{}", file.display()));
        let admin = self.admin_from.iter().flat_map(|network| ["--admin-from".to_owned(), network.to_string()]);
        listen.chain(peer).chain(file).chain(admin).collect()
    }

    /// Reports each named peer that does not answer, and the reason.
    fn tell_absent(&self) {
        for peer in &self.peer {
            if let Some(because) = absent(peer) {
                tell(&format!(
                    "warning: no node or router answers at {peer} ({because}): what is behind it is not seen"
                ));
            }
        }
    }
}

/// The reason why `endpoint`, such as `tcp/10.0.0.1:7447`, does not answer; `None` if it does, or cannot be asked.
fn absent(endpoint: &str) -> Option<String> {
    let address = endpoint.strip_prefix("tcp/")?.split(['#', '?']).next()?;
    let addresses: Vec<_> = match address.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Some(error.to_string()),
    };
    let failed = addresses.iter().map(|address| TcpStream::connect_timeout(address, ANSWER).err());
    failed.collect::<Option<Vec<_>>>()?.pop().map(|error| error.to_string())
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn open_capture(file: &Path) -> Result<Arc<Recorder>> {
    Recorder::create(file).map_err(|source| {
        let remedy = "name a file in a folder you may write to".to_owned();
        thalweg::Error::System { what: format!("cannot write {}", file.display()), source, remedy }.into()
    })
}

/// Time that a verb waits for nodes of other hosts before it reports.
const SETTLE: Duration = Duration::from_millis(800);
/// Time that a verb waits for a host that neither accepts nor refuses.
const ANSWER: Duration = Duration::from_millis(500);

impl Common {
    /// The values of settings that its flags state, as they would stand in the environment.
    pub(crate) fn stated(&self) -> Vec<(&'static str, String)> {
        let Reach { listen, peer, discovery, admin_from } = &self.reach;
        let discovery = discovery.iter().map(|file| format!("static:{}", file.display()));
        let stated = [
            ("realm", self.realm.clone().unwrap_or_default()),
            ("listen", joined(listen)),
            ("peer", joined(peer)),
            ("discovery", discovery.collect()),
            ("admin-from", joined(admin_from)),
            ("channels", joined(self.channels.as_slice())),
            ("pictures", joined(self.pictures.as_slice())),
        ];
        stated.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The format of results.
    pub(crate) fn output(&self) -> Output {
        Output { json: self.json }
    }

    /// Opens the node of a verb.
    pub(crate) fn open(&self, verb: &str) -> Result<Participant> {
        self.open_with(verb, None)
    }

    /// Opens the node of a relay.
    pub(crate) fn open_relay(&self, limits: RelayLimits) -> Result<Participant> {
        self.open_with("relay", Some(limits))
    }

    fn open_with(&self, verb: &str, relay: Option<RelayLimits>) -> Result<Participant> {
        let stop = Stop::on_signals()?;
        let around = Around { fault: self.fault, record: self.capture.as_deref().map(open_capture).transpose()? };
        let given = self.reach.settings();
        let PortLimits { channels, pictures } = given.limits;
        let settings = Settings {
            name: self.name.clone().unwrap_or_else(|| format!("{verb}-{}", std::process::id())),
            realm: self.realm.clone().unwrap_or_else(|| given.realm.clone()),
            around,
            relay,
            limits: PortLimits {
                channels: self.channels.unwrap_or(channels),
                pictures: self.pictures.unwrap_or(pictures),
            },
            ..given
        };
        let (reach, realm) = (Reach::of(&settings), settings.realm.clone());
        reach.warn_of_open_addresses();
        let node = Node::with_settings(settings)?;
        let notices = Notices { events: node.events(), verbose: self.verbose, told: HashSet::new() };
        Ok(Participant { node, stop, notices, output: self.output(), reach, realm })
    }
}

/// A verb's node.
pub(crate) struct Participant {
    /// The node.
    pub node: Node,
    /// Set when the user asks to end.
    pub stop: Stop,
    /// The format of results.
    pub output: Output,
    /// The realm of the node.
    pub realm: String,
    notices: Notices,
    reach: Reach,
}

impl Participant {
    /// `true` if the node reaches other hosts.
    pub(crate) fn reaches_beyond(&self) -> bool {
        self.reach.beyond()
    }

    /// All other nodes, sorted by name. Nodes of this host are known since the node opened; others are waited for.
    pub(crate) fn settled(&mut self) -> Vec<Document> {
        if self.reach.beyond() {
            self.node.wait_until(SETTLE, || self.stop.asked());
            self.reach.tell_absent();
        }
        self.tell_events();
        self.others()
    }

    /// All other nodes known now, sorted by name.
    pub(crate) fn others(&self) -> Vec<Document> {
        let mut others = self.node.others();
        others.sort_by(|a, b| (&a.name, a.node).cmp(&(&b.name, b.node)));
        others
    }

    /// Reports the events since the last call.
    pub(crate) fn tell_events(&mut self) {
        while let Some(event) = self.notices.events.wait(Duration::ZERO) {
            self.notices.tell(&event);
        }
    }
}

struct Notices {
    events: EventReader,
    verbose: bool,
    told: HashSet<String>,
}

/// Largest number of problems that are remembered as reported.
const MOST_TOLD: usize = 256;

impl Notices {
    /// Reports a problem once, and channels that open and close if asked to.
    fn tell(&mut self, event: &Event) {
        let routine = matches!(event, Event::Matched { .. } | Event::Unmatched { .. });
        let text = event.to_string();
        if routine {
            if self.verbose {
                tell(&text);
            }
        } else if self.told.len() < MOST_TOLD && self.told.insert(text.clone()) {
            tell(&text);
        }
    }
}
