//! Proxies: stages that scale a stream in time (every n-th sample) or in space (smaller pictures), at the publisher, at
//! the subscriber or at a relay (P-02, P-03, P-07). Pure.
//!
//! Scaling and its place are stated when a flow opens (`Request`), not in each sample. A proxy
//! never changes a sample's identity: port, incarnation, sequence number and time stamp stay those of its source.

mod gate;
pub(crate) mod handover;
pub mod scaler;
mod selection;

pub(crate) use gate::{Gate, Role, SharedHandover};
pub use selection::{Selection, SelectionError};

use super::Channel;
use crate::control::NodeId;
use qos::priority::Change;
use qos::{Place, PlaceError, Qos, Scale};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Scaling that a subscriber wants of a stream, and its place (P-08).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proxy {
    /// The samples wanted.
    #[serde(skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// Pictures of at most this size; point sets of at most as many points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// The place.
    pub place: Place,
}

impl Proxy {
    /// The scaling that a subscriber's QoS asks for. A rate in hertz needs the publisher's period, which is the deadline that
    /// it offers; without one, all samples come.
    pub fn of(qos: &Qos, period: Option<Duration>) -> Self {
        let selection = match qos.scale {
            Scale::Every(n) => Selection::every(n),
            Scale::Rate { p, q } => Selection::rate(p, q),
            Scale::Millihertz(rate) => Ok(period.map_or(Selection::ALL, |period| Selection::of_rate(rate, period))),
        };
        let picture = qos.picture.and_then(Picture::of);
        Self { selection: selection.unwrap_or_default(), picture, place: qos.place.clone() }
    }

    /// The scaling that a channel within a process does.
    pub(crate) fn made(channel: &Channel) -> Self {
        let place = channel.proxied.as_ref().map(|proxied| proxied.place.clone()).unwrap_or_default();
        Self { selection: channel.selection, picture: None, place }
    }

    /// `true` if the stream arrives whole, directly from its publisher.
    pub fn is_nothing(&self) -> bool {
        self.selection.is_all() && self.picture.is_none() && !self.place_is_relay()
    }

    /// `true` if it is at a relay.
    pub fn place_is_relay(&self) -> bool {
        matches!(self.place, Place::Relay(_))
    }

    /// A number that distinguishes the scaling besides the selection, and its relay; 0: there is none. Both ends of a
    /// multicast flow compute it, so that each scaled stream has a group of its own (Table 2 of the paper).
    pub(crate) fn number_of(&self) -> u64 {
        let picture = self.picture.map_or(0, |picture| u64::from(picture.width) << 16 | u64::from(picture.height));
        let name = self.place.relays().flat_map(str::bytes);
        // FNV-1a
        let relay = name.fold(0, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        picture ^ relay.rotate_left(23)
    }

    /// The selection of samples that are sent to a subscriber that asked for this proxy.
    pub fn sent(proxy: Option<&Self>) -> Selection {
        proxy.filter(|proxy| proxy.place != Place::Subscriber).map_or(Selection::ALL, |proxy| proxy.selection)
    }
}

/// A channel's proxy: its place and its scaling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxied {
    /// The place.
    pub place: Place,
    /// The provenance that its samples carry.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl fmt::Display for Proxied {
    /// `every 10th sample at publisher`, as tools show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Provenance { selection, picture, .. } = self.provenance;
        match (selection.is_all(), picture) {
            (true, None) => f.write_str("whole")?,
            (true, Some(picture)) => write!(f, "{picture}")?,
            (false, None) => write!(f, "every {selection}")?,
            (false, Some(picture)) => write!(f, "every {selection}, {picture}")?,
        }
        write!(f, " at {}", self.place)
    }
}

/// Scaling of a stream on its way: the selection and picture, the first sample and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The samples let through.
    #[serde(default, skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// The largest picture that was let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// The first sample to which this may apply.
    pub from: u64,
    /// The node that has the proxy.
    pub node: NodeId,
}

/// Changes to a [`Proxy`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyChanges {
    /// The change of the selection.
    pub selection: Change<Selection>,
    /// The change of the picture.
    pub picture: Change<Picture>,
    /// The change of the place.
    pub place: Change<Place>,
}

impl ProxyChanges {
    /// To exactly this.
    pub fn to(proxy: &Proxy) -> Self {
        let Proxy { selection, picture, place } = proxy.clone();
        Self {
            selection: Change::Set(selection),
            picture: picture.map_or(Change::Unset, Change::Set),
            place: Change::Set(place),
        }
    }

    /// `true` if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.selection.is_keep() && self.picture.is_keep() && self.place.is_keep()
    }

    /// The parts that `others` state, and the rest.
    pub fn apart(&self, others: &ProxyChanges) -> (Self, Self) {
        let selection = self.selection.apart(&others.selection);
        let (picture, place) = (self.picture.apart(&others.picture), self.place.apart(&others.place));
        let stated = Self { selection: selection.0, picture: picture.0, place: place.0 };
        (stated, Self { selection: selection.1, picture: picture.1, place: place.1 })
    }

    /// Takes the changes that these do not state from `others`.
    pub fn fill(&mut self, others: &ProxyChanges) {
        self.selection.fill(&others.selection);
        self.picture.fill(&others.picture);
        self.place.fill(&others.place);
    }

    /// `proxy` with these changes; settings that go back to their default are as in `default`.
    pub fn apply(&self, proxy: Proxy, default: &Proxy) -> Proxy {
        let (mut selection, mut picture, mut place) = (Some(proxy.selection), proxy.picture, Some(proxy.place));
        self.selection.apply(&mut selection);
        self.picture.apply(&mut picture);
        self.place.apply(&mut place);
        Proxy {
            selection: selection.unwrap_or(default.selection),
            picture: picture.or(default.picture.filter(|_| self.picture == Change::Unset)),
            place: place.unwrap_or_else(|| default.place.clone()),
        }
    }

    /// Adds one `NAME=VALUE`, as `thalweg set` takes it: `every=10`, `rate=3/4`, `picture=320x240`, `proxy=relay:gate`.
    /// `false`: the word is not about proxies.
    ///
    /// # Errors
    /// [`ProxyChangeError`] with the allowed values.
    pub fn add(&mut self, word: &str) -> Result<bool, ProxyChangeError> {
        let Some((name, value)) = word.split_once('=') else { return Ok(false) };
        let default = value.eq_ignore_ascii_case("default");
        match name.trim() {
            "every" | "rate" if default => self.selection = Change::Unset,
            "picture" if default => self.picture = Change::Unset,
            "proxy" if default => self.place = Change::Unset,
            "every" | "rate" => {
                self.selection =
                    Change::Set(value.parse().map_err(|e| ProxyChangeError::Selection(name.to_owned(), e))?)
            }
            "picture" => self.picture = Change::Set(value.parse().map_err(ProxyChangeError::Picture)?),
            "proxy" => self.place = Change::Set(value.parse().map_err(ProxyChangeError::Place)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A value that a proxy's setting does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChangeError {
    /// The value of the setting of this name, `every` or `rate`.
    Selection(String, SelectionError),
    /// The value of `picture`.
    Picture(PictureError),
    /// The value of `proxy`.
    Place(PlaceError),
}

impl fmt::Display for ProxyChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selection(name, error) => write!(f, "{name}: {error}"),
            Self::Picture(error) => error.fmt(f),
            Self::Place(error) => write!(f, "proxy {error}"),
        }
    }
}

impl std::error::Error for ProxyChangeError {}

/// A picture's width and height in pixels, each 1 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Picture {
    /// Pixels in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

impl Picture {
    /// A picture of this width and height, if they are within the limits.
    pub fn of((width, height): (u32, u32)) -> Option<Self> {
        let number = |n| u16::try_from(n).ok().filter(|n| *n > 0);
        Some(Self { width: number(width)?, height: number(height)? })
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for Picture {
    type Err = PictureError;
    fn from_str(text: &str) -> Result<Self, PictureError> {
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|n| *n > 0);
        let both = text.split_once('x').and_then(|(width, height)| Some((number(width)?, number(height)?)));
        let picture = both.map(|(width, height)| Picture { width, height });
        picture.ok_or_else(|| PictureError(text.chars().take(64).collect()))
    }
}

/// Text that is no size of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureError(String);

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = "WIDTHxHEIGHT in pixels, each 1 to 65535, such as 320x240";
        write!(f, "picture {:?}: allowed is {allowed}", self.0)
    }
}

impl std::error::Error for PictureError {}

impl From<Picture> for String {
    fn from(picture: Picture) -> String {
        picture.to_string()
    }
}

impl TryFrom<String> for Picture {
    type Error = PictureError;
    fn try_from(text: String) -> Result<Self, PictureError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(words: &str, proxy: &Proxy, default: &Proxy) -> Result<Proxy, ProxyChangeError> {
        let mut changes = ProxyChanges::default();
        for word in words.split(' ') {
            assert!(changes.add(word)?, "{word}");
        }
        Ok(changes.apply(proxy.clone(), default))
    }

    #[test]
    fn words_change_what_they_name_and_nothing_else() {
        let default = Proxy { selection: Selection::every(2).unwrap(), ..Proxy::default() };
        let proxy = changed("every=10 proxy=relay:gate picture=320x240", &default, &default).unwrap();
        assert_eq!(proxy.place, Place::Relay("gate".into()));
        let moved = changed("proxy=subscriber", &proxy, &default).unwrap();
        assert_eq!(moved, Proxy { place: Place::Subscriber, ..proxy.clone() });
        assert_eq!(changed("rate=default picture=default proxy=default", &proxy, &default), Ok(default.clone()));
        assert_eq!(ProxyChanges::to(&proxy).apply(default.clone(), &default), proxy);
    }

    #[test]
    fn a_wrong_setting_is_reported_with_the_allowed_values() {
        for (word, says) in [("every=0", "such as 10"), ("picture=1", "320x240"), ("proxy=there", "relay:NAME")] {
            let said = ProxyChanges::default().add(word).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        assert_eq!(ProxyChanges::default().add("class=high"), Ok(false));
    }

    #[test]
    fn sizes_survive_as_text_and_others_are_refused() {
        assert_eq!("320x240".parse(), Ok(Picture { width: 320, height: 240 }));
        assert_eq!("320x240".parse::<Picture>().unwrap().to_string(), "320x240");
        for wrong in ["320", "0x1", "1x0", "65536x1", "320*240", ""] {
            assert!(wrong.parse::<Picture>().unwrap_err().to_string().contains("such as 320x240"), "{wrong}");
        }
    }
}
