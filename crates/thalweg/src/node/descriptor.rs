//! A descriptor for event loops of others: a GUI's, asyncio's, an `epoll` of the user's.

use super::Waitable;
use crate::error::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// A descriptor that becomes readable when a source is ready (an eventfd(2)).
///
/// The source is armed before each wait, and taken from until nothing is left:
///
/// ```no_run
/// # use rustix::event::{PollFd, PollFlags, poll};
/// # fn take(node: &thalweg::Node) -> thalweg::Result<()> {
/// let mut poses = node.subscriber::<f64>("/pose").open()?;
/// let descriptor = thalweg::Descriptor::new()?;
/// loop {
///     while let Some(pose) = poses.take() {
///         println!("{}", *pose);
///     }
///     if !descriptor.arm(&poses) {
///         // Here an event loop waits for this descriptor and others: poll, select, epoll.
///         let mut waited = [PollFd::new(&descriptor, PollFlags::IN)];
///         poll(&mut waited, None).expect("poll fails for no descriptor of one's own");
///     }
/// }
/// # }
/// ```
///
/// A wake-up may find nothing to take, and several samples may come with one. A source wakes once for each time that it was armed, so
/// samples that nobody waits for cost no system call.
///
/// A source tells one waiter at a time: another descriptor, a [`WaitSet`](super::WaitSet) or an `async` take of the same subscriber
/// takes this one's place.
pub struct Descriptor {
    signal: Arc<Signal>,
    waker: Waker,
}

struct Signal(linux::poll::Waker);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl Descriptor {
    /// A descriptor that waits for nothing yet.
    ///
    /// # Errors
    /// [`Error::System`]: this process has no descriptor left.
    pub fn new() -> Result<Self> {
        let signal =
            Arc::new(Signal(linux::poll::Waker::new().map_err(|e| Error::system("cannot make an eventfd", e))?));
        Ok(Self { waker: signal.clone().into(), signal })
    }

    /// `true` if the source is ready now; otherwise the descriptor becomes readable when it is. What made it readable before is
    /// forgotten. For several sources use [`arm_all`](Self::arm_all).
    pub fn arm(&self, source: &dyn Waitable) -> bool {
        self.arm_all(&[source])
    }

    /// As [`Self::arm`], for several sources: `true` if at least one of them is ready now.
    pub fn arm_all(&self, sources: &[&dyn Waitable]) -> bool {
        self.signal.0.clear(); // before they are looked at: what comes later wakes again
        sources.iter().any(|source| source.is_ready(&self.waker))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
