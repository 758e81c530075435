//! What the thread of histories does next.

use super::*;

struct Until(Option<u64>);

impl Waits for Until {
    fn until(&self) -> Option<u64> {
        self.0
    }
}

#[test]
fn the_thread_waits_for_a_task_or_for_what_is_due() {
    let (sender, tasks) = mpsc::channel();
    let mut waiting = Waiting::default();
    waiting.add(Until(Some(u64::MAX)));
    sender.send(Task::Look).unwrap();
    assert!(matches!(next_task(&tasks, &waiting), Some(Task::Look)), "a task comes before the time");
    waiting.add(Until(Some(1)));
    assert!(matches!(next_task(&tasks, &waiting), Some(Task::Look)), "that time has passed");
    assert_eq!(waiting.due(1).len(), 1);
    waiting.add(Until(None));
    assert!(matches!(next_task(&tasks, &waiting), Some(Task::Look)), "it is due at once");
}

/// The subscribers of a node have closed before it ends.
#[test]
fn the_end_of_the_node_waits_for_nothing() {
    let (sender, tasks) = mpsc::channel();
    let mut waiting = Waiting::default();
    waiting.add(Until(Some(u64::MAX)));
    sender.send(Task::Look).unwrap();
    drop(sender);
    assert!(next_task(&tasks, &waiting).is_some(), "what was asked before is done");
    assert!(next_task(&tasks, &waiting).is_none());
}
