//! A node of ROS 2 over Zenoh: hiroz, for tests/peers.rs.
//!
//! `hiroz_peer talk|listen PORT COUNT` connects to 127.0.0.1:PORT, publishes or receives COUNT samples on /chatter, prints what came. A talker
//! ends when its input does.

use hiroz::context::ZContextBuilder;
use hiroz::node::ZNode;
use hiroz::qos::{QosHistory, QosProfile};
use hiroz::{Builder, MessageTypeInfo, Result};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const TOPIC: &str = "/chatter";

#[derive(Clone, Debug, Default, Serialize, Deserialize, MessageTypeInfo)]
#[ros_msg(type_name = "std_msgs/msg/String")]
pub struct Text {
    pub data: String,
}

impl hiroz::msg::ZMessage for Text {
    type Serdes = hiroz::msg::SerdeCdrSerdes<Text>;
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, port, count] = &arguments[..] else {
        return Err("usage: hiroz_peer talk|listen PORT COUNT".into());
    };
    let count: u32 = count.parse()?;
    let builder = ZContextBuilder::default().with_domain_id(0).disable_multicast_scouting();
    let context = builder.with_connect_endpoints([format!("tcp/127.0.0.1:{port}")]).build()?;
    let talks = what == "talk";
    let name = if talks { "talker" } else { "listener" };
    let node = context.create_node(name).without_parameters().build()?;
    if talks { talk(&node, count) } else { listen(&node, count) }
}

/// Reliable, and no sample is dropped for a later one.
fn all_of_it() -> QosProfile {
    QosProfile { history: QosHistory::KeepAll, ..QosProfile::default() }
}

fn talk(node: &ZNode, count: u32) -> Result<()> {
    let publisher = node.create_pub::<Text>(TOPIC).with_qos(all_of_it()).build()?;
    let waiting = publisher.wait_for_subscription(1, LONG);
    if !tokio::runtime::Runtime::new()?.block_on(waiting) {
        return Err("nobody subscribes".into());
    }
    for number in 0..count {
        publisher.publish(&Text { data: format!("sample {number}") })?;
    }
    std::io::stdin().read_to_string(&mut String::new())?;
    Ok(())
}

fn listen(node: &ZNode, count: u32) -> Result<()> {
    let subscriber = node.create_sub::<Text>(TOPIC).with_qos(all_of_it()).build()?;
    println!("ready");
    for _ in 0..count {
        println!("{}", subscriber.recv_timeout(LONG)?.data);
    }
    Ok(())
}
