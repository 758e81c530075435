//! Messages as Cyclone holds them: bytes, of which it knows no more than the header. Their type is that of `cyclors` for topics whose structure
//! nobody knows (`cyclocut/src/cdds_util.c`).

use crate::{Error, Result, c_text, checked};
use cyclors::*;
use std::ptr::{null, null_mut};

/// The end of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is no more.
    Disposed,
    /// Its writer writes it no more.
    Unregistered,
}

impl End {
    /// As a message states it (DDSI-RTPS 2.5 §9.6.4.9).
    pub(crate) fn status(self) -> u32 {
        match self {
            End::Disposed => 1,
            End::Unregistered => 2,
        }
    }
}

/// A topic of a participant, until this is dropped.
pub(crate) struct Topic(pub(crate) dds_entity_t);

impl Topic {
    /// A topic without a key. Ends of the same topic and type may each have one.
    pub(crate) fn open(participant: dds_entity_t, name: &str, type_name: &str) -> Result<Self> {
        let (topic, type_text) = (c_text("topic", name)?, c_text("type", type_name)?);
        // SAFETY: the texts end with zero bytes, live until they are copied, and are not changed.
        let opened = unsafe {
            cdds_create_blob_topic(participant, topic.as_ptr().cast_mut(), type_text.as_ptr().cast_mut(), true)
        };
        checked(name, opened).map(Self)
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: the topic is ours; Cyclone keeps what its ends still use.
        unsafe { dds_delete(self.0) };
    }
}

/// A message to be sent, of bytes that follow each other; with an end, the key of the instance that ends.
///
/// # Errors
/// [`Error`] if the writer is closed, no memory is left, or the bytes are no value, or key, of a topic whose structure Cyclone knows.
pub(crate) fn message(
    writer: dds_entity_t,
    end: Option<End>,
    parts: &[&[u8]],
    timestamp: i64,
) -> Result<*mut ddsi_serdata> {
    let mut length = 0;
    let mut places = [ddsrt_iovec_t { iov_base: null_mut(), iov_len: 0 }; 3];
    for (place, part) in places.iter_mut().zip(parts) {
        length += part.len();
        *place = ddsrt_iovec_t { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    let mut sertype: *const ddsi_sertype = null();
    // SAFETY: the parts live until Cyclone has copied them, which is before this returns.
    unsafe {
        checked("type", dds_get_entity_sertype(writer, &mut sertype))?;
        let kind = if end.is_some() { ddsi_serdata_kind_SDK_KEY } else { ddsi_serdata_kind_SDK_DATA };
        let count = parts.len().min(places.len());
        let made = ddsi_serdata_from_ser_iov(sertype, kind, count as ddsrt_msg_iovlen_t, places.as_ptr(), length);
        match made.as_mut() {
            None => Err(Error("it is no value of its type, or there is no memory".to_owned())),
            Some(message) => {
                message.timestamp.v = timestamp;
                message.statusinfo = end.map_or(0, End::status);
                Ok(made)
            }
        }
    }
}

/// Calls `take` with the bytes of a message.
///
/// # Safety
/// `message` is one that Cyclone has given, and not freed.
pub(crate) unsafe fn with_bytes(message: *mut ddsi_serdata, take: impl FnOnce(&[u8])) {
    let mut place = ddsrt_iovec_t { iov_base: null_mut(), iov_len: 0 };
    // SAFETY: the message lives; its bytes do until they are given back.
    unsafe {
        let size = ddsi_serdata_size(message) as usize;
        let held = ddsi_serdata_to_ser_ref(message, 0, size, &mut place);
        if !place.iov_base.is_null() {
            take(std::slice::from_raw_parts(place.iov_base.cast(), size));
        }
        ddsi_serdata_to_ser_unref(held, &place);
    }
}
