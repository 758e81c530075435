//! Carrier `local`: publisher and subscriber in one process. The value itself is handed over when the subscriber lets
//! its callback run on the publisher's thread; else the encoded buffer, without copying it.

use super::inlet::AnyInlet;
use super::outlet::AnyOutlet;
use crate::channel::buffer::Buffer;
use crate::channel::memory::Account;
use crate::channel::{PortRef, SampleInfo};
use crate::codec::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The receiving end of a local channel.
pub(crate) trait LocalChannel<M: Message>: Send + Sync {
    /// The number of earlier samples that the subscriber wants.
    fn late(&self) -> u32;
    /// Announces a history of this many samples.
    fn expect_history(&self, samples: usize);
    /// `true` if samples go to a callback, on the publisher's thread or the port's own; otherwise they wait to be taken.
    fn calls_back(&self) -> bool;
    /// `true` if the value itself is taken, on the publisher's thread.
    fn wants_value(&self) -> bool;
    /// Takes the value. If it has to wait, it is charged to the channel's account.
    fn value(&self, info: SampleInfo, value: &M::Value, account: &Arc<Account>);
    /// The same with the encoded message.
    fn buffer(&self, info: SampleInfo, buffer: &Arc<Buffer>, account: &Arc<Account>);
}

/// All ports of this process, by which `local` channels find their other end.
pub(crate) struct LocalPorts {
    publishers: OnceLock<Mutex<HashMap<PortRef, Arc<dyn AnyOutlet>>>>,
    subscribers: OnceLock<Mutex<HashMap<PortRef, Arc<dyn AnyInlet>>>>,
}

pub(crate) static LOCAL: LocalPorts = LocalPorts { publishers: OnceLock::new(), subscribers: OnceLock::new() };

impl LocalPorts {
    pub(crate) fn publishers(&self) -> MutexGuard<'_, HashMap<PortRef, Arc<dyn AnyOutlet>>> {
        self.publishers.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
    }
    pub(crate) fn subscribers(&self) -> MutexGuard<'_, HashMap<PortRef, Arc<dyn AnyInlet>>> {
        self.subscribers.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
    }
}
