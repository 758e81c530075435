//! Topics of Thalweg and of MQTT, and patterns and filters.
//!
//! | Thalweg | MQTT |
//! |---|---|
//! | `/robot/pose` | `robot/pose`, below the prefix |
//! | `*` | `+` |
//! | `**` at the end | `#` |
//! | `**` elsewhere | `#` from there on; what does not fit is left out here |

use crate::engine::{Error, Result};
use thalweg::control::matching::{check_name, check_pattern};

/// Topics that begin with it are those of bridges themselves.
pub(super) const OWN: &str = "thalweg/";

/// The text before all topics: empty, or with a `/` at its end.
///
/// # Errors
/// [`Error::Usage`] for one that is no part of an MQTT topic.
pub(super) fn prefix(text: &str) -> Result<String> {
    let text = text.trim_matches('/');
    if text.is_empty() {
        return Ok(String::new());
    }
    check_name(&format!("/{text}")).map_err(|wrong| Error::Usage(format!("prefix {wrong}")))?;
    allowed(text).map_err(|why| Error::Usage(format!("prefix {text:?} {why}")))?;
    Ok(format!("{text}/"))
}

fn allowed(text: &str) -> std::result::Result<(), &'static str> {
    if text.contains(['+', '#']) {
        Err("has a + or #, which are wildcards in MQTT")
    } else if text.starts_with('$') {
        Err("begins with $: such topics are the broker's own")
    } else if text.starts_with(OWN) || text == "thalweg" {
        Err("begins with thalweg/: such topics are those of bridges themselves")
    } else {
        Ok(())
    }
}

/// The MQTT topic of a topic.
///
/// # Errors
/// [`Error::Topic`] for a name that none can have.
pub(super) fn topic(prefix: &str, name: &str) -> Result<String> {
    check_name(name).map_err(|wrong| Error::Topic(wrong.to_string()))?;
    whole(prefix, name)
}

fn whole(prefix: &str, name: &str) -> Result<String> {
    let text = format!("{prefix}{}", name.trim_start_matches('/'));
    allowed(&text).map_err(|why| Error::Topic(format!("{name} {why}")))?;
    Ok(text)
}

/// The filter of a topic or pattern.
///
/// # Errors
/// [`Error::Topic`] for a pattern that none can have.
pub(super) fn filter(prefix: &str, pattern: &str) -> Result<String> {
    check_pattern(pattern).map_err(|wrong| Error::Topic(wrong.to_string()))?;
    let mut levels = Vec::new();
    for segment in whole(prefix, pattern)?.split('/') {
        levels.push(
            match segment {
                "*" => "+",
                "**" => "#",
                other => other,
            }
            .to_owned(),
        );
        if segment == "**" {
            break;
        }
    }
    Ok(levels.join("/"))
}

/// The name of an MQTT topic that has come. `None`: it is none of Thalweg's, or no topic but the bridges' own.
pub(super) fn name(prefix: &str, topic: &[u8]) -> std::result::Result<Option<String>, String> {
    let shown = || String::from_utf8_lossy(topic).chars().take(64).collect::<String>();
    let text = std::str::from_utf8(topic).map_err(|_| format!("topic {:?} is no UTF-8", shown()))?;
    let Some(rest) = text.strip_prefix(prefix).filter(|_| !text.starts_with(OWN)) else { return Ok(None) };
    let name = format!("/{rest}");
    check_name(&name).map_err(|wrong| format!("topic {wrong}"))?;
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_its_name_below_the_prefix() {
        assert_eq!(topic("", "/robot/pose").unwrap(), "robot/pose");
        assert_eq!(topic("fleet/", "/robot/pose").unwrap(), "fleet/robot/pose");
        for (wrong, says) in [
            ("/$SYS/uptime", "broker's own"),
            ("/thalweg/x", "bridges themselves"),
            ("/a+b", "wildcards"),
            ("/a//b", "empty"),
        ] {
            let said = topic("", wrong).unwrap_err();
            assert!(matches!(&said, Error::Topic(text) if text.contains(says)), "{wrong}: {said}");
        }
        assert!(topic("fleet/", "/$x").is_ok());
    }

    #[test]
    fn a_filter_takes_what_the_pattern_takes_or_more() {
        for (pattern, wanted) in [
            ("/arm/pose", "arm/pose"),
            ("/arm/*", "arm/+"),
            ("/*/pose", "+/pose"),
            ("/arm/**", "arm/#"),
            ("/**", "#"),
            ("/arm/**/pose", "arm/#"),
        ] {
            assert_eq!(filter("", pattern).unwrap(), wanted);
        }
        assert_eq!(filter("fleet/", "/**").unwrap(), "fleet/#");
        assert!(filter("", "/a/b*").is_err());
    }

    #[test]
    fn what_comes_has_a_name_or_is_refused() {
        assert_eq!(name("", b"robot/pose"), Ok(Some("/robot/pose".to_owned())));
        assert_eq!(name("fleet/", b"fleet/pose"), Ok(Some("/pose".to_owned())));
        assert_eq!(name("", b"thalweg/bridge/1/2"), Ok(None));
        for wrong in [&b"a//b"[..], b"/a", b"a b", b"a\xff", b"", b"caf\xc3\xa9"] {
            assert!(name("", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_prefix_is_part_of_a_topic() {
        assert_eq!(prefix("/fleet/robot1/"), Ok("fleet/robot1/".to_owned()));
        assert_eq!(prefix(""), Ok(String::new()));
        for wrong in ["a//b", "$share", "a/#", "thalweg", "a b"] {
            assert!(matches!(prefix(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
