//! What ROS 2 has beside DDS (`rmw_cyclonedds_cpp`, `rmw_fastrtps_cpp`): names of topics and types, type hashes in USER_DATA, and
//! `ros_discovery_info`, by which each participant says which nodes it has, with which endpoints (`rmw_dds_common`).

use super::failed;
use super::graph::Graph;
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

/// Our node, which others are told of, and those of others.
pub(super) struct Membership {
    info: Mutex<Ends>,
    participant: Guid,
    node: String,
    writer: Writer,
    _reader: Reader,
}

#[derive(Default)]
struct Ends {
    readers: BTreeSet<Guid>,
    writers: BTreeSet<Guid>,
}

/// An end of our node, until this is dropped.
pub(super) struct Member {
    of: Arc<Membership>,
    guid: Guid,
}

impl Membership {
    /// Enters the graph of ROS 2 as a node.
    pub(super) fn open(participant: &Participant, graph: &Arc<Graph>, node: String) -> Result<Arc<Self>> {
        let is_name = node.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && node.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            let allowed = "letters, digits and '_' are allowed, a digit not in front";
            return Err(Error::Usage(format!("node of ROS 2 {node:?}: {allowed}")));
        }
        let policies = Policies {
            reliable: true,
            blocking: Duration::from_secs(10),
            transient_local: true,
            history: Some(1),
            user_data: user_data(Some(TYPE_HASH)),
            ..Policies::default()
        };
        let graph = graph.clone();
        let take = Box::new(move |taken: &Taken<'_>| match nodes(taken.message) {
            Ok((participant, names)) => graph.named(participant, names),
            Err(wrong) => graph.refuse(&format!("{TOPIC}: {wrong} (nodes of Humble and before write another form)")),
        });
        let reader = participant.reader(TOPIC, TYPE, &policies, take).map_err(failed)?;
        let writer = participant.writer(TOPIC, TYPE, &policies).map_err(failed)?;
        let (info, participant) = (Mutex::default(), participant.guid());
        let membership = Self { info, participant, node, writer, _reader: reader };
        membership.tell(&Ends::default())?;
        Ok(Arc::new(membership))
    }

    /// Names an end as one of our node.
    pub(super) fn enter(self: &Arc<Self>, guid: Guid, writes: bool) -> Result<Member> {
        let mut ends = lock(&self.info);
        if writes {
            ends.writers.insert(guid)
        } else {
            ends.readers.insert(guid)
        };
        self.tell(&ends)?;
        Ok(Member { of: self.clone(), guid })
    }

    fn tell(&self, ends: &Ends) -> Result<()> {
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
        // The next one tells of it, if this does not.
        let _ = self.of.tell(&ends);
    }
}

/// The nodes of a participant: the full name of the node of each endpoint.
fn nodes(message: &[u8]) -> std::result::Result<(Guid, HashMap<Guid, String>), String> {
    let info: Nodes = from_cdr(message).map_err(|wrong| wrong.to_string())?;
    let mut names = HashMap::new();
    for node in info.nodes {
        let name = format!("{}/{}", node.namespace.trim_end_matches('/'), node.name);
        if name.len() > MAX_NODE {
            return Err(format!("a node's name of {} bytes, {MAX_NODE} at most are allowed", name.len()));
        }
        names.extend(node.readers.into_iter().chain(node.writers).map(|guid| (Guid(guid), name.clone())));
    }
    Ok((Guid(info.participant), names))
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
        let (participant, names) = nodes(&message).unwrap();
        assert_eq!((participant, names), (Guid([1; 16]), HashMap::from([(Guid([2; 16]), "/ns/ab".to_owned())])));
        let mut flood = message.clone();
        flood[20..24].copy_from_slice(&[0xff; 4]);
        let cut = (0..message.len() - 1).map(|length| message[..length].to_vec());
        for wrong in cut.chain([flood]) {
            assert!(nodes(&wrong).is_err(), "{wrong:?}");
        }
    }
}
