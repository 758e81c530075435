//! Topics and types of DDS as Thalweg has them: by their names. DDS tells no more of a type, unless its program describes it, which few do.

use super::keys::Keys;
use super::ros::ros_name;
use super::services;
use crate::engine::descriptions::{Describe, Descriptions};
use crate::engine::services::{is_numbered, numbered};
use crate::engine::{Error, Result, Topic};
use std::sync::Arc;
use thalweg::codec::{RosType, TypeDescription};
use thalweg::control::matching::check_name;

/// Longest name of a type, in bytes.
const MAX_TYPE: usize = 256;

/// The names of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// `/robot/pose` is `robot/pose`.
    Plain,
    /// `/robot/pose` is `rt/robot/pose`, and services have two topics each. Others are no topics of ROS 2: actions, its own (`rmw`,
    /// `namespace_prefix.cpp`).
    Ros,
}

impl Naming {
    /// The topic in DDS of one of Thalweg.
    pub(super) fn there(self, Topic { name, message }: &Topic) -> String {
        match self {
            Naming::Plain => name.strip_prefix('/').unwrap_or(name).to_owned(),
            Naming::Ros if is_numbered(message) => services::there(name),
            Naming::Ros => format!("rt{name}"),
        }
    }

    /// The topic here of one in DDS, if it is one of a topic or a service.
    ///
    /// # Errors
    /// The reason why Thalweg has no such topic.
    pub(super) fn here(self, topic: &str) -> std::result::Result<Option<String>, String> {
        let name = match self {
            Naming::Plain => format!("/{topic}"),
            Naming::Ros => match topic.strip_prefix("rt/") {
                Some(name) => format!("/{name}"),
                None => match services::here(topic) {
                    Some(name) => name,
                    None => return Ok(None),
                },
            },
        };
        check_name(&name).map(|()| Some(name)).map_err(|wrong| wrong.to_string())
    }
}

/// A type as an endpoint states it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Stated {
    pub(super) name: String,
    /// The type hash of ROS 2, in USER_DATA.
    pub(super) hash: Option<String>,
    /// Its topic has a key.
    pub(super) keyed: bool,
}

/// The name of a topic's type in DDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) stated: Stated,
    /// Nobody there has stated it.
    pub(super) guessed: bool,
}

impl Named {
    /// The name that is all that is known of a type of another network of DDS.
    pub(super) fn of_dds(message: &TypeDescription) -> Option<Self> {
        let is_name = message.schema.is_none() && message.ros.is_none() && is_type(&message.name);
        let stated = Stated { name: message.name.clone(), hash: None, keyed: false };
        is_name.then_some(Self { stated, guessed: true })
    }
}

/// Descriptions of types.
pub(super) struct Types {
    pub(super) naming: Naming,
    descriptions: Descriptions,
    keys: Option<Keys>,
}

impl Types {
    pub(super) fn new(naming: Naming, describe: Describe) -> Self {
        Self { naming, descriptions: Descriptions::new(describe), keys: None }
    }

    /// These, with the keys that definitions state.
    pub(super) fn with_keys(self, keys: Keys) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// The key that the definition of a type states, as paths of members.
    pub(super) fn key(&self, name: &str) -> Option<Vec<String>> {
        self.keys.as_ref().map(|keys| keys(name)).filter(|key| !key.is_empty())
    }

    /// The description of a type that an endpoint states: its name alone, with the hash if it is one of ROS 2, unless definitions of it are
    /// known.
    pub(super) fn description(&self, Stated { name, hash, .. }: &Stated) -> TypeDescription {
        if self.naming == Naming::Ros && services::is_part(name) {
            let numbered = self.descriptions.of(name).and_then(|body| numbered(&body)); // the hash is that of the service
            return numbered.unwrap_or_else(|| TypeDescription::opaque(name));
        }
        let same = |ros: &RosType| hash.as_ref().is_none_or(|hash| *hash == ros.type_hash);
        let described = self.descriptions.of(name).filter(|described| described.ros.as_deref().is_none_or(same));
        described.or_else(|| opaque(name, hash.as_ref()?)).unwrap_or_else(|| TypeDescription::opaque(name))
    }

    /// The name of a topic's type in DDS: that of an endpoint of the topic with the same description, else the one that its description
    /// states, else that of an endpoint whose last part is the same (a Rust type has no modules), else its own.
    ///
    /// # Errors
    /// [`Error::Topic`] if its samples are no CDR of a named type.
    pub(super) fn of(&self, topic: &Topic, stated: &[Stated]) -> Result<Named> {
        let Topic { name, message } = topic;
        let find = |fits: &dyn Fn(&Stated) -> bool| {
            let same = stated.iter().find(|stated| fits(stated))?;
            Some(Named { stated: same.clone(), guessed: false })
        };
        if let Some(same) = find(&|stated| self.description(stated) == *message) {
            return Ok(same);
        }
        if let Some(ros) = &message.ros {
            let hash = Some(ros.type_hash.clone());
            let stated = |name| Stated { name, hash, keyed: false };
            let named = ros_type(&ros.name).map(|name| Named { stated: stated(name), guessed: false });
            return named.ok_or_else(|| Error::Topic(format!("{name}: type {} is no message", ros.name)));
        }
        let structure = |stated: &Stated| message.schema.is_some() && self.description(stated).schema == message.schema;
        let last = |stated: &Stated| stated.name.rsplit("::").next() == Some(&message.name);
        if let Some(same) = find(&structure).or_else(|| find(&last)) {
            return Ok(same);
        }
        if self.naming == Naming::Ros && is_numbered(message) {
            return Err(Error::Topic(format!(
                "{name}: a service is carried when a program of ROS 2 on Cyclone DDS has it or asks it, whose definition is known \
                 (--definitions) and of the same structure"
            )));
        }
        if self.naming == Naming::Ros {
            return Err(Error::Topic(format!(
                "{name}: type {} is not known as one of ROS 2: publish it with `--type pkg/msg/Name`, or name the directory of its \
                 definitions with --definitions, and it is carried when a node of ROS 2 has an endpoint of the same structure",
                message.name
            )));
        }
        match is_type(&message.name) && message.schema.is_some() {
            true => {
                let stated = Stated { name: message.name.clone(), hash: None, keyed: false };
                Ok(Named { stated, guessed: true })
            }
            false => Err(Error::Topic(format!(
                "{name}: type {} is none of DDS: its samples have to be a struct with a name of its own, such as a Rust struct, or \
                 `--type pkg/msg/Name`",
                message.name
            ))),
        }
    }
}

/// A type of ROS 2 of which only the name and the hash are known.
fn opaque(name: &str, hash: &str) -> Option<TypeDescription> {
    let ros = RosType { name: ros_name(name)?, type_hash: hash.to_owned(), source: String::new() };
    let short = ros.name.rsplit('/').next().unwrap_or_default().to_owned();
    ros.check().ok()?;
    Some(TypeDescription { name: short, ros: Some(Arc::new(ros)), ..TypeDescription::opaque(hash) })
}

/// The name of a type of ROS 2 in DDS (`rosidl_generator_dds_idl`): `std_msgs/msg/String` is `std_msgs::msg::dds_::String_`.
fn ros_type(name: &str) -> Option<String> {
    let mut parts = name.split('/');
    let (package, group, short) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = format!("{package}::{group}::dds_::{short}_");
    (parts.next().is_none() && is_type(&whole)).then_some(whole)
}

/// `true` for a name of IDL: identifiers with `::` between them (OMG IDL 4.2 §7.2.3).
fn is_type(name: &str) -> bool {
    let is_identifier = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.len() <= MAX_TYPE && name.split("::").all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use thalweg::codec::{Definitions, Idl, Message, Raw};

    #[derive(Serialize, Deserialize)]
    struct Arm {
        id: u32,
    }

    fn topic(message: TypeDescription) -> Topic {
        Topic { name: "/arm".to_owned(), message }
    }

    fn texts(all: &[&str]) -> Vec<Stated> {
        all.iter().map(|text| stated(text, None)).collect()
    }

    fn stated(name: &str, hash: Option<&str>) -> Stated {
        Stated { name: name.to_owned(), hash: hash.map(str::to_owned), keyed: false }
    }

    fn types() -> Types {
        Types::new(Naming::Plain, Arc::new(|_| None))
    }

    #[test]
    fn topics_keep_their_inner_slashes() {
        for (naming, there) in [(Naming::Plain, "robot/pose"), (Naming::Ros, "rt/robot/pose")] {
            let pose = Topic { name: "/robot/pose".to_owned(), message: TypeDescription::of::<Arm>() };
            assert_eq!(naming.there(&pose), there);
            assert_eq!(naming.here(there).unwrap().unwrap(), "/robot/pose");
        }
        for wrong in ["/robot", "a b", "", "a//b", "x*"] {
            assert!(Naming::Plain.here(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Naming::Ros.here("rq/add_two_intsRequest"), Ok(Some("/add_two_ints".to_owned())));
        assert_eq!(Naming::Ros.here("ros_discovery_info"), Ok(None));
    }

    #[test]
    fn a_rust_struct_has_the_type_that_others_state_or_its_own_name() {
        let types = self::types();
        let arm = topic(TypeDescription::of::<Arm>());
        assert_eq!(types.of(&arm, &[]).unwrap(), Named { stated: stated("Arm", None), guessed: true });
        let all = texts(&["robot::Leg", "robot::Arm"]);
        assert_eq!(types.of(&arm, &all).unwrap(), Named { stated: stated("robot::Arm", None), guessed: false });
        assert!(types.of(&topic(Raw::description().as_ref().clone()), &[]).is_err());
        assert!(types.of(&topic(TypeDescription::of::<Vec<u8>>()), &[]).is_err());
    }

    #[test]
    fn a_type_of_ros_has_its_name_of_dds() {
        let mut definitions = Definitions::new();
        definitions.add("std_msgs/msg/String", "string data\n").unwrap();
        let string = topic(definitions.describe("std_msgs/msg/String").unwrap());
        let wire = "std_msgs::msg::dds_::String_";
        let described = move |name: &str| definitions.describe(&ros_name(name)?).ok();
        let ros = Types::new(Naming::Ros, Arc::new(described));
        let hash = string.message.ros.as_ref().map(|ros| ros.type_hash.clone());
        assert_eq!(ros.description(&stated(wire, hash.as_deref())), string.message);
        let other = ros.description(&stated(wire, Some(&hash.unwrap().replace('d', "e"))));
        assert_eq!((other.schema, &other.ros.unwrap().name[..]), (None, "std_msgs/msg/String"));
        let rust = topic(TypeDescription { ros: None, ..string.message.clone() });
        assert!(ros.of(&rust, &[]).unwrap_err().to_string().contains("--definitions"));
        assert_eq!(ros.of(&rust, &texts(&[wire])).unwrap().stated.name, wire);
        assert_eq!(types().of(&string, &[]).unwrap().stated.name, "std_msgs::msg::dds_::String_");
    }

    #[test]
    fn definitions_give_an_endpoint_its_structure() {
        let mut idl = Idl::new();
        idl.add("robot.idl", "module robot { @final struct Arm { unsigned long id; }; };").unwrap();
        let types = Types::new(Naming::Plain, Arc::new(move |name| idl.describe(name).ok()));
        assert!(TypeDescription::of::<Arm>().accepts(&types.description(&stated("robot::Arm", None))));
        assert_eq!(types.description(&stated("robot::Leg", None)), TypeDescription::opaque("robot::Leg"));
        let arm = topic(types.description(&stated("robot::Arm", None)));
        assert_eq!(types.of(&arm, &texts(&["robot::Arm"])).unwrap().stated.name, "robot::Arm");
    }

    #[test]
    fn definitions_state_the_key_of_a_type() {
        let mut idl = Idl::new();
        idl.add("robot.idl", "module robot { struct Arm { @key long id; }; struct Leg { long id; }; };").unwrap();
        let types = types().with_keys(Arc::new(move |name| idl.keys(name).unwrap_or_default()));
        let keys = ["robot::Arm", "robot::Leg", "robot::Head"].map(|name| types.key(name));
        assert_eq!(keys, [Some(vec!["id".to_owned()]), None, None]);
        assert_eq!(self::types().key("robot::Arm"), None);
    }
}
