//! `thalweg bridge ros2`.

use super::zenoh::free;
use super::{Result, Topics, carry};
use crate::definitions::{describe, directories_or_installed};
use crate::failure::Failure;
use crate::participant::Common;
use crate::quantity;
use clap::Args;
use engines::ros2::{Ros2, Settings};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Carry topics to and from ROS 2 (rmw_zenoh)
///
/// The bridge is a node of ROS 2: `ros2 node list` and `ros2 topic info -v` show it with its publishers and subscribers. It needs a
/// router, `ros2 run rmw_zenoh_cpp rmw_zenohd`, as every node does. Nothing of ROS 2 has to be installed here; definitions of message
/// types show samples as values, and let Rust structs be the types of ROS 2.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg bridge ros2 --domain 7 --allow '/robot/**' --definitions /opt/ros/jazzy/share\n         \
                  thalweg bridge ros2 --connect 10.0.0.1:7447 --config bridge.toml"
)]
pub(super) struct Ros2Arguments {
    /// The domain, ROS_DOMAIN_ID [default: that of the environment, else 0]
    #[arg(long, value_name = "NUMBER", help_heading = "ROS 2")]
    domain: Option<u32>,
    /// A router of rmw_zenoh (repeatable) [default: 127.0.0.1:7447]
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "ROS 2")]
    connect: Vec<String>,
    /// Let nodes of ROS 2 connect to this address, too (repeatable): IP:port
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "ROS 2")]
    accept: Vec<String>,
    /// Name of the bridge's node there
    #[arg(long, value_name = "NAME", default_value = "thalweg", help_heading = "ROS 2")]
    ros_node: String,
    /// Where definitions are, as DIR/std_msgs/msg/String.msg (repeatable) [default: share in each of AMENT_PREFIX_PATH]
    #[arg(long, value_name = "DIR", help_heading = "ROS 2")]
    definitions: Vec<PathBuf>,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// Runs until told to stop.
pub(super) fn run(arguments: &Ros2Arguments) -> Result {
    let settings = arguments.settings()?;
    let about = json!({"domain": settings.domain, "connect": settings.connect, "accept": settings.listen, "node": settings.node});
    free(&arguments.accept)?;
    let open = |bridge| Ros2::open(settings.clone(), Some(bridge));
    carry(&arguments.common, arguments.topics.rules()?, &about, open)
}

impl Ros2Arguments {
    fn settings(&self) -> Result<Settings> {
        let default = Settings::default();
        let directories = directories_or_installed(&self.definitions)?;
        Ok(Settings {
            domain: self.domain.map_or_else(domain, Ok)?,
            connect: if self.connect.is_empty() { default.connect } else { self.connect.clone() },
            listen: if self.accept.is_empty() { default.listen } else { self.accept.clone() },
            node: self.ros_node.clone(),
            // A type without a definition is carried all the same.
            describe: Arc::new(move |name| describe(name, &directories).ok()),
            ..Settings::default()
        })
    }
}

/// The domain of the environment.
fn domain() -> Result<u32> {
    const NAME: &str = "ROS_DOMAIN_ID";
    let Ok(text) = std::env::var(NAME) else { return Ok(0) };
    text.trim().parse().map_err(|_| Failure::Usage(format!("{NAME} is {text:?}: a number is expected, or --domain")))
}
