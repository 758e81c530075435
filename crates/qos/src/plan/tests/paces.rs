//! Paces: their term, what they spare others, and the slowest that fits.

use super::*;
use crate::plan::as_planned;
use crate::simulate::{Pattern, Run, planned as simulated, worst};

/// A camera sends pictures, and a joint its state, in one class over two links behind each other: a picture takes 82 ms on the first one. The switch
/// between knows no classes.
const HOST: &str = r#"
[[node]]
name = "here"
[[node]]
name = "middle"
kind = "switch"
[[node]]
name = "there"
[[link]]
name = "first"
between = ["here", "middle"]
rate = "100 Mbit/s"
scheduler = "fifo"
[[link]]
name = "second"
between = ["middle", "there"]
rate = "100 Mbit/s"
scheduler = "fifo"
[[topic]]
name = "picture"
size = "1 MB"
rate = "2 Hz"
publisher = "here"
pace = "auto"
[[topic]]
name = "joint"
size = "100 B"
rate = "100 Hz"
publisher = "here"
[[subscriber]]
topic = "picture"
node = "there"
name = "/picture"
deadline = "450 ms"
[[subscriber]]
topic = "joint"
node = "there"
name = "/joint"
deadline = "20 ms"
"#;

fn stated(pace: &str) -> String {
    HOST.replace("\"auto\"", &format!("{pace:?}"))
}

fn channel<'a>(plan: &'a Plan, subscriber: &str) -> &'a Channel {
    plan.channels.iter().find(|channel| channel.subscriber == subscriber).unwrap()
}

#[test]
fn a_paced_sample_leaves_room_for_others_and_takes_longer_itself() {
    let without = planned(&HOST.replace("pace = \"auto\"", ""), Model::Bound);
    assert!(!without.feasible && channel(&without, "/joint").bound_us.unwrap() > 80_000.0, "behind a whole picture");
    let with = planned(&stated("40 Mbit/s"), Model::Bound);
    assert!(with.feasible, "{:?}", with.refusals);
    // A super-packet of 64 KiB may leave at once, and the pace is less than the link's rate.
    let [joint, picture] = ["/joint", "/picture"].map(|name| channel(&with, name));
    assert!(joint.bound_us.unwrap() < 20_000.0, "{:?}", joint.terms);
    // 1 MB with the headers of its packets at 40 Mbit/s.
    let paced = picture.terms["here: leaves at its pace"];
    assert!((200_000.0..210_000.0).contains(&paced), "{paced}");
    assert_eq!((picture.pace_bits_per_s, joint.pace_bits_per_s), (Some(40_000_000), None));
    assert!(picture.bound_us.unwrap() > channel(&without, "/picture").bound_us.unwrap());
}

#[test]
fn the_plan_finds_the_slowest_pace_with_which_everything_fits() {
    let plan = planned(HOST, Model::Bound);
    // 16 Mbit/s and a quarter more take 414 ms, which leaves 36.
    assert_eq!(
        (plan.feasible, channel(&plan, "/picture").pace_bits_per_s),
        (true, Some(20_000_000)),
        "{:?}",
        plan.refusals
    );
    let faster = planned(&HOST.replace("450 ms", "300 ms"), Model::Bound);
    assert_eq!((faster.feasible, channel(&faster, "/picture").pace_bits_per_s), (true, Some(40_000_000)));
    let same = planned(&stated("20 Mbit/s"), Model::Bound);
    assert_eq!(channel(&same, "/picture").terms, channel(&plan, "/picture").terms, "as if it were stated");
    // No pace keeps both deadlines: what is refused has none.
    let refused = planned(&HOST.replace("450 ms", "60 ms"), Model::Bound);
    assert_eq!((refused.feasible, channel(&refused, "/picture").pace_bits_per_s), (false, None));
    // A broker that asks only whether it fits hears the same.
    let fits = |text: &str| crate::plan::fits(&Contract::read(text).unwrap().system, &mut Still);
    assert!(fits(HOST) && !fits(&HOST.replace("pace = \"auto\"", "")) && !fits(&HOST.replace("450 ms", "60 ms")));
    // A sample of one packet has nothing between its packets.
    let small = planned(&HOST.replace("1 MB", "1 kB"), Model::Bound);
    assert_eq!((small.feasible, channel(&small, "/picture").pace_bits_per_s), (true, None));
}

#[test]
fn a_pace_with_which_it_fits_is_offered() {
    let without = HOST.replace("pace = \"auto\"", "");
    let plan = planned(&without, Model::Bound);
    let offer = plan.refusals[0].offers.iter().find(|offer| offer.what.contains("pace")).unwrap();
    assert_eq!(offer.what, "pace 20 Mbit/s for picture");
    let changed = rewrite(&without, &offer.changes).unwrap();
    assert!(planned(&changed, Model::Bound).feasible, "{changed}");
}

#[test]
fn no_sample_is_later_in_virtual_time_than_its_bound_with_the_pace_of_the_plan() {
    let (contract, plan) = (Contract::read(HOST).unwrap(), planned(HOST, Model::Bound));
    let system = as_planned(&contract.system, &plan);
    let (stages, pairs) = simulated(&system, &plan);
    // By seed, a pace counts headers or not, and lets packets go one by one or in pieces.
    let run = |seed| Run { pattern: Pattern::Synchronous, seed, duration: 2_000_000_000, events: 2_000_000 };
    let seen = (0..4).map(|seed| worst(&system, &stages, &run(seed), 1)).reduce(|all, seen| all.and(&seen)).unwrap();
    for (channel, pair) in plan.channels.iter().zip(&pairs) {
        let (max, bound) = (seen.pairs[pair.unwrap()].max as f64 / 1e3, channel.bound_us.unwrap());
        assert!(max <= bound && max > 0.5 * bound, "{}: {max} of {bound}", channel.topic);
    }
}

#[test]
fn a_pace_that_cannot_carry_its_samples_is_refused() {
    let said = |pace: &str| Contract::read(&stated(pace)).unwrap_err().to_string();
    let slow = said("10 Mbit/s");
    assert!(slow.contains("pace 10 Mbit/s") && slow.contains("at least what the samples take, 16 Mbit/s"), "{slow}");
    let wrong = said("fast");
    assert!(wrong.contains("\"auto\", or 8 kbit/s to"), "{wrong}");
    let one = crate::contract::check(&Contract::read(&HOST.replace("1 MB", "1 kB")).unwrap());
    assert!(one.iter().any(|one| one.because.contains("pace without effect")), "{one:?}");
    // Headers do not fit in exactly this.
    let full = planned(&stated("16 Mbit/s"), Model::Bound);
    assert!(!full.feasible && channel(&full, "/picture").bound_us.is_none());
    assert!(full.refusals.iter().any(|one| one.because.contains("take more than their pace")), "{:?}", full.refusals);
}
