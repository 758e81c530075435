//! A contract with sessions beside it, as one contract.

use super::session::Session;
use super::{Contract, ContractError, read};
use crate::network::Network;
use crate::system::{Chain, Subscriber, System};
use std::fmt;
use std::ops::Range;

/// A contract with sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The whole, as one contract.
    pub contract: Contract,
    /// What each session has in it.
    pub parts: Vec<Part>,
}

/// What a session has in the whole: indices, each list in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its topics.
    pub topics: Vec<usize>,
    /// Its subscribers.
    pub subscribers: Vec<usize>,
    /// Its chains.
    pub chains: Vec<usize>,
    /// Its subscribers, and those of the contract or of other sessions to its topics.
    pub receivers: Vec<usize>,
}

impl Joined {
    /// The subscribers (indices) that no way leads to from one of their publishers.
    pub fn unreachable(&self) -> Vec<usize> {
        let System { topics, subscribers, .. } = &self.contract.system;
        let network = Network::new(&self.contract.system);
        let reached = |index: &usize| {
            let Subscriber { topic, node, .. } = &subscribers[*index];
            topics[*topic].publishers.iter().all(|publisher| network.hops(*publisher, *node).is_some())
        };
        (0..subscribers.len()).filter(|index| !reached(index)).collect()
    }

    /// Leaves out subscribers (indices in order), and the chains that they are part of.
    pub fn leave_out(&mut self, gone: &[usize]) {
        let System { subscribers, chains, .. } = &mut self.contract.system;
        let place = |index: usize| index - gone.partition_point(|other| *other < index);
        let stays = |index: &usize| gone.binary_search(index).is_err();
        let whole = |chain: &Chain| chain.parts.iter().all(|part| stays(&part.subscriber));
        let kept: Vec<usize> = (0..chains.len()).filter(|index| whole(&chains[*index])).collect();
        *chains = kept.iter().map(|index| chains[*index].clone()).collect();
        let parts = chains.iter_mut().flat_map(|chain| &mut chain.parts);
        parts.for_each(|part| part.subscriber = place(part.subscriber));
        *subscribers = (0..subscribers.len()).filter(stays).map(|index| subscribers[index].clone()).collect();
        for Part { subscribers, receivers, chains, .. } in &mut self.parts {
            for list in [subscribers, receivers] {
                *list = list.iter().copied().filter(stays).map(place).collect();
            }
            *chains = chains.iter().filter_map(|chain| kept.binary_search(chain).ok()).collect();
        }
    }
}

/// An error in a contract with sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// In the contract.
    Contract(ContractError),
    /// In the session with this index, at a line of its file.
    Session(usize, ContractError),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Contract(error) | Self::Session(_, error)) = self;
        error.fmt(f)
    }
}

impl std::error::Error for JoinError {}

/// Reads a contract with sessions beside it.
///
/// # Errors
/// [`JoinError`]: the part that cannot be read, or that does not go with those before it.
pub fn join(contract: &str, sessions: &[&Session]) -> Result<Joined, JoinError> {
    Contract::read(contract).map_err(JoinError::Contract)?;
    let mut whole = contract.to_owned();
    let breaks = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
    let mut last = 1 + breaks(contract);
    let mut lines: Vec<Range<usize>> = Vec::new();
    for session in sessions {
        whole.push('\n');
        whole.push_str(&session.text);
        let first = last + 1;
        last = first + breaks(&session.text);
        lines.push(first..last + 1);
    }
    let contract = read::read(&whole).map_err(|error| blame(error, &lines))?;
    let mut receivers = vec![Vec::new(); contract.system.topics.len()];
    for (index, subscriber) in contract.system.subscribers.iter().enumerate() {
        receivers[subscriber.topic].push(index);
    }
    let parts = lines.iter().map(|lines| part(&contract, lines, &receivers)).collect();
    Ok(Joined { contract, parts })
}

/// What stands in these lines. `receivers` are the subscribers of each topic.
fn part<'a>(contract: &'a Contract, lines: &Range<usize>, receivers: &[Vec<usize>]) -> Part {
    // Lines are in the order of the file, but for those of pipes.
    let pipes = contract.pipes.len();
    let own = |all: &[usize]| {
        let before = |end: usize| all.partition_point(|line| *line < end);
        (before(lines.start)..before(lines.end)).collect::<Vec<usize>>()
    };
    let without_pipes = |all: &'a [usize]| &all[..all.len() - pipes];
    let (topics, subscribers) =
        (own(without_pipes(&contract.lines.topics)), own(without_pipes(&contract.lines.subscribers)));
    let to_topics = topics.iter().flat_map(|topic| &receivers[*topic]);
    let mut receivers: Vec<usize> = subscribers.iter().chain(to_topics).copied().collect();
    receivers.sort_unstable();
    receivers.dedup();
    Part { topics, subscribers, chains: own(&contract.lines.chains), receivers }
}

/// The part of the whole in which an error stands.
fn blame(error: ContractError, lines: &[Range<usize>]) -> JoinError {
    match lines.iter().position(|lines| lines.contains(&error.line)) {
        Some(index) => JoinError::Session(index, ContractError { line: error.line + 1 - lines[index].start, ..error }),
        None => JoinError::Contract(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n\
        [[topic]]\nname = \"state\"\nsize = \"100 B\"\nrate = \"10 Hz\"\npublisher = \"a\"\n[[subscriber]]\ntopic = \"state\"\nnode = \"b\"\n";

    fn session(name: &str, rest: &str) -> Session {
        Session::read(&format!("[[session]]\nname = {name:?}\n{rest}")).unwrap()
    }

    fn topic(name: &str) -> String {
        format!(
            "[[topic]]\nname = {name:?}\nsize = \"1 kB\"\nrate = \"5 Hz\"\npublisher = \"b\"\n[[subscriber]]\ntopic = {name:?}\nnode = \"a\"\n"
        )
    }

    #[test]
    fn sessions_add_topics_and_subscribers() {
        let (first, second) = (
            session("one", &topic("video")),
            session(
                "two",
                "[[subscriber]]\ntopic = \"video\"\nnode = \"b\"\n[[subscriber]]\ntopic = \"state\"\nnode = \"b\"\nname = \"/log\"",
            ),
        );
        let joined = join(CONTRACT, &[&first, &second]).unwrap();
        let names: Vec<&str> = joined.contract.system.topics.iter().map(|topic| &*topic.name).collect();
        assert_eq!(names, ["state", "video"]);
        // The second session's subscriber to the first one's topic is in both.
        let receivers: Vec<_> = joined.parts.iter().map(|part| part.receivers.clone()).collect();
        assert_eq!(receivers, [vec![1, 2], vec![2, 3]]);
        assert_eq!((&*joined.parts[0].topics, &*joined.parts[1].subscribers), (&[1][..], &[2, 3][..]));
        assert_eq!(join(CONTRACT, &[]).unwrap().contract, Contract::read(CONTRACT).unwrap());
    }

    #[test]
    fn an_error_is_in_the_line_of_its_own_file() {
        let wrong = session("two", "\n[[subscriber]]\ntopic = \"nothing\"\nnode = \"b\"\n");
        let found = join(CONTRACT, &[&session("one", &topic("video")), &wrong]);
        assert!(matches!(&found, Err(JoinError::Session(1, error)) if error.line == 5), "{found:?}");
        let again = join(CONTRACT, &[&session("one", &topic("state"))]);
        assert!(matches!(&again, Err(JoinError::Session(0, error)) if error.line == 4), "{again:?}");
        let broken = CONTRACT.replace("1 Mbit/s", "fast");
        assert!(matches!(join(&broken, &[]), Err(JoinError::Contract(error)) if error.line == 7));
    }

    #[test]
    fn subscribers_that_no_way_leads_to_are_left_out_with_their_chains() {
        let wide = format!(
            "{CONTRACT}[[node]]\nname = \"c\"\n[[link]]\nname = \"far\"\nbetween = [\"b\", \"c\"]\nrate = \"1 Mbit/s\"\n\
            [[subscriber]]\ntopic = \"state\"\nnode = \"c\"\n\
            [[chain]]\nname = \"near\"\ntopics = [\"state\"]\nsubscribers = [\"/state@b\"]\ndeadline = \"1 s\"\n\
            [[chain]]\nname = \"far\"\ntopics = [\"state\"]\nsubscribers = [\"/state@c\"]\ndeadline = \"1 s\"\n"
        );
        let log = "[[subscriber]]\ntopic = \"state\"\nnode = \"a\"\nname = \"/log\"\n\
            [[chain]]\nname = \"log\"\ntopics = [\"state\"]\nsubscribers = [\"/log\"]\ndeadline = \"1 s\"\n";
        let mut joined = join(&wide, &[&session("log", log)]).unwrap();
        assert_eq!(
            (joined.unreachable(), &*joined.parts[0].receivers, &*joined.parts[0].chains),
            (vec![], &[2][..], &[2][..])
        );
        joined.contract.system.links[1].down = true;
        assert_eq!(joined.unreachable(), [1]);
        joined.leave_out(&[1]);
        let System { subscribers, chains, .. } = &joined.contract.system;
        let names: Vec<&str> = subscribers.iter().map(|one| &*one.name).collect();
        let parts: Vec<(&str, usize)> = chains.iter().map(|chain| (&*chain.name, chain.parts[0].subscriber)).collect();
        assert_eq!((names, parts), (vec!["/state@b", "/log"], vec![("near", 0), ("log", 1)]));
        let Part { subscribers, receivers, chains, .. } = &joined.parts[0];
        assert_eq!((&**subscribers, &**receivers, &**chains), (&[1][..], &[1][..], &[1][..]));
    }

    #[test]
    fn a_session_says_how_important_it_is_and_how_far_it_may_be_scaled() {
        let read = |rest: &str| Session::read(&format!("[[session]]\nname = \"s\"\n{rest}"));
        assert_eq!((read("importance = 9\n").unwrap().importance, read("").unwrap().importance), (9, 1));
        assert!(read("importance = \"high\"\n").is_err_and(|error| error.line == 3));
        let scaled = |keys: &str| {
            let text = format!("[[subscriber]]\ntopic = \"state\"\nnode = \"b\"\nname = \"/log\"\n{keys}");
            join(CONTRACT, &[&session("s", &text)]).map(|joined| joined.contract.system.subscribers[1].scale_max)
        };
        assert_eq!((scaled("scale_max = 4\n"), scaled("")), (Ok(Some(4)), Ok(None)));
        assert!(matches!(scaled("scale = 3\nscale_max = 2\n"), Err(JoinError::Session(0, error)) if error.line == 8));
    }
}
