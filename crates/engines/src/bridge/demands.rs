//! What a bridge asks of the bridges to other networks: ports that take no samples. For them another bridge opens the ports that it would
//! open for subscribers. So none of two bridges waits for the other one, and no sample flows before somebody wants it.
//!
//! | asked for | by a bridge |
//! |---|---|
//! | all that may leave | to a network that has a name |
//! | topics that others there subscribe to, if a rule with `transit` has them | to an engine that tells of them |
//! | topics and patterns that rules with `transit` name | to another engine |

use super::outlet::request_of;
use super::place::Place;
use super::routes::InKey;
use super::rules::Rules;
use crate::engine::{Endpoint, Error, Result};
use qos::{Qos, Reliability};
use std::collections::BTreeMap;
use thalweg::codec::{TypeDescription, Untyped};
use thalweg::control::Direction;
use thalweg::{Node, Subscriber};

/// Most ports of this kind.
const MOST: usize = 1024;

/// The types that are asked for, by topic or pattern.
pub(super) type Wanted = BTreeMap<InKey, TypeDescription>;

/// What a bridge asks for. `ends` are those of others there, if the engine tells of them.
pub(super) fn demands(place: &Place, rules: &Rules, ends: Option<&[Endpoint]>) -> Wanted {
    let mut found = Wanted::new();
    let mut ask = |topic: &str, message: TypeDescription| {
        drop(found.insert((topic.to_owned(), message.name.clone(), message.hash), message));
    };
    if place.is_joined() {
        rules.leading_out().into_iter().for_each(|topic| ask(topic, TypeDescription::any()));
    }
    match ends {
        None => rules.in_transit().for_each(|topic| ask(topic, TypeDescription::any())),
        Some(ends) => {
            for end in ends.iter().filter(|end| end.direction == Direction::Subscriber) {
                let told = rules.of(&end.topic.name);
                if told.transit && told.way.leads_out() && told.there == end.topic.name {
                    ask(&end.topic.name, end.topic.message.clone());
                }
            }
        }
    }
    found
}

/// The ports that ask.
#[derive(Default)]
pub(super) struct Demands {
    ports: BTreeMap<InKey, Subscriber<Untyped>>,
    /// What could not be asked for.
    left_out: usize,
}

impl Demands {
    /// Asks for these, and for nothing else any more. Those that could not be asked for are given with the reason.
    pub(super) fn follow(&mut self, node: &Node, place: &Place, rules: &Rules, wanted: Wanted) -> Vec<(String, Error)> {
        self.ports.retain(|key, _| wanted.contains_key(key));
        let mut failed = Vec::new();
        for (key, message) in wanted {
            if self.ports.contains_key(&key) {
                continue;
            }
            match self.open(node, place, rules, &key.0, message) {
                Ok(port) => drop(self.ports.insert(key, port)),
                Err(error) => failed.push((key.0, error)),
            }
        }
        self.left_out = failed.len();
        failed
    }

    /// Topics that could not be asked for.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    fn open(
        &self,
        node: &Node,
        place: &Place,
        rules: &Rules,
        topic: &str,
        message: TypeDescription,
    ) -> Result<Subscriber<Untyped>> {
        if self.ports.len() >= MOST {
            return Err(Error::Engine(format!("more than {MOST} topics are asked for: name fewer with transit")));
        }
        let builder = node.subscriber::<Untyped>(topic).qos(asked(rules, topic)).described(message);
        Ok(builder.foreign(place.end(rules.of(topic).there)).pull_only().open()?)
    }
}

/// A request that each publisher can give. The durability is that which the rules state, because a history is kept from the start or not at all.
fn asked(rules: &Rules, topic: &str) -> Qos {
    let mut stated = Qos::default();
    rules.of(topic).apply(&mut stated);
    let least = Qos { reliability: Reliability::BestEffort, durability: stated.durability, ..Qos::default() };
    request_of(&least, std::iter::once(&least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Topic;

    fn asked_for(network: &str, rules: &str, ends: Option<&[Endpoint]>) -> Vec<String> {
        let found = demands(&Place::named("dds", network), &Rules::parse(rules).unwrap(), ends);
        found.into_keys().map(|(topic, name, _)| format!("{topic} {name}")).collect()
    }

    fn end(direction: Direction, topic: &str) -> Endpoint {
        let topic = Topic { name: topic.to_owned(), message: TypeDescription::opaque("Pose") };
        Endpoint { id: 1, direction, topic, qos: Qos::default(), name: "/node".to_owned(), way: Vec::new() }
    }

    #[test]
    fn a_network_with_a_name_asks_for_all_that_may_leave() {
        let any = TypeDescription::any().name;
        assert_eq!(asked_for("", "", Some(&[])), [""; 0]);
        assert_eq!(asked_for("left", "", Some(&[])), [format!("/** {any}")]);
        let some = "[[rule]]\ndirection = \"none\"\n[[rule]]\ntopic = \"/arm/**\"\ndirection = \"out\"\n[[rule]]\ntopic = \"/leg\"\n\
                    direction = \"in\"";
        assert_eq!(asked_for("left", some, Some(&[])), [format!("/arm/** {any}")]);
    }

    #[test]
    fn topics_in_transit_are_asked_for_as_far_as_they_are_known() {
        let rules =
            "[[rule]]\ntopic = \"/arm/*\"\ntransit = \"yes\"\n[[rule]]\ntopic = \"/arm/in\"\ndirection = \"in\"";
        let any = TypeDescription::any().name;
        assert_eq!(asked_for("", rules, None), [format!("/arm/* {any}")]);
        assert_eq!(asked_for("", "[[rule]]\ntransit = \"yes\"", None), [""; 0], "it names no topic");
        let ends = [
            end(Direction::Subscriber, "/arm/pose"),
            end(Direction::Subscriber, "/arm/in"),
            end(Direction::Subscriber, "/leg"),
            end(Direction::Publisher, "/arm/other"),
        ];
        assert_eq!(asked_for("", rules, Some(&ends)), ["/arm/pose Pose"]);
    }
}
