//! The thread that sends waiting messages: the one of the flow's class, or its own, which then sends all messages.

use super::Flow;
use crate::channel::Own;
use qos::Class;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Flow {
    /// The class whose thread sends waiting messages.
    pub(crate) fn class(&self) -> Class {
        Class::ALL.get(usize::from(self.class.load(Relaxed))).copied().unwrap_or_default()
    }

    /// From now on the thread of this class sends waiting messages.
    pub(crate) fn set_class(&self, class: Class) {
        if self.class.swap(class as u8, Relaxed) != class as u8 {
            self.senders.prepare(class);
            self.senders.moved();
        }
    }

    /// From now on this thread sends all messages; `None`: the class's thread sends waiting messages again. A thread that sends at
    /// the moment loses and overtakes no message.
    pub(crate) fn move_to(&self, own: Option<Arc<Own>>) {
        let handed_over = own.is_some();
        let previous = std::mem::replace(&mut *self.own.lock(), own);
        self.right.hand_over_always(handed_over || self.bucket.is_some());
        if let Some(previous) = previous {
            previous.leave();
        }
        if handed_over {
            self.senders.moved();
            self.end_own_if_over();
        }
    }

    /// The flow's own sender thread, if it has one.
    pub(crate) fn own(&self) -> Option<Arc<Own>> {
        self.own.lock().clone()
    }

    /// `true` if the thread of this class sends the flow's waiting messages.
    pub(crate) fn is_sent_by(&self, class: Class) -> bool {
        self.class() == class && self.own.lock().is_none()
    }

    /// Gives the send right to the flow's thread.
    pub(super) fn submit(self: &Arc<Self>) {
        let own = self.own.lock();
        let Some(thread) = own.as_ref() else {
            drop(own);
            return self.senders.submit(self.clone());
        };
        thread.give();
        let thread = thread.clone();
        drop(own);
        thread.wake();
    }

    /// Makes the thread that has the send right look again: there may be room.
    pub(super) fn wake_sender(self: &Arc<Self>) {
        match self.own() {
            Some(thread) => thread.wake(),
            None => self.senders.look(self),
        }
    }

    /// Passes the send right from a former thread of the flow to the present one.
    pub(crate) fn pass_on(self: &Arc<Self>) {
        if !self.has_ended() {
            self.submit();
        }
    }

    /// Ends the flow's own thread if the flow has ended.
    pub(super) fn end_own_if_over(&self) {
        if self.has_ended()
            && let Some(own) = self.own.lock().take()
        {
            own.leave();
        }
    }
}
