//! The room of queues.

use super::*;

/// Pictures from one host, by a device that the contract names.
const HOST: &str = r#"
[[node]]
name = "here"
[[node]]
name = "there"
[[link]]
name = "wire"
between = ["here", "there"]
rate = "1 Gbit/s"
scheduler = "strict"
devices = { here = "eth0" }
[[topic]]
name = "picture"
size = "256 KiB"
rate = "10 Hz"
publisher = "here"
[[subscriber]]
topic = "picture"
node = "there"
name = "/viewer"
deadline = "90 ms"
"#;

/// A second channel of the same class.
const STATE: &str = r#"
[[topic]]
name = "state"
size = "200 B"
rate = "20 Hz"
publisher = "here"
[[subscriber]]
topic = "state"
node = "there"
name = "/controller"
deadline = "40 ms"
"#;

fn room(text: &str) -> u32 {
    let plan = planned(text, Model::Bound);
    assert!(plan.feasible, "{:?}", plan.refusals);
    let link = plan.links.iter().find(|link| link.from == "here").unwrap();
    link.queue_packets.unwrap()
}

#[test]
fn a_queue_has_room_for_the_packets_that_a_socket_makes_of_a_sample() {
    // A packet of TCP has 1500 − 20 − 20 − 12 bytes of content, of which 32 in all are ours: 182. One of a datagram over IPv6 has
    // 1500 − 40 − 8 − 40: 186. The wire is counted with 175 of 1500.
    assert_eq!(((256 << 10) + 32_u32).div_ceil(1448), 182);
    assert_eq!(room(HOST), 186);
    // What else of the class waits needs room beside it: of each channel a sample.
    assert_eq!(room(&(HOST.to_owned() + STATE)), 187);
    let burst = HOST.replace("rate = \"10 Hz\"", "rate = \"10 Hz\"\nburst = 3");
    assert_eq!(room(&burst), 3 * 186);
}
