use super::*;
use crate::testing::discovery::{self, Back, Stage, document};
use std::net::TcpListener;

/// Nodes on loopback that all name one router.
struct Routed {
    address: String,
    _router: RouterHandle,
}

impl Routed {
    fn new() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let _router = router(&[address.clone()], &[]).unwrap();
        Self { address, _router }
    }
}

impl Stage for Routed {
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
        let settings =
            ZenohSettings { listen: vec![[127, 0, 0, 1].into()], peers: vec![self.address.clone()], scouting: false };
        Back::new(Zenoh::start(Arc::new(document.clone()), &settings, sink).unwrap())
    }
}

#[test]
fn conforms() {
    discovery::conforms(Routed::new);
}

#[test]
fn dropping_does_not_hang_even_while_opening_with_a_peer_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = vec![silent.local_addr().unwrap().to_string()];
    let settings = ZenohSettings { listen: vec![[127, 0, 0, 1].into()], peers, scouting: false };
    let start = Instant::now();
    let sink = Sink::new(|_| ());
    let mut node = Zenoh::start(Arc::new(document(1)), &settings, sink).unwrap();
    assert!(!node.call(NodeId(2), 1, b"") && !node.refresh(NodeId(2)));
    drop(node);
    assert!(start.elapsed() < GOODBYE + Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn addresses_that_are_none_are_refused() {
    let settings = ZenohSettings { peers: vec!["nowhere".into()], ..ZenohSettings::default() };
    let refused = Zenoh::start(Arc::new(document(1)), &settings, Sink::new(|_| ())).err().unwrap();
    assert!(refused.to_string().contains("\"nowhere\"; allowed is an IP address and a port"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = router(&[taken.local_addr().unwrap().to_string()], &[]).err().unwrap();
    assert!(refused.to_string().starts_with("router on 127.0.0.1:"));
}
