//! Subscribers. One thread takes or waits at a time; closing ends its wait from outside.

use crate::arguments::{Out, duration, options, put, reference, taken_back, text};
use crate::exclusive::Exclusive;
use crate::failure::{Failure, Result, c_string, guarded, guarded_or, thalweg_status};
use crate::gate::Gate;
use crate::node::{Port, given, thalweg_node, wait_until};
use crate::options::{subscriber_settings, thalweg_callback, thalweg_release, thalweg_subscriber_options};
use crate::sample::{Message, Receiver, thalweg_sample};
use crate::types::thalweg_type;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use thalweg::codec::Untyped;
use thalweg::{Descriptor, Node, Subscriber};

/// A subscriber.
pub struct thalweg_subscriber(Arc<Inlet>);

/// The port of a subscriber.
struct Inlet {
    name: CString,
    polled: bool,
    receiver: Arc<Receiver>,
    closed: AtomicBool,
    node: Mutex<Option<Node>>,
    taking: Exclusive<Option<Subscriber<Untyped>>>,
    callback: Option<Arc<Gate<Callback>>>,
    descriptor: OnceLock<Descriptor>,
}

/// A callback with its user pointer, which it releases when it is dropped.
pub(crate) struct Callback<F = thalweg_callback> {
    pub function: F,
    pub user: *mut c_void,
    pub release: thalweg_release,
}

// SAFETY: C says that the callback runs on threads of the library, one call at a time, and gives a user pointer for that.
unsafe impl<F> Send for Callback<F> {}

impl<F> Drop for Callback<F> {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the function and its argument are C's, and this is the only call.
            unsafe { release(self.user) };
        }
    }
}

impl Inlet {
    fn check(&self) -> Result<()> {
        self.receiver.born.check()?;
        if self.closed.load(SeqCst) { Err(Failure::closed()) } else { Ok(()) }
    }

    /// Takes a sample by `take`, which may wait.
    fn take(
        &self,
        take: impl Fn(&mut Subscriber<Untyped>) -> Option<thalweg::TakenSample<Untyped>>,
    ) -> Result<thalweg_sample> {
        self.check()?;
        let mut taking = self.taking.enter("the subscriber")?;
        let subscriber = taking.as_mut().ok_or_else(Failure::closed)?;
        loop {
            if let Some(sample) = take(subscriber) {
                return Ok(thalweg_sample::new(*sample.info(), Message::Taken(sample), self.receiver.clone()));
            }
            self.check()?;
            // A descriptor tells of the next sample; one that came meanwhile is taken now.
            if self.descriptor.get().is_none_or(|descriptor| !descriptor.arm(subscriber)) {
                return Err(Failure::timeout());
            }
        }
    }

    fn descriptor(&self) -> Result<c_int> {
        self.check()?;
        if self.polled || self.callback.is_some() {
            return Err(Failure::invalid(
                "a subscriber that is polled, or has a callback, has no descriptor: its samples don't wait",
            ));
        }
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_raw_fd());
        }
        let made = Descriptor::new()?;
        Ok(self.descriptor.get_or_init(|| made).as_raw_fd())
    }

    fn node(&self) -> Result<Node> {
        self.check()?;
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(Failure::closed)
    }

    fn connected(&self) -> Result<usize> {
        self.check()?;
        self.receiver.remote.get().map(thalweg::Remote::connected).ok_or_else(Failure::closed)
    }
}

impl Port for Inlet {
    fn close(&self) {
        if self.closed.swap(true, SeqCst) {
            return;
        }
        self.callback.iter().for_each(|gate| gate.close());
        self.receiver.remote.get().into_iter().for_each(thalweg::Remote::close);
        // The wait of another thread ends by that. This one holds the lock only if a callback runs in its own wait, and there is none.
        let subscriber = self.taking.enter("the subscriber").ok().and_then(|mut taking| taking.take());
        drop(subscriber);
        self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Opens a subscriber. The topic may be a pattern (`*` one segment, `**` any number). Without type it takes samples of any type.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_open(
    node: *const thalweg_node,
    topic: *const c_char,
    message_type: *const thalweg_type,
    given_options: *const thalweg_subscriber_options,
    subscriber: *mut *mut thalweg_subscriber,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let stated = unsafe { options(given_options, "options")? };
        let thalweg_subscriber_options { callback: function, user, release, polled, .. } = stated;
        let callback = Callback { function, user, release }; // released from here on, whatever fails
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(subscriber, "subscriber")? };
        // SAFETY: the caller's promise.
        let ((handle, node), topic) = unsafe { (given(node)?, text(topic, "topic")?) };
        // SAFETY: the caller's promise.
        let form = unsafe { message_type.as_ref() }.map(|message_type| message_type.0.clone());
        if polled && function.is_some() {
            return Err(Failure::invalid(
                "options: a callback runs on a thread of the library, and `polled` has none: choose one",
            ));
        }
        // SAFETY: the caller's promise.
        let settings = unsafe { subscriber_settings(&stated)? };
        let mut builder = node.subscriber::<Untyped>(topic).qos(settings.qos).priority(settings.priority);
        if let Some(form) = &form {
            builder = builder.described(form.description.clone());
        }
        if let Some(name) = settings.name {
            builder = builder.named(name);
        }
        if let Some(carriers) = settings.carriers {
            builder = builder.carriers(carriers);
        }
        if let Some(session) = settings.session {
            builder = builder.session(session);
        }
        if stated.on_publisher_thread {
            builder = builder.on_publisher_thread();
        }
        if polled {
            builder = builder.polled();
        }
        let receiver = Arc::new(Receiver::new(form));
        let gate = Arc::new(Gate::new(callback));
        let (opened, gate) = match function {
            None => (builder.open()?, None),
            Some(function) => {
                let (inside, of) = (gate.clone(), receiver.clone());
                let opened = builder.callback(move |sample| {
                    let message: &[u8] = &sample;
                    let lent = thalweg_sample::new(*sample.info(), Message::Lent(message), of.clone());
                    // SAFETY: the function and its user pointer are C's; the sample is valid until it returns.
                    inside.run(|callback| unsafe { function(&raw const lent, callback.user) });
                });
                (opened?, Some(gate))
            }
        };
        let _ = receiver.remote.set(opened.remote());
        let inlet = Arc::new(Inlet {
            name: c_string(opened.name()),
            polled,
            receiver,
            closed: AtomicBool::new(false),
            node: Mutex::new(Some(node)),
            taking: Exclusive::new(Some(opened)),
            callback: gate,
            descriptor: OnceLock::new(),
        });
        let port: Weak<Inlet> = Arc::downgrade(&inlet);
        handle.keep(port)?;
        out.give(thalweg_subscriber(inlet));
        Ok(())
    })
}

/// Name of the port; valid as long as the subscriber.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_name(subscriber: *const thalweg_subscriber) -> *const c_char {
    // SAFETY: the caller's promise.
    guarded_or(c"".as_ptr(), || unsafe { Ok(reference(subscriber, "subscriber")?.0.name.as_ptr()) })
}

/// Takes the oldest waiting sample. THALWEG_TIMEOUT: none waits.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_take(
    subscriber: *const thalweg_subscriber,
    sample: *mut *mut thalweg_sample,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (out, inlet) = unsafe { (Out::new(sample, "sample")?, &reference(subscriber, "subscriber")?.0) };
        out.give(inlet.take(Subscriber::take)?);
        Ok(())
    })
}

/// Takes the oldest waiting sample; waits for one.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_wait(
    subscriber: *const thalweg_subscriber,
    timeout_ns: u64,
    sample: *mut *mut thalweg_sample,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (out, inlet) = unsafe { (Out::new(sample, "sample")?, &reference(subscriber, "subscriber")?.0) };
        let timeout: Duration = duration(timeout_ns);
        out.give(inlet.take(|subscriber| subscriber.wait(timeout))?);
        Ok(())
    })
}

/// A descriptor for poll(2) and the like. It becomes readable when a sample comes after a `take` or `wait` that found none: take until
/// THALWEG_TIMEOUT, then wait for it. It belongs to the subscriber, is closed with it, and is not read.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_descriptor(
    subscriber: *const thalweg_subscriber,
    descriptor: *mut c_int,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let inlet = unsafe { &reference(subscriber, "subscriber")?.0 };
        if descriptor.is_null() {
            return Err(Failure::invalid("descriptor is a null pointer"));
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { put(descriptor, inlet.descriptor()?) };
        Ok(())
    })
}

/// Waits until at least `count` channels exist.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_wait_connected(
    subscriber: *const thalweg_subscriber,
    count: usize,
    timeout_ns: u64,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let inlet = unsafe { &reference(subscriber, "subscriber")?.0 };
        wait_until(&inlet.node()?, duration(timeout_ns), || Ok(inlet.connected()? >= count))
    })
}

/// Closes the port. No callback runs after it, unless it is called by the callback itself, which ends then.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_close(subscriber: *const thalweg_subscriber) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let inlet = unsafe { &reference(subscriber, "subscriber")?.0 };
        inlet.receiver.born.check()?;
        inlet.close();
        Ok(())
    })
}

/// Frees a subscriber; closes it if it is open.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_subscriber_free(subscriber: *mut thalweg_subscriber) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(subscriber) = (unsafe { taken_back(subscriber) }) else { return Ok(()) };
        match subscriber.0.receiver.born.is_here() {
            true => subscriber.0.close(),
            false => std::mem::forget(subscriber), // its threads and locks are the parent's
        }
        Ok(())
    });
}
