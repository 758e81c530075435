//! The subscribers of this program, by what they take. ZeroMQ compares beginnings: `robot` brings `robotics`, too, which is left out here.

use crate::engine::Deliver;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use thalweg::control::matching::{is_pattern, topic_matches};

/// A topic or a pattern, and who takes its samples: nobody once the subscriber has closed.
pub(super) struct Target {
    pub(super) topic: String,
    pub(super) deliver: Mutex<Option<Deliver>>,
}

#[derive(Default)]
pub(super) struct Subscribers {
    exact: HashMap<String, Vec<Arc<Target>>>,
    patterns: Vec<Arc<Target>>,
}

impl Subscribers {
    pub(super) fn add(&mut self, target: Arc<Target>) {
        match is_pattern(&target.topic) {
            true => self.patterns.push(target),
            false => self.exact.entry(target.topic.clone()).or_default().push(target),
        }
    }

    pub(super) fn remove(&mut self, target: &Arc<Target>) {
        let others = |list: &mut Vec<Arc<Target>>| list.retain(|other| !Arc::ptr_eq(other, target));
        others(&mut self.patterns);
        if let Some(list) = self.exact.get_mut(&target.topic) {
            others(list);
            if list.is_empty() {
                self.exact.remove(&target.topic);
            }
        }
    }

    /// Those who take a topic.
    pub(super) fn of(&self, topic: &str, found: &mut Vec<Arc<Target>>) {
        found.extend(self.exact.get(topic).into_iter().flatten().cloned());
        found.extend(self.patterns.iter().filter(|target| topic_matches(&target.topic, topic)).cloned());
    }

    /// What they subscribe to at others.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let all = self.exact.values().flatten().chain(&self.patterns);
        all.map(|target| prefix(&target.topic).to_owned()).collect()
    }
}

/// The text with which all topics of ZeroMQ begin that a topic or pattern takes; theirs begin without a `/`.
pub(super) fn prefix(pattern: &str) -> &str {
    let name = pattern.strip_prefix('/').unwrap_or(pattern);
    let Some((literal, wild)) = name.find('*').and_then(|at| name.split_at_checked(at)) else { return name };
    // `**` stands for no segment, too: /a/** takes /a.
    let may_be_none = wild.split('/').all(|segment| segment == "**");
    if may_be_none { literal.strip_suffix('/').unwrap_or(literal) } else { literal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(topic: &str) -> Arc<Target> {
        Arc::new(Target { topic: topic.to_owned(), deliver: Mutex::new(None) })
    }

    #[test]
    fn a_prefix_is_the_beginning_of_all_that_a_pattern_takes() {
        let segments = ["a", "b", "*", "**"];
        let all = |depth: usize| {
            (1..=depth).flat_map(move |length| {
                (0..segments.len().pow(length as u32)).map(move |number| {
                    let at = |place| segments[number / segments.len().pow(place) % segments.len()];
                    (0..length as u32).fold(String::new(), |name, place| name + "/" + at(place))
                })
            })
        };
        for pattern in all(4) {
            for topic in all(4).filter(|topic| !is_pattern(topic) && topic_matches(&pattern, topic)) {
                assert!(topic[1..].starts_with(prefix(&pattern)), "{pattern} takes {topic}");
            }
        }
        for (pattern, is) in
            [("/a/b", "a/b"), ("/a/*", "a/"), ("/a/**", "a"), ("/a/**/b", "a/"), ("/**", ""), ("/*/a", "")]
        {
            assert_eq!(prefix(pattern), is, "{pattern}");
        }
    }

    #[test]
    fn a_topic_goes_to_its_subscribers_and_to_those_of_patterns() {
        let mut subscribers = Subscribers::default();
        let [robot, again, all] = ["/robot", "/robot", "/**"].map(target);
        [&robot, &again, &all].into_iter().for_each(|target| subscribers.add(target.clone()));
        let count = |subscribers: &Subscribers, topic: &str| {
            let mut found = Vec::new();
            subscribers.of(topic, &mut found);
            found.len()
        };
        assert_eq!(["/robot", "/robotics", "/rob"].map(|topic| count(&subscribers, topic)), [3, 1, 1]);
        subscribers.remove(&all);
        assert_eq!(["/robot", "/robotics"].map(|topic| count(&subscribers, topic)), [2, 0]);
        subscribers.remove(&robot);
        assert_eq!(subscribers.prefixes(), ["robot"]);
        subscribers.remove(&again);
        assert_eq!((count(&subscribers, "/robot"), subscribers.prefixes()), (0, Vec::new()));
    }
}
