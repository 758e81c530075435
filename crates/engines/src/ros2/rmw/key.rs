//! Key expressions of topics, and names of message types.

use super::{MAX_HASH, MAX_NAME, MAX_TYPE, Malformed, chunk, decimal, excerpt, within};

/// Longest key expression, in bytes: domain, name, type and hash of the longest lengths, and what separates them.
pub const MAX_KEY: usize = 10 + MAX_NAME + MAX_TYPE + MAX_HASH + 3;
/// The hash of every type in Humble, which has no hashes (`rmw_publisher_data.cpp` of branch `humble`).
pub const UNHASHED: &str = "TypeHashNotSupported";

/// The form of a type's name on the wire.
const DDS_TYPE: &str = "package::msg::dds_::Name_, with letters, digits and '_' in the names";
/// The form of a type's name in ROS 2.
const ROS_TYPE: &str = "package/msg/Name, with letters, digits and '_' in the names";
/// The form of a type's hash.
const HASH: &str = "TypeHashNotSupported, or RIHS01_ and 64 hexadecimal digits in lower case";

/// A topic as samples name it: `<domain>/<name>/<type>/<hash>`. Only equal keys meet, so two types of one topic do not
/// (`liveliness_utils.cpp`, `TopicInfo::TopicInfo`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicKey {
    /// `ROS_DOMAIN_ID`.
    pub domain: u32,
    /// Fully qualified name, `/ns/chatter`.
    pub name: String,
    /// Name of the type on the wire, `std_msgs::msg::dds_::String_`.
    pub type_name: String,
    /// Hash of the type, `RIHS01_…` or [`UNHASHED`].
    pub hash: String,
}

impl TopicKey {
    /// Reads a key expression of at most [`MAX_KEY`] bytes. The name gets the leading slash that the key has not.
    ///
    /// # Errors
    /// [`Malformed`] names the part that is none. Keys of services are refused, and so are those that belong to a topic
    /// without being one: `…/@adv/…` (history), `…/_buf…` (device buffers, Lyrical).
    pub fn parse(key: &str) -> Result<Self, Malformed> {
        within("bytes of a key", key.len(), 1, MAX_KEY)?;
        let parts: Vec<&str> = key.split('/').collect();
        within("chunks of a key", parts.len(), 4, MAX_KEY)?;
        let [domain, name @ .., type_name, hash] = parts.as_slice() else {
            return Err(Malformed::Count { what: "chunks of a key", found: parts.len(), least: 4, most: MAX_KEY });
        };
        name.iter().try_for_each(|part| chunk("part of a topic's name", part, MAX_NAME).map(drop))?;
        let key = Self {
            domain: decimal("domain", domain, u64::from(u32::MAX))?,
            name: format!("/{}", name.join("/")),
            type_name: (*type_name).to_owned(),
            hash: (*hash).to_owned(),
        };
        key.check()?;
        Ok(key)
    }

    /// Writes the key expression: one slash is taken from each end of the name (`liveliness_utils.cpp`,
    /// `strip_slashes`).
    ///
    /// # Errors
    /// [`Malformed`] names the field that cannot be written.
    pub fn print(&self) -> Result<String, Malformed> {
        self.check()?;
        let Self { domain, name, type_name, hash } = self;
        Ok(format!("{domain}/{}/{type_name}/{hash}", bare(name)))
    }

    fn check(&self) -> Result<(), Malformed> {
        within("bytes of a topic's name", self.name.len(), 1, MAX_NAME)?;
        for part in bare(&self.name).split('/') {
            chunk("part of a topic's name", part, MAX_NAME)?;
        }
        ros_type(&self.type_name)?;
        check_hash(&self.hash)
    }
}

/// Writes a type's name as it is on the wire: `std_msgs/msg/String` as `std_msgs::msg::dds_::String_`
/// (`type_support_common.cpp`, `_create_type_name`).
///
/// # Errors
/// [`Malformed`] if the text is no type of three parts, or that of a service.
pub fn dds_type(ros: &str) -> Result<String, Malformed> {
    let parts: Vec<&str> = bounded_type(ros)?.split('/').collect();
    let [package, group, name] = parts.as_slice() else {
        return Err(Malformed::Text { what: "type", found: excerpt(ros), allowed: ROS_TYPE });
    };
    if ![package, group, name].into_iter().all(|part| is_identifier(part)) {
        return Err(Malformed::Text { what: "type", found: excerpt(ros), allowed: ROS_TYPE });
    }
    refuse_service(group, name, ros)?;
    let dds = format!("{package}::{group}::dds_::{name}_");
    bounded_type(&dds)?;
    Ok(dds)
}

/// Reads a type's name as it is on the wire: `std_msgs::msg::dds_::String_` as `std_msgs/msg/String`
/// (`graph_cache.cpp`, `_demangle_if_ros_type`).
///
/// # Errors
/// [`Malformed`] if the text is no type of that form, or that of a service.
pub fn ros_type(dds: &str) -> Result<String, Malformed> {
    let other = || Malformed::Text { what: "type", found: excerpt(dds), allowed: DDS_TYPE };
    let parts: Vec<&str> = bounded_type(dds)?.strip_suffix('_').ok_or_else(other)?.split("::").collect();
    let [package, group, "dds_", name] = parts.as_slice() else {
        return Err(other());
    };
    if ![package, group, name].into_iter().all(|part| is_identifier(part)) {
        return Err(other());
    }
    refuse_service(group, name, dds)?;
    Ok(format!("{package}/{group}/{name}"))
}

/// Checks the hash of a type: that of REP-2016 (`rosidl_runtime_c/src/type_hash.c`), or [`UNHASHED`]. Other versions than
/// 01 may have another length.
///
/// # Errors
/// [`Malformed`] if the text is neither.
pub fn check_hash(hash: &str) -> Result<(), Malformed> {
    let value = hash.strip_prefix("RIHS").and_then(|rest| rest.split_once('_'));
    let known = value.is_some_and(|(version, digits)| {
        let right = if version == "01" { digits.len() == 64 } else { !digits.is_empty() };
        right && version.len() == 2 && [version, digits].into_iter().all(is_hexadecimal)
    });
    if hash == UNHASHED || (known && hash.len() <= MAX_HASH) {
        Ok(())
    } else {
        Err(Malformed::Text { what: "hash of a type", found: excerpt(hash), allowed: HASH })
    }
}

/// The name without a slash at either end.
fn bare(name: &str) -> &str {
    let name = name.strip_prefix('/').unwrap_or(name);
    name.strip_suffix('/').unwrap_or(name)
}

fn bounded_type(name: &str) -> Result<&str, Malformed> {
    within("bytes of a type's name", name.len(), 1, MAX_TYPE)?;
    Ok(name)
}

fn is_identifier(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Refuses services, their requests and their responses. What services and actions publish on topics is allowed:
/// `_Event` (introspection) and `_FeedbackMessage` (`rosidl_parser/definition.py`).
fn refuse_service(group: &str, name: &str, whole: &str) -> Result<(), Malformed> {
    let calls = ["_Request", "_Response", "_SendGoal", "_GetResult"];
    let service = match group {
        "srv" => !name.ends_with("_Event"),
        "action" => calls.into_iter().any(|call| name.ends_with(call)),
        _ => false,
    };
    if service { Err(Malformed::Service { found: excerpt(whole) }) } else { Ok(()) }
}
