//! Scalers: they make the messages of a stream smaller (P-03). They run on a thread of the proxy, never on the publisher's.
//!
//! | type of the topic | scaled content |
//! |---|---|
//! | `…Image` | raw pictures in the layout of `sensor_msgs/Image`: mono8, rgb8, bgr8, rgba8, bgra8 by area; 16UC1 and 32FC1 (depth) by nearest |
//! | `…CompressedImage` | JPEG and PNG, in the layout of `sensor_msgs/CompressedImage` |
//! | `…PointCloud2` | points, in the layout of `sensor_msgs/PointCloud2`: at most width · height of them, evenly |
//! | `bytes` | JPEG and PNG |
//!
//! Other types need a scaler in the node's settings ([`Settings::scalers`](crate::Settings)). Pictures are never made larger, and
//! keep the ratio of their sides.

use super::Picture;
use crate::codec::{CodecError, TypeDescription};
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "pictures")]
mod pictures;
#[cfg(all(test, feature = "pictures"))]
mod tests;

#[cfg(feature = "pictures")]
pub use pictures::{Encoded, Points, Raw};

/// The most pixels of a picture: a message whose header claims more is refused, before it costs memory.
pub const MOST_PIXELS: u64 = 1 << 25;

/// Makes messages of one stream smaller. An implementation may do anything that leaves a message of the same type.
pub trait Scaler: Send {
    /// Appends to `out` the message, made so small that it is at most `picture`.
    ///
    /// # Errors
    /// The reason why it cannot be scaled: the sample is counted and left out.
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable>;
}

/// Makes a scaler for a new stream.
pub type NewScaler = Arc<dyn Fn() -> Box<dyn Scaler> + Send + Sync>;

/// Scalers by names of types or topics, for a node's [`Settings`](crate::Settings).
#[derive(Clone, Default)]
pub struct Scalers(Vec<(String, NewScaler)>);

impl Scalers {
    /// Adds a scaler for all topics of this type, or for the topic of this name. The last matching scaler is used, before
    /// those of Thalweg itself.
    pub fn with<S: Scaler + 'static>(
        mut self,
        name: impl Into<String>,
        new: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        self.0.push((name.into(), Arc::new(move || Box::new(new()))));
        self
    }

    /// A scaler for a stream; `None`: there is none for this type.
    pub(crate) fn find(&self, topic: &str, message: &TypeDescription) -> Option<Box<dyn Scaler>> {
        let added = self.0.iter().rev().find(|(name, _)| *name == message.name || name == topic);
        added.map(|(_, new)| new()).or_else(|| built_in(&message.name))
    }
}

impl fmt::Debug for Scalers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(feature = "pictures")]
fn built_in(name: &str) -> Option<Box<dyn Scaler>> {
    let last = name.rsplit([':', '/', '.']).next().unwrap_or(name);
    match last.trim_end_matches('_') {
        "Image" => Some(Box::new(Raw::default())),
        "CompressedImage" => Some(Box::new(Encoded::in_message())),
        "PointCloud2" => Some(Box::new(Points)),
        "bytes" => Some(Box::new(Encoded::alone())),
        _ => None,
    }
}

#[cfg(not(feature = "pictures"))]
fn built_in(_name: &str) -> Option<Box<dyn Scaler>> {
    None
}

/// The reason why a message was not scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unscalable(pub String);

impl fmt::Display for Unscalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unscalable {}

impl From<CodecError> for Unscalable {
    fn from(wrong: CodecError) -> Self {
        Unscalable(wrong.to_string())
    }
}

impl Picture {
    /// The size of a picture of `width` × `height` that is made to fit: its sides keep their ratio, none is below 1.
    pub fn fit(self, width: u32, height: u32) -> (u32, u32) {
        let (w, h) = (u64::from(width), u64::from(height));
        let (most_w, most_h) = (u64::from(self.width), u64::from(self.height));
        if w <= most_w && h <= most_h {
            return (width, height);
        }
        // The side that has to shrink more decides.
        let (to_w, to_h) = if w * most_h >= h * most_w { (most_w, h * most_w / w) } else { (w * most_h / h, most_h) };
        (to_w.max(1) as u32, to_h.max(1) as u32)
    }
}
