//! Panics of this library's own threads (docs/decisions/0011): the effects of one event are dropped with that event,
//! and a thread that cannot continue ends the process. A process without its control thread looks alive and serves
//! no one; a process that ended is restarted by its supervisor.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The slice of threads that carry no samples, longer than the default of about 3 ms: threads that carry samples take
/// the processor from them when they wake up. Measured beside a thread that works 2 ms of 2.3 on the same processor:
/// p99 of waking up 0.12 ms instead of 1.16.
const CONTROL_SLICE_NS: u64 = 10_000_000;

/// Settings of a thread that parses data of peers. Their types may be nested, which a peer chooses: parsing 127
/// levels, the parser's limit, needs more than 256 KiB without optimisation. Untouched stack costs nothing.
pub(crate) fn parsing(name: &str) -> linux::thread::Settings {
    linux::thread::Settings { stack: 2 << 20, slice_ns: Some(CONTROL_SLICE_NS), ..linux::thread::Settings::named(name) }
}

/// Runs the body of a thread that the node cannot do without.
pub(crate) fn or_abort(thread: &str, body: impl FnOnce()) {
    if let Err(why) = guarded(thread, body) {
        abort(&why);
    }
}

/// Ends the process at once, with the reason on standard error.
pub(crate) fn abort(why: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "thalweg: {why}: the process ends, since it could serve nobody any more");
    std::process::abort()
}

/// Runs a user's code on a thread of ours: a panic in it becomes an error that names its owner (`whose`), and the
/// thread continues.
///
/// # Errors
/// It panicked: with the panic's message.
pub(crate) fn guarded<T>(whose: &str, code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| format!("{whose} panicked: {}", said(panic.as_ref())))
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it said no more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Command;
    use crate::{Event, Node, Settings};
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);
    const CHILD: &str = "THALWEG_TEST_ABORT";

    #[test]
    #[ignore = "run by the next one, in a process of its own"]
    fn the_child() {
        let Ok(what) = std::env::var(CHILD) else { return };
        let node = node("aborts");
        if what == "thread" {
            let body = || or_abort("the thread of this test", || panic!("injected"));
            drop(linux::thread::spawn(linux::thread::Settings::named("test"), body).unwrap().join());
        } else {
            node.state().command(Command::Panic(true));
        }
        std::thread::sleep(LONG); // a process that stays is the defect
    }

    #[test]
    fn a_thread_that_cannot_go_on_takes_the_process_along() {
        for what in ["thread", "timers"] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["guard::tests::the_child", "--exact", "--ignored"]).env(CHILD, what);
            let ended = child.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.signal(), Some(6), "{what}: {said}");
            assert!(said.contains("the process ends"), "{said}");
        }
    }

    fn node(name: &str) -> Node {
        let realm = format!("guard-{}-{name}", std::process::id());
        Node::with_settings(Settings { realm, name: name.into(), ..Settings::default() }).unwrap()
    }

    #[test]
    fn an_event_that_panics_is_told_and_the_control_thread_goes_on() {
        let node = node("goes-on");
        let mut events = node.events();
        for _ in 0..3 {
            node.state().command(Command::Panic(false));
        }
        let mut publisher = node.publisher::<crate::codec::Raw>("/t").open().unwrap();
        let mut subscriber = node.subscriber::<crate::codec::Raw>("/t").open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "the control thread is gone");
        publisher.publish(b"x").unwrap();
        assert!(subscriber.wait(LONG).is_some());
        let told = std::iter::from_fn(|| events.wait(LONG)).any(
            |event| matches!(event, Event::Warning { text } if text.contains("injected") && text.contains("report")),
        );
        assert!(told);
    }
}
