use super::*;
use proptest::prelude::*;

const SHARES: &str = "shares = { critical = \"5 %\", high = \"30 %\", normal = \"45 %\", low = \"20 %\" }";

fn parse(text: &str) -> Result<HostFile, String> {
    HostFile::parse(text, false).map_err(|(at, problem)| format!("{}: {problem}", line(text, at.start)))
}

#[test]
fn a_file_is_read() {
    let text = format!(
        "[[device]]\nname = \"eth0\"\nrate = \"100 Mbit/s\"\n\n[[device]]\nname = \"eth1\"\nrate = \"1 Gbit/s\"\nscheduler = \"htb\"\n\
         {SHARES}\nceilings = {{ low = \"50 %\" }}\nqueue = 50\nmap = \"router\"\n\n\
         [[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\nclass = \"high\"\nsched = \"fifo:30\"\n"
    );
    let file = parse(&text).unwrap();
    let (_, first) = &file.devices[0];
    assert_eq!((first.rate, first.queue, &first.scheduler, first.map), (100_000_000, 100, &Scheduler::Strict, None));
    let (at, second) = &file.devices[1];
    let Scheduler::Htb(shares) = &second.scheduler else { panic!("{second:?}") };
    assert_eq!(shares.map(|s| s.rate / 1_000_000), [200, 450, 300, 50]);
    assert_eq!(shares[0].ceil, Some(500_000_000));
    assert_eq!((*at, second.queue, second.map), (5, 50, Some(Hook::Router)));
    assert_eq!(file.channels[0].1.words, ["class=high", "sched=fifo:30"]);
    assert!(matches!(HostFile::parse(&text, true).unwrap().devices[0].1.scheduler, Scheduler::StrictPrio));
}

#[test]
fn a_channel_has_a_place_for_its_proxy() {
    let channel = |more: &str| parse(&format!("[[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\n{more}\n"));
    let file = channel("every = 10\npicture = \"320x240\"\nproxy = \"relay:gate\"").unwrap();
    assert_eq!(file.channels[0].1.words, ["every=10", "picture=320x240", "proxy=relay:gate"]);
    assert!(file.channels[0].1.changes.is_empty() && !file.channels[0].1.proxy.is_empty());
    for (wrong, says) in
        [("every = 0", "4: every: "), ("rate = \"5/4\"", "4: rate: "), ("proxy = \"moon\"", "4: proxy ")]
    {
        let said = channel(wrong).unwrap_err();
        assert!(said.starts_with(says) && said.contains("allowed"), "{said}");
    }
}

#[test]
fn a_delay_becomes_a_first_slope() {
    let text = format!(
        "[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\nscheduler = \"hfsc\"\n{SHARES}\ndelays = {{ critical = \"2 ms\" }}\n"
    );
    let Scheduler::Hfsc(services) = parse(&text).unwrap().devices[0].1.scheduler.clone() else { panic!("no hfsc") };
    // 1514 bytes in 2 ms are 6.056 Mbit/s; the share is 5 % of 10 Mbit/s.
    assert_eq!(services[3].real_time, Some(Curve { m1: 6_056_000, d_us: 2000, m2: 500_000 }));
    assert_eq!(services[0].real_time, Some(Curve::linear(2_000_000)));
}

#[test]
fn errors_name_the_line_and_the_allowed_values() {
    let device = |more: &str| format!("[[device]]\nname = \"eth0\"\nrate = \"10 Mbit/s\"\n{more}\n");
    let channel = |more: &str| format!("[[channel]]\npublisher = \"/a\"\nsubscriber = \"/b\"\n{more}\n");
    for (text, says) in [
        ("[[device]]\nname = \"eth0\"\n".to_owned(), "1: missing field `rate`"),
        (String::new(), "1: nothing to apply: allowed are [[device]]"),
        ("[[devise]]\n".to_owned(), "1: unknown field `devise`, expected `device` or `channel`"),
        ("[[device]]\nname = \"eth0\"\nrate = 10\n".to_owned(), "3: invalid type: integer"),
        (
            "[[device]]\nname = \"eth0\"\nrate = \"10\"\n".to_owned(),
            "3: rate = \"10\": allowed is a rate from 1 kbit/s up",
        ),
        ("[[device]]\nname = \"eth0\"\nrate = \"0 Mbit/s\"\n".to_owned(), "3: rate"),
        ("[[device]]\nname = \"a name; drop\"\nrate = \"1 Mbit/s\"\n".to_owned(), "2: name"),
        (device("speed = 3"), "4: unknown field `speed`, expected one of `name`"),
        (device("scheduler = \"fair\""), "4: scheduler = \"fair\": allowed is fifo, strict, htb or hfsc"),
        (device("scheduler = \"htb\""), "4: shares are missing"),
        (device("scheduler = \"htb\"\nshares = { high = \"3 %\" }"), "5: shares of all four classes are needed"),
        (device(&format!("scheduler = \"htb\"\n{}", SHARES.replace("45", "46"))), "5: shares add up to 101 %"),
        (device(&format!("scheduler = \"htb\"\n{}", SHARES.replace("45 %", "45"))), "5: share = \"45\": allowed is"),
        (device(SHARES), "4: shares: only with scheduler = \"htb\" or \"hfsc\", not with \"strict\""),
        (device(&format!("scheduler = \"htb\"\n{SHARES}\ndelays = {{ high = \"1 ms\" }}")), "6: delays: only with"),
        (device("queue = 0"), "4: queue = 0: allowed is 1 to 100000 packets"),
        (device("map = \"switch\""), "4: map = \"switch\": allowed is router or bridge"),
        (device("[[device]]\nname = \"eth0\"\nrate = \"1 Mbit/s\""), "5: name = \"eth0\": allowed is each device once"),
        (channel(""), "1: a channel without"),
        (channel("class = \"urgent\""), "4: class \"urgent\": allowed is low, normal (norm)"),
        (channel("class = \"high\"\ndscp = \"EF\""), "5: setting"),
        (channel("sched = \"fifo:100\""), "4: sched"),
        ("[[channel]]\npublisher = \"a\"\nsubscriber = \"/b\"\nclass = \"high\"\n".to_owned(), "2: publisher = \"a\""),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.starts_with(says), "{text}\n{said}\nshould start with {says}");
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "(\\[\\[(device|channel)\\]\\]\n|[a-z]{1,9} = (\"[^\"\n]{0,9}\"|[0-9-]{1,20}|\\{ (low|high) = \"[0-9]{1,3} ?%\" \\})\n|.{0,9}\n){0,8}") {
        let _ = parse(&text);
    }
}
