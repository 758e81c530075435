//! The sessions of a Zenoh network: one for each class in use, because Zenoh marks the packets of a whole link.

use super::failed;
use crate::engine::{Error, Identity, Result};
use crate::lock;
use ::zenoh::liveliness::LivelinessToken;
use ::zenoh::sample::SampleKind;
use ::zenoh::{Config, Session, Wait};
use qos::Class;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use thalweg::control::NodeId;
use xxhash_rust::xxh3::xxh3_64;

/// The place of a Zenoh network, and the way to it.
pub(crate) struct Network {
    pub(crate) connect: Vec<String>,
    /// Where the first session, of class NORMAL, accepts connections; each other one, where [`Self::others_listen`] says.
    pub(crate) listen: Vec<String>,
    pub(crate) others_listen: Vec<String>,
    pub(crate) scouting: bool,
    pub(crate) max_message: u32,
    /// Further keys and values (JSON) of the configuration.
    pub(crate) more: Vec<(&'static str, String)>,
}

impl Network {
    /// Keys and values (JSON) of the session of a class.
    fn entries(&self, class: Class) -> Vec<(&'static str, String)> {
        let marked =
            |endpoints: &[String]| endpoints.iter().map(|endpoint| marked(endpoint, class)).collect::<Vec<_>>();
        let listen = if class == Class::Normal { &self.listen } else { &self.others_listen };
        // A peer that listens nowhere is not reached by other peers, and routers leave peers to each other. A client's samples they carry.
        let mode = if listen.is_empty() && !self.scouting { "client" } else { "peer" };
        let mut entries = vec![
            ("mode", format!("\"{mode}\"")),
            ("connect/endpoints", list(&marked(&self.connect))),
            ("listen/endpoints", list(&marked(listen))),
            ("connect/retry", r#"{"period_init_ms":50,"period_max_ms":1000,"period_increase_factor":2}"#.to_owned()),
            // A peer that starts before its router waits for it. A client does not open: its caller tries again.
            ("connect/exit_on_failure", "false".to_owned()),
            ("scouting/multicast/enabled", self.scouting.to_string()),
            ("scouting/gossip/enabled", "true".to_owned()),
            ("transport/link/tx/lease", "1000".to_owned()),
            ("transport/shared_memory/enabled", "false".to_owned()),
            ("transport/link/rx/max_message_size", (u64::from(self.max_message) + 4096).to_string()),
        ];
        entries.extend(self.more.iter().cloned());
        entries
    }
}

/// An endpoint whose packets have the mark of a class, unless it states one.
fn marked(endpoint: &str, class: Class) -> String {
    let protocol = if endpoint.contains('/') { "" } else { "tcp/" };
    let mark = match (endpoint.contains('#'), class.dscp()) {
        (true, _) | (false, 0) => String::new(),
        (false, dscp) => format!("#dscp={:#04x}", dscp << 2), // Zenoh takes the whole TOS octet
    };
    format!("{protocol}{endpoint}{mark}")
}

fn list(texts: &[String]) -> String {
    serde_json::Value::from(texts).to_string()
}

/// Below this key each bridge has a liveliness token: data space and rules, and its node.
const BRIDGES: &str = "@thalweg/bridge";

pub(crate) struct Sessions {
    network: Network,
    /// By class, in the order of [`Class::ALL`]; opened when first used.
    open: Mutex<[Option<Session>; 4]>,
    bridges: Arc<Mutex<BTreeSet<NodeId>>>,
    _token: Option<LivelinessToken>,
}

impl Sessions {
    /// `space` is the data space within the network: engine, and prefix or domain.
    pub(crate) fn open(network: Network, space: &str, bridge: Option<Identity>) -> Result<Self> {
        let (open, bridges) = (Mutex::default(), Arc::default());
        let mut sessions = Self { network, open, bridges, _token: None };
        let session = sessions.of(Class::Normal)?;
        if let Some(Identity { node, rules }) = bridge {
            // Bridges of other rules carry other topics: they do not stand in for this one.
            let place = format!("{BRIDGES}/{:016x}", xxh3_64(format!("{space} {rules}").as_bytes()));
            sessions.watch(&session, &place)?;
            let token = session.liveliness().declare_token(format!("{place}/{node}"));
            sessions._token = Some(token.wait().map_err(failed)?);
        }
        Ok(sessions)
    }

    /// The session of a class. The first use of a class opens it, which takes up to half a second.
    pub(crate) fn of(&self, class: Class) -> Result<Session> {
        let mut open = lock(&self.open);
        let at = Class::ALL.iter().position(|other| *other == class).and_then(|index| open.get_mut(index));
        let Some(at) = at else { return Err(Error::Usage(format!("no class {class}"))) };
        if let Some(session) = at {
            return Ok(session.clone());
        }
        let mut config = Config::default();
        for (key, value) in self.network.entries(class) {
            config
                .insert_json5(key, &value)
                .map_err(|error| Error::Usage(format!("Zenoh: {key} = {value}: {error}")))?;
        }
        let session = ::zenoh::open(config).wait().map_err(failed)?;
        Ok(at.insert(session).clone())
    }

    /// `true` while there is neither a router nor a peer.
    pub(crate) fn is_alone(&self) -> bool {
        let is_connected = |session: &Session| {
            let info = session.info();
            info.routers_zid().wait().next().is_some() || info.peers_zid().wait().next().is_some()
        };
        !lock(&self.open).iter().flatten().any(is_connected)
    }

    pub(crate) fn bridges(&self) -> Vec<NodeId> {
        lock(&self.bridges).iter().copied().collect()
    }

    /// Follows the tokens of bridges.
    fn watch(&self, session: &Session, place: &str) -> Result<()> {
        let known = self.bridges.clone();
        let tokens = session.liveliness().declare_subscriber(format!("{place}/*")).history(true);
        let tokens = tokens.callback(move |sample| {
            let name = sample.key_expr().as_str().rsplit('/').next().unwrap_or_default().to_owned();
            let Ok(node) = NodeId::try_from(name) else { return };
            let mut known = lock(&known);
            match sample.kind() {
                SampleKind::Put if known.len() < MOST_BRIDGES => drop(known.insert(node)),
                SampleKind::Put => {}
                SampleKind::Delete => drop(known.remove(&node)),
            }
        });
        tokens.background().wait().map_err(failed)
    }
}

/// Tokens of bridges that are remembered.
const MOST_BRIDGES: usize = 256;

impl Drop for Sessions {
    fn drop(&mut self) {
        self._token = None;
        lock(&self.open).iter_mut().filter_map(Option::take).for_each(|session| drop(session.close().wait()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_session_whose_links_have_its_mark() {
        assert_eq!(marked("10.0.0.1:7447", Class::Critical), "tcp/10.0.0.1:7447#dscp=0xb0");
        assert_eq!(marked("tcp/10.0.0.1:7447", Class::Low), "tcp/10.0.0.1:7447#dscp=0x28");
        assert_eq!(marked("tcp/10.0.0.1:7447", Class::Normal), "tcp/10.0.0.1:7447");
        assert_eq!(marked("udp/[fd00::1]:7447#dscp=0x10", Class::High), "udp/[fd00::1]:7447#dscp=0x10");
    }

    #[test]
    fn only_the_first_session_listens_where_it_is_told() {
        let (listen, others_listen) = (vec!["127.0.0.1:7447".to_owned()], Vec::new());
        let network =
            Network { connect: Vec::new(), listen, others_listen, scouting: false, max_message: 1, more: Vec::new() };
        let listen = |class| network.entries(class).into_iter().find(|(key, _)| *key == "listen/endpoints").unwrap().1;
        assert_eq!([Class::Normal, Class::High].map(listen), [r#"["tcp/127.0.0.1:7447"]"#, "[]"]);
    }
}
