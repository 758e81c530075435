//! Requests and replies: clients and servers as those of Rust (`thalweg::Client`, `thalweg::Server`), of types known at run time.
//!
//! A question and its answer travel with the asker's id and the question's number before them, as the structure `Numbered` of the library:
//! two numbers of 8 bytes, so that the body behind them is aligned as it is on its own.

mod numbers;

use crate::arguments::{Out, bytes, duration, reference, taken_back, text};
use crate::exclusive::Exclusive;
use crate::failure::{Failure, Result, guarded, guarded_or, thalweg_status};
use crate::fork::Born;
use crate::gate::Gate;
use crate::node::{Port, given, thalweg_node, wait_until};
use crate::options::thalweg_release;
use crate::sample::{Message, Receiver, thalweg_sample};
use crate::subscriber::Callback;
use crate::types::{Form, thalweg_type};
use numbers::{numbered, with_numbers, without_numbers};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::{Node, Publisher, Subscriber};

/// Asks questions of a server.
pub struct thalweg_client(Arc<Asker>);

/// Answers questions.
pub struct thalweg_server(Arc<Answerer>);

/// The answer that a server is about to give.
pub struct thalweg_reply {
    form: Arc<Form>,
    message: Option<Vec<u8>>,
}

/// Answers a question, on a thread of the library, with thalweg_reply_data or thalweg_reply_value. Without them there is no answer, and the
/// client's time passes. It must not throw.
pub type thalweg_answer =
    Option<unsafe extern "C" fn(question: *const thalweg_sample, reply: *mut thalweg_reply, user: *mut c_void)>;

/// The two ports of a client.
struct Asker {
    id: u64,
    topic: String,
    question: Arc<Form>,
    receiver: Arc<Receiver>,
    closed: AtomicBool,
    asking: Exclusive<Option<Asking>>,
}

struct Asking {
    node: Node,
    number: u64,
    questions: Publisher<Untyped>,
    answers: Subscriber<Untyped>,
}

/// The two ports of a server.
struct Answerer {
    born: Born,
    gate: Arc<Gate<Answering>>,
    questions: Mutex<Option<Subscriber<Untyped>>>,
}

/// What a question needs to be answered.
struct Answering {
    callback: Callback<thalweg_answer>,
    form: Arc<Form>,
    answers: Publisher<Untyped>,
}

/// Tells clients of one node apart.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

fn reply_topic(topic: &str) -> String {
    format!("{topic}/reply")
}

impl Asker {
    fn check(&self) -> Result<()> {
        self.receiver.born.check()?;
        if self.closed.load(SeqCst) { Err(Failure::closed()) } else { Ok(()) }
    }

    /// Asks a question, and waits for its answer.
    fn call(&self, message: &[u8], timeout: Duration) -> Result<thalweg_sample> {
        self.check()?;
        let until = Instant::now() + timeout;
        let mut asking = self.asking.enter("the client")?;
        let Asking { node, number, questions, answers } = asking.as_mut().ok_or_else(Failure::closed)?;
        *number += 1;
        let sent = with_numbers(self.id, *number, message)?;
        wait_until(node, timeout, || {
            self.check()?;
            Ok(questions.connected() > 0 && answers.connected() > 0)
        })
        .map_err(|failure| self.absent(failure, "no server on", timeout))?;
        questions.publish(&sent)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(answer) = answers.wait(left) else {
                self.check()?;
                return Err(self.absent(Failure::timeout(), "no answer on", timeout));
            };
            match without_numbers(answer.bytes()) {
                Some((asker, of, body)) if (asker, of) == (self.id, *number) => {
                    return Ok(thalweg_sample::new(*answer.info(), Message::Own(body), self.receiver.clone()));
                }
                _ => {} // another client's, or late
            }
        }
    }

    /// A timeout with what was not there.
    fn absent(&self, failure: Failure, what: &str, timeout: Duration) -> Failure {
        match failure.is_timeout() {
            true => Failure::new(
                thalweg_status::THALWEG_TIMEOUT,
                format!("{what} {} within {} ms: start a server, or wait longer", self.topic, timeout.as_millis()),
            ),
            false => failure,
        }
    }
}

impl Port for Asker {
    fn close(&self) {
        if !self.closed.swap(true, SeqCst) {
            self.receiver.remote.get().into_iter().for_each(thalweg::Remote::close);
            let asking = self.asking.enter("the client").ok().and_then(|mut asking| asking.take());
            drop(asking);
        }
    }
}

impl Port for Answerer {
    fn close(&self) {
        self.gate.close();
        let questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(questions);
    }
}

impl Answering {
    /// Answers a question that arrived.
    fn answer(&mut self, info: thalweg::SampleInfo, sent: &[u8], receiver: &Arc<Receiver>) {
        let Some((asker, number, body)) = without_numbers(sent) else { return };
        let question = thalweg_sample::new(info, Message::Own(body), receiver.clone());
        let mut reply = thalweg_reply { form: self.form.clone(), message: None };
        if let Some(function) = self.callback.function {
            // SAFETY: the function and its user pointer are C's; question and reply are valid until it returns.
            unsafe { function(&raw const question, &raw mut reply, self.callback.user) };
        }
        // A client that has left needs no answer. What has no right form was refused when it was given.
        let sent = reply.message.and_then(|message| with_numbers(asker, number, &message).ok());
        sent.into_iter().for_each(|sent| drop(self.answers.publish(&sent)));
    }
}

/// Answers questions on `topic` until it is closed. `release` is called as for a subscriber's callback. Types are structures or types of
/// ROS 2.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_open(
    node: *const thalweg_node,
    topic: *const c_char,
    question: *const thalweg_type,
    answer: *const thalweg_type,
    answering: thalweg_answer,
    user: *mut c_void,
    release: thalweg_release,
    server: *mut *mut thalweg_server,
) -> thalweg_status {
    guarded(|| {
        let callback = Callback { function: answering, user, release }; // released from here on, whatever fails
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(server, "server")? };
        if answering.is_none() {
            return Err(Failure::invalid("answering is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let ((handle, node), topic) = unsafe { (given(node)?, text(topic, "topic")?) };
        // SAFETY: the caller's promise.
        let (question, form) =
            unsafe { (reference(question, "question")?.0.clone(), reference(answer, "answer")?.0.clone()) };
        let of_questions = numbered(&question)?;
        let answers = node.publisher::<Untyped>(&reply_topic(topic)).described(numbered(&form)?).open()?;
        let receiver = Arc::new(Receiver::new(Some(question)));
        let questions = node.subscriber::<Untyped>(topic).described(of_questions).answering_with(&answers);
        let gate = Arc::new(Gate::new(Answering { callback, form, answers }));
        let (inside, of) = (gate.clone(), receiver.clone());
        let questions =
            questions.callback(move |sample| inside.run(|answering| answering.answer(*sample.info(), &sample, &of)))?;
        let _ = receiver.remote.set(questions.remote());
        let answerer = Arc::new(Answerer { born: Born::here(), gate, questions: Mutex::new(Some(questions)) });
        let port: Weak<Answerer> = Arc::downgrade(&answerer);
        handle.keep(port)?;
        out.give(thalweg_server(answerer));
        Ok(())
    })
}

/// The answer: encoded bytes.
///
/// # Safety
/// Pointers are null or valid; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_data(
    reply: *mut thalweg_reply,
    data: *const c_void,
    len: usize,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (reply, data) = unsafe { (reply.as_mut(), bytes(data, len, "data")?) };
        let reply = reply.ok_or_else(|| Failure::invalid("reply is a null pointer"))?;
        with_numbers(0, 0, data)?;
        reply.message = Some(data.to_vec());
        Ok(())
    })
}

/// The answer: a C struct of the type of answers.
///
/// # Safety
/// Pointers are null or valid; `value` is the C struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_value(reply: *mut thalweg_reply, value: *const c_void) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let reply = unsafe { reply.as_mut() }.ok_or_else(|| Failure::invalid("reply is a null pointer"))?;
        let mut message = Vec::new();
        // SAFETY: the caller's promise.
        unsafe { reply.form.encode(value, &mut message)? };
        reply.message = Some(message);
        Ok(())
    })
}

/// Closes a server. No question is answered after it, unless it is called by the answering function itself, which ends then.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_close(server: *const thalweg_server) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let answerer = unsafe { &reference(server, "server")?.0 };
        answerer.born.check()?;
        answerer.close();
        Ok(())
    })
}

/// Frees a server; closes it if it is open.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_free(server: *mut thalweg_server) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(server) = (unsafe { taken_back(server) }) else { return Ok(()) };
        match server.0.born.is_here() {
            true => server.0.close(),
            false => std::mem::forget(server), // its threads and locks are the parent's
        }
        Ok(())
    });
}

/// A client of the service on `topic`.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_open(
    node: *const thalweg_node,
    topic: *const c_char,
    question: *const thalweg_type,
    answer: *const thalweg_type,
    client: *mut *mut thalweg_client,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(client, "client")? };
        // SAFETY: the caller's promise.
        let ((handle, node), topic) = unsafe { (given(node)?, text(topic, "topic")?) };
        // SAFETY: the caller's promise.
        let (question, form) =
            unsafe { (reference(question, "question")?.0.clone(), reference(answer, "answer")?.0.clone()) };
        let answers = node.subscriber::<Untyped>(&reply_topic(topic)).described(numbered(&form)?).open()?;
        let questions =
            node.publisher::<Untyped>(topic).described(numbered(&question)?).answered_at(&answers).open()?;
        let receiver = Arc::new(Receiver::new(Some(form)));
        let _ = receiver.remote.set(answers.remote());
        let asker = Arc::new(Asker {
            id: node.id().0.wrapping_add(CLIENTS.fetch_add(1, Relaxed)),
            topic: topic.to_owned(),
            question,
            receiver,
            closed: AtomicBool::new(false),
            asking: Exclusive::new(Some(Asking { node, number: 0, questions, answers })),
        });
        let port: Weak<Asker> = Arc::downgrade(&asker);
        handle.keep(port)?;
        out.give(thalweg_client(asker));
        Ok(())
    })
}

/// Asks, and waits for the answer. THALWEG_TIMEOUT: no server, or none answers in time.
///
/// # Safety
/// Pointers are null or valid; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_call(
    client: *const thalweg_client,
    data: *const c_void,
    len: usize,
    timeout_ns: u64,
    answer: *mut *mut thalweg_sample,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (out, asker) = unsafe { (Out::new(answer, "answer")?, &reference(client, "client")?.0) };
        // SAFETY: the caller's promise.
        out.give(asker.call(unsafe { bytes(data, len, "data")? }, duration(timeout_ns))?);
        Ok(())
    })
}

/// The same with C structs of the two types.
///
/// # Safety
/// Pointers are null or valid; `question` and `answer` are the C structs of the two types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_call_value(
    client: *const thalweg_client,
    question: *const c_void,
    timeout_ns: u64,
    answer: *mut c_void,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let asker = unsafe { &reference(client, "client")?.0 };
        let mut message = Vec::new();
        // SAFETY: the caller's promise.
        unsafe { asker.question.encode(question, &mut message)? };
        let found = asker.call(&message, duration(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { found.decode(answer, None) }
    })
}

/// Closes a client: a call that waits returns THALWEG_CLOSED.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_close(client: *const thalweg_client) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let asker = unsafe { &reference(client, "client")?.0 };
        asker.receiver.born.check()?;
        asker.close();
        Ok(())
    })
}

/// Frees a client; closes it if it is open.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_free(client: *mut thalweg_client) {
    guarded_or((), || {
        // SAFETY: the caller's promise.
        let Some(client) = (unsafe { taken_back(client) }) else { return Ok(()) };
        match client.0.receiver.born.is_here() {
            true => client.0.close(),
            false => std::mem::forget(client), // its threads and locks are the parent's
        }
        Ok(())
    });
}
