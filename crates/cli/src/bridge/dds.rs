//! `thalweg bridge dds`.

use super::{Result, Topics, carry};
use crate::definitions::{describe, directories_or_installed};
use crate::failure::Failure;
use crate::participant::Common;
use clap::Args;
use engines::bridge::Rules;
use engines::dds::{Dds, Settings};
use qos::Class;
use qos::priority::{Dscp, PriorityError};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg::codec::{Idl, TypeDescription};

/// Carry topics to and from DDS: topic /a/b is topic a/b there
///
/// Types are known by their names, and messages keep their bytes. Definitions in IDL show samples as values, and let Rust structs be the
/// types of DDS; a Rust struct of a type's name is that type without them, too. CYCLONEDDS_URI configures what has no option here.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge dds --domain 7 --allow '/robot/**' --idl robot.idl\n         \
                  thalweg bridge dds --interface 10.0.0.2 --host 10.0.0.1 --no-multicast\n         \
                  thalweg bridge dds --ros-node thalweg --definitions /opt/ros/jazzy/share\n         \
                  thalweg bridge dds --ros-node thalweg --network robot --interface 127.0.0.1")]
pub(super) struct DdsArguments {
    /// The domain, 0 to 232 [default: 0; with --ros-node ROS_DOMAIN_ID of the environment]
    #[arg(long, value_name = "NUMBER", help_heading = "DDS")]
    domain: Option<u32>,
    /// Address of a network interface to use (repeatable) [default: the one that Cyclone DDS chooses]
    #[arg(long, value_name = "IP", help_heading = "DDS")]
    interface: Vec<IpAddr>,
    /// A host on which others are looked for, beside those that multicast finds (repeatable)
    #[arg(long, value_name = "IP", help_heading = "DDS")]
    host: Vec<IpAddr>,
    /// Be this node of ROS 2 over DDS: topic /a/b is that of ROS 2, rt/a/b in DDS
    #[arg(long, value_name = "NAME", help_heading = "DDS")]
    ros_node: Option<String>,
    /// Mark packets of a class with this code point instead of its own, such as critical=EF (repeatable)
    #[arg(long, value_name = "CLASS=DSCP", value_parser = mark, help_heading = "DDS")]
    mark: Vec<(Class, Dscp)>,
    /// Join this network with others of DDS, to which other bridges lead by other names
    #[arg(long, value_name = "NAME", help_heading = "DDS")]
    network: Option<String>,
    /// Do not look for others by multicast
    #[arg(long, help_heading = "DDS")]
    no_multicast: bool,
    /// Definitions of types in IDL (repeatable)
    #[arg(long, value_name = "FILE.idl", help_heading = "DDS")]
    idl: Vec<PathBuf>,
    /// Where definitions of ROS 2 are, as DIR/std_msgs/msg/String.msg (repeatable) [default: share in each of AMENT_PREFIX_PATH]
    #[arg(long, value_name = "DIR", help_heading = "DDS")]
    definitions: Vec<PathBuf>,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// Runs until told to stop.
pub(super) fn run(arguments: &DdsArguments) -> Result {
    let settings = arguments.settings()?;
    let rules = arguments.rules()?;
    let marks: BTreeMap<_, _> = settings.marks.iter().map(|(class, dscp)| (class.name(), dscp.value())).collect();
    let about = json!({
        "domain": settings.domain, "interfaces": settings.interfaces, "peers": settings.peers, "multicast": settings.multicast,
        "node": settings.node, "marks": marks, "network": rules.network(),
    });
    let open = |bridge| Dds::open(settings.clone(), Some(bridge));
    carry(&arguments.common, rules, &about, open)
}

impl DdsArguments {
    fn rules(&self) -> Result<Rules> {
        let rules = self.topics.rules()?;
        let Some(network) = &self.network else { return Ok(rules) };
        rules.in_network(network).map_err(|wrong| Failure::Usage(wrong.to_string()))
    }

    fn settings(&self) -> Result<Settings> {
        let idl = Arc::new(definitions(&self.idl)?);
        let stated = idl.clone();
        let directories = directories_or_installed(&self.definitions)?;
        let described = move |name: &str| -> Option<TypeDescription> {
            let of_ros = || describe(&ros_name(name)?, &directories).ok();
            idl.describe(name).ok().or_else(of_ros)
        };
        Ok(Settings {
            domain: self.domain()?,
            node: self.ros_node.clone(),
            interfaces: self.interface.clone(),
            peers: self.host.clone(),
            multicast: !self.no_multicast,
            configuration: std::env::var("CYCLONEDDS_URI").unwrap_or_default(),
            describe: Arc::new(described),
            keys: Arc::new(move |name| stated.keys(name).unwrap_or_default()),
            marks: self.mark.clone(),
            ..Settings::default()
        })
    }
}

impl DdsArguments {
    fn domain(&self) -> Result<u32> {
        const NAME: &str = "ROS_DOMAIN_ID";
        let stated = self.ros_node.as_ref().and_then(|_| std::env::var(NAME).ok());
        let text = match (self.domain, stated) {
            (Some(domain), _) => return Ok(domain),
            (None, None) => return Ok(0),
            (None, Some(text)) => text,
        };
        text.trim()
            .parse()
            .map_err(|_| Failure::Usage(format!("{NAME} is {text:?}: a number is expected, or --domain")))
    }
}

fn mark(text: &str) -> std::result::Result<(Class, Dscp), String> {
    let (class, dscp) = text.split_once('=').ok_or("CLASS=DSCP is expected, such as critical=EF")?;
    let of = |wrong: PriorityError| wrong.to_string();
    Ok((class.parse().map_err(of)?, dscp.parse().map_err(of)?))
}

fn definitions(files: &[PathBuf]) -> Result<Idl> {
    let mut idl = Idl::new();
    for file in files {
        let place = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{place}: {error}")))?;
        idl.add(&place, &text).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    }
    Ok(idl)
}

/// The name in ROS 2 of its type in DDS: `std_msgs::msg::dds_::String_` is `std_msgs/msg/String`.
fn ros_name(name: &str) -> Option<String> {
    let mut parts = name.strip_suffix('_')?.split("::");
    let (package, group, own, short) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (own == "dds_" && parts.next().is_none()).then(|| format!("{package}/{group}/{short}"))
}
