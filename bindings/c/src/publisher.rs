//! Publishers. A publisher and the memory in which its C structs are encoded are used by one thread at a time.

use crate::arguments::{Out, bytes, duration, options, put, reference, taken_back, text};
use crate::exclusive::{Entered, Exclusive};
use crate::failure::{Failure, Result, c_string, guarded, guarded_or, thalweg_status};
use crate::fork::Born;
use crate::node::{Port, given, thalweg_node, wait_until};
use crate::options::{publisher_settings, thalweg_publisher_options};
use crate::sample::thalweg_sample;
use crate::types::{Form, thalweg_type};
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use thalweg::codec::Untyped;
use thalweg::{Node, Published, Publisher};

/// A publisher.
pub struct thalweg_publisher(pub(crate) Arc<Outlet>);

/// The port of a publisher. A loan that is out keeps it, too.
pub(crate) struct Outlet {
    born: Born,
    name: CString,
    form: Arc<Form>,
    /// Largest message in bytes.
    most: usize,
    closed: AtomicBool,
    writing: Exclusive<Option<Writing>>,
}

/// An open publisher.
pub(crate) struct Writing {
    pub publisher: Publisher<Untyped>,
    node: Node,
    /// The message of a C struct.
    scratch: Vec<u8>,
}

/// The outcome of a publication on all channels.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_published {
    /// Number of the sample, counted from 1.
    pub seq: u64,
    /// Channels on which it was sent.
    pub sent: u32,
    /// Channels on which it waits.
    pub queued: u32,
    /// Samples that channels dropped by their policy: older ones, or this one.
    pub dropped: u32,
    /// Channels that did not take it, because their queue is full and drops no samples.
    pub refused: u32,
    /// Channels that are broken or unreachable now.
    pub not_connected: u32,
}

impl From<Published> for thalweg_published {
    fn from(published: Published) -> Self {
        let Published { seq, sent, queued, dropped, refused, not_connected, limit: _ } = published;
        Self { seq, sent, queued, dropped, refused, not_connected }
    }
}

/// The longest wait for unsent samples when a publisher is freed.
const DRAIN: Duration = Duration::from_secs(1);

impl Outlet {
    /// The open publisher, once no other thread uses it.
    pub(crate) fn enter(&self) -> Result<Entered<'_, Option<Writing>>> {
        self.born.check()?;
        let writing = self.writing.enter("the publisher")?;
        if self.closed.load(SeqCst) || writing.is_none() {
            return Err(Failure::closed());
        }
        Ok(writing)
    }

    /// Checks that it was opened in this process.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.born.check()
    }

    pub(crate) fn check_length(&self, length: usize) -> Result<()> {
        if length <= self.most {
            return Ok(());
        }
        let (name, most) = (self.name.to_string_lossy(), self.most);
        let text = format!(
            "a message of {length} bytes is over max_message of {name}, {most} bytes: open it with a larger one"
        );
        Err(Failure::new(thalweg_status::THALWEG_TOO_LARGE, text))
    }

    fn publish(&self, message: &[u8]) -> Result<Published> {
        self.check_length(message.len())?;
        let mut writing = self.enter()?;
        Ok(writing.as_mut().ok_or_else(Failure::closed)?.publisher.publish(message)?)
    }

    /// # Safety
    /// `value` is null or the C struct of the type.
    unsafe fn publish_value(&self, value: *const c_void) -> Result<Published> {
        let mut writing = self.enter()?;
        let Writing { publisher, scratch, .. } = writing.as_mut().ok_or_else(Failure::closed)?;
        scratch.clear();
        // SAFETY: the caller's promise.
        unsafe { self.form.encode(value, scratch)? };
        self.check_length(scratch.len())?;
        Ok(publisher.publish(scratch)?)
    }

    fn connected(&self) -> Result<usize> {
        Ok(self.enter()?.as_ref().map_or(0, |writing| writing.publisher.connected()))
    }

    /// Closes the port. `true` if nothing was left unsent.
    fn close_within(&self, drain: Duration) -> Result<bool> {
        self.closed.store(true, SeqCst);
        let writing = self.writing.enter("the publisher")?.take();
        Ok(writing.is_none_or(|writing| writing.publisher.close(drain)))
    }
}

impl Port for Outlet {
    fn close(&self) {
        // A loan of this very thread keeps it open: it is gone with the loan.
        let _ = self.close_within(DRAIN);
    }
}

/// Opens a publisher.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_open(
    node: *const thalweg_node,
    topic: *const c_char,
    message_type: *const thalweg_type,
    given_options: *const thalweg_publisher_options,
    publisher: *mut *mut thalweg_publisher,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(publisher, "publisher")? };
        // SAFETY: the caller's promise.
        let ((handle, node), topic) = unsafe { (given(node)?, text(topic, "topic")?) };
        // SAFETY: the caller's promise.
        let form = unsafe { reference(message_type, "message_type")? }.0.clone();
        // SAFETY: the caller's promise.
        let settings = unsafe { publisher_settings(&options(given_options, "options")?)? };
        let most = settings.qos.max_message as usize;
        let builder = node.publisher::<Untyped>(topic).described(form.description.clone());
        let mut builder = builder.qos(settings.qos).priority(settings.priority);
        if let Some(name) = settings.name {
            builder = builder.named(name);
        }
        if let Some(carriers) = settings.carriers {
            builder = builder.carriers(carriers);
        }
        if let Some(session) = settings.session {
            builder = builder.session(session);
        }
        let publisher = builder.open()?;
        let outlet = Arc::new(Outlet {
            born: Born::here(),
            name: c_string(publisher.name()),
            form,
            most,
            closed: AtomicBool::new(false),
            writing: Exclusive::new(Some(Writing { publisher, node, scratch: Vec::new() })),
        });
        let port: Weak<Outlet> = Arc::downgrade(&outlet);
        handle.keep(port)?;
        out.give(thalweg_publisher(outlet));
        Ok(())
    })
}

/// Name of the port; valid as long as the publisher.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_name(publisher: *const thalweg_publisher) -> *const c_char {
    // SAFETY: the caller's promise.
    guarded_or(c"".as_ptr(), || unsafe { Ok(reference(publisher, "publisher")?.0.name.as_ptr()) })
}

/// Publishes a message: its encoded bytes. `published` may be null.
///
/// # Safety
/// Pointers are null or valid; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_publish(
    publisher: *const thalweg_publisher,
    data: *const c_void,
    len: usize,
    published: *mut thalweg_published,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { reference(publisher, "publisher")?.0.publish(bytes(data, len, "data")?)? };
        // SAFETY: the caller's promise.
        unsafe { put(published, found.into()) };
        Ok(())
    })
}

/// Publishes a C struct of a type that has one. `published` may be null.
///
/// # Safety
/// Pointers are null or valid; `value` is the C struct of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_publish_value(
    publisher: *const thalweg_publisher,
    value: *const c_void,
    published: *mut thalweg_published,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { reference(publisher, "publisher")?.0.publish_value(value)? };
        // SAFETY: the caller's promise.
        unsafe { put(published, found.into()) };
        Ok(())
    })
}

/// Publishes a sample that another port received, with its stamp. `published` may be null.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_forward(
    publisher: *const thalweg_publisher,
    sample: *const thalweg_sample,
    published: *mut thalweg_published,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (outlet, sample) = unsafe { (&reference(publisher, "publisher")?.0, reference(sample, "sample")?) };
        outlet.check_length(sample.bytes().len())?;
        let mut writing = outlet.enter()?;
        let writing = writing.as_mut().ok_or_else(Failure::closed)?;
        let found = writing.publisher.forward(sample.info(), sample.bytes())?;
        // SAFETY: the caller's promise.
        unsafe { put(published, found.into()) };
        Ok(())
    })
}

/// Waits until at least `count` channels exist.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_wait_connected(
    publisher: *const thalweg_publisher,
    count: usize,
    timeout_ns: u64,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let outlet = unsafe { &reference(publisher, "publisher")?.0 };
        let node = outlet.enter()?.as_ref().ok_or_else(Failure::closed)?.node.clone();
        wait_until(&node, duration(timeout_ns), || Ok(outlet.connected()? >= count))
    })
}

/// Closes the port after waiting at most `drain_ns` for unsent samples. THALWEG_TIMEOUT: some were dropped.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_close(publisher: *const thalweg_publisher, drain_ns: u64) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let outlet = unsafe { &reference(publisher, "publisher")?.0 };
        outlet.born.check()?;
        if outlet.close_within(duration(drain_ns))? { Ok(()) } else { Err(Failure::timeout()) }
    })
}

/// Frees a publisher; closes it, after at most one second, if it is open.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_publisher_free(publisher: *mut thalweg_publisher) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(publisher) = (unsafe { taken_back(publisher) }) else { return Ok(()) };
        match publisher.0.born.is_here() {
            true => publisher.0.close(),
            false => std::mem::forget(publisher), // its threads and locks are the parent's
        }
        Ok(())
    });
}
