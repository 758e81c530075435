//! The type of a channel's samples, as a publisher states it.

use crate::read::{Channel, Schema, TYPE};
use std::sync::Arc;
use thalweg::codec::{Definitions, Idl, TypeDescription};

/// A channel's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The type for its publisher.
    pub message: TypeDescription,
    /// The reason why only its name is known; `None`: its structure is, or the file has none.
    pub because: Option<String>,
}

/// Describes the type of a channel: by the description that our recorder added ([`TYPE`]), or by its schema. If neither can be read, its
/// samples are bytes of a type of this name, which subscribers to any type take.
pub fn describe(channel: &Channel) -> Described {
    if let Some(text) = channel.metadata.get(TYPE) {
        let read = serde_json::from_str::<TypeDescription>(text).map_err(|wrong| wrong.to_string());
        let sound = read.and_then(|message| message.check().map(|()| message).map_err(|wrong| wrong.to_string()));
        match sound {
            Ok(message) if !message.is_any() => {
                return Described { message: with_source(message, channel), because: None };
            }
            Ok(_) => {}
            Err(wrong) => return named(channel, Some(format!("{TYPE} in its metadata: {wrong}"))),
        }
    }
    let Some(schema) = &channel.schema else { return named(channel, None) };
    if channel.encoding != "cdr" {
        return named(channel, Some(format!("its samples are encoded as {:?}; read is cdr", channel.encoding)));
    }
    match of_schema(schema) {
        Ok(message) => Described { message, because: None },
        Err(wrong) => named(channel, Some(wrong)),
    }
}

/// Adds the text of a type of ROS 2, which the recorder writes as the schema only.
fn with_source(mut message: TypeDescription, channel: &Channel) -> TypeDescription {
    let Some(schema) = channel.schema.as_ref().filter(|schema| schema.encoding == ROS2MSG) else { return message };
    let text = std::str::from_utf8(&schema.data).unwrap_or_default();
    if let Some(ros) = message.ros.as_mut().filter(|ros| ros.source.is_empty() && ros.name == schema.name) {
        let ros = Arc::make_mut(ros);
        ros.source = text.to_owned();
        if ros.check().is_err() {
            ros.source.clear();
        }
    }
    message
}

fn named(channel: &Channel, because: Option<String>) -> Described {
    let name =
        channel.schema.as_ref().map(|schema| schema.name.as_str()).filter(|name| !name.is_empty() && *name != "*");
    Described { message: TypeDescription::opaque(name.unwrap_or("bytes")), because }
}

fn of_schema(schema: &Schema) -> Result<TypeDescription, String> {
    let Schema { name, encoding, data } = schema;
    let text = std::str::from_utf8(data).map_err(|_| format!("the description of {name} is no text"))?;
    match encoding.as_str() {
        ROS2MSG => {
            let mut definitions = Definitions::new();
            definitions.add_concatenated(name, text).map_err(|wrong| wrong.to_string())?;
            definitions.describe(name).map_err(|wrong| wrong.to_string())
        }
        "omgidl" | "ros2idl" => of_idl(name, text),
        other => Err(format!("{name} is described in {other:?}; read are ros2msg, omgidl and ros2idl")),
    }
}

/// Reads IDL. In rosbag2's files a line of 80 `=` and a line `IDL: pkg/msg/Type` stand before each type.
fn of_idl(name: &str, text: &str) -> Result<TypeDescription, String> {
    let mut idl = Idl::new();
    for section in text.split(&"=".repeat(80)) {
        let section = section.trim_start();
        let own = match section.split_once('\n') {
            Some((head, rest)) if head.starts_with("IDL: ") => rest,
            _ => section,
        };
        idl.add(name, own).map_err(|wrong| wrong.to_string())?;
    }
    idl.describe(&name.replace('/', "::")).map_err(|wrong| wrong.to_string())
}

/// The encoding of ROS 2's definitions.
const ROS2MSG: &str = "ros2msg";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tests::channel;

    fn with_schema(name: &str, encoding: &str, text: &str) -> Channel {
        let schema = Schema { name: name.to_owned(), encoding: encoding.to_owned(), data: text.as_bytes().to_vec() };
        Channel { schema: Some(Arc::new(schema)), ..channel(1) }
    }

    #[test]
    fn a_type_of_ros_is_the_one_of_its_text() {
        let text = format!("Header header\nUnit unit\n{}\nMSG: a/Unit\nuint8 unit\n", "=".repeat(80));
        let found = describe(&with_schema("a/msg/Reading", "ros2msg", &text));
        assert_eq!(found.because, None);
        let ros = found.message.ros.unwrap();
        assert_eq!(ros.name, "a/msg/Reading");
        assert!(found.message.schema.unwrap().to_string().ends_with("unit:Unit{unit:u8}}"));
    }

    #[test]
    fn a_type_in_idl_is_found_by_either_form_of_its_name() {
        let text = "module a { module msg { struct Point { double x; }; }; };";
        for (name, encoding) in [("a::msg::Point", "omgidl"), ("a/msg/Point", "ros2idl")] {
            let headed = format!("{}\nIDL: a/msg/Point\n{text}", "=".repeat(80));
            let text = if encoding == "omgidl" { text } else { &headed };
            let found = describe(&with_schema(name, encoding, text));
            assert_eq!(found.because, None, "{name}");
            assert_eq!(found.message.schema.unwrap().to_string(), "Point{x:f64}");
        }
    }

    #[test]
    fn the_description_of_our_own_recorder_goes_first() {
        let own = TypeDescription::of::<Option<u8>>();
        let mut channel = with_schema("a/msg/Reading", "ros2msg", "uint8 x\n");
        channel.metadata.insert(TYPE.to_owned(), serde_json::to_string(&own).unwrap());
        assert_eq!(describe(&channel).message, own);
        let lie = TypeDescription { hash: 1, ..own };
        channel.metadata.insert(TYPE.to_owned(), serde_json::to_string(&lie).unwrap());
        let found = describe(&channel);
        assert!(found.because.unwrap().contains("expected the hash"));
        assert_eq!(found.message, TypeDescription::opaque("a/msg/Reading"));
    }

    #[test]
    fn a_type_that_cannot_be_read_is_a_name_with_the_reason() {
        for (encoding, text, reason) in [
            ("ros2msg", "other/Thing thing\n", "other/msg/Thing"),
            ("ros2msg", "float64 Angle\n", "line 1"),
            ("protobuf", "x", "\"protobuf\""),
        ] {
            let found = describe(&with_schema("a/msg/Reading", encoding, text));
            assert_eq!(found.message, TypeDescription::opaque("a/msg/Reading"));
            assert!(found.because.as_ref().unwrap().contains(reason), "{found:?}");
        }
        assert_eq!(describe(&channel(1)), Described { message: TypeDescription::opaque("bytes"), because: None });
    }
}
