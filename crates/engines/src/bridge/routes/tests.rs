use super::testing::{OWN, document, port};
use super::*;
use qos::Class;
use serde::{Deserialize, Serialize};
use thalweg::control::Foreign;

#[derive(Serialize, Deserialize)]
struct Point {
    x: f64,
}

fn found(ports: Vec<PortInfo>, rules: &str) -> Routes {
    with_ends(ports, rules, None)
}

fn with_ends(ports: Vec<PortInfo>, rules: &str, ends: Option<&[Endpoint]>) -> Routes {
    let documents = [document(1, vec![port(Direction::Publisher, "/own", raw())]), document(2, ports)];
    routes(super::ports(&documents, OWN), &Place::named("zenoh", ""), &Rules::parse(rules).unwrap(), ends)
}

fn point() -> TypeDescription {
    TypeDescription::of::<Point>()
}

#[test]
fn each_publisher_leaves_and_each_subscribed_topic_comes() {
    let publisher = PortInfo {
        qos: Qos { class: Class::High, history: 7, ..Qos::default() },
        ..port(Direction::Publisher, "/a", point())
    };
    let asks_only = PortInfo { pull: PullRole::Only, ..port(Direction::Subscriber, "/c", point()) };
    let routes = found(
        vec![
            publisher,
            port(Direction::Publisher, "/a", point()),
            port(Direction::Subscriber, "/b", point()),
            asks_only,
        ],
        "",
    );
    let ports: Vec<_> =
        routes.out.iter().map(|(at, out)| (at.node.0, at.port.0, &out.topic[..], out.qos.class)).collect();
    assert_eq!(ports, [(2, 1, "/a", Class::High), (2, 2, "/a", Class::Normal)]);
    assert_eq!(routes.into.keys().map(|key| &key.0[..]).collect::<Vec<_>>(), ["/b"]);
    assert_eq!(routes.into.values().next().unwrap().qos.queue, Queue::KeepLast(BURST));
}

#[test]
fn ports_of_other_bridges_have_no_route_but_by_a_rule() {
    let foreign = |engine: &str| Some(Place::named(engine, "").end("x".to_owned()));
    let bridged = |direction, engine| PortInfo { foreign: foreign(engine), ..port(direction, "/a", point()) };
    let both = |engine| vec![bridged(Direction::Publisher, engine), bridged(Direction::Subscriber, engine)];
    let transit = "[[rule]]\ntransit = \"yes\"";
    assert_eq!(found(both("zenoh"), transit), Routes::default(), "it comes from there");
    assert_eq!(found(both("ros2"), ""), Routes::default());
    let other = found(both("ros2"), transit);
    assert_eq!((other.out.len(), other.into.len()), (1, 1));
}

/// The port of a bridge to a network, which takes no samples.
fn asks(network: &str, topic: &str) -> PortInfo {
    let foreign = Some(Place::named("zenoh", network).end(topic.to_owned()));
    PortInfo { pull: PullRole::Only, foreign, ..port(Direction::Subscriber, topic, TypeDescription::any()) }
}

fn joined(ports: Vec<PortInfo>, ends: &[Endpoint]) -> Routes {
    routes(super::ports(&[document(2, ports)], OWN), &Place::named("zenoh", "left"), &Rules::default(), Some(ends))
}

#[test]
fn networks_with_other_names_are_joined() {
    let way = vec!["zenoh/middle".to_owned(), "@00000000000000a7".to_owned()];
    let ends = [
        end(1, "/a", point(), Qos::default()),
        Endpoint { way: way.clone(), ..end(2, "/a", point(), Qos { history: 7, ..Qos::default() }) },
    ];
    let into = joined(vec![asks("right", "/**")], &ends).into;
    let only = into.values().next().unwrap();
    assert_eq!((into.len(), &only.topic[..], only.taken), (1, "/a", false));
    assert_eq!((&only.ways, only.sources.len()), (&BTreeMap::from([(2, way)]), 2));
    for same in ["left", ""] {
        assert_eq!(joined(vec![asks(same, "/**")], &ends), Routes::default(), "{same}");
    }
    let from = |network: &str, passed: &[&str]| {
        let passed = passed.iter().map(ToString::to_string).collect();
        let foreign = Some(Foreign { passed, ..Place::named("zenoh", network).end("/b".to_owned()) });
        joined(vec![PortInfo { foreign, ..port(Direction::Publisher, "/b", point()) }], &[])
    };
    let out = from("right", &["zenoh/far", "@0000000000000009"]).out;
    let expected = ["zenoh/far", "@0000000000000009", "zenoh/right", "@0000000000000002"];
    assert_eq!(out.values().next().unwrap().way, expected);
    assert_eq!(from("right", &["zenoh/left", "@0000000000000009"]), Routes::default(), "it has been there");
    assert_eq!(from("left", &[]), Routes::default());
    let far = from("right", &["zenoh/far"; MOST_PASSED - 1]);
    assert_eq!((far.out.len(), far.far), (0, 1));
    assert!(far.left_out().eq(["1 publishers are not carried on: their samples have come over more than 8 networks"]));
}

/// The bridge's port opens for the one that asks, and does not open anew for the one that takes.
#[test]
fn a_route_that_was_asked_for_serves_the_bridge_that_takes_its_samples() {
    let exclusive = Qos { ownership: qos::Ownership::Exclusive, history: 3, ..Qos::default() };
    let ends = [end(1, "/a", point(), exclusive)];
    let taking = || {
        let qos = Qos { history: 1 << 20, partition: vec!["*".to_owned()], ..Qos::default() };
        PortInfo { pull: PullRole::Push, qos, ..asks("right", "/a") }
    };
    let of = |ports| joined(ports, &ends).into.into_values().next().unwrap();
    let (asked, taken) = (of(vec![asks("right", "/**")]), of(vec![asks("right", "/**"), taking()]));
    assert!(asked.serves(&taken) && taken.serves(&asked));
    assert_eq!((asked.taken, taken.taken, asked.qos.history), (false, true, 3));
    assert_eq!(asked.qos.ownership, qos::Ownership::Exclusive);
}

/// Of an engine that does not tell of its ends, the port of a bridge to another one asks where a rule carries it on.
#[test]
fn what_is_asked_for_in_transit_has_a_route() {
    let foreign = Some(Place::named("mqtt", "").end("/a".to_owned()));
    let asking = || PortInfo { foreign: foreign.clone(), ..asks("", "/a") };
    let transit = "[[rule]]\ntopic = \"/a\"\ntransit = \"yes\"";
    assert_eq!(found(vec![asking()], ""), Routes::default());
    let into = found(vec![asking()], transit).into.into_values().next().unwrap();
    assert_eq!((&into.there[..], &into.message, into.taken), ("/a", &raw(), false));
    let taking = PortInfo { pull: PullRole::Push, qos: Qos { history: 1 << 20, ..Qos::default() }, ..asking() };
    assert!(into.serves(&found(vec![asking(), taking], transit).into.into_values().next().unwrap()));
}

#[test]
fn subscribers_share_a_route_that_satisfies_all() {
    let with = |durability, history, partition: &str| PortInfo {
        qos: Qos { durability, history, partition: vec![partition.to_owned()], ..Qos::default() },
        ..port(Direction::Subscriber, "/a", point())
    };
    let strict = PortInfo { qos: Qos { strict: true, ..Qos::default() }, ..port(Direction::Subscriber, "/a", point()) };
    let two = vec![with(Durability::Volatile, 1, "l"), with(Durability::TransientLocal, 5, "r")];
    let shared = |ports: Vec<PortInfo>| found(ports, "").into.into_values().next().unwrap();
    let into = shared([two.clone(), vec![strict.clone()]].concat());
    assert_eq!((into.qos.durability, into.qos.history), (Durability::TransientLocal, 5));
    assert_eq!((into.qos.queue, qos::partitions_meet(&into.qos.partition, &[])), (Queue::KeepAll(BURST), true));
    // One that comes later leaves the ports of the others alone, if they offer enough.
    let strict_before = shared(vec![two[1].clone(), strict]);
    assert!(strict_before.serves(&shared(two.clone())));
    let only = |history| shared(vec![with(Durability::TransientLocal, history, "r")]);
    assert!(only(5).serves(&only(3)) && !only(3).serves(&only(5)));
    assert!(shared(vec![with(Durability::Volatile, 1, "l")]).serves(&shared(vec![with(Durability::Volatile, 9, "r")])));
}

#[test]
fn a_topic_of_several_patterns_comes_by_one_route() {
    let any = |topic: &str| port(Direction::Subscriber, topic, TypeDescription::any());
    let typed = port(Direction::Subscriber, "/arm/x", point());
    let routes = found(vec![any("/**"), any("/arm/**"), typed, port(Direction::Subscriber, "/arm/**", point())], "");
    let skips = |topic: &str, any: bool| {
        routes.into.values().find(|into| into.topic == topic && into.any == any).map(|into| &into.skips[..])
    };
    assert_eq!(skips("/arm/x", false), Some(&[][..]));
    assert_eq!(skips("/arm/**", false), Some(&["/arm/x".to_owned()][..]));
    assert_eq!(skips("/arm/**", true), None, "the typed one has it");
    assert_eq!(skips("/**", true), Some(&["/arm/**".to_owned(), "/arm/x".to_owned()][..]));
}

#[test]
fn a_subscriber_to_any_type_has_no_route_beside_that_of_a_type() {
    let any = || port(Direction::Subscriber, "/a", TypeDescription::any());
    let alone = found(vec![any()], "");
    assert_eq!(alone.into.values().next().unwrap().message, raw());
    let beside = found(vec![any(), port(Direction::Subscriber, "/a", point())], "");
    assert_eq!(beside.into.values().map(|into| &into.message).collect::<Vec<_>>(), [&point()]);
    let bytes =
        found(vec![any(), port(Direction::Subscriber, "/a", raw()), port(Direction::Subscriber, "/a", point())], "");
    assert_eq!(bytes.into.len(), 2, "who states bytes gets them beside the typed ones");
    let beside = |found: &Routes, message: &TypeDescription| {
        found.into.values().find(|into| into.message == *message).map(|into| into.beside.clone())
    };
    assert_eq!((beside(&bytes, &point()), beside(&bytes, &raw())), (Some(vec![]), Some(vec!["/a".to_owned()])));
    let typed_pattern = port(Direction::Subscriber, "/**", point());
    let wide = found(vec![any(), typed_pattern, port(Direction::Subscriber, "/b", point())], "");
    assert_eq!(beside(&wide, &raw()), Some(vec![]), "a topic's own route goes before that of a pattern");
    let pattern = wide.into.values().find(|into| into.topic == "/**").unwrap();
    assert_eq!((&pattern.beside[..], &pattern.skips[..]), (&["/a".to_owned()][..], &["/b".to_owned()][..]));
}

/// A strict subscriber to any type, to a topic's history in a partition with a wildcard.
fn demanding() -> PortInfo {
    let (durability, partition) = (Durability::TransientLocal, vec!["arm*".to_owned()]);
    let qos = Qos { durability, history: 5, partition, strict: true, ..Qos::default() };
    PortInfo { qos, ..port(Direction::Subscriber, "/a", TypeDescription::any()) }
}

#[test]
fn the_route_of_a_type_offers_what_subscribers_to_any_type_request() {
    let typed = || port(Direction::Subscriber, "/a", point());
    for ports in [vec![demanding(), typed()], vec![typed(), demanding()]] {
        let routes = found(ports, "");
        let into = routes.into.values().next().unwrap();
        assert_eq!((routes.into.len(), &into.message), (1, &point()));
        assert_eq!((into.qos.durability, into.qos.history), (Durability::TransientLocal, 5));
        assert_eq!(
            (&into.qos.partition[..], into.qos.queue),
            (&["*", "arm*"].map(String::from)[..], Queue::KeepAll(BURST))
        );
    }
    let two = found(vec![demanding(), port(Direction::Subscriber, "/a", raw()), typed()], "");
    assert!(two.into.len() == 2 && two.into.values().all(|into| into.qos.durability == Durability::TransientLocal));
}

#[test]
fn partitions_with_wildcards_are_named_on_the_bridges_ports() {
    let with = |direction, partition: &str| PortInfo {
        qos: Qos { partition: vec![partition.to_owned()], ..Qos::default() },
        ..port(direction, "/a", point())
    };
    let into = |partitions: &[&str]| {
        let ports = partitions.iter().map(|name| with(Direction::Subscriber, name)).collect();
        found(ports, "").into.into_values().next().unwrap()
    };
    assert_eq!(into(&["left", "arm*", "?"]).qos.partition, ["*", "arm*", "?"]);
    assert!(into(&["left", "arm*"]).serves(&into(&["right"])) && !into(&["right"]).serves(&into(&["arm*"])));
    assert_eq!(
        found(vec![with(Direction::Publisher, "arm*")], "").out.values().next().unwrap().qos.partition,
        ["arm*"]
    );
}

#[test]
fn rules_rename_mark_and_refuse() {
    let text = "[[rule]]\ntopic = \"/a\"\nthere = \"/r/a\"\nclass = \"critical\"\n[[rule]]\ntopic = \"/b\"\ndirection = \"in\"";
    let routes = found(["/a", "/b"].map(|topic| port(Direction::Publisher, topic, point())).to_vec(), text);
    let out: Vec<_> = routes.out.values().map(|out| (&out.topic[..], &out.there[..], out.qos.class)).collect();
    assert_eq!(out, [("/a", "/r/a", Class::Critical)]);
}

#[test]
fn routes_are_bounded() {
    let ports = (0..MOST_ROUTES + 3).map(|number| port(Direction::Publisher, &format!("/t{number}"), raw())).collect();
    let routes = found(ports, "");
    assert_eq!((routes.out.len(), routes.beyond), (MOST_ROUTES, 3));
}

fn end(id: u128, topic: &str, message: TypeDescription, qos: Qos) -> Endpoint {
    let topic = crate::engine::Topic { name: topic.to_owned(), message };
    Endpoint { id, direction: Direction::Publisher, topic, qos, name: format!("/node{id}"), way: Vec::new() }
}

#[test]
fn where_the_engine_tells_its_publishers_only_their_topics_come() {
    let lossy = Qos { reliability: Reliability::BestEffort, history: 3, ..Qos::default() };
    let durable = Qos { durability: Durability::TransientLocal, history: 7, ..Qos::default() };
    let ends = [
        end(1, "/a", point(), lossy),
        end(2, "/a", point(), durable),
        end(3, "/a", raw(), Qos::default()),
        end(4, "/b", point(), Qos::default()),
    ];
    let subscriber = |topic: &str| port(Direction::Subscriber, topic, TypeDescription::any());
    let routes = with_ends(vec![subscriber("/a"), subscriber("/none")], "", Some(&ends));
    let of = |message: &TypeDescription| routes.into.values().find(|into| into.message == *message).unwrap();
    assert_eq!(routes.into.len(), 2);
    let both = of(&point());
    assert_eq!(both.sources.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        (both.qos.reliability, both.qos.durability, both.qos.history),
        (Reliability::BestEffort, Durability::TransientLocal, 7)
    );
    assert_eq!(of(&raw()).sources[&3], "/node3");
    let by_pattern = with_ends(vec![subscriber("/**")], "[[rule]]\ntopic = \"/b\"\ndirection = \"out\"", Some(&ends));
    assert!(by_pattern.into.values().all(|into| into.topic == "/a") && by_pattern.into.len() == 2);
    let renamed = with_ends(vec![subscriber("/here")], "[[rule]]\ntopic = \"/here\"\nthere = \"/b\"", Some(&ends));
    let one = renamed.into.values().next().unwrap();
    assert_eq!((&one.topic[..], &one.there[..]), ("/here", "/b"));
}

#[test]
fn a_key_there_is_one_here() {
    let keyed = Qos { key: vec!["x".to_owned()], ..Qos::default() };
    let subscriber = port(Direction::Subscriber, "/a", point());
    let ends = [(1, Qos::default()), (2, keyed.clone())].map(|(id, qos)| end(id, "/a", point(), qos));
    for ends in [&ends[1..], &ends[..]] {
        let routes = with_ends(vec![subscriber.clone()], "", Some(ends));
        assert_eq!(routes.into.values().next().unwrap().qos.key, keyed.key, "{} publishers", ends.len());
    }
}

/// DDS tells the names of types alone.
#[test]
fn a_type_known_by_its_name_is_that_of_a_subscriber_of_this_name() {
    let end = Endpoint {
        id: 7,
        direction: Direction::Publisher,
        topic: crate::Topic { name: "/a".to_owned(), message: TypeDescription::opaque("robot::Point") },
        qos: Qos::default(),
        name: "driver".to_owned(),
        way: Vec::new(),
    };
    let any = || port(Direction::Subscriber, "/a", TypeDescription::any());
    let types = |ports| {
        let routes = with_ends(ports, "", Some(std::slice::from_ref(&end)));
        routes.into.into_values().map(|into| into.message).collect::<Vec<_>>()
    };
    assert_eq!(types(vec![any()]), [TypeDescription::opaque("robot::Point")]);
    let typed = || port(Direction::Subscriber, "/a", point());
    assert_eq!(types(vec![any(), typed()]), [point()], "one route, for both");
    let both = with_ends(vec![demanding(), typed()], "", Some(std::slice::from_ref(&end)));
    let offer = &both.into.values().next().unwrap().qos;
    assert_eq!((&offer.partition[..], offer.queue), (&["*", "arm*"].map(String::from)[..], Queue::KeepAll(BURST)));
    let other = port(Direction::Subscriber, "/a", TypeDescription::of::<u64>());
    assert_eq!(types(vec![other]), [TypeDescription::opaque("robot::Point")]);
}
