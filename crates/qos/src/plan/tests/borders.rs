//! Tunnels and borders in a plan.

use super::*;

const LINE: &str = r#"
[[node]]
name = "rw"
[[node]]
name = "wb"
[[link]]
name = "line"
between = ["rw", "wb"]
rate = "1 Mbit/s"
scheduler = "fifo"
devices = { rw = "vx" }
tunnel = { kind = "vxlan", id = 7, ends = { rw = "10.97.1.1", wb = "10.97.1.2" } }
[[topic]]
name = "t"
size = "1400 B"
rate = "10 Hz"
publisher = "rw"
[[subscriber]]
topic = "t"
node = "wb"
"#;
const TUNNEL: &str = "tunnel = { kind = \"vxlan\", id = 7, ends = { rw = \"10.97.1.1\", wb = \"10.97.1.2\" } }\n";

#[test]
fn each_packet_takes_its_time_with_what_a_tunnel_adds() {
    let bound = |text: &str| planned(text, Model::Bound).channels[0].bound_us.unwrap();
    let (with, without) = (bound(LINE), bound(&LINE.replace(TUNNEL, "")));
    near(Some(with - without), 400.0); // 50 B at 1 Mbit/s
    let v6 = LINE.replace("10.97.1.1", "fd00::1").replace("10.97.1.2", "fd00::2");
    near(Some(bound(&v6) - without), 560.0);
    // Of 1451 B one is left for a second packet, which has 66 B of its own.
    let larger = |text: &str| text.replace("1400 B", "1451 B");
    near(Some(bound(&larger(LINE)) - bound(&larger(&LINE.replace(TUNNEL, "")))), (2 * 50 + 66) as f64 * 8.0);
}

#[test]
fn a_plan_has_the_ends_that_have_a_device_and_the_borders() {
    let neighbour = "[[neighbour]]\ndomain = \"robot\"\nvia = \"rw\"\nbroker = \"h:1\"\ndevice = \"last\"\n";
    let low = "[[pipe]]\nfrom = \"rw\"\nto = \"wb\"\nclass = \"low\"\nrate = \"100 kbit/s\"\ndeadline = \"1 s\"\n";
    let plan = planned(&format!("{LINE}{neighbour}{low}"), Model::Bound);
    let [end] = &plan.tunnels[..] else { panic!("{:?}", plan.tunnels) };
    assert_eq!((&*end.node, &*end.device, end.id, end.mtu), ("rw", "vx", 7, 1450));
    assert_eq!((end.local, end.remote), ("10.97.1.1".parse().unwrap(), "10.97.1.2".parse().unwrap()));
    let border = Border {
        node: "rw".into(),
        device: "last".into(),
        neighbour: "robot".into(),
        classes: vec![Class::Low, Class::High, Class::Critical],
        instead: Class::Normal,
    };
    assert_eq!(plan.borders, [border]);
    let normal = low.replace("\"low\"", "\"normal\"");
    let plan = planned(&format!("{LINE}{neighbour}{normal}"), Model::Bound);
    assert_eq!((plan.borders[0].instead, plan.borders[0].classes[0]), (Class::Low, Class::Normal));
    let both = Contract::read(&format!("{LINE}{neighbour}{low}{normal}")).unwrap_err();
    assert!(both.problem.contains("nothing is left for packets of no session"), "{both}");
    let open = format!("{LINE}{}{low}", neighbour.replace("device = \"last\"\n", ""));
    assert_eq!(planned(&open, Model::Bound).borders, []);
}
