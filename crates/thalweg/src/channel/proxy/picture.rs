//! The size of a picture.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

    #[test]
    fn sizes_survive_as_text_and_others_are_refused() {
        assert_eq!("320x240".parse(), Ok(Picture { width: 320, height: 240 }));
        assert_eq!("320x240".parse::<Picture>().unwrap().to_string(), "320x240");
        for wrong in ["320", "0x1", "1x0", "65536x1", "320*240", ""] {
            assert!(wrong.parse::<Picture>().unwrap_err().to_string().contains("such as 320x240"), "{wrong}");
        }
    }
}
