//! The contract's rules: who may ask for how much.

use super::*;

const RULES: &str = r#"
[[rule]]
name = "operators"
users = ["ann"]
may = ["request", "links"]
sessions = 2
rate = "4 Mbit/s"
[[rule]]
name = "guards"
users = ["bo*"]
may = ["stop"]
"#;

fn testbed() -> Testbed {
    let mut testbed = Testbed::new();
    testbed.stop();
    testbed.contract = Some(Box::leak(format!("{CONTRACT}{RULES}").into_boxed_str()));
    testbed.start();
    testbed
}

/// The limit of a rule that stands against it.
fn against(answer: Result<Session, ClientError>) -> String {
    match answer {
        Err(ClientError::Unfit(said, why)) => {
            assert!(said.contains("refused: no rule of the contract permits it: rule"), "{said}");
            why[0].what.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_has_more_sessions_than_a_rule_permits() {
    let mut testbed = testbed();
    let (ann, bob) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::User, "bob"));
    assert_eq!(against(bob.request_session("map", &session("map", 10))), "rules of the contract");
    // 3.2 Mbit/s of 4, and 0.8.
    ann.request_session("camera", &session("camera", 8000)).unwrap();
    assert_eq!(against(ann.request_session("lidar", &session("lidar", 2001))), "rule operators: rate");
    assert_eq!(against(ann.try_session("lidar", &session("lidar", 2001))), "rule operators: rate");
    ann.request_session("lidar", &session("lidar", 2000)).unwrap();
    assert_eq!(against(ann.request_session("map", &session("map", 10))), "rule operators: sessions");
    assert_eq!(ann.sessions().unwrap().len(), 2);
    // Whoever may stop others' does, and nothing else.
    assert_eq!(status(bob.state_link("wire", Some(5_000_000))), 403);
    assert_eq!(
        (status(bob.change_plan(None, 1)), status(ann.change_plan(None, 1))),
        (403, 403),
        "plan is a right of its own"
    );
    assert_eq!(bob.sessions().unwrap().len(), 2);
    bob.stop_session("lidar").unwrap();
    assert_eq!(against(bob.request_session("camera", &session("camera", 10))), "rules of the contract");
    ann.state_link("wire", Some(9_000_000)).unwrap();
    testbed.stop();
    // What is admitted stays where the rules of a new contract would not permit it; it may become smaller if those allow that.
    testbed.contract = Some(Box::leak(format!("{CONTRACT}{}", RULES.replace("4 Mbit", "1 Mbit")).into_boxed_str()));
    testbed.start();
    assert_eq!(ann.session("camera").unwrap().channels.len(), 1);
    assert_eq!(against(ann.request_session("camera", &session("camera", 4000))), "rule operators: rate");
    ann.request_session("camera", &session("camera", 2000)).unwrap();
}

#[test]
fn sessions_that_are_asked_for_at_once_are_no_way_around_a_rule() {
    let testbed = testbed();
    let ask = |number: usize| {
        let name = format!("s{number}");
        testbed.client(Kind::User, "ann").request_session(&name, &session(&name, 100)).is_ok()
    };
    let admitted = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).filter(|admitted| *admitted).count()
    });
    assert_eq!(admitted, 2);
}
