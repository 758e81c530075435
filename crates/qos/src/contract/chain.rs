//! Chains of a contract file: the channels that a list of topics goes over.

use super::file::{self, Names, Starts};
use super::value::{self, Value, Wrong, needed, wrong};
use super::{Contract, Finding};
use crate::system::{Chain, ChainPart, Node, Subscriber, System, Topic};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use toml::Spanned;

/// Most topics of one chain.
const MOST: usize = 64;

/// The names to which a chain refers.
pub(super) struct Named<'a> {
    pub nodes: &'a Names<'a>,
    pub topics: &'a Names<'a>,
    pub subscribers: &'a Names<'a>,
}

/// All chains. A topic of which each sample is published by a callback has one such callback, in all chains.
pub(super) fn chains(
    tables: &[Spanned<file::Chain>],
    named: &Named<'_>,
    starts: &Starts,
    nodes: &[Node],
    topics: &[Topic],
    subscribers: &[Subscriber],
) -> Result<Vec<Chain>, Wrong> {
    let mut wanted = vec![Vec::new(); topics.len()];
    for (index, subscriber) in subscribers.iter().enumerate().filter(|_| !tables.is_empty()) {
        wanted[subscriber.topic].push(index);
    }
    let reader = Reader { named, nodes, topics, subscribers, wanted };
    let mut names = Names::new("chain", starts);
    let mut causes = HashMap::new();
    let chain = |table: &Spanned<file::Chain>| {
        let chain = reader.read(table, &mut names)?;
        reader.note(&chain, &mut causes).map_err(|problem| (place(table), problem))?;
        Ok(chain)
    };
    tables.iter().map(chain).collect()
}

/// The place of a chain's topics, or else of its table.
fn place(table: &Spanned<file::Chain>) -> Range<usize> {
    file::place(&table.get_ref().topics, &table.span())
}

struct Reader<'a> {
    named: &'a Named<'a>,
    nodes: &'a [Node],
    topics: &'a [Topic],
    subscribers: &'a [Subscriber],
    /// The subscribers of each topic.
    wanted: Vec<Vec<usize>>,
}

impl Reader<'_> {
    fn read(&self, table: &Spanned<file::Chain>, names: &mut Names<'_>) -> Result<Chain, Wrong> {
        let (entry, at) = (table.get_ref(), &table.span());
        let name = needed(value::name("name", &entry.name)?, at, "name", "\"brake\"")?;
        names.add(&name, &entry.name, at)?;
        let topics = self.topics(entry, at)?;
        let sampled = self.sampled(entry, &topics)?;
        let problem = |problem: String| (place(table), problem);
        let subscribers = match &entry.subscribers {
            Some(value) => self.given(value, &topics)?,
            None => self.only(&topics).map_err(problem)?,
        };
        let first = self.first(entry, topics[0]).map_err(problem)?;
        let nodes = std::iter::once(first).chain(subscribers.iter().map(|index| self.subscribers[*index].node));
        let parts: Vec<ChainPart> = subscribers
            .iter()
            .zip(nodes)
            .map(|(subscriber, publisher)| {
                let sampled = sampled.contains(&self.subscribers[*subscriber].topic);
                ChainPart { publisher, subscriber: *subscriber, sampled }
            })
            .collect();
        self.follows(&parts).map_err(problem)?;
        Ok(Chain { name, parts, deadline: value::time("deadline", &entry.deadline, 1)? })
    }

    fn topics(&self, entry: &file::Chain, at: &Range<usize>) -> Result<Vec<usize>, Wrong> {
        const EXAMPLE: &str = "[\"camera\", \"objects\", \"brake\"]";
        let value = needed(entry.topics.as_ref(), at, "topics", EXAMPLE)?;
        let topics = self.named_in("topics", value, self.named.topics)?;
        let once = topics.iter().collect::<BTreeSet<_>>().len() == topics.len();
        if (1..=MOST).contains(&topics.len()) && once {
            return Ok(topics);
        }
        wrong("topics", value, format_args!("a list of 1 to {MOST} topics, each once, such as {EXAMPLE}"))
    }

    fn sampled(&self, entry: &file::Chain, topics: &[usize]) -> Result<Vec<usize>, Wrong> {
        let Some(value) = &entry.sampled else { return Ok(Vec::new()) };
        let sampled = self.named_in("sampled", value, self.named.topics)?;
        if sampled.iter().all(|topic| topics[1..].contains(topic)) {
            return Ok(sampled);
        }
        let later: Vec<&str> = topics[1..].iter().map(|topic| self.topics[*topic].name.as_str()).collect();
        wrong("sampled", value, format_args!("a list of topics of this chain behind the first: {}", later.join(", ")))
    }

    fn named_in(&self, key: &str, value: &Spanned<Value>, names: &Names<'_>) -> Result<Vec<usize>, Wrong> {
        match value.get_ref() {
            Value::List(list) => list.iter().map(|item| names.find(key, item)).collect(),
            _ => wrong(key, value, "a list of names, such as [\"one\", \"two\"]"),
        }
    }

    /// The node at which the chain begins.
    fn first(&self, entry: &file::Chain, topic: usize) -> Result<usize, String> {
        let Topic { name, publishers, .. } = &self.topics[topic];
        let given = entry.publisher.as_ref().map(|value| self.named.nodes.find("publisher", value));
        match (given, publishers.as_slice()) {
            (Some(Err((_, problem))), _) => Err(problem),
            (Some(Ok(node)), publishers) if publishers.contains(&node) => Ok(node),
            (None, [node]) => Ok(*node),
            (_, publishers) => {
                let publishers = self.names_of(publishers);
                Err(format!("publisher: the chain begins where {name:?} is published: allowed is one of {publishers}"))
            }
        }
    }

    fn names_of(&self, nodes: &[usize]) -> String {
        let names: Vec<&str> = nodes.iter().take(12).map(|node| self.nodes[*node].name.as_str()).collect();
        names.join(", ") + if nodes.len() > names.len() { ", …" } else { "" }
    }

    /// Subscribers that are named, one for each topic.
    fn given(&self, value: &Spanned<Value>, topics: &[usize]) -> Result<Vec<usize>, Wrong> {
        let subscribers = self.named_in("subscribers", value, self.named.subscribers)?;
        let of = subscribers.iter().map(|index| self.subscribers[*index].topic);
        if of.eq(topics.iter().copied()) {
            return Ok(subscribers);
        }
        wrong("subscribers", value, "one subscriber of each of the chain's topics, in their order")
    }

    /// The only way over these topics: each subscriber is where the next topic is published.
    fn only(&self, topics: &[usize]) -> Result<Vec<usize>, String> {
        let only = |at: usize| {
            let next = topics.get(at + 1).map(|next| &self.topics[*next]);
            let publishes = |node: usize| next.is_none_or(|next| next.publishers.contains(&node));
            let wanted = &self.wanted[topics[at]];
            let found: Vec<usize> =
                wanted.iter().copied().filter(|index| publishes(self.subscribers[*index].node)).collect();
            let name = &self.topics[topics[at]].name;
            let there = next.map_or(String::new(), |next| {
                format!(" where {:?} is published ({})", next.name, self.names_of(&next.publishers))
            });
            match found.as_slice() {
                [one] => Ok(*one),
                [] => Err(format!("topics: {name:?} has no subscriber{there}: add a [[subscriber]], or leave it out")),
                several => {
                    let names: Vec<&str> =
                        several.iter().take(8).map(|index| self.subscribers[*index].name.as_str()).collect();
                    Err(format!(
                        "topics: {name:?} has {} subscribers{there}: {}: name the chain's own by subscribers = [\"/…\", …], one for each topic",
                        several.len(),
                        names.join(", ")
                    ))
                }
            }
        };
        (0..topics.len()).map(only).collect()
    }

    /// Each part begins where the one before it ends, and comes at its rate unless it is sampled.
    fn follows(&self, parts: &[ChainPart]) -> Result<(), String> {
        for (before, part) in parts.iter().zip(&parts[1..]) {
            let (from, to) = (&self.subscribers[before.subscriber], &self.subscribers[part.subscriber]);
            let (input, output) = (&self.topics[from.topic], &self.topics[to.topic]);
            if !output.publishers.contains(&part.publisher) {
                let (node, publishers) = (&self.nodes[part.publisher].name, self.names_of(&output.publishers));
                return Err(format!(
                    "subscribers: {:?} is at {node}, which does not publish {:?}: allowed is a subscriber of {:?} at {publishers}",
                    from.name, output.name, input.name
                ));
            }
            if part.sampled {
                continue;
            }
            let comes = input.rate * input.publishers.len() as f64 / f64::from(from.scale);
            let sampled = format!("sampled = [{:?}], if it is published on a clock of its own", output.name);
            if (comes - output.rate).abs() > comes * 1e-6 {
                return Err(format!(
                    "topics: {:?} has a rate of {}, but is published for each sample of {:?} that {} gets, at {}: allowed is that rate, or {sampled}",
                    output.name,
                    hertz(output.rate),
                    input.name,
                    from.name,
                    hertz(comes)
                ));
            }
            if input.publishers.len() > 1 {
                return Err(format!(
                    "topics: {:?} has {} publishers, and {:?} is published for each sample of them all: allowed is a topic for each publisher, or {sampled}",
                    input.name,
                    input.publishers.len(),
                    output.name
                ));
            }
        }
        Ok(())
    }

    /// Notes the subscriber whose callback publishes a topic. Two of them would be two publishers, and a circle would never rest.
    fn note(&self, chain: &Chain, causes: &mut HashMap<usize, (usize, String)>) -> Result<(), String> {
        for (before, part) in chain.parts.iter().zip(&chain.parts[1..]).filter(|(_, part)| !part.sampled) {
            let (cause, topic) = (before.subscriber, self.subscribers[part.subscriber].topic);
            let name = &self.topics[topic].name;
            match causes.insert(topic, (cause, chain.name.clone())) {
                Some((other, of)) if other != cause => {
                    let (one, two) = (&self.subscribers[other].name, &self.subscribers[cause].name);
                    return Err(format!(
                        "topics: {name:?} is published for each sample of {two}, and in chain {of:?} for each of {one}: allowed is one of them, and sampled = [{name:?}] in the other chain"
                    ));
                }
                _ => {}
            }
            let causing = |topic: &usize| causes.get(topic).map(|(cause, _)| self.subscribers[*cause].topic);
            if std::iter::successors(causing(&topic), causing).take(causes.len()).any(|before| before == topic) {
                return Err(format!(
                    "topics: {name:?} is published for each sample of itself: allowed is sampled = [{name:?}]"
                ));
            }
        }
        Ok(())
    }
}

fn hertz(rate: f64) -> String {
    format!("{} Hz", (rate * 1e3).round() / 1e3)
}

/// Callbacks in the middle of a chain that take no time.
pub(super) fn check(contract: &Contract) -> Vec<Finding> {
    let system: &System = &contract.system;
    let found = |(chain, line): (&Chain, &usize)| {
        let silent = |pair: &[ChainPart]| {
            let subscriber = &system.subscribers[pair[0].subscriber];
            (subscriber.cpu_receive == 0).then(|| Finding {
                line: *line,
                what: format!("chain {:?}", chain.name),
                because: format!(
                    "the bound has no time for making {:?} of {:?}: {} declares no cpu_receive",
                    system.topic_of(&pair[1]).name,
                    system.topic_of(&pair[0]).name,
                    subscriber.name
                ),
            })
        };
        chain.parts.windows(2).filter_map(silent).collect::<Vec<_>>()
    };
    contract.system.chains.iter().zip(&contract.lines.chains).flat_map(found).collect()
}

#[cfg(test)]
mod tests;
