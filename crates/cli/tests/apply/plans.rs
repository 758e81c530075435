//! Plans that are applied on one host.

use super::{Host, device, json};
use crate::support;
use serde_json::Value;
use std::process::Command;

/// A publisher and a subscriber whose threads are reserved.
const RESERVED: &str = r#"
[[node]]
name = "arm"

[[node]]
name = "desk"

[[link]]
between = ["arm", "desk"]
rate = "100 Mbit/s"

[[topic]]
name = "/state"
size = "64 B"
rate = "50 Hz"
publisher = "arm"
cpu_send = "100 us"
sched = "reserved"

[[subscriber]]
topic = "/state"
node = "desk"
name = "/in"
cpu_receive = "100 us"
deadline = "100 ms"
"#;

#[test]
fn the_reservations_of_a_plan_are_the_kernels_and_are_given_back() {
    let Some(host) = Host::new("the_reservations_of_a_plan_are_the_kernels_and_are_given_back") else { return };
    let start = |arguments: &str| {
        let command = host.house.command(arguments);
        host.namespace.run(|| support::Running::start(command)).unwrap()
    };
    let planned = |contract: &str, plan: &str| {
        let plan = host.house.path(plan).display().to_string();
        let (code, _, errors) = host.thalweg(&format!("plan {} -o {plan}", host.file(contract)));
        assert_eq!(code, 0, "{errors}");
        plan
    };
    let _publisher = start("pub /state --name arm --port /out --rate 50 --size 64 --carrier tcp");
    let subscriber = start("sub /state --name desk --port /in --carrier tcp");
    subscriber.line();
    let ends = || {
        let (_, said, errors) = host.thalweg("get /out /in --json");
        let ends = json(&said)["ends"].as_array().unwrap_or_else(|| panic!("{said}{errors}")).clone();
        ends.iter().map(|end| (end["sched"]["policy"].clone(), end["sched"]["reservation"].clone())).collect::<Vec<_>>()
    };
    let before = ends();
    let plan = planned(RESERVED, "plan.toml");
    let (code, said, errors) = host.thalweg(&format!("apply {plan}"));
    if code == 3 && errors.contains("CAP_SYS_NICE") {
        return println!("skipped: because {errors}");
    }
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("deadline:120us/20ms"), "{said}");
    assert_eq!(ends(), vec![("deadline".into(), "deadline:120us/20ms".into()); 2]);
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!((code, said.matches("as before").count()), (0, 2), "{said}{errors}");
    assert_eq!(ends(), before);
    // More than the kernel admits, in a plan that was changed by hand: nothing stays.
    let more = std::fs::read_to_string(&plan).unwrap().replacen("120us/20ms", "19999us/20ms", 2);
    let more = more.replace("/20ms", "/19999us/20ms").replace("19999us/19999us/20ms", "19999us/20ms");
    std::fs::write(&plan, more).unwrap();
    let (code, _, errors) = host.thalweg(&format!("apply {plan}"));
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("is more than the kernel's limit") && errors.contains("less runtime"), "{errors}");
    assert_eq!(ends(), before);
}

/// Pictures of 100 kB, which may take a twentieth of a second, and a publisher that sends them at the link's rate.
const PACED: &str = r#"
[[node]]
name = "camera"
[[node]]
name = "desk"
[[link]]
between = ["camera", "desk"]
rate = "1 Gbit/s"
[[topic]]
name = "/picture"
size = "100 kB"
rate = "10 Hz"
publisher = "camera"
pace = "auto"
[[subscriber]]
topic = "/picture"
node = "desk"
name = "/in"
deadline = "50 ms"
"#;

/// By `tcp`: the kernel says its pace (ss(8)).
#[test]
fn the_pace_of_a_plan_is_the_sockets_and_is_given_back() {
    let Some(host) = Host::new("the_pace_of_a_plan_is_the_sockets_and_is_given_back") else { return };
    let start = |arguments: &str| {
        let command = host.house.command(arguments);
        host.namespace.run(|| support::Running::start(command)).unwrap()
    };
    let _publisher = start("pub /picture --name camera --port /out --rate 10 --size 100kB --carrier tcp");
    let subscriber = start("sub /picture --name desk --port /in --carrier tcp");
    subscriber.line();
    let pace = || {
        let (_, said, errors) = host.thalweg("get /out /in --json");
        let ends = json(&said)["ends"].as_array().unwrap_or_else(|| panic!("{said}{errors}")).clone();
        ends.iter().find(|end| end["end"] == "publisher").unwrap()["qos"]["pace"].clone()
    };
    assert_eq!(pace(), Value::Null);
    let plan = host.house.path("plan.toml").display().to_string();
    let (code, said, errors) = host.thalweg(&format!("plan {} -o {plan} --json", host.file(PACED)));
    // 8 Mbit/s and a quarter take 82 ms; the next slower one half of that.
    assert_eq!((code, &json(&said)["channels"][0]["pace_bits_per_s"]), (0, &20_000_000.into()), "{said}{errors}");
    let (code, said, errors) = host.thalweg(&format!("apply {plan}"));
    assert_eq!(code, 0, "{said}{errors}");
    assert_eq!(pace(), 2_500_000);
    let sockets = String::from_utf8(host.out(Command::new("ss").args(["-tinH"])).stdout).unwrap();
    assert!(sockets.contains("/20000000bps") || sockets.contains("/20Mbps"), "{sockets}");
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!((code, pace()), (0, Value::Null), "{said}{errors}");
    drop(subscriber);
}

/// A host and another one, 20 Mbit/s between them; the first one's device has the queues. The logger needs no class, the controller one.
const ENFORCED: &str = r#"
[[node]]
name = "here"

[[node]]
name = "there"

[[link]]
name = "lan"
between = ["here", "there"]
rate = "20 Mbit/s"
scheduler = "htb"
devices = { here = "wire" }

[[topic]]
name = "state"
size = "200 B"
rate = "100 Hz"
publisher = "here"

[[topic]]
name = "bulk"
size = "12 KiB"
rate = "50 Hz"
publisher = "here"

[[subscriber]]
topic = "state"
node = "there"
name = "/controller"
deadline = "4 ms"

[[subscriber]]
topic = "bulk"
node = "there"
name = "/recorder"
deadline = "100 ms"
"#;

#[test]
fn the_queues_of_a_plan_are_installed_and_restored() {
    let Some(host) = Host::new("the_queues_of_a_plan_are_installed_and_restored") else { return };
    let before = host.queues();
    let (contract, plan) = (host.house.path("enforced.toml"), host.house.path("plan.toml"));
    std::fs::write(&contract, ENFORCED).unwrap();
    let (contract, plan) = (contract.display(), plan.display());
    let (code, said, errors) = host.thalweg(&format!("plan {contract} -o {plan} --json"));
    assert_eq!(code, 0, "{said}{errors}");
    let planned = json(&said);
    assert_eq!(planned["links"][0]["device"], "wire");
    let shares: Vec<f64> = planned["links"][0]["shares"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{shares:?}");
    let (code, said, errors) = host.thalweg(&format!("apply {plan} --host here --queues"));
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("counted") && !said.contains("no:"), "{said}");
    let queues = host.queues();
    assert!(queues.contains("rate 20Mbit") && queues.contains("limit 100p"), "{queues}");
    for (class, share) in [("7a2:40", shares[0]), ("7a2:30", shares[1]), ("7a2:20", shares[2]), ("7a2:10", shares[3])] {
        let line = queues.lines().find(|line| line.contains(&format!("class htb {class} "))).unwrap();
        let rate = line.split_once("rate ").and_then(|(_, rest)| rest.split_once("bit")).unwrap().0;
        let (number, unit) = match rate.strip_suffix('K') {
            Some(number) => (number, 1e3),
            None => (rate.trim_end_matches('M'), if rate.ends_with('M') { 1e6 } else { 1.0 }),
        };
        let rate = number.parse::<f64>().unwrap() * unit;
        assert!((rate / (20e6 * share) - 1.0).abs() < 0.02, "{line}: share {share}");
    }
    // Another host of the plan has nothing to install; one that it does not have is refused.
    assert_eq!(host.thalweg(&format!("apply {plan} --host there --queues")).0, 0);
    assert_eq!(host.queues(), before, "what the file does not name any more gets its former queues back");
    let (code, _, errors) = host.thalweg(&format!("apply {plan} --host nowhere --queues"));
    assert!(code == 2 && errors.contains("here, there"), "{errors}");
    assert_eq!(host.thalweg(&format!("apply {plan} --host here --queues")).0, 0);
    let (code, said, _) = host.thalweg("restore");
    assert_eq!((code, said.trim(), host.queues()), (0, "wire: as before", before));
    let file = host.file(&device(""));
    assert_eq!(host.thalweg(&format!("apply {file} --queues")).0, 2, "a file of one's own is for one host");
}

/// A deadline that full packets of the recorder's super-packets would break.
#[test]
fn settings_of_a_plan_are_made_shown_and_restored() {
    let Some(host) = Host::new("settings_of_a_plan_are_made_shown_and_restored") else { return };
    let segments = || {
        let link = host.out(Command::new("ip").args(["-d", "-o", "link", "show", "dev", "wire"])).stdout;
        let link = String::from_utf8(link).unwrap();
        link.split_once("gso_max_segs ").unwrap().1.split(' ').next().unwrap().to_owned()
    };
    let (queues, before) = (host.queues(), segments());
    let (contract, plan) = (host.house.path("tight.toml"), host.house.path("plan.toml"));
    let tight = ENFORCED.replace("scheduler = \"htb\"", "scheduler = \"strict\"").replace("4 ms", "2.5 ms");
    std::fs::write(&contract, tight).unwrap();
    let (contract, plan) = (contract.display(), plan.display());
    for arguments in ["", " --explain", " --simulate 2s"] {
        let (code, said, errors) = host.thalweg(&format!("plan {contract} -o {plan}{arguments}"));
        assert!(
            code == 0 && (arguments.contains("simulate") || said.contains("gso_max_segs 1: super-packets of 1 packet")),
            "{said}{errors}"
        );
    }
    let (code, said, _) = host.thalweg(&format!("apply {plan} --host here --queues --dry-run"));
    assert!(code == 0 && said.contains("ip link set dev wire gso_max_segs 1"), "{said}");
    assert_eq!(segments(), before);
    let (code, said, errors) = host.thalweg(&format!("apply {plan} --host here --queues"));
    assert_eq!((code, segments().as_str()), (0, "1"), "{said}{errors}");
    let (code, said, _) = host.thalweg("restore");
    assert_eq!((code, said.trim(), host.queues(), segments()), (0, "wire: as before", queues, before));
}

/// The proxy cannot be at either end: the plan puts it at the node between, where a relay of that name runs.
const CONTRACT: &str = r#"
[[node]]
name = "camera"
proxy = false

[[node]]
name = "gate"

[[node]]
name = "desk"
proxy = false

[[link]]
name = "first"
between = ["camera", "gate"]
rate = "100 Mbit/s"

[[link]]
name = "second"
between = ["gate", "desk"]
rate = "10 Mbit/s"

[[topic]]
name = "/cam"
size = "64 B"
rate = "200 Hz"
publisher = "camera"
class = "high"

[[subscriber]]
topic = "/cam"
node = "desk"
name = "/in"
scale = 10
"#;

#[test]
fn a_plan_places_proxies_and_gives_them_back() {
    let Some(host) = Host::new("a_plan_places_proxies_and_gives_them_back") else { return };
    let start = |arguments: &str| {
        let command = host.house.command(arguments);
        host.namespace.run(|| support::Running::start(command)).unwrap()
    };
    let contract = host.file(CONTRACT);
    let plan = host.house.path("plan.toml").display().to_string();
    let (code, _, errors) = host.thalweg(&format!("plan {contract} -o {plan}"));
    assert_eq!(code, 0, "{errors}");
    let (code, _, errors) = host.thalweg(&format!("apply {plan}"));
    assert!(code == 1 && errors.contains("the plan has /cam from camera to /in"), "{errors}");
    let _publisher = start("pub /cam --name camera --port /out --rate 200 --size 64 --carrier tcp");
    let subscriber = start("sub /cam --name desk --port /in --carrier tcp --json");
    let _relay = start("relay --name gate");
    subscriber.line();
    let until = |says: &dyn Fn(&Value) -> bool| {
        let until = std::time::Instant::now() + support::LONG;
        loop {
            let (_, said, errors) = host.thalweg("list channels --json");
            let channels = json(&said)["channels"].clone();
            let of_in = channels.as_array().unwrap().iter().find(|channel| channel["subscriber"] == "/in").cloned();
            if of_in.as_ref().is_some_and(says) {
                return;
            }
            assert!(std::time::Instant::now() < until, "{said}{errors}");
        }
    };
    let (code, script, errors) = host.thalweg(&format!("apply {plan} --dry-run"));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(
        script.lines().collect::<Vec<_>>(),
        ["thalweg set /out /in class=high", "thalweg set /out /in every=10 proxy=relay:gate"]
    );
    let (code, said, errors) = host.thalweg(&format!("apply {plan} --json"));
    assert_eq!(code, 0, "{errors}");
    assert!(json(&said)["channels"].as_array().unwrap().iter().all(|end| end["dscp"] == 36), "{said}");
    until(&|channel| channel["proxied"]["place"]["relay"] == "gate" && channel["proxied"]["selection"] == "10");
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!(code, 0, "{said}{errors}");
    until(&|channel| channel["proxied"].is_null());
    assert_eq!(host.thalweg("restore").1.trim(), "nothing was applied");
}
