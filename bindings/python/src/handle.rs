//! Nodes that are open, each with its ports: a node closes when its last port does, so ports are closed before it.

use crate::error::{ForkedError, closed};
use crate::process::{self, Birth};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All nodes of this process that were not dropped. Locked with the interpreter's lock held, and for moments only: a fork finds it free.
static NODES: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

/// A port that closes with its node.
pub(crate) trait Closing: Send + Sync {
    /// Closes it, and wakes whoever waits for it. May wait for unsent samples.
    fn close(&self);
}

/// A node, until it is closed.
pub(crate) struct Handle {
    node: Mutex<Option<thalweg::Node>>,
    ports: Mutex<Vec<Weak<dyn Closing>>>,
    birth: Birth,
}

/// Locks of this crate are never held by a thread that panics in a way that leaves half a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// Keeps a node that was opened just now.
    pub(crate) fn new(node: thalweg::Node) -> Arc<Self> {
        let handle = Self { node: Mutex::new(Some(node)), ports: Mutex::default(), birth: Birth::here() };
        let handle = Arc::new(handle);
        let mut nodes = lock(&NODES);
        nodes.retain(|node| node.strong_count() > 0);
        nodes.push(Arc::downgrade(&handle));
        handle
    }

    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    /// The node, if it is open.
    pub(crate) fn node(&self) -> PyResult<thalweg::Node> {
        self.birth.check()?;
        lock(&self.node).clone().ok_or_else(closed)
    }

    /// Closes this port with the node, or at once if that was closed meanwhile.
    pub(crate) fn keep(&self, port: &Arc<dyn Closing>) {
        let node = lock(&self.node);
        if node.is_some() {
            let mut ports = lock(&self.ports);
            ports.retain(|port| port.strong_count() > 0);
            ports.push(Arc::downgrade(port));
            return;
        }
        drop(node);
        port.close();
    }

    /// Closes the node's ports and the node. The second time nothing is left to do.
    pub(crate) fn close(&self) {
        if !self.birth.is_here() {
            return;
        }
        let node = lock(&self.node).take();
        let ports = std::mem::take(&mut *lock(&self.ports));
        ports.iter().filter_map(Weak::upgrade).for_each(|port| port.close());
        drop(node);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let node = self.node.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match self.birth.is_here() {
            true => process::drop_away(|| drop(node)),
            // To close it would wait for threads that this process has not.
            false => std::mem::forget(node),
        }
    }
}

/// Refuses to open a node where that would meet one that is left of the process from which this one was forked.
pub(crate) fn check_may_open() -> PyResult<()> {
    if lock(&NODES).iter().filter_map(Weak::upgrade).all(|node| node.birth.is_here()) {
        return Ok(());
    }
    let text = "this process was forked from one with open nodes, which would meet new ones: open nodes only after the fork, or \
                start processes with multiprocessing's \"spawn\"";
    Err(ForkedError::new_err(text))
}

/// Closes all nodes, and waits until no other thread is in a call: `thalweg` registers it with `atexit`.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    process::refuse();
    let nodes: Vec<Arc<Handle>> = lock(&NODES).iter().filter_map(Weak::upgrade).collect();
    py.detach(|| {
        nodes.iter().for_each(|node| node.close());
        process::settle();
    });
}
