//! One process per role: pins itself, plays the role, and starts the other process for `--role both`.

use super::engine::bindings::{self, Programs};
use super::engine::thalweg::trials;
use super::engine::{Engine, Host, Settings, select};
use super::{Carrier, EngineName, Error, Options, Payload, Role, name_of, print};
use crate::participant::Reach;
use baseline::Terms;
use lab::topology::Topology;
use lab::{Lab, Program};
use serde::Serialize;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// `thalweg bench latency`.
pub(super) fn latency(options: &Options) -> Result<bool, Error> {
    let passive = if options.carrier == Carrier::Local { 0 } else { 1 };
    play(options, "latency", 20_000, passive, |e, s| e.ping(s), |e, s| e.pong(s))
}

/// `thalweg bench throughput`.
pub(super) fn throughput(options: &Options) -> Result<bool, Error> {
    play(options, "throughput", 500_000, 1, |e, s| e.send(s), |e, s| e.receive(s))
}

/// `thalweg bench fanout`.
pub(super) fn fanout(options: &Options) -> Result<bool, Error> {
    play(options, "fanout", 2_000, options.subscribers, |e, s| e.publish(s), |e, s| e.subscribe(s))
}

/// `thalweg bench start`.
pub(super) fn start(options: &Options) -> Result<bool, Error> {
    play(options, "start", 1_000, 1, |e, s| e.start(s), |e, s| e.stand_by(s))
}

/// `thalweg bench storm`.
pub(super) fn storm(options: &Options) -> Result<bool, Error> {
    of_nodes(options)?;
    play(options, "storm", 4_000, 1, |_, s| trials::storm(s), |_, s| trials::join_and_leave(s))
}

/// `thalweg bench crowd`.
pub(super) fn crowd(options: &Options) -> Result<bool, Error> {
    of_nodes(options)?;
    play(options, "crowd", 1_000, 1, |_, s| trials::crowd(s), |_, s| trials::other_half(s))
}

/// `thalweg bench resume`.
pub(super) fn resume(options: &Options) -> Result<bool, Error> {
    of_nodes(options)?;
    let across = Options { hosts: true, ..options.clone() };
    play(&across, "resume", 10, 1, |_, s| trials::resume(s), |_, s| trials::notice(s))
}

fn of_nodes(options: &Options) -> Result<(), Error> {
    match (options.engine, options.carrier) {
        (EngineName::Thalweg, Carrier::Local | Carrier::Unix) => {
            Err(Error::Usage(format!("carrier \"{}\": allowed here: tcp, udp, shm", name_of(options.carrier))))
        }
        (EngineName::Thalweg, _) => Ok(()),
        (other, _) => Err(super::engine::no_nodes(&name_of(other))),
    }
}

/// Two hosts for the two ends, and what keeps them.
struct Hosts {
    topology: Arc<Topology>,
    _lab: Lab,
}

impl Hosts {
    fn new(options: &Options) -> Result<Option<Self>, Error> {
        if !options.hosts {
            return Ok(None);
        }
        let lab = Lab::open(lab::Options::default(), lab::Stop::default(), Program::this(&[])?, |_| {})?;
        Ok(Some(Self { topology: Arc::new(Topology::link(&lab, &[])?), _lab: lab }))
    }

    fn host(&self, n: u8) -> Host {
        Host { namespace: self.topology.host(n).name().to_owned(), listen: (Topology::address_of(n), 0).into() }
    }
}

fn play<F: Serialize>(
    options: &Options,
    mode: &str,
    count: u64,
    passive: u32,
    ping: impl FnOnce(&dyn Engine, &Settings) -> Result<F, Error>,
    pong: impl FnOnce(&dyn Engine, &Settings) -> Result<(), Error>,
) -> Result<bool, Error> {
    check_reach(options, mode)?;
    bindings::check(options, mode)?;
    let engine = select(options.engine);
    let mut settings = settings(options, count);
    let pin = pin(options)?;
    let programs = programs(options)?;
    settings.programs = options.programs.clone().or_else(|| programs.as_ref().map(|made| made.folder().to_owned()));
    match options.role {
        Role::Pong => pong(engine.as_ref(), &settings)?,
        Role::Ping => show(mode, options.json, &ping(engine.as_ref(), &settings)?),
        Role::Both => {
            let key = options.meet.clone().unwrap_or_else(|| std::process::id().to_string());
            let peer = options.pin_peer.or(pin);
            let hosts = Hosts::new(options)?;
            let far = hosts.as_ref().map(|hosts| hosts.host(2));
            let place = Place { host: far.as_ref(), programs: settings.programs.as_deref() };
            let start = |_| Other::start(options, mode, peer, &key, &place);
            let others = (0..passive).map(start).collect::<Result<Vec<_>, _>>()?;
            settings.host = hosts.as_ref().map(|hosts| hosts.host(1));
            settings.hosts = hosts.as_ref().map(|hosts| hosts.topology.clone());
            settings.key = Some(key);
            let figures = ping(engine.as_ref(), &settings)?;
            others.into_iter().try_for_each(Other::end)?;
            show(mode, options.json, &figures);
        }
    }
    Ok(true)
}

fn settings(options: &Options, default_count: u64) -> Settings {
    let count = options.count.unwrap_or(default_count);
    let payload = match options.payload {
        Payload::Copied => baseline::Payload::Copied,
        Payload::Untouched => baseline::Payload::Untouched,
        Payload::Checked => baseline::Payload::Checked,
    };
    let warmup = options.warmup.unwrap_or(count / 10);
    let terms = Terms { payload, batched: options.batched, ..Terms::new(options.size, count, warmup) };
    let (carrier, subscribers) = (options.carrier, options.subscribers as usize);
    Settings {
        carrier,
        terms,
        subscribers,
        key: options.meet.clone(),
        // Between hosts of this machine the two ends meet as on one.
        reach: if options.within.is_some() { Reach::default() } else { options.reach.clone() },
        reliable: options.reliable,
        latency_budget: options.latency_budget,
        plain: options.plain,
        stages: options.stages,
        host: options
            .within
            .clone()
            .zip(options.reach.listen.first())
            .map(|(namespace, listen)| Host { namespace, listen: *listen }),
        hosts: None,
        programs: None,
        beside: options.beside,
    }
}

/// The programs of a binding's ends, unless they are made already.
fn programs(options: &Options) -> Result<Option<Programs>, Error> {
    if !bindings::is_binding(options.engine) || options.programs.is_some() {
        return Ok(None);
    }
    let refused = |because| Error::System(format!("engine \"{}\": {because}", name_of(options.engine)));
    Programs::make(options.engine, options.tree.as_deref()).map(Some).map_err(refused)
}

/// Checks the reach: only the library finds another host, and the two ends are separate processes then.
fn check_reach(options: &Options, mode: &str) -> Result<(), Error> {
    if !options.reach.beyond() || options.within.is_some() {
        return Ok(());
    }
    let refused = |what: &str| Err(Error::Usage(format!("--listen, --peer and --discovery {what}")));
    match (options.engine, options.role) {
        (engine, _) if engine != EngineName::Thalweg => {
            refused("are for the engine \"thalweg\": the others stay on one host")
        }
        (_, Role::Both) => refused("need --role ping here and --role pong on the other host"),
        _ if !matches!(mode, "latency" | "throughput") => {
            refused("are for latency and throughput: the others make their hosts themselves, or are on one")
        }
        _ if matches!(options.carrier, Carrier::Shm | Carrier::Local | Carrier::Unix) => {
            refused("are for the carriers tcp and udp: the others stay on one host")
        }
        _ => {
            options.reach.warn_of_open_addresses();
            Ok(())
        }
    }
}

/// Pins this process as asked, and returns its processor.
fn pin(options: &Options) -> Result<Option<usize>, Error> {
    if options.no_pin {
        return Ok(None);
    }
    let allowed = allowed_cpus()?;
    let cpu = options.pin.or_else(|| allowed.first().copied()).unwrap_or(0);
    linux::thread::pin(&[cpu])
        .map_err(|e| Error::Usage(format!("--pin {cpu}: {e}; allowed: one of {allowed:?}, or --no-pin")))?;
    Ok(Some(cpu))
}

/// The processors this process may use, by number.
pub(super) fn allowed_cpus() -> Result<Vec<usize>, Error> {
    let set = rustix::thread::sched_getaffinity(None).map_err(std::io::Error::from)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// What another end finds where it is.
struct Place<'a> {
    host: Option<&'a Host>,
    programs: Option<&'a Path>,
}

/// The other end as a child process, which is ended with this value.
struct Other(Option<Child>);

impl Other {
    fn start(options: &Options, mode: &str, pin: Option<usize>, key: &str, place: &Place<'_>) -> Result<Self, Error> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["bench", mode, "--role", "pong", "--engine", &name_of(options.engine)]);
        command.args(["--carrier", &name_of(options.carrier), "--meet", key]);
        if options.reliable {
            command.arg("--reliable");
        }
        if let Some(budget) = options.latency_budget {
            command.args(["--latency-budget", &format!("{}ns", budget.as_nanos())]);
        }
        if options.plain {
            command.arg("--plain");
        }
        if options.stages {
            command.arg("--stages");
        }
        if let Some(programs) = place.programs {
            command.arg("--programs").arg(programs);
        }
        if let Some(beside) = options.beside {
            command.args(["--beside", &name_of(beside)]);
        }
        if let Some(Host { namespace, listen }) = place.host {
            command.args(["--within", namespace, "--listen", &listen.to_string()]);
        }
        match pin {
            Some(cpu) => command.args(["--pin", &cpu.to_string()]),
            None => command.arg("--no-pin"),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| Error::System(format!("cannot start the other process: {e}")))?;
        Ok(Self(Some(child)))
    }

    fn end(mut self) -> Result<(), Error> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(Error::Peer(format!("the other process failed: {status}"))) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Prints one JSON document, or its values line by line for people.
fn show(mode: &str, json: bool, figures: &impl Serialize) {
    let document = serde_json::to_value(figures).unwrap_or_default();
    if json {
        return print(&serde_json::to_string(figures).unwrap_or_default());
    }
    print(&format!("{mode}:"));
    for (key, value) in document.as_object().into_iter().flatten() {
        print(&match value.as_object() {
            Some(inner) => {
                let parts: Vec<_> = ["min", "p50", "p99", "p999", "max"]
                    .iter()
                    .filter_map(|k| inner.get(*k).map(|v| format!("{k} {v}")))
                    .collect();
                format!("  {key:<20} {}", parts.join("  "))
            }
            None => format!("  {key:<20} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_are_reached_by_one_end_of_the_library_only() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let checked = |arguments: &str, mode| {
            let line = format!("bench --peer 10.0.0.1 {arguments}");
            let line = <Line as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            check_reach(&line.options, mode).map_err(|e| e.to_string())
        };
        assert!(
            checked("--role ping", "latency").is_ok() && checked("--role pong --carrier udp", "throughput").is_ok()
        );
        for (arguments, mode, says) in [
            ("--role both", "latency", "need --role ping here"),
            ("--role ping --engine raw", "latency", "are for the engine"),
            ("--role ping", "fanout", "are for latency and throughput"),
            ("--role pong --carrier shm", "latency", "are for the carriers tcp and udp"),
        ] {
            assert!(checked(arguments, mode).unwrap_err().contains(says), "{arguments}");
        }
    }

    #[test]
    fn this_process_may_use_a_processor() {
        assert!(!allowed_cpus().unwrap().is_empty());
    }
}
