//! Messages that are written in place. A loan holds the lock of its publisher, so it stays on its thread.

use crate::arguments::{Out, put, reference, taken_back};
use crate::exclusive::{Entered, this_thread};
use crate::failure::{Failure, Result, guarded, thalweg_status};
use crate::publisher::{Outlet, Writing, thalweg_published, thalweg_publisher};
use std::ffi::c_void;
use std::sync::Arc;
use thalweg::Loan;
use thalweg::codec::Untyped;

/// A message that is being written in place.
pub struct thalweg_loan {
    // Dropped in the order of the fields: each borrows from the next one.
    loan: Option<Loan<'static, Untyped>>,
    _entered: Entered<'static, Option<Writing>>,
    outlet: Arc<Outlet>,
    thread: usize,
}

impl thalweg_loan {
    fn take(outlet: &Arc<Outlet>, len: usize) -> Result<Self> {
        outlet.check_length(len)?;
        let entered = outlet.enter()?;
        // SAFETY: the lock lives in the outlet, which the loan keeps, and is given up before it (order of fields).
        let mut entered =
            unsafe { std::mem::transmute::<Entered<'_, Option<Writing>>, Entered<'static, Option<Writing>>>(entered) };
        let writing = entered.as_mut().ok_or_else(Failure::closed)?;
        let loan = writing.publisher.loan(len)?;
        // SAFETY: the publisher lives in the outlet behind the lock, which the loan keeps locked until it is gone itself.
        let loan = unsafe { std::mem::transmute::<Loan<'_, Untyped>, Loan<'static, Untyped>>(loan) };
        Ok(Self { loan: Some(loan), _entered: entered, outlet: outlet.clone(), thread: this_thread() })
    }
}

/// Takes back a loan, on its own thread.
///
/// # Safety
/// The pointer is null or a loan, which nobody else uses.
unsafe fn own(loan: *mut thalweg_loan) -> Result<Box<thalweg_loan>> {
    // SAFETY: the caller's promise.
    let found = unsafe { reference(loan, "loan")? };
    found.outlet.check_process()?;
    if found.thread != this_thread() {
        return Err(Failure::invalid("the loan belongs to the thread that took it: publish or drop it there"));
    }
    // SAFETY: the caller's promise; it is not null.
    unsafe { taken_back(loan) }.ok_or_else(Failure::closed)
}

/// A message of `len` bytes, to be written in place at `data`: in the subscribers' own shared memory where the carrier allows. Its content is
/// left over from an older one. Other calls of the publisher wait until the loan is published or dropped; on the same thread they are
/// refused.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_loan(
    publisher: *const thalweg_publisher,
    len: usize,
    loan: *mut *mut thalweg_loan,
    data: *mut *mut c_void,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(loan, "loan")? };
        if data.is_null() {
            return Err(Failure::invalid("data is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let mut taken = thalweg_loan::take(unsafe { &reference(publisher, "publisher")?.0 }, len)?;
        let place = taken.loan.as_mut().map_or(std::ptr::null_mut(), |loan| loan.bytes_mut().as_mut_ptr());
        // SAFETY: not null, and the caller's promise.
        unsafe { put(data, place.cast()) };
        out.give(taken);
        Ok(())
    })
}

/// Publishes a loan, which is gone then, also after an error. Only a call on another thread than that of the loan leaves it. `published` may
/// be null.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_loan_publish(
    loan: *mut thalweg_loan,
    published: *mut thalweg_published,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let mut loan = unsafe { own(loan)? };
        let found = loan.loan.take().ok_or_else(Failure::closed)?.publish()?;
        // SAFETY: the caller's promise.
        unsafe { put(published, found.into()) };
        Ok(())
    })
}

/// Drops a loan: nothing is published.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_loan_drop(loan: *mut thalweg_loan) -> thalweg_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { own(loan) }.map(drop))
}
