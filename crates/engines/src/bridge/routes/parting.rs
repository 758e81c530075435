//! Which of several routes has the samples of a topic: each subscriber gets them once.

use super::{In, Routes, partitions, raw, short};
use qos::{Qos, Queue};
use std::collections::{BTreeSet, HashMap};
use thalweg::control::matching::is_pattern;

impl Routes {
    /// Parts topics among the routes that lead in, where the engine does not tell whose samples they are.
    pub(super) fn part(&mut self) {
        self.prefer_types();
        self.part_patterns();
        self.part_types();
    }

    /// A subscriber to any type takes the samples of a route of a stated type, if there is one to its topic: two would give them twice. All
    /// such routes offer what it requests, so that it does not matter which of them it has them from.
    fn prefer_types(&mut self) {
        let typed: BTreeSet<String> =
            self.into.values().filter(|into| !into.any).map(|into| into.topic.clone()).collect();
        let mut dropped: HashMap<String, Qos> = HashMap::new();
        self.into.retain(|_, into| {
            let stays = !into.any || !typed.contains(&into.topic);
            if !stays {
                dropped.insert(into.topic.clone(), into.qos.clone());
            }
            stays
        });
        for into in self.into.values_mut() {
            if let Some(offer) = dropped.get(&into.topic) {
                into.join(offer);
            }
        }
    }

    /// A subscriber to any type takes the samples of a route whose structure is known, too, instead of one of the type's name alone. That
    /// route offers what it requests.
    pub(super) fn prefer_structures(&mut self) {
        let known: BTreeSet<(String, String)> = self
            .into
            .values()
            .filter(|into| into.message.schema.is_some())
            .map(|into| (into.topic.clone(), into.message.name.clone()))
            .collect();
        let mut dropped: HashMap<(String, String), Vec<Qos>> = HashMap::new();
        self.into.retain(|_, into| {
            let is_name = into.message.schema.is_none() && into.message.ros.is_none();
            let key = (into.topic.clone(), short(&into.message).to_owned());
            let stays = !is_name || !known.contains(&key);
            if !stays {
                dropped.entry(key).or_default().push(into.qos.clone());
            }
            stays
        });
        for into in self.into.values_mut().filter(|into| into.message.schema.is_some()) {
            let offers = dropped.get(&(into.topic.clone(), into.message.name.clone()));
            offers.into_iter().flatten().for_each(|offer| into.join(offer));
        }
    }

    /// A topic of a pattern comes by one route alone: its own, that of a pattern with a stated type, or that of the first pattern.
    fn part_patterns(&mut self) {
        let all: Vec<In> = self.into.values().cloned().collect();
        for (index, into) in self.into.values_mut().enumerate().filter(|(_, into)| is_pattern(&into.topic)) {
            let others = all.iter().enumerate().filter(|(at, other)| {
                let goes_before = !is_pattern(&other.topic) || (into.any && !other.any) || *at < index;
                *at != index && goes_before && (into.any || other.message == into.message)
            });
            into.skips = others.map(|(_, other)| other.topic.clone()).collect();
        }
    }

    /// Of several types of a topic, subscribers to any type have the samples of one: of a topic's own route rather than of a pattern's, and of
    /// a type with fields rather than of bytes.
    fn part_types(&mut self) {
        let all: Vec<In> = self.into.values().cloned().collect();
        let mut by_topic: HashMap<&str, Vec<(usize, &In)>> = HashMap::new();
        all.iter().enumerate().for_each(|(at, into)| by_topic.entry(&into.topic).or_default().push((at, into)));
        let every: Vec<(usize, &In)> = all.iter().enumerate().collect();
        for (index, into) in self.into.values_mut().enumerate() {
            let meeting = if is_pattern(&into.topic) { Some(&every) } else { by_topic.get(&into.topic[..]) };
            let own = (rank(into), index);
            let goes_before = |(at, other): &&(usize, &In)| (rank(other), *at) < own && other.message != into.message;
            let before = meeting.into_iter().flatten().filter(goes_before).map(|(_, other)| other.topic.clone());
            into.beside = before.collect();
        }
    }
}

impl In {
    /// Offers as much as a route to the same topic does whose subscribers this one serves, too. Reliability is the same for both: that of a
    /// rule, or the least of the topic's publishers.
    pub(super) fn join(&mut self, offer: &Qos) {
        let own = &mut self.qos;
        own.durability = own.durability.max(offer.durability);
        own.history = own.history.max(offer.history);
        own.partition = partitions::joined(&own.partition, &offer.partition);
        if let Queue::KeepAll(_) = offer.queue {
            own.queue = offer.queue;
        }
    }
}

/// Subscribers to any type have their samples from the route of the least rank.
fn rank(into: &In) -> (bool, bool) {
    (is_pattern(&into.topic), into.message == raw())
}
