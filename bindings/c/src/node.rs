//! Nodes. A node closes its ports with it: bindings have no owner that would outlive them.

use crate::arguments::{Out, duration, give_text, reference, taken_back, text};
use crate::failure::{Failure, Result, c_string, guarded, guarded_or, thalweg_status};
use crate::fork::Born;
use crate::options::{node_settings, thalweg_node_options};
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use thalweg::qos::priority::{PrioritySettings, Scheduling};
use thalweg::{EventReader, Node};

/// A node: one participating process, or one context in it.
pub struct thalweg_node {
    born: Born,
    name: CString,
    open: Mutex<Option<Open>>,
    events: Mutex<EventReader>,
}

/// A node that is open.
struct Open {
    node: Node,
    ports: Vec<Weak<dyn Port>>,
}

/// A port that closes with its node.
pub(crate) trait Port: Send + Sync {
    fn close(&self);
}

/// The interval at which a wait looks whether its node or port was closed.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

impl thalweg_node {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node, unless it is closed.
    pub(crate) fn node(&self) -> Result<Node> {
        self.born.check()?;
        self.open().as_ref().map(|open| open.node.clone()).ok_or_else(Failure::closed)
    }

    /// Has a port closed with the node; now, if it was closed meanwhile.
    pub(crate) fn keep(&self, port: Weak<dyn Port>) -> Result<()> {
        if let Some(open) = self.open().as_mut() {
            open.ports.retain(|kept| kept.strong_count() > 0);
            open.ports.push(port);
            return Ok(());
        }
        port.upgrade().into_iter().for_each(|port| port.close());
        Err(Failure::closed())
    }

    fn close(&self) {
        let open = self.open().take();
        if let Some(Open { node, ports }) = open {
            ports.iter().filter_map(Weak::upgrade).for_each(|port| port.close());
            drop(node);
        }
    }
}

/// Waits until a condition holds, or gives up when it says that there is nothing to wait for.
pub(crate) fn wait_until(node: &Node, timeout: Duration, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + timeout;
    loop {
        if holds()? {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::timeout());
        }
        node.wait_until(left.min(LOOK), || holds().unwrap_or(true));
    }
}

/// Sets policy and priority of the calling thread: "fifo:30", "rr:10", "other", "deadline:1ms/10ms".
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_schedule_this_thread(scheduling: *const c_char) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let scheduling = unsafe { text(scheduling, "scheduling")? }.parse::<Scheduling>();
        let sched = Some(scheduling.map_err(|wrong| Failure::invalid(format!("{wrong}")))?);
        Ok(thalweg::schedule_this_thread(&PrioritySettings { sched, ..PrioritySettings::default() })?)
    })
}

/// Opens a node. Without options it listens on loopback only.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_open(
    name: *const c_char,
    options: *const thalweg_node_options,
    node: *mut *mut thalweg_node,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(node, "node")? };
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        // SAFETY: the caller's promise.
        let opened = Node::with_settings(unsafe { node_settings(name, options)? })?;
        out.give(thalweg_node {
            born: Born::here(),
            name: c_string(name),
            events: Mutex::new(opened.events()),
            open: Mutex::new(Some(Open { node: opened, ports: Vec::new() })),
        });
        Ok(())
    })
}

/// Name of the node; valid as long as the node.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_name(node: *const thalweg_node) -> *const c_char {
    // SAFETY: the caller's promise.
    guarded_or(c"".as_ptr(), || unsafe { Ok(reference(node, "node")?.name.as_ptr()) })
}

/// The node's next event as a text: a match, a mismatch with its reason, losses, warnings. Freed by thalweg_string_free.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_wait_event(
    node: *const thalweg_node,
    timeout_ns: u64,
    event: *mut *mut c_char,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { reference(node, "node")? };
        if event.is_null() {
            return Err(Failure::invalid("event is a null pointer"));
        }
        let until = Instant::now() + duration(timeout_ns);
        loop {
            node.node()?;
            let left = until.saturating_duration_since(Instant::now());
            let found = node.events.lock().unwrap_or_else(PoisonError::into_inner).wait(left.min(LOOK));
            if let Some(found) = found {
                // SAFETY: the caller's promise.
                unsafe { give_text(event, found.to_string()) };
                return Ok(());
            }
            if left.is_zero() {
                return Err(Failure::timeout());
            }
        }
    })
}

/// Closes the node and all its ports.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_close(node: *const thalweg_node) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { reference(node, "node")? };
        node.born.check()?;
        node.close();
        Ok(())
    })
}

/// Frees a node; closes it if it is open. Its ports are freed on their own, before or after.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_node_free(node: *mut thalweg_node) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(node) = (unsafe { taken_back(node) }) else { return Ok(()) };
        match node.born.is_here() {
            true => node.close(),
            false => std::mem::forget(node), // its threads and locks are the parent's
        }
        Ok(())
    });
}

/// A node that C gives.
///
/// # Safety
/// The pointer is null or valid.
pub(crate) unsafe fn given<'a>(node: *const thalweg_node) -> Result<(&'a thalweg_node, Node)> {
    // SAFETY: the caller's promise.
    let handle = unsafe { reference(node, "node")? };
    Ok((handle, handle.node()?))
}
