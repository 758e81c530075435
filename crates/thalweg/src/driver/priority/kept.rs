//! Settings of the ends of channels, kept by the names of the two ports at both nodes. A process that starts anew gets its settings from
//! the other one (YS-53). They are lost when both processes have ended. Pure: the caller says what happened, and carries out the
//! [`Action`]s.

use super::Side;
use crate::control::NodeId;
use crate::driver::keep::refuse_names;
use qos::Class;
use qos::priority::{Change, Changes, Mark, PrioritySettings};
use std::collections::{BTreeMap, BTreeSet};

/// The names of the end's own port, and of the other port.
pub(in crate::driver) type Names = (String, String);
type ByNames = BTreeMap<Names, PrioritySettings>;

/// The origin of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Source {
    /// A command set them.
    Set,
    /// The file of a kept connection, written before the port was opened.
    File,
}

/// Work for the control thread.
#[derive(Debug, PartialEq)]
pub(in crate::driver) enum Action {
    /// Give the end of this node's port these settings, and [`Priorities::keep`] them if the kernel allows them.
    Set(Names, PrioritySettings, Source),
    /// Ask this node to remember the settings of the first port's end.
    Tell(NodeId, Names, PrioritySettings),
}

/// The way by which an end gets its settings.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The two ports are not connected: only try whether the kernel allows the settings.
    TryOut,
    /// Set the sockets and the thread of the channel.
    Apply,
    /// Open a flow of its own, away from the multicast group.
    Rehome,
    /// Leave a member of a group without settings of its own in the group.
    Stay,
}

/// Most ends with settings: of this node's ports, and as many of others'.
const MOST: usize = 4096;

/// The settings of ends of channels.
pub(in crate::driver) struct Priorities {
    node: NodeId,
    /// The processors that the process might use when the node was opened: the meaning of `affinity=default` for the whole process.
    processors: Vec<u16>,
    /// Settings of this node's ends, kept also while their ports are not connected.
    own: ByNames,
    /// Settings of other nodes' ends of channels with this node's ports, for processes that start anew.
    others: ByNames,
    /// Ends of this node's ports with settings from the file of a kept connection only.
    from_files: BTreeSet<Names>,
}

impl Priorities {
    pub(crate) fn new(node: NodeId, processors: Vec<u16>) -> Self {
        Self { node, processors, own: BTreeMap::new(), others: BTreeMap::new(), from_files: BTreeSet::new() }
    }

    /// The settings of the end; `None`: nothing was set, or all was taken back.
    pub(crate) fn of(&self, end: &Names) -> Option<&PrioritySettings> {
        self.own.get(end).filter(|kept| **kept != PrioritySettings::default())
    }

    /// The effective settings of the end: its own, and else those of its port.
    pub(crate) fn wanted(&self, end: &Names, port: &PrioritySettings) -> PrioritySettings {
        self.own.get(end).cloned().unwrap_or_default().or(port)
    }

    /// The settings of the end of `port`, which is this node's or another's.
    pub(crate) fn remembered(&self, port: &str, other: &str) -> Option<&PrioritySettings> {
        let end = (port.to_owned(), other.to_owned());
        self.own.get(&end).or_else(|| self.others.get(&end))
    }

    /// The other ends of channels of this node's port for which something is kept.
    pub(crate) fn kept_with(&self, port: &str) -> impl Iterator<Item = &String> {
        let default = PrioritySettings::default();
        let its = self.own.iter().filter(move |((own, _), kept)| own == port && **kept != default);
        its.map(|((_, other), _)| other)
    }

    /// `true` if settings are kept that concern a port of this name at another node.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.own.keys().any(|(_, other)| other == name) || self.others.keys().any(|(port, _)| port == name)
    }

    /// The settings of an end after a change.
    ///
    /// # Errors
    /// A value that is not allowed.
    pub(crate) fn changed(&self, end: &Names, changes: &Changes) -> Result<PrioritySettings, String> {
        let mut asked = self.of(end).cloned().unwrap_or_default();
        changes.apply(&mut asked);
        asked.check().map_err(|wrong| wrong.to_string())?;
        Ok(asked)
    }

    /// The settings of all threads of the process after a change. A process has no packets to mark.
    ///
    /// # Errors
    /// A value that is not allowed.
    pub(crate) fn of_process(&self, changes: &Changes) -> Result<PrioritySettings, String> {
        let mut asked = PrioritySettings::default();
        changes.apply(&mut asked);
        asked.check().map_err(|wrong| wrong.to_string())?;
        if changes.sched == Change::Unset {
            asked.sched = Some(Default::default());
        }
        if changes.affinity == Change::Unset {
            asked.affinity = Some(self.processors.clone());
        }
        Ok(asked)
    }

    /// Makes room for the settings of one more end, if need be.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn make_room(&mut self, end: &Names) -> Result<(), String> {
        match has_room(&mut self.own, end) {
            true => Ok(()),
            false => Err(format!("settings of {MOST} channels are kept already: take some back (NAME=default)")),
        }
    }

    /// Keeps the settings of an end, here and at the node of the other port, if that is known. Settings that were taken back are kept as
    /// default ones, because they replace what the other node remembers. The other node is not told settings from a file: it may know newer
    /// ones.
    pub(crate) fn keep(
        &mut self,
        end: Names,
        asked: PrioritySettings,
        source: Source,
        other: Option<NodeId>,
    ) -> Option<Action> {
        self.own.insert(end.clone(), asked.clone());
        if source == Source::File {
            self.from_files.insert(end);
            return None;
        }
        self.from_files.remove(&end);
        other.and_then(|at| self.tell(at, &end, &asked))
    }

    /// A port of another node came: its node is told the settings of this node's ends with it, and the former settings of its own ends.
    pub(crate) fn came(&self, at: NodeId, name: &str) -> Vec<Action> {
        let set = |(end, _): &(&Names, _)| end.1 == name && !self.from_files.contains(*end);
        let own = self.own.iter().filter(set);
        let its = self.others.iter().filter(|((port, _), _)| port == name);
        own.chain(its).filter_map(|(end, settings)| self.tell(at, end, settings)).collect()
    }

    fn tell(&self, to: NodeId, end: &Names, settings: &PrioritySettings) -> Option<Action> {
        (to != self.node).then(|| Action::Tell(to, end.clone(), settings.clone()))
    }

    /// Another node, or the file of a kept connection, says the settings of the first port's end. For a port of this node (`is_own`) they
    /// count only while nothing was set here. For another node's port they are kept until that node starts anew.
    ///
    /// # Errors
    /// A name or a setting that is not allowed.
    pub(crate) fn learn(
        &mut self,
        end: Names,
        settings: PrioritySettings,
        source: Source,
        is_own: bool,
    ) -> Result<Option<Action>, String> {
        refuse_names([&end.0, &end.1]).map_or(Ok(()), Err)?;
        settings.check().map_err(|wrong| wrong.to_string())?;
        if !is_own {
            self.learn_of_other(end, settings, source);
            return Ok(None);
        }
        let in_file = source == Source::File;
        let set_here = self.own.contains_key(&end) && (in_file || !self.from_files.contains(&end));
        let known = self.own.get(&end) == Some(&settings);
        let is_news = !set_here && !known && settings != PrioritySettings::default();
        Ok(is_news.then_some(Action::Set(end, settings, source)))
    }

    fn learn_of_other(&mut self, end: Names, settings: PrioritySettings, source: Source) {
        if source == Source::File && self.others.contains_key(&end) {
            return;
        }
        if settings == PrioritySettings::default() {
            self.others.remove(&end);
        } else if has_room(&mut self.others, &end) {
            self.others.insert(end, settings);
        }
    }
}

/// The way by which an end gets its settings. `open`: it has a channel; `true`: as the sending end of a multicast group.
pub(super) fn step(open: Option<bool>, asked: &PrioritySettings) -> Step {
    match open {
        None => Step::TryOut,
        Some(true) if *asked == PrioritySettings::default() => Step::Stay,
        Some(true) => Step::Rehome,
        Some(false) => Step::Apply,
    }
}

/// The class of an end without a mark: its publisher's. Bulk that states no class gets low (design: bulk must not delay small samples).
pub(super) fn default_class(stated: Option<Class>, bulk: bool) -> Class {
    match stated.unwrap_or_default() {
        Class::Normal if bulk => Class::Low,
        class => class,
    }
}

/// The marks and the pace of a channel end's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub mark: Mark,
    pub priority: u32,
    pub pace: Option<u64>,
}

impl Marked {
    /// The marks by the settings of an end of this class. Only a publisher's end sends samples that can be paced.
    pub(super) fn new(wanted: &PrioritySettings, class: Class, side: Side) -> Self {
        let mark = wanted.mark.unwrap_or(Mark::Class(class));
        let priority = wanted.socket_priority.unwrap_or_else(|| mark.socket_priority());
        Self { mark, priority, pace: wanted.pace.filter(|_| side == Side::Publisher) }
    }
}

/// `true` if there is room for one more end. In a full map those that were taken back are removed.
fn has_room(all: &mut ByNames, end: &Names) -> bool {
    if all.len() >= MOST && !all.contains_key(end) {
        all.retain(|_, settings| *settings != PrioritySettings::default());
    }
    all.len() < MOST || all.contains_key(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(1);
    const THERE: NodeId = NodeId(2);

    fn priorities() -> Priorities {
        Priorities::new(HERE, vec![0, 1])
    }

    fn names(port: &str, other: &str) -> Names {
        (port.to_owned(), other.to_owned())
    }

    fn low() -> PrioritySettings {
        of(Class::Low)
    }

    fn of(class: Class) -> PrioritySettings {
        PrioritySettings { mark: Some(Mark::Class(class)), ..PrioritySettings::default() }
    }

    #[test]
    fn settings_are_told_to_the_other_node_now_and_when_its_port_comes_again() {
        let (mut all, end) = (priorities(), names("/out", "/in"));
        let told = Action::Tell(THERE, end.clone(), low());
        assert_eq!(all.keep(end.clone(), low(), Source::Set, Some(THERE)), Some(told));
        assert_eq!(all.keep(end.clone(), low(), Source::Set, None), None);
        assert_eq!(all.came(THERE, "/in"), [Action::Tell(THERE, end.clone(), low())]);
        assert_eq!(all.came(THERE, "/out"), []);
        assert_eq!(all.came(HERE, "/in"), [], "this node knows it");
        assert!(all.is_named("/in") && !all.is_named("/out"));
    }

    #[test]
    fn another_nodes_end_gets_its_former_settings_when_it_starts_anew() {
        let (mut all, end) = (priorities(), names("/in", "/out"));
        assert_eq!(all.learn(end.clone(), low(), Source::Set, false), Ok(None));
        assert_eq!(all.came(THERE, "/in"), [Action::Tell(THERE, end.clone(), low())]);
        assert_eq!(all.remembered("/in", "/out"), Some(&low()));
        assert_eq!(all.learn(end.clone(), of(Class::High), Source::File, false), Ok(None), "a file says nothing newer");
        assert_eq!(all.remembered("/in", "/out"), Some(&low()));
        assert_eq!(all.learn(end, PrioritySettings::default(), Source::Set, false), Ok(None));
        assert_eq!(all.came(THERE, "/in"), [], "all was taken back");
    }

    #[test]
    fn settings_from_others_count_only_while_nothing_was_set_here() {
        let (mut all, end) = (priorities(), names("/out", "/in"));
        let set = Action::Set(end.clone(), low(), Source::Set);
        assert_eq!(all.learn(end.clone(), low(), Source::Set, true), Ok(Some(set)));
        assert_eq!(all.learn(end.clone(), PrioritySettings::default(), Source::Set, true), Ok(None));
        all.keep(end.clone(), of(Class::High), Source::Set, None);
        assert_eq!(all.learn(end.clone(), low(), Source::Set, true), Ok(None));
        all.keep(end.clone(), PrioritySettings::default(), Source::Set, None);
        assert_eq!(all.of(&end), None);
        assert_eq!(all.learn(end, low(), Source::Set, true), Ok(None), "that it was taken back is newer");
    }

    #[test]
    fn settings_from_a_file_give_way_to_set_ones_and_are_not_told_to_others() {
        let (mut all, end) = (priorities(), names("/out", "/in"));
        assert_eq!(all.keep(end.clone(), low(), Source::File, Some(THERE)), None);
        assert_eq!(all.came(THERE, "/in"), []);
        assert_eq!(all.learn(end.clone(), of(Class::High), Source::File, true), Ok(None), "the first file counts");
        let set = Action::Set(end.clone(), of(Class::High), Source::Set);
        assert_eq!(all.learn(end.clone(), of(Class::High), Source::Set, true), Ok(Some(set)));
        all.keep(end.clone(), of(Class::High), Source::Set, None);
        assert_eq!(all.came(THERE, "/in"), [Action::Tell(THERE, end, of(Class::High))]);
    }

    #[test]
    fn names_and_values_of_others_are_checked() {
        let (mut all, wrong) = (priorities(), PrioritySettings { socket_priority: Some(99), ..Default::default() });
        assert!(all.learn(names("/out", "in "), low(), Source::Set, true).is_err());
        assert!(all.learn(names("/out", "/in"), wrong, Source::Set, true).is_err());
        assert_eq!(all.remembered("/out", "/in"), None);
    }

    #[test]
    fn settings_that_were_taken_back_give_way_to_others() {
        let mut all = priorities();
        for number in 0..MOST {
            all.keep(names("/out", &format!("/in{number}")), low(), Source::Set, None);
        }
        let another = names("/out", "/another");
        assert!(all.make_room(&another).is_err());
        assert_eq!(all.make_room(&names("/out", "/in7")), Ok(()), "it has room already");
        all.keep(names("/out", "/in7"), PrioritySettings::default(), Source::Set, None);
        assert_eq!(all.make_room(&another), Ok(()));
        assert_eq!(all.kept_with("/out").count(), MOST - 1);
    }

    #[test]
    fn an_end_has_its_own_settings_or_else_those_of_its_port() {
        let (mut all, end) = (priorities(), names("/out", "/in"));
        let port = PrioritySettings { pace: Some(1000), ..of(Class::High) };
        assert_eq!(all.wanted(&end, &port), port);
        all.keep(end.clone(), low(), Source::Set, None);
        assert_eq!(all.wanted(&end, &port), PrioritySettings { pace: Some(1000), ..low() });
    }

    #[test]
    fn the_processs_default_is_what_it_had_when_the_node_was_opened() {
        let changes = Changes { affinity: Change::Unset, ..Changes::default() };
        assert_eq!(priorities().of_process(&changes).unwrap().affinity, Some(vec![0, 1]));
        assert_eq!(priorities().of_process(&Changes::default()).unwrap(), PrioritySettings::default());
    }

    #[test]
    fn a_member_of_a_group_leaves_it_only_for_settings_of_its_own() {
        let nothing = PrioritySettings::default();
        assert_eq!([step(None, &low()), step(Some(false), &nothing)], [Step::TryOut, Step::Apply]);
        assert_eq!([step(Some(true), &low()), step(Some(true), &nothing)], [Step::Rehome, Step::Stay]);
    }

    #[test]
    fn packets_have_the_mark_that_is_set_or_their_class_and_only_publishers_pace() {
        let wanted = PrioritySettings { pace: Some(1000), ..PrioritySettings::default() };
        let sent = Marked::new(&wanted, default_class(None, true), Side::Publisher);
        let priority = Mark::Class(Class::Low).socket_priority();
        assert_eq!(sent, Marked { mark: Mark::Class(Class::Low), priority, pace: Some(1000) });
        assert_eq!(Marked::new(&wanted, Class::Low, Side::Subscriber).pace, None);
        assert_eq!(default_class(Some(Class::High), true), Class::High);
        let set = PrioritySettings { socket_priority: Some(6), ..low() };
        assert_eq!(Marked::new(&set, Class::High, Side::Publisher).priority, 6);
    }
}
