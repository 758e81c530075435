use super::super::policies::{of_reader, of_writer};
use super::*;
use qos::{Ownership, Qos, Reliability};
use thalweg::codec::Idl;

fn graph() -> Graph {
    Graph::new(Arc::new(Types::new(Naming::Plain, Arc::new(|_| None))), "bridge/".to_owned())
}

fn stated() -> Stated {
    Stated { name: "Arm".to_owned(), hash: None, keyed: false }
}

fn guid(participant: u8, end: u32) -> Guid {
    let mut bytes = [participant; 16];
    bytes[12..].copy_from_slice(&end.to_be_bytes());
    Guid(bytes)
}

fn end(end: u32, writes: bool, topic: &str, qos: &Qos) -> FoundEnd {
    let policies = if writes { of_writer(qos, Vec::new()) } else { of_reader(qos, Vec::new()) };
    let (topic, type_name) = (topic.to_owned(), "Arm".to_owned());
    FoundEnd { guid: guid(1, end), writes, topic, type_name, keyed: false, policies }
}

fn came(graph: &Graph, found: FoundEnd) {
    graph.take(Found::End(Box::new(found)), Instant::now());
}

#[test]
fn endpoints_come_and_go_with_their_participant() {
    let graph = graph();
    came(&graph, end(1, true, "arm", &Qos::default()));
    came(&graph, end(2, false, "arm/left", &Qos::default()));
    graph.take(Found::Participant(guid(1, 0x1c1), Some("arm_driver".to_owned()), Vec::new()), Instant::now());
    let ends = graph.endpoints();
    let told: Vec<_> = ends.iter().map(|end| (&end.topic.name[..], end.direction, &end.name[..])).collect();
    assert_eq!(
        told,
        [("/arm", Direction::Publisher, "arm_driver"), ("/arm/left", Direction::Subscriber, "arm_driver")]
    );
    assert_eq!(graph.written(), [("/arm".to_owned(), stated())]);
    assert_eq!(graph.types_of("/arm/left"), [stated()]);
    graph.named(guid(1, 0x1c1), HashMap::from([(guid(1, 1), "/arm/driver".to_owned())]));
    assert_eq!(graph.endpoints()[0].name, "/arm/driver");
    graph.take(Found::EndGone(guid(1, 2)), Instant::now());
    assert_eq!(graph.endpoints().len(), 1);
    graph.take(Found::ParticipantGone(guid(1, 0x1c1)), Instant::now());
    graph.named(guid(1, 0x1c1), HashMap::from([(guid(1, 1), "/too/late".to_owned())]));
    assert_eq!((graph.endpoints(), graph.changes(Instant::now())), (Vec::new(), 6));
    assert_eq!(lock(&graph.others).nodes.of(guid(1, 1)), None);
}

#[test]
fn what_cannot_be_carried_is_counted_with_its_reason() {
    let graph = graph();
    came(&graph, FoundEnd { keyed: true, ..end(1, true, "Square", &Qos::default()) });
    assert!(graph.refused(&[]).last.contains("topic Square of type Arm: it has a key, and no definition"));
    came(&graph, end(2, true, "two words", &Qos::default()));
    assert_eq!((graph.refused(&[]).count, graph.endpoints()), (2, Vec::new()));
    let complaints = [Complaints::default(), Complaints { count: 3, last: "malformed packet".to_owned() }];
    let refused = graph.refused(&complaints);
    assert_eq!((refused.count, &refused.last[..]), (5, "malformed packet"));
    assert_eq!(graph.refused(&complaints).count, 5);
}

/// `Arm` with the key `id`, but for a definition that says another one.
fn keyed_graph(key: &'static str) -> Graph {
    let mut idl = Idl::new();
    idl.add("arm.idl", "@final struct Arm { long id; sequence<long> joints; };").unwrap();
    let types = Types::new(Naming::Plain, Arc::new(move |name| idl.describe(name).ok()));
    Graph::new(Arc::new(types.with_keys(Arc::new(move |_| vec![key.to_owned()]))), String::new())
}

#[test]
fn a_topic_with_a_key_has_it_where_a_definition_states_it() {
    let graph = keyed_graph("id");
    let keyed = |number, writes, qos: &Qos| FoundEnd { keyed: true, ..end(number, writes, "arm", qos) };
    came(&graph, keyed(1, true, &Qos::default()));
    let told: Vec<_> = graph.endpoints().into_iter().map(|end| end.qos.key).collect();
    assert_eq!(told, [["id"]]);
    assert!(graph.is_keyed("/arm", "Arm") && !graph.is_keyed("/arm", "Leg"));
    let exclusive = Qos { ownership: Ownership::Exclusive, ..Qos::default() };
    came(&graph, keyed(2, true, &exclusive));
    assert!(graph.refused(&[]).last.contains("ownership = exclusive"));
    came(&graph, keyed(3, false, &exclusive));
    assert_eq!((graph.endpoints().len(), graph.refused(&[]).count), (2, 1));
    let graph = keyed_graph("joints");
    came(&graph, keyed(1, true, &Qos::default()));
    assert!(graph.refused(&[]).last.ends_with("its member joints is no single number, text or truth value"));
}

#[test]
fn a_reader_with_a_key_is_told_and_does_not_match_a_writer_without_one() {
    let graph = graph();
    came(&graph, FoundEnd { keyed: true, ..end(1, false, "arm", &Qos::default()) });
    assert_eq!((graph.endpoints().len(), graph.refused(&[]).count), (1, 0));
    let offer = Qos::default();
    let enter = |keyed| {
        let stated = Stated { keyed, ..stated() };
        graph.enter("/arm", &stated, Direction::Publisher, &offer, of_writer(&offer, Vec::new()))
    };
    let _keyed = enter(true);
    assert_eq!(graph.incompatible(), []);
    let _without = enter(false);
    let told: Vec<String> = graph.incompatible().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/arm: key offered none, requested some"]);
}

#[test]
fn a_flood_of_endpoints_is_bounded() {
    let graph = graph();
    (0..MOST_ENDPOINTS as u32 + 5).for_each(|number| came(&graph, end(number, true, "arm", &Qos::default())));
    assert_eq!((graph.endpoints().len(), graph.refused(&[]).count), (MOST_ENDPOINTS, 5));
}

#[test]
fn a_flood_of_participants_is_bounded_and_those_known_are_still_heard() {
    let graph = Graph::new(Arc::new(Types::new(Naming::Plain, Arc::new(|_| None))), "bridge/".to_owned());
    let number = |number: u128| Guid(((number << 32) + 0x1c1).to_be_bytes());
    let join = |guid, data: &[u8]| graph.take(Found::Participant(guid, None, data.to_vec()), Instant::now());
    (0..MOST_ENDPOINTS as u128 + 5).for_each(|participant| join(number(participant), b""));
    let refused = graph.refused(&[]);
    assert_eq!((refused.count, &refused.last[..]), (5, "a participant beyond 10000, which are known"));
    assert_eq!(graph.changes(Instant::now()), MOST_ENDPOINTS as u64);
    join(number(0), b"bridge/0123456789abcdef;");
    assert_eq!(graph.bridges(), [NodeId(0x0123_4567_89ab_cdef)]);
}

#[test]
fn an_end_is_held_once_and_not_after_it_is_gone() {
    let graph = Graph::new(Arc::new(Types::new(Naming::Ros, Arc::new(|_| None))), String::new());
    let held = || lock(&graph.others).held.len();
    for _ in 0..3 {
        came(&graph, end(1, true, "rt/arm", &Qos::default()));
        came(&graph, end(2, true, "rt/arm", &Qos::default()));
    }
    assert_eq!(held(), 2);
    graph.take(Found::EndGone(guid(1, 1)), Instant::now());
    assert_eq!(held(), 1);
    graph.take(Found::ParticipantGone(guid(1, 0x1c1)), Instant::now());
    assert_eq!(held(), 0);
}

#[test]
fn a_mismatch_is_told_once_with_both_values() {
    let graph = graph();
    let lossy = Qos { reliability: Reliability::BestEffort, ..Qos::default() };
    came(&graph, end(1, true, "arm", &lossy));
    let request = Qos::default();
    let own = graph.enter("/arm", &stated(), Direction::Subscriber, &request, of_reader(&request, Vec::new()));
    let told: Vec<String> = graph.incompatible().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/arm: reliability offered best-effort, requested reliable"]);
    assert_eq!(graph.incompatible(), []);
    drop(own);
    let other = Stated { name: "robot::Arm".to_owned(), ..stated() };
    let _typed = graph.enter("/arm", &other, Direction::Subscriber, &lossy, of_reader(&lossy, Vec::new()));
    assert_eq!(graph.incompatible()[0].policy, "type");
    came(
        &graph,
        FoundEnd {
            policies: Policies { representations: vec![2], ..Policies::default() },
            ..end(2, false, "leg", &lossy)
        },
    );
    let _writer = graph.enter("/leg", &stated(), Direction::Publisher, &lossy, of_writer(&lossy, Vec::new()));
    let told: Vec<String> = graph.incompatible().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/leg: data representation offered [0], requested [2]"]);
}

#[test]
fn bridges_of_the_same_rules_are_known() {
    let graph = graph();
    graph
        .take(Found::Participant(guid(1, 0x1c1), None, b"enclave=/;bridge/0123456789abcdef;".to_vec()), Instant::now());
    graph.take(Found::Participant(guid(2, 0x1c1), None, b"other/0123456789abcdee".to_vec()), Instant::now());
    graph.take(Found::Participant(guid(3, 0x1c1), None, b"bridge/no node".to_vec()), Instant::now());
    assert_eq!(graph.bridges(), [NodeId(0x0123_4567_89ab_cdef)]);
}

#[test]
fn an_end_of_ros_is_told_with_its_node_or_when_none_has_named_it_for_long() {
    let types = Arc::new(Types::new(Naming::Ros, Arc::new(|_| None)));
    let graph = Graph::new(types, String::new());
    let now = Instant::now();
    graph.take(Found::Participant(guid(1, 0x1c1), None, Vec::new()), now);
    for number in [1, 2] {
        graph.take(Found::End(Box::new(end(number, true, "rt/arm", &Qos::default()))), now);
    }
    let names = || graph.endpoints().into_iter().map(|end| end.name).collect::<Vec<_>>();
    assert_eq!(names(), [""; 0]);
    graph.named(guid(1, 0x1c1), HashMap::from([(guid(1, 2), "/driver".to_owned())]));
    assert_eq!(names(), ["/driver"]);
    let seen = graph.changes(now);
    assert_eq!((graph.changes(now + UNNAMED) - seen, names().len()), (1, 2));
    assert_eq!(graph.changes(now + UNNAMED) - seen, 1);
}
