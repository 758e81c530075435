//! What Cyclone says: it writes to the standard error unless somebody else takes it.

use cyclors::{dds_log_data_t, dds_set_log_sink};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// What Cyclone has complained of: malformed packets, samples that are too large, configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// The number.
    pub count: u64,
    /// The last one, at most 200 characters.
    pub last: String,
}

/// Most characters that are kept. A packet may state a name of 64 KiB.
const LONGEST: usize = 200;

/// By Cyclone's number of the domain, of those that are open; what is of none has the largest number.
static COMPLAINTS: Mutex<BTreeMap<u32, Complaints>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<u32, Complaints>> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What Cyclone has complained of in a domain.
pub(crate) fn complaints(domain: u32) -> Complaints {
    all().get(&domain).cloned().unwrap_or_default()
}

/// The last complaint in a domain, or in none: the reason why the domain could not be joined.
pub(crate) fn reason(domain: u32) -> Option<String> {
    let mut all = all();
    let of = [all.remove(&domain), all.remove(&u32::MAX)];
    of.into_iter().flatten().find(|complaints| complaints.count > 0).map(|complaints| complaints.last)
}

/// Takes what is said of a domain from now on, until it is forgotten.
pub(crate) fn expect(domain: u32) {
    all().insert(domain, Complaints::default());
}

/// Forgets a domain. What Cyclone says of it while it closes is of no use to anybody.
pub(crate) fn forget(domain: u32) {
    all().remove(&domain);
}

/// Takes what Cyclone says from now on.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    // SAFETY: the function is there as long as the process, and uses no argument.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(take), std::ptr::null_mut()) });
}

unsafe extern "C" fn take(_: *mut c_void, data: *const dds_log_data_t) {
    // SAFETY: Cyclone passes a whole message, which lives until this returns.
    let Some(data) = (unsafe { data.as_ref() }).filter(|data| !data.message.is_null()) else { return };
    // SAFETY: the message ends with a zero byte (`dds_log_data_t`).
    let text = unsafe { CStr::from_ptr(data.message) }.to_string_lossy();
    let mut all = all();
    if data.domid == u32::MAX {
        all.entry(u32::MAX).or_default();
    }
    let Some(complaints) = all.get_mut(&data.domid) else { return };
    complaints.count += 1;
    complaints.last.clear();
    complaints.last.extend(text.trim_end().chars().take(LONGEST));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no participant: theirs begin with 1000.
    const DOMAIN: u32 = 7;

    #[test]
    fn what_is_said_of_a_domain_that_is_not_open_is_not_kept() {
        let say = || {
            // SAFETY: numbers and pointers, for which all zeros are a value.
            let mut data: dds_log_data_t = unsafe { std::mem::zeroed() };
            (data.domid, data.message) = (DOMAIN, c"malformed\n".as_ptr());
            // SAFETY: the message is whole.
            unsafe { take(std::ptr::null_mut(), &data) };
        };
        say();
        assert!(!all().contains_key(&DOMAIN));
        expect(DOMAIN);
        say();
        assert_eq!(complaints(DOMAIN), Complaints { count: 1, last: "malformed".to_owned() });
        forget(DOMAIN);
        say();
        assert!(!all().contains_key(&DOMAIN));
    }
}
