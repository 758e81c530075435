mod borders;
mod budgets;
mod own;
mod paces;
mod queues;
mod settings;
mod shares;

use super::*;
use crate::contract::Contract;
use crate::placement::Watch;
use crate::system::PlacementDelay;
use std::time::Duration;

struct Still;

impl Watch for Still {
    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}

fn planned(text: &str, model: Model) -> Plan {
    make(&Contract::read(text).unwrap(), model, &mut Still)
}

const TABLE2: &str = include_str!("../../../../examples/papers/velox-table2.toml");
const MM1: &str = include_str!("../../../../examples/papers/velox-mm1.toml");

const STAR: &str = include_str!("../../../../examples/papers/star.toml");
const VBNS: &str = include_str!("../../../../examples/papers/vbns.toml");
const ROBOT: &str = include_str!("../../../../examples/robot.toml");
const OVERLOADED: &str = include_str!("../../../../examples/robot-overloaded.toml");

fn near(found: Option<f64>, wanted: f64) {
    assert!(found.is_some_and(|found| (found - wanted).abs() < 0.005), "{found:?}, wanted {wanted}");
}

#[test]
fn velox_table_2_and_eq_4_as_printed() {
    let plan = planned(TABLE2, Model::VeloxTable2);
    near(plan.channels[0].mean_us, 306.74);
    near(plan.channels[0].terms.get("network").copied(), 171.84);
    near(Some(plan.channels[0].also[0].us), 398.04);
    assert_eq!((plan.channels[0].bound_us, plan.feasible), (None, true));
    near(planned(TABLE2, Model::VeloxEq4Literal).channels[0].mean_us, 398.04);
}

#[test]
fn velox_with_queues() {
    let channel = &planned(MM1, Model::Mm1).channels[0];
    near(channel.mean_us, 224.70);
    near(Some(channel.also[0].us), 233.96);
    let [waiting, processing] = channel.occupancy.unwrap();
    assert!((waiting - 0.909).abs() < 0.0005 && (processing - 0.0909).abs() < 0.00005);
    let limited = &planned(MM1, Model::Mm1k).channels[0];
    near(limited.mean_us, 224.70);
    assert!(limited.loss.unwrap() < 1e-60);
    let short = &planned(&MM1.replace("buffer = 64", "buffer = 1"), Model::Mm1k).channels[0];
    assert!((short.loss.unwrap() - 0.0909).abs() < 0.0001, "ρ/(1+ρ) of an Erlang loss system");
}

#[test]
fn the_terms_of_a_channel_are_its_delay() {
    for (text, model) in Model::ALL.into_iter().flat_map(|model| [(TABLE2, model), (MM1, model)]) {
        for channel in planned(text, model).channels {
            let Some(delay) = channel.mean_us.or(channel.bound_us) else { continue };
            let sum: f64 = channel.terms.values().sum();
            assert!((sum - delay).abs() < 1e-6, "{model}: {sum} of {delay}");
            assert_eq!(channel.derivation.len(), channel.terms.len(), "{model}: each name once");
        }
    }
}

#[test]
fn a_queue_that_grows_without_limit_is_refused() {
    let plan = planned(&MM1.replace("\"8.333 us\"", "\"84 us\""), Model::Mm1);
    assert!(!plan.feasible && plan.channels[0].mean_us.is_none());
    assert!(plan.refusals[0].because.contains("there is no "), "{:?}", plan.refusals);
}

/// A controller that reserves its threads beside a logger that does not, on hosts of one processor.
const RESERVED: &str = r#"
[[node]]
name = "arm"
[[node]]
name = "desk"
[[link]]
between = ["arm", "desk"]
rate = "100 Mbit/s"
[[topic]]
name = "state"
size = "200 B"
period = "10 ms"
publisher = "arm"
cpu_send = "100 us"
sched = "reserved"
[[subscriber]]
topic = "state"
node = "desk"
name = "/controller"
cpu_receive = "200 us"
deadline = "8 ms"
[[subscriber]]
topic = "state"
node = "desk"
name = "/logger"
cpu_receive = "1 ms"
sched = "priority"
deadline = "40 ms"
"#;

#[test]
fn a_reserved_channel_has_its_threads_reservations_and_a_bound_by_them() {
    let plan = planned(RESERVED, Model::Bound);
    assert!(plan.feasible, "{:?}", plan.refusals);
    let [controller, logger] = &plan.channels[..] else { panic!("two channels") };
    // The longest stay is halved until the sum keeps the deadline. Samples leave evenly, and arrive unevenly.
    let scheds = [controller.sched_publisher.as_deref(), controller.sched.as_deref()];
    assert_eq!(scheds, [Some("deadline:120us/5ms/10ms"), Some("deadline:240us/2500us")]);
    assert!(controller.bound_us.is_some_and(|us| (7500.0..8000.0).contains(&us)), "{:?}", controller.terms);
    let waits: Vec<_> = controller.derivation.iter().filter(|term| term.name.contains("reserved time")).collect();
    assert_eq!(waits.iter().map(|term| term.us).collect::<Vec<_>>(), [4900.0, 2300.0]);
    // The logger's own thread has a priority, and waits for the reserved one beside it.
    assert_eq!(logger.sched.as_deref(), Some("fifo:48"));
    let wait = logger.derivation.iter().find(|term| term.name == "desk: waiting for more urgent threads");
    assert_eq!(wait.map(|term| term.us), Some(480.0), "two runtimes next to each other");
}

#[test]
fn reservations_that_do_not_fit_are_refused_with_what_would() {
    // Two channels are sent, each by a thread of its own: 2 × 1.2 × 4 ms of 10 ms.
    let plan = planned(&RESERVED.replace("100 us", "4 ms"), Model::Bound);
    let refused = plan.refusals.iter().find(|refusal| refusal.what == "reserved processor time of arm").unwrap();
    assert_eq!((refused.needs.as_str(), refused.has.as_str()), ("0.96 processors", "0.90 processors"));
    let offer = refused
        .offers
        .iter()
        .find(|offer| offer.what == "fixed priorities instead of reservations for topic \"state\"");
    let change = offer.map(|offer| offer.changes[0].clone()).unwrap_or_default();
    assert_eq!((change.table.as_str(), change.key.as_str(), change.value.as_str()), ("topic", "sched", "\"priority\""));
    // By a processor more they fit.
    assert!(
        planned(
            &RESERVED
                .replace("100 us", "4 ms")
                .replace("\"arm\"\n[[node]]", "\"arm\"\ncpus = 2\n[[node]]")
                .replace("8 ms", "30 ms"),
            Model::Bound
        )
        .refusals
        .is_empty()
    );
}

#[test]
fn links_are_checked_on_wire_bytes_in_every_model() {
    // 1024 B fit into 100 Mbit/s at 12 kHz; with 66 B of headers each they don't.
    for model in Model::ALL {
        let plan = planned(&MM1.replace("overhead = \"0 B\"", ""), model);
        assert!(!plan.feasible && plan.objective_value.is_none(), "{model}");
        let link = plan.refusals.iter().find(|refusal| refusal.what.starts_with("link "));
        assert_eq!(link.map(|link| (link.needs.as_str(), link.has.as_str())), Some(("104.64 Mbit/s", "100 Mbit/s")));
        assert!((plan.links[0].utilisation - 1.0464).abs() < 1e-9);
    }
}

/// Velox, §3.3.4 and §3.3.5: flows of 500 kbit/s over the 1 Mbit/s between two domains (E-V15), from so many publishers to so many
/// subscribers.
fn between_domains(publishers: u32, subscribers: u32, transport: &str) -> Plan {
    let mut text = format!(
        r#"
            system.name = "velox"
            placement = {{ transport = "{transport}", delay = "bound" }}
            [[node]]
            name = "montperdu"
            kind = "router"
            [[node]]
            name = "posets"
            kind = "router"
            [[link]]
            name = "wan"
            between = ["montperdu", "posets"]
            rate = "1 Mbit/s"
            overhead = "0 B"
        "#
    );
    let mut host = |name: &str, router: &str| {
        text += &format!("[[node]]\nname = \"{name}\"\n[[link]]\nbetween = [\"{name}\", \"{router}\"]\n");
        text += "rate = \"100 Mbit/s\"\noverhead = \"0 B\"\n";
    };
    let [from, to] = [("p", publishers), ("s", subscribers)]
        .map(|(kind, count)| (0..count).map(|n| format!("{kind}{n}")).collect::<Vec<_>>());
    from.iter().for_each(|name| host(name, "montperdu"));
    to.iter().for_each(|name| host(name, "posets"));
    text += &format!("[[topic]]\nname = \"dds\"\nsize = \"1250 B\"\nrate = \"50 Hz\"\npublisher = {from:?}\n");
    to.iter().for_each(|name| text += &format!("[[subscriber]]\ntopic = \"dds\"\nnode = \"{name}\"\n"));
    planned(&text, Model::Bound)
}

/// 100 Hz with a deadline of 7 ms over two links, a period each by the paper's rule.
#[test]
fn the_papers_period_per_node_binds_only_where_it_is_asked_for() {
    let text = |placement: &str| {
        format!(
            "system.name = \"arm\"\n{placement}\n[[node]]\nname = \"a\"\n[[node]]\nname = \"s\"\nkind = \"switch\"\n[[node]]\nname = \"b\"\n\
             [[link]]\nbetween = [\"a\", \"s\"]\nrate = \"100 Mbit/s\"\n[[link]]\nbetween = [\"s\", \"b\"]\nrate = \"100 Mbit/s\"\n\
             [[topic]]\nname = \"joints\"\nsize = \"200 B\"\nrate = \"100 Hz\"\npublisher = \"a\"\n\
             [[subscriber]]\ntopic = \"joints\"\nnode = \"b\"\ndeadline = \"7 ms\"\n"
        )
    };
    assert!(planned(&text(""), Model::Bound).feasible);
    assert!(!planned(&text("placement.delay = \"paper\""), Model::Bound).feasible);
}

#[test]
fn eight_flows_of_velox_do_not_fit_its_link() {
    let load = |plan: &Plan| plan.links.iter().find(|link| link.name == "wan").unwrap().load_bits_per_s;
    assert!(between_domains(1, 1, "unicast").feasible);
    for (publishers, subscribers, transport) in [(1, 8, "unicast"), (8, 1, "unicast"), (8, 1, "multicast")] {
        let plan = between_domains(publishers, subscribers, transport);
        assert_eq!((plan.feasible, load(&plan)), (false, 4e6), "{publishers} to {subscribers}, {transport}");
        assert!(plan.refusals.iter().all(|refusal| refusal.what.starts_with("link wan")), "{:?}", plan.refusals);
    }
    // One copy for all subscribers fits.
    let plan = between_domains(1, 8, "multicast");
    assert_eq!((plan.feasible, load(&plan)), (true, 5e5));
}

#[test]
fn a_mean_above_the_deadline_is_refused() {
    let plan = planned(&format!("{TABLE2}deadline = \"300 us\"\n"), Model::VeloxTable2);
    let refusal = plan.refusals.iter().find(|refusal| refusal.because.contains("mean delay")).unwrap();
    assert_eq!((refusal.needs.as_str(), refusal.has.as_str()), ("306.74 us", "300 us"));
}

#[test]
fn differences_are_named() {
    let (old, new) = (planned(TABLE2, Model::VeloxTable2), planned(MM1, Model::Mm1));
    assert_eq!(differences(&old, &old), []);
    let changes = differences(&old, &new);
    let channel = "channel simulation publisher → /simulation";
    let mean = changes.iter().find(|change| change.what == channel && change.key == "mean").unwrap();
    assert_eq!((mean.old.as_str(), mean.new.as_str()), ("306.74 us", "224.699 us"));
    let gone = differences(&old, &Plan::default());
    assert!(gone.iter().any(|change| change.what == channel && change.new.is_empty()));
}

#[test]
fn the_star_of_appendix_a() {
    // P-53: deadline, node, cost, and δ of both subscribers (P-51).
    for (deadline, place) in [("1000 ms", None), ("1500 ms", Some(("n5", 6.0, 1.5e6))), ("2 s", Some(("n1", 4.0, 2e6)))]
    {
        let plan = planned(&STAR.replace("1500 ms", deadline), Model::PaperHop);
        let found = plan.placement.first().map(|proxy| (proxy.node.as_str(), proxy.cost.messages_per_s));
        assert_eq!(found, place.map(|(node, cost, _)| (node, cost)), "{deadline}");
        assert_eq!((plan.feasible, plan.objective_value), (place.is_some(), place.map(|(_, cost, _)| cost)));
        if let Some((_, _, delay)) = place {
            assert_eq!(plan.placement[0].delay_us.values().copied().collect::<Vec<_>>(), [delay; 2]);
            assert_eq!(plan.channels.iter().map(|channel| channel.bound_us).collect::<Vec<_>>(), [Some(delay); 2]);
        } else {
            assert!(
                plan.refusals.iter().any(|refusal| refusal.what.starts_with("deadline of /")),
                "{:?}",
                plan.refusals
            );
        }
    }
}

#[test]
fn the_way_through_the_vbns() {
    let plan = planned(VBNS, Model::PaperHop);
    assert_eq!((plan.placement[0].node.as_str(), plan.objective_value), ("n3", Some(33_000.0)));
    assert_eq!(plan.channels[0].bound_us, Some(9e6));
    let loads: Vec<f64> = plan.links.iter().step_by(2).map(|link| link.load_bits_per_s).collect();
    assert_eq!(loads, [1e4, 1e4, 1e4, 1e3, 1e3, 1e3], "P-61: L up to the proxy, L' behind it");
}

#[test]
fn the_robot_fits_and_keeps_every_deadline() {
    let plan = planned(ROBOT, Model::Bound);
    assert!(plan.feasible, "{:?}", plan.refusals);
    assert!(plan.channels.iter().all(|channel| channel.bound_us.unwrap() <= channel.deadline_us.unwrap()));
    assert!(plan.links.iter().all(|link| link.load_bits_per_s == 0.0 || link.backlog_bytes.is_some()));
    let (nc, rta) = (planned(ROBOT, Model::Nc), planned(ROBOT, Model::Rta));
    for (part, whole) in [nc, rta].iter().flat_map(|part| part.channels.iter().zip(&plan.channels)) {
        assert!(part.bound_us.unwrap() <= whole.bound_us.unwrap(), "{part:?}");
    }
    assert_eq!(crate::contract::check(&Contract::read(ROBOT).unwrap()), []);
}

#[test]
fn an_overloaded_robot_is_refused_with_reasons() {
    let plan = planned(OVERLOADED, Model::Bound);
    assert!(!plan.feasible && plan.objective_value.is_none());
    assert!(
        plan.refusals.iter().any(|refusal| refusal.what == "link air from radio to operator"),
        "{:?}",
        plan.refusals
    );
}

/// The contract with an offer taken, as a person would do it in the file.
fn taken(text: &str, offer: &Offer) -> String {
    let mut file: toml::Table = toml::from_str(text).unwrap();
    for FileChange { table, name, key, value } in &offer.changes {
        let value = || toml::from_str::<toml::Table>(&format!("v = {value}")).unwrap()["v"].clone();
        if table == "placement" {
            file.entry("placement")
                .or_insert(toml::Table::new().into())
                .as_table_mut()
                .unwrap()
                .insert(key.clone(), value());
            continue;
        }
        let tables = file.get_mut(table).unwrap().as_array_mut().unwrap();
        let is_meant = |one: &toml::Value| one["name"].as_str() == Some(name);
        if key.is_empty() {
            tables.retain(|one| !is_meant(one));
        } else {
            let one = tables.iter_mut().find(|one| is_meant(one)).unwrap();
            one.as_table_mut().unwrap().insert(key.clone(), value());
        }
    }
    toml::to_string(&file).unwrap()
}

#[test]
fn every_offer_that_is_taken_makes_it_fit() {
    let late = ROBOT.replace("deadline = \"2 s\"", "deadline = \"300 ms\"");
    let star = STAR.replace("1500 ms", "900 ms");
    for (text, model) in
        [(OVERLOADED, Model::Bound), (&late, Model::Bound), (&star, Model::PaperHop), (&star, Model::Bound)]
    {
        let plan = planned(text, model);
        let offers = &plan.refusals[0].offers;
        assert!(!plan.feasible && offers.len() >= 2, "{offers:?}");
        for offer in offers {
            let plan = planned(&taken(text, offer), model);
            assert!(plan.feasible, "{}: {:?}", offer.what, plan.refusals);
        }
    }
}

#[test]
fn quantities_at_the_edge_of_what_may_be_stated_have_a_plan() {
    // By every model: which one is taken goes by the number of bytes.
    for seed in 0..3_u64 {
        crate::testing::planner(&seed.to_le_bytes());
        crate::testing::planner(&[&seed.to_le_bytes()[..], &vec![0; seed as usize % 8]].concat());
    }
}

/// A camera, a detector and brakes. The detector's callback publishes objects, a clock of its own publishes brake.
const BRAKE: &str = r#"
[[node]]
name = "camera"
[[node]]
name = "detector"
cpus = 4
[[node]]
name = "brakes"
[[link]]
between = ["camera", "detector"]
rate = "100 Mbit/s"
scheduler = "strict"
[[link]]
between = ["detector", "brakes"]
rate = "100 Mbit/s"
scheduler = "strict"
[[topic]]
name = "images"
size = "8 KiB"
rate = "20 Hz"
publisher = "camera"
[[topic]]
name = "objects"
size = "1 KiB"
rate = "20 Hz"
jitter = "25 ms"
publisher = "detector"
[[topic]]
name = "brake"
size = "32 B"
period = "10 ms"
publisher = "detector"
[[topic]]
name = "log"
size = "200 KiB"
rate = "10 Hz"
publisher = "detector"
class = "normal"
[[subscriber]]
topic = "images"
node = "detector"
name = "/detector"
cpu_receive = "20 ms"
[[subscriber]]
topic = "objects"
node = "detector"
name = "/planner"
cpu_receive = "5 ms"
[[subscriber]]
topic = "brake"
node = "brakes"
name = "/brakes"
[[subscriber]]
topic = "log"
node = "brakes"
name = "/log"
[[chain]]
name = "brake"
topics = ["images", "objects", "brake"]
sampled = ["brake"]
deadline = "80 ms"
"#;

fn changed(from: &str, to: &str) -> String {
    assert!(BRAKE.contains(from), "{from}");
    BRAKE.replace(from, to)
}

#[test]
fn a_chain_is_the_sum_of_its_channels_and_waits() {
    let plan = planned(BRAKE, Model::Bound);
    assert!(plan.feasible, "{:?}", plan.refusals);
    let chain = &plan.chains[0];
    let topics: Vec<&str> = chain.parts.iter().map(|part| part.topic.as_str()).collect();
    assert_eq!((chain.deadline_us, &topics[..]), (Some(80_000.0), &["images", "objects", "brake"][..]));
    let waits: Vec<f64> = chain.parts.iter().map(|part| part.wait_us).collect();
    assert_eq!((waits, chain.parts[2].sampled), (vec![0.0, 0.0, 10_000.0], true));
    let bound = |topic: &str| plan.channels.iter().find(|channel| channel.topic == topic).unwrap().bound_us.unwrap();
    near(chain.bound_us, bound("images") + bound("objects") + 10_000.0 + bound("brake"));
    assert_eq!(Plan::from_text(&plan.to_text()).unwrap().chains, plan.chains);
    let longer = planned(&changed("period = \"10 ms\"", "period = \"20 ms\""), Model::Bound);
    assert!(differences(&plan, &longer).iter().any(|change| change.what == "chain brake" && change.key == "bound"));
    for model in [Model::Nc, Model::Rta] {
        assert!(planned(BRAKE, model).chains[0].bound_us.unwrap() <= chain.bound_us.unwrap(), "{model}");
    }
    let mean = planned(BRAKE, Model::Mm1);
    assert!(mean.chains[0].bound_us.is_none() && mean.refusals.is_empty(), "means judge no chain");
}

/// Without the chain nobody needs the topic of the brakes before the log.
#[test]
fn the_deadline_of_a_chain_counts_for_classes() {
    let class =
        |text: &str| planned(text, Model::Bound).channels.iter().find(|one| one.topic == "brake").unwrap().class;
    let (without, _) = BRAKE.split_once("[[chain]]").unwrap();
    let tight = changed("deadline = \"80 ms\"", "deadline = \"48 ms\"");
    assert_eq!((class(without), class(BRAKE), class(&tight)), (Class::Normal, Class::Normal, Class::High));
    assert!(planned(&tight, Model::Bound).feasible);
}

#[test]
fn a_late_chain_is_refused_with_its_largest_part_and_an_offer() {
    let late = changed("deadline = \"80 ms\"", "deadline = \"20 ms\"");
    let plan = planned(&late, Model::Bound);
    let [refusal] = plan.refusals.as_slice() else { panic!("{:?}", plan.refusals) };
    assert_eq!((refusal.what.as_str(), refusal.has.as_str()), ("deadline of chain \"brake\"", "20 ms"));
    assert!(refusal.because.contains("most of it \"images\" to /detector (2"), "{refusal:?}");
    let offer = refusal.offers.iter().find(|offer| offer.changes[0].table == "chain").unwrap();
    let mended = planned(&rewrite(&late, &offer.changes).unwrap(), Model::Bound);
    assert!(mended.feasible && offer.what.starts_with("deadline "), "{offer:?}");
}

/// The bounds of all channels beside objects rest on its jitter, which is that of its callback.
#[test]
fn a_topic_of_callbacks_states_their_jitter_or_is_refused() {
    let steady = changed("jitter = \"25 ms\"\n", "");
    let plan = planned(&steady, Model::Bound);
    let [refusal] = plan.refusals.as_slice() else { panic!("{:?}", plan.refusals) };
    assert_eq!((refusal.what.as_str(), refusal.has.as_str()), ("jitter of topic \"objects\"", "0 ns"));
    assert!(refusal.needs.ends_with("ms") && refusal.because.contains("the callback of /detector"), "{refusal:?}");
    let [offer] = refusal.offers.as_slice() else { panic!("{:?}", refusal.offers) };
    let mended = planned(&rewrite(&steady, &offer.changes).unwrap(), Model::Bound);
    assert!(mended.feasible && offer.what.starts_with("jitter 2"), "{offer:?}");
    // A callback without a bound has no jitter that could be stated.
    let busy = changed("cpu_receive = \"20 ms\"", "cpu_receive = \"60 ms\"");
    let refusals = planned(&busy, Model::Bound).refusals;
    assert!(
        refusals.iter().any(|one| one.what.starts_with("jitter") && one.needs == "more than any time"),
        "{refusals:?}"
    );
    // Both at once: the offer has both changes.
    let both = steady.replace("deadline = \"80 ms\"", "deadline = \"20 ms\"");
    let plan = planned(&both, Model::Bound);
    let offer = &plan.refusals[0].offers[0];
    assert_eq!(offer.changes.len(), 2, "{offer:?}");
    assert!(planned(&rewrite(&both, &offer.changes).unwrap(), Model::Bound).feasible);
}

#[test]
fn percentiles_stand_beside_means_and_bounds() {
    let channel = |text: &str, model| planned(text, model).channels.remove(0);
    let mean = channel(MM1, Model::Mm1);
    let found = mean.percentiles.unwrap();
    // 9.259 µs in the queue on average, exponential: half of it is ln 2 of that, and 99 % ln 100.
    let rest = mean.mean_us.unwrap() - 1e6 / 108_000.0;
    for (found, times) in [(found.p50_us, 2_f64), (found.p99_us, 100.0), (found.p999_us, 1000.0)] {
        assert!((found - rest - times.ln() * 1e6 / 108_000.0).abs() < 0.01, "{found}");
    }
    assert_eq!(channel(MM1, Model::Mm1k).percentiles.map(|one| one.model), Some(Model::Mm1k));
    assert_eq!(channel(MM1, Model::Bound).percentiles, Some(found), "beside a bound");
    for model in [Model::VeloxTable2, Model::VeloxEq4Literal, Model::PaperHop] {
        assert_eq!(channel(MM1, model).percentiles, None, "{model} has no distribution");
    }
    let plan = planned(MM1, Model::Mm1);
    assert_eq!(Plan::from_text(&plan.to_text()).unwrap().channels[0].percentiles, Some(found));
}

#[test]
fn what_a_publisher_may_send_is_what_the_bounds_count() {
    let text = |proxies: &str| {
        format!(
            "[[node]]\nname = \"a\"\n[[node]]\nname = \"g\"\nkind = \"router\"\nproxy = {proxies}\n[[node]]\nname = \"b\"\nproxy = false\n\
             [[link]]\nbetween = [\"a\", \"g\"]\nrate = \"10 Mbit/s\"\n[[link]]\nbetween = [\"g\", \"b\"]\nrate = \"10 Mbit/s\"\n\
             [[topic]]\nname = \"t\"\nsize = \"100 B\"\nrate = \"50 Hz\"\njitter = \"5 ms\"\nburst = 2\npublisher = \"a\"\npolice = true\n\
             [[subscriber]]\ntopic = \"t\"\nnode = \"b\"\nname = \"/all\"\n[[subscriber]]\ntopic = \"t\"\nnode = \"b\"\nname = \"/some\"\nscale = 10\n\
             [placement]\nproxies = \"per-subscriber\"\n"
        )
    };
    let police = |text: &str| {
        let plan = planned(text, Model::Bound);
        let of = |name: &str| plan.channels.iter().find(|one| one.subscriber == name).unwrap();
        ["/all", "/some"].map(|name| (of(name).proxy.clone(), of(name).police.clone()))
    };
    // A sample may come 25 ms early: one of a burst, and behind a late one.
    let [all, some] = police(&text("false"));
    assert_eq!(all.1.as_deref(), Some("50Hz/2.25/100B"));
    assert_eq!(
        (some.0.as_deref(), some.1.as_deref()),
        (Some("a"), Some("5Hz/1.125/100B")),
        "of each ten samples one, 25 ms early at most"
    );
    let open = text("false").replace("police = true\n", "");
    assert_eq!(police(&open).map(|(_, police)| police), [None, None]);
}

/// The quick decision is that of a plan, of systems that fit and of those that do not.
#[test]
fn whether_it_fits_is_told_without_a_plan() {
    let mut found = [0; 2];
    for seed in 0..400 {
        let mut system = crate::testing::sketch(seed).system;
        let slack = [2_000, 20_000, 200_000][seed as usize % 3] * 1_000;
        system.subscribers.iter_mut().for_each(|one| one.deadline = one.deadline.map(|deadline| deadline + slack));
        system.placement.delay = if seed % 2 == 0 { PlacementDelay::Bound } else { system.placement.delay };
        let contract = Contract { system, ..Contract::default() };
        let plan = attempt(&contract, Model::Bound, &mut Still);
        assert_eq!(fits(&contract.system, &mut Still), plan.feasible, "seed {seed}: {:?}", plan.refusals);
        found[usize::from(plan.feasible)] += 1;
    }
    assert!(found.iter().all(|count| *count > 40), "{found:?}");
}
