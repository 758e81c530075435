//! Counting allocations, for the tests that prove that the data path makes none.
//!
//! ```
//! #[global_allocator]
//! static COUNTING: thalweg_linux::allocations::Counting = thalweg_linux::allocations::Counting;
//!
//! let before = thalweg_linux::allocations::count();
//! drop(std::hint::black_box(Box::new(1)));
//! assert_eq!(thalweg_linux::allocations::count() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, counting per thread; when memory runs out the counts are wrong. Make it the `#[global_allocator]` of a test program.
pub struct Counting;

/// Number of times that the calling thread has allocated or grown memory. Always 0 unless [`Counting`] is the global
/// allocator.
pub fn count() -> u64 {
    COUNT.with(Cell::get)
}

/// Number of pieces of memory, and of bytes, that the calling thread has allocated and not freed.
pub fn held() -> (i64, i64) {
    HELD.with(Cell::get)
}

fn hold(pieces: i64, bytes: i64) {
    let _ = HELD.try_with(|held| held.set((held.get().0 + pieces, held.get().1 + bytes)));
}

fn one_more() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local number only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        hold(1, layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        one_more();
        hold(1, layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        one_more();
        hold(0, size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-1, -(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
