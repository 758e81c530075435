//! Changes to a channel's proxy, as an administrator states them.

use super::{Picture, PictureError, Proxy, Selection, SelectionError};
use qos::priority::Change;
use qos::{Place, PlaceError};
use serde::{Deserialize, Serialize};
use std::fmt;

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
}
