use super::*;
use proptest::prelude::*;

const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
between = ["a", "b"]
rate = "10 Mbit/s"
scheduler = "strict"
overhead = "0 B"
[[pipe]]
from = "a"
to = "b"
class = "high"
rate = "100 kbit/s"
burst = "3 kB"
largest = "1 kB"
deadline = "50 ms"
price = 3
[[pipe]]
from = "a"
to = "b"
class = "low"
rate = "200 kbit/s"
burst = "9 kB"
largest = "1 kB"
deadline = "90 ms"
"#;

fn ledger() -> Ledger {
    Ledger::new("home", &Contract::read(CONTRACT).unwrap())
}

fn key(session: &str, version: u64) -> Key {
    Key { first: "home".into(), session: session.into(), version }
}

/// 1000 B each 100 ms are 80 kbit/s.
fn flow(size: u64, classes: &[Class]) -> Flow {
    Flow {
        topic: "video".into(),
        enters: "a".into(),
        size,
        period: 100_000_000,
        burst: 1,
        scale: 1,
        before: classes.iter().map(|class| (*class, 0)).collect(),
        ..Flow::default()
    }
}

fn hold(ledger: &mut Ledger, key: &Key, flows: &[Flow]) -> Result<(), Refused> {
    ledger.hold(key, &flows.iter().map(|flow| (flow, "b")).collect::<Vec<_>>())
}

#[test]
fn a_flow_has_a_limit_of_its_part_with_the_headers_of_its_packets() {
    let mut ledger = ledger();
    let one = flow(800, &[Class::High]);
    assert_eq!(ledger.limits(&key("x", 1)), []);
    hold(&mut ledger, &key("x", 1), std::slice::from_ref(&one)).unwrap();
    let [limit] = ledger.limits(&key("x", 1))[..] else { panic!("one flow") };
    // 800 B and 112 B of headers each 100 ms, and one percent; a packet for the sample, and one besides. Beside them a keep-alive each 50 ms, and
    // two packets of a heartbeat each 100 ms, 112 B at most each.
    assert_eq!((limit.rate_bits_per_s, limit.burst_bytes), (109_888, 912 + 3 * 112));
    let hourly = (20 + 20 + 20) * 3600;
    assert_eq!((limit.packets_per_hour, limit.packets), (hourly + hourly / 100, 2 + 3));
    assert_eq!(limit.packet_bytes, 1_572);
    let late = Flow { jitter: 150_000_000, burst: 2, ..flow(600, &[Class::Low]) };
    hold(&mut ledger, &key("x", 2), &[late]).unwrap();
    let [limit] = ledger.limits(&key("x", 2))[..] else { panic!("one flow") };
    // Two at once, and one and a half that are late. Four keep-alives that are as late come together; heartbeats have another class.
    assert_eq!((limit.burst_bytes, limit.packets), (712 * 7 / 2 + 4 * 112, 8 + 4));
    let hourly = (20 + 20) * 3600;
    assert_eq!(limit.packets_per_hour, hourly + hourly / 100);
    ledger.release(&key("x", 1));
    assert_eq!(ledger.limits(&key("x", 1)), []);
}

/// Headers of IP, transport and Thalweg are in the packet that the contract counts: a sample may take more of them.
#[test]
fn a_limit_has_room_for_packets_as_they_really_leave_and_for_keep_alives_of_any_pace() {
    let small = CONTRACT.replace("overhead = \"0 B\"", "overhead = \"0 B\"\nmtu = \"500 B\"");
    let mut ledger = Ledger::new("home", &Contract::read(&small).unwrap());
    hold(&mut ledger, &key("x", 1), &[flow(1000, &[Class::Low])]).unwrap();
    // 388 B of it in each packet: three, and not two.
    assert_eq!(ledger.limits(&key("x", 1))[0].packets, 3 + 1 + 1);
    let hourly = [1, 12, 40].map(|period_ms| control_packets(Class::Low, period_ms * 1_000_000, 0)[0]);
    assert_eq!(hourly, [50 * 3600, 150_000, 20 * 3600], "after two periods, 20 to 50 ms");
    let high = control_packets(Class::High, 40_000_000, 150_000_000);
    assert_eq!(high, [(20 + 20) * 3600, 4 + 2 * 3], "as they come together after 150 ms");
}

fn sold(ledger: &Ledger) -> Vec<(f64, u64)> {
    ledger.pipes().map(|(_, sold)| (sold.rate, sold.burst)).collect()
}

#[test]
fn a_pipe_is_sold_until_its_rate_or_burst_is_used_up() {
    let mut ledger = ledger();
    let high = [Class::High];
    hold(&mut ledger, &key("one", 1), &[flow(1000, &high)]).unwrap();
    assert_eq!(sold(&ledger), [(80_000.0, 1000), (0.0, 0)]);
    let refused = hold(&mut ledger, &key("two", 1), &[flow(300, &high)]).unwrap_err();
    assert_eq!((&*refused.what, &*refused.needs), ("rate of pipe a-b-high of domain home", "104 kbit/s"));
    let bursts = Flow { burst: 10, period: 1_000_000_000, ..flow(500, &high) };
    let refused = hold(&mut ledger, &key("two", 1), &[bursts]).unwrap_err();
    assert!(refused.what.starts_with("burst") && refused.needs == "6000 B" && refused.has == "3000 B", "{refused:?}");
    let refused = hold(&mut ledger, &key("two", 1), &[flow(1001, &high)]).unwrap_err();
    assert!(refused.what.starts_with("largest sample"), "{refused:?}");
    assert!(hold(&mut ledger, &key("two", 1), &[flow(10, &[Class::Critical])]).unwrap_err().has == "none");
    assert_eq!(sold(&ledger), [(80_000.0, 1000), (0.0, 0)], "what is refused changes nothing");
    hold(&mut ledger, &key("two", 1), &[flow(1000, &[Class::Low])]).unwrap();
    ledger.release(&key("one", 1));
    assert_eq!(sold(&ledger), [(0.0, 0), (80_000.0, 1000)]);
}

#[test]
fn a_flow_that_may_be_late_takes_more_of_the_burst() {
    let mut ledger = ledger();
    let late = Flow { before: BTreeMap::from([(Class::High, 150_000_000)]), ..flow(1000, &[]) };
    hold(&mut ledger, &key("one", 1), std::slice::from_ref(&late)).unwrap();
    assert_eq!(sold(&ledger)[0], (80_000.0, 2500), "1000 B, and a period and a half more at once");
    let later = Flow { before: BTreeMap::from([(Class::High, 250_000_000)]), ..late };
    assert!(hold(&mut ledger, &key("one", 1), &[later]).unwrap_err().what.starts_with("burst"));
}

#[test]
fn the_versions_of_a_session_share_what_the_largest_has() {
    let mut ledger = ledger();
    let high = [Class::High];
    hold(&mut ledger, &key("one", 1), &[flow(1000, &high)]).unwrap();
    hold(&mut ledger, &key("one", 2), &[flow(1000, &high)]).unwrap();
    assert_eq!(sold(&ledger)[0], (80_000.0, 1000));
    hold(&mut ledger, &key("one", 3), &[flow(100, &high)]).unwrap();
    assert!(hold(&mut ledger, &key("two", 1), &[flow(300, &high)]).is_err(), "the old version still has its part");
    ledger.release(&key("one", 1));
    ledger.release(&key("one", 2));
    assert_eq!(sold(&ledger)[0], (8000.0, 100));
    hold(&mut ledger, &key("two", 1), &[flow(300, &high)]).unwrap();
}

#[test]
fn a_menu_has_the_classes_with_room_and_names_a_reason_if_there_is_none() {
    let mut ledger = ledger();
    let both = [Class::Low, Class::High];
    let (one, two) = (flow(1000, &both), flow(400, &both));
    let quote = |ledger: &Ledger, flows: &[&Flow]| {
        let flows: Vec<_> = flows.iter().map(|flow| (*flow, "b")).collect();
        ledger.quote(&key("one", 1), &flows).map(|menu| menu.keys().copied().collect::<Vec<_>>())
    };
    assert_eq!(quote(&ledger, &[&one]).unwrap(), [Class::Low, Class::High]);
    assert_eq!(quote(&ledger, &[&one, &two]).unwrap(), [Class::Low], "both do not fit into class high");
    hold(&mut ledger, &key("other", 1), &[flow(1000, &[Class::Low]), flow(1000, &[Class::Low])]).unwrap();
    assert_eq!(quote(&ledger, &[&one]).unwrap(), [Class::High]);
    hold(&mut ledger, &key("more", 1), &[flow(1000, &[Class::High])]).unwrap();
    assert!(quote(&ledger, &[&one]).unwrap_err().what.contains("rate of pipe"));
}

proptest! {
    /// Holds and releases in any order: no pipe is ever sold beyond what it has, and what is released can be sold again.
    #[test]
    fn no_pipe_is_oversold(steps in prop::collection::vec((0..6_u8, 1..4_u64, 1..1200_u64, 0..3_u8, any::<bool>()), 1..200)) {
        let mut ledger = ledger();
        for (name, version, size, class, holds) in steps {
            let (key, before) = (key(&name.to_string(), version), ledger.clone());
            if holds {
                let class = [Class::Low, Class::High, Class::Critical][class as usize];
                if hold(&mut ledger, &key, &[flow(size, &[class]), flow(size / 2 + 1, &[class])]).is_err() {
                    prop_assert_eq!(&ledger, &before);
                }
            } else {
                ledger.release(&key);
            }
            for (pipe, sold) in ledger.pipes() {
                prop_assert!(sold.rate <= pipe.whole.rate && sold.burst <= pipe.whole.burst);
            }
        }
        for name in 0..6 {
            (1..4).for_each(|version| ledger.release(&key(&name.to_string(), version)));
        }
        prop_assert_eq!(sold(&ledger), vec![(0.0, 0), (0.0, 0)]);
    }
}

/// Two links, a topic of the domain's own beside two pipes; the links' schedulers by number.
fn network(scheduler: u8, body: &str) -> String {
    let scheduler = [
        "scheduler = \"fifo\"",
        "scheduler = \"strict\"",
        "scheduler = \"htb\"\nshares = { critical = \"5 %\", high = \"36 %\", normal = \"23 %\", low = \"36 %\" }",
    ][scheduler as usize];
    format!(
        "[[node]]\nname = \"a\"\n[[node]]\nname = \"g\"\nkind = \"router\"\n[[node]]\nname = \"b\"\n\
         [[link]]\nbetween = [\"a\", \"g\"]\nrate = \"1.2 Mbit/s\"\n{scheduler}\n[[link]]\nbetween = [\"g\", \"b\"]\nrate = \"1 Mbit/s\"\n{scheduler}\n\
         [[topic]]\nname = \"own\"\nsize = \"200 B\"\nrate = \"100 Hz\"\npublisher = \"a\"\nclass = \"normal\"\n\
         [[subscriber]]\ntopic = \"own\"\nnode = \"b\"\n{body}"
    )
}

struct Patient;

impl qos::placement::Watch for Patient {
    fn elapsed(&mut self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

/// The longest bound of each topic of a contract, µs, by the name's beginning.
fn bounds(text: &str) -> BTreeMap<String, f64> {
    let plan = qos::plan::make(&Contract::read(text).unwrap(), qos::plan::Model::Bound, &mut Patient);
    let mut bounds = BTreeMap::new();
    for channel in &plan.channels {
        let kind = channel.topic.split('#').next().unwrap_or_default().to_owned();
        let bound = channel.bound_us.unwrap_or(f64::INFINITY);
        let longest = bounds.entry(kind).or_insert(0.0_f64);
        *longest = longest.max(bound);
    }
    bounds
}

/// The node at a border forwards what comes from the other domain: that takes the link's `forwarding`, in the pipe that begins there.
#[test]
fn a_pipe_from_a_border_counts_what_its_first_node_takes_to_forward() {
    let pipe = "[[pipe]]\nname = \"high\"\nfrom = \"a\"\nto = \"b\"\nclass = \"high\"\nrate = \"100 kbit/s\"\nlargest = \"500 B\"\ndeadline = \"60 s\"\n";
    let text = network(1, pipe).replacen("rate = \"1.2 Mbit/s\"", "rate = \"1.2 Mbit/s\"\nforwarding = \"3 ms\"", 1);
    let border = "[[neighbour]]\ndomain = \"other\"\nvia = \"a\"\nbroker = \"h:1\"\n";
    let [own, forwarded] = [text.clone(), text + border].map(|text| bounds(&text)["pipe high"]);
    assert!(forwarded >= own + 3000.0, "{own} and {forwarded} µs");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the ledger sells, the flows themselves have no later bound than their pipe, and neither has what is beside them.
    #[test]
    fn flows_in_a_pipe_are_not_later_than_it(
        scheduler in 0..3_u8,
        pipes in prop::collection::vec((100..350_u64, 1..6_u64, 100..3000_u64), 2),
        flows in prop::collection::vec((any::<bool>(), 1..100_u64, 2..60_u64, 0..10_u64, 1..40_u32), 60),
    ) {
        let classes = ["high", "low"];
        let pipe = |(class, (kbit, bursts, largest)): (&str, &(u64, u64, u64))| {
            let burst = (largest + largest.div_ceil(1500) * 66) * bursts;
            format!(
                "[[pipe]]\nname = \"{class}\"\nfrom = \"a\"\nto = \"b\"\nclass = \"{class}\"\nrate = \"{kbit} kbit/s\"\nburst = \"{burst} B\"\n\
                 largest = \"{largest} B\"\ndeadline = \"60 s\"\n"
            )
        };
        let with_pipes = network(scheduler, &classes.into_iter().zip(&pipes).map(pipe).collect::<String>());
        let promised = bounds(&with_pipes);
        prop_assert!(promised.values().all(|bound| bound.is_finite()), "{with_pipes}");
        let mut ledger = Ledger::new("home", &Contract::read(&with_pipes).unwrap());
        let mut sold = String::new();
        for (number, (high, size, period, jitter, burst)) in flows.into_iter().enumerate() {
            let class = if high { Class::High } else { Class::Low };
            let flow = Flow {
                period: period * 1_000_000,
                jitter: jitter * 1_000_000,
                burst,
                ..flow(size, &[class])
            };
            if hold(&mut ledger, &key(&number.to_string(), 1), &[flow]).is_ok() {
                let class = class.name();
                sold += &format!(
                    "[[topic]]\nname = \"pipe {class}#{number}\"\nsize = \"{size} B\"\nperiod = \"{period} ms\"\njitter = \"{jitter} ms\"\nburst = {burst}\n\
                     publisher = \"a\"\nclass = \"{class}\"\n[[subscriber]]\ntopic = \"pipe {class}#{number}\"\nnode = \"b\"\n"
                );
            }
        }
        for (kind, bound) in bounds(&network(scheduler, &sold)) {
            prop_assert!(bound <= promised[&kind] + 0.001, "{kind}: {bound} µs, promised are {} µs\n{with_pipes}\n{sold}", promised[&kind]);
        }
    }
}
