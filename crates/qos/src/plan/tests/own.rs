//! Queues of channels' own: their rate and depth, who waits for whom, and where there can be none.

use super::*;
use crate::plan::{ControlQueue, OwnQueue};

/// A camera and a joint of one class, over a router; the camera's packets have a queue of their own at the host.
const HOST: &str = r#"
[[node]]
name = "here"
[[node]]
name = "middle"
kind = "router"
[[node]]
name = "there"
[[link]]
name = "first"
between = ["here", "middle"]
rate = "10 Mbit/s"
scheduler = "htb"
devices = { here = "eth0" }
[[link]]
name = "second"
between = ["middle", "there"]
rate = "10 Mbit/s"
[[topic]]
name = "picture"
size = "2000 B"
rate = "50 Hz"
publisher = "here"
class = "high"
own_queue = true
[[topic]]
name = "joint"
size = "100 B"
rate = "100 Hz"
publisher = "here"
class = "high"
[[subscriber]]
topic = "picture"
node = "there"
name = "/picture"
deadline = "50 ms"
[[subscriber]]
topic = "joint"
node = "there"
name = "/joint"
deadline = "90 ms"
"#;

fn own(plan: &Plan, subscriber: &str) -> Option<OwnQueue> {
    plan.channels.iter().find(|channel| channel.subscriber == subscriber).unwrap().own_queue.clone()
}

#[test]
fn a_channel_has_a_queue_of_its_own_where_its_contract_asks_for_it() {
    let plan = planned(HOST, Model::Bound);
    assert!(plan.feasible, "{:?}", plan.refusals);
    let queue = own(&plan, "/picture").unwrap();
    assert_eq!(own(&plan, "/joint"), None);
    // Two packets with 66 B on the wire and 40 B of headers each; one percent more.
    let sample = 2000 + 2 * (66 + 40);
    assert_eq!(queue.rate_bits_per_s, sample * 8 * 50 * 101 / 100);
    // Three come within 50 ms, and one more may leave together with them.
    assert_eq!((queue.link.as_str(), queue.burst_bytes, queue.packets), ("first", 4 * sample, 4 * 2 * 2 + 8));
    // On a device without the queue the number's last four bits choose the band.
    assert!(queue.number < OwnQueue::NUMBERS && u32::from(queue.number % 16) == crate::Class::High.socket_priority());
    let shares: f64 = plan.links.iter().find(|link| link.device.is_some()).unwrap().shares.unwrap().iter().sum();
    assert!((shares + queue.rate_bits_per_s as f64 / 10e6 - 1.0).abs() < 1e-6, "{shares}");
    let term = "first to middle: waiting in its own queue";
    let terms = |subscriber: &str| &plan.channels.iter().find(|one| one.subscriber == subscriber).unwrap().terms;
    assert!(!terms("/joint").contains_key(term), "{:?}", terms("/joint"));
    assert_eq!(Plan::from_text(&plan.to_text()).unwrap().channels[0].own_queue, plan.channels[0].own_queue);
}

/// It has a part of the link, and all others wait for what it lets pass.
#[test]
fn control_traffic_is_counted_where_a_link_states_its_rate() {
    let with = HOST.replacen("scheduler = \"htb\"", "scheduler = \"htb\"\ncontrol = \"500 kbit/s\"", 1);
    let (plan, without) = (planned(&with, Model::Bound), planned(HOST, Model::Bound));
    assert!(plan.feasible, "{:?}", plan.refusals);
    let queue = ControlQueue { rate_bits_per_s: 500_000, burst_bytes: 3 * 1514, packets: 100 };
    let queues: Vec<_> = plan.links.iter().map(|link| link.control.clone()).collect();
    assert_eq!(queues, [Some(queue.clone()), Some(queue), None, None]);
    let sum = |link: usize| plan.links[link].shares.unwrap().iter().sum::<f64>() + 0.05;
    let rate = own(&plan, "/picture").unwrap().rate_bits_per_s as f64 / 10e6;
    assert!((sum(0) + rate - 1.0).abs() < 1e-6 && (sum(1) - 1.0).abs() < 1e-6, "{:?}", plan.links);
    assert!((plan.links[0].utilisation - without.links[0].utilisation - 0.05).abs() < 1e-9);
    for (counted, alone) in plan.channels.iter().zip(&without.channels) {
        // What passes at once takes 3.6 ms of the link.
        let [counted, alone] = [counted, alone].map(|channel| channel.bound_us.unwrap());
        assert!(counted > alone + 3600.0, "{counted} {alone}");
    }
    assert_eq!(Plan::from_text(&plan.to_text()).unwrap().links, plan.links);
    let stated = "devices = { here = \"eth0\" }\nshares = { critical = \"10 %\", high = \"30 %\", normal = \"30 %\", low = \"20 %\" }";
    let full = planned(&with.replacen("devices = { here = \"eth0\" }", stated, 1), Model::Bound);
    let says = |one: &Refusal| one.what == "own queues and that of control traffic of here before link first";
    assert!(!full.feasible && full.refusals.iter().any(says), "{:?}", full.refusals);
}

/// Samples that may leave the queue after their deadline may wait for tokens: no figure is a bound.
#[test]
fn a_channel_that_may_wait_for_tokens_has_no_bound() {
    let bound = |deadline: &str| {
        let late = planned(&HOST.replacen("50 ms", deadline, 1), Model::Bound);
        let picture = late.channels.iter().find(|channel| channel.subscriber == "/picture").unwrap();
        let waits = late.refusals.iter().any(|one| one.because.contains("wait for tokens"));
        (picture.bound_us.is_some(), waits, late.feasible)
    };
    assert_eq!(bound("2 ms"), (true, false, false), "they leave it after 1.84 ms at most, and arrive after 5.65");
    assert_eq!(bound("1.5 ms"), (false, true, false));
}

#[test]
fn a_model_without_bounds_drops_no_queue_silently() {
    let plan = planned(HOST, Model::Mm1);
    let says = |one: &Refusal| one.needs.contains("bound, rta or nc");
    assert!(!plan.feasible && plan.refusals.iter().any(says), "{:?}", plan.refusals);
}

/// The number names the queue to running programs: it stays when others come and go.
#[test]
fn a_queue_keeps_its_number_beside_others() {
    let alone = own(&planned(HOST, Model::Bound), "/picture").unwrap();
    let more = HOST.replacen("[[topic]]", "[[topic]]\nname = \"a\"\nsize = \"9 B\"\nrate = \"1 Hz\"\npublisher = \"here\"\nown_queue = true\n[[subscriber]]\ntopic = \"a\"\nnode = \"there\"\nname = \"/a\"\ndeadline = \"1 s\"\n[[topic]]", 1);
    let plan = planned(&more, Model::Bound);
    assert_eq!(own(&plan, "/picture").unwrap().number, alone.number);
    assert_ne!(own(&plan, "/a").unwrap().number, alone.number);
    assert_eq!(plan.channels[0].subscriber, "/a", "it comes first");
}

#[test]
fn what_cannot_have_a_queue_of_its_own_is_refused() {
    for (from, to, says) in [
        ("scheduler = \"htb\"", "scheduler = \"strict\"", "has strict, a device"),
        ("devices = { here = \"eth0\" }", "", "has htb, no device"),
        ("name = \"here\"", "name = \"here\"\nkind = \"router\"", "has kind = \"router\" of here"),
        ("size = \"2000 B\"", "size = \"1 B\"\nburst = 60000", "packets has 100000 packets"),
        ("deadline = \"50 ms\"", "deadline = \"65 s\"", "to fill its bucket has 60 s"),
        (
            "devices = { here = \"eth0\" }",
            "devices = { here = \"eth0\" }\nshares = { critical = \"10 %\", high = \"30 %\", normal = \"40 %\", low = \"20 %\" }",
            "own queues of here before link first",
        ),
    ] {
        let text = HOST.replacen(from, to, 1);
        let plan = planned(&text, Model::Bound);
        let said: Vec<String> =
            plan.refusals.iter().map(|one| format!("{} needs {} has {}", one.what, one.needs, one.has)).collect();
        assert!(!plan.feasible && said.iter().any(|one| one.contains(says)), "{says}: {said:?}");
        assert!(!fits(&Contract::read(&text).unwrap().system, &mut Still), "{says}: the quick decision is the same");
    }
    for (from, to, says) in [
        ("deadline = \"50 ms\"\n", "", "where each subscriber has a deadline: /picture has none"),
        ("deadline = \"50 ms\"", "deadline = \"10 h\"", "up to 16 MiB within a deadline"),
        ("own_queue = true", "own_queue = 1", "true or false"),
    ] {
        let said = Contract::read(&HOST.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(said.contains(says), "{says}: {said}");
    }
    let multicast = format!("{HOST}[placement]\ntransport = \"multicast\"\n");
    assert!(Contract::read(&multicast).unwrap_err().to_string().contains("unicast"));
}
