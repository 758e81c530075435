use super::*;

struct Still;

impl Watch for Still {
    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Two hosts share a switch's link to a third: larger samples of one make the other's wait there, packet by packet.
const TEXT: &str = r#"
[system]
name = "small"
[[node]]
name = "camera"
[[node]]
name = "body"
[[node]]
name = "pilot"
[[node]]
name = "switch"
kind = "switch"
[[link]]
name = "c"
between = ["camera", "switch"]
rate = "1 Gbit/s"
[[link]]
name = "b"
between = ["body", "switch"]
rate = "1 Gbit/s"
[[link]]
name = "p"
between = ["pilot", "switch"]
rate = "10 Mbit/s"
scheduler = "strict"
[[topic]]
name = "video"
size = "5000 B" # at most
period = "20 ms"
publisher = "camera"
[[topic]]
name = "imu"
size = "100 B"
period = "10 ms"
publisher = "body"
[[subscriber]]
topic = "video"
node = "pilot"
name = "/view"
deadline = "50 ms"
[[subscriber]]
topic = "imu"
node = "pilot"
name = "/pilot"
deadline = "6 ms"
[placement]
delay = "bound"
"#;

fn agent(classes: &[Class]) -> Agent {
    let plan = make(&Contract::read(TEXT).unwrap(), Default::default(), &mut Still);
    assert!(plan.feasible && plan.channels.iter().all(|channel| channel.class == Class::Normal), "{plan:?}");
    let limits = Limits { classes: classes.to_vec(), every: Duration::from_secs(60) };
    Agent::new(TEXT, &plan, limits).unwrap()
}

/// Looks at which the video had these sizes, and came as often as it should or more.
fn look(agent: &mut Agent, sizes: &[u64], times: f64) {
    let window = |bytes, hz: f64| {
        let cost = Cost { send_us: 3.0, receive_us: 5.0, bytes };
        Window { received: (hz * times) as u64, measured: 9, cost, ..Window::default() }
    };
    for size in sizes {
        agent.look(0, 1.0, &window(*size, 50.0));
        agent.look(1, 1.0, &window(100, 100.0));
    }
}

const ALL: [Class; 4] = Class::ALL;

#[test]
fn one_look_is_no_reason_and_nor_is_a_little() {
    let mut agent = agent(&ALL);
    look(&mut agent, &[10_000, 5_000, 5_499], 1.0);
    assert_eq!(agent.decide(Duration::ZERO, &mut Still), None);
    look(&mut agent, &[5_499, 5_499], 1.05);
    assert_eq!(agent.decide(Duration::ZERO, &mut Still), None);
}

#[test]
fn a_larger_video_gives_the_imu_the_class_that_it_needs_now() {
    let mut agent = agent(&ALL);
    look(&mut agent, &[10_000, 12_000, 11_000], 1.0);
    let decision = agent.decide(Duration::ZERO, &mut Still).unwrap();
    assert_eq!(decision.decision, Choice::Change, "{decision:?}");
    assert!(decision.because.starts_with("size of video is 10000 B, not 5000 B: "), "{}", decision.because);
    let [setting] = &decision.settings[..] else { panic!("{decision:?}") };
    assert_eq!((setting.subscriber.as_str(), setting.channel), ("/pilot", 1));
    assert_eq!((setting.publisher_end.as_str(), setting.subscriber_end.as_str()), ("class=high", "class=high"));
    agent.applied(&mut Still);
    look(&mut agent, &[10_000, 12_000, 11_500], 1.0);
    assert_eq!(agent.decide(Duration::from_secs(61), &mut Still), None, "decided already");
    look(&mut agent, &[12_000, 12_000, 12_000], 1.0);
    assert_eq!(agent.decide(Duration::from_secs(59), &mut Still), None, "not so soon");
    let next = agent.decide(Duration::from_secs(60), &mut Still).unwrap();
    assert_eq!((next.decision, next.settings.len()), (Choice::Keep, 0), "{next:?}");
}

#[test]
fn a_proposal_not_applied_is_part_of_the_next_one() {
    let mut agent = agent(&ALL);
    look(&mut agent, &[10_000; LOOKS], 1.0);
    assert_eq!(agent.decide(Duration::ZERO, &mut Still).unwrap().settings.len(), 1);
    look(&mut agent, &[12_000; LOOKS], 1.0);
    assert_eq!(agent.decide(Duration::from_secs(60), &mut Still).unwrap().settings.len(), 1);
}

#[test]
fn limits_and_links_are_reasons_to_refuse() {
    let mut limited = agent(&[Class::Low, Class::Normal]);
    look(&mut limited, &[10_000; LOOKS], 1.0);
    let decision = limited.decide(Duration::ZERO, &mut Still).unwrap();
    assert_eq!((decision.decision, decision.settings.len()), (Choice::Refuse, 0));
    assert!(decision.because.ends_with("imu would need class high, which may not be given"), "{}", decision.because);
    let mut full = agent(&ALL);
    look(&mut full, &[30_000; LOOKS], 1.0);
    let decision = full.decide(Duration::ZERO, &mut Still).unwrap();
    assert!(
        decision.decision == Choice::Refuse && decision.because.contains("what would do: "),
        "{}",
        decision.because
    );
}

#[test]
fn rates_count_too_and_what_was_never_declared_does_not() {
    let mut agent = agent(&ALL);
    look(&mut agent, &[5_000; LOOKS], 1.2);
    let decision = agent.decide(Duration::ZERO, &mut Still).unwrap();
    let changed: Vec<_> =
        decision.contract.iter().map(|c| (c.name.as_str(), c.key.as_str(), c.value.as_str())).collect();
    assert_eq!(changed, [("video", "rate", "\"60 Hz\""), ("imu", "rate", "\"120 Hz\"")]);
    assert_eq!(decision.decision, Choice::Keep, "{decision:?}");
}

#[test]
fn a_plan_of_another_contract_is_refused() {
    let limits = Limits { classes: ALL.to_vec(), every: Duration::ZERO };
    assert!(Agent::new(TEXT, &Plan::default(), limits.clone()).unwrap_err().to_string().contains("plan anew"));
    assert!(Agent::new("x", &Plan::default(), limits).is_err());
}
