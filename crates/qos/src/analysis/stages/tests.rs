use super::*;
use crate::system::{Node, Placement, Subscriber, Topic};

/// A line of four nodes, 0 to 3, and two subscribers at its end that want every second sample.
fn line(placement: Placement) -> Stages {
    let nodes = (0..4).map(|i| Node { name: i.to_string(), cpus: 2, ..Node::default() }).collect();
    let mtu = |i| if i == 2 { 600 } else { 1500 };
    let link = |i: usize| Link { between: [i, i + 1], rate: 100_000_000, mtu: mtu(i), ..Link::default() };
    let subscriber = || Subscriber { topic: 0, node: 3, scale: 2, cpu_receive: 10, ..Subscriber::default() };
    let system = System {
        nodes,
        links: (0..3).map(link).collect(),
        topics: vec![Topic {
            size: 1200,
            period: 1000,
            burst: 1,
            publishers: vec![0],
            cpu_send: 10,
            ..Topic::default()
        }],
        subscribers: vec![subscriber(), subscriber()],
        placement,
        ..System::default()
    };
    let places = [0, 1].map(|subscriber| Place { publisher: 0, subscriber, node: 1 });
    Stages::new(&system, &Network::new(&system), &places, &[])
}

#[test]
fn copies_are_shared_as_the_placement_says() {
    let crossings = |placement| {
        let stages = line(placement);
        let of = |queue: usize| move |s: &&Stage| matches!(s.step, Step::Cross { queue: q, .. } if q == 2 * queue);
        [0, 1, 2].map(|queue| stages.stages.iter().filter(of(queue)).count())
    };
    assert_eq!(crossings(Placement::default()), [2, 2, 2]);
    assert_eq!(crossings(Placement { proxies: Proxies::Merged, ..Placement::default() }), [1, 2, 2]);
    assert_eq!(crossings(Placement { transport: Transport::Multicast, ..Placement::default() }), [1, 1, 1]);
}

#[test]
fn samples_are_scaled_and_taken_apart_where_a_way_begins() {
    let stages = line(Placement::default());
    let way: Vec<usize> = stages.path(&stages.pairs[0]).collect();
    let shape = |stage: &usize| match stages.stages[*stage].step {
        Step::Cross { packets, .. } => (stages.stages[*stage].every, packets.count),
        Step::Compute { .. } => (stages.stages[*stage].every, 0),
    };
    // From the last: received, two links at half the rate in two packets, scaled, one link, sent.
    assert_eq!(way.iter().map(shape).collect::<Vec<_>>(), [(2, 0), (2, 2), (2, 2), (1, 0), (1, 1), (1, 0)]);
    let Step::Compute { rank, .. } = stages.stages[way[0]].step else { panic!("received by a thread") };
    assert_eq!(rank, 0, "two subscribers' threads on two processors");
}
