//! Types and policies of ROS 2 as Thalweg has them.

use super::rmw::{self, RosQos, key};
use crate::engine::descriptions::{Describe, Descriptions};
use crate::engine::{Error, Result, Topic};
use qos::{Durability, Liveliness, LivelinessKind, Qos, Queue, Reliability};
use std::sync::Arc;
use thalweg::codec::{Definitions, RosType, TypeDescription};

/// The types that everybody refers to, without any file.
pub(super) fn known() -> Describe {
    let definitions = Definitions::new();
    Arc::new(move |name| definitions.describe(name).ok())
}

/// A type as keys and tokens state it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireType {
    /// `std_msgs::msg::dds_::String_`.
    pub(super) wire: String,
    /// `RIHS01_…`.
    pub(super) hash: String,
}

/// Descriptions of types.
pub(super) struct Types(Descriptions);

impl Types {
    pub(super) fn new(describe: Describe) -> Self {
        Self(Descriptions::new(describe))
    }

    /// The description of a type that an endpoint states: with its structure where definitions of the same type hash are known.
    ///
    /// # Errors
    /// [`rmw::Malformed`] for a name that is none, or that of a service.
    pub(super) fn description(&self, stated: &WireType) -> std::result::Result<TypeDescription, rmw::Malformed> {
        let name = key::ros_type(&stated.wire)?;
        let same = |ros: &RosType| ros.type_hash == stated.hash || stated.hash == key::UNHASHED;
        let defined = self.0.of(&name).filter(|description| description.ros.as_deref().is_some_and(same));
        Ok(defined.unwrap_or_else(|| opaque(&name, &stated.hash)))
    }

    /// The type by which a topic is known in the graph: that of an endpoint of the topic with the same description (nodes of Humble state no
    /// hash), else the one that its description states, else that of an endpoint of the same structure.
    ///
    /// # Errors
    /// [`Error::Topic`] if there is none.
    pub(super) fn of(&self, topic: &Topic, stated: &[WireType]) -> Result<WireType> {
        let find = |fits: &dyn Fn(&TypeDescription) -> bool| {
            stated.iter().find(|stated| self.description(stated).is_ok_and(|described| fits(&described))).cloned()
        };
        if let Some(same) = find(&|described| *described == topic.message) {
            return Ok(same);
        }
        if let Some(ros) = &topic.message.ros {
            let wire = key::dds_type(&ros.name).map_err(|wrong| Error::Topic(format!("{}: {wrong}", topic.name)))?;
            return Ok(WireType { wire, hash: ros.type_hash.clone() });
        }
        find(&|described| described.schema.is_some() && described.schema == topic.message.schema).ok_or_else(|| {
            Error::Topic(format!(
                "{}: type {} is not known as one of ROS 2: publish it with `--type pkg/msg/Name`, or name the directory of its \
                 definitions with --definitions, and it is carried when a node of ROS 2 has an endpoint of the same structure",
                topic.name, topic.message.name
            ))
        })
    }
}

/// A type of which only the name and the hash are known.
fn opaque(name: &str, hash: &str) -> TypeDescription {
    let short = name.rsplit('/').next().unwrap_or(name).to_owned();
    let ros = RosType { name: name.to_owned(), type_hash: hash.to_owned(), source: String::new() };
    let ros = ros.check().is_ok().then(|| Arc::new(ros));
    TypeDescription { name: short, ros, ..TypeDescription::opaque(hash) }
}

/// Policies as an endpoint of ROS 2 states them.
pub(super) fn ros_qos(qos: &Qos) -> RosQos {
    RosQos {
        reliability: match qos.reliability {
            Reliability::Reliable => rmw::Reliability::Reliable,
            Reliability::BestEffort => rmw::Reliability::BestEffort,
        },
        durability: match qos.durability {
            Durability::TransientLocal => rmw::Durability::TransientLocal,
            Durability::Volatile => rmw::Durability::Volatile,
        },
        history: match qos.queue {
            Queue::KeepLast(_) => rmw::History::KeepLast,
            Queue::KeepAll(_) | Queue::Block { .. } => rmw::History::KeepAll,
        },
        depth: match qos.durability {
            Durability::TransientLocal => qos.history,
            Durability::Volatile => qos.queue.limit(),
        },
        deadline: qos.deadline,
        lifespan: qos.lifespan,
        liveliness: match qos.liveliness.kind {
            LivelinessKind::ByPort => rmw::Liveliness::ManualByTopic,
            LivelinessKind::Automatic | LivelinessKind::ByNode => rmw::Liveliness::Automatic,
        },
        lease: qos.liveliness.lease,
    }
}

/// The policies of an endpoint of ROS 2. A lifespan of 0 or without limit is none.
pub(super) fn thalweg_qos(ros: &RosQos) -> Qos {
    let depth = ros.depth.max(1);
    Qos {
        reliability: match ros.reliability {
            rmw::Reliability::Reliable => Reliability::Reliable,
            rmw::Reliability::BestEffort => Reliability::BestEffort,
        },
        durability: match ros.durability {
            rmw::Durability::TransientLocal => Durability::TransientLocal,
            rmw::Durability::Volatile => Durability::Volatile,
        },
        queue: match ros.history {
            rmw::History::KeepLast => Queue::KeepLast(depth),
            rmw::History::KeepAll => Queue::KeepAll(depth),
        },
        history: depth,
        deadline: ros.deadline,
        lifespan: ros.lifespan,
        liveliness: Liveliness {
            kind: match ros.liveliness {
                rmw::Liveliness::Automatic => LivelinessKind::Automatic,
                rmw::Liveliness::ManualByTopic => LivelinessKind::ByPort,
            },
            lease: ros.lease,
        },
        ..Qos::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    #[serde(rename = "String")]
    struct Text {
        data: String,
    }

    fn with_string() -> Types {
        let mut definitions = Definitions::new();
        definitions.add("std_msgs/msg/String", "string data\n").unwrap();
        Types::new(Arc::new(move |name| definitions.describe(name).ok()))
    }

    fn stated(hash: &str) -> WireType {
        WireType { wire: "std_msgs::msg::dds_::String_".to_owned(), hash: hash.to_owned() }
    }

    const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    #[test]
    fn an_endpoints_type_has_its_structure_where_the_hash_is_the_same() {
        let types = with_string();
        assert!(types.description(&stated(HASH)).unwrap().schema.is_some());
        assert!(types.description(&stated(key::UNHASHED)).unwrap().schema.is_some(), "Humble states no hash");
        let other = types.description(&stated(&HASH.replace('d', "e"))).unwrap();
        assert_eq!((other.schema, &other.name[..]), (None, "String"));
        assert!(other.ros.is_some());
        assert!(types.description(&WireType { wire: "x".to_owned(), hash: HASH.to_owned() }).is_err());
    }

    #[test]
    fn a_rust_struct_is_the_type_of_an_endpoint_of_the_same_structure() {
        let topic = Topic { name: "/chatter".to_owned(), message: TypeDescription::of::<Text>() };
        let types = with_string();
        assert_eq!(types.of(&topic, &[stated(HASH)]), Ok(stated(HASH)));
        assert!(types.of(&topic, &[]).unwrap_err().to_string().contains("--definitions"));
        let other = Topic { message: TypeDescription::of::<(u8, u16)>(), ..topic.clone() };
        assert!(types.of(&other, &[stated(HASH)]).is_err());
        let described = Topic { message: types.description(&stated(HASH)).unwrap(), ..topic };
        assert_eq!(types.of(&described, &[]), Ok(stated(HASH)));
        assert_eq!(types.of(&described, &[stated(key::UNHASHED)]), Ok(stated(key::UNHASHED)), "Humble");
    }

    #[test]
    fn policies_of_ros_come_back() {
        let qos = Qos {
            reliability: Reliability::BestEffort,
            durability: Durability::TransientLocal,
            queue: Queue::KeepLast(7),
            history: 7,
            deadline: Some(std::time::Duration::from_millis(20)),
            ..Qos::default()
        };
        assert_eq!(thalweg_qos(&ros_qos(&qos)), qos);
        assert_eq!(ros_qos(&Qos::default()).print(), "::,16:,:,:,,");
    }
}
