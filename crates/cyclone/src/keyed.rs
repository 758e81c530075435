//! Topics with a key, for readers: a message that ends an instance comes as any other, in its order.
//!
//! A reader of Cyclone has one state of each instance, and takes the key of an ended one from there. So it would hold all instances that were
//! ever written, until their writers forget them, and tell an end late or not at all if the instance is written again. Ours takes all messages
//! for values of one instance, as it does without a key, and each says itself what it is. So no instance is held here.

use crate::blob::{End, Topic};
use crate::{Error, Result, c_text, checked};
use cyclors::*;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// What the bytes of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A value.
    Value,
    /// The members of the key alone.
    Key,
    /// The 16 bytes of the key's hash, behind a header: the key itself in big-endian CDR of version 1 if it always fits in, else a digest
    /// (DDSI-RTPS 2.5 §9.6.4.8).
    KeyHash,
}

const VALUE: ddsi_serdata_kind = ddsi_serdata_kind_SDK_DATA;
const KEY: ddsi_serdata_kind = ddsi_serdata_kind_SDK_KEY;
/// Marks of messages that came, in a place that Cyclone uses for those that it writes.
const IS_KEY: i64 = 1;
const IS_HASH: i64 = 2;

/// Cyclone's functions for messages of bytes, two of them replaced.
struct Functions {
    ours: ddsi_serdata_ops,
    theirs: ddsi_serdata_ops,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

impl Topic {
    /// A topic with a key, for readers.
    pub(crate) fn open_keyed(participant: dds_entity_t, name: &str, type_name: &str) -> Result<Self> {
        let plain = Topic::open(participant, name, type_name)?;
        let (topic, type_text) = (c_text("topic", name)?, c_text("type", type_name)?);
        let mut sertype: *const ddsi_sertype = null();
        // SAFETY: the type lives as long as its topic, and its functions are static.
        let (of_type, theirs) = unsafe {
            checked("type", dds_get_entity_sertype(plain.0, &mut sertype))?;
            let none = || Error(format!("{name}: its type has no functions"));
            let sertype = sertype.as_ref().ok_or_else(none)?;
            (sertype.ops, *sertype.serdata_ops.as_ref().ok_or_else(none)?)
        };
        let ours = ddsi_serdata_ops { from_ser: Some(from_ser), from_keyhash: Some(from_keyhash), ..theirs };
        let functions = FUNCTIONS.get_or_init(|| Functions { ours, theirs });
        // SAFETY: the type is made as `cdds_create_blob_topic` makes it, and freed as that one by its functions (with `free`, for `malloc`).
        // Cyclone copies the names. If it takes no topic, the type is leaked as it is there: Cyclone may have freed it.
        let opened = unsafe {
            let mut made = dds_alloc(size_of::<ddsi_sertype>()).cast::<ddsi_sertype>();
            ddsi_sertype_init_flags(made, type_text.as_ptr(), of_type, &functions.ours, 0);
            dds_create_topic_sertype(participant, topic.as_ptr(), &mut made, null(), null(), null())
        };
        checked(name, opened).map(Self)
    }
}

/// A message from the network.
unsafe extern "C" fn from_ser(
    of: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    fragments: *const ddsi_rdata,
    size: usize,
) -> *mut ddsi_serdata {
    let Some(make) = FUNCTIONS.get().and_then(|functions| functions.theirs.from_ser) else { return null_mut() };
    // SAFETY: Cyclone's own arguments, but for the kind; what is made is not yet known to anybody.
    unsafe { marked(make(of, VALUE, fragments, size), (kind == KEY).then_some(IS_KEY)) }
}

/// A message from the network that has no more than the hash of its key.
unsafe extern "C" fn from_keyhash(of: *const ddsi_sertype, hash: *const ddsi_keyhash) -> *mut ddsi_serdata {
    let Some(make) = FUNCTIONS.get().and_then(|functions| functions.theirs.from_ser_iov) else { return null_mut() };
    let (header, length) = ([0_u8; 4], size_of::<ddsi_keyhash>());
    let places = [
        ddsrt_iovec_t { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
        ddsrt_iovec_t { iov_base: hash.cast_mut().cast(), iov_len: length },
    ];
    // SAFETY: header and hash live until they are copied, which is before this returns.
    unsafe { marked(make(of, VALUE, 2, places.as_ptr(), header.len() + length), Some(IS_HASH)) }
}

/// # Safety
/// `message` is null, or one that nobody else uses.
unsafe fn marked(message: *mut ddsi_serdata, mark: Option<i64>) -> *mut ddsi_serdata {
    // SAFETY: the caller's promise.
    if let (Some(message), Some(mark)) = (unsafe { message.as_mut() }, mark) {
        message.twrite.v = mark;
    }
    message
}

/// What a message of a topic with a key is, and the end of an instance that it states.
pub(crate) fn said(message: &ddsi_serdata) -> (Content, Option<End>) {
    let content = match message.twrite.v {
        IS_KEY => Content::Key,
        IS_HASH => Content::KeyHash,
        _ => Content::Value,
    };
    let ends = [End::Disposed, End::Unregistered];
    (content, ends.into_iter().find(|end| message.statusinfo & end.status() != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Member, Participant, Place, Policies, Shape, Taken};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);

    fn value(number: u8, key: u8) -> Vec<u8> {
        vec![0, 1, 0, 0, number, 0, 0, 0, key, 0]
    }

    fn key(key: u8) -> Vec<u8> {
        vec![0, 1, 0, 0, key, 0]
    }

    fn open() -> Participant {
        let loopback = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let domain = std::process::id() % 200;
        let place =
            Place { domain, interfaces: loopback.clone(), peers: loopback, multicast: false, ..Place::default() };
        Participant::open(&place, b"").unwrap()
    }

    #[test]
    fn ends_of_instances_come_in_their_order_with_their_keys() {
        let (here, there) = (open(), open());
        let policies = Policies { reliable: true, blocking: LONG, ..Policies::default() };
        let (tell, told) = channel();
        let take = move |taken: &Taken<'_>| tell.send((taken.content, taken.end, taken.message.to_vec())).unwrap();
        let _reader = there.reader("keyed", "Keyed", true, &policies, Box::new(take)).unwrap();
        let member = |shape, is_key| Member { shape, is_key };
        let layout = Layout::new(&[member(Shape::Bytes4, false), member(Shape::Bytes2, true)]).unwrap();
        let writer = here.writer("keyed", "Keyed", Some(&layout), &policies).unwrap();
        let begin = Instant::now();
        while writer.matched() == 0 {
            assert!(begin.elapsed() < LONG, "no reader");
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.write(&value(1, 7), 1).unwrap();
        writer.write(&value(2, 8), 2).unwrap();
        writer.end(End::Disposed, &key(7), 3).unwrap();
        writer.write(&value(3, 7), 4).unwrap();
        writer.end(End::Unregistered, &key(8), 5).unwrap();
        let came: Vec<_> = (0..5).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        let expected = [
            (Content::Value, None, value(1, 7)),
            (Content::Value, None, value(2, 8)),
            (Content::Key, Some(End::Disposed), key(7)),
            (Content::Value, None, value(3, 7)),
            (Content::Key, Some(End::Unregistered), key(8)),
        ];
        assert_eq!(came, expected);
        let short = writer.write(&[0, 1, 0, 0, 9], 6).unwrap_err().to_string();
        assert!(short.contains("no value of its type"), "{short}");
        let unkeyed = here.writer("unkeyed", "Keyed", None, &policies).unwrap();
        assert!(unkeyed.end(End::Disposed, &key(7), 7).is_err());
    }
}
