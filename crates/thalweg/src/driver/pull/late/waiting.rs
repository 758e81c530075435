//! Histories whose channels ended before them: the samples behind each of them wait for the next channel for a while. Pure: time is an argument.

/// Something that waits.
pub(super) trait Waits {
    /// The end of the wait; `None`: it waits no longer.
    fn until(&self) -> Option<u64>;
}

/// Everything that waits, in the order in which it came. A wait may end before its time, so that no order of deadlines would last.
pub(super) struct Waiting<T>(Vec<T>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Waits> Waiting<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, one: T) {
        self.0.push(one);
    }

    /// The time at which something is [due](Self::due); `None`: nothing waits.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.0.iter().map(|one| one.until().unwrap_or(0)).min()
    }

    /// Takes out what waits no longer.
    pub(super) fn due(&mut self, now: u64) -> Vec<T> {
        self.0.extract_if(.., |one| one.until().is_none_or(|until| until <= now)).collect()
    }
}

#[cfg(test)]
mod tests;
