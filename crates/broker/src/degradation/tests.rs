use super::loads::{Filling, Model};
use super::*;
use crate::ledger::{Demand, NOTHING_SOLD, Sold};
use crate::links::Rates;
use crate::planning::{Admitted, Patient, Reduction, Size, planned};
use crate::sessions::request;
use proptest::prelude::*;
use qos::admission::Bucket;
use std::time::Duration;

/// A triangle: from a to b directly, or through c.
const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[node]]
name = "c"
kind = "router"
proxy = false
[[link]]
name = "wire"
between = ["a", "b"]
rate = "2 Mbit/s"
scheduler = "strict"
devices = { a = "wire", b = "wire" }
[[link]]
name = "up"
between = ["a", "c"]
rate = "1 Mbit/s"
scheduler = "strict"
devices = { a = "up", c = "up" }
[[link]]
name = "over"
between = ["c", "b"]
rate = "1 Mbit/s"
scheduler = "strict"
devices = { c = "over", b = "over" }
[[topic]]
name = "state"
size = "100 B"
rate = "100 Hz"
publisher = "a"
[[subscriber]]
topic = "state"
node = "b"
deadline = "3 s"
"#;

/// Sessions of some 250 kbit/s each from a to b, with importance and `scale_max`, in the order of their admission.
fn admitted(contract: &str, all: &[(&str, i64, u32)]) -> Vec<Admitted> {
    let (links, reduction) = (Rates::new(), Reduction::default());
    let mut sessions = Vec::new();
    for (revision, (name, importance, most)) in all.iter().enumerate() {
        let text = format!(
            "[[session]]\nname = {name:?}\nimportance = {importance}\n[[topic]]\nname = {name:?}\nsize = \"550 B\"\nrate = \"50 Hz\"\n\
             publisher = \"a\"\n[[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"3 s\"\nscale_max = {most}\n"
        );
        let present =
            Present { contract, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
        sessions = request(present, ("ann", &text), revision as u64, &mut Patient).unwrap().sessions;
    }
    sessions
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("s{n}")).collect()
}

fn named<'a>(names: &'a [String], all: &[(i64, u32)]) -> Vec<(&'a str, i64, u32)> {
    names.iter().zip(all).map(|(name, (importance, most))| (name.as_str(), *importance, *most)).collect()
}

fn links(all: &[(&str, u64)]) -> Rates {
    all.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect()
}

fn adapted(contract: &str, sessions: &[Admitted], links: &Rates) -> Result<Change, Unadmitted> {
    let reduction = Reduction { left_out: vec!["what was before does not count".into()], ..Reduction::default() };
    adapt(Present { contract, links, reduction: &reduction, sessions, sold: &NOTHING_SOLD }, AT_ONCE, &mut Patient)
}

/// The sessions that are suspended, and the ports that are thinned.
fn taken(change: &Change) -> (Vec<&str>, Vec<(&str, u32)>) {
    let Reduction { suspended, scaled, .. } = &change.reduction;
    (
        suspended.keys().map(String::as_str).collect(),
        scaled.iter().map(|(port, scale)| (port.as_str(), *scale)).collect(),
    )
}

#[test]
fn nothing_is_taken_on_links_as_the_contract_has_them() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 4), ("lidar", 2, 1)]);
    let change = adapted(CONTRACT, &sessions, &links(&[])).unwrap();
    assert_eq!((change.reduction, change.plan.channels.len()), (Reduction::default(), 3));
}

#[test]
fn another_way_is_taken_where_there_is_one() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 1)]);
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 0)])).unwrap();
    assert_eq!(taken(&change), (vec![], vec![]));
    assert!(
        change.plan.channels.iter().all(|channel| channel.route == ["up to c", "over to b"]),
        "{:?}",
        change.plan.channels
    );
}

#[test]
fn a_proxy_is_placed_anew_where_it_helps() {
    let contract =
        CONTRACT.replace("proxy = false\n", "").replace("deadline = \"3 s\"", "deadline = \"3 s\"\nscale_max = 2");
    let sessions = admitted(&contract, &[("camera", 1, 4)]);
    let change = adapted(&contract, &sessions, &links(&[("wire", 50_000)])).unwrap();
    assert_eq!(taken(&change), (vec![], vec![("/camera@b", 2), ("/state@b", 2)]));
    let camera = change.plan.channels.iter().find(|channel| channel.topic == "camera").unwrap();
    assert_eq!(
        (camera.proxy.as_deref(), &*camera.route),
        (Some("c"), &["up to c".to_owned(), "over to b".to_owned()][..])
    );
}

#[test]
fn what_has_no_way_is_suspended_or_left_out() {
    let alone = "[[session]]\nname = \"alone\"\nimportance = 9\n[[topic]]\nname = \"t\"\nsize = \"10 B\"\nrate = \"1 Hz\"\npublisher = \"c\"\n\
                 [[subscriber]]\ntopic = \"t\"\nnode = \"a\"\n";
    let follower = "[[session]]\nname = \"follower\"\nimportance = 9\n[[subscriber]]\ntopic = \"camera\"\nnode = \"c\"\nname = \"/log\"\n";
    let mut sessions = admitted(CONTRACT, &[("camera", 1, 1)]);
    for text in [alone, follower] {
        let (links, reduction) = (Rates::new(), Reduction::default());
        let present = Present {
            contract: CONTRACT,
            links: &links,
            reduction: &reduction,
            sessions: &sessions,
            sold: &NOTHING_SOLD,
        };
        sessions = request(present, ("ann", text), 7, &mut Patient).unwrap().sessions;
    }
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 0), ("over", 0)])).unwrap();
    assert_eq!(taken(&change), (vec!["camera", "follower"], vec![]));
    assert!(change.reduction.suspended["camera"].contains("no way leads to /camera@b: down is over, wire"));
    assert!(change.reduction.suspended["follower"].contains("needs a session"));
    assert_eq!(change.reduction.left_out, ["/state@b"]);
    assert_eq!(change.plan.channels.iter().map(|channel| &*channel.topic).collect::<Vec<_>>(), ["t"]);
    // All of them come back.
    let back = adapted(CONTRACT, &change.sessions, &links(&[])).unwrap();
    assert_eq!((back.reduction, back.plan.channels.len()), (Reduction::default(), 4));
}

#[test]
fn the_least_important_is_thinned_before_anything_is_suspended() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 8), ("lidar", 5, 8), ("map", 2, 1)]);
    // 133 and 3 x 248 kbit/s do not fit into 800.
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 800_000)])).unwrap();
    assert_eq!(taken(&change), (vec![], vec![("/camera@b", 2)]));
    assert!(
        change.reduction.because.contains("link wire carries 800 kbit/s instead of 2 Mbit/s"),
        "{:?}",
        change.reduction
    );
    let camera = change.plan.channels.iter().find(|channel| channel.topic == "camera").unwrap();
    assert_eq!((camera.scale, camera.rate_hz), (2, Some(25.0)));
    // Into 500 fit two thinned ones beside the one that accepts nothing less, into 300 not even that.
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 500_000)])).unwrap();
    let (suspended, scaled) = taken(&change);
    assert_eq!(
        (suspended, scaled.iter().map(|(port, _)| *port).collect::<Vec<_>>()),
        (vec![], vec!["/camera@b", "/lidar@b"])
    );
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 300_000)])).unwrap();
    assert_eq!(taken(&change).0, ["map"], "which accepts no less, though it is more important than what is thinned");
}

#[test]
fn the_least_important_and_youngest_is_suspended() {
    let all = [("one", 5, 1), ("two", 1, 1), ("three", 1, 1), ("four", 1, 1), ("five", 9, 1)];
    let sessions = admitted(CONTRACT, &all);
    let suspended = |rate| {
        let change = adapted(CONTRACT, &sessions, &links(&[("wire", rate)])).unwrap();
        change.reduction.suspended.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(suspended(1_500_000), [""; 0]);
    assert_eq!(suspended(1_200_000), ["four"]);
    assert_eq!(suspended(950_000), ["four", "three"]);
    assert_eq!(suspended(450_000), ["four", "one", "three", "two"]);
}

/// The less important one is elsewhere, and its traffic comes nowhere near; where it is in the way of what has moved, it goes.
#[test]
fn who_does_not_use_the_link_keeps_what_it_has() {
    let to_c = "[[session]]\nname = \"near\"\nimportance = -5\n[[topic]]\nname = \"near\"\nsize = \"1000 B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
                [[subscriber]]\ntopic = \"near\"\nnode = \"c\"\ndeadline = \"3 s\"\n";
    let (none, reduction) = (Rates::new(), Reduction::default());
    let present =
        Present { contract: CONTRACT, links: &none, reduction: &reduction, sessions: &[], sold: &NOTHING_SOLD };
    let first = request(present, ("ann", to_c), 1, &mut Patient).unwrap().sessions;
    let mut sessions = admitted(CONTRACT, &[("one", 1, 1), ("two", 2, 1)]);
    sessions.extend(first);
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 450_000)])).unwrap();
    assert_eq!(taken(&change).0, ["one"]);
    let (slow, none) = (links(&[("wire", 450_000)]), Reduction::default());
    let hurried =
        Present { contract: CONTRACT, links: &slow, reduction: &none, sessions: &sessions, sold: &NOTHING_SOLD };
    let found = adapt(hurried, AT_ONCE, &mut Hasty(0)).unwrap();
    assert!(!taken(&found).0.contains(&"near"), "without time for a search, too: {found:?}");
    // With the wire down all go over c: 133, twice 248 and 430 kbit/s do not fit into 1 Mbit/s.
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 0)])).unwrap();
    assert_eq!(taken(&change).0, ["near"]);
}

/// One port of a session is on a slow link, the other one on none.
#[test]
fn only_who_is_concerned_is_thinned() {
    let two = "[[session]]\nname = \"two\"\n[[topic]]\nname = \"t\"\nsize = \"550 B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
               [[subscriber]]\ntopic = \"t\"\nnode = \"c\"\nscale_max = 4\ndeadline = \"3 s\"\n\
               [[subscriber]]\ntopic = \"t\"\nnode = \"b\"\nscale = 2\nscale_max = 8\ndeadline = \"3 s\"\n";
    let contract = CONTRACT.replace("deadline = \"3 s\"", "deadline = \"3 s\"\nscale_max = 2\n[[subscriber]]\ntopic = \"state\"\nnode = \"c\"\nscale_max = 9\ndeadline = \"3 s\"");
    let (none, reduction) = (Rates::new(), Reduction::default());
    let present =
        Present { contract: &contract, links: &none, reduction: &reduction, sessions: &[], sold: &NOTHING_SOLD };
    let sessions = request(present, ("ann", two), 1, &mut Patient).unwrap().sessions;
    let change = adapted(&contract, &sessions, &links(&[("wire", 180_000)])).unwrap();
    assert_eq!(taken(&change), (vec![], vec![("/t@b", 6)]));
    // With less the contract's own stream to b is thinned, too; nobody else's.
    let change = adapted(&contract, &sessions, &links(&[("wire", 100_000)])).unwrap();
    assert_eq!(taken(&change), (vec![], vec![("/state@b", 2), ("/t@b", 8)]));
}

#[test]
fn who_was_admitted_beside_others_that_do_not_run_goes_together_with_them() {
    let all = |sessions: &[Admitted], rate: u64, text: &str| {
        let links = links(&[("wire", rate)]);
        let reduction = adapted(CONTRACT, sessions, &links).unwrap().reduction;
        let present =
            Present { contract: CONTRACT, links: &links, reduction: &reduction, sessions, sold: &NOTHING_SOLD };
        request(present, ("bob", text), 9, &mut Patient)
    };
    let large = |name: &str, bytes: u32| {
        format!(
            "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
                 [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"3 s\"\n"
        )
    };
    let nothing = Reduction::default();
    let present =
        Present { contract: CONTRACT, links: &links(&[]), reduction: &nothing, sessions: &[], sold: &NOTHING_SOLD };
    let sessions = request(present, ("ann", &large("big", 3500)), 1, &mut Patient).unwrap().sessions;
    // The big one does not run on 600 kbit/s. What fits there, and not beside it when the link is back, is refused.
    let refused = all(&sessions, 600_000, &large("late", 1000));
    assert!(matches!(&refused, Err(Unadmitted::Unfit(_))), "{refused:?}");
    let fits = all(&sessions, 600_000, &large("small", 500)).unwrap();
    assert_eq!(taken(&fits), (vec!["big"], vec![]));
    // A topic that it has is taken; what needs it is cut as it is.
    assert!(matches!(
        all(&sessions, 600_000, &large("big2", 10).replace("topic]]\nname = \"big2\"", "topic]]\nname = \"big\"")),
        Err(Unadmitted::Malformed(_))
    ));
    let half = request(present, ("ann", &large("half", 1700)), 1, &mut Patient).unwrap().sessions;
    let log = "[[session]]\nname = \"log\"\n[[subscriber]]\ntopic = \"half\"\nnode = \"b\"\nname = \"/log\"\n";
    let cut = all(&half, 600_000, log);
    assert!(matches!(&cut, Err(Unadmitted::Cut(_, because)) if because.contains("is suspended")), "{cut:?}");
    // A smaller version of it runs, and all come back.
    let again = large("big", 400);
    let links = links(&[("wire", 600_000)]);
    let present = Present {
        contract: CONTRACT,
        links: &links,
        reduction: &fits.reduction,
        sessions: &fits.sessions,
        sold: &NOTHING_SOLD,
    };
    let smaller = request(present, ("ann", &again), 10, &mut Patient).unwrap();
    assert_eq!(taken(&smaller), (vec![], vec![]));
}

#[test]
fn contract_and_sessions_that_do_not_go_together_are_no_matter_of_links() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 1)]);
    let other =
        CONTRACT.replace("name = \"state\"", "name = \"camera\"").replace("topic = \"state\"", "topic = \"camera\"");
    for now in [links(&[]), links(&[("wire", 0)])] {
        assert!(matches!(adapted(&other, &sessions, &now), Err(Unadmitted::Needed(name, _)) if name == "camera"));
    }
    // A contract that became narrower: what does not fit is suspended, and the broker starts.
    let narrow = CONTRACT.replace("rate = \"2 Mbit/s\"", "rate = \"300 kbit/s\"");
    let change = adapted(&narrow, &sessions, &links(&[])).unwrap();
    assert_eq!(taken(&change), (vec!["camera"], vec![]));
    assert!(change.reduction.suspended["camera"].contains("more was admitted than the links carry"));
}

#[test]
fn a_session_whose_chain_is_cut_is_suspended() {
    let chain = "[[session]]\nname = \"chained\"\n[[chain]]\nname = \"c\"\ntopics = [\"state\"]\nsubscribers = [\"/state@b\"]\ndeadline = \"9 s\"\n";
    let (none, reduction) = (Rates::new(), Reduction::default());
    let present =
        Present { contract: CONTRACT, links: &none, reduction: &reduction, sessions: &[], sold: &NOTHING_SOLD };
    let sessions = request(present, ("ann", chain), 1, &mut Patient).unwrap().sessions;
    let change = adapted(CONTRACT, &sessions, &links(&[("wire", 0), ("up", 0)])).unwrap();
    assert_eq!((taken(&change).0, &*change.reduction.left_out), (vec!["chained"], &["/state@b".to_owned()][..]));
}

#[test]
fn a_contract_that_does_not_fit_by_itself_is_told() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 4)]);
    let found = adapted(CONTRACT, &sessions, &links(&[("wire", 50_000)]));
    assert!(matches!(found, Err(Unadmitted::Unfit(_))), "{found:?}");
    // Unless it says how far it may be thinned itself.
    let thinned = CONTRACT.replace("deadline = \"3 s\"", "deadline = \"3 s\"\nscale_max = 10");
    let change = adapted(&thinned, &sessions, &links(&[("wire", 50_000)])).unwrap();
    assert_eq!(taken(&change), (vec!["camera"], vec![("/state@b", 3)]));
}

/// Two pipes from a to b.
fn with_pipes() -> String {
    let pipe = |class: &str, rate: &str| {
        format!(
            "[[pipe]]\nfrom = \"a\"\nto = \"b\"\nclass = {class:?}\nrate = \"{rate}\"\nlargest = \"500 B\"\ndeadline = \"100 ms\"\n"
        )
    };
    format!("{CONTRACT}{}{}", pipe("high", "500 kbit/s"), pipe("normal", "400 kbit/s"))
}

/// So many bit/s of each of them are sold, and so many are needed at least.
fn sold(high: [f64; 2], normal: [f64; 2]) -> Demand {
    let of = |[whole, least]: [f64; 2]| {
        let [whole, least] = [whole, least].map(|rate| Bucket { burst: 500, rate });
        Sold { whole, least }
    };
    [("a-b-high".to_owned(), of(high)), ("a-b-normal".to_owned(), of(normal))].into()
}

/// Sessions in place, on these links, with so much of the pipes sold.
fn beside_pipes(sessions: &[Admitted], links: &Rates, sold: &Demand) -> Change {
    let (contract, reduction) = (with_pipes(), Reduction::default());
    adapt(Present { contract: &contract, links, reduction: &reduction, sessions, sold }, AT_LEISURE, &mut Patient)
        .unwrap()
}

fn rates_of(change: &Change) -> Vec<u64> {
    ["pipe a-b-high", "pipe a-b-normal"]
        .map(|port| change.reduction.pipes.get(port).map_or(0, |size| size.rate))
        .to_vec()
}

#[test]
fn a_pipe_gives_what_is_not_sold_then_what_can_be_thinned_then_its_sessions_then_all() {
    let sessions = admitted(&with_pipes(), &[("camera", 1, 1)]);
    let nothing = sold([0.0; 2], [0.0; 2]);
    // Nobody has less if what nobody has bought is gone, and the pipe of the lower class goes first.
    let change = beside_pipes(&sessions, &links(&[("wire", 1_100_000)]), &nothing);
    assert_eq!((taken(&change), change.reduction.left_out.len()), ((vec![], vec![]), 0));
    let [0, normal] = rates_of(&change)[..] else { panic!("{change:?}") };
    assert!((150_000..400_000).contains(&normal), "{normal}");
    // All of it is sold, and nobody in it can have less: a session of the domain's own goes before those in pipes.
    let all = sold([500_000.0; 2], [400_000.0; 2]);
    let change = beside_pipes(&sessions, &links(&[("wire", 1_100_000)]), &all);
    assert_eq!((taken(&change), rates_of(&change)), ((vec!["camera"], vec![]), vec![0, 0]));
    // All of it is sold, and half is enough.
    let half = sold([500_000.0, 250_000.0], [400_000.0, 200_000.0]);
    let change = beside_pipes(&sessions, &links(&[("wire", 1_100_000)]), &half);
    let [0, normal] = rates_of(&change)[..] else { panic!("{change:?}") };
    assert!(taken(&change).0.is_empty() && (200_000..400_000).contains(&normal), "{change:?}");
    // Not even that has room: sessions in pipes go after the domain's own.
    let change = beside_pipes(&sessions, &links(&[("wire", 800_000)]), &all);
    let [0, normal] = rates_of(&change)[..] else { panic!("{change:?}") };
    assert_eq!((taken(&change).0, change.reduction.left_out.len()), (vec!["camera"], 0));
    assert!((20_000..200_000).contains(&normal), "{change:?}");
    let change = beside_pipes(&sessions, &links(&[("wire", 0), ("up", 0)]), &all);
    assert_eq!(change.reduction.left_out, ["/state@b", "pipe a-b-high", "pipe a-b-normal"]);
    assert!(change.reduction.pipes.is_empty());
}

/// A session of 246 kbit/s over a link that carries one and a half of them: two are too much, unless one gets half.
#[test]
fn loads_of_links_tell_what_has_no_plan() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 2), ("lidar", 5, 1)]);
    let (links, reduction) = (links(&[("wire", 520_000)]), Reduction::default());
    let present =
        Present { contract: CONTRACT, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
    let (contract, whole) = (Contract::read(CONTRACT).unwrap(), joined(CONTRACT, sessions.iter(), None).unwrap());
    let mut watch = Patient;
    let mut search = Search::new(present, Reduction::default(), &whole, AT_ONCE, &mut watch);
    search.steps = steps(present, &contract, &whole, &|_| true).unwrap();
    let taken = |step: &Step| match step {
        Step::Scale { port, .. } => port.clone(),
        Step::Suspend { name, .. } => name.clone(),
        Step::LeaveOut { port, .. } | Step::Shrink { port, .. } => port.clone(),
    };
    assert_eq!(search.steps.iter().map(taken).collect::<Vec<_>>(), ["/camera@b", "camera", "lidar"]);
    let overload = |taken: &[usize]| search.overload(taken);
    assert_eq!([&[][..], &[0], &[1], &[2], &[0, 2]].map(overload), [true, false, false, false, false]);
}

/// A clock that says that a second passed at each look.
struct Hasty(u64);

impl Watch for Hasty {
    fn elapsed(&mut self) -> Duration {
        self.0 += 1;
        Duration::from_secs(self.0)
    }
}

#[test]
fn without_time_for_more_what_is_found_first_is_taken() {
    let sessions = admitted(CONTRACT, &[("camera", 1, 8), ("lidar", 5, 8), ("map", 2, 1)]);
    let (links, reduction) = (links(&[("wire", 800_000)]), Reduction::default());
    let present =
        Present { contract: CONTRACT, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
    // The planner has a clock, too, and gives up nothing in so short a contract.
    let change = adapt(present, AT_ONCE, &mut Hasty(0)).unwrap();
    assert_eq!(taken(&change), (vec![], vec![("/camera@b", 6)]), "by the loads of a smaller share");
    let later = adapt(present, AT_LEISURE, &mut Patient).unwrap();
    assert_eq!((taken(&later), change.hurried, later.hurried), ((vec![], vec![("/camera@b", 2)]), true, false));
    assert!(later.reduction.takes_less_than(&change.reduction) && !change.reduction.takes_less_than(&later.reduction));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Where links have to carry too much by their loads, no plan fits.
    #[test]
    fn what_is_ruled_out_by_loads_has_no_plan(
        all in proptest::collection::vec((-2i64..3, 1u32..5), 1..7),
        rate in 150_000u64..2_000_000,
        taken in proptest::collection::vec(proptest::bool::ANY, 14),
    ) {
        let names = names(all.len());
        let all = named(&names, &all);
        let sessions = admitted(CONTRACT, &all);
        let (links, reduction) = (links(&[("wire", rate)]), Reduction::default());
        let present = Present { contract: CONTRACT, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
        let (contract, whole) = (Contract::read(CONTRACT).unwrap(), joined(CONTRACT, sessions.iter(), None).unwrap());
        let mut watch = Patient;
    let mut search = Search::new(present, Reduction::default(), &whole, AT_ONCE, &mut watch);
        search.steps = steps(present, &contract, &whole, &|_| true).unwrap();
        let taken: Vec<usize> = (0..search.steps.len()).filter(|step| taken[*step]).collect();
        let fits = search.tried(&taken).is_ok();
        prop_assert!(!search.overload(&taken) || !fits);
        // What is told without a plan is so.
        prop_assert_eq!(search.fits(&taken).unwrap(), fits);
        search.by_plans = true;
        prop_assert_eq!(search.fits(&taken).unwrap(), fits);
    }

    /// Filled step by step, links carry what they would if it were counted anew, and none of what is taken by loads could be given back alone.
    #[test]
    fn links_are_filled_as_far_as_they_may(
        all in proptest::collection::vec((-2i64..3, 1u32..5), 1..7),
        rate in 150_000u64..2_000_000,
        share in 0.3f64..1.0,
    ) {
        let names = names(all.len());
        let all = named(&names, &all);
        let sessions = admitted(CONTRACT, &all);
        let (links, reduction) = (links(&[("wire", rate)]), Reduction::default());
        let present = Present { contract: CONTRACT, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
        let (contract, whole) = (Contract::read(CONTRACT).unwrap(), joined(CONTRACT, sessions.iter(), None).unwrap());
        let model = Model::new(present, &whole, &reduction);
        let mut steps = steps(present, &contract, &whole, &|_| true).unwrap();
        let enough = Filling::new(&model, share, &steps).fits();
        let taken = model.least(share, &mut steps);
        let fits = |taken: &[usize], steps: &[Step]| {
            let taken: Vec<Step> = taken.iter().map(|step| steps[*step].clone()).collect();
            Filling::new(&model, share, &taken).fits()
        };
        prop_assert_eq!(fits(&taken, &steps), enough);
        for (at, step) in taken.iter().enumerate().filter(|_| enough) {
            let mut others = taken.clone();
            others.remove(at);
            prop_assert!(!fits(&others, &steps), "{:?} could be given back", steps[*step]);
            let mut less = steps.clone();
            if let Step::Scale { own, most, .. } = &mut less[*step]
                && *most - *own > 1
            {
                *most -= 1;
                prop_assert!(!fits(&taken, &less), "{:?} could be thinned less", steps[*step]);
            }
        }
    }

    /// With pipes, too: what is left fits; pipes are no smaller than needed; and their sessions get fewer samples, or end, only where all that
    /// comes before would not be enough. So it is for the domain's own sessions: none is suspended where thinning would do.
    #[test]
    fn no_pipe_is_smaller_than_needed(
        all in proptest::collection::vec((-2i64..3, 1u32..5), 0..4),
        rate in 200_000u64..2_000_000,
        parts in proptest::collection::vec((0.0f64..1.0, 0.1f64..1.0), 2),
    ) {
        let (names, contract) = (names(all.len()), with_pipes());
        let sessions = admitted(&contract, &named(&names, &all));
        let links = links(&[("wire", rate)]);
        let needs = |(part, least): (f64, f64), whole: f64| [(part * whole).floor(), (part * least * whole).floor()];
        let demand = sold(needs(parts[0], 500_000.0), needs(parts[1], 400_000.0));
        let change = beside_pipes(&sessions, &links, &demand);
        prop_assert!(change.plan.channels.iter().all(|channel| channel.bound_us <= channel.deadline_us));
        let fits = |reduction: &Reduction| {
            planned(Present { contract: &contract, links: &links, reduction, sessions: &sessions, sold: &demand }, None, &mut Patient).is_ok()
        };
        prop_assert!(fits(&change.reduction));
        // With pipes as small as their sessions allow at a stage, and all sessions of the domain's own thinned, or suspended.
        let all_before = |needed: fn(&Sold) -> f64, suspended: bool| {
            let size = |(port, whole): (&str, u64)| {
                let needed = needed(&demand[port.trim_start_matches("pipe ")]).ceil() as u64;
                let number = (whole * 64).checked_div(needed).unwrap_or(1280).clamp(64, 1280);
                (port.to_owned(), Size { rate: whole * 64 / number, burst: 566, less: 0 })
            };
            let pipes = [("pipe a-b-high", 500_000), ("pipe a-b-normal", 400_000)].into_iter().map(size).collect();
            let mut reduction = Reduction { pipes, ..Reduction::default() };
            for (name, (_, most)) in names.iter().zip(&all) {
                if suspended {
                    reduction.suspended.insert(name.clone(), String::new());
                } else {
                    reduction.scaled.insert(format!("/{name}@b"), *most);
                }
            }
            reduction
        };
        let sold_out = all_before(|sold| sold.whole.rate, false);
        let all_thinned = all_before(|sold| sold.least.rate, false);
        let thinned = all_before(|sold| sold.least.rate, true);
        for (port, size) in &change.reduction.pipes {
            let mut less = change.reduction.clone();
            less.pipes.remove(port);
            prop_assert!(!fits(&less), "{} need not be smaller: {:?}", port, change.reduction);
            prop_assert!(size.rate >= sold_out.pipes[port].rate || !fits(&sold_out), "{:?}", change.reduction);
            prop_assert!(size.rate >= thinned.pipes[port].rate || !fits(&thinned), "{:?}", change.reduction);
        }
        prop_assert!(change.reduction.suspended.is_empty() || !fits(&all_thinned), "{:?}", change.reduction);
        // As fast as before, all is as before.
        prop_assert_eq!(beside_pipes(&sessions, &Rates::new(), &demand).reduction, Reduction::default());
    }

    /// What is left fits, and none of what is taken could be given back alone.
    #[test]
    fn no_less_could_be_taken(
        all in proptest::collection::vec((-2i64..3, 1u32..5), 1..7),
        rate in 150_000u64..2_000_000,
    ) {
        let names = names(all.len());
        let all = named(&names, &all);
        let sessions = admitted(CONTRACT, &all);
        let links = links(&[("wire", rate)]);
        let change = adapted(CONTRACT, &sessions, &links).unwrap();
        prop_assert!(change.plan.channels.iter().all(|channel| channel.bound_us <= channel.deadline_us));
        let fits = |reduction: &Reduction| {
            planned(Present { contract: CONTRACT, links: &links, reduction, sessions: &sessions, sold: &NOTHING_SOLD }, None, &mut Patient).is_ok()
        };
        for name in change.reduction.suspended.keys() {
            let mut less = change.reduction.clone();
            less.suspended.remove(name);
            prop_assert!(!fits(&less), "{} need not be suspended: {:?}", name, change.reduction);
        }
        for (port, scale) in &change.reduction.scaled {
            let mut less = change.reduction.clone();
            less.scaled.insert(port.clone(), scale - 1);
            prop_assert!(!fits(&less), "{} need not be thinned so much: {:?}", port, change.reduction);
        }
        // Of sessions that could not be thinned, the more important ones stay.
        let stays = |name: &str| !change.reduction.suspended.contains_key(name);
        for (index, (name, importance, most)) in all.iter().enumerate() {
            for (other, (lower, less, least)) in all.iter().enumerate() {
                let before = (less, std::cmp::Reverse(other)) < (importance, std::cmp::Reverse(index));
                if before && *most == 1 && *least == 1 && !stays(name) {
                    prop_assert!(!stays(lower), "{} goes before {}: {:?}", name, lower, change.reduction);
                }
            }
        }
    }
}
