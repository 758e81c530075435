//! Priority inversion (P-18), provoked on one processor: a thread of low priority holds a lock that one of high priority
//! wants, and one between them does not stop.

use crate::world;
use linux::lock::PiMutex;
use qos::priority::{Policy, Scheduling};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const LOW: u8 = 10;
const MIDDLE: u8 = 20;
const HIGH: u8 = 30;
/// Time for which the thread in the middle does not stop.
const HOG: Duration = Duration::from_millis(300);
/// Work of the lock's holder.
const WORK: Duration = Duration::from_millis(20);

/// Makes this thread FIFO of this priority, on the first processor.
fn become_fifo(priority: u8) -> Result<i32, String> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let scheduling = Scheduling { policy: Policy::Fifo(priority), ..Scheduling::default() };
    linux::thread::pin(&[0]).map_err(|error| error.to_string())?;
    linux::sched::set(thread, &scheduling).map_err(|error| error.to_string())?;
    Ok(thread)
}

/// The kernel's priority of a thread: -1 - n for a FIFO priority of n, the lent one included.
fn kernel_priority(thread: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// Processor time of this thread, so that work is counted only while it runs.
fn work(time: Duration) {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let spent = |from: rustix::time::Timespec| {
        let to = now();
        Duration::from_nanos(((to.tv_sec - from.tv_sec) * 1_000_000_000 + to.tv_nsec - from.tv_nsec) as u64)
    };
    let from = now();
    while spent(from) < time {
        std::hint::spin_loop();
    }
}

/// How long the thread of high priority waited, and the kernel's priority of the holder meanwhile. `lock` takes the lock, does
/// what it is given, and releases it.
fn provoke(lock: &(dyn Fn(&mut dyn FnMut()) + Sync)) -> Result<(Duration, i32), String> {
    let (held, wanted, hogging) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (holder, waited, seen) = (AtomicI32::new(0), AtomicU64::new(0), AtomicI32::new(0));
    let until = |flag: &AtomicBool| {
        while !flag.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let low = scope.spawn(|| -> Result<(), String> {
            holder.store(become_fifo(LOW)?, SeqCst);
            lock(&mut || {
                held.store(true, SeqCst);
                until(&hogging); // the others take the processor
                work(WORK);
                seen.store(kernel_priority(holder.load(SeqCst)), SeqCst);
            });
            Ok(())
        });
        let high = scope.spawn(|| -> Result<(), String> {
            become_fifo(HIGH)?;
            until(&held);
            wanted.store(true, SeqCst);
            let asked = Instant::now();
            lock(&mut || {});
            waited.store(asked.elapsed().as_micros() as u64, SeqCst);
            Ok(())
        });
        let middle = scope.spawn(|| -> Result<(), String> {
            become_fifo(MIDDLE)?;
            until(&wanted);
            hogging.store(true, SeqCst);
            work(HOG);
            Ok(())
        });
        [low, high, middle].into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    Ok((Duration::from_micros(waited.load(SeqCst)), seen.load(SeqCst)))
}

/// The library's lock lends the waiter's priority to the holder: the wait is the holder's work. Positive control: behind a
/// lock without inheritance the same thread waits until the one in the middle stops.
#[test]
fn the_lock_lends_its_waiter_s_priority() {
    let _alone = world::alone();
    let may = std::thread::spawn(|| become_fifo(LOW)).join().unwrap();
    if let Err(because) = may {
        return world::skipped(because);
    }
    let (ours, plain) = (PiMutex::new(()), Mutex::new(()));
    let lent = provoke(&|body: &mut dyn FnMut()| {
        let _held = ours.lock();
        body();
    });
    let inverted = provoke(&|body: &mut dyn FnMut()| {
        let _held = plain.lock().unwrap();
        body();
    });
    let ((lent, boosted), (inverted, plain)) = (lent.unwrap(), inverted.unwrap());
    world::figure(
        "inversion",
        format!("waited {lent:?} at priority {boosted}; without inheritance {inverted:?} at {plain}"),
    );
    assert_eq!((boosted, plain), (-1 - i32::from(HIGH), -1 - i32::from(LOW)), "the holder's priority");
    assert!(inverted >= HOG, "no inversion was provoked: {inverted:?}");
    assert!(lent < HOG / 2, "it waited for the thread in the middle: {lent:?}");
}
