use super::*;
use crate::admin::grammar::Command;

fn read(groups: &str) -> Result<Priority, String> {
    match Command::parse(&format!("prop set /x {groups}"))? {
        Command::Set { priority: Some(priority), .. } => Ok(priority),
        other => panic!("{groups}: {other:?}"),
    }
}

fn sched(text: &str, now: Option<&str>) -> Result<Change<Scheduling>, String> {
    let now = now.map(|n| n.parse().unwrap());
    read(&format!("(sched ({text}))"))?.changes(now).map(|changes| changes.sched)
}

fn set(text: &str) -> Result<Change<Scheduling>, String> {
    Ok(Change::Set(text.parse().unwrap()))
}

#[test]
fn y_21_ys_12_policies_by_name_and_number() {
    for policy in ["SCHED_FIFO", "fifo", "1", "\"1\"", "[FIFO]"] {
        assert_eq!(sched(&format!("(policy {policy}) (priority 30)"), None), set("fifo:30"), "{policy}");
    }
    assert_eq!(sched("(priority 7) (policy 2)", None), set("rr:7"));
    assert_eq!(sched("(policy SCHED_OTHER)", Some("fifo:3")), set("other"));
    assert_eq!(sched("(policy 0) (priority 0)", None), set("other"));
    assert_eq!(sched("(policy OTHER) (nice -5)", None), set("other:-5"));
    assert_eq!(sched("(priority 40)", Some("rr:3")), set("rr:40"));
    assert_eq!(sched("(policy 2)", Some("fifo:3")), set("rr:3"));
    assert_eq!(sched("(priority -1)", Some("fifo:3")), Ok(Change::Unset));
    assert_eq!(sched("(priority -1) (policy 1)", None), Ok(Change::Unset));
    let deadline = set("deadline:1ms/10ms");
    assert_eq!(sched("(policy SCHED_DEADLINE) (runtime 1ms) (period 10ms)", None), deadline);
    assert_eq!(sched("(policy 6) (runtime 1000000) (deadline 10ms) (period 10ms)", None), deadline);
    let priority = read("(sched ((policy 1) (priority 3) (affinity 0 2)))").unwrap();
    assert_eq!(priority.changes(None).unwrap().affinity, Change::Set(vec![0, 2]));
}

#[test]
fn y_22_ys_11_marks_in_their_order_of_precedence() {
    for (text, tos) in [
        ("(priority HIGH)", 0x90),
        ("(priority LOW)", 0x28),
        ("(priority NORM)", 0),
        ("(priority normal)", 0),
        ("(priority CRIT)", 0xb0),
        ("(priority Critical)", 0xb0),
        ("(dscp AF12)", 0x30),
        ("(dscp 36)", 0x90),
        ("(dscp VA)", 0xb0),
        ("(dscp CS0)", 0),
        ("(tos 144)", 144),
        ("(tos 12) (dscp EF)", 0xb8),
        ("(tos 12) (dscp EF) (priority LOW)", 0x28),
    ] {
        let Change::Set(mark) = read(&format!("(qos ({text}))")).unwrap().changes(None).unwrap().mark else {
            panic!("{text} sets no mark")
        };
        assert_eq!(mark.tos(), tos, "{text}");
    }
    assert!(read("(qos ((tos -1)))").unwrap().changes(None).unwrap().is_empty());
}

#[test]
fn ys_10_groups_in_any_combination() {
    let all = read("(qos ((priority HIGH))) (process ((priority 9) (policy 1))) (sched ((priority 30) (policy 1)))");
    let all = all.unwrap();
    assert_eq!(all.process.unwrap().scheduling(None), set("fifo:9"));
    assert_eq!(all.sched.unwrap().scheduling(None), set("fifo:30"));
    assert!(all.qos.is_some());
    let one = read("(qos ((tos 0)))").unwrap();
    assert!(one.process.is_none() && one.sched.is_none());
}

#[test]
fn forbidden_values_are_named_with_the_allowed_ones() {
    for (groups, says) in [
        ("(sched ((policy SCHED_FIFO) (priority 100)))", "1 to 99"),
        ("(sched ((policy SCHED_FIFO)))", "1 to 99"),
        ("(sched ((policy SCHED_FIFO) (priority 0)))", "1 to 99"),
        ("(sched ((policy SCHED_OTHER) (priority 5)))", "1 to 99"),
        ("(sched ((priority 5)))", "(policy SCHED_FIFO)"),
        ("(sched ((policy IDLE)))", "SCHED_RR (2)"),
        ("(sched ((policy 7) (priority 1)))", "SCHED_RR (2)"),
        ("(sched ((priority high) (policy 1)))", "1 to 99"),
        ("(sched ((colour red)))", "(affinity CPU"),
        ("(sched)", "is empty"),
        ("(sched fifo)", "no (KEY VALUE)"),
        ("(sched ((policy SCHED_DEADLINE)))", "(runtime T)"),
        ("(sched ((policy SCHED_DEADLINE) (runtime 9ms) (period 1ms)))", "RUNTIME <= DEADLINE"),
        ("(sched ((affinity 5000)))", "0 to 1023"),
        ("(sched ((nice 44)))", "-20 to 19"),
        ("(qos ((priority URGENT)))", "critical (crit)"),
        ("(qos ((dscp 64)))", "0 to 63"),
        ("(qos ((dscp AF44)))", "0 to 63"),
        ("(qos ((tos 256)))", "0 to 255"),
        ("(qos ((tos -2)))", "0 to 255"),
        ("(qos ((level HIGH)))", "(tos 0 to 255)"),
        ("(qos ())", "is empty"),
        ("(qos ((priority HIGH))) (link ((rate 3)))", "the groups are"),
        ("(qos ((priority HIGH))) 5", "the groups are"),
    ] {
        let said = read(groups).and_then(|priority| priority.changes(None)).unwrap_err();
        assert!(said.contains(says), "{groups}: {said}");
    }
}
