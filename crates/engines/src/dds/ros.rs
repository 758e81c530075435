//! What ROS 2 has beside DDS (`rmw_cyclonedds_cpp`, `rmw_fastrtps_cpp`): names of topics and types, type hashes in USER_DATA, and
//! `ros_discovery_info`, by which each participant says which nodes it has, with which endpoints (`rmw_dds_common`).

use super::failed;
use super::graph::{Graph, MOST_ENDPOINTS};
use crate::engine::{Error, Result};
use crate::lock;
use cyclone::{Guid, Participant, Policies, Reader, Taken, Writer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg::codec::{from_cdr, to_cdr};

/// The topic of nodes, and its type (`rmw_dds_common/msg/ParticipantEntitiesInfo.msg`, with GIDs of 16 bytes since Iron).
const TOPIC: &str = "ros_discovery_info";
const TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";
const TYPE_HASH: &str = "RIHS01_91a0593bacdcc50ea9bdcf849a938b128412cc1ea821245c663bcd26f83c295e";

/// Longest name of a node that is shown, in bytes.
const MAX_NODE: usize = 512;
/// Most nodes of a participant: a process with composed nodes has tens.
const MOST_NODES: usize = 1024;

/// USER_DATA of an endpoint of this type (`rmw_dds_common`, `qos.cpp`: `encode_type_hash_for_user_data_qos`).
pub(super) fn user_data(type_hash: Option<&str>) -> Vec<u8> {
    type_hash.map(|hash| format!("typehash={hash};").into_bytes()).unwrap_or_default()
}

/// The type hash that USER_DATA state.
pub(super) fn type_hash(user_data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(user_data).ok()?;
    text.split(';').find_map(|entry| entry.strip_prefix("typehash=")).map(str::to_owned)
}

/// The name in ROS 2 of a type in DDS: `std_msgs::msg::dds_::String_` is `std_msgs/msg/String`.
pub(super) fn ros_name(name: &str) -> Option<String> {
    let mut parts = name.strip_suffix('_')?.split("::");
    let (package, group, own, short) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (own == "dds_" && parts.next().is_none()).then(|| format!("{package}/{group}/{short}"))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Nodes {
    participant: [u8; 16],
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Node {
    namespace: String,
    name: String,
    readers: Vec<[u8; 16]>,
    writers: Vec<[u8; 16]>,
}

/// A node of ours, which others are told of.
pub(super) struct Membership {
    info: Mutex<Ends>,
    graph: Arc<Graph>,
    participant: Guid,
    node: String,
    writer: Writer,
}

#[derive(Default)]
struct Ends {
    readers: BTreeSet<Guid>,
    writers: BTreeSet<Guid>,
    /// Others have not been told of the last change.
    untold: bool,
}

/// An end of our node, until this is dropped.
pub(super) struct Member {
    of: Arc<Membership>,
    guid: Guid,
}

/// Policies of the topic of nodes.
fn of_nodes() -> Policies {
    Policies {
        reliable: true,
        // It is written with a node's ends locked, in the bridge's loop: what there is no room for is told later.
        blocking: Duration::ZERO,
        transient_local: true,
        history: Some(1),
        user_data: user_data(Some(TYPE_HASH)),
        ..Policies::default()
    }
}

/// Takes the nodes of others, until the reader is dropped.
pub(super) fn listen(participant: &Participant, graph: &Arc<Graph>) -> Result<Reader> {
    let told = graph.clone();
    let take = Box::new(move |taken: &Taken<'_>| {
        // The message states a participant, too, which could be anybody's. What a writer says that is not known is out of date.
        let Some(writer) = taken.writer else { return };
        match nodes(taken.message, writer) {
            Ok(names) => told.named(writer.participant(), names),
            Err(wrong) => told.refuse(&format!("{TOPIC}: {wrong} (nodes of Humble and before write another form)")),
        }
    });
    participant.reader(TOPIC, TYPE, false, &of_nodes(), take).map_err(failed)
}

impl Membership {
    /// Enters the graph of ROS 2 as a node, which has the ends of a participant.
    pub(super) fn open(participant: &Participant, graph: &Arc<Graph>, node: String) -> Result<Arc<Self>> {
        let is_name = node.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && node.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            let allowed = "letters, digits and '_' are allowed, a digit not in front";
            return Err(Error::Usage(format!("node of ROS 2 {node:?}: {allowed}")));
        }
        let writer = participant.writer(TOPIC, TYPE, None, &of_nodes()).map_err(failed)?;
        let (info, graph, participant) = (Mutex::default(), graph.clone(), participant.guid());
        let membership = Self { info, graph, participant, node, writer };
        membership.write(&Ends::default())?;
        Ok(Arc::new(membership))
    }

    /// Names an end as one of our node.
    pub(super) fn enter(self: &Arc<Self>, guid: Guid, writes: bool) -> Member {
        let mut ends = lock(&self.info);
        if writes {
            ends.writers.insert(guid)
        } else {
            ends.readers.insert(guid)
        };
        self.tell(&mut ends);
        Member { of: self.clone(), guid }
    }

    /// Tells others what there was no room for before.
    pub(super) fn catch_up(&self) {
        let mut ends = lock(&self.info);
        if ends.untold {
            self.tell(&mut ends);
        }
    }

    /// Tells others now, or with the next change, or when it [catches up](Self::catch_up). The first failure is counted.
    fn tell(&self, ends: &mut Ends) {
        let told = self.write(ends);
        let before = std::mem::replace(&mut ends.untold, told.is_err());
        if let Err(wrong) = told
            && !before
        {
            self.graph.refuse(&format!("{TOPIC}: {wrong}; it is told again"));
        }
    }

    fn write(&self, ends: &Ends) -> Result<()> {
        let all = |guids: &BTreeSet<Guid>| guids.iter().map(|guid| guid.0).collect();
        let (readers, writers) = (all(&ends.readers), all(&ends.writers));
        let node = Node { namespace: "/".to_owned(), name: self.node.clone(), readers, writers };
        let info = Nodes { participant: self.participant.0, nodes: vec![node] };
        let message = to_cdr(&info).map_err(|wrong| Error::Engine(format!("{TOPIC}: {wrong}")))?;
        self.writer.write(&message, super::now_ns()).map_err(failed)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut ends = lock(&self.of.info);
        ends.readers.remove(&self.guid);
        ends.writers.remove(&self.guid);
        self.of.tell(&mut ends);
    }
}

/// The nodes of a participant, of which `writer` is an endpoint, too: the full name of the node of each of its endpoints.
fn nodes(message: &[u8], writer: Guid) -> std::result::Result<HashMap<Guid, String>, String> {
    let info: Nodes = from_cdr(message).map_err(|wrong| wrong.to_string())?;
    let count = info.nodes.len();
    if count > MOST_NODES {
        return Err(format!("{count} nodes of a participant, {MOST_NODES} at most are allowed"));
    }
    let ends: usize = info.nodes.iter().map(|node| node.readers.len() + node.writers.len()).sum();
    if ends > MOST_ENDPOINTS {
        return Err(format!("{ends} endpoints of a participant, {MOST_ENDPOINTS} at most are allowed"));
    }
    let mut names = HashMap::new();
    for node in info.nodes {
        let name = format!("{}/{}", node.namespace.trim_end_matches('/'), node.name);
        if name.len() > MAX_NODE {
            return Err(format!("a node's name of {} bytes, {MAX_NODE} at most are allowed", name.len()));
        }
        let own = node.readers.into_iter().chain(node.writers).map(Guid).filter(|guid| guid.is_beside(writer));
        names.extend(own.map(|guid| (guid, name.clone())));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_state_the_type_hash_and_may_state_more() {
        assert_eq!(user_data(Some(TYPE_HASH)), format!("typehash={TYPE_HASH};").into_bytes());
        assert_eq!(type_hash(&user_data(Some(TYPE_HASH))).unwrap(), TYPE_HASH);
        assert_eq!(type_hash(b"a=b;typehash=x").unwrap(), "x");
        assert_eq!((type_hash(b""), type_hash(b"typehash"), type_hash(&[0xff; 20])), (None, None, None));
    }

    #[test]
    fn a_type_of_ros_has_two_names() {
        assert_eq!(ros_name("std_msgs::msg::dds_::String_").unwrap(), "std_msgs/msg/String");
        for other in ["robot::Arm", "std_msgs::msg::dds_::String", "a::dds_::B_", ""] {
            assert_eq!(ros_name(other), None, "{other}");
        }
    }

    /// Bytes as `rmw_dds_common` of Jazzy writes them: GID, one node, its namespace and name, one reader, no writer.
    #[test]
    fn nodes_are_read_and_what_is_malformed_is_refused() {
        let mut message = [&[0, 1, 0, 0][..], &[1; 16], &[1, 0, 0, 0], &[4, 0, 0, 0], b"/ns\0"].concat();
        message.extend([&[3, 0, 0, 0][..], b"ab\0\0", &[1, 0, 0, 0], &[2; 16], &[0, 0, 0, 0]].concat());
        let names = nodes(&message, Guid([2; 16])).unwrap();
        assert_eq!(names, HashMap::from([(Guid([2; 16]), "/ns/ab".to_owned())]));
        assert_eq!(nodes(&message, Guid([1; 16])).unwrap(), HashMap::new(), "an endpoint of another participant");
        let mut flood = message.clone();
        flood[20..24].copy_from_slice(&[0xff; 4]);
        let cut = (0..message.len() - 1).map(|length| message[..length].to_vec());
        for wrong in cut.chain([flood]) {
            assert!(nodes(&wrong, Guid([2; 16])).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_flood_of_nodes_or_of_their_endpoints_is_refused() {
        let read = |nodes: Vec<Node>| {
            let message = to_cdr(&Nodes { participant: [2; 16], nodes }).unwrap();
            super::nodes(&message, Guid([2; 16])).map(|names| names.len())
        };
        assert_eq!(read(vec![Node::default(); MOST_NODES]), Ok(0));
        assert!(read(vec![Node::default(); MOST_NODES + 1]).unwrap_err().contains("1025 nodes"));
        let (readers, writers) = (vec![[2; 16]; MOST_ENDPOINTS], vec![[2; 16]]);
        assert_eq!(read(vec![Node { readers: readers.clone(), ..Node::default() }]), Ok(1));
        assert!(read(vec![Node { readers, writers, ..Node::default() }]).unwrap_err().contains("10001 endpoints"));
    }
}
