use super::*;
use crate::testing::discovery::{self, Back, Stage, document};
use std::net::{SocketAddr, TcpListener};

/// Nodes on loopback that all name one router.
struct Routed {
    address: String,
    _router: RouterHandle,
}

impl Routed {
    fn new() -> Self {
        let address = free_address().to_string();
        let _router = router(std::slice::from_ref(&address), &[], |_| {}).unwrap();
        Self { address, _router }
    }
}

impl Stage for Routed {
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
        let settings = ZenohSettings { peers: vec![self.address.clone()], ..on_loopback() };
        Back::new(Zenoh::start(Arc::new(document.clone()), &settings, sink).unwrap())
    }
}

/// Nodes on loopback without a router: the first listens on a known port, the others name it and find the rest through it.
struct Named(Option<u16>);

impl Stage for Named {
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
        let mut settings = on_loopback();
        match self.0 {
            Some(port) => settings.peers = vec![format!("127.0.0.1:{port}")],
            None => settings.port = *self.0.insert(free_address().port()),
        }
        Back::new(Zenoh::start(Arc::new(document.clone()), &settings, sink).unwrap())
    }
}

fn on_loopback() -> ZenohSettings {
    ZenohSettings { listen: vec![[127, 0, 0, 1].into()], ..ZenohSettings::default() }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn nodes_that_name_a_router_conform() {
    discovery::conforms(Routed::new);
}

#[test]
fn nodes_that_name_one_node_conform() {
    discovery::conforms(|| Named(None));
}

#[test]
fn dropping_does_not_hang_even_while_opening_with_a_peer_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = vec![silent.local_addr().unwrap().to_string()];
    let settings = ZenohSettings { peers, ..on_loopback() };
    let start = Instant::now();
    let sink = Sink::new(|_| ());
    let mut node = Zenoh::start(Arc::new(document(1)), &settings, sink).unwrap();
    assert!(!node.call(NodeId(2), 1, b"") && !node.refresh(NodeId(2)));
    drop(node);
    assert!(start.elapsed() < GOODBYE + Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn malformed_addresses_are_refused() {
    let settings = ZenohSettings { peers: vec!["nowhere".into()], ..ZenohSettings::default() };
    let refused = Zenoh::start(Arc::new(document(1)), &settings, Sink::new(|_| ())).err().unwrap();
    assert!(refused.to_string().contains("\"nowhere\"; allowed is an IP address and a port"));
    let wild = Document { realm: "*".into(), ..document(1) };
    assert!(Zenoh::start(Arc::new(wild), &on_loopback(), Sink::new(|_| ())).is_err(), "a realm is part of keys");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = router(&[taken.local_addr().unwrap().to_string()], &[], |_| {}).err().unwrap();
    assert!(refused.to_string().starts_with("router on 127.0.0.1:"));
}

#[test]
fn a_token_without_a_document_is_asked_less_and_less_and_few_are_kept() {
    let (mut peers, mut now) = (HashMap::new(), Instant::now());
    for node in 0..1000 {
        make_room(&mut peers);
        peers.insert(NodeId(node), Peer { tries: node as u32 % 7, ..Peer::default() });
    }
    assert_eq!(peers.len(), MOST_UNANSWERED);
    assert!(peers.contains_key(&NodeId(999)), "the newest has a chance");
    let (mut peer, start) = (Peer::default(), now);
    for _ in 0..20 {
        peer.asked(now);
        now = peer.fetch_at.unwrap();
    }
    let asked = 20.0 / (now - start).as_secs_f64();
    assert!(asked < 0.06, "{asked} per second");
    peer.asked(now);
    assert_eq!(peer.fetch_at.unwrap() - now, LONGEST_FETCH);
}

/// A stranger's fragmented message is given up if it is larger than any that is read, and its link continues.
#[test]
fn a_message_that_is_too_large_is_not_put_together() {
    let settings = ZenohSettings { port: free_address().port(), ..on_loopback() };
    let node = ::zenoh::open(configuration(&settings.entries().unwrap()).unwrap()).wait().unwrap();
    let (tell, told) = channel();
    let heard = node.declare_subscriber("thalweg/1/test/*").callback(move |sample| {
        let _ = tell.send(sample.payload().len());
    });
    let heard = heard.wait().unwrap();
    let peer = format!("[\"tcp/127.0.0.1:{}\"]", settings.port);
    let entries = [("connect/endpoints", peer), ("scouting/multicast/enabled", "false".to_owned())];
    let stranger = ::zenoh::open(configuration(&entries).unwrap()).wait().unwrap();
    let publisher = stranger.declare_publisher("thalweg/1/test/a").congestion_control(CongestionControl::Block);
    let publisher = publisher.wait().unwrap();
    while !publisher.matching_status().wait().unwrap().matching() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for size in [64 << 20, MESSAGE_LIMIT, 1] {
        publisher.put(vec![7; size]).wait().unwrap();
    }
    let next = || told.recv_timeout(Duration::from_secs(20));
    assert_eq!([next(), next()], [Ok(MESSAGE_LIMIT), Ok(1)]);
    drop(heard);
}
