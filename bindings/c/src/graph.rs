//! Ports and channels of all nodes, and their priorities: what `thalweg list`, `get` and `set` show and change.

use crate::arguments::{SizeFirst, give_text, optional_text, text};
use crate::failure::{Failure, Result, c_string, guarded, thalweg_status};
use crate::node::{given, thalweg_node};
use crate::options::{class_number, thalweg_class, words};
use std::ffi::{CString, c_char, c_void};
use thalweg::Node;
use thalweg::admin::set::{self, Ends, Wish};
use thalweg::admin::{EndReport, Request};
use thalweg::control::Direction;

/// Direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_direction {
    THALWEG_PUBLISHER = 1,
    THALWEG_SUBSCRIBER = 2,
}

/// A port of any node. Valid during the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_port_info {
    pub size: usize,
    pub name: *const c_char,
    pub topic: *const c_char,
    pub type_name: *const c_char,
    pub node_name: *const c_char,
    pub node: u64,
    /// A thalweg_direction.
    pub direction: u32,
}

/// One end of a channel, as the kernel has it. Valid during the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_end_info {
    pub size: usize,
    pub publisher: *const c_char,
    pub subscriber: *const c_char,
    /// "publisher" or "subscriber".
    pub end: *const c_char,
    /// Empty: not connected.
    pub carrier: *const c_char,
    /// Policy of the thread that serves the end: "other", "fifo", "rr", ...; empty: none does.
    pub sched: *const c_char,
    /// Why the marks have the effect that their class promises, or have not.
    pub because: *const c_char,
    /// A further note; empty: none.
    pub note: *const c_char,
    pub sched_priority: u32,
    /// Id of the thread; 0: none.
    pub thread: i32,
    /// The thalweg_class that its packets have; THALWEG_CLASS_DEFAULT: none.
    pub priority_class: u32,
    /// The code point in its packets; -1: the carrier has none.
    pub dscp: i32,
    pub connected: bool,
    pub effective: bool,
}

/// Called with each port. Return false to see no more.
pub type thalweg_port_visitor = Option<unsafe extern "C" fn(port: *const thalweg_port_info, user: *mut c_void) -> bool>;

/// Called with each end of a channel. Return false to see no more.
pub type thalweg_end_visitor = Option<unsafe extern "C" fn(end: *const thalweg_end_info, user: *mut c_void) -> bool>;

// SAFETY: the size is first, and zero is a null pointer, a number or `false` in all other fields.
unsafe impl SizeFirst for thalweg_port_info {}
// SAFETY: the same.
unsafe impl SizeFirst for thalweg_end_info {}

/// Sets a channel, or the process of a port.
fn set(node: &Node, publisher: &str, subscriber: Option<&str>, text: &str) -> Result<Vec<EndReport>> {
    let words = words(text)?;
    let wish = Wish::read(words.iter().map(String::as_str))?;
    if wish.is_empty() {
        return Err(Failure::invalid("nothing is set: give class=high, sched=fifo:30 or the like"));
    }
    Ok(set::set(node, publisher, subscriber, Ends::Both, &wish)?)
}

/// An end in one line, for people.
fn shown(report: &EndReport) -> String {
    let mut parts = Vec::new();
    parts.extend(report.class.map(|class| format!("class {class}")));
    parts.extend(report.dscp.map(|dscp| format!("DSCP {dscp}")));
    if report.tid.is_some() {
        let priority = if report.priority > 0 { format!(" {}", report.priority) } else { String::new() };
        parts.push(format!("sched {}{priority}", report.policy));
    }
    parts.extend(report.proxied.as_ref().map(ToString::to_string));
    let effective = if report.effective { "effective" } else { "not effective" };
    let note = if report.note.is_empty() { String::new() } else { format!("; {}", report.note) };
    let because = &report.because;
    let because = if because.is_empty() { String::new() } else { format!(": {effective}, because {because}") };
    format!("{} {}{because}{note}\n", report.end, parts.join(", "))
}

/// Texts for C, which live as long as the call that shows them.
struct Texts<const N: usize>([CString; N]);

impl<const N: usize> Texts<N> {
    fn of(texts: [&str; N]) -> Self {
        Self(texts.map(c_string))
    }
    fn pointers(&self) -> [*const c_char; N] {
        self.0.each_ref().map(|text| text.as_ptr())
    }
}

/// Shows all ports that are known now, of all nodes.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_visit_ports(
    node: *const thalweg_node,
    visit: thalweg_port_visitor,
    user: *mut c_void,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (_, node) = unsafe { given(node)? };
        let visit = visit.ok_or_else(|| Failure::invalid("visit is a null pointer"))?;
        for document in node.nodes() {
            for port in document.ports.values() {
                let texts = Texts::of([&port.name, &port.topic, &port.message.name, &document.name]);
                let [name, topic, type_name, node_name] = texts.pointers();
                let direction = match port.direction {
                    Direction::Publisher => thalweg_direction::THALWEG_PUBLISHER,
                    Direction::Subscriber => thalweg_direction::THALWEG_SUBSCRIBER,
                } as u32;
                let (size, node) = (size_of::<thalweg_port_info>(), document.node.0);
                let info = thalweg_port_info { size, name, topic, type_name, node_name, node, direction };
                // SAFETY: the function and its user pointer are C's; the texts live until it returns.
                if !unsafe { visit(&raw const info, user) } {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

/// Shows the ends at `port` of all its channels.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_visit_ends(
    node: *const thalweg_node,
    port: *const c_char,
    visit: thalweg_end_visitor,
    user: *mut c_void,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let ((_, node), port) = unsafe { (given(node)?, text(port, "port")?) };
        let visit = visit.ok_or_else(|| Failure::invalid("visit is a null pointer"))?;
        let holder = set::find(&node, port, None)?;
        for report in set::settings(&node, holder, &Request::Get { port: port.to_owned(), other: None })? {
            let EndReport { publisher, subscriber, end, carrier, policy, because, note, .. } = &report;
            let texts = Texts::of([publisher, subscriber, end, carrier.as_str(), policy, because, note]);
            let [publisher, subscriber, end, carrier_text, sched, because, note] = texts.pointers();
            let info = thalweg_end_info {
                size: size_of::<thalweg_end_info>(),
                publisher,
                subscriber,
                end,
                carrier: carrier_text,
                sched,
                because,
                note,
                sched_priority: report.priority,
                thread: report.tid.unwrap_or(0),
                priority_class: report.class.map_or(thalweg_class::THALWEG_CLASS_DEFAULT as u32, class_number),
                dscp: report.tos.map_or(-1, |tos| i32::from(tos >> 2)),
                connected: !carrier.as_str().is_empty(),
                effective: report.effective,
            };
            // SAFETY: the function and its user pointer are C's; the texts live until it returns.
            if !unsafe { visit(&raw const info, user) } {
                return Ok(());
            }
        }
        Ok(())
    })
}

/// Sets the priority of a live channel at both ends, as `thalweg set` does: "class=high sched=fifo:30 affinity=1". All is set, or nothing.
/// Without subscriber (null) sched= and affinity= hold for all threads of the publisher's process. `effect` (may be null) gets the resulting
/// state and whether it has an effect, a line for each end; freed by thalweg_string_free.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_set(
    node: *const thalweg_node,
    publisher: *const c_char,
    subscriber: *const c_char,
    settings: *const c_char,
    effect: *mut *mut c_char,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let ((_, node), publisher) = unsafe { (given(node)?, text(publisher, "publisher")?) };
        // SAFETY: the caller's promise.
        let (subscriber, settings) = unsafe { (optional_text(subscriber, "subscriber")?, text(settings, "settings")?) };
        let reports = set(&node, publisher, subscriber, settings)?;
        // SAFETY: the caller's promise.
        unsafe { give_text(effect, reports.iter().map(shown).collect::<String>()) };
        Ok(())
    })
}
