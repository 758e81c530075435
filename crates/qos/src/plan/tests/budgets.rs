//! Latency budgets: their term, the jitter that they are for others, and the largest that fits.

use super::*;
use crate::plan::as_planned;
use crate::simulate::{Pattern, Run, worst};

/// A host sends its state ten thousand times a second, and an alarm. A state alone takes 13.28 us on the wire.
const HOST: &str = r#"
[[node]]
name = "here"
[[node]]
name = "there"
[[link]]
name = "wire"
between = ["here", "there"]
rate = "100 Mbit/s"
[[topic]]
name = "state"
size = "100 B"
rate = "10 kHz"
publisher = "here"
latency_budget = "auto"
[[topic]]
name = "alarm"
size = "50 B"
rate = "20 Hz"
publisher = "here"
[[subscriber]]
topic = "state"
node = "there"
name = "/state"
deadline = "500 us"
[[subscriber]]
topic = "alarm"
node = "there"
name = "/alarm"
deadline = "20 ms"
"#;

fn stated(budget: &str) -> String {
    HOST.replace("\"auto\"", &format!("{budget:?}"))
}

fn due(text: &str, deadline: &str) -> String {
    text.replace("500 us", deadline)
}

fn channel<'a>(plan: &'a Plan, subscriber: &str) -> &'a Channel {
    plan.channels.iter().find(|channel| channel.subscriber == subscriber).unwrap()
}

fn bound(text: &str, subscriber: &str) -> f64 {
    channel(&planned(text, Model::Bound), subscriber).bound_us.unwrap()
}

#[test]
fn the_plan_finds_the_largest_budget_with_which_everything_fits() {
    // Samples together, and the budget: twice the time in which they come.
    for (deadline, samples, budget) in
        [("60 us", 1, 0.0), ("300 us", 2, 200.0), ("500 us", 4, 600.0), ("9 ms", 8, 1400.0)]
    {
        let plan = planned(&due(HOST, deadline), Model::Bound);
        let state = channel(&plan, "/state");
        assert!(plan.feasible, "{deadline}: {:?}", plan.refusals);
        assert_eq!((state.batch, state.latency_budget_us), (Some(samples), Some(budget)), "{deadline}");
        assert_eq!(channel(&plan, "/alarm").latency_budget_us, None, "nothing is said of it");
        let same = planned(&due(&stated(&format!("{budget} us")), deadline), Model::Bound);
        assert_eq!(channel(&same, "/state").terms, state.terms, "{deadline}: as if it were stated");
    }
    // Twice as many do not fit.
    assert!(!planned(&stated("1400 us"), Model::Bound).feasible);
    // Another channel's deadline counts as well: it waits for all that leave together.
    let urgent = HOST.replace("500 us", "9 ms").replace("20 ms", "40 us");
    let plan = planned(&urgent, Model::Bound);
    assert_eq!((plan.feasible, channel(&plan, "/state").batch), (true, Some(2)), "{:?}", plan.refusals);
    assert!(!planned(&urgent.replace("\"auto\"", "\"600 us\""), Model::Bound).feasible);
}

#[test]
fn several_topics_get_budgets_together() {
    let second = HOST.replace("rate = \"20 Hz\"", "rate = \"5 kHz\"\nlatency_budget = \"auto\"");
    let plan = planned(&second, Model::Bound);
    let found = ["/state", "/alarm"].map(|name| channel(&plan, name).batch);
    assert_eq!((plan.feasible, found), (true, [Some(4), Some(4)]), "the second one has 600 us of a millisecond");
    assert!(bound(&second, "/state") <= 500.0);
}

#[test]
fn what_cannot_gather_gets_no_budget() {
    for text in [
        HOST.replace("100 B", "20 kB").replace("10 kHz", "400 Hz"),
        HOST.replace("10 kHz", "900 Hz"),
        HOST.replace("latency_budget", "cpu_send = \"5 us\"\nlatency_budget"),
    ] {
        let plan = planned(&due(&text, "30 ms"), Model::Bound);
        let state = channel(&plan, "/state");
        assert_eq!((plan.feasible, state.batch, state.latency_budget_us), (true, Some(1), Some(0.0)), "{text}");
    }
    // The models of the papers know no gathering, and a plan that does not fit has none.
    assert_eq!(channel(&planned(HOST, Model::PaperHop), "/state").batch, Some(1));
    assert_eq!(channel(&planned(&due(HOST, "10 us"), Model::Bound), "/state").batch, Some(1));
    let alone = HOST.replace("node = \"there\"\nname = \"/state\"", "node = \"here\"\nname = \"/state\"");
    assert_eq!(channel(&planned(&alone, Model::Bound), "/state").batch, None, "no link is crossed");
}

#[test]
fn a_bound_grows_by_its_term() {
    // The next sample comes later than the first has left.
    let slow = |budget: &str| due(&stated(budget), "20 ms").replace("10 kHz", "100 Hz");
    let [without, with] = [slow("0 us"), slow("2 ms")].map(|text| planned(&text, Model::Bound));
    let terms = &channel(&with, "/state").terms;
    assert_eq!(terms.get("here: gathers"), Some(&1050.0), "half of it, and the timer's slack: {terms:?}");
    let grown = channel(&with, "/state").bound_us.unwrap() - channel(&without, "/state").bound_us.unwrap();
    // A nanosecond more for each packet, whose times are rounded up.
    assert!((grown - 1050.0).abs() < 0.005, "{grown}");
    let [longer, longest] = [slow("3 ms"), slow("1 h")].map(|text| bound(&text, "/state"));
    assert_eq!((longer, longest), (channel(&with, "/state").bound_us.unwrap(), longer), "a millisecond at most");
}

#[test]
fn what_leaves_together_is_in_the_way_of_others() {
    // In order of arrival an alarm waits for four states in place of one.
    let text = |budget: &str| due(&stated(budget), "9 ms");
    let grown = bound(&text("600 us"), "/alarm") - bound(&text("0 us"), "/alarm");
    assert!((grown - 3.0 * 13.28).abs() < 0.01, "{grown}");
    // Above them it waits for one packet: of four states in one, 466 B in place of 166.
    let strict = |budget: &str| {
        let classes = text(budget).replace("wire\"", "wire\"\nscheduler = \"strict\"");
        classes
            .replace("size = \"50 B\"", "size = \"50 B\"\nclass = \"high\"")
            .replace("size = \"100 B\"", "size = \"100 B\"\nclass = \"low\"")
    };
    let grown = bound(&strict("600 us"), "/alarm") - bound(&strict("0 us"), "/alarm");
    assert!((grown - 300.0 * 0.08).abs() <= 3.0 * 66.0 * 0.08 + 0.01 && grown > 0.0, "{grown}");
}

#[test]
fn a_chain_counts_the_budget_too() {
    let chain = "[[chain]]\nname = \"watch\"\ntopics = [\"state\"]\ndeadline = \"400 us\"\n";
    let plan = planned(&(due(HOST, "9 ms") + chain), Model::Bound);
    assert_eq!((plan.feasible, channel(&plan, "/state").batch), (true, Some(2)), "{:?}", plan.chains);
    let late = due(&stated("600 us"), "9 ms") + chain;
    assert!(planned(&late, Model::Bound).refusals.iter().any(|one| one.what.contains("chain")));
}

#[test]
fn a_budget_is_in_the_file_in_differences_and_in_the_simulation() {
    let plan = planned(HOST, Model::Bound);
    let read = Plan::from_text(&plan.to_text()).unwrap();
    assert_eq!(channel(&read, "/state").latency_budget_us, Some(600.0));
    let changes = differences(&planned(&due(HOST, "300 us"), Model::Bound), &plan);
    let of = |key: &str| {
        let found = changes.iter().find(|change| change.key == key && change.what.contains("/state"));
        found.map(|change| (change.old.clone(), change.new.clone()))
    };
    assert_eq!(of("latency budget"), Some(("200 us".into(), "600 us".into())));
    assert_eq!(of("batch"), Some(("2".into(), "4".into())));
    // As it is planned samples wait, and keep the bound; a bound without the term they break.
    let contract = Contract::read(HOST).unwrap();
    let system = as_planned(&contract.system, &read);
    let (stages, pairs) = crate::simulate::planned(&system, &plan);
    let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 20_000_000, events: 1_000_000 };
    let seen = worst(&system, &stages, &run, 4).pairs[pairs[0].unwrap()].max as f64 / 1e3;
    let state = channel(&plan, "/state");
    let (latest, term) = (state.bound_us.unwrap(), state.terms["here: gathers"]);
    assert!(seen <= latest && seen > latest - term && seen > 300.0, "{seen} of {latest}");
}

#[test]
fn contracts_with_odd_budgets_are_refused_or_found() {
    let said = Contract::read(&stated("never")).unwrap_err().to_string();
    assert!(said.contains("latency_budget") && said.contains("\"auto\", or a time from 0 ns"), "{said}");
    let large = Contract::read(&HOST.replace("100 B", "20 kB")).unwrap();
    let found = crate::contract::check(&large);
    assert!(found.iter().any(|one| one.because.contains("latency_budget without effect")), "{found:?}");
}
