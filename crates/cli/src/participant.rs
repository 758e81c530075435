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

/// Options of every verb that opens a node.
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
    /// Nodes of other realms are not seen
    #[arg(long, default_value = "default", help_heading = "Node")]
    pub realm: String,
    /// Settings to reach other hosts.
    #[command(flatten)]
    pub reach: Reach,
    /// Channels of one publisher that may lead to other hosts; one host may have half of them, one node a quarter
    #[arg(long, value_name = "COUNT", default_value_t = PortLimits::default().channels, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Node")]
    pub channels: u32,
    /// Different sizes of pictures that may be made of one publisher's; one other host may have half of them made
    #[arg(long, value_name = "COUNT", default_value_t = PortLimits::default().pictures, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Node")]
    pub pictures: u32,
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
    /// Let administrators of this network change something here, too, not those of this host only (repeatable): 10.0.0.0/8,
    /// or in the environment, THALWEG_ADMIN_FROM
    #[arg(long, value_name = "NET", help_heading = "Node")]
    pub admin_from: Vec<Network>,
}

impl Reach {
    /// `true` if the node reaches other hosts.
    pub(crate) fn beyond(&self) -> bool {
        !self.listen.is_empty() || !self.peer.is_empty() || self.discovery.is_some()
    }

    /// Settings of a node with this reach.
    pub(crate) fn settings(&self) -> Settings {
        let discovery = self.discovery.clone().map_or(DiscoverySource::Automatic, DiscoverySource::Static);
        let (listen, peers, admin_from) = (self.listen.clone(), self.peer.clone(), self.admin_from.clone());
        Settings { listen, peers, discovery, admin_from, ..Settings::default() }
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
        let settings = Settings {
            name: self.name.clone().unwrap_or_else(|| format!("{verb}-{}", std::process::id())),
            realm: self.realm.clone(),
            around,
            relay,
            limits: PortLimits { channels: self.channels, pictures: self.pictures },
            ..self.reach.settings()
        };
        self.reach.warn_of_open_addresses();
        let node = Node::with_settings(settings)?;
        let notices = Notices { events: node.events(), verbose: self.verbose, told: HashSet::new() };
        Ok(Participant { node, stop, notices, output: self.output(), reach: self.reach.clone() })
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
    notices: Notices,
    reach: Reach,
}

impl Participant {
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
        let mut others: Vec<_> = self.node.nodes().into_iter().filter(|d| d.node != self.node.id()).collect();
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
