//! The user's own threads: they publish, and they receive on polled subscribers.

use crate::error::{Error, Result};
use qos::priority::PrioritySettings;

/// Gives the calling thread the policy, priority and processors of these settings, at once; missing settings stay.
/// For the thread that publishes (`shm` and `local` have no other) and the one that waits for samples.
///
/// ```no_run
/// let settings = thalweg::qos::priority::PrioritySettings {
///     sched: Some("fifo:30".parse().expect("a policy")),
///     ..Default::default()
/// };
/// thalweg::schedule_this_thread(&settings)?;
/// # Ok::<(), thalweg::Error>(())
/// ```
///
/// # Errors
/// [`Error::Usage`]: a value out of its range, or one that concerns packets, which a thread has not. [`Error::System`]: the
/// kernel's refusal with its reason and remedy. The thread is then as it was.
pub fn schedule_this_thread(settings: &PrioritySettings) -> Result<()> {
    settings.check().map_err(|wrong| Error::Usage(wrong.to_string()))?;
    let PrioritySettings { mark, socket_priority, pace, police, latency_budget_ns, sched, affinity } = settings;
    let marked = mark.is_some() || socket_priority.is_some();
    if marked || pace.is_some() || police.is_some() || latency_budget_ns.is_some() {
        return Err(Error::Usage("a thread has no packets: it takes sched and affinity only".to_owned()));
    }
    linux::sched::apply(0, sched.as_ref(), affinity.as_deref()).map_err(Error::scheduling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(words: &str) -> PrioritySettings {
        let mut settings = PrioritySettings::default();
        words.parse::<qos::priority::Changes>().unwrap().apply(&mut settings);
        settings
    }

    #[test]
    fn this_thread_is_scheduled_as_asked_or_stays_as_it_was() {
        let on_its_own = || {
            let before = linux::sched::read(0).unwrap();
            let nowhere = schedule_this_thread(&settings("sched=other:5 affinity=1023")).unwrap_err();
            assert!(nowhere.exit_code() == 3 && nowhere.to_string().contains("1023"), "{nowhere}");
            let packets = schedule_this_thread(&settings("sched=other:5 class=high")).unwrap_err();
            assert!(matches!(packets, Error::Usage(_)), "{packets}");
            assert_eq!(linux::sched::read(0).unwrap(), before);
            let first = before.affinity[0];
            schedule_this_thread(&settings(&format!("sched=other:5 affinity={first}"))).unwrap();
            let now = linux::sched::read(0).unwrap();
            assert_eq!((now.nice, now.affinity), (5, vec![first]));
        };
        std::thread::spawn(on_its_own).join().unwrap();
    }
}
