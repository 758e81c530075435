//! The sessions of a domain: each is admitted beside the domain's contract and all other sessions if the planner finds a plan with which every
//! channel keeps its deadline, and is refused with the planner's reasons and offers otherwise. Pure.

use agent::message::SessionChannel;
use qos::contract::ContractError;
use qos::contract::session::{JoinError, Session, join};
use qos::placement::Watch;
use qos::plan::{Model, Plan, Refusal, make_for};
use std::fmt;
use std::time::Duration;

/// Most sessions of a domain.
pub const MOST_SESSIONS: usize = 500;

/// Most reasons that one line names.
const NAMED: usize = 4;

/// A session that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Admitted {
    /// Its name.
    pub name: String,
    /// The identity of the user who asked for it.
    pub owner: String,
    /// The revision of the plan that it came with.
    pub revision: u64,
    /// The text of its file.
    pub text: String,
    /// The ports of its subscribers and of those to its topics.
    pub subscribers: Vec<String>,
    /// The time after which it ends unless it is asked for again.
    #[serde(default)]
    pub lease: Option<Duration>,
}

impl Admitted {
    /// Its channels in a plan.
    pub fn channels(&self, plan: &Plan) -> Vec<SessionChannel> {
        let its = plan.channels.iter().filter(|channel| self.subscribers.contains(&channel.subscriber));
        let shown = |channel: &qos::plan::Channel| SessionChannel {
            topic: channel.topic.clone(),
            publisher: channel.publisher.clone(),
            subscriber: channel.subscriber.clone(),
            class: channel.class,
            bound_us: channel.bound_us,
            deadline_us: channel.deadline_us,
            set: Vec::new(),
        };
        its.map(shown).collect()
    }
}

/// The sessions after a change, and the plan for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The sessions.
    pub sessions: Vec<Admitted>,
    /// The plan, which fits.
    pub plan: Plan,
}

/// The reason why a change of sessions is not made.
#[derive(Clone, Debug, PartialEq)]
pub enum Unadmitted {
    /// A file that cannot be read, or that does not go with contract and other sessions.
    Malformed(ContractError),
    /// It does not fit.
    Unfit(Vec<Refusal>),
    /// Another session refers to what would go.
    Needed(String, ContractError),
    /// It is another user's.
    Anothers(String),
    /// There is no session of this name.
    Unknown(String),
    /// There are as many as allowed.
    TooMany,
}

impl fmt::Display for Unadmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Unfit(refusals) => {
                let what: Vec<&str> = refusals.iter().take(NAMED).map(|refusal| refusal.what.as_str()).collect();
                write!(f, "it does not fit beside what is admitted: {}", what.join(", "))?;
                match refusals.len() - what.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Needed(by, error) => write!(f, "the session {by} needs it, in its line {error}; stop that one first"),
            Self::Anothers(owner) => write!(f, "the session belongs to {owner}, who alone may change or stop it"),
            Self::Unknown(name) => write!(f, "there is no session {name}; `thalweg session list` shows all"),
            Self::TooMany => write!(f, "there are {MOST_SESSIONS} sessions, which is the limit: stop one first"),
        }
    }
}

impl std::error::Error for Unadmitted {}

/// Admits the session of a file, or changes the one of its name, in a plan of this revision.
///
/// # Errors
/// [`Unadmitted`]; nothing is changed then.
pub fn request(
    (contract, sessions): (&str, &[Admitted]),
    (owner, text): (&str, &str),
    revision: u64,
    watch: &mut dyn Watch,
) -> Result<Change, Unadmitted> {
    let Session { name, lease, text, .. } = Session::read(text).map_err(Unadmitted::Malformed)?;
    let wanted = Admitted { name, owner: owner.to_owned(), revision, text, subscribers: Vec::new(), lease };
    let mut sessions = sessions.to_vec();
    match sessions.iter().position(|other| other.name == wanted.name) {
        Some(at) if sessions[at].owner != owner => return Err(Unadmitted::Anothers(sessions[at].owner.clone())),
        Some(at) => sessions[at] = wanted.clone(),
        None if sessions.len() >= MOST_SESSIONS => return Err(Unadmitted::TooMany),
        None => sessions.push(wanted.clone()),
    }
    planned(contract, sessions, Some(&wanted.name), watch)
}

/// Stops a session.
///
/// # Errors
/// [`Unadmitted`]; nothing is changed then.
pub fn stop(
    (contract, sessions): (&str, &[Admitted]),
    (owner, name): (&str, &str),
    watch: &mut dyn Watch,
) -> Result<Change, Unadmitted> {
    match sessions.iter().find(|session| session.name == name) {
        None => return Err(Unadmitted::Unknown(name.to_owned())),
        Some(session) if session.owner != owner => return Err(Unadmitted::Anothers(session.owner.clone())),
        Some(_) => {}
    }
    let left = sessions.iter().filter(|session| session.name != name).cloned().collect();
    planned(contract, left, None, watch)
}

/// Ends the sessions of these names, whoever asked for them. One that another session needs goes on until that one ends.
///
/// # Errors
/// [`Unadmitted`]: none of them can end.
pub fn end(
    (contract, sessions): (&str, &[Admitted]),
    names: &[String],
    watch: &mut dyn Watch,
) -> Result<Change, Unadmitted> {
    let without = |names: &[String]| sessions.iter().filter(|one| !names.contains(&one.name)).cloned().collect();
    let all = planned(contract, without(names), None, watch);
    let Err(why) = all else { return all };
    let mut each = names.iter().filter(|_| names.len() > 1);
    each.find_map(|name| planned(contract, without(std::slice::from_ref(name)), None, watch).ok()).ok_or(why)
}

/// The plan of a contract with these sessions. An error in another session than the one that is `asked` for is what that one needs.
///
/// # Errors
/// [`Unadmitted`]
pub fn planned(
    contract: &str,
    mut sessions: Vec<Admitted>,
    asked: Option<&str>,
    watch: &mut dyn Watch,
) -> Result<Change, Unadmitted> {
    let read = |one: &Admitted| {
        let (name, lease, text, abroad) = (one.name.clone(), one.lease, one.text.clone(), Vec::new());
        Session { name, lease, text, abroad }
    };
    let all: Vec<Session> = sessions.iter().map(read).collect();
    let blame = |error| match error {
        JoinError::Contract(error) => Unadmitted::Malformed(error),
        JoinError::Session(index, error) if asked == Some(&all[index].name) => Unadmitted::Malformed(error),
        JoinError::Session(index, error) => Unadmitted::Needed(all[index].name.clone(), error),
    };
    let joined = join(contract, &all.iter().collect::<Vec<_>>()).map_err(blame)?;
    let part = all.iter().zip(&joined.parts).find(|(session, _)| asked == Some(&session.name));
    // Without an asker there is nothing that may be changed.
    let part = part.map(|(_, part)| part.clone()).unwrap_or_default();
    let plan = make_for(&part, &joined.contract, Model::Bound, watch);
    if !plan.feasible {
        return Err(Unadmitted::Unfit(plan.refusals));
    }
    for (session, part) in sessions.iter_mut().zip(&joined.parts) {
        let names = part.receivers.iter().map(|index| joined.contract.system.subscribers[*index].name.clone());
        session.subscribers = names.collect();
    }
    Ok(Change { sessions, plan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Patient;

    impl Watch for Patient {
        fn elapsed(&mut self) -> Duration {
            Duration::ZERO
        }
    }

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

    fn ask(sessions: &[Admitted], owner: &str, text: &str) -> Result<Change, Unadmitted> {
        request((CONTRACT, sessions), (owner, text), 7, &mut Patient)
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
        let end = |owner, name| stop((CONTRACT, &first.sessions), (owner, name), &mut Patient);
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
        let refused = stop((CONTRACT, &both.sessions), ("ann", "camera"), &mut Patient);
        assert!(matches!(&refused, Err(Unadmitted::Needed(by, _)) if by == "log"), "{refused:?}");
        let wrong = ask(&both.sessions, "bob", &log.replace("camera", "nothing"));
        assert!(matches!(&wrong, Err(Unadmitted::Malformed(error)) if error.line == 4), "{wrong:?}");
    }

    #[test]
    fn nobody_is_offered_changes_of_others() {
        let sessions = ask(&[], "ann", &video("camera", 700, "80 ms")).unwrap().sessions;
        let narrow = CONTRACT.replace("1 Mbit/s", "100 kbit/s");
        let refused = planned(&narrow, sessions, None, &mut Patient);
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
            let change = end((CONTRACT, &three), &names, &mut Patient)?;
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
}
