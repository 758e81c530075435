use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Command {
    Command::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[test]
fn ys_01_every_verb_is_read_bare_and_as_a_vocab() {
    assert_eq!((read("help"), read("[HELP]")), (Command::Help, Command::Help));
    assert_eq!((read("ver"), read("pray")), (Command::Version, Command::Pray));
    assert!(matches!(read("wave 1"), Command::Other(bottle) if bottle.to_string() == "wave 1"));
    assert!(matches!(read("12 a"), Command::Other(_)));
}

#[test]
fn ys_02_connections_and_monitors() {
    let other = || "/in".to_owned();
    assert_eq!(read("[add] /in"), Command::Add { other: other(), carrier: None });
    assert_eq!(read("add /in udp"), Command::Add { other: other(), carrier: Some("udp".into()) });
    assert_eq!(read("add udp://in"), Command::Add { other: other(), carrier: Some("udp".into()) });
    assert_eq!(read("[del] /in"), Command::Delete { other: other() });
    assert_eq!(read("list"), Command::List { side: Side::Out, other: None });
    assert_eq!(read("list /in"), Command::List { side: Side::Out, other: Some(other()) });
    assert_eq!(read("[list] [in] /in"), Command::List { side: Side::In, other: Some(other()) });
    let properties = vec![("type".to_owned(), "throttle".into()), ("period_ms".to_owned(), Value::Int(20))];
    for text in ["atch in (type throttle) (period_ms 20)", "[atch] [in] ((type throttle) (period_ms 20))"] {
        assert_eq!(read(text), Command::Attach { side: Side::In, properties: properties.clone() });
    }
    assert_eq!(read("dtch out"), Command::Detach { side: Side::Out });
    let parameters = vec![("period_ms".to_owned(), Value::Int(5))];
    assert_eq!(read("set in /in (period_ms 5)"), Command::SetParameters { side: Side::In, name: other(), parameters });
    assert_eq!(read("get out /in"), Command::GetParameters { side: Side::Out, name: other() });
}

#[test]
fn ys_03_properties() {
    assert_eq!(read("prop get"), Command::Properties);
    assert_eq!(read("[prop] [get] colour"), Command::Property("colour".into()));
    assert_eq!(read("prop get /in"), Command::Settings("/in".into()));
    let set = Command::Set { key: "colour".into(), value: "red".into(), priority: None };
    assert_eq!(read("prop set colour red"), set);
}

#[test]
fn malformed_commands_are_refused_with_the_reason() {
    for (text, says) in [
        ("", "[help]"),
        ("add", "port name is missing"),
        ("add in", "starts with /"),
        ("add /in 7", "carrier 7"),
        ("del 5", "port name is missing"),
        ("list in 3", "port name is missing"),
        ("atch", "out or in"),
        ("atch up (type throttle)", "out or in"),
        ("atch in throttle", "no (KEY VALUE)"),
        ("dtch", "out or in"),
        ("set in", "port name is missing"),
        ("get", "out or in"),
        ("prop", "prop get or prop set"),
        ("prop put a b", "prop get or prop set"),
        ("prop set", "needs a key"),
        ("prop set colour", "value for colour is missing"),
        ("prop set /in (sched ((policy SCHED_FIFO) (priority 30))", "at character 14"),
    ] {
        let said = Command::parse(text).unwrap_err();
        assert!(said.contains(says), "{text}: {said}");
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "(prop|set|get|\\[add\\]|list|atch|in|out|/a|sched|qos|process|tos|priority|[0-9-]{1,3}|[() ]){0,40}") {
        let _ = Command::parse(&text);
    }
}
