use super::*;
use crate::priority::{Class, Policy};
use proptest::prelude::*;

#[test]
fn words_become_changes() {
    let changes: Changes = "class=HIGH sched=fifo:30 affinity=0-2,1".parse().unwrap();
    let mut settings = PrioritySettings::default();
    changes.apply(&mut settings);
    assert_eq!(settings.mark, Some(Mark::Class(Class::High)));
    assert_eq!((settings.sched, settings.affinity.clone()), ("fifo:30".parse().ok(), Some(vec![0, 1, 2])));
    "sched=default dscp=EF priority=6".parse::<Changes>().unwrap().apply(&mut settings);
    assert_eq!((settings.sched, settings.mark.unwrap().tos()), (None, 0xb8));
    assert!(settings.wants_own_thread() && settings.socket_priority == Some(6));
}

#[test]
fn values_from_elsewhere_are_checked() {
    let fine = |settings: PrioritySettings| settings.check();
    let sched = |policy| PrioritySettings { sched: Some(Policy::into(policy)), ..Default::default() };
    assert_eq!(fine(sched(Policy::Fifo(99))), Ok(()));
    assert!(fine(sched(Policy::Fifo(100))).is_err() && fine(sched(Policy::RoundRobin(0))).is_err());
    for bad in [
        PrioritySettings { socket_priority: Some(16), ..Default::default() },
        PrioritySettings { affinity: Some(Vec::new()), ..Default::default() },
        PrioritySettings { affinity: Some(vec![0, 1024]), ..Default::default() },
        PrioritySettings { pace: Some(0), ..Default::default() },
        PrioritySettings { latency_budget_ns: Some(u64::MAX), ..Default::default() },
        PrioritySettings { police: Some(Policing { period_ns: 0, tolerance_ns: 0, largest: 1 }), ..Default::default() },
    ] {
        assert!(fine(bad.clone()).is_err(), "{bad:?}");
    }
}

#[test]
fn a_latency_budget_is_set_undone_and_taken_back() {
    let set = |text: &str| text.parse::<Changes>().unwrap();
    let mut settings = PrioritySettings::default();
    set("latency-budget=2ms").apply(&mut settings);
    assert_eq!(settings.latency_budget_ns, Some(2_000_000));
    let none = set("latency-budget=0us");
    assert_eq!((none.undone(&settings), none.is_without_packets()), (set("latency-budget=2ms"), false));
    none.apply(&mut settings);
    assert_eq!((settings.latency_budget_ns, settings.check()), (Some(0), Ok(())));
    set("latency-budget=default").apply(&mut settings);
    assert_eq!(settings, PrioritySettings::default());
    let (stated, rest) = set("latency-budget=1ms pace=8Mbit/s").apart(&set("latency-budget=2ms"));
    assert_eq!((stated, rest), (set("latency-budget=1ms"), set("pace=8Mbit/s")));
}

#[test]
fn a_mark_of_its_own_takes_no_socket_priority_from_the_default() {
    let default: Changes = "class=critical priority=5 pace=8Mbit/s".parse().unwrap();
    let (mut port, mut own) = (PrioritySettings::default(), PrioritySettings::default());
    default.apply(&mut port);
    assert_eq!(own.or(&port), port);
    own.mark = Some(Mark::Class(Class::Low));
    assert_eq!((own.or(&port).socket_priority, own.or(&port).pace), (None, Some(1_000_000)));
}

#[test]
fn errors_name_the_allowed_values() {
    for (text, says) in [
        ("class=urgent", "critical (crit)"),
        ("dscp=64", "0 to 63"),
        ("tos=256", "0 to 255"),
        ("sched=fifo:100", "1 to 99"),
        ("affinity=2-1", "0 to 1023"),
        ("affinity=0-4000000000", "0 to 1023"),
        ("priority=16", "0 to 15"),
        ("pace=20", "20Mbit/s"),
        ("pace=1bit/s", "8kbit/s"),
        ("police=100Hz", "100Hz/2/1000B"),
        ("latency-budget=2", "such as 2ms"),
        ("latency-budget=2days", "such as 2ms"),
        ("colour=red", "class=low"),
        ("class", "class=low"),
        ("class=high dscp=46", "not two"),
    ] {
        let said = text.parse::<Changes>().unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".{0,60}") {
        let _ = text.parse::<Changes>();
    }
}

#[test]
fn ys_31_strings_of_profiles() {
    for text in [
        "level:high; priority:10; policy:1",
        " LEVEL : HIGH ;priority:10;policy: SCHED_FIFO;",
        "prt:10 pol:1 Level:High",
    ] {
        let settings = PrioritySettings::from_yarp(text).unwrap();
        assert_eq!(settings.mark, Some(Mark::Class(Class::High)), "{text}");
        assert_eq!(settings.sched.unwrap().policy, Policy::Fifo(10), "{text}");
    }
    assert_eq!(PrioritySettings::from_yarp("").unwrap(), PrioritySettings::default());
}

#[test]
fn ys_30_ys_51_every_form_of_packet_priority_works() {
    let tos = |text| PrioritySettings::from_yarp(text).unwrap().mark.unwrap().tos();
    assert_eq!([tos("LEVEL:HIGH"), tos("DSCP:AF42"), tos("DSCP:36"), tos("TOS:144")], [144; 4]);
    assert_eq!([tos("LEVEL:LOW"), tos("LEVEL:NORM"), tos("LEVEL:CRIT"), tos("DSCP:VA")], [40, 0, 176, 176]);
}

#[test]
fn ys_12_back_to_the_default() {
    assert_eq!(Changes::from_yarp("priority:-1; policy:1").unwrap().sched, Change::Unset);
    assert_eq!(Changes::from_yarp("policy:0").unwrap().sched, Change::Set(Scheduling::default()));
}

#[test]
fn errors_of_yarp_name_the_allowed_values() {
    for (text, says) in [
        ("high", "level:low"),
        ("colour:red", "level:low"),
        ("level:urgent", "critical (crit)"),
        ("dscp:64", "0 to 63"),
        ("tos:256", "0 to 255"),
        ("policy:7; priority:1", "SCHED_RR (2)"),
        ("policy:1; priority:100", "1 to 99"),
        ("policy:1", "1 to 99"),
        ("policy:0; priority:4", "1 to 99"),
        ("priority:10", "policy:1; priority:10"),
        ("priority:x", "1 to 99"),
        ("level:high; tos:3", "not two"),
    ] {
        let said = Changes::from_yarp(text).unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
}

proptest! {
    #[test]
    fn any_text_of_yarp_is_answered(text in ".{0,60}|((level|tos|policy|priority|:|;| |[0-9]){0,12})") {
        let _ = Changes::from_yarp(&text);
    }
}
