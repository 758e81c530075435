//! The body of a fuzz target: names, tokens and attachments of ROS 2 from strangers, and rules from a user. It panics when a promise is
//! broken: what is read can be written and read again, and is the same then.

use crate::bridge::Rules;
use crate::ros2::rmw::{Attachment, Entity, Gid, RosQos, TopicKey, key};

/// A token, key, quality of service, type, attachment or rules, by the first byte.
pub fn names(bytes: &[u8]) {
    let Some((form, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match form % 6 {
        0 => token(&text),
        1 => topic(&text),
        2 => quality(&text),
        3 => types(&text),
        4 => attachment(rest),
        _ => drop(Rules::parse(&text)),
    }
}

/// Inputs to begin from.
pub fn examples() -> Vec<Vec<u8>> {
    const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
    let attachment = Attachment { sequence: 1, time_ns: 2, gid: Gid([7; 16]) }.encode();
    let texts = [
        format!(
            "@ros2_lv/2/8b20917502ee955ac4476e0266340d5c/0/10/MP/%/%/talker/%chatter/std_msgs::msg::dds_::String_/{HASH}/::,7:,:,:,,"
        ),
        format!("0/robot1/chatter/std_msgs::msg::dds_::String_/{HASH}"),
        "2:1:2,5:1,500000000:,:3,2,0".to_owned(),
        "std_msgs/msg/String".to_owned(),
    ];
    let texts = texts.iter().zip(0_u8..).map(|(text, form)| [&[form], text.as_bytes()].concat());
    let rules = b"\x05[[rule]]\ntopic = \"/a\"\ndirection = \"out\"\nscale = 3\n".to_vec();
    texts.chain([[&[4], &attachment[..]].concat(), rules]).collect()
}

fn token(text: &str) {
    let Ok(entity) = Entity::parse(text) else { return };
    if let Ok(printed) = entity.print() {
        assert_eq!(Entity::parse(&printed), Ok(entity), "{text:?} is written as {printed:?}");
    }
}

fn topic(text: &str) {
    let Ok(key) = TopicKey::parse(text) else { return };
    let printed = key.print().expect("what was read can be written");
    assert_eq!((TopicKey::parse(&printed), &printed[..]), (Ok(key), text));
}

fn quality(text: &str) {
    let Ok(qos) = RosQos::parse(text) else { return };
    assert_eq!(RosQos::parse(&qos.print()), Ok(qos), "{text:?}");
}

fn types(text: &str) {
    if let Ok(wire) = key::dds_type(text) {
        assert_eq!(key::ros_type(&wire).as_deref(), Ok(text));
    }
    if let Ok(name) = key::ros_type(text) {
        assert_eq!(key::dds_type(&name).as_deref(), Ok(text));
    }
}

fn attachment(bytes: &[u8]) {
    if let Ok(attachment) = Attachment::decode(bytes) {
        assert_eq!(attachment.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_strangers_are_read_or_refused() {
        let seeds = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        qos::testing::inputs::run("names", super::names, super::examples(), &seeds);
    }
}
