//! How far the recorder's threads give way to the programs that it records.

use linux::sched;
use qos::priority::Scheduling;
use std::str::FromStr;

/// The priority of the threads through which samples go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// That of the process.
    Normal,
    /// Below other programs. Where they leave too little processor time, samples are lost, and counted.
    #[default]
    Low,
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "normal" => Ok(Self::Normal),
            "low" => Ok(Self::Low),
            _ => Err("normal or low".to_owned()),
        }
    }
}

/// The nice value of threads that receive. They keep a share of full processors: a sample that is not received in time is lost.
const RECEIVING: i8 = 10;
/// The nice value of the thread that writes, whose samples wait in memory.
const WRITING: i8 = 19;

impl Priority {
    /// The scheduling of threads that receive; `None`: that of the process.
    pub(super) fn receiving(self) -> Option<Scheduling> {
        self.nice(RECEIVING)
    }

    /// The scheduling with which the thread that packs and writes starts.
    pub(super) fn writing(self) -> Option<Scheduling> {
        self.nice(WRITING)
    }

    /// Called by the thread that packs and writes. Beside a nice value alone, a thread that wakes up waits until the slice of this one is over (EEVDF,
    /// since Linux 6.6), which takes milliseconds; from a thread that is idle it takes the processor at once.
    pub(super) fn begin_writing(self) {
        if self == Self::Low {
            let _ = sched::set_idle(0); // any thread may
        }
    }

    /// A process with a higher nice value keeps it: a lower one needs a permission.
    fn nice(self, nice: i8) -> Option<Scheduling> {
        let own = sched::read(0).map_or(0, |found| found.nice);
        (self == Self::Low).then(|| Scheduling { nice: nice.max(own), ..Scheduling::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_is_below_the_process_and_normal_is_as_the_process() {
        let own = sched::read(0).unwrap().nice;
        let nice = |found: Option<Scheduling>| found.map(|found| found.nice);
        assert_eq!(nice(Priority::Low.receiving()), Some(own.max(10)));
        assert_eq!((nice(Priority::Low.writing()), Priority::Normal.writing()), (Some(19), None));
        assert_eq!("normal".parse::<Priority>(), Ok(Priority::Normal));
        assert!("idle".parse::<Priority>().is_err());
    }
}
