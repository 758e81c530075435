//! Texts and bytes of `rmw_zenoh_cpp` and of its documentation, and what strangers may send.

use super::attachment::ATTACHMENT;
use super::key::{MAX_KEY, UNHASHED, check_hash, dds_type, ros_type};
use super::qos::{DEFAULT_DEPTH, INFINITE, MAX_QOS};
use super::token::{MAX_TOKEN, graph};
use super::*;
use std::time::Duration;

/// `ros2/rmw_zenoh`, `docs/design.md`, «Graph Cache».
const LISTENER: &str = "@ros2_lv/2/aac3178e146ba6f1fc6e6a4085e77f21/0/0/NN/%/%/listener";
const SUBSCRIPTION: &str = "@ros2_lv/2/aac3178e146ba6f1fc6e6a4085e77f21/0/10/MS/%/%/listener/%chatter/\
    std_msgs::msg::dds_::String_/RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18/::,10:,:,:,,";
const PUBLISHER: &str = "@ros2_lv/2/8b20917502ee955ac4476e0266340d5c/0/10/MP/%/%/talker/%chatter/\
    std_msgs::msg::dds_::String_/RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18/::,7:,:,:,,";
const SERVICE: &str = "@ros2_lv/2/f9980ee0495eaafb3e38f0d19e2eae12/0/10/SS/%/%/add_two_ints_server/%add_two_ints/\
    example_interfaces::srv::dds_::AddTwoInts_/\
    RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a/::,10:,:,:,,";
const CLIENT: &str = "@ros2_lv/2/e1dc8d1b45ae8717fce78689cc655685/0/10/SC/%/%/add_two_ints_client/%add_two_ints/\
    example_interfaces::srv::dds_::AddTwoInts_/\
    RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a/::,10:,:,:,,";
/// The same page, «Topic and Service name mapping to Zenoh key expressions».
const CHATTER: &str = "0/chatter/std_msgs::msg::dds_::String_/\
    RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
const ROBOT: &str = "0/robot1/chatter/std_msgs::msg::dds_::String_/\
    RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
const ADD: &str = "2/add_two_ints/example_interfaces::srv::dds_::AddTwoInts_/\
    RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a";
/// Every field other than its default: by the rules of `liveliness_utils.cpp`.
const CAMERA: &str = "@ros2_lv/0/8b20917502ee955ac4476e0266340d5c/0/10/MP/%/%robot1%sensors/\
    camera_driver_of_the_front_left_corner/%robot1%sensors%camera_front_left%image_raw_compressed/\
    sensor_msgs::msg::dds_::CompressedImage_/\
    RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18/2:1:2,5:1,500000000:,:3,2,0";

const TOKENS: [&str; 6] = [LISTENER, SUBSCRIPTION, PUBLISHER, SERVICE, CLIENT, CAMERA];
const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

#[test]
fn tokens_are_read_and_written() {
    for token in TOKENS {
        let entity = Entity::parse(token).unwrap();
        assert_eq!(entity.print().unwrap(), token);
    }
    let node = Entity::parse(LISTENER).unwrap();
    let root = || "/".to_owned();
    assert_eq!(
        node,
        Entity {
            domain: 2,
            session: "aac3178e146ba6f1fc6e6a4085e77f21".to_owned(),
            node_id: 0,
            id: 0,
            kind: Kind::Node,
            enclave: root(),
            namespace: root(),
            node: "listener".to_owned(),
            topic: None,
        }
    );
    assert_eq!(node.key(), None);
    let publisher = Entity::parse(PUBLISHER).unwrap();
    assert_eq!((publisher.kind, publisher.node_id, publisher.id), (Kind::Publisher, 0, 10));
    let topic = publisher.topic.clone().unwrap();
    assert_eq!((topic.name.as_str(), topic.type_name.as_str()), ("/chatter", "std_msgs::msg::dds_::String_"));
    assert_eq!((topic.hash.as_str(), topic.qos), (HASH, RosQos { depth: 7, ..RosQos::default() }));
    assert_eq!(publisher.key().unwrap().print().unwrap(), CHATTER.replacen('0', "2", 1));
    assert_eq!(Entity::parse(SERVICE).unwrap().key(), None);
    let camera = Entity::parse(CAMERA).unwrap();
    assert_eq!(camera.namespace, "/robot1/sensors");
    assert_eq!(camera.topic.unwrap().name, "/robot1/sensors/camera_front_left/image_raw_compressed");
    assert_eq!(graph(2), "@ros2_lv/2/**");
}

#[test]
fn an_empty_namespace_is_the_root() {
    let mut node = Entity::parse(LISTENER).unwrap();
    (node.namespace, node.enclave) = (String::new(), String::new());
    assert_eq!(node.print().unwrap(), LISTENER);
}

/// `KeyexprIndex::Backends` of branch `lyrical`; Jazzy ignores it.
#[test]
fn a_chunk_of_lyrical_is_ignored() {
    let lyrical = format!("{PUBLISHER}/backends:cpu:");
    assert_eq!(Entity::parse(&lyrical).unwrap(), Entity::parse(PUBLISHER).unwrap());
    assert_ne!(Gid::of(&lyrical), Gid::of(PUBLISHER));
}

#[test]
fn every_shorter_token_is_refused_or_a_node() {
    for token in TOKENS {
        for length in 0..token.len() {
            let read = Entity::parse(&token[..length]);
            assert!(read.is_err() || token.starts_with(&read.unwrap().print().unwrap()), "{}", &token[..length]);
        }
    }
    let of_endpoint = PUBLISHER.rsplit_once('/').unwrap().0;
    let found = Entity::parse(of_endpoint).unwrap_err();
    assert_eq!(found, Malformed::Count { what: "chunks of a token", found: 12, least: 13, most: 14 });
    assert_eq!(found.to_string(), "12 chunks of a token: allowed are 13 to 14");
}

#[test]
fn tokens_with_anything_at_any_place_do_not_panic() {
    for token in TOKENS {
        for index in 0..token.len() {
            for odd in ['/', '%', '*', '$', ':', ',', '0', 'é', '\0', '\u{202e}'] {
                let text = format!("{}{odd}{}", &token[..index], &token[index + 1..]);
                if let Ok(entity) = Entity::parse(&text) {
                    entity.print().unwrap();
                    let _ = entity.key().map(|key| key.print());
                }
            }
        }
    }
}

#[test]
fn odd_tokens_are_refused() {
    let refused = |token: String| Entity::parse(&token).unwrap_err().to_string();
    assert_eq!(refused(String::new()), "0 bytes of a token: allowed are 1 to 4096");
    assert_eq!(refused("x/".repeat(MAX_TOKEN)), "8192 bytes of a token: allowed are 1 to 4096");
    assert_eq!(
        refused(PUBLISHER.replace("/2/", "/4294967296/")),
        "\"4294967296\" is no domain: allowed is a decimal number from 0 to 4294967295, without leading zeros"
    );
    for number in ["+2", "02", "-1", "2 ", "٢"] {
        assert!(refused(PUBLISHER.replace("/2/", &format!("/{number}/"))).contains("domain"), "{number}");
    }
    assert_eq!(refused(PUBLISHER.replace("MP", "AS")), "\"AS\" is no kind: allowed is NN, MP, MS, SS or SC");
    assert!(refused(PUBLISHER.replace("@ros2_lv", "@ros2")).contains("first chunk"));
    assert!(refused(PUBLISHER.replace("/talker/", "/tal*er/")).contains("name of a node"));
    assert!(refused(PUBLISHER.replace("/talker/", "/tal\u{1b}er/")).contains("name of a node"));
    assert!(refused(PUBLISHER.replace("/talker/", &format!("/{}/", "t".repeat(MAX_NAME + 1)))).contains("255"));
    assert!(refused(PUBLISHER.replace("%chatter", "chatter")).contains("fully qualified"));
    assert!(refused(PUBLISHER.replace("8b2091", "08b2091")).contains("identity of a session"));
    assert!(refused(PUBLISHER.replace("RIHS01_df", "RIHS01_")).contains("hash of a type"));
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let refused = |change: fn(&mut Entity)| {
        let mut entity = Entity::parse(PUBLISHER).unwrap();
        change(&mut entity);
        entity.print().unwrap_err().to_string()
    };
    assert!(refused(|entity| entity.node = "a%b".to_owned()).contains("name of a node"));
    assert!(refused(|entity| entity.node = String::new()).contains("name of a node"));
    assert!(refused(|entity| entity.session = "0".to_owned()).contains("identity of a session"));
    assert!(refused(|entity| entity.topic = None).contains("MP"));
    assert!(refused(|entity| entity.kind = Kind::Node).contains("NN"));
    let longest = Entity::parse(&PUBLISHER.replace("/talker/", &format!("/{}/", "t".repeat(MAX_NAME)))).unwrap();
    assert!(longest.print().unwrap().len() <= MAX_TOKEN);
}

/// By `simplified_xxhash3.cpp` of branch `jazzy`, compiled and run: short, of 63, of 184 and 187, and of more than 240
/// bytes, which are three ways of that algorithm.
#[test]
fn the_identity_is_the_hash_of_the_token() {
    for (token, gid) in [
        ("", "7f.49.8d.46.24.c3.01.60.d8.98.47.01.d3.06.aa.99"),
        ("abc", "50.39.2f.89.94.5f.af.78.85.61.3a.73.b6.5a.b0.06"),
        (LISTENER, "49.87.79.99.da.cb.85.87.02.d1.1a.c8.23.78.59.12"),
        (SUBSCRIPTION, "76.14.8a.53.83.08.fe.55.a6.c5.37.54.62.ca.1d.e6"),
        (PUBLISHER, "ac.17.0f.31.ea.dc.d9.ff.0c.d8.6d.7a.17.90.7d.1c"),
        (CAMERA, "51.34.e9.d0.33.86.26.b0.b5.2f.32.e6.91.77.b3.cc"),
    ] {
        assert_eq!(Gid::of(token).to_string(), gid, "{token}");
    }
}

#[test]
fn keys_are_read_and_written() {
    for (key, domain, name) in [(CHATTER, 0, "/chatter"), (ROBOT, 0, "/robot1/chatter")] {
        let read = TopicKey::parse(key).unwrap();
        let (type_name, hash) = ("std_msgs::msg::dds_::String_".to_owned(), HASH.to_owned());
        assert_eq!(read, TopicKey { domain, name: name.to_owned(), type_name, hash });
        assert_eq!(read.print().unwrap(), key);
        let bare = TopicKey { name: format!("{}/", name.trim_start_matches('/')), ..read };
        assert_eq!(bare.print().unwrap(), key);
    }
    let humble = CHATTER.replace(HASH, UNHASHED);
    assert_eq!(TopicKey::parse(&humble).unwrap().print().unwrap(), humble);
}

#[test]
fn services_are_refused_by_name() {
    let service = Malformed::Service { found: "example_interfaces::srv::dds_::AddTwoInts_".to_owned() };
    assert_eq!(TopicKey::parse(ADD), Err(service.clone()));
    assert!(service.to_string().contains("queries"));
    for ros in ["example_interfaces/srv/AddTwoInts_Request", "example_interfaces/action/Fibonacci_SendGoal"] {
        assert_eq!(dds_type(ros), Err(Malformed::Service { found: ros.to_owned() }));
    }
    for (ros, dds) in [
        ("example_interfaces/srv/AddTwoInts_Event", "example_interfaces::srv::dds_::AddTwoInts_Event_"),
        (
            "example_interfaces/action/Fibonacci_FeedbackMessage",
            "example_interfaces::action::dds_::Fibonacci_FeedbackMessage_",
        ),
        ("std_msgs/msg/String", "std_msgs::msg::dds_::String_"),
    ] {
        assert_eq!(dds_type(ros).unwrap(), dds);
        assert_eq!(ros_type(dds).unwrap(), ros);
    }
}

#[test]
fn odd_keys_are_refused() {
    let refused = |key: String| TopicKey::parse(&key).unwrap_err().to_string();
    assert_eq!(refused("0/a/b".to_owned()), format!("3 chunks of a key: allowed are 4 to {MAX_KEY}"));
    assert!(refused(format!("0/{}", "x/".repeat(MAX_KEY))).contains("bytes of a key"));
    assert!(refused(CHATTER.replace("chatter", "**")).contains("topic"));
    assert!(refused(CHATTER.replace("chatter", "a//b")).contains("topic"));
    assert!(refused(format!("{CHATTER}/@adv/pub/8b20917502ee955ac4476e0266340d5c/1/_")).contains("type"));
    assert!(refused(format!("{CHATTER}/_buf_cpu")).contains("type"));
    for wrong in
        ["", "std_msgs/msg/String", "String", "a::b::dds_::c", "a::b::dds_::_", "::msg::dds_::A_", "é::msg::dds_::A_"]
    {
        assert!(ros_type(wrong).is_err(), "{wrong}");
    }
    for wrong in ["", "std_msgs/String", "/msg/String", "std_msgs/msg/", "a/b/c/d", "a/b/c*"] {
        assert!(dds_type(wrong).is_err(), "{wrong}");
    }
    assert!(dds_type(&format!("a/msg/{}", "b".repeat(MAX_TYPE))).is_err());
    for wrong in ["", "RIHS01_", "RIHS01", "_", "EMPTY_TOPIC_HASH", &HASH[..70], &HASH.replace("df", "DF")] {
        assert!(check_hash(wrong).is_err(), "{wrong}");
    }
    assert_eq!(check_hash("RIHS02_00"), Ok(()));
}

#[test]
fn quality_of_service_is_read_and_written() {
    let default = RosQos::default();
    assert_eq!((default.depth, default.print().as_str()), (DEFAULT_DEPTH, "::,:,:,:,,"));
    let best_effort = RosQos { reliability: Reliability::BestEffort, depth: 5, ..default };
    let latched = RosQos { durability: Durability::TransientLocal, depth: 1, ..default };
    let everything = RosQos {
        reliability: Reliability::BestEffort,
        durability: Durability::TransientLocal,
        history: History::KeepAll,
        depth: 5,
        deadline: Some(Duration::from_millis(1500)),
        lifespan: None,
        liveliness: Liveliness::ManualByTopic,
        lease: Some(Duration::from_secs(2)),
    };
    for (text, qos) in [
        ("::,:,:,:,,", default),
        ("::,7:,:,:,,", RosQos { depth: 7, ..default }), // design.md, the talker
        ("2::,5:,:,:,,", best_effort),                   // the profile of sensors, rmw/qos_profiles.h
        (":1:,1:,:,:,,", latched),                       // the profile of /tf_static
        ("2:1:2,5:1,500000000:,:3,2,0", everything),
    ] {
        assert_eq!(RosQos::parse(text), Ok(qos), "{text}");
        assert_eq!(qos.print(), text);
    }
    let largest = RosQos { depth: u32::MAX, deadline: Some(INFINITE - Duration::from_nanos(1)), ..everything };
    assert!(largest.print().len() <= MAX_QOS);
    assert_eq!(RosQos::parse(&largest.print()), Ok(largest));
}

#[test]
fn quality_of_service_is_read_as_rmw_zenoh_means_it() {
    let read = |text: &str| RosQos::parse(text).unwrap();
    assert_eq!(read("1:2:1,42:9223372036,854775807:0,0:1,,"), RosQos::default()); // nothing left out
    assert_eq!(read("1:2:1,0:,:,:,,").depth, DEFAULT_DEPTH);
    assert_eq!(RosQos { depth: 0, ..RosQos::default() }.print(), "::,:,:,:,,");
    assert_eq!(read("::2,:,:,:,,").history, History::KeepAll); // hiroz 0.2.0, qos.rs: no depth
    assert_eq!(read("::,10:3,:,:,,").deadline, Some(Duration::new(3, 854_775_807))); // one field by default
    assert_eq!(read("::,10:18446744073709551615,18446744073709551615:,:,,").deadline, None);
    let best_available = read("4:4:,1:,:,:5,,");
    assert_eq!(best_available, RosQos { reliability: Reliability::BestEffort, depth: 1, ..RosQos::default() });
    assert_eq!(read("::,7:,:,:,,:more").depth, 7);
    assert_eq!(RosQos { lease: Some(Duration::MAX), ..RosQos::default() }.print(), "::,:,:,:,,");
}

#[test]
fn odd_quality_of_service_is_refused() {
    for wrong in ["", ":", "::,:,:,:,", "::,:,:,", ":::::", "3::,:,:,:,,", ":3:,:,:,:,,", "::3,:,:,:,,", "::,:,:,:2,,"]
    {
        assert!(RosQos::parse(wrong).is_err(), "{wrong}");
    }
    for wrong in ["::,-1:,:,:,,", "::,4294967296:,:,:,,", "::,:18446744073709551616,:,:,,", "::,:1.5,:,:,,"] {
        assert!(matches!(RosQos::parse(wrong), Err(Malformed::Number { .. })), "{wrong}");
    }
    let long = format!("::,:,:,:,,{}", ":".repeat(MAX_QOS));
    assert!(matches!(RosQos::parse(&long), Err(Malformed::Count { most: MAX_QOS, .. })));
}

/// `docs/design.md`, «Publishers»: 8 bytes, 8 bytes, 1 byte, 16 bytes.
#[test]
fn attachments_are_written_and_read() {
    let gid = Gid::of(PUBLISHER);
    let attachment = Attachment { sequence: 1, time_ns: 1_700_000_000_123_456_789, gid };
    let bytes = attachment.encode();
    assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[8..16], 1_700_000_000_123_456_789_i64.to_le_bytes());
    assert_eq!((bytes[16], &bytes[17..]), (16, &gid.0[..]));
    assert_eq!(Attachment::decode(&bytes), Ok(attachment));
    let negative = Attachment { sequence: i64::MIN, time_ns: -1, gid: Gid([0xff; 16]) };
    assert_eq!(Attachment::decode(&negative.encode()), Ok(negative));
}

#[test]
fn odd_attachments_are_refused() {
    let bytes = Attachment { sequence: 1, time_ns: 2, gid: Gid([3; 16]) }.encode();
    for length in 0..ATTACHMENT {
        assert!(Attachment::decode(&bytes[..length]).is_err(), "{length}");
    }
    let old = Attachment::decode(&[0; 77]).unwrap_err(); // before 0.2.4: with names
    assert_eq!(old.to_string(), "77 bytes of an attachment: rmw_zenoh writes 33");
    for length in [0, 15, 17, 24, 0x90, 0xff] {
        let mut wrong = bytes;
        wrong[16] = length;
        let what = "bytes of an identity";
        let found = usize::from(length);
        assert_eq!(Attachment::decode(&wrong), Err(Malformed::Count { what, found, least: 16, most: 16 }));
    }
}
