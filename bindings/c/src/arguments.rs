//! Arguments as C passes them: pointers that may be null, texts that may be no UTF-8, structures that may be older or newer.

use crate::failure::{Failure, Result, c_string};
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The longest wait: 100 years. A time from the clock of the machine stays far from overflowing.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The largest structure of options that is believed, in bytes: a size beyond it was never set.
const LARGEST_OPTIONS: usize = 4096;

fn null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is a null pointer"))
}

/// A structure that C has at `pointer`.
///
/// # Safety
/// It is null or points to a `T` that lives, and is not changed, as long as the result.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// A text.
///
/// # Safety
/// It is null or points to a text with a zero at its end, which lives as long as the result.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(pointer, what) }?.ok_or_else(|| null(what))
}

/// A text that may be missing: null.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|wrong| Failure::invalid(format!("{what} is not UTF-8: {wrong}")))?;
    Ok(Some(text))
}

/// The parts of a list with commas.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn list<'a>(pointer: *const c_char, what: &str) -> Result<Vec<&'a str>> {
    // SAFETY: the caller's promise.
    let text = unsafe { optional_text(pointer, what) }?.unwrap_or_default();
    Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// Bytes. A null pointer is none if the length is zero.
///
/// # Safety
/// It is null or points to `len` bytes, which live, and are not changed, as long as the result.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        (false, _) if isize::try_from(len).is_err() => Err(Failure::invalid(format!("{what} has {len} bytes"))),
        // SAFETY: not null, a length that memory can have, and the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) }),
    }
}

/// A structure whose first field is its size.
///
/// # Safety
/// `#[repr(C)]`, its first field is a `usize`, and zero is a value of all its fields.
pub(crate) unsafe trait SizeFirst: Copy {}

/// Checks the size of a structure. One that has ever been a structure's is a multiple of a pointer's, so that it cuts no pointer.
fn check_size(size: usize, what: &str) -> Result<()> {
    if (size_of::<usize>()..=LARGEST_OPTIONS).contains(&size) && size.is_multiple_of(align_of::<usize>()) {
        return Ok(());
    }
    Err(Failure::invalid(format!("{what}.size is {size}: set it to sizeof of the structure")))
}

/// A structure of options, as far as the caller has it: the rest is zero. Null is a structure of zeros.
///
/// # Safety
/// It is null or points to as many bytes as its first field says.
pub(crate) unsafe fn options<T: SizeFirst>(pointer: *const T, what: &str) -> Result<T> {
    let mut options = MaybeUninit::<T>::zeroed();
    if pointer.is_null() {
        // SAFETY: zero is a value of each field (`SizeFirst`).
        return Ok(unsafe { options.assume_init() });
    }
    // SAFETY: not null, and its first field is its size (`SizeFirst`).
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check_size(size, what)?;
    let known = size.min(size_of::<T>());
    // SAFETY: both have so many bytes: `known` is at most the size that the caller states, and at most that of a `T`.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), options.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: the caller has `size` bytes, of which `known` are behind us.
    let unknown = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
    if let Some(at) = unknown.iter().position(|byte| *byte != 0) {
        let at = known + at;
        return Err(Failure::invalid(format!(
            "{what} sets a field at byte {at} that this library, {}, does not have: use a newer one",
            env!("CARGO_PKG_VERSION")
        )));
    }
    // SAFETY: fields as C wrote them, zero where it has none (`check_size`: no pointer is cut).
    Ok(unsafe { options.assume_init() })
}

/// Writes a structure of results, as far as the caller has it.
///
/// # Safety
/// It is null or points to as many writable bytes as its first field says.
pub(crate) unsafe fn fill<T: SizeFirst>(pointer: *mut T, what: &str, found: &T) -> Result<()> {
    if pointer.is_null() {
        return Err(null(what));
    }
    let head = size_of::<usize>();
    // SAFETY: not null, and its first field is its size (`SizeFirst`).
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check_size(size, what)?;
    let (from, to) = (std::ptr::from_ref(found).cast::<u8>(), pointer.cast::<u8>());
    let known = size.min(size_of::<T>());
    // SAFETY: both have so many bytes, and the size itself stays as the caller set it.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(head), to.add(head), known - head);
        std::ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}

/// A place for a result. It is null until there is one.
pub(crate) struct Out<T>(*mut *mut T);

impl<T> Out<T> {
    /// # Safety
    /// It is null or points to a place for a pointer.
    pub(crate) unsafe fn new(place: *mut *mut T, what: &str) -> Result<Self> {
        if place.is_null() {
            return Err(null(what));
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(Self(place))
    }

    /// Hands a value over to C, which frees it.
    pub(crate) fn give(self, value: T) {
        // SAFETY: `new` found a place.
        unsafe { self.0.write(Box::into_raw(Box::new(value))) };
    }
}

/// Hands a text over to C, if it wants one.
///
/// # Safety
/// `place` is null or points to a place for a pointer.
pub(crate) unsafe fn give_text(place: *mut *mut c_char, text: impl Into<String>) {
    if !place.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { place.write(c_string(text.into()).into_raw()) };
    }
}

/// Writes a value, if C wants it.
///
/// # Safety
/// `place` is null or points to a place for it.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { place.write(value) };
    }
}

/// A handle that C gives back.
///
/// # Safety
/// It is null or came from [`Out::give`], and nobody uses it any more.
pub(crate) unsafe fn taken_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: not null, and the caller's promise.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// A time to wait.
pub(crate) fn duration(ns: u64) -> Duration {
    Duration::from_nanos(ns).min(LONGEST)
}

/// Frees a text that a function gave.
///
/// # Safety
/// It is null or came from a function of this library, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: not null, and the caller's promise.
        drop(unsafe { std::ffi::CString::from_raw(text) });
    }
}
