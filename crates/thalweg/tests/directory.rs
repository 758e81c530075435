//! The weight of documents in a directory is the memory that they take: its limits rely on it.
#![allow(clippy::unwrap_used)] // all of this is test

use serde_json::{Value, json};
use thalweg::codec::Schema;
use thalweg::control::{Document, Origin};
use thalweg::testing::control::Event;
use thalweg::testing::control::{Applied, Directory};

/// Bytes that this thread holds, with malloc(3)'s overhead for each piece: 8 bytes, rounded up to the next 16.
fn held() -> i64 {
    let (pieces, bytes) = linux::allocations::held();
    bytes + 16 * pieces
}

/// Makes another port of an announced one.
type Change = dyn Fn(usize, &mut Value);

/// A node with these ports, as it arrives over a link.
fn document(node: usize, ports: usize, change: &Change) -> Document {
    let port = |number: usize| {
        let mut port = json!({
            "name": format!("/{node:016x}/{number}"), "direction": "publisher", "topic": format!("/flood/{node:016x}/{number}"),
            "type": {"name": "bytes", "hash": "0000000000000001"}, "carriers": ["local", "shm", "tcp", "udp", "mcast"],
            "qos": {"reliability": "best-effort", "queue": {"keep-last": 16}, "class": "normal", "max_message": 16_777_216},
        });
        change(number, &mut port);
        (number.to_string(), port)
    };
    let ports: serde_json::Map<_, _> = (1..=ports).map(port).collect();
    let told = json!({
        "node": format!("{node:016x}"), "name": "n", "realm": "r", "host": "h", "host_name": "h", "clock": "c", "pid": 1,
        "incarnation": 1, "revision": 1, "addresses": [], "socket": null, "ports": ports,
    });
    serde_json::from_slice(told.to_string().as_bytes()).unwrap()
}

#[test]
fn documents_weigh_what_they_take() {
    let kinds: [(&str, usize, &Change); 8] = [
        ("plain", 4000, &|_, _| {}),
        ("few ports", 3, &|_, _| {}),
        ("keys", 1000, &|_, port| port["qos"]["key"] = json!(vec!["a.b"; 16])),
        ("carriers", 1000, &|_, port| port["carriers"] = json!(vec!["x"; 16])),
        ("types", 40, &|_, port| {
            let fields: Vec<_> = (0..500).map(|n| json!({"name": format!("a{n}"), "schema": "u8"})).collect();
            let schema = json!({"struct": {"name": "S", "fields": fields}});
            let hash = serde_json::from_value::<Schema>(schema.clone()).unwrap().hash();
            port["type"] = json!({"name": "S", "hash": format!("{hash:016x}"), "schema": schema});
        }),
        ("partitions", 300, &|_, port| port["qos"]["partition"] = json!(vec!["p"; 64])),
        ("filters", 200, &|_, port| {
            port["qos"]["filter"] = json!({"expression": "a = %0", "parameters": vec!["p"; 100]});
        }),
        ("relays", 1000, &|_, port| {
            let place = json!({"relay": "x".repeat(1000)});
            port["qos"]["place"] = place.clone();
            port["qos"]["pull"] = json!({"place": place, "samples": 1, "bytes": 1, "age": null});
            port["qos"]["fallback"] = json!(vec!["deadline"; 32]);
        }),
    ];
    for (kind, ports, change) in kinds {
        let (mut directory, mut documents) = (Directory::new(), 0);
        let before = held();
        while directory.weight() < 16 << 20 {
            documents += 1;
            let read = Event::Document(Box::new(document(documents, ports, change)));
            let applied = directory.apply(Origin::this_user(), read);
            assert!(matches!(applied, Applied::Changed(_)), "{kind}: {applied:?}");
        }
        let (weight, took) = (directory.weight(), usize::try_from(held() - before).unwrap());
        let all = directory.port_count();
        let ratio = weight as f64 / took as f64;
        assert!((0.85..1.6).contains(&ratio), "{kind}: {} bytes a port, weighed as {}", took / all, weight / all);
        println!("FIGURE {kind}: {documents} documents, {} bytes a port, weighed as {}", took / all, weight / all);
    }
}
