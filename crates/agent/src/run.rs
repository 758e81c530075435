//! The loop of an agent: hears the broker, carries out the steps on this host, reports.

use crate::borders::{boundaries, tunnels};
use crate::carriers::{self, PAUSES};
use crate::client::{Client, ClientError};
use crate::counters;
use crate::message::{Actual, Desired, End};
use crate::queues::{Unfit, queues};
use crate::reconcile::{Outcome, Reconciler, Step};
use linux::queueing::{self, Adjusted, Way};
use linux::tunnel;
use qos::plan::Plan;
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for news of the broker; a request to end waits as long.
const WAIT: Duration = Duration::from_secs(2);
/// Time between two looks at the request to end.
const TICK: Duration = Duration::from_millis(50);
/// Largest file of a kept state.
const LARGEST: u64 = 32 << 20;

/// A host and its agent's files.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The host's name in the contract.
    pub host: String,
    /// Directory of the journal of queues, the same for all that install queues on this host.
    pub journal: PathBuf,
    /// Directory for what the agent was told last: it starts again without a broker.
    pub state: PathBuf,
    /// The kernel has the discipline `prio`.
    pub prio: bool,
}

/// News of an agent, for its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The plan of this revision is installed on these devices.
    Installed(u64, Vec<String>),
    /// No plan any more: the host is as before.
    Restored(u64),
    /// What somebody else had changed was changed back.
    Repaired(Vec<String>),
    /// The plan of this revision cannot be installed.
    Refused(u64, String),
    /// The broker does not answer, or refuses: what is installed stays.
    Lost(String),
    /// The broker answers.
    Heard,
}

/// The running channels of a host: somebody gives their ends the settings of the plan.
pub trait Channels {
    /// From now on they have the settings of this plan, which is installed; `None`: those of before.
    fn follow(&self, plan: Option<Plan>);
    /// The ends of the plan that are here now.
    fn ends(&self) -> Vec<End>;
}

/// Runs until `ended`.
///
/// # Errors
/// The directory of the state cannot be used.
pub fn run(
    client: &Client,
    settings: &Settings,
    channels: &dyn Channels,
    ended: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(News),
) -> io::Result<()> {
    fs::create_dir_all(&settings.state)?;
    let (devices, over) = (Devices::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            carriers::tell(client, &settings.host, &|| devices.all().clone(), &|| over.load(Ordering::Relaxed))
        });
        let _ends = Ends(&over);
        obey(client, settings, (channels, &devices), ended, tell)
    })
}

/// The devices of the plan, with the rates of their queues.
#[derive(Debug, Default)]
struct Devices(Mutex<Vec<(String, u64)>>);

impl Devices {
    fn all(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only those that are in this plan, too. A tunnel that goes is no end of a link that is down.
    fn retain(&self, plan: Option<&Plan>, host: &str) {
        let planned = planned_devices(plan, host);
        self.all().retain(|(device, _)| planned.iter().any(|(other, _)| other == device));
    }

    /// Those of a plan that is to be installed, whether it can be or not: one that is not there is the end of a link that is down.
    fn note(&self, plan: Option<&Plan>, host: &str) {
        *self.all() = planned_devices(plan, host);
    }
}

fn planned_devices(plan: Option<&Plan>, host: &str) -> Vec<(String, u64)> {
    plan.map(|plan| crate::queues::devices(plan, host)).unwrap_or_default()
}

/// The plan of a step.
fn planned(step: Step<'_>) -> Option<Plan> {
    match step {
        Step::Install(text) => Plan::from_text(text).ok(),
        Step::Restore => None,
    }
}

/// Ends the other thread, however this one ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Hears the broker, carries out, reports.
fn obey(
    client: &Client,
    settings: &Settings,
    (channels, devices): (&dyn Channels, &Devices),
    ended: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(News),
) -> io::Result<()> {
    let file = settings.state.join(format!("{}.agent.json", settings.host));
    let started = Instant::now();
    let mut agent = Reconciler::resume(Duration::ZERO, kept(&file)?);
    if agent.desired().plan.is_none() {
        channels.follow(None); // what an agent left that was killed while it restored
    }
    let mut pause = None;
    while !ended() {
        if let Some(step) = agent.step(started.elapsed()) {
            let plan = planned(step);
            devices.retain(plan.as_ref(), &settings.host);
            let outcome = carry_out(step, settings, channels);
            // A tunnel is no end of a link that is down before it is made.
            devices.note(plan.as_ref(), &settings.host);
            let has_plan = agent.desired().plan.is_some();
            let (queues, kept_out, exceeded) = counters::of(&outcome, plan.as_ref(), &settings.host);
            agent.did(started.elapsed(), outcome).map(|report| news(report, has_plan)).into_iter().for_each(&mut *tell);
            agent.counted(queues, kept_out, exceeded);
        }
        agent.saw(channels.ends());
        match exchange(client, settings, &mut agent, started, &file) {
            Ok(()) => pause = heard_again(pause, tell),
            Err(why) => {
                if pause.is_none() {
                    tell(News::Lost(why));
                }
                let next = pause.map_or(PAUSES[0], |last: Duration| (last * 2).min(PAUSES[1]));
                pause = Some(next);
                sleep(next, ended);
            }
        }
    }
    Ok(())
}

fn heard_again(pause: Option<Duration>, tell: &mut dyn FnMut(News)) -> Option<Duration> {
    if pause.is_some() {
        tell(News::Heard);
    }
    None
}

/// Reports what is to be reported, and hears what is wanted.
fn exchange(
    client: &Client,
    settings: &Settings,
    agent: &mut Reconciler,
    started: Instant,
    file: &Path,
) -> Result<(), String> {
    let text = |e: ClientError| e.to_string();
    if let Some(actual) = agent.report() {
        client.report(&settings.host, actual).map_err(text)?;
        agent.reported();
    }
    let Desired { epoch, revision, .. } = *agent.desired();
    let until_look = agent.next_look().map_or(WAIT, |at| at.saturating_sub(started.elapsed()));
    let Some(desired) = client.desired(&settings.host, (epoch, revision), WAIT.min(until_look)).map_err(text)? else {
        return Ok(());
    };
    if agent.heard(started.elapsed(), desired).map_err(|e| e.to_string())? {
        keep(file, agent.desired()).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

/// The news of a report.
fn news(report: &Actual, has_plan: bool) -> News {
    match &report.because {
        Some(because) => News::Refused(report.revision, because.clone()),
        None if !report.repaired.is_empty() => News::Repaired(report.repaired.clone()),
        None if !has_plan => News::Restored(report.revision),
        None => News::Installed(report.revision, report.devices.clone()),
    }
}

fn sleep(time: Duration, ended: &dyn Fn() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !ended() {
        std::thread::sleep(TICK);
    }
}

/// Changes the queues of this host. Its channels follow: a class has an effect where there are queues for it.
fn carry_out(step: Step<'_>, settings: &Settings, channels: &dyn Channels) -> Outcome {
    let done = match step {
        Step::Install(text) => install(text, settings).map(|(outcome, plan)| (outcome, Some(plan))),
        Step::Restore => restore(settings).map(|outcome| (outcome, None)),
    };
    match done {
        Ok((outcome, plan)) => {
            channels.follow(plan);
            outcome
        }
        Err(why) => Outcome::Failed(why),
    }
}

fn install(text: &str, settings: &Settings) -> Result<(Outcome, Plan), String> {
    let plan = Plan::from_text(text).map_err(|e| e.to_string())?;
    let mut wanted = match queues(&plan, &settings.host, settings.prio) {
        Err(Unfit::NoHost(_)) => Vec::new(), // a plan without this host: it gets back what it had
        found => found.map_err(|e| e.to_string())?,
    };
    let ends = tunnels(&plan, &settings.host).map_err(|e| e.to_string())?;
    let borders = boundaries(&plan, &settings.host).map_err(|e| e.to_string())?;
    // Queues are made on them, and taken away before they go.
    let made = tunnel::make(&settings.journal, &ends).map_err(|e| e.to_string())?;
    // The others have their queues all the same.
    let down = crate::queues::down(&plan, &settings.host);
    wanted.retain(|one| !down.contains(&one.device) || queueing::exists(&one.device));
    let (installed, adjusted) =
        queueing::adjust_with(&settings.journal, &wanted, &borders).map_err(|e| e.to_string())?;
    let restored: Vec<String> = installed.restored.iter().map(ToString::to_string).collect();
    installed.keep().map_err(|e| e.to_string())?;
    let of_tunnels = made.keep().map_err(|e| e.to_string())?;
    let changes = of_tunnels.into_iter().chain(adjusted.iter().flat_map(changes)).chain(restored).collect();
    let of_borders = ends.into_iter().map(|one| one.device).chain(borders.into_iter().map(|one| one.device));
    let mut devices: Vec<String> = wanted.into_iter().map(|one| one.device).chain(of_borders).collect();
    let mut known = HashSet::new();
    devices.retain(|device| known.insert(device.clone()));
    Ok((Outcome::Done { devices, changes }, plan))
}

fn changes(Adjusted { device, way }: &Adjusted) -> Vec<String> {
    match way {
        Way::InPlace(changes) => changes.clone(),
        Way::Anew => vec![format!("{device}: its queues were made anew")],
    }
}

fn restore(settings: &Settings) -> Result<Outcome, String> {
    let restored = queueing::restore(&settings.journal).map_err(|e| e.to_string())?;
    let tunnels = tunnel::restore(&settings.journal).map_err(|e| e.to_string())?;
    let changes = restored.iter().map(ToString::to_string).chain(tunnels.iter().map(ToString::to_string)).collect();
    Ok(Outcome::Done { devices: Vec::new(), changes })
}

/// What the agent was told before it ended.
fn kept(file: &Path) -> io::Result<Desired> {
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Desired::default()),
        Err(error) => return Err(error),
        Ok(found) if found.len() > LARGEST => return Err(io::Error::other(format!("{}: too large", file.display()))),
        Ok(_) => {}
    }
    let text = fs::read(file)?;
    serde_json::from_slice(&text).map_err(|e| {
        io::Error::other(format!("{}: damaged ({e}): remove it, the broker tells it again", file.display()))
    })
}

/// Keeps it, all or nothing.
fn keep(file: &Path, desired: &Desired) -> io::Result<()> {
    let fresh = file.with_extension("new");
    let mut opened = fs::File::create(&fresh)?;
    opened.write_all(&serde_json::to_vec(desired)?)?;
    opened.sync_all()?;
    fs::rename(&fresh, file)?;
    file.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::plan::Link;

    /// Otherwise the broker would hear that the link of a tunnel is down which its agent takes away.
    #[test]
    fn devices_that_a_plan_has_not_are_forgotten_before_they_go_and_new_ones_noted_when_they_are_there() {
        let plan = |devices: &[&str]| {
            let link = |device: &&str| Link { from: "a".into(), device: Some((*device).to_owned()), ..Link::default() };
            Plan { links: devices.iter().map(link).collect(), ..Plan::default() }
        };
        let (devices, next) = (Devices::default(), plan(&["eth0", "eth1"]));
        let names = || devices.all().iter().map(|(device, _)| device.clone()).collect::<Vec<_>>();
        devices.note(Some(&plan(&["eth0", "vx"])), "a");
        devices.retain(Some(&next), "a");
        assert_eq!(names(), ["eth0"]);
        devices.note(Some(&next), "a");
        assert_eq!(names(), ["eth0", "eth1"]);
        devices.retain(None, "a");
        assert!(names().is_empty());
    }
}
