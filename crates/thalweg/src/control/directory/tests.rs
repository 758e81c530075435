use super::*;
use crate::control::Direction;
use crate::testing::discovery::{document, port};

fn doc(node: u64, incarnation: u64, revision: u64, ports: &[(u32, &str, &str)]) -> Document {
    let mut made = document(node);
    (made.incarnation, made.revision) = (incarnation, revision);
    made.ports =
        ports.iter().map(|(id, name, topic)| (PortId(*id), port(Direction::Subscriber, name, topic))).collect();
    made
}

fn tell(directory: &mut Directory, document: Document) -> Applied {
    directory.apply(Origin::this_user(), Event::Document(Box::new(document)))
}

fn delta(applied: Applied) -> Delta {
    match applied {
        Applied::Changed(delta) => delta,
        other => panic!("{other:?}"),
    }
}

fn key(node: u64, port: u32) -> PortKey {
    PortKey { node: NodeId(node), port: PortId(port) }
}

#[test]
fn a_document_a_change_and_a_farewell_keep_the_indexes_right() {
    let mut d = Directory::new();
    let first = delta(tell(&mut d, doc(1, 1, 1, &[(1, "/a", "/t/x"), (2, "/b", "/t/*")])));
    assert!(first.appeared && first.added == [key(1, 1), key(1, 2)]);
    assert_eq!(d.ports_on("/t/x").len(), 2);
    assert_eq!(d.ports_within("/**").len(), 1, "a pattern takes topics, not other patterns");

    let added = [(PortId(3), port(Direction::Publisher, "/c", "/t/y"))].into();
    let change = Change { base: 1, revision: 2, added, removed: vec![PortId(1)], relay: None };
    let second = delta(d.apply(Origin::this_user(), Event::Change(NodeId(1), change)));
    assert_eq!((second.added, second.removed[0].0), (vec![key(1, 3)], key(1, 1)));
    assert!(d.port_named("/a").is_none() && d.port_named("/c").unwrap().0 == key(1, 3));
    assert_eq!(d.port_count(), 2);

    let last = delta(d.apply(Origin::this_user(), Event::Gone(NodeId(1))));
    assert!(last.gone && last.removed.len() == 2);
    assert!(d.nodes().next().is_none() && d.port_count() == 0 && d.by_name.is_empty() && d.by_topic.is_empty());
}

#[test]
fn a_gap_asks_for_a_refresh_and_old_news_changes_nothing() {
    let mut d = Directory::new();
    let change = |base, revision| Event::Change(NodeId(1), Change { base, revision, ..Change::default() });
    assert_eq!(d.apply(Origin::this_user(), change(1, 2)), Applied::RefreshNeeded(NodeId(1)), "not known at all");
    tell(&mut d, doc(1, 1, 5, &[]));
    assert_eq!(d.apply(Origin::this_user(), change(6, 7)), Applied::RefreshNeeded(NodeId(1)));
    assert_eq!(d.apply(Origin::this_user(), change(4, 5)), Applied::Nothing);
    assert_eq!(tell(&mut d, doc(1, 1, 5, &[])), Applied::Nothing);
    assert_eq!(tell(&mut d, doc(1, 1, 4, &[(1, "/a", "/a")])), Applied::Nothing);
    let refreshed = delta(tell(&mut d, doc(1, 1, 7, &[(1, "/a", "/a")])));
    assert!(!refreshed.appeared && refreshed.added == [key(1, 1)]);
}

#[test]
fn a_node_is_gone_when_no_back_end_sees_it() {
    let mut d = Directory::new();
    for source in [Origin::this_user(), Origin::Zenoh] {
        d.apply(source, Event::Document(Box::new(doc(1, 1, 1, &[]))));
    }
    assert_eq!(
        d.apply(Origin::this_user(), Event::Gone(NodeId(1))),
        Applied::RefreshNeeded(NodeId(1)),
        "what the other says"
    );
    assert!(d.node(NodeId(1)).is_some());
    assert!(delta(d.apply(Origin::Zenoh, Event::Gone(NodeId(1)))).gone);
    assert_eq!(d.apply(Origin::Zenoh, Event::Gone(NodeId(1))), Applied::Nothing);
}

#[test]
fn the_later_of_two_ports_with_one_name_loses_in_any_order() {
    let (early, late) = (doc(9, 10, 1, &[(1, "/a", "/a")]), doc(2, 20, 1, &[(1, "/a", "/a")]));
    let expected = [Conflict { name: "/a".into(), winner: key(9, 1), loser: key(2, 1) }];
    for order in [[&early, &late], [&late, &early]] {
        let mut d = Directory::new();
        assert!(delta(tell(&mut d, order[0].clone())).conflicts.is_empty());
        assert_eq!(delta(tell(&mut d, order[1].clone())).conflicts, expected);
        assert_eq!(d.port_named("/a").unwrap().0, key(9, 1));
        d.apply(Origin::this_user(), Event::Gone(NodeId(9)));
        assert_eq!(d.port_named("/a").unwrap().0, key(2, 1));
    }
    let mut d = Directory::new();
    tell(&mut d, doc(7, 10, 1, &[(1, "/a", "/a")]));
    let same_time = delta(tell(&mut d, doc(3, 10, 1, &[(1, "/a", "/a")]))).conflicts;
    assert_eq!((same_time[0].winner, same_time[0].loser), (key(3, 1), key(7, 1)));
}

#[test]
fn entries_beyond_a_limit_are_refused_by_name_and_counted() {
    let mut d = Directory::new();
    let name = |applied| match applied {
        Applied::Refused { refusal, .. } => refusal.limit,
        other => panic!("{other:?}"),
    };
    let many = (0..=limits::MOST_PORTS as u32).map(|n| (PortId(n), port(Direction::Publisher, "/a", "/a")));
    let mut big = doc(1, 1, 1, &[]);
    big.ports = many.collect();
    assert_eq!(name(tell(&mut d, big)), "ports of a node");
    let mut long = doc(1, 1, 1, &[]);
    long.name = "x".repeat(256);
    assert_eq!(name(tell(&mut d, long)), "length of a name");
    assert_eq!(name(tell(&mut d, doc(1, 1, 1, &[(1, "no slash", "/a")]))), "names");
    let mut relayed = doc(1, 1, 1, &[(1, "/a", "/a")]);
    relayed.ports.get_mut(&PortId(1)).unwrap().qos.place = qos::Place::Relay("x".repeat(4 << 20));
    assert_eq!(name(tell(&mut d, relayed)), "policies");
    let mut fallen = doc(1, 1, 1, &[(1, "/a", "/a")]);
    fallen.ports.get_mut(&PortId(1)).unwrap().qos.fallback = vec![qos::PolicyName::Deadline; 100_000];
    assert_eq!(name(tell(&mut d, fallen)), "policies");
    let mut addressed = doc(1, 1, 1, &[]);
    addressed.addresses = vec![([127, 0, 0, 1], 1).into(); 65];
    assert_eq!(name(tell(&mut d, addressed)), "addresses");
    for node in 0..limits::MOST_NODES as u64 {
        tell(&mut d, doc(node, 1, 1, &[]));
    }
    assert_eq!(name(tell(&mut d, doc(u64::MAX, 1, 1, &[]))), "nodes");
    assert_eq!(d.refused().get("names"), Some(&1));
    assert_eq!(d.refused().values().sum::<u64>(), 7);
    let kept = doc(1, 1, 2, &[(1, "/a", "/a")]);
    assert!(!delta(tell(&mut d, kept)).appeared, "a known node may still change");
}

fn by(directory: &mut Directory, origin: Origin, document: Document) -> Applied {
    directory.apply(origin, Event::Document(Box::new(document)))
}

fn stranger() -> Origin {
    Origin::Tcp { from: [10, 0, 0, 9].into(), here: false, user: None }
}

#[test]
fn a_stranger_does_not_replace_a_node_known_in_a_better_way() {
    let mut d = Directory::new();
    by(&mut d, Origin::this_user(), doc(1, 10, 3, &[(1, "/a", "/a")]));
    for worse in [stranger(), Origin::Zenoh] {
        assert_eq!(by(&mut d, worse, doc(1, 10, 999_999, &[(1, "/evil", "/a")])), Applied::Nothing);
        let change = Change { base: 3, revision: 4, removed: vec![PortId(1)], ..Change::default() };
        assert_eq!(d.apply(worse, Event::Change(NodeId(1), change)), Applied::Nothing);
        d.apply(worse, Event::Gone(NodeId(1)));
        assert_eq!(d.port_named("/a").unwrap().0, key(1, 1), "{worse:?}");
    }
    // A node known in a worse way gives way, with any claimed revision.
    let mut d = Directory::new();
    by(&mut d, stranger(), doc(1, 0, u64::MAX, &[(1, "/evil", "/a")]));
    delta(by(&mut d, Origin::this_user(), doc(1, 10, 3, &[(1, "/a", "/a")])));
    assert!(d.port_named("/evil").is_none() && d.port_named("/a").is_some());
    // The worse way is accepted again when the better one is gone, after the node has sent its full document again.
    by(&mut d, Origin::Zenoh, doc(1, 10, 3, &[(1, "/b", "/a")]));
    d.apply(stranger(), Event::Gone(NodeId(1)));
    assert_eq!(d.apply(Origin::this_user(), Event::Gone(NodeId(1))), Applied::RefreshNeeded(NodeId(1)));
    delta(by(&mut d, Origin::Zenoh, doc(1, 10, 2, &[(1, "/b", "/a")])));
    assert!(d.port_named("/b").is_some() && d.port_named("/a").is_none());
}

#[test]
fn a_name_stays_with_who_holds_it_on_this_host() {
    for strangers_first in [true, false] {
        let mut d = Directory::new();
        let all =
            [(stranger(), doc(9, 0, 1, &[(1, "/a", "/a")])), (Origin::this_user(), doc(2, 77, 1, &[(1, "/a", "/a")]))];
        let order = if strangers_first { [0, 1] } else { [1, 0] };
        order.into_iter().for_each(|n| drop(by(&mut d, all[n].0, all[n].1.clone())));
        assert_eq!(d.port_named("/a").unwrap().0, key(2, 1));
    }
}

#[test]
fn documents_take_no_more_than_their_bytes() {
    let mut d = Directory::new();
    let heavy = |node: u64, bytes: usize| {
        let mut made = doc(node, 1, 1, &[]);
        let mut heavy = port(Direction::Publisher, "/a", "/a");
        heavy.qos.partition = vec!["x".repeat(250); 64];
        let count = u32::try_from(bytes / heavy.weight() + 1).unwrap();
        let named = |n: u32| PortInfo { name: format!("/{n}"), ..heavy.clone() };
        made.ports = (1..=count).map(|n| (PortId(n), named(n))).collect();
        made
    };
    let limit = |applied| match applied {
        Applied::Refused { refusal, .. } => Some(refusal.limit),
        _ => None,
    };
    assert_eq!(
        limit(by(&mut d, Origin::this_user(), heavy(1, limits::MOST_BYTES_OF_NODE + 4096))),
        Some("bytes of a node's document")
    );
    let from = |last: u64| Origin::Tcp { from: [10, 0, 1, last as u8].into(), here: false, user: None };
    let refused = (1..100).find_map(|node| limit(by(&mut d, from(node), heavy(node, 1 << 20))));
    assert_eq!(refused, Some("bytes of the documents of one address"));
    assert!((12 << 20..=limits::MOST_BYTES_ELSEWHERE).contains(&d.weight()), "{}", d.weight());
    assert!(d.weight() <= limits::MOST_BYTES_ELSEWHERE, "{}", d.weight());
    assert_eq!(limit(by(&mut d, Origin::this_user(), heavy(1000, 1 << 20))), None, "this host's own have room");
    let refused = (2000..3000).find_map(|node| limit(by(&mut d, Origin::this_user(), heavy(node, 1 << 20))));
    assert_eq!(refused, Some("bytes of all documents"));
    assert!(d.weight() <= limits::MOST_BYTES);
    d.nodes().map(|known| known.node).collect::<Vec<_>>().into_iter().for_each(|node| {
        d.apply(stranger(), Event::Gone(node));
        d.apply(Origin::this_user(), Event::Gone(node));
    });
    assert_eq!((d.weight(), d.port_count()), (0, 0));
}

fn with_ports(node: u64, ports: u32) -> Document {
    let mut made = doc(node, 1, 1, &[]);
    let its = |n: u32| port(Direction::Publisher, &format!("/{node}/{n}"), &format!("/{node}/{n}"));
    made.ports = (1..=ports).map(|n| (PortId(n), its(n))).collect();
    made
}

/// Fills one source's share with nodes of `ports` ports; returns their number, and the limit reached.
fn fill(d: &mut Directory, origin: Origin, first: u64, ports: u32) -> (u64, &'static str) {
    for count in 0.. {
        if let Applied::Refused { refusal, .. } = by(d, origin, with_ports(first + count, ports)) {
            return (count, refusal.limit);
        }
    }
    unreachable!("there is no limit")
}

#[test]
fn one_address_leaves_room_for_others_and_all_of_them_for_this_host() {
    let other = Origin::Tcp { from: [10, 0, 0, 8].into(), here: false, user: None };
    for (ports, by_bytes) in [(0, false), (30, true), (3000, true)] {
        let mut d = Directory::new();
        let (of_first, limit) = fill(&mut d, stranger(), 0, ports);
        assert_eq!(limit.starts_with("bytes"), by_bytes, "{limit}");
        assert!(limit.ends_with("of one address"), "{limit}");
        let (of_second, _) = fill(&mut d, other, 10_000, ports);
        let (of_zenoh, _) = fill(&mut d, Origin::Zenoh, 20_000, ports);
        assert!(of_first / 2 <= of_second + 1 && of_second > 0, "{of_first}, {of_second}");
        assert!(of_second / 2 <= of_zenoh + 1, "{of_second}, {of_zenoh}");
        // Earlier nodes may still change, as long as they take no more room.
        let mut again = doc(0, 1, 2, &[]);
        again.ports = d.node(NodeId(0)).unwrap().ports.clone();
        delta(by(&mut d, stranger(), again));
        let (here, limit) = fill(&mut d, Origin::this_user(), 30_000, ports);
        assert!(here >= of_first / 2, "{here} {limit}");
    }
}

#[test]
fn ids_of_other_hosts_leave_places_for_nodes_and_ports_of_this_one() {
    let mut d = Directory::new();
    let from = |last: u64| Origin::Tcp { from: [10, 0, 0, last as u8].into(), here: false, user: None };
    for source in 1..100 {
        fill(&mut d, from(source), source * 10_000, 0);
    }
    let strangers = d.nodes().count();
    assert!(strangers <= limits::MOST_NODES / 4 * 3, "{strangers}");
    assert_eq!(fill(&mut d, Origin::this_user(), 0, 0), ((limits::MOST_NODES - strangers) as u64, "nodes"));
    // This node itself has room in spite of the others.
    delta(by(&mut d, Origin::Own, doc(u64::MAX, 1, 1, &[(1, "/a", "/a")])));
}

#[test]
fn a_refused_node_is_asked_again_once_there_is_room() {
    let mut d = Directory::new();
    let (taken, _) = fill(&mut d, stranger(), 0, 3000);
    let refused = NodeId(taken);
    assert_eq!((d.due_for_refresh(), d.turned_away()), (vec![], 1), "nothing was given back");
    // Too little of it: still no room.
    by(&mut d, Origin::Zenoh, doc(99, 1, 1, &[]));
    d.apply(Origin::Zenoh, Event::Gone(NodeId(99)));
    assert_eq!(d.due_for_refresh(), []);
    d.apply(stranger(), Event::Gone(NodeId(0)));
    assert_eq!(d.due_for_refresh(), [refused]);
    assert_eq!(d.due_for_refresh(), [], "it was asked");
    // A node that is gone is not asked, and the number of asked nodes of one address is limited.
    fill(&mut d, stranger(), taken, 3000);
    d.apply(stranger(), Event::Gone(NodeId(taken + 1)));
    (100..400).for_each(|node| drop(by(&mut d, stranger(), with_ports(node, 3000))));
    (1..=taken).for_each(|node| drop(d.apply(stranger(), Event::Gone(NodeId(node)))));
    let again = d.due_for_refresh();
    assert!(again.len() == 64 && !again.contains(&NodeId(taken + 1)), "{again:?}");
}

/// Regression: of two ways that found no room only the last was remembered, and forgotten when either reported the
/// node's end.
#[test]
fn a_node_refused_by_two_ways_is_asked_again_for_each() {
    for zenoh_says_gone in [false, true] {
        let mut d = Directory::new();
        let refused = NodeId(fill(&mut d, stranger(), 0, 3000).0);
        fill(&mut d, Origin::Zenoh, 1000, 3000);
        let applied = by(&mut d, Origin::Zenoh, with_ports(refused.0, 3000));
        assert!(matches!(applied, Applied::Refused { .. }), "{applied:?}");
        if zenoh_says_gone {
            d.apply(Origin::Zenoh, Event::Gone(refused));
        }
        // Zenoh has taken of what the stranger might have had: the place of one of its nodes may be too small for another one now.
        let is_asked = |node| {
            d.apply(stranger(), Event::Gone(NodeId(node)));
            d.due_for_refresh().contains(&refused)
        };
        assert!((0..refused.0).any(is_asked));
    }
}

#[test]
fn a_node_known_by_a_worse_way_is_asked_by_a_better_one() {
    let full = || {
        let mut d = Directory::new();
        let refused = fill(&mut d, stranger(), 0, 3000).0;
        (d, refused)
    };
    let (mut d, refused) = full();
    delta(by(&mut d, Origin::Zenoh, with_ports(refused, 3000)));
    d.apply(stranger(), Event::Gone(NodeId(0)));
    assert_eq!(d.due_for_refresh(), [NodeId(refused)]);
    let (mut d, refused) = full();
    delta(tell(&mut d, with_ports(refused, 3000)));
    d.apply(stranger(), Event::Gone(NodeId(0)));
    assert_eq!(d.due_for_refresh(), [], "what a worse way says counts for nothing now");
}

/// Regression: each repeated document caused a search of all refused nodes.
#[test]
fn refused_nodes_are_searched_only_where_room_was_freed() {
    let mut d = Directory::new();
    let unheard = fill(&mut d, stranger(), 0, 30).0;
    let mut looked = |origin: Origin, event: Event| {
        d.apply(origin, event);
        let looks = std::cell::Cell::new(0);
        d.room.fitting(|_| {
            looks.set(looks.get() + 1);
            None
        });
        looks.get()
    };
    let says = |revision: u64, ports: u32| Event::Document(Box::new(Document { revision, ..with_ports(1, ports) }));
    assert_eq!(looked(stranger(), says(1, 30)), 0, "the same again");
    assert_eq!(looked(stranger(), says(2, 30)), 0, "as much as before");
    let change = |revision: u64, removed: &[u32]| {
        let removed = removed.iter().map(|port| PortId(*port)).collect();
        Event::Change(NodeId(1), Change { base: revision - 1, revision, removed, ..Change::default() })
    };
    assert_eq!(looked(stranger(), change(3, &[])), 0);
    assert_eq!(looked(Origin::Zenoh, says(3, 30)), 0, "one more way to it");
    assert_eq!(looked(Origin::Zenoh, Event::Gone(NodeId(1))), 0, "one way less");
    let another = Event::Document(Box::new(with_ports(unheard + 1, 1)));
    assert_eq!(looked(Origin::Zenoh, another), 0, "room was taken");
    assert_eq!(looked(stranger(), change(4, &[30])), 1);
    assert_eq!(looked(stranger(), says(5, 28)), 1);
    assert_eq!(looked(Origin::this_user(), says(1, 28)), 1, "it is of this host, and of no address's share");
}

/// Regression: such a node counted among those of other hosts for good; after some thousand there was no room for
/// these.
#[test]
fn a_node_that_is_found_elsewhere_before_it_is_found_here_counts_once() {
    let mut d = Directory::new();
    by(&mut d, stranger(), doc(1, 1, 1, &[(1, "/a", "/a")]));
    by(&mut d, stranger(), doc(2, 1, 1, &[]));
    let others = d.node(NodeId(2)).unwrap().weight();
    assert!(d.weight_elsewhere() > others);
    tell(&mut d, doc(1, 1, 1, &[(1, "/a", "/a")]));
    assert_eq!(d.weight_elsewhere(), others);
    d.apply(stranger(), Event::Gone(NodeId(1)));
    d.apply(Origin::this_user(), Event::Gone(NodeId(1)));
    d.apply(stranger(), Event::Gone(NodeId(2)));
    assert_eq!((d.weight_elsewhere(), d.weight()), (0, 0));
}

/// Regression: one name for all ports of a document cost the square of their number in look-ups, for each document.
#[test]
fn a_node_has_a_name_once() {
    let refused = |applied| match applied {
        Applied::Refused { refusal, .. } => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let all = |node: u64, name: &dyn Fn(u32) -> String| {
        let mut made = doc(node, 1, 1, &[]);
        made.ports = (1..=4096).map(|n| (PortId(n), port(Direction::Publisher, &name(n), "/t"))).collect();
        made
    };
    let mut d = Directory::new();
    assert_eq!(refused(tell(&mut d, all(1, &|_| "/a".into()))), "names: two ports of the node are named /a");
    assert!(d.nodes().next().is_none());
    let each = |n: u32| format!("/{n}");
    assert!(delta(tell(&mut d, all(1, &each))).conflicts.is_empty());
    let conflicts = delta(tell(&mut d, all(2, &each))).conflicts;
    assert_eq!(conflicts.len(), 4096, "one of each name");
    assert!(conflicts.iter().all(|conflict| (conflict.winner.node, conflict.loser.node) == (NodeId(1), NodeId(2))));

    let mut change = |added: &[(u32, &str)], removed: &[u32]| {
        let added = added.iter().map(|(n, name)| (PortId(*n), port(Direction::Publisher, name, "/t"))).collect();
        let removed = removed.iter().map(|n| PortId(*n)).collect();
        d.apply(
            Origin::this_user(),
            Event::Change(NodeId(2), Change { base: 1, revision: 2, added, removed, relay: None }),
        )
    };
    assert_eq!(refused(change(&[(5000, "/7")], &[8])), "names: two ports of the node are named /7");
    assert_eq!(refused(change(&[(5000, "/b"), (5001, "/b")], &[8, 9])), "names: two ports of the node are named /b");
    assert_eq!(
        delta(change(&[(5000, "/7"), (8, "/9"), (9, "/8")], &[7])).conflicts.len(),
        3,
        "names may change places"
    );
    assert_eq!(d.by_name["/7"], [key(1, 7), key(2, 5000)]);
    assert_eq!(d.by_topic["/t"].len(), 2 * 4096);
    d.apply(Origin::this_user(), Event::Gone(NodeId(2)));
    assert!(d.by_topic["/t"].iter().all(|key| key.node == NodeId(1)));
}
