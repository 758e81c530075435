//! Settings of hosts instead of refusals.

use super::*;
use crate::simulate::{Pattern, Run, worst};
use crate::system::System;

/// A host sends state and pictures to another one. A super-packet of 64 KiB takes 55 ms.
const HOST: &str = r#"
[[node]]
name = "here"
[[node]]
name = "there"
[[link]]
name = "wire"
between = ["here", "there"]
rate = "10 Mbit/s"
scheduler = "strict"
[[topic]]
name = "state"
size = "200 B"
rate = "20 Hz"
publisher = "here"
[[topic]]
name = "picture"
size = "50 KiB"
rate = "5 Hz"
publisher = "here"
[[subscriber]]
topic = "state"
node = "there"
name = "/controller"
deadline = "20 ms"
[[subscriber]]
topic = "picture"
node = "there"
name = "/viewer"
deadline = "200 ms"
"#;

fn named(text: &str) -> String {
    text.replace("scheduler = \"strict\"", "scheduler = \"strict\"\ndevices = { here = \"eth0\" }")
}

fn due(text: &str, deadline: &str) -> String {
    text.replace("20 ms", deadline)
}

#[test]
fn a_device_that_is_not_named_is_offered() {
    let plan = planned(HOST, Model::Bound);
    let offer = &plan.refusals[0].offers[0];
    assert!(offer.what.starts_with("devices { \"here\" = \"eth0\" } for link \"wire\""), "{offer:?}");
    let taken = planned(&rewrite(HOST, &offer.changes).unwrap(), Model::Bound);
    assert!(taken.feasible && taken.settings.is_empty(), "{:?}", taken.refusals);
    assert!(planned(&due(HOST, "60 ms"), Model::Bound).feasible, "nothing else is late");
}

#[test]
fn super_packets_are_limited_instead_of_a_refusal() {
    let text = due(&named(HOST), "5 ms");
    let plan = planned(&text, Model::Bound);
    let [setting] = plan.settings.as_slice() else { panic!("{plan:?}") };
    let at = (setting.node.as_str(), setting.link.as_str(), setting.device.as_str(), setting.gso_max_segs);
    assert_eq!((plan.feasible, at), (true, ("here", "wire", "eth0", 1)));
    assert_eq!(setting.because, "/controller would be late without it: 5.278 ms of 5 ms");
    assert_eq!(Plan::from_text(&plan.to_text()).unwrap().settings, plan.settings);
    assert!(differences(&planned(&named(HOST), Model::Bound), &plan).iter().any(|one| one.what.contains("eth0")));
    // The simulator keeps the bound with the limit, and breaks it without.
    let system = Contract::read(&text).unwrap().system;
    let seen = |system: &System| {
        let (stages, pairs) = crate::simulate::planned(system, &plan);
        let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 1_000_000_000, events: 1_000_000 };
        worst(system, &stages, &run, 20).pairs[pairs[0].unwrap()].max as f64 / 1e3
    };
    let bound = plan.channels[0].bound_us.unwrap();
    let [limited, whole] = [seen(&settle(&system, &plan.settings)), seen(&system)];
    assert!(limited <= bound && limited * 1.5 < whole, "{limited} {whole}, bound {bound}");
}

#[test]
fn settings_are_no_more_than_it_takes() {
    assert_eq!(planned(&named(HOST), Model::Bound).settings, [], "it fits without");
    assert!(!planned(&due(&named(HOST), "4 ms"), Model::Bound).feasible, "the device has more than that");
    // A token bucket of 1 Gbit/s takes 20 packets at once.
    let fast = due(&named(HOST), "400 us").replace("10 Mbit/s", "1 Gbit/s");
    let segments = planned(&fast, Model::Bound).settings[0].gso_max_segs;
    assert!((2..20).contains(&segments), "{segments}");
    // Behind a router, the limit of its device changes nothing: it gets single packets of others.
    let further = due(&named(HOST), "9.5 ms").replace(
        "[[topic]]\nname = \"state\"",
        "[[node]]\nname = \"end\"\n[[link]]\nname = \"second\"\nbetween = [\"there\", \"end\"]\nrate = \"10 Mbit/s\"\n\
         scheduler = \"strict\"\ndevices = { there = \"eth1\" }\n[[topic]]\nname = \"state\"",
    );
    let further = further
        .replace("node = \"there\"", "node = \"end\"")
        .replace("name = \"there\"", "name = \"there\"\nkind = \"router\"");
    let plan = planned(&further, Model::Bound);
    assert_eq!(plan.settings.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["here"]);
}
