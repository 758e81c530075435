//! What a broker keeps, in each database: the same suite for all. Then the lead of one broker among several, in a real etcd of three members.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod members;

use agent::accounts::{Event, Head};
use agent::peer::Key;
use members::Members;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_broker::domains::Crossing;
use thalweg_broker::hosts::Kept;
use thalweg_broker::planning::Admitted;
use thalweg_broker::store::{Campaign, Change, Database, Disk, Entry, Etcd, Lead, Store, Table, Tls};

fn crossing(session: &str, version: u64) -> (Key, Option<Crossing>) {
    let key = Key { first: "robot".into(), session: session.into(), version };
    let text = json!({
        "key": key, "passed": [], "asker": {"owner": "ann", "text": "", "lease": null, "dry_run": false},
        "flows": [], "menus": [], "legs": [], "phase": "committed",
    });
    (key, Some(serde_json::from_value(text).unwrap()))
}

fn names(kept: &Kept) -> Vec<(&str, u64)> {
    kept.crossings.iter().map(|one| (one.key.session.as_str(), one.key.version)).collect()
}

/// What happened to which session, as an audit reads the records behind this one.
fn records(store: &mut Store, after: u64) -> Vec<(u64, Event, String)> {
    let mut head = Head::default();
    let lines = store.accounts(after, 1000).unwrap();
    let read = |line: &String| {
        let record = head.follow(line).unwrap();
        (record.number, record.entry.event, record.entry.session)
    };
    lines.iter().map(read).collect()
}

/// `open`: the database as a broker finds it that starts now, and is the only one then.
fn suite(mut open: impl FnMut() -> (Store, Kept)) {
    let (mut store, kept) = open();
    assert_eq!(kept, Kept::default());
    let state = Kept { epoch: 3, revision: 7, plan: Some("plan".into()), hosts: vec!["a".into()], ..Kept::default() };
    store.keep(&state).unwrap();
    drop(store);
    let (mut store, kept) = open();
    assert_eq!(kept, state);

    // Sessions come and go one by one, and leave all else as it is; more of them than fit into one write.
    let many: Vec<_> = (0..300).map(|n| crossing(&format!("s{n:03}"), n)).collect();
    store.keep_crossings(8, &many).unwrap();
    store.keep_crossings(9, &[(many[0].0.clone(), None), crossing("one", 9), crossing("one", 10)]).unwrap();
    let with = |count: u32| {
        let session = |n: u32| Admitted { name: format!("c{n:02}"), owner: "ann".into(), ..Admitted::default() };
        Kept { revision: 10, plan: None, sessions: (0..count).map(session).collect(), ..state.clone() }
    };
    store.keep(&with(20)).unwrap();
    drop(store);
    let (mut store, kept) = open();
    assert_eq!(Kept { crossings: Vec::new(), ..kept.clone() }, with(20));
    assert_eq!(kept.crossings.len(), 301);
    assert_eq!(names(&kept)[..2], [("one", 9), ("one", 10)]);
    assert_eq!(names(&kept)[2], ("s001", 1));

    // Each change has its record: 303 of sessions over domains, and three times 20 in one write. The chain goes on after a new start.
    store.keep_interim(kept.crossings.iter()).unwrap();
    store.keep(&with(0)).unwrap();
    let all = records(&mut store, 0);
    assert_eq!(all.len(), 363);
    assert_eq!(all[0], (1, Event::Start, "robot/s000/0".into()));
    assert_eq!(all[323..325], [(324, Event::Interim, "c00".into()), (325, Event::Interim, "c01".into())]);
    assert_eq!(all[362], (363, Event::Stop, "c19".into()));
    assert_eq!(records(&mut store, 330), all[330..], "also from within a write");
    assert_eq!(store.accounts(330, 20).unwrap().len(), 20);
    drop(store);
    let (mut store, _) = open();
    store.keep(&with(1)).unwrap();
    assert_eq!(records(&mut store, 362)[1], (364, Event::Start, "c00".into()));
    assert!(store.accounts(364, 1000).unwrap().is_empty());
}

#[test]
fn a_directory_keeps_what_it_is_told() {
    let dir = std::env::temp_dir().join(format!("thalweg-store-suite-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    suite(|| Store::open(&dir).unwrap());
    std::fs::remove_dir_all::<PathBuf>(dir).unwrap();
}

#[test]
fn an_etcd_keeps_what_it_is_told() {
    let Some(members) = Members::start("an etcd keeps what it is told") else { return };
    suite(|| Store::on(Box::new(lead(&members, "one"))).unwrap());
}

fn campaign(members: &Members, name: &str) -> Campaign {
    Campaign::new(&members.urls(), None, "world/robot", name).unwrap()
}

/// Leads, once nobody else does.
fn lead(members: &Members, name: &str) -> Etcd {
    let until = Instant::now() + Duration::from_secs(30);
    campaign(members, name).win(&|| Instant::now() > until, &|_| {}).expect("the lead")
}

#[test]
fn who_leads_no_more_writes_nothing_more() {
    let Some(members) = Members::start("one broker leads") else { return };
    let first = lead(&members, "one");
    let first_lead: Arc<Lead> = first.lead();
    let (mut store, _) = Store::on(Box::new(first)).unwrap();
    store.keep(&Kept { epoch: 1, revision: 1, ..Kept::default() }).unwrap();
    // Another one waits, and is told who leads.
    let told = std::cell::RefCell::new(String::new());
    let looks = std::cell::Cell::new(0);
    let ended = || looks.replace(looks.get() + 1) > 2;
    assert!(campaign(&members, "two").win(&ended, &|because| *told.borrow_mut() = because.to_owned()).is_none());
    assert!(told.borrow().starts_with("one (lease ") && told.borrow().ends_with("leads"), "{}", told.borrow());
    assert!(!first_lead.is_lost());

    // Its lease is over before it knows: as for a broker that was stopped.
    let leader = json!({"key": "L3RoYWx3ZWcvd29ybGQvcm9ib3QvbGVhZGVy"}); // /thalweg/world/robot/leader
    let lease = members.ask("/v3/kv/range", &leader).unwrap()["kvs"][0]["lease"].clone();
    members.ask("/v3/lease/revoke", &json!({"ID": lease})).unwrap();
    let second = lead(&members, "two");
    let (mut other, kept) = Store::on(Box::new(second)).unwrap();
    assert_eq!((kept.epoch, kept.revision), (1, 1));
    let late = store.keep(&Kept { epoch: 1, revision: 2, ..Kept::default() }).unwrap_err().to_string();
    assert!(late.contains("another broker leads"), "{late}");
    assert!(first_lead.is_lost());
    other.keep(&Kept { epoch: 2, revision: 1, ..Kept::default() }).unwrap();
    drop((store, other));
    let (_, kept) = Store::on(Box::new(lead(&members, "three"))).unwrap();
    assert_eq!((kept.epoch, kept.revision), (2, 1));
}

/// A write of which no answer came may be carried out later.
#[test]
fn a_write_that_comes_late_does_not_come_between_two_others() {
    let Some(members) = Members::start("a write comes late") else { return };
    let (mut store, _) = Store::on(Box::new(lead(&members, "one"))).unwrap();
    store.keep(&Kept { epoch: 1, revision: 1, ..Kept::default() }).unwrap();
    let late = json!({"key": "L3RoYWx3ZWcvd29ybGQvcm9ib3Qvd3JpdGU=", "value": "bGF0ZQ=="}); // /thalweg/world/robot/write
    members.ask("/v3/kv/put", &late).unwrap();
    let next = Kept { epoch: 1, revision: 2, ..Kept::default() };
    let refused = store.keep(&next).unwrap_err().to_string();
    assert!(refused.contains("an earlier write came late"), "{refused}");
    store.keep(&next).unwrap();
}

/// A database of which one write (the first one: 0) is carried out, but nobody is told.
#[derive(Debug)]
struct Silent(Disk, Option<u32>);

impl Database for Silent {
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>> {
        self.0.scan(table, after, most)
    }

    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        self.0.get(table, names)
    }

    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        self.0.write(changes)?;
        let is_silent = self.1 == Some(0);
        self.1 = self.1.and_then(|left| left.checked_sub(1));
        if is_silent { Err(io::Error::other("no answer")) } else { Ok(()) }
    }

    fn damaged(&self, error: &dyn std::fmt::Display) -> io::Error {
        self.0.damaged(error)
    }
}

/// What is there after a write without an answer counts: no record stands twice.
#[test]
fn a_write_whose_answer_is_lost_is_found_again() {
    let dir = std::env::temp_dir().join(format!("thalweg-store-silent-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (mut store, _) = Store::on(Box::new(Silent(Disk::open(&dir).unwrap(), Some(1)))).unwrap();
    let with = |names: &[&str]| {
        let session = |name: &&str| Admitted { name: (*name).into(), owner: "ann".into(), ..Admitted::default() };
        Kept { epoch: 1, sessions: names.iter().map(session).collect(), ..Kept::default() }
    };
    store.keep(&with(&["camera"])).unwrap();
    store.keep(&with(&["camera", "lidar"])).unwrap_err();
    store.keep(&with(&["camera"])).unwrap();
    let events: Vec<(Event, String)> = records(&mut store, 0).into_iter().map(|(_, event, of)| (event, of)).collect();
    let [camera, lidar] = ["camera", "lidar"].map(str::to_owned);
    assert_eq!(events, [(Event::Start, camera), (Event::Start, lidar.clone()), (Event::Stop, lidar)]);
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn two_of_three_members_are_enough_and_one_is_not() {
    let Some(members) = Members::start("members of etcd die") else { return };
    let etcd = lead(&members, "one");
    let (mut store, _) = Store::on(Box::new(etcd)).unwrap();
    let leads = members.leader();
    members.kill(leads);
    let mut revision = 0;
    let mut keep = |store: &mut Store| {
        revision += 1;
        store.keep(&Kept { epoch: 1, revision, ..Kept::default() }).map(|()| revision)
    };
    assert_eq!(keep(&mut store).unwrap(), 1, "another member leads them");
    let second = (leads + 1) % 3;
    members.kill(second);
    let unserved = keep(&mut store).unwrap_err().to_string();
    assert!(unserved.contains("no member of etcd answers"), "{unserved}");
    members.begin(leads);
    members.begin(second);
    members.until_served();
    drop(store);
    // What could not be written may be there all the same: the whole change or nothing.
    let (_, kept) = Store::on(Box::new(lead(&members, "two"))).unwrap();
    assert!([1, 2].contains(&kept.revision), "{}", kept.revision);
}

/// An authority, and a certificate of it for this machine: of a member, or of a client without a name.
fn certificates(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(dir.join("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    for (file, name) in [("own", vec!["127.0.0.1".to_owned()]), ("client", Vec::new())] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(name).unwrap().signed_by(&key, &issuer).unwrap();
        std::fs::write(dir.join(format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

#[test]
fn members_and_broker_show_each_other_certificates() {
    let Some(members) = Members::start_with_tls("etcd with TLS", certificates) else { return };
    let read = |name: &str| std::fs::read(members.dir().join(name)).unwrap();
    let tls = Tls { authority: read("ca.pem"), own: Some((read("client.pem"), read("client.key"))) };
    let until = Instant::now() + Duration::from_secs(30);
    let campaign = |tls: &Tls| Campaign::new(&members.urls(), Some(tls), "world/robot", "one").unwrap();
    let etcd = campaign(&tls).win(&|| Instant::now() > until, &|_| {}).expect("the lead");
    let (mut store, _) = Store::on(Box::new(etcd)).unwrap();
    store.keep(&Kept { epoch: 1, ..Kept::default() }).unwrap();
    // Without a certificate, or for members of another authority, there is no lead.
    let once = |tls: &Tls| {
        let (told, looks) = (std::cell::RefCell::new(String::new()), std::cell::Cell::new(0));
        let ended = || looks.replace(looks.get() + 1) > 0;
        assert!(campaign(tls).win(&ended, &|because| *told.borrow_mut() = because.to_owned()).is_none());
        told.into_inner()
    };
    let nameless = once(&Tls { own: None, ..tls.clone() });
    assert!(nameless.contains("no member of etcd answers"), "{nameless}");
    let other = members.dir().join("other");
    std::fs::create_dir(&other).unwrap();
    certificates(&other);
    let foreign = once(&Tls { authority: std::fs::read(other.join("ca.pem")).unwrap(), ..tls });
    assert!(foreign.contains("certificate"), "{foreign}");
}
