//! A place in a domain.

use crate::identities::Identities;
use crate::{Complaints, Error, Guid, Result, c_text, checked, log};
use cyclors::{dds_create_domain, dds_create_participant, dds_delete, dds_entity_t, dds_get_guid, dds_guid_t};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The place of a participant in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The domain, 0 … 232.
    pub domain: u32,
    /// Addresses of the interfaces to use. Default: the one that Cyclone chooses.
    pub interfaces: Vec<IpAddr>,
    /// Hosts to look for others, beside those that multicast finds.
    pub peers: Vec<IpAddr>,
    /// Others are found by multicast, too. Default: yes.
    pub multicast: bool,
    /// Largest message, in bytes with its header; larger ones are dropped, and complained of. Default 16 MiB.
    pub max_message: u32,
    /// Size of the send buffer of its sockets, in bytes. The kernel grants up to `net.core.wmem_max`, and doubles it. Default: as Cyclone
    /// chooses.
    pub send_buffer: Option<u32>,
    /// Further configuration of Cyclone in its own words, XML or the address of a file, as in `CYCLONEDDS_URI`. Default: none.
    pub configuration: String,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            domain: 0,
            interfaces: Vec::new(),
            peers: Vec::new(),
            multicast: true,
            max_message: 16 << 20,
            send_buffer: None,
            configuration: String::new(),
        }
    }
}

impl Place {
    /// In Cyclone's words. What comes later overrides what the user's configuration says.
    fn text(&self) -> String {
        let mut text = String::new();
        if !self.configuration.is_empty() {
            let _ = write!(text, "{},", self.configuration);
        }
        text += "<CycloneDDS><Domain Id=\"any\"><General>";
        if !self.interfaces.is_empty() {
            text += "<Interfaces>";
            for address in &self.interfaces {
                let _ = write!(text, "<NetworkInterface address=\"{address}\"/>");
            }
            text += "</Interfaces>";
        }
        if !self.multicast {
            text += "<AllowMulticast>false</AllowMulticast>";
        }
        let _ = write!(text, "</General><Discovery><ExternalDomainId>{}</ExternalDomainId>", self.domain);
        if !self.peers.is_empty() {
            // Others' unicast ports are known only if they are counted from 0; so are ours to them.
            text += "<ParticipantIndex>auto</ParticipantIndex><Peers>";
            for peer in &self.peers {
                let _ = write!(text, "<Peer Address=\"{peer}\"/>");
            }
            text += "</Peers>";
        }
        text += "</Discovery>";
        // Cyclone drops endpoints whose type information it takes for malformed. That of Fast DDS 2 always is: version 1 of CDR, behind an
        // encapsulation header, instead of version 2 (DDS-XTypes 1.3 §7.3.4.5). Topics of bytes have no use for any.
        let ignored = vendors();
        let _ = write!(text, "<Compatibility><IgnoreTypeInformation>{ignored}</IgnoreTypeInformation></Compatibility>");
        let _ = write!(text, "<Internal><MaxSampleSize>{} B</MaxSampleSize>", self.max_message);
        if let Some(bytes) = self.send_buffer {
            let _ = write!(text, "<SocketSendBufferSize min=\"default\" max=\"{bytes} B\"/>");
        }
        text += "</Internal></Domain></CycloneDDS>";
        text
    }
}

/// All vendors of DDS that Cyclone's configuration can name.
fn vendors() -> String {
    (1..=32).map(|number| format!("1.{number}")).collect::<Vec<_>>().join(",")
}

/// A participant. It leaves when it and its ends are dropped.
#[derive(Clone)]
pub struct Participant(pub(crate) Arc<Entities>);

pub(crate) struct Entities {
    number: u32,
    domain: dds_entity_t,
    pub(crate) participant: dds_entity_t,
    pub(crate) identities: Arc<Identities>,
    guid: Guid,
}

impl Participant {
    /// Joins a domain; each participant has threads and sockets of its own. `user_data` is told to others.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for a configuration that Cyclone refuses, or an interface that is not there.
    pub fn open(place: &Place, user_data: &[u8]) -> Result<Self> {
        Self::join(place, user_data, Arc::default())
    }

    /// Joins once more, with threads and sockets of its own. The program's participants are no others to each other: none is told of another
    /// one's ends, gets its messages, or counts its readers.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_beside(&self, place: &Place, user_data: &[u8]) -> Result<Self> {
        Self::join(place, user_data, self.0.identities.clone())
    }

    fn join(place: &Place, user_data: &[u8], identities: Arc<Identities>) -> Result<Self> {
        // Cyclone knows domains by numbers of its own, and has each once in a process. Others know the external number.
        static NEXT: AtomicU32 = AtomicU32::new(1000);
        log::listen();
        let (number, text) = (NEXT.fetch_add(1, Ordering::Relaxed), c_text("configuration", &place.text())?);
        log::expect(number);
        // Discovery may tell of the participant before its identity is known here: it waits.
        let known = identities.clone();
        let mut own = known.own();
        // SAFETY: the text ends with a zero byte, and Cyclone copies what it needs.
        let domain = unsafe { dds_create_domain(number, text.as_ptr()) };
        let domain = checked("joining the domain", domain).map_err(|error| explained(error, number))?;
        let mut entities = Entities { number, domain, participant: 0, identities, guid: Guid([0; 16]) };
        let qos = crate::policies::of_participant(user_data);
        // SAFETY: the policies are valid, and copied; no listener.
        let participant = unsafe { dds_create_participant(number, qos.as_ptr(), std::ptr::null()) };
        entities.participant = checked("joining the domain", participant).map_err(|error| explained(error, number))?;
        entities.guid = guid(entities.participant)?;
        own.push(entities.guid);
        Ok(Self(Arc::new(entities)))
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.0.guid
    }

    /// What Cyclone has complained of since it opened.
    pub fn complaints(&self) -> Complaints {
        log::complaints(self.0.number)
    }
}

/// Cyclone gives its reason as a complaint.
fn explained(error: Error, number: u32) -> Error {
    match log::reason(number) {
        Some(reason) => Error(format!("{error}: {reason}")),
        None => error,
    }
}

pub(crate) fn guid(entity: dds_entity_t) -> Result<Guid> {
    let mut found = dds_guid_t { v: [0; 16] };
    // SAFETY: `found` is a GUID to be filled.
    checked("identity", unsafe { dds_get_guid(entity, &mut found) })?;
    Ok(Guid(found.v))
}

impl Drop for Entities {
    fn drop(&mut self) {
        // SAFETY: the domain is ours. With it go the participant and all below; no end is open, because each holds this.
        unsafe { dds_delete(self.domain) };
        log::forget(self.number); // after which a thread of Cyclone may still say something
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_overrides_what_the_user_configures() {
        let place = Place {
            domain: 7,
            interfaces: vec!["127.0.0.1".parse().unwrap()],
            peers: vec!["127.0.0.1".parse().unwrap()],
            multicast: false,
            max_message: 4096,
            send_buffer: Some(100_001),
            configuration: "file:///etc/cyclone.xml".to_owned(),
        };
        let text = place.text();
        assert!(text.starts_with("file:///etc/cyclone.xml,<CycloneDDS>"), "{text}");
        for part in [
            "<ExternalDomainId>7<",
            "<AllowMulticast>false<",
            "address=\"127.0.0.1\"",
            ">4096 B<",
            "max=\"100001 B\"",
            ",1.15,",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!Place::default().text().contains("Peers") && !Place::default().text().contains("SendBuffer"));
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_its_reason() {
        let place = Place { configuration: "<CycloneDDS><Nonsense/></CycloneDDS>".to_owned(), ..Place::default() };
        let error = Participant::open(&place, b"").err().unwrap().to_string();
        assert!(error.contains("Nonsense"), "{error}");
    }
}
