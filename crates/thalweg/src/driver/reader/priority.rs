//! The priority of receiving threads, per channel: a thread of its own while it is set (Y-10, Y-12).

use super::{Arrival, Hub, Place, Readers, Served, Wanted};
use linux::sched::{self, SchedError, Scheduled};
use qos::Class;
use qos::priority::PrioritySettings;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, io};

/// The thread that serves the receiving end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// A thread that serves this channel alone.
    OwnThread,
    /// The thread that serves all channels of a class without a thread of their own.
    SharedThread(Class),
    /// The thread that runs the callbacks of the subscriber for all its `local` channels.
    PortThread,
    /// The publishing thread: the channel is `local`, and the subscriber allows this thread or takes its samples itself.
    Publisher,
    /// The thread of the program that waits on the subscriber, which is polled.
    Waiter,
}

/// The receiving thread of a channel at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadReport {
    pub served_by: ServedBy,
    /// The thread serves this channel alone.
    pub own_thread: bool,
    /// The thread's id; `None`: it is a thread of the program, which may change.
    pub tid: Option<i32>,
    /// The kernel's present scheduling of the thread.
    pub scheduled: Option<Scheduled>,
}

/// The reason for which a receiving thread does not have the settings asked for.
#[derive(Debug)]
pub(crate) enum ThreadError {
    /// The channel has ended.
    NoChannel,
    /// The node's threads do not receive it: the program sets its own thread.
    Elsewhere(ServedBy),
    /// The kernel refused.
    Refused(SchedError),
    /// The kernel gave no thread.
    NoThread(io::Error),
}

impl fmt::Display for ServedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServedBy::OwnThread => f.write_str("a thread of its own"),
            ServedBy::SharedThread(class) => write!(f, "the thread that channels of class {class} share"),
            ServedBy::PortThread => f.write_str("the thread that runs its subscriber's callbacks"),
            ServedBy::Publisher => f.write_str("the publishing thread, in this process"),
            ServedBy::Waiter => f.write_str("the thread of the program that waits on the subscriber (it is polled)"),
        }
    }
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadError::NoChannel => f.write_str("the channel has ended"),
            ThreadError::Elsewhere(by) => write!(
                f,
                "it is received by {by}, whose scheduling is the program's: set that of the process (the port's name \
                 twice), or of the thread by chrt -p"
            ),
            ThreadError::Refused(refused) => refused.fmt(f),
            ThreadError::NoThread(error) => write!(f, "no thread could be started for it: {error}; raise `ulimit -u`"),
        }
    }
}

impl std::error::Error for ThreadError {}

/// A thread that cannot be scheduled as asked does not start: the reason is within the error.
impl From<io::Error> for ThreadError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<SchedError>() {
            Ok(refused) => ThreadError::Refused(refused),
            Err(error) => ThreadError::NoThread(error),
        }
    }
}

impl Readers {
    /// Gives the receiving thread of a channel this scheduling and these processors, at once if the channel has a thread of its own. A
    /// channel that shares a thread moves to its own, and back when neither is set any more. No sample is lost or reordered.
    ///
    /// # Errors
    /// The reason; then all settings are as before.
    pub(crate) fn set_priority(&self, channel: u64, to: &PrioritySettings) -> Result<ThreadReport, ThreadError> {
        let served = self.find(channel)?;
        let mut place = served.place.lock();
        match &*place {
            Place::Own { home: Some(_), tid } if !to.wants_own_thread() => {
                served.leaves.store(true, Ordering::Relaxed);
                let Wanted { scheduling, affinity } = self.0.default_settings();
                let _ = sched::apply(*tid, Some(&scheduling), Some(&affinity)); // until the channel has left, if the kernel allows it
            }
            Place::Own { tid, .. } => {
                self.0.apply(*tid, to)?;
                served.leaves.store(false, Ordering::Relaxed);
            }
            Place::Shared(intake) if to.wants_own_thread() => {
                let (slot, tid) = self.0.start_own(&served, Some(self.0.wanted(to)), None)?;
                if let Err(Arrival::HandOver(_, slot)) = intake.push(Arrival::HandOver(served.id, slot)) {
                    slot.close();
                    return Err(ThreadError::NoChannel);
                }
                *place = Place::Own { tid, home: Some(intake.clone()) };
            }
            Place::Port(subscriber_port) => {
                let tid = subscriber_port
                    .upgrade()
                    .and_then(|subscriber_port| subscriber_port.server())
                    .ok_or(ThreadError::NoChannel)?;
                self.0.apply(tid, to)?;
            }
            Place::Elsewhere(by) if to.wants_own_thread() => return Err(ThreadError::Elsewhere(*by)),
            Place::Shared(_) | Place::Elsewhere(_) => {}
            Place::Gone => return Err(ThreadError::NoChannel),
        }
        describe(&served, &place)
    }

    /// The receiving thread of a channel at present.
    ///
    /// # Errors
    /// [`ThreadError::NoChannel`].
    pub(crate) fn report(&self, channel: u64) -> Result<ThreadReport, ThreadError> {
        let served = self.find(channel)?;
        let place = served.place.lock();
        describe(&served, &place)
    }

    fn find(&self, channel: u64) -> Result<Arc<Served>, ThreadError> {
        self.0.served.lock().get(&channel).cloned().ok_or(ThreadError::NoChannel)
    }
}

impl Hub {
    fn wanted(&self, to: &PrioritySettings) -> Wanted {
        let default = self.default_settings();
        Wanted {
            scheduling: to.sched.unwrap_or(default.scheduling),
            affinity: to.affinity.clone().unwrap_or(default.affinity),
        }
    }

    fn apply(&self, tid: i32, to: &PrioritySettings) -> Result<(), ThreadError> {
        let Wanted { scheduling, affinity } = self.wanted(to);
        sched::apply(tid, Some(&scheduling), Some(&affinity)).map_err(ThreadError::Refused)
    }
}

fn describe(served: &Served, place: &Place) -> Result<ThreadReport, ThreadError> {
    let shared =
        |intake: &super::Intake| (ServedBy::SharedThread(intake.class), Some(intake.tid.load(Ordering::Relaxed)));
    let (served_by, tid) = match place {
        Place::Own { home: Some(home), .. } if served.leaves.load(Ordering::Relaxed) => shared(home),
        Place::Own { tid, .. } => (ServedBy::OwnThread, Some(*tid)),
        Place::Shared(intake) => shared(intake),
        Place::Port(subscriber_port) => {
            (ServedBy::PortThread, subscriber_port.upgrade().and_then(|subscriber_port| subscriber_port.server()))
        }
        Place::Elsewhere(by) => (*by, None),
        Place::Gone => return Err(ThreadError::NoChannel),
    };
    let scheduled = tid.and_then(|tid| sched::read(tid).ok());
    Ok(ThreadReport { served_by, own_thread: served_by == ServedBy::OwnThread, tid, scheduled })
}
