//! Received samples: taken ones, which C frees; and those of a callback, which are valid as long as it runs.

use crate::arguments::{SizeFirst, fill, reference, taken_back};
use crate::failure::{Failure, Result, c_string, guarded, guarded_or, thalweg_status};
use crate::fork::Born;
use crate::types::Form;
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use thalweg::codec::Untyped;
use thalweg::control::{NodeId, PortId};
use thalweg::{Change, Remote, SampleInfo, TakenSample};

/// A received sample.
pub struct thalweg_sample {
    info: SampleInfo,
    message: Message,
    port: Arc<Receiver>,
    /// The names of its publisher, once they were asked for.
    names: OnceLock<Arc<Names>>,
}

/// The place of a sample's message.
pub(crate) enum Message {
    /// Where it was received.
    Taken(TakenSample<Untyped>),
    /// In a callback's argument.
    Lent(*const [u8]),
    /// The body of a question or an answer.
    Own(Vec<u8>),
}

/// The port of samples, as far as they need it.
pub(crate) struct Receiver {
    pub born: Born,
    /// The type that it asked for; `None`: any.
    pub form: Option<Arc<Form>>,
    /// Set as soon as it is open.
    pub remote: OnceLock<Remote>,
    /// The publishers that were asked for last, so that not each sample makes texts for C.
    names: Mutex<VecDeque<(NodeId, PortId, Arc<Names>)>>,
}

/// Names of a publisher and of its type.
#[derive(Default)]
struct Names {
    publisher: CString,
    message_type: CString,
}

/// Publishers whose names are kept.
const MOST_NAMES: usize = 16;

impl Receiver {
    pub(crate) fn new(form: Option<Arc<Form>>) -> Self {
        Self { born: Born::here(), form, remote: OnceLock::new(), names: Mutex::default() }
    }

    fn names(&self, info: &SampleInfo) -> Arc<Names> {
        let mut kept = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., names)) = kept.iter().find(|(node, port, _)| (*node, *port) == (info.node, info.port)) {
            return names.clone();
        }
        let Some(publisher) = self.remote.get().and_then(|remote| remote.publisher(info)) else {
            return Arc::default();
        };
        let names = Arc::new(Names {
            publisher: c_string(publisher.name.clone()),
            message_type: c_string(publisher.message.name.clone()),
        });
        if kept.len() == MOST_NAMES {
            kept.pop_front();
        }
        kept.push_back((info.node, info.port, names.clone()));
        names
    }
}

/// Publisher, number and time stamps of a sample.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_sample_info {
    /// Set by the caller.
    pub size: usize,
    /// Number of the sample, counted from 1.
    pub seq: u64,
    /// Time of publication, by the monotonic clock of the publisher's host.
    pub source_ns: u64,
    /// Time of reception, by the monotonic clock of this host.
    pub received_ns: u64,
    /// From publication to reception; 0 unless `same_clock`.
    pub latency_ns: u64,
    /// Id of the publishing node.
    pub node: u64,
    /// Name of the publishing port; empty if not known. Valid as long as the sample.
    pub publisher: *const c_char,
    /// Name of its type; empty if not known. Valid as long as the sample.
    pub type_name: *const c_char,
    /// Both stamps are of one clock.
    pub same_clock: bool,
    /// It was published before the subscriber joined.
    pub historical: bool,
    /// The instance ends: only the key of the sample counts.
    pub disposed: bool,
}

// SAFETY: the size is first, and zero is a null pointer, a number or `false` in all other fields.
unsafe impl SizeFirst for thalweg_sample_info {}

impl thalweg_sample {
    pub(crate) fn new(info: SampleInfo, message: Message, port: Arc<Receiver>) -> Self {
        Self { info, message, port, names: OnceLock::new() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.message {
            Message::Taken(sample) => sample.bytes(),
            // SAFETY: the callback that has this sample still runs: it gets it by reference.
            Message::Lent(bytes) => unsafe { &**bytes },
            Message::Own(bytes) => bytes,
        }
    }

    pub(crate) fn info(&self) -> &SampleInfo {
        &self.info
    }

    /// # Safety
    /// `value` is null, or there is room for the C struct of the port's type.
    pub(crate) unsafe fn decode(&self, value: *mut c_void, room: Option<usize>) -> Result<()> {
        let form = self.port.form.as_ref().ok_or_else(|| {
            Failure::invalid("the subscriber takes any type: open it with a type that has a C struct, or decode by thalweg_type_decode")
        })?;
        // SAFETY: the caller's promise.
        unsafe { form.decode(self.bytes(), value, room) }
    }
}

/// The message, where it was received (over `shm` in the publisher's memory); valid as long as the sample. Null without sample.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sample_data(sample: *const thalweg_sample) -> *const c_void {
    // SAFETY: the caller's promise.
    guarded_or(std::ptr::null(), || unsafe { Ok(reference(sample, "sample")?.bytes().as_ptr().cast()) })
}

/// Length of the message in bytes.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sample_len(sample: *const thalweg_sample) -> usize {
    // SAFETY: the caller's promise.
    guarded_or(0, || unsafe { Ok(reference(sample, "sample")?.bytes().len()) })
}

/// Decodes the message into the C struct of the subscriber's type, of `bytes` bytes.
///
/// # Safety
/// Pointers are null or valid; `value` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sample_value(
    sample: *const thalweg_sample,
    value: *mut c_void,
    bytes: usize,
) -> thalweg_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { reference(sample, "sample")?.decode(value, Some(bytes)) })
}

/// Reads publisher, number and time stamps.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sample_read_info(
    sample: *const thalweg_sample,
    info: *mut thalweg_sample_info,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let sample = unsafe { reference(sample, "sample")? };
        let names = sample.names.get_or_init(|| sample.port.names(&sample.info));
        let found = &sample.info;
        let read = thalweg_sample_info {
            size: size_of::<thalweg_sample_info>(),
            seq: found.seq,
            source_ns: found.source_ns,
            received_ns: found.received_ns,
            latency_ns: found.latency_ns().unwrap_or(0),
            node: found.node.0,
            publisher: names.publisher.as_ptr(),
            type_name: names.message_type.as_ptr(),
            same_clock: found.same_clock,
            historical: found.historical,
            disposed: found.change != Change::Written,
        };
        // SAFETY: the caller's promise.
        unsafe { fill(info, "info", &read) }
    })
}

/// Frees a sample that was taken. A subscriber that keeps many leaves a publisher over `shm` short of memory.
///
/// # Safety
/// The pointer is null or valid, was not given to a callback, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sample_free(sample: *mut thalweg_sample) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(sample) = (unsafe { taken_back(sample) }) else { return Ok(()) };
        if !sample.port.born.is_here() {
            std::mem::forget(sample); // its place in shared memory is the parent's to give back
        }
        Ok(())
    });
}
