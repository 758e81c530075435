//! Settings of ports, read from their options.

use super::thalweg_class::*;
use super::thalweg_durability::*;
use super::thalweg_queue::*;
use super::thalweg_reliability::*;
use super::thalweg_sched::*;
use super::{thalweg_publisher_options, thalweg_qos, thalweg_subscriber_options};
use crate::arguments::{duration, list, optional_text, options};
use crate::failure::{Failure, Result};
use std::time::Duration;
use thalweg::carrier;
use thalweg::qos::priority::{Changes, Mark, Policy, PrioritySettings, Scheduling};
use thalweg::qos::{Class, Durability, Qos, Queue, Reliability};

/// Settings of a port in either direction.
pub(crate) struct PortSettings {
    pub name: Option<String>,
    pub qos: Qos,
    pub priority: PrioritySettings,
    pub carriers: Option<Vec<carrier::Name>>,
    pub session: Option<String>,
}

/// The settings of a publisher.
///
/// # Safety
/// Pointers in the options are null or valid.
pub(crate) unsafe fn publisher_settings(given: &thalweg_publisher_options) -> Result<PortSettings> {
    // SAFETY: the caller's promise.
    let mut port = unsafe { port_settings(given)? };
    // SAFETY: the caller's promise.
    let class = unsafe { options(given.qos, "qos")? }.priority_class;
    if let Some(class) = class_of(class)? {
        port.qos.class = class;
    }
    // SAFETY: the caller's promise.
    let settings = unsafe { optional_text(given.settings, "options.settings")? };
    apply(&mut port, settings.unwrap_or_default(), |_| true)?;
    Ok(port)
}

/// The settings of a subscriber.
///
/// # Safety
/// Pointers in the options are null or valid.
pub(crate) unsafe fn subscriber_settings(given: &thalweg_subscriber_options) -> Result<PortSettings> {
    let thalweg_subscriber_options { size, name, qos, settings, carriers, session, .. } = *given;
    // SAFETY: the caller's promise.
    let mut port =
        unsafe { port_settings(&thalweg_publisher_options { size, name, qos, settings, carriers, session })? };
    // SAFETY: the caller's promise.
    let class = unsafe { options(given.qos, "qos")? }.priority_class;
    port.priority.mark = class_of(class)?.map(Mark::Class);
    // SAFETY: the caller's promise.
    let settings = unsafe { optional_text(given.settings, "options.settings")? };
    // The class of a subscriber is that of its acknowledgements, which is no policy.
    apply(&mut port, settings.unwrap_or_default(), |policy| policy != "class")?;
    Ok(port)
}

/// # Safety
/// Pointers in the options are null or valid.
unsafe fn port_settings(given: &thalweg_publisher_options) -> Result<PortSettings> {
    // SAFETY: the caller's promise.
    unsafe {
        let carriers = list(given.carriers, "options.carriers")?;
        let (qos, priority) = policies(&options(given.qos, "qos")?)?;
        Ok(PortSettings {
            name: optional_text(given.name, "options.name")?.map(str::to_owned),
            qos,
            priority,
            carriers: (!carriers.is_empty()).then(|| carriers.into_iter().map(carrier::Name::from).collect()),
            session: optional_text(given.session, "options.session")?.map(str::to_owned),
        })
    }
}

/// Policies and scheduling, but for the class.
fn policies(given: &thalweg_qos) -> Result<(Qos, PrioritySettings)> {
    let time = |ns: u64| (ns > 0).then(|| duration(ns));
    let mut qos = Qos {
        deadline: time(given.deadline_ns),
        latency_budget: time(given.latency_budget_ns),
        lifespan: time(given.lifespan_ns),
        separation: time(given.separation_ns),
        ..Qos::default()
    };
    match given.reliability {
        value if value == THALWEG_RELIABILITY_DEFAULT as u32 => {}
        value if value == THALWEG_RELIABLE as u32 => qos.reliability = Reliability::Reliable,
        value if value == THALWEG_BEST_EFFORT as u32 => qos.reliability = Reliability::BestEffort,
        other => return Err(unknown("reliability", other)),
    }
    match given.durability {
        value if value == THALWEG_DURABILITY_DEFAULT as u32 => {}
        value if value == THALWEG_VOLATILE as u32 => qos.durability = Durability::Volatile,
        value if value == THALWEG_TRANSIENT_LOCAL as u32 => qos.durability = Durability::TransientLocal,
        other => return Err(unknown("durability", other)),
    }
    if let Some(queue) = queue(given)? {
        qos.queue = queue;
    }
    if given.history > 0 {
        qos.history = given.history;
    }
    if given.max_message > 0 {
        qos.max_message = given.max_message;
    }
    Ok((qos, PrioritySettings { sched: scheduling(given)?, ..PrioritySettings::default() }))
}

fn queue(given: &thalweg_qos) -> Result<Option<Queue>> {
    let up_to_us = u64::try_from(Duration::from_nanos(given.block_ns).as_micros()).unwrap_or(u64::MAX);
    if given.queue != THALWEG_QUEUE_DEFAULT as u32 && given.depth == 0 {
        return Err(Failure::invalid("qos.depth is 0: with a queue of its own a port needs at least 1"));
    }
    match given.queue {
        value if value == THALWEG_QUEUE_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_KEEP_LAST as u32 => Ok(Some(Queue::KeepLast(given.depth))),
        value if value == THALWEG_KEEP_ALL as u32 => Ok(Some(Queue::KeepAll(given.depth))),
        value if value == THALWEG_BLOCK as u32 => Ok(Some(Queue::Block { limit: given.depth, up_to_us })),
        other => Err(unknown("queue", other)),
    }
}

fn scheduling(given: &thalweg_qos) -> Result<Option<Scheduling>> {
    let priority = || {
        let priority = u8::try_from(given.sched_priority).ok().filter(|p| (1..=99).contains(p));
        priority
            .ok_or_else(|| Failure::invalid(format!("qos.sched_priority {}: 1 to 99 is allowed", given.sched_priority)))
    };
    match given.sched {
        value if value == THALWEG_SCHED_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_SCHED_OTHER as u32 => Ok(Some(Scheduling::default())),
        value if value == THALWEG_SCHED_FIFO as u32 => Ok(Some(Policy::Fifo(priority()?).into())),
        value if value == THALWEG_SCHED_RR as u32 => Ok(Some(Policy::RoundRobin(priority()?).into())),
        other => Err(unknown("sched", other)),
    }
}

fn class_of(value: u32) -> Result<Option<Class>> {
    match value {
        value if value == THALWEG_CLASS_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_CLASS_LOW as u32 => Ok(Some(Class::Low)),
        value if value == THALWEG_CLASS_NORMAL as u32 => Ok(Some(Class::Normal)),
        value if value == THALWEG_CLASS_HIGH as u32 => Ok(Some(Class::High)),
        value if value == THALWEG_CLASS_CRITICAL as u32 => Ok(Some(Class::Critical)),
        other => Err(unknown("priority_class", other)),
    }
}

/// The number of a class in C.
pub(crate) fn class_number(class: Class) -> u32 {
    (match class {
        Class::Low => THALWEG_CLASS_LOW,
        Class::Normal => THALWEG_CLASS_NORMAL,
        Class::High => THALWEG_CLASS_HIGH,
        Class::Critical => THALWEG_CLASS_CRITICAL,
    }) as u32
}

fn unknown(policy: &str, value: u32) -> Failure {
    Failure::invalid(format!("qos.{policy} is {value}, which this library does not have: see thalweg.h"))
}

/// Applies settings by name: a policy, if the port takes one of that name, else a priority.
fn apply(port: &mut PortSettings, settings: &str, takes: impl Fn(&str) -> bool) -> Result<()> {
    let mut changes = Changes::default();
    for word in words(settings)? {
        match word.split_once('=') {
            Some((name, value)) if Qos::names().any(|policy| policy == name && takes(policy)) => {
                let set = port.qos.set(name, value);
                set.map_err(|wrong| Failure::invalid(format!("settings: {name} {wrong}")))?;
            }
            _ => changes.add(&word).map_err(|wrong| Failure::invalid(format!("settings: {wrong}")))?,
        }
    }
    changes.apply(&mut port.priority);
    Ok(())
}

/// Words between spaces; in quotes there are none.
pub(crate) fn words(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            letter if letter.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    if quoted {
        return Err(Failure::invalid(format!("settings: a quote is not closed in {text:?}")));
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    Ok(words)
}
