use super::super::Profile;
use super::*;

const ROBOT: &str = r#"<?xml version="1.0"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <qos_library name="Robot">
    <qos_profile name="Base">
      <datawriter_qos>
        <reliability><kind>BEST_EFFORT_RELIABILITY_QOS</kind></reliability>
        <transport_priority><value>46</value></transport_priority>
      </datawriter_qos>
    </qos_profile>
    <qos_profile name="Arm" base_name="Robot::Base" is_default_qos="true">
      <datawriter_qos topic_filter="arm*">
        <deadline><period><sec>0</sec><nanosec>20000000</nanosec></period></deadline>
        <liveliness>
          <kind>MANUAL_BY_TOPIC_LIVELINESS_QOS</kind>
          <lease_duration><sec>1</sec><nanosec>500000000</nanosec></lease_duration>
        </liveliness>
        <ownership><kind>EXCLUSIVE_OWNERSHIP_QOS</kind></ownership>
        <ownership_strength><value>7</value></ownership_strength>
        <history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>4</depth></history>
        <durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>
      </datawriter_qos>
      <datareader_qos>
        <time_based_filter><minimum_separation><sec>0</sec><nanosec>5</nanosec></minimum_separation></time_based_filter>
        <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>
        <resource_limits><max_samples>LENGTH_UNLIMITED</max_samples><max_instances>9</max_instances></resource_limits>
        <lifespan><duration><sec>DURATION_INFINITE_SEC</sec></duration></lifespan>
        <user_data><value>1</value></user_data>
      </datareader_qos>
      <publisher_qos><partition><name><element>left</element><element>r*</element></name></partition></publisher_qos>
      <participant_qos/>
    </qos_profile>
  </qos_library>
</dds>"#;

fn stated(profile: &Profile, direction: Direction, topic: &str) -> Vec<String> {
    let mut qos = Qos::default();
    profile.policies("/x", topic, direction, &mut qos);
    qos.stated().into_iter().map(|(name, value)| format!("{name} {value}")).collect()
}

fn read(text: &str) -> Result<Profile, String> {
    Profile::parse(Path::new("robot.xml"), text).map_err(|wrong| wrong.to_string())
}

#[test]
fn a_profile_of_dds_says_the_same_here() {
    let profile = read(ROBOT).unwrap();
    let writer = [
        "reliability best-effort",
        "queue keep-last 4",
        "durability transient-local",
        "history 4",
        "deadline 20ms",
        "liveliness by-port",
        "lease 1.5s",
        "ownership exclusive",
        "strength 7",
        "partition left, r*",
    ];
    assert_eq!(stated(&profile, Direction::Publisher, "/arm/left"), writer);
    assert_eq!(stated(&profile, Direction::Publisher, "/camera"), ["reliability best-effort", "partition left, r*"]);
    let reader = ["instances 9", "separation 5ns", "destination-order by-source"];
    assert_eq!(stated(&profile, Direction::Subscriber, "/arm/left"), reader);
    assert_eq!(profile.settings("/x", "/camera", Direction::Publisher).mark.map(|mark| mark.dscp().value()), Some(46));
    assert_eq!(profile.ignored(), ["robot.xml:27: user_data", "robot.xml:30: participant_qos"]);
}

#[test]
fn errors_are_named_with_their_line() {
    let profile =
        |inner: &str| format!("<dds><qos_library>\n<qos_profile name='a'>\n{inner}</qos_profile></qos_library></dds>");
    let writer = |inner: &str| profile(&format!("<datawriter_qos>\n{inner}</datawriter_qos>"));
    for (text, says) in [
        ("<dds>".to_owned(), "robot.xml:1: no XML"),
        ("<dds/>".to_owned(), "no qos_profile"),
        (
            writer("<durability><kind>PERSISTENT_DURABILITY_QOS</kind></durability>"),
            "robot.xml:4: durability: \"persistent\": allowed is volatile",
        ),
        (writer("<reliability/>"), "robot.xml:4: reliability: expected a kind"),
        (
            writer("<deadline><period><sec>soon</sec></period></deadline>"),
            "robot.xml:4: deadline: \"soon\" is no number",
        ),
        (writer("<transport_priority><value>64</value></transport_priority>"), "0 to 63"),
        ("<dds><qos_profile name='a'/>\n<qos_profile name='b'/></dds>".to_owned(), "several profiles (a, b)"),
        ("<dds><qos_profile name='a' base_name='b'/></dds>".to_owned(), "base_name \"b\": no profile"),
        ("<dds><qos_profile name='a' base_name='a'/></dds>".to_owned(), "based on one another"),
    ] {
        let said = read(&text).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_bomb_of_entities_is_refused() {
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]><dds>&b;</dds>";
    assert!(read(bomb).unwrap_err().contains("robot.xml:1: no XML that is read here"));
    assert!(read(&format!("<dds>{}</dds>", "<a/>".repeat(100_001))).is_err());
    assert!(read(&"<dds>".repeat(100_000)).is_err());
}
