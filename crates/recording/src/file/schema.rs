//! The text of a type for readers of the file: `ros2msg` where the type has one or fits one, else `omgidl`.

use super::{idl, msg};
use thalweg::codec::TypeDescription;

/// The text of a type, in an encoding that MCAP's registry of schemas names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaText {
    /// The type's full name.
    pub name: String,
    /// `ros2msg`, `omgidl` or `jsonschema`.
    pub encoding: &'static str,
    /// The definition.
    pub text: String,
}

/// The encoding of ROS 2's definitions.
pub(super) const ROS2MSG: &str = "ros2msg";
const OMGIDL: &str = "omgidl";

impl SchemaText {
    /// The text of a type. `None`: the structure of its bytes is not known, or neither language can say it.
    pub fn of(message: &TypeDescription) -> Option<Self> {
        let stated = message.ros.as_ref().filter(|ros| !ros.source.is_empty());
        if let Some(ros) = stated {
            return Some(Self { name: ros.name.clone(), encoding: ROS2MSG, text: ros.source.clone() });
        }
        let schema = message.schema.as_ref()?;
        let name = message.ros.as_ref().map(|ros| ros.name.as_str());
        if let Some((name, text)) = msg::text(name, &message.name, schema) {
            return Some(Self { name, encoding: ROS2MSG, text });
        }
        let (name, text) = idl::text(&message.name, schema)?;
        Some(Self { name, encoding: OMGIDL, text })
    }

    /// `true` if tools for ROS 2 read it.
    pub fn is_ros2(&self) -> bool {
        self.encoding == ROS2MSG
    }
}
