//! Endpoints and participants of other programs, as they come and go: the built-in topics (DDS 1.4 §2.2.5).

use crate::identities::Identities;
use crate::participant::Entities;
use crate::policies::{property, user_data};
use crate::{Guid, Participant, Policies, Result, checked};
use cyclors::*;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An endpoint, new or with other policies than before.
    End(Box<FoundEnd>),
    /// An endpoint is gone.
    EndGone(Guid),
    /// A participant, with the name of its program if it states one, and its user data.
    Participant(Guid, Option<String>, Vec<u8>),
    /// A participant is gone.
    ParticipantGone(Guid),
}

/// An endpoint of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEnd {
    /// Its identity.
    pub guid: Guid,
    /// Writes, or reads.
    pub writes: bool,
    /// The name of its topic.
    pub topic: String,
    /// The name of its type.
    pub type_name: String,
    /// Its topic has a key (DDSI-RTPS 2.5 §9.3.1.2).
    pub keyed: bool,
    /// Its policies.
    pub policies: Policies,
}

/// What a listener needs.
struct Telling {
    identities: Arc<Identities>,
    tell: Box<dyn Fn(Found) + Send + Sync>,
}

/// Tells of others until this is dropped.
pub struct Watching {
    readers: Vec<dds_entity_t>,
    telling: *mut Telling,
    _participant: Arc<Entities>,
}

// SAFETY: the pointer is used by Cyclone's calls, and by the drop after the last of them. What is behind it is `Send` and `Sync`.
unsafe impl Send for Watching {}
// SAFETY: as above.
unsafe impl Sync for Watching {}

impl Telling {
    /// The number of an endpoint is the one that messages of a writer have, too.
    fn take(&self, number: u64, guid: Guid, found: Found) {
        match &found {
            Found::End(end) if end.writes => self.identities.came(number, guid),
            Found::EndGone(_) => self.identities.went(number),
            _ => {}
        }
        if !self.identities.is_own(guid) {
            (self.tell)(found);
        }
    }
}

type Listener = unsafe extern "C" fn(dds_entity_t, *mut c_void);

impl Participant {
    /// Tells of the endpoints and participants of others, those that are there already first; of the program's own ones it does not tell.
    /// `tell` is called on threads of Cyclone, with which it must be quick; it must not use this participant.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if Cyclone refuses.
    pub fn watch(&self, tell: impl Fn(Found) + Send + Sync + 'static) -> Result<Watching> {
        let telling = Box::into_raw(Box::new(Telling { identities: self.0.identities.clone(), tell: Box::new(tell) }));
        let mut watching = Watching { readers: Vec::new(), telling, _participant: self.0.clone() };
        let builtin: [(dds_entity_t, Listener); 3] = [
            (DDS_BUILTIN_TOPIC_DCPSPARTICIPANT, participants),
            (DDS_BUILTIN_TOPIC_DCPSPUBLICATION, writers),
            (DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION, readers),
        ];
        for (topic, listener) in builtin {
            // SAFETY: the participant is ours. The listener is copied; what it points to is freed after the readers.
            let reader = unsafe {
                let calls = dds_create_listener(telling.cast());
                dds_lset_data_available(calls, Some(listener));
                let reader = dds_create_reader(self.0.participant, topic, std::ptr::null(), calls);
                dds_delete_listener(calls);
                reader
            };
            watching.readers.push(checked("discovery", reader)?);
        }
        Ok(watching)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // SAFETY: the readers are ours. Cyclone waits for their listeners before it returns, and calls them no more.
        unsafe {
            for reader in &self.readers {
                dds_delete(*reader);
            }
            drop(Box::from_raw(self.telling));
        }
    }
}

unsafe extern "C" fn participants(reader: dds_entity_t, telling: *mut c_void) {
    // SAFETY: the listener's argument lives, and the samples of this topic are participants.
    unsafe { take_all(reader, telling, participant) };
}

unsafe extern "C" fn writers(reader: dds_entity_t, telling: *mut c_void) {
    // SAFETY: the listener's argument lives, and the samples of this topic are endpoints.
    unsafe { take_all(reader, telling, |sample, alive| end(sample, alive, true)) };
}

unsafe extern "C" fn readers(reader: dds_entity_t, telling: *mut c_void) {
    // SAFETY: as above.
    unsafe { take_all(reader, telling, |sample, alive| end(sample, alive, false)) };
}

/// # Safety
/// `telling` is null or the listener's argument, and `found` reads samples of the reader's topic.
unsafe fn take_all(
    reader: dds_entity_t,
    telling: *mut c_void,
    found: impl Fn(*const c_void, bool) -> Option<(Guid, Found)>,
) {
    // SAFETY: the caller's promise.
    let Some(telling) = (unsafe { telling.cast::<Telling>().as_ref() }) else { return };
    loop {
        let mut sample: *mut c_void = null_mut();
        // SAFETY: plain numbers, for which all zeros are a value.
        let mut info: dds_sample_info_t = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for one sample, which Cyclone lends.
        let count = unsafe { dds_take(reader, &mut sample, &mut info, 1, 1) };
        if count < 1 {
            return;
        }
        let alive = info.instance_state == dds_instance_state_DDS_IST_ALIVE;
        // A panic must not reach Cyclone.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some((guid, found)) = found(sample, alive) {
                telling.take(info.instance_handle, guid, found);
            }
        }));
        // SAFETY: the sample was lent, and is given back.
        unsafe { dds_return_loan(reader, &mut sample, count) };
    }
}

fn participant(sample: *const c_void, alive: bool) -> Option<(Guid, Found)> {
    // SAFETY: the sample is a participant that Cyclone lends meanwhile (`take_all`).
    let sample = unsafe { sample.cast::<dds_builtintopic_participant_t>().as_ref() }?;
    let guid = Guid(sample.key.v);
    if !alive {
        return Some((guid, Found::ParticipantGone(guid)));
    }
    // SAFETY: the policies live as long as the sample.
    let (name, data) = unsafe {
        let data = if sample.qos.is_null() { Vec::new() } else { user_data(sample.qos) };
        (property(sample.qos, c"__ProcessName"), data)
    };
    Some((guid, Found::Participant(guid, name, data)))
}

fn end(sample: *const c_void, alive: bool, writes: bool) -> Option<(Guid, Found)> {
    // SAFETY: the sample is an endpoint that Cyclone lends meanwhile (`take_all`).
    let sample = unsafe { sample.cast::<dds_builtintopic_endpoint_t>().as_ref() }?;
    let guid = Guid(sample.key.v);
    if !alive {
        return Some((guid, Found::EndGone(guid)));
    }
    let topic = text(sample.topic_name)?;
    let type_name = text(sample.type_name)?;
    if topic.starts_with("DCPS") {
        return None; // Cyclone's own
    }
    let keyed = matches!(guid.0[15] & 0x3f, 0x02 | 0x07);
    // SAFETY: the policies live as long as the sample.
    let policies = unsafe { Policies::read(sample.qos) };
    Some((guid, Found::End(Box::new(FoundEnd { guid, writes, topic, type_name, keyed, policies }))))
}

fn text(text: *const c_char) -> Option<String> {
    // SAFETY: Cyclone's texts end with a zero byte, and live as long as the sample.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
