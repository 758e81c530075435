//! The networks and nodes that a writer's samples have passed, in its USER_DATA beside the type hash: bridges of other realms carry them no
//! further than once to each network.

use thalweg::control::MOST_PASSED;

/// Letters alone: `rmw` reads no USER_DATA with others in a key.
const KEY: &str = "thalwegway=";
/// Longest name of a place, in bytes.
const LONGEST: usize = 128;

/// USER_DATA of a writer of this way.
///
/// # Errors
/// The place that cannot be stated: a program's own engine may have any name. Without it the samples could go round.
pub(super) fn user_data(way: &[String]) -> Result<Vec<u8>, String> {
    match way.iter().find(|place| !is_place(place)) {
        Some(place) => Err(format!("its samples have passed {place:?}, which USER_DATA cannot name")),
        None if way.is_empty() => Ok(Vec::new()),
        None => Ok(format!("{KEY}{};", way.join(",")).into_bytes()),
    }
}

/// The way that USER_DATA state; empty if they state none.
///
/// # Errors
/// What is wrong with it. Such a writer may be anybody's, so its samples are not carried.
pub(super) fn of(user_data: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(user_data).unwrap_or_default();
    let Some(stated) = text.split(';').find_map(|entry| entry.strip_prefix(KEY)) else { return Ok(Vec::new()) };
    let way: Vec<String> = stated.split(',').take(MOST_PASSED + 1).map(str::to_owned).collect();
    match way.len() <= MOST_PASSED && way.iter().all(|place| is_place(place)) {
        true => Ok(way),
        false => Err(format!("the way of its writer is no list of at most {MOST_PASSED} networks and nodes")),
    }
}

/// `true` if the samples have come from DDS, or have passed it.
pub(super) fn is_of_dds(way: &[String]) -> bool {
    way.iter().any(|place| place.split('/').next() == Some(super::Dds::NAME))
}

fn is_place(text: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'@' | b'/' | b'.' | b'_' | b'-');
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(places: &[&str]) -> Vec<String> {
        places.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_way_comes_back_beside_a_type_hash() {
        let stated = way(&["dds/left", "@00000000000000a7"]);
        let told = [&b"typehash=RIHS01_0;"[..], &user_data(&stated).unwrap()].concat();
        assert!(is_of_dds(&stated) && is_of_dds(&way(&["dds"])) && !is_of_dds(&way(&["mqtt", "@00000000000000a7"])));
        assert_eq!(of(&told), Ok(stated));
        assert_eq!(
            (user_data(&[]).unwrap(), of(b"typehash=RIHS01_0;"), of(&[0xff; 20])),
            (Vec::new(), Ok(Vec::new()), Ok(Vec::new()))
        );
    }

    #[test]
    fn what_is_no_way_is_refused() {
        let (most, beyond) = (vec!["dds/x".to_owned(); MOST_PASSED], vec!["dds/x".to_owned(); MOST_PASSED + 1]);
        assert_eq!(of(&user_data(&most).unwrap()), Ok(most));
        let stated = |way: &[String]| of(format!("{KEY}{};", way.join(",")).as_bytes());
        let long = "x".repeat(LONGEST + 1);
        for wrong in [beyond, way(&["a b"]), way(&["\u{1b}[2J"]), way(&["dds", ""]), way(&[&long])] {
            assert!(stated(&wrong).unwrap_err().contains("at most 16"), "{wrong:?}");
        }
    }

    /// Else such an engine's name would state other places, and readers would refuse the writer.
    #[test]
    fn a_place_that_cannot_be_stated_is_named() {
        for wrong in ["my system", "a,dds/left", "a;typehash=b", ""] {
            let told = user_data(&way(&["dds/left", wrong])).unwrap_err();
            assert!(told.contains(&format!("{wrong:?}")), "{told}");
        }
    }
}
