//! A node of ROS 2 over RustDDS: ros2-client, for tests/dds/peers.rs.
//!
//! `ros2_client_peer talk|listen DOMAIN COUNT`: on loopback; publishes or receives COUNT samples on /chatter, prints what came. A talker ends
//! when its input does.

use futures::executor::block_on;
use ros2_client::dds::rustdds::DomainParticipantBuilder;
use ros2_client::qos::{History, WhenFull};
use ros2_client::{Context, MessageTypeName, Name, Node, NodeName, NodeOptions, QosProfile, Subscription};
use std::fmt::Debug;
use std::io::Read;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, domain, count] = &arguments[..] else {
        return Err("usage: ros2_client_peer talk|listen DOMAIN COUNT".to_owned());
    };
    let count: u32 = count.parse().map_err(said)?;
    let builder = DomainParticipantBuilder::new(domain.parse().map_err(said)?);
    let participant = builder.with_only_networks([Ipv4Addr::LOCALHOST]).build().map_err(said)?;
    let context = Context::from_domain_participant(participant).map_err(said)?;
    let talks = what == "talk";
    let name = NodeName::new("/", if talks { "talker" } else { "listener" }).map_err(said)?;
    let options = NodeOptions::new().enable_rosout(false).start_parameter_services(false);
    let mut node = context.new_node(name, options).map_err(said)?;
    let spinner = node.spinner().map_err(said)?;
    std::thread::spawn(move || block_on(spinner.spin())); // until the node is dropped
    if talks { talk(&mut node, count) } else { listen(&mut node, count) }
}

fn said(wrong: impl Debug) -> String {
    format!("{wrong:?}")
}

/// Reliable, and no sample is dropped for a later one.
fn all_of_it() -> QosProfile {
    QosProfile::publisher_default().reliability_reliable(WhenFull::Wait(LONG)).history(History::KeepAll)
}

fn talk(node: &mut Node, count: u32) -> Result<(), String> {
    let topic = Name::new("/", "chatter").map_err(said)?;
    let topic = node.create_topic(&topic, MessageTypeName::new("std_msgs", "String"), &all_of_it()).map_err(said)?;
    let publisher = node.create_publisher::<String>(&topic, None).map_err(said)?;
    block_on(publisher.wait_for_subscription(node));
    for number in 0..count {
        publisher.publish(format!("sample {number}")).map_err(said)?;
    }
    std::io::stdin().read_to_string(&mut String::new()).map_err(said)?;
    Ok(())
}

fn listen(node: &mut Node, count: u32) -> Result<(), String> {
    let topic = Name::new("/", "chatter").map_err(said)?;
    let topic = node.create_topic(&topic, MessageTypeName::new("std_msgs", "String"), &all_of_it()).map_err(said)?;
    let subscription = node.create_subscription::<String>(&topic, None).map_err(said)?;
    println!("ready");
    for _ in 0..count {
        println!("{}", next(&subscription)?);
    }
    Ok(())
}

fn next(subscription: &Subscription<String>) -> Result<String, String> {
    let end = Instant::now() + LONG;
    loop {
        match subscription.take().map_err(said)? {
            Some((text, _)) => return Ok(text),
            None if Instant::now() > end => return Err("not in time".to_owned()),
            None => std::thread::sleep(Duration::from_millis(1)), // between two looks
        }
    }
}
