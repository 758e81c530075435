//! The sessions of a domain: each is admitted beside the domain's contract and all other sessions if the planner finds a plan with which every
//! channel keeps its deadline, and is refused with the planner's reasons and offers otherwise. Pure.

use crate::degradation::{AT_LEISURE, adapt};
use crate::planning::{
    Admitted, Change, MOST_SESSIONS, Present, Reduction, Size, Unadmitted, attempted, joined, planned,
};
use crate::rules::{self, Ask, Party, Usage};
use qos::contract::rule::Rule;
use qos::contract::session::Session;
use qos::placement::Watch;

/// Admits the session of a file, or changes the one of its name, in a plan of this revision. Where links carry less than the contract says, it has to
/// fit as it is beside what is left of the others, and with all of them when the links are back.
///
/// # Errors
/// [`Unadmitted`]; nothing is changed then.
pub fn request(
    present: Present<'_>,
    (owner, text): (&str, &str),
    revision: u64,
    watch: &mut dyn Watch,
) -> Result<Change, Unadmitted> {
    let (sessions, name) = with(present.sessions, (owner, text), revision)?;
    let all = Present { sessions: &sessions, ..present };
    if present.links.is_empty() && *present.reduction == Reduction::default() {
        return planned(all, Some(&name), watch);
    }
    beside_what_is_left(all, &name, watch)
}

/// `true` if [`request`] admits it now; whether a rule lets its owner ask ([`permit`]) is not looked at. Takes a part of its time: nothing is looked for that others could get back.
pub fn admits(present: Present<'_>, (owner, text): (&str, &str), watch: &mut dyn Watch) -> bool {
    let Ok((sessions, name)) = with(present.sessions, (owner, text), 0) else { return false };
    let all = Present { sessions: &sessions, ..present };
    left(all, &name, &mut |present: Present<'_>| attempted(present, watch)).is_ok()
}

/// The sessions with the one of a file, and its name.
fn with(
    sessions: &[Admitted],
    (owner, text): (&str, &str),
    revision: u64,
) -> Result<(Vec<Admitted>, String), Unadmitted> {
    let Session { name, lease, text, .. } = Session::read(text).map_err(Unadmitted::Malformed)?;
    let owned = owner.to_owned();
    let wanted = Admitted { name, owner: owned, revision, asked: revision, text, lease, ..Admitted::default() };
    let (mut sessions, name) = (sessions.to_vec(), wanted.name.clone());
    match sessions.iter().position(|other| other.name == name) {
        Some(at) if sessions[at].owner != owner => return Err(Unadmitted::Anothers(sessions[at].owner.clone())),
        Some(at) => sessions[at] = wanted,
        None if sessions.len() >= MOST_SESSIONS => return Err(Unadmitted::TooMany),
        None => sessions.push(wanted),
    }
    Ok((sessions, name))
}

/// What is taken back from others while a session (name) runs as it is.
///
/// # Errors
/// [`Unadmitted`]: contract and sessions do not go together.
pub(crate) fn resumed(present: Present<'_>, name: &str) -> Result<Reduction, Unadmitted> {
    let whole = joined(present.contract, present.sessions.iter(), Some(name))?;
    let mut reduction = present.reduction.clone();
    reduction.suspended.remove(name);
    let own = present.sessions.iter().zip(&whole.parts).find(|(session, _)| session.name == name);
    let own = own.map(|(_, part)| part.subscribers.as_slice()).unwrap_or_default();
    for index in own {
        reduction.scaled.remove(&whole.contract.system.subscribers[*index].name);
    }
    Ok(reduction)
}

/// A planner of what a domain has.
type Planner<'a> = &'a mut dyn FnMut(Present<'_>) -> Result<Change, Unadmitted>;

/// A session (name) with all others on links as the contract says, and then beside what is left of them.
fn left(present: Present<'_>, name: &str, plan: Planner<'_>) -> Result<Change, Unadmitted> {
    let reduction = resumed(present, name)?;
    let (links, nothing) = Default::default();
    plan(Present { links: &links, reduction: &nothing, ..present })?;
    plan(Present { reduction: &reduction, ..present }).map_err(|why| match why {
        // All of it goes together, but not all of it runs.
        Unadmitted::Malformed(_) => Unadmitted::Cut(name.to_owned(), "it needs a session that is suspended".to_owned()),
        other => other,
    })
}

/// As [`request`], where something is taken back from others.
fn beside_what_is_left(present: Present<'_>, name: &str, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let left = left(present, name, &mut |present: Present<'_>| planned(present, Some(name), watch))?;
    // What it leaves, if it has become smaller, is for those that have less than they asked for.
    let again = adapt(present, AT_LEISURE, watch);
    let is_whole = |change: &Change| {
        let ports = change.sessions.iter().find(|session| session.name == name).map(|one| &one.subscribers);
        let thinned = |port: &String| change.reduction.scaled.contains_key(port);
        !change.reduction.suspended.contains_key(name) && !ports.into_iter().flatten().any(thinned)
    };
    let no_worse = |change: &Change| {
        let (now, then) = (&change.reduction, &left.reduction);
        let scaled = |(port, scale): (&String, &u32)| then.scaled.get(port).is_some_and(|before| scale <= before);
        let pipe = |(port, size): (&String, &Size)| then.pipes.get(port).is_some_and(|before| size.rate >= before.rate);
        let suspended = now.suspended.keys().all(|name| then.suspended.contains_key(name));
        suspended && now.scaled.iter().all(scaled) && now.pipes.iter().all(pipe)
    };
    Ok(again.ok().filter(|change| is_whole(change) && no_worse(change)).unwrap_or(left))
}

/// Permits a user's session beside those of a domain, and beside what the user has `abroad`: over several.
///
/// # Errors
/// [`Unadmitted`]
pub fn permit(
    rules: &[Rule],
    present: Present<'_>,
    (owner, text): (&str, &str),
    abroad: impl FnOnce() -> Usage,
) -> Result<(), Unadmitted> {
    let party = Party::User(owner);
    if party.is_free(rules) {
        return Ok(());
    }
    let read = Session::read(text).map_err(Unadmitted::Malformed)?;
    let mut sessions: Vec<Admitted> = present.sessions.iter().filter(|one| one.name != read.name).cloned().collect();
    sessions.push(Admitted {
        name: read.name.clone(),
        owner: owner.to_owned(),
        text: text.to_owned(),
        ..Admitted::default()
    });
    let whole = joined(present.contract, sessions.iter(), Some(&read.name))?;
    // As they would be with the changed topics of this one.
    let mut asks = whole.parts.iter().map(|part| Ask::of(&whole.contract.system, part));
    let own = asks.next_back().unwrap_or_default();
    let others = sessions.iter().zip(asks).filter(|(one, _)| one.owner == owner);
    let others = others.fold(abroad(), |usage, (_, ask)| usage.with(ask.rate));
    let ask = Ask { lease: read.lease, importance: own.importance.max(read.importance), ..own };
    rules::permit(rules, party, &ask, others).map_err(Unadmitted::Forbidden)
}

/// What a user has among these sessions.
pub fn usage<'a>(sessions: impl Iterator<Item = &'a Admitted>, owner: &str) -> Usage {
    let own = sessions.filter(|one| one.owner == owner);
    own.fold(Usage::default(), |usage, one| usage.plus(Usage { sessions: 1, rate: one.rate }))
}

/// Stops a session.
///
/// # Errors
/// [`Unadmitted`]; nothing is changed then.
pub fn stop(present: Present<'_>, (owner, name): (&str, &str), watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    match present.sessions.iter().find(|session| session.name == name) {
        None => return Err(Unadmitted::Unknown(name.to_owned())),
        Some(session) if session.owner != owner => return Err(Unadmitted::Anothers(session.owner.clone())),
        Some(_) => {}
    }
    without(present, &[name.to_owned()], watch)
}

/// Ends the sessions of these names, whoever asked for them. One that another session needs goes on until that one ends.
///
/// # Errors
/// [`Unadmitted`]: none of them can end.
pub fn end(present: Present<'_>, names: &[String], watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let all = without(present, names, watch);
    let Err(why) = all else { return all };
    let mut each = names.iter().filter(|_| names.len() > 1);
    each.find_map(|name| without(present, std::slice::from_ref(name), watch).ok()).ok_or(why)
}

/// The plan without these sessions. What they leave goes to those that have less than they asked for.
fn without(present: Present<'_>, names: &[String], watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let left: Vec<Admitted> = present.sessions.iter().filter(|one| !names.contains(&one.name)).cloned().collect();
    adapt(Present { sessions: &left, ..present }, AT_LEISURE, watch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::NOTHING_SOLD;
    use crate::links::Rates;
    use crate::planning::Patient;
    use std::sync::LazyLock;

    /// 1 Mbit/s between two hosts, of which a topic takes a part.
    const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
between = ["a", "b"]
rate = "1 Mbit/s"
scheduler = "strict"
devices = { a = "eth", b = "eth" }
[[topic]]
name = "state"
size = "100 B"
rate = "100 Hz"
publisher = "a"
[[subscriber]]
topic = "state"
node = "b"
deadline = "100 ms"
"#;

    /// A session with a topic of so many bytes at 50 Hz.
    fn video(name: &str, bytes: u64, deadline: &str) -> String {
        format!(
            "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
             [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = {deadline:?}\n"
        )
    }

    /// With all links as the contract says.
    fn present<'a>(contract: &'a str, sessions: &'a [Admitted]) -> Present<'a> {
        static AS_STATED: LazyLock<(Rates, Reduction)> = LazyLock::new(Default::default);
        let (links, reduction) = &*AS_STATED;
        Present { contract, links, reduction, sessions, sold: &NOTHING_SOLD }
    }

    fn ask(sessions: &[Admitted], owner: &str, text: &str) -> Result<Change, Unadmitted> {
        request(present(CONTRACT, sessions), (owner, text), 7, &mut Patient)
    }

    #[test]
    fn a_session_that_fits_is_admitted_with_its_bounds() {
        let change = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        let [session] = change.sessions.as_slice() else { panic!("{change:?}") };
        assert_eq!((&*session.name, &*session.owner, session.revision), ("camera", "ann", 7));
        let channels = session.channels(&change.plan);
        assert_eq!(channels.iter().map(|channel| &*channel.topic).collect::<Vec<_>>(), ["camera"]);
        assert!(channels[0].bound_us.unwrap() < 80_000.0 && channels[0].deadline_us == Some(80_000.0));
        assert_eq!(change.plan.channels.len(), 2, "the contract's own channel is planned, too");
    }

    #[test]
    fn a_session_that_does_not_fit_is_refused_with_offers_and_nothing_is_changed() {
        let first = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        let refused = ask(&first.sessions, "bob", &video("lidar", 2000, "80 ms"));
        let Err(Unadmitted::Unfit(refusals)) = refused else { panic!("{refused:?}") };
        let offers = || refusals.iter().flat_map(|refusal| &refusal.offers);
        assert!(offers().count() > 0, "{refusals:#?}");
        let names = offers().flat_map(|offer| &offer.changes).map(|change| change.name.as_str());
        assert!(
            names.into_iter().all(|name| name.contains("lidar")),
            "what is another's is not offered: {refusals:#?}"
        );
        // Half of it fits, and the session of before has its deadline still.
        let second = ask(&first.sessions, "bob", &video("lidar", 500, "80 ms")).unwrap();
        assert!(second.plan.channels.iter().all(|channel| channel.bound_us < channel.deadline_us));
        assert_eq!(second.sessions.len(), 2);
    }

    #[test]
    fn a_small_session_beside_many_larger_ones_has_offers_of_its_own() {
        let mut sessions = Vec::new();
        for n in 0..10 {
            sessions = ask(&sessions, "ann", &video(&format!("camera{n}"), 134, "200 ms")).unwrap().sessions;
        }
        // 133 kbit/s of the contract, 800 of these, and 75 more.
        let refused = ask(&sessions, "bob", &video("lidar", 120, "200 ms"));
        let Err(Unadmitted::Unfit(refusals)) = &refused else { panic!("{refused:?}") };
        let offers: Vec<&str> = refusals.iter().flat_map(|all| &all.offers).map(|offer| offer.what.as_str()).collect();
        assert!(offers.iter().any(|what| what.contains("scale 2")) && offers.len() > 1, "{offers:?}");
        let said = refused.unwrap_err().to_string();
        assert!(said.len() < 300 && said.contains("link wire from a to b"), "{said}");
    }

    #[test]
    fn a_session_is_changed_as_a_whole_or_stays() {
        let first = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        assert!(matches!(ask(&first.sessions, "ann", &video("camera", 2500, "80 ms")), Err(Unadmitted::Unfit(_))));
        let second = ask(&first.sessions, "ann", &video("camera", 1500, "90 ms")).unwrap();
        assert_eq!(second.sessions.len(), 1, "its former self does not count");
        assert_eq!(second.sessions[0].text, video("camera", 1500, "90 ms"));
    }

    #[test]
    fn sessions_belong_to_who_asked_for_them() {
        let first = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        let anothers = Err(Unadmitted::Anothers("ann".into()));
        assert_eq!(ask(&first.sessions, "bob", &video("camera", 100, "80 ms")), anothers);
        let end = |owner, name| stop(present(CONTRACT, &first.sessions), (owner, name), &mut Patient);
        assert_eq!(end("bob", "camera"), anothers);
        assert_eq!(end("ann", "lidar"), Err(Unadmitted::Unknown("lidar".into())));
        let left = end("ann", "camera").unwrap();
        assert_eq!((left.sessions.len(), left.plan.channels.len()), (0, 1));
    }

    #[test]
    fn what_another_session_needs_does_not_go() {
        let first = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        let log = "[[session]]\nname = \"log\"\n[[subscriber]]\ntopic = \"camera\"\nnode = \"b\"\nname = \"/log\"\n";
        let both = ask(&first.sessions, "bob", log).unwrap();
        assert_eq!(both.sessions[0].channels(&both.plan).len(), 2, "the topic is the first one's");
        let refused = stop(present(CONTRACT, &both.sessions), ("ann", "camera"), &mut Patient);
        assert!(matches!(&refused, Err(Unadmitted::Needed(by, _)) if by == "log"), "{refused:?}");
        let wrong = ask(&both.sessions, "bob", &log.replace("camera", "nothing"));
        assert!(matches!(&wrong, Err(Unadmitted::Malformed(error)) if error.line == 4), "{wrong:?}");
    }

    #[test]
    fn nobody_is_offered_changes_of_others() {
        let sessions = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap().sessions;
        let narrow = CONTRACT.replace("1 Mbit/s", "100 kbit/s");
        let refused = planned(present(&narrow, &sessions), None, &mut Patient);
        let Err(Unadmitted::Unfit(refusals)) = refused else { panic!("{refused:?}") };
        assert!(!refusals.is_empty() && refusals.iter().all(|refusal| refusal.offers.is_empty()), "{refusals:#?}");
    }

    #[test]
    fn sessions_that_end_leave_what_others_need() {
        let first = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap();
        let log = "[[session]]\nname = \"log\"\n[[subscriber]]\ntopic = \"camera\"\nnode = \"b\"\nname = \"/log\"\n";
        let two = ask(&first.sessions, "bob", log).unwrap();
        let three = ask(&two.sessions, "ann", &video("map", 10, "1 s")).unwrap().sessions;
        let end = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let change = end(present(CONTRACT, &three), &names, &mut Patient)?;
            Ok::<_, Unadmitted>(change.sessions.into_iter().map(|session| session.name).collect::<Vec<_>>())
        };
        assert_eq!(end(&["camera", "log"]), Ok(vec!["map".to_owned()]));
        assert_eq!(end(&["camera", "map"]), Ok(vec!["camera".to_owned(), "log".to_owned()]));
        assert!(matches!(end(&["camera"]), Err(Unadmitted::Needed(by, _)) if by == "log"));
    }

    #[test]
    fn there_are_no_more_than_allowed() {
        let one = ask(&[], "ann", &video("camera", 1, "1 s")).unwrap().sessions.remove(0);
        let many: Vec<Admitted> =
            (0..MOST_SESSIONS).map(|n| Admitted { name: format!("s{n}"), ..one.clone() }).collect();
        assert_eq!(ask(&many, "ann", &video("camera", 1, "1 s")), Err(Unadmitted::TooMany));
    }

    #[test]
    fn sessions_of_a_user_count_together_and_a_changed_one_once() {
        let contract = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"9 Mbit/s\"\n\
            [[topic]]\nname = \"state\"\nsize = \"100 B\"\nrate = \"10 Hz\"\npublisher = \"a\"\n\
            [[rule]]\nname = \"r\"\nusers = [\"*\"]\nrate = \"100 kbit/s\"\n";
        let rules = qos::contract::Contract::read(contract).unwrap().rules;
        // 80 kbit/s: every second sample of 1 kB at 20 Hz; 8 kbit/s of the contract's.
        let video = |name: &str| {
            format!(
                "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"1 kB\"\nrate = \"20 Hz\"\npublisher = \"a\"\n\
                 [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\nscale = 2\n"
            )
        };
        let log = "[[session]]\nname = \"log\"\n[[subscriber]]\ntopic = \"state\"\nnode = \"b\"\n";
        let session = |name: &str, owner: &str, text: String| Admitted {
            name: name.into(),
            owner: owner.into(),
            text,
            rate: if name == "log" { 8_000 } else { 80_000 },
            ..Admitted::default()
        };
        let sessions = [
            session("one", "yard/ann", video("one")),
            session("log", "yard/ann", log.into()),
            session("two", "yard/bob", video("two")),
        ];
        let (links, reduction) = (Default::default(), Reduction::default());
        let present =
            Present { contract, links: &links, reduction: &reduction, sessions: &sessions, sold: &NOTHING_SOLD };
        assert_eq!(usage(sessions.iter(), "yard/ann"), Usage { sessions: 2, rate: 88_000 });
        let planned = planned(present, None, &mut Patient).unwrap().sessions;
        assert_eq!(planned.iter().map(|one| one.rate).collect::<Vec<_>>(), [80_000, 8_000, 80_000]);
        let asks = |owner: &str, text: &str, abroad| permit(&rules, present, (owner, text), || abroad);
        assert_eq!(asks("yard/ann", &video("one").replace("1 kB", "1.1 kB"), Usage::default()), Ok(()), "88 + 8");
        let too_much = asks("yard/ann", &video("one").replace("1 kB", "1.2 kB"), Usage::default());
        assert!(matches!(&too_much, Err(Unadmitted::Forbidden(why)) if why[0].what == "rule r: rate"), "{too_much:?}");
        assert!(asks("yard/ann", &video("three"), Usage::default()).is_err(), "beside the two");
        assert_eq!(asks("yard/eve", &video("three"), Usage::default()), Ok(()));
        // A topic that grows makes the own session larger that subscribes to it.
        let small = "[[session]]\nname = \"topic\"\n[[topic]]\nname = \"t\"\nsize = \"1 B\"\nrate = \"20 Hz\"\npublisher = \"a\"\n";
        let reads = "[[session]]\nname = \"reads\"\n[[subscriber]]\ntopic = \"t\"\nnode = \"b\"\n";
        let both = [
            session("topic", "yard/eve", small.into()),
            Admitted { rate: 160, ..session("reads", "yard/eve", reads.into()) },
        ];
        let grown = |size: &str| {
            let present = Present { sessions: &both, ..present };
            permit(&rules, present, ("yard/eve", &small.replace("1 B", size)), Usage::default)
        };
        assert!(grown("625 B").is_ok() && grown("626 B").is_err(), "100 kbit/s");
        assert!(
            asks("yard/eve", &video("three"), Usage { sessions: 1, rate: 20_001 }).is_err(),
            "with what goes abroad"
        );
    }
}
