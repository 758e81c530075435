//! From the contract to the measurement: the plan of examples/robot.toml on all hosts of the robot (network namespaces), by a broker and agents, with a program
//! for each of its ports. Every bound stands beside what is measured over the installed queues, and `restore --all` leaves no trace.
#![allow(clippy::unwrap_used)]

mod picture;
mod world;

use crate::support::{LONG, Running};
use qos::show_time;
use qos::system::NodeKind;
use serde_json::Value;
use std::time::Instant;
use world::{World, scheduling};

/// Samples that have to come on each channel while it is measured. Those of the map come every two seconds.
const SAMPLES: u64 = 2;
/// Looks at least, two a second.
const LOOKS: usize = 8;

/// Bounds are compared and printed, not asserted: they count the processor time that the contract declares, and here other tests compute, too.
#[test]
fn the_robot_s_plan_is_installed_measured_and_taken_back() {
    let Some(world) = World::new("the robot's plan on its hosts") else { return };
    let programs = world.programs();
    let _domain = world.domain();
    let hosts = world.plan.nodes.len();
    world.until("all agents are heard", "hosts", |heard| heard.as_array().is_some_and(|all| all.len() == hosts));
    until_open(&world);
    let threads = || programs.iter().map(scheduling).collect::<Vec<_>>();
    let before = (world.installed(), threads());

    let plan = world.house.path("plan.toml").display().to_string();
    let applied = world.ask(&format!("apply {plan} --all")).json();
    assert_eq!(applied["hosts"].as_array().unwrap().len(), hosts, "{applied}");
    has_queues(&world);
    let ends = 2 * world.plan.channels.len();
    world.until("all ends have the plan's settings", "hosts", |shown| {
        let all = shown.as_array().into_iter().flatten().flat_map(|host| host["ends"].as_array().into_iter().flatten());
        all.filter(|end| end["because"].is_null()).count() == ends
    });
    has_settings(&world);

    let found = measured(&world, &plan);
    assert_eq!(found["unplanned"], serde_json::json!([]), "{found}");
    for channel in found["channels"].as_array().unwrap() {
        let [worst, bound] = ["worst_us", "bound_us"].map(|key| channel[key].as_f64());
        let (Some(worst), Some(bound)) = (worst, bound) else { panic!("not compared: {channel}") };
        println!(
            "FIGURE robot: {} to {}: {} of {} promised, {} samples, {} late, {} lost",
            channel["topic"],
            channel["subscriber"],
            show_time(worst),
            show_time(bound),
            channel["samples"],
            channel["late"],
            channel["lost"]
        );
    }

    world.ask("restore --all").json();
    assert_eq!(world.installed(), before.0);
    let until = Instant::now() + LONG;
    while threads() != before.1 {
        assert!(Instant::now() < until, "threads: {:?}, before {:?}", threads(), before.1);
    }
}

fn until_open(world: &World) {
    let until = Instant::now() + LONG;
    loop {
        let shown = world.look(0, "list channels").finish().json();
        if shown["channels"].as_array().is_some_and(|all| all.len() == world.plan.channels.len()) {
            return;
        }
        assert!(Instant::now() < until, "{shown}");
    }
}

/// Each device of the plan has a queue with the rate of its link, on routers and switches behind a map of marks.
fn has_queues(world: &World) {
    let installed = world.installed();
    assert_eq!(world.plan.links.iter().filter(|link| link.device.is_some()).count(), 10);
    for link in &world.plan.links {
        let (shown, device) = (&installed[&link.from], link.device.as_deref().unwrap());
        let node = world.plan.nodes.iter().find(|node| node.name == link.from).unwrap();
        let (first, is_mapped) = if node.kind == NodeKind::Host { ("7a1:", false) } else { ("7a3:", true) };
        let begins = format!("qdisc tbf {first} dev {device} root ");
        let rate = format!(" rate {}Mbit ", link.rate_bits_per_s / 1e6);
        let queue = shown.lines().find(|line| line.starts_with(&begins));
        assert!(queue.is_some_and(|line| line.contains(&rate)), "{}: {begins}{rate}: {shown}", link.from);
        assert_eq!(shown.contains(&format!("oifname \"{device}\"")), is_mapped, "{}: {shown}", link.from);
    }
}

/// Each end has the class and the thread of the plan, and the class has an effect in the queue of its host.
fn has_settings(world: &World) {
    let get = |(number, planned): (usize, &qos::plan::Channel)| {
        let qos::plan::Channel { topic, publisher, subscriber, .. } = planned;
        world.look(number, &format!("get /{topic}@{publisher} {subscriber}"))
    };
    let asked: Vec<Running> = world.plan.channels.iter().enumerate().map(get).collect();
    for (planned, asked) in world.plan.channels.iter().zip(asked) {
        let shown: Value = serde_json::from_str(&asked.finish().lines[0]).unwrap();
        for end in shown["ends"].as_array().unwrap() {
            let is_publisher = end["end"] == "publisher";
            let wanted = if is_publisher { &planned.sched_publisher } else { &planned.sched };
            let thread = format!("{}:{}", end["sched"]["policy"].as_str().unwrap(), end["sched"]["priority"]);
            assert_eq!((Some(&thread), &end["effective"]), (wanted.as_ref(), &true.into()), "{end}");
            assert_eq!(end["qos"]["class"], planned.class.name(), "{end}");
        }
    }
}

/// All channels beside their bounds, until samples of each have come.
fn measured(world: &World, plan: &str) -> Value {
    let (verify, until) = (world.look(0, &format!("verify {plan} --watch --interval 500ms")), Instant::now() + LONG);
    for look in 1.. {
        let shown = verify.json_line();
        let has_come = |channel: &Value| channel["samples"].as_u64().is_some_and(|count| count >= SAMPLES);
        if look >= LOOKS && shown["channels"].as_array().unwrap().iter().all(has_come) {
            break;
        }
        assert!(Instant::now() < until, "{shown}");
    }
    serde_json::from_str(verify.interrupt().lines.last().unwrap()).unwrap()
}
