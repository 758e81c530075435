use super::*;
use crate::domains::{Asker, Phase};
use crate::planning::{Admitted, Reduction};
use std::fs;

/// A directory of a test.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    /// What a broker finds that starts after the machine stopped now.
    fn after_a_crash(&self) -> Kept {
        let other = Self(self.0.with_extension("crash"));
        let _ = fs::remove_dir_all(&other.0);
        fs::create_dir_all(&other.0).unwrap();
        fs::copy(self.0.join("broker.redb"), other.0.join("broker.redb")).unwrap();
        Store::open(&other.0).unwrap().1
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn crossing(session: &str, version: u64) -> (Key, Option<Crossing>) {
    let key = Key { first: "robot".into(), session: session.into(), version };
    let text = serde_json::json!({
        "key": key, "passed": [], "asker": Asker { owner: "ann".into(), ..Asker::default() },
        "flows": [], "menus": [], "legs": [], "phase": Phase::Committed,
    });
    (key, Some(serde_json::from_value(text).unwrap()))
}

#[test]
fn what_is_kept_survives_a_crash_and_is_found_by_one_broker_at_a_time() {
    let directory = Directory::new("kept");
    let (mut store, kept) = Store::open(&directory.0).unwrap();
    assert_eq!(kept, Kept::default());
    let (plan, hosts) = (Some("plan".into()), vec!["a".into()]);
    let links = [("wire".to_owned(), 0)].into();
    let reduction = Reduction { because: "link wire is down".into(), ..Reduction::default() };
    let kept = Kept { epoch: 3, revision: 7, plan, hosts, links, reduction, ..Kept::default() };
    store.keep(&kept).unwrap();
    assert_eq!(directory.after_a_crash(), kept);
    let less = Kept { revision: 8, plan: None, ..kept };
    store.keep(&less).unwrap();
    assert_eq!(directory.after_a_crash(), less);
    assert_eq!(Store::open(&directory.0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    drop(store);
    assert_eq!(Store::open(&directory.0).unwrap().1, less);
}

#[test]
fn sessions_come_and_go_one_by_one() {
    let directory = Directory::new("crossings");
    let (mut store, _) = Store::open(&directory.0).unwrap();
    store.keep(&Kept { epoch: 1, revision: 1, contract: Some("contract".into()), ..Kept::default() }).unwrap();
    let all = [crossing("one", 9), crossing("one", 10), crossing("two", 1)];
    store.keep_crossings(2, &all).unwrap();
    let found = directory.after_a_crash();
    assert_eq!((found.epoch, found.revision, found.contract.as_deref()), (1, 2, Some("contract")));
    assert_eq!(
        found.crossings.iter().map(|one| &one.key).collect::<Vec<_>>(),
        all.iter().map(|(key, _)| key).collect::<Vec<_>>()
    );
    store.keep_crossings(3, &[(all[0].0.clone(), None), crossing("three", 1)]).unwrap();
    let found = directory.after_a_crash();
    assert_eq!(found.crossings.iter().map(|one| one.key.session.as_str()).collect::<Vec<_>>(), ["one", "three", "two"]);
    // What else is kept leaves them as they are.
    store.keep(&Kept { epoch: 1, revision: 4, ..Kept::default() }).unwrap();
    assert_eq!(directory.after_a_crash().crossings, found.crossings);
}

/// The records of a store, as an audit reads them: what happened to which session.
fn records(store: &mut Store) -> Vec<(u64, Event, String)> {
    let mut head = Head::default();
    let lines = store.accounts(0, 1000).unwrap();
    let read = |line: &String| {
        let record = head.follow(line).unwrap();
        (record.number, record.entry.event, record.entry.session)
    };
    lines.iter().map(read).collect()
}

#[test]
fn what_happens_to_sessions_is_in_the_accounts_with_the_change_itself() {
    let directory = Directory::new("accounts");
    let (mut store, _) = Store::open(&directory.0).unwrap();
    let with = |names: &[&str]| {
        let session = |name: &&str| Admitted { name: (*name).into(), owner: "ann".into(), ..Admitted::default() };
        Kept { epoch: 1, sessions: names.iter().map(session).collect(), ..Kept::default() }
    };
    store.keep(&with(&["camera"])).unwrap();
    let robot = crossing("one", 9);
    store.keep_crossings(2, std::slice::from_ref(&robot)).unwrap();
    store.keep_crossings(2, std::slice::from_ref(&robot)).unwrap(); // the same again
    drop(store);
    let (mut store, _) = Store::open(&directory.0).unwrap();
    store.keep(&with(&[])).unwrap();
    store.keep_interim(robot.1.iter()).unwrap(); // what is not known to be on disk is in none
    store.keep_crossings(3, &[(robot.0, None)]).unwrap();
    let (camera, one) = ("camera".to_owned(), "robot/one/9".to_owned());
    let all = [
        (1, Event::Start, camera.clone()),
        (2, Event::Start, one.clone()),
        (3, Event::Stop, camera.clone()),
        (4, Event::Stop, one),
    ];
    assert_eq!(records(&mut store), all);
    // The last ones are kept, and fit together.
    for _ in 0..6 {
        store.keep(&with(&["camera"])).unwrap();
        store.keep(&with(&[])).unwrap();
    }
    let left = records(&mut store);
    assert_eq!((left.len(), left[0].0, left[9].clone()), (10, 7, (16, Event::Stop, camera)));
    assert_eq!(store.accounts(14, 1).unwrap().len(), 1);
}

#[test]
fn a_damaged_file_is_named() {
    let directory = Directory::new("damaged");
    drop(Store::open(&directory.0).unwrap());
    fs::write(directory.0.join("broker.redb"), "{").unwrap();
    let error = Store::open(&directory.0).unwrap_err().to_string();
    assert!(error.contains("broker.redb cannot be read") && error.contains("--epoch"), "{error}");
}
