//! Priorities and proxies of channels, set at both ends through the control plane. The journal that undoes them is
//! written first.

use super::host_file::Channel;
use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::Participant;
use qos::priority::{Change, Changes, Policy};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::silent_processes;
use thalweg::control::{Document, NodeId};
use thalweg::proxy::{Proxy, ProxyChanges};

/// Time that a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Largest journal that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// The former settings of one end of a channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Former {
    port: String,
    other: String,
    changes: Changes,
    /// The former place of the proxy, at the subscriber's end.
    #[serde(default)]
    proxy: ProxyChanges,
    /// The node of the port: its host, realm and process.
    at: (String, String, u32),
}

/// The result of taking priorities back.
#[derive(Debug, Default)]
pub(crate) struct TakenBack {
    /// One line per end, for people.
    pub told: Vec<String>,
    /// Those of them about ends that could not be restored. Their former settings are kept for the next attempt.
    pub stuck: Vec<String>,
}

/// The settings of an end that stay.
#[cfg(any(feature = "sessions", test))]
pub(crate) enum Stays {
    /// All of them: its program does not answer now.
    All,
    /// Those that these state.
    Stated(Changes, ProxyChanges),
}

/// The result for one end.
enum Outcome {
    AsBefore,
    /// The port is gone, and its priority with it.
    Gone,
    Stuck(String),
}

/// Priorities that were set; taken back when dropped, unless kept.
pub(crate) struct Applied<'a> {
    participant: &'a Participant,
    file: PathBuf,
    /// Former settings of an earlier `apply`, which stay.
    earlier: Vec<Former>,
    former: Vec<Former>,
    kept: bool,
    /// Reports of the ends after the change.
    pub ends: Vec<EndReport>,
}

/// Checks that all ports are there.
///
/// # Errors
/// The first port that is missing.
pub(crate) fn check(participant: &mut Participant, channels: &[(usize, Channel)]) -> Result {
    participant.settled();
    let mut ports = channels.iter().flat_map(|(_, channel)| [&channel.publisher, &channel.subscriber]);
    ports.find(|port| participant.node.holder(port).is_none()).map_or(Ok(()), |port| Err(unknown(port)))
}

/// Sets the priorities of all channels, or of none. They replace those of an earlier `apply`.
///
/// # Errors
/// A port that does not exist, or a node's refusal; then the settings are taken back.
pub(crate) fn apply<'a>(
    participant: &'a Participant,
    channels: &[(usize, Channel)],
    directory: &Path,
) -> Result<Applied<'a>> {
    let nodes = participant.others();
    let TakenBack { told, stuck } = take_back(participant, &nodes, directory)?;
    if !stuck.is_empty() {
        return Err(Failure::No(format!("what was applied before could not be taken back: {}", told.join("; "))));
    }
    add(participant, channels, directory)
}

/// Sets the priorities of all channels, or of none, in addition to those of an earlier `apply`. One `thalweg restore`
/// takes back all of them.
///
/// # Errors
/// A port that does not exist, or a node's refusal; then the settings made here are taken back.
pub(crate) fn add<'a>(
    participant: &'a Participant,
    channels: &[(usize, Channel)],
    directory: &Path,
) -> Result<Applied<'a>> {
    let nodes = participant.others();
    let file = journal(directory);
    let earlier = read(&file)?;
    let mut applied = Applied { participant, file, earlier, former: Vec::new(), kept: false, ends: Vec::new() };
    for (_, channel) in channels {
        let Channel { publisher, subscriber, end, changes, proxy, .. } = channel;
        if *end != Which::Subscriber && !changes.is_empty() {
            applied.set(&nodes, publisher, subscriber, changes)?;
        }
        if *end != Which::Publisher && !changes.is_empty() {
            applied.set(&nodes, subscriber, publisher, changes)?;
        }
        if !proxy.is_empty() {
            applied.scale(&nodes, publisher, subscriber, proxy)?;
        }
    }
    Ok(applied)
}

impl Applied<'_> {
    fn set(&mut self, nodes: &[Document], port: &str, other: &str, changes: &Changes) -> Result {
        let document = holder(self.participant, nodes, port).ok_or_else(|| unknown(port))?;
        let node = document.node;
        let at = (document.host.clone(), document.realm.clone(), document.pid);
        let (port, other) = (port.to_owned(), other.to_owned());
        let before = self.before(node, &port, &other)?;
        let (changes_back, proxy) = (changes.undone(&before.asked), ProxyChanges::default());
        self.remember(Former { port: port.clone(), other: other.clone(), changes: changes_back, proxy, at })?;
        let set = Request::Set { port, other, changes: changes.clone() };
        let set = ends(self.participant.node.ask(node, &set, PATIENCE)?);
        set.iter().try_for_each(|end| reserved(changes, end))?;
        self.ends.extend(set);
        Ok(())
    }

    /// Sets the scale of a channel's stream, and the place where the other samples are left out.
    fn scale(&mut self, nodes: &[Document], publisher: &str, subscriber: &str, changes: &ProxyChanges) -> Result {
        let document = holder(self.participant, nodes, subscriber).ok_or_else(|| unknown(subscriber))?;
        let (node, at) = (document.node, (document.host.clone(), document.realm.clone(), document.pid));
        let (publisher, subscriber) = (publisher.to_owned(), subscriber.to_owned());
        let before = self.before(node, &subscriber, &publisher)?;
        let proxy = proxy_back(changes, before.proxy.as_ref());
        let (port, other) = (subscriber.clone(), publisher.clone());
        self.remember(Former { port, other, changes: Changes::default(), proxy, at })?;
        let request = Request::Scale { publisher, subscriber, changes: changes.clone() };
        self.participant.node.ask(node, &request, PATIENCE)?;
        Ok(())
    }

    /// The settings of an end. One without a channel, for which none are kept, has none; that its program does not answer is an error.
    fn before(&self, node: NodeId, port: &str, other: &str) -> Result<EndReport> {
        let process = (port == other).then(|| other.to_owned());
        let get = Request::Get { port: port.to_owned(), other: process };
        let all = ends(self.participant.node.ask(node, &get, PATIENCE)?);
        let is_it = |end: &EndReport| end.publisher == other || end.subscriber == other;
        Ok(all.into_iter().find(is_it).unwrap_or_default())
    }

    /// Writes the former settings to disk before anything is changed.
    fn remember(&mut self, former: Former) -> Result {
        self.former.push(former);
        save(&self.file, self.earlier.iter().chain(&self.former))
    }

    /// Leaves the priorities until `thalweg restore`.
    pub(crate) fn keep(mut self) -> Vec<EndReport> {
        self.kept = true;
        // Repeated settings of the same ends need one entry each. If merging fails, the longer file is as good.
        let merged = merged(self.earlier.iter().chain(&self.former));
        let _ = save(&self.file, &merged);
        std::mem::take(&mut self.ends)
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let nodes = self.participant.others();
            let (earlier, former) = (std::mem::take(&mut self.earlier), std::mem::take(&mut self.former));
            match take_back_all(self.participant, &nodes, former, earlier, &self.file) {
                Ok(taken) => taken.told.iter().for_each(|text| tell(&format!("taken back: {text}"))),
                Err(failure) => tell(failure.text()),
            }
        }
    }
}

/// Takes back the settings of an earlier `apply`. Ends that could not be restored stay in the file, for the next
/// attempt.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn take_back(participant: &Participant, nodes: &[Document], directory: &Path) -> Result<TakenBack> {
    let file = journal(directory);
    let former = read(&file)?;
    if former.is_empty() {
        Ok(TakenBack::default())
    } else {
        take_back_all(participant, nodes, former, Vec::new(), &file)
    }
}

/// Takes back the settings that do not stay, by port and other port. The others stay, also in the file.
///
/// # Errors
/// The file cannot be read or written.
#[cfg(feature = "sessions")]
pub(crate) fn take_back_others(
    participant: &Participant,
    nodes: &[Document],
    directory: &Path,
    stays: &dyn Fn(&str, &str) -> Stays,
) -> Result<TakenBack> {
    let file = journal(directory);
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for former in read(&file)? {
        let (one, other) = former.apart(stays(&former.port, &former.other));
        stay.extend(one);
        go.extend(other);
    }
    match go.is_empty() {
        true => Ok(TakenBack::default()),
        false => take_back_all(participant, nodes, go, stay, &file),
    }
}

/// `true` if the end of this report has the settings of `channel` already.
#[cfg(any(feature = "sessions", test))]
pub(crate) fn has(report: &EndReport, channel: &Channel) -> bool {
    let Channel { changes, proxy, .. } = channel;
    let mut after = report.asked.clone();
    changes.apply(&mut after);
    // A mark that its packets have without being asked for needs no setting, which would take a member out of its multicast group.
    if report.asked.mark.is_none()
        && report.class.is_some()
        && report.class == after.mark.and_then(qos::priority::Mark::class)
    {
        after.mark = None;
    }
    let has_proxy = || report.proxy.as_ref().is_some_and(|asked| proxy.apply(asked.clone(), asked) == *asked);
    after == report.asked && (proxy.is_empty() || has_proxy())
}

/// The entries of the file; none if there is no file.
fn read(file: &Path) -> Result<Vec<Former>> {
    match linux::owned::read_own(file, LARGEST) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| unusable(file, &e.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unusable(file, &error)),
    }
}

/// Takes `former` back, the newest first, and leaves `earlier` in the file.
fn take_back_all(
    participant: &Participant,
    nodes: &[Document],
    former: Vec<Former>,
    earlier: Vec<Former>,
    file: &Path,
) -> Result<TakenBack> {
    let (mut told, mut stuck, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for former in former.into_iter().rev() {
        let Former { port, other, .. } = &former;
        match former.take_back(participant, nodes) {
            Outcome::AsBefore => told.push(format!("{port} with {other}: as before")),
            Outcome::Gone => told.push(format!("{port}: gone, and its priority with it")),
            Outcome::Stuck(why) => {
                let text = format!("{port} with {other}: not as before: {why}");
                told.push(text.clone());
                texts.push(text);
                stuck.insert(0, former);
            }
        }
    }
    if stuck.is_empty() && earlier.is_empty() {
        std::fs::remove_file(file).or_else(absent_is_fine).map_err(|e| unusable(file, &e))?;
    } else {
        save(file, earlier.iter().chain(&stuck))?;
    }
    Ok(TakenBack { told, stuck: texts })
}

/// One entry per end, with its first former settings.
fn merged<'a>(all: impl Iterator<Item = &'a Former>) -> Vec<Former> {
    let mut ends: Vec<Former> = Vec::new();
    for later in all {
        // A program that started again is given the settings of its former end by the node of the other: they are not its own.
        let same = |one: &&mut Former| {
            (&one.port, &one.other, one.proxy.is_empty()) == (&later.port, &later.other, later.proxy.is_empty())
        };
        match ends.iter_mut().find(same) {
            Some(first) => {
                first.changes.fill(&later.changes);
                first.proxy.fill(&later.proxy);
                first.at.clone_from(&later.at);
            }
            None => ends.push(later.clone()),
        }
    }
    ends
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// `true` if an earlier `apply` set priorities.
pub(crate) fn are_applied(directory: &Path) -> bool {
    journal(directory).exists()
}

impl Former {
    /// The part of it that stays, and the one that is taken back.
    #[cfg(any(feature = "sessions", test))]
    fn apart(&self, stays: Stays) -> (Option<Self>, Option<Self>) {
        let Stays::Stated(changes, proxy) = stays else { return (Some(self.clone()), None) };
        let ((changes, changes_back), (proxy, proxy_back)) = (self.changes.apart(&changes), self.proxy.apart(&proxy));
        let part = |changes, proxy| Self { changes, proxy, ..self.clone() };
        let is_some = |one: &Self| !(one.changes.is_empty() && one.proxy.is_empty());
        (Some(part(changes, proxy)).filter(is_some), Some(part(changes_back, proxy_back)).filter(is_some))
    }

    fn take_back(&self, participant: &Participant, nodes: &[Document]) -> Outcome {
        let (host, realm, pid) = &self.at;
        let Some(document) = holder(participant, nodes, &self.port) else {
            // A stopped process sends no document, but still holds its socket.
            let known: Vec<NodeId> = nodes.iter().map(|d| d.node).chain([participant.node.id()]).collect();
            let here = *host == linux::clock::host_id();
            return match here && silent_processes(realm, &known).contains(pid) {
                true => Outcome::Stuck(format!("its process {pid} does not answer: it is stopped or hangs")),
                false => Outcome::Gone,
            };
        };
        let (port, other, changes) = (self.port.clone(), self.other.clone(), self.changes.clone());
        let request = match self.proxy.is_empty() {
            true => Request::Set { port, other, changes },
            false => Request::Scale { publisher: other, subscriber: port, changes: self.proxy.clone() },
        };
        match participant.node.ask(document.node, &request, PATIENCE) {
            Ok(_) => Outcome::AsBefore,
            // The port may have closed meanwhile.
            Err(_) if participant.node.holder(&self.port).is_none() => Outcome::Gone,
            Err(error) => Outcome::Stuck(error.to_string()),
        }
    }
}

/// The changes that restore the former scale of the channel.
fn proxy_back(changes: &ProxyChanges, before: Option<&Proxy>) -> ProxyChanges {
    let unset = ProxyChanges { selection: Change::Unset, picture: Change::Unset, place: Change::Unset };
    before.map_or(unset, ProxyChanges::to).apart(changes).0
}

fn ends(reply: Reply) -> Vec<EndReport> {
    if let Reply::Settings(ends) = reply { ends } else { Vec::new() }
}

/// The kernel has the reservation that was asked for, as it reports it: without it the plan's bounds would not hold. An end without a
/// thread has none to check, and its report says so.
fn reserved(changes: &Changes, end: &EndReport) -> Result {
    let Change::Set(wanted) = changes.sched else { return Ok(()) };
    let EndReport { publisher, subscriber, tid, reservation, policy, .. } = end;
    let kept = *reservation == Some(wanted) || tid.is_none();
    if !matches!(wanted.policy, Policy::Deadline { .. }) || kept {
        return Ok(());
    }
    let has = reservation.map_or_else(|| policy.clone(), |has| has.to_string());
    let end = &end.end;
    Err(Failure::System(format!(
        "{publisher} to {subscriber}, {end}: its thread should have {wanted}, and the kernel says {has}: something else sets it; \
         `thalweg get {publisher} {subscriber}` shows it"
    )))
}

/// The node that has the port.
fn holder<'a>(participant: &Participant, nodes: &'a [Document], port: &str) -> Option<&'a Document> {
    let (node, _) = participant.node.holder(port)?;
    nodes.iter().find(|d| d.node == node)
}

fn unknown(port: &str) -> Failure {
    Failure::No(format!("no port {port} is known; start its program first, or see `thalweg list ports`"))
}

/// One journal per network namespace, as for queues: each namespace is a host of its own.
fn journal(directory: &Path) -> PathBuf {
    directory.join(format!("channels-{}.json", linux::namespace::current_id().unwrap_or(0)))
}

fn save<'a>(file: &Path, former: impl IntoIterator<Item = &'a Former>) -> Result {
    let former: Vec<&Former> = former.into_iter().collect();
    let write = || linux::owned::write(file, &serde_json::to_vec(&former)?);
    write().map_err(|e: io::Error| unusable(file, &e))
}

fn unusable(file: &Path, error: &io::Error) -> Failure {
    Failure::System(format!("{}: {error}; set THALWEG_RUN_DIR to a directory of your own", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run directory may be shared. The journal is read and written only where no other user can have put it.
    #[test]
    fn a_journal_is_not_followed_through_links() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = std::env::temp_dir().join(format!("thalweg-channels-{}", std::process::id()));
        let (directory, victim) = (place.join("applied"), place.join("victim"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(&victim, "whole").unwrap();
        let file = journal(&directory);
        symlink(&victim, &file).unwrap();
        assert!(read(&file).is_err());
        save(&file, []).unwrap();
        assert_eq!((std::fs::read(&victim).unwrap(), read(&file).unwrap().len()), (b"whole".to_vec(), 0));
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = save(&file, []).unwrap_err();
        assert!(refused.text().contains("alone") && read(&file).is_err(), "{refused:?}");
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_reservation_that_the_kernel_does_not_have_is_an_error() {
        let asked: Changes = "sched=deadline:1ms/10ms".parse().unwrap();
        let end = |tid, has: Option<&str>| EndReport {
            tid,
            policy: "other".into(),
            reservation: has.map(|has| has.parse().unwrap()),
            ..EndReport::default()
        };
        assert!(reserved(&asked, &end(Some(7), Some("deadline:1ms/10ms"))).is_ok());
        assert!(reserved(&asked, &end(None, None)).is_ok(), "the publishing thread is the user's");
        for (has, says) in [(None, "says other"), (Some("deadline:1ms/20ms"), "says deadline:1ms/20ms")] {
            let refused = reserved(&asked, &end(Some(7), has)).unwrap_err();
            assert!(refused.text().contains(says) && refused.text().contains("should have deadline:1ms/10ms"));
        }
        assert!(reserved(&"sched=fifo:3".parse().unwrap(), &end(Some(7), None)).is_ok());
    }

    #[test]
    fn what_a_later_plan_does_not_state_is_taken_back_alone() {
        let former = Former {
            port: "/in".into(),
            other: "/out".into(),
            changes: "class=default sched=fifo:3".parse().unwrap(),
            proxy: ProxyChanges::default(),
            at: Default::default(),
        };
        let stated = |changes: &str| Stays::Stated(changes.parse().unwrap(), ProxyChanges::default());
        let parts = |stays| {
            let (stays, back) = former.apart(stays);
            [stays, back].map(|part| part.map(|part| part.changes.clone()))
        };
        let changes = |text: &str| Some(text.parse::<Changes>().unwrap());
        assert_eq!(parts(stated("class=high")), [changes("class=default"), changes("sched=fifo:3")]);
        assert_eq!(parts(stated("class=high sched=rr:1")), [Some(former.changes.clone()), None]);
        assert_eq!(parts(stated("")), [None, Some(former.changes.clone())]);
        assert_eq!(parts(Stays::All), [Some(former.changes.clone()), None]);
        let scaled = |every: u32, picture: Change<thalweg::proxy::Picture>| {
            let mut proxy = ProxyChanges { picture, ..ProxyChanges::default() };
            proxy.add(&format!("every={every}")).unwrap();
            Former { changes: Changes::default(), proxy, ..former.clone() }
        };
        let (both, only) = (scaled(2, Change::Unset), scaled(4, Change::Keep));
        let back = both.apart(Stays::Stated(Changes::default(), only.proxy.clone())).1.unwrap();
        assert_eq!((back.proxy.picture, back.proxy.selection.is_keep()), (Change::Unset, true));
    }

    #[test]
    fn an_end_that_is_not_connected_has_what_is_asked_for_it() {
        let mut proxy = ProxyChanges::default();
        proxy.add("every=4").unwrap();
        proxy.add("proxy=relay:gate").unwrap();
        let channel = Channel {
            publisher: "/out".into(),
            subscriber: "/in".into(),
            end: crate::ends::Which::Subscriber,
            words: Vec::new(),
            changes: Changes::default(),
            proxy: proxy.clone(),
        };
        let asked = proxy.apply(Proxy::default(), &Proxy::default());
        let report = |proxy| EndReport { proxy, ..EndReport::default() };
        assert!(has(&report(Some(asked.clone())), &channel));
        assert!(!has(&report(Some(Proxy::default())), &channel) && !has(&report(None), &channel));
        assert_eq!(proxy_back(&proxy, Some(&asked)).apply(Proxy::default(), &Proxy::default()), asked);
    }

    #[test]
    fn an_end_set_twice_returns_to_its_first_settings() {
        let former = |port: &str, back: &str| Former {
            port: port.into(),
            other: "/in".into(),
            changes: back.parse().unwrap(),
            proxy: ProxyChanges::default(),
            at: Default::default(),
        };
        let moved = |proxy| Former { proxy, ..former("/out", "") };
        let first = ProxyChanges { picture: Change::Unset, ..Default::default() };
        let mut later = ProxyChanges { place: Change::Unset, ..Default::default() };
        later.add("picture=320x240").unwrap();
        let all = [
            former("/out", "class=low"),
            former("/a", "sched=default"),
            former("/out", "class=high sched=fifo:3"),
            moved(first),
            moved(later),
        ];
        let ends = merged(all.iter());
        let shown: Vec<_> = ends.iter().map(|end| (end.port.as_str(), end.changes.clone())).collect();
        let expected = [("/out", "class=low sched=fifo:3"), ("/a", "sched=default"), ("/out", "")];
        assert_eq!(shown, expected.map(|(port, back)| (port, back.parse().unwrap())));
        let both = ProxyChanges { picture: Change::Unset, place: Change::Unset, ..Default::default() };
        assert_eq!(ends[2].proxy, both, "one entry, however often it was set");
    }
}
