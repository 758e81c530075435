//! Writers and readers.

use crate::blob::{self, End, Topic};
use crate::identities::Identities;
use crate::keyed::{Content, said};
use crate::layout::Layout;
use crate::participant::{Entities, guid};
use crate::policies::{of_reader, of_writer};
use crate::waiting::{Waiting, available};
use crate::{Error, Guid, Participant, Policies, Result, checked};
use cyclors::*;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Length of the header of a message: 2 bytes of encapsulation, 2 of options (DDSI-RTPS 2.5 §10.2).
const HEADER: usize = 4;
/// The options' bits that count the bytes of padding at the end (DDS-XTypes 1.3 §7.6.3.1.2): messages are multiples of 4 on the wire.
const PADDING: u8 = 3;

/// A writer. It closes when it is dropped.
pub struct Writer {
    writer: dds_entity_t,
    guid: Guid,
    /// Readers by Cyclone's numbers of them: `true` for those of own participants.
    readers: Mutex<HashMap<u64, bool>>,
    /// Its topic has a key.
    keyed: bool,
    _topic: Topic,
    participant: Arc<Entities>,
}

impl Writer {
    /// Writes a message that was published at `timestamp`, in nanoseconds since 1970. A reliable writer waits for room, as its policies say.
    ///
    /// # Errors
    /// [`Error`] for a message without its header, if there was no room in time, or if Cyclone refuses it.
    pub fn write(&self, message: &[u8], timestamp: i64) -> Result<()> {
        self.send(None, message, timestamp)
    }

    /// Ends an instance of a topic with a key: `key` is a message of the members of its key alone, in their order.
    ///
    /// # Errors
    /// As [`Self::write`]; and of a topic without a key.
    pub fn end(&self, end: End, key: &[u8], timestamp: i64) -> Result<()> {
        match self.keyed {
            true => self.send(Some(end), key, timestamp),
            false => Err(Error("the end of an instance of a topic without a key".to_owned())),
        }
    }

    fn send(&self, end: Option<End>, message: &[u8], timestamp: i64) -> Result<()> {
        let Some((header, value)) = message.split_first_chunk::<HEADER>() else {
            return Err(Error(format!("{} bytes are no message: its encapsulation header has 4", message.len())));
        };
        let padding = (HEADER - value.len() % HEADER) % HEADER;
        let [first, second, third, options] = *header;
        let header = [first, second, third, (options & !PADDING) | padding as u8];
        let made = blob::message(self.writer, end, &[&header, value, &[0; 3][..padding]], timestamp)?;
        // SAFETY: the message is ours, and given away.
        checked("writing", unsafe { dds_forwardcdr(self.writer, made) }).map(drop)
    }

    /// `true` if all reliable readers have acknowledged all that it has written: the next message does not wait for room.
    pub fn is_acknowledged(&self) -> bool {
        // SAFETY: the function takes any number. It does not wait.
        unsafe { dds_wait_for_acks(self.writer, 0) == 0 }
    }

    /// As [`Self::is_acknowledged`], but waits for it, at most for `patience`.
    pub fn wait_acknowledged(&self, patience: Duration) -> bool {
        let patience = i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: the function takes any number.
        unsafe { dds_wait_for_acks(self.writer, patience) == 0 }
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Readers of other programs that match it now.
    pub fn matched(&self) -> u32 {
        // SAFETY: plain numbers, for which all zeros are a value.
        let mut status: dds_publication_matched_status_t = unsafe { std::mem::zeroed() };
        // SAFETY: the place is to be filled.
        let known = unsafe { dds_get_publication_matched_status(self.writer, &mut status) };
        let count = if known < 0 { 0 } else { status.current_count };
        let is_alone = self.participant.identities.own().len() == 1;
        if count == 0 || is_alone { count } else { self.matched_by_others(count) }
    }

    /// `count` is the number of all that match it.
    fn matched_by_others(&self, count: u32) -> u32 {
        let mut numbers = vec![0; count as usize];
        // SAFETY: there is room for as many numbers as are asked for, which is at least one.
        let found = unsafe { dds_get_matched_subscriptions(self.writer, numbers.as_mut_ptr(), numbers.len()) };
        numbers.truncate(usize::try_from(found).unwrap_or_default());
        let mut known = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|number, _| numbers.contains(number));
        let is_other = |number: &u64| match known.get(number).copied() {
            Some(own) => !own,
            None => self.reader(*number).is_some_and(|reader| {
                let own = self.participant.identities.is_own(reader);
                known.insert(*number, own);
                !own
            }),
        };
        u32::try_from(numbers.iter().copied().filter(is_other).count()).unwrap_or(count)
    }

    fn reader(&self, number: u64) -> Option<Guid> {
        // SAFETY: Cyclone gives a copy, or nothing; it is given back.
        unsafe {
            let end = dds_get_matched_subscription_data(self.writer, number);
            let guid = Guid(end.as_ref()?.key.v);
            dds_builtintopic_free_endpoint(end);
            Some(guid)
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: the writer is ours.
        unsafe { dds_delete(self.writer) };
    }
}

/// A message that came.
pub struct Taken<'a> {
    /// The encoded message with its header.
    pub message: &'a [u8],
    /// What its bytes are: without a key of the topic a value.
    pub content: Content,
    /// The end of an instance that it states.
    pub end: Option<End>,
    /// Its writer, unless that is gone already.
    pub writer: Option<Guid>,
    /// The time that its writer states, in nanoseconds since 1970.
    pub timestamp: i64,
}

/// A reader. It closes when it is dropped, and waits for a call of its function meanwhile.
pub struct Reader {
    reader: dds_entity_t,
    guid: Guid,
    waiting: Arc<Waiting>,
    thread: Option<JoinHandle<()>>,
    _topic: Topic,
    _participant: Arc<Entities>,
}

type Take = Box<dyn FnMut(&Taken<'_>) + Send>;

struct Taking {
    take: Take,
    identities: Arc<Identities>,
    /// Writers by Cyclone's numbers of them; nothing for those of own participants.
    writers: HashMap<u64, Option<Guid>>,
    whole: Vec<u8>,
    /// The topic has a key.
    keyed: bool,
}

/// Writers that are remembered. Their identities are asked for again afterwards.
const MOST_WRITERS: usize = 4096;

impl Reader {
    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.guid
    }
}

impl Participant {
    /// Opens a writer of a topic, with the structure of its type if it has a key. Readers of own participants do not count for it.
    ///
    /// # Errors
    /// [`Error`] for a name or a policy that Cyclone refuses.
    pub fn writer(&self, topic: &str, type_name: &str, key: Option<&Layout>, policies: &Policies) -> Result<Writer> {
        let (participant, keyed) = (self.0.participant, key.is_some());
        let topic = match key {
            Some(layout) => Topic::open_described(participant, topic, type_name, layout)?,
            None => Topic::open(participant, topic, type_name)?,
        };
        let qos = of_writer(policies);
        // SAFETY: participant and topic are ours, the policies valid and copied; no listener.
        let writer = unsafe { dds_create_writer(participant, topic.0, qos.as_ptr(), std::ptr::null()) };
        let writer = checked("a writer", writer)?;
        let (readers, participant) = (Mutex::default(), self.0.clone());
        Ok(Writer { writer, guid: guid(writer)?, readers, keyed, _topic: topic, participant })
    }

    /// Opens a reader of a topic, which has a key or none. `take` is called with each message of other programs, on a thread of the reader's
    /// own; calls do not overlap. It must not drop the reader. The messages of all instances are in one order, as they come.
    ///
    /// # Errors
    /// As [`Participant::writer`], or if there is no thread.
    pub fn reader(&self, topic: &str, type_name: &str, keyed: bool, policies: &Policies, take: Take) -> Result<Reader> {
        let participant = self.0.participant;
        let topic = match keyed {
            true => Topic::open_keyed(participant, topic, type_name)?,
            false => Topic::open(participant, topic, type_name)?,
        };
        let qos = of_reader(policies);
        let waiting = Arc::new(Waiting::default());
        // SAFETY: participant and topic are ours, policies and listener are copied. What the listener points to is freed after the reader.
        let reader = unsafe {
            let listener = dds_create_listener(Arc::as_ptr(&waiting).cast_mut().cast());
            dds_lset_data_available(listener, Some(available));
            let reader = dds_create_reader(participant, topic.0, qos.as_ptr(), listener);
            dds_delete_listener(listener);
            reader
        };
        let reader = checked("a reader", reader)?;
        // From here on the drop closes it.
        let (none, participant) = (Guid([0; 16]), self.0.clone());
        let mut opened = Reader { reader, guid: none, waiting, thread: None, _topic: topic, _participant: participant };
        opened.guid = guid(reader)?;
        let (waits, identities) = (opened.waiting.clone(), self.0.identities.clone());
        let taking = Taking { take, identities, writers: HashMap::new(), whole: Vec::new(), keyed };
        let body = move || serve(reader, &waits, taking);
        let thread = std::thread::Builder::new().name("dds-take".to_owned()).spawn(body);
        opened.thread = Some(thread.map_err(|error| Error(format!("a thread for a reader: {error}")))?);
        Ok(opened)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.waiting.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // SAFETY: the reader is ours. Cyclone waits for its listener before it returns, and calls it no more.
        unsafe { dds_delete(self.reader) };
    }
}

/// Takes what comes until the end.
fn serve(reader: dds_entity_t, waiting: &Waiting, mut taking: Taking) {
    while waiting.wait() {
        // A panic of a user's function costs its message.
        let take = || while !waiting.is_over() && take_one(reader, &mut taking) {};
        if catch_unwind(AssertUnwindSafe(take)).is_err() {
            drop(waiting.count()); // there may be more
        }
    }
}

fn take_one(reader: dds_entity_t, taking: &mut Taking) -> bool {
    let mut message: *mut ddsi_serdata = null_mut();
    // SAFETY: plain numbers, for which all zeros are a value.
    let mut info: dds_sample_info_t = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for one message and what is known of it.
    let count = unsafe { dds_takecdr(reader, &mut message, 1, &mut info, DDS_ANY_STATE) };
    if count < 1 || message.is_null() {
        return false;
    }
    let message = Held(message);
    // Without a message the one instance of the reader has changed, which says nothing of those of the topic.
    if info.valid_data {
        taking.pass(reader, &message, &info);
    }
    true
}

/// A message that Cyclone has given.
struct Held(*mut ddsi_serdata);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it is ours to give back.
        unsafe { ddsi_serdata_unref(self.0) };
    }
}

impl Taking {
    fn pass(&mut self, reader: dds_entity_t, message: &Held, info: &dds_sample_info_t) {
        let Ok(writer) = self.writer(reader, info.publication_handle) else { return };
        let Taking { take, whole, keyed, .. } = self;
        let timestamp = info.source_timestamp;
        // SAFETY: the message is held meanwhile.
        unsafe {
            let said = message.0.as_ref().filter(|_| *keyed).map(said);
            let (content, end) = said.unwrap_or((Content::Value, None));
            blob::with_bytes(message.0, |bytes| {
                take(&Taken { message: without_padding(bytes, whole), content, end, writer, timestamp });
            });
        }
    }

    /// The writer with this number, if it is known.
    ///
    /// # Errors
    /// [`IsOwn`] for a writer of an own participant.
    fn writer(&mut self, reader: dds_entity_t, number: u64) -> std::result::Result<Option<Guid>, IsOwn> {
        if let Some(known) = self.writers.get(&number) {
            return known.map(Some).ok_or(IsOwn);
        }
        let Some(guid) = matched_writer(reader, number).or_else(|| self.identities.writer(number)) else {
            return Ok(None);
        };
        if self.writers.len() == MOST_WRITERS {
            self.writers.clear();
        }
        let other = Some(guid).filter(|guid| !self.identities.is_own(*guid));
        self.writers.insert(number, other);
        other.map(Some).ok_or(IsOwn)
    }
}

/// The message is the program's own.
struct IsOwn;

fn matched_writer(reader: dds_entity_t, number: u64) -> Option<Guid> {
    // SAFETY: Cyclone gives a copy, or nothing; it is given back.
    unsafe {
        let end = dds_get_matched_publication_data(reader, number);
        let guid = Guid(end.as_ref()?.key.v);
        dds_builtintopic_free_endpoint(end);
        Some(guid)
    }
}

/// The message as it was before it was padded. `room` is used if its header has to change.
fn without_padding<'a>(bytes: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    let padding = bytes.get(HEADER - 1).map_or(0, |options| usize::from(options & PADDING));
    if padding == 0 || bytes.len() < HEADER + padding {
        return bytes;
    }
    room.clear();
    room.extend_from_slice(&bytes[..bytes.len() - padding]);
    room[HEADER - 1] &= !PADDING;
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_taken_off_as_far_as_there_is_any() {
        let mut room = Vec::new();
        assert_eq!(without_padding(&[0, 1, 0, 3, 7, 0, 0, 0], &mut room), [0, 1, 0, 0, 7]);
        for whole in [&[0, 1, 0, 0, 7, 0, 0, 0][..], &[0, 1, 0, 3], &[0, 1, 0, 2, 9], &[0, 1], &[]] {
            assert_eq!(without_padding(whole, &mut room), whole);
        }
    }
}
