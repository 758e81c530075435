//! Partitions: names that divide a realm's topics (DDS PARTITION, §2.2.3.13).

/// Most partitions of a port, and longest name in bytes: a peer's further ones are ignored.
pub(super) const MOST: usize = 64;
pub(super) const LONGEST: usize = 255;

/// `true` if two ports have a partition in common. No name is the same as the empty one. A name with wildcards matches names
/// without; two with wildcards match only if they are equal.
pub fn partitions_meet(one: &[String], other: &[String]) -> bool {
    named(one).any(|a| named(other).any(|b| meets(a, b)))
}

fn named(partitions: &[String]) -> impl Iterator<Item = &str> {
    let none = partitions.is_empty().then_some("");
    partitions.iter().take(MOST).map(String::as_str).filter(|name| name.len() <= LONGEST).chain(none)
}

fn meets(a: &str, b: &str) -> bool {
    let pattern = |name: &str| name.contains(['*', '?', '[']);
    match (pattern(a), pattern(b)) {
        (true, false) => fnmatch(a, b),
        (false, true) => fnmatch(b, a),
        _ => a == b,
    }
}

/// `true` if a pattern matches a name, by the rules of POSIX `fnmatch`: `*` any characters, `?` one, `[a-z]` one of these,
/// `[!a-z]` one but these, `\\` the next as it is. At most (characters of one) × (characters of the other) steps.
pub fn fnmatch(pattern: &str, name: &str) -> bool {
    let (mut rest, mut left) = (pattern.chars(), name.chars());
    // Position to return to when a later character does not fit: after the last `*`, with one more character
    // swallowed by it.
    let mut retry = None;
    loop {
        let (mut after, mut remaining) = (rest.clone(), left.clone());
        match (after.next(), remaining.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((after.clone(), left.clone()));
                rest = after;
                continue;
            }
            (Some(first), Some(character)) if fits(first, &mut after, character) => {
                (rest, left) = (after, remaining);
                continue;
            }
            _ => {}
        }
        let Some((pattern_after, name_after)) = &mut retry else { return false };
        if name_after.next().is_none() {
            return false;
        }
        (rest, left) = (pattern_after.clone(), name_after.clone());
    }
}

/// `true` if the pattern that starts with `first` matches one character; moves behind it.
fn fits(first: char, rest: &mut std::str::Chars<'_>, character: char) -> bool {
    match first {
        '?' => true,
        '\\' => rest.next() == Some(character),
        '[' => {
            let (set, after) = rest.as_str().split_at(set_length(rest.as_str()));
            // An unclosed bracket is a plain character.
            let Some(after) = after.strip_prefix(']') else { return character == '[' };
            *rest = after.chars();
            let (not, set) = set.strip_prefix('!').map_or((false, set), |set| (true, set));
            not != holds(set, character)
        }
        _ => first == character,
    }
}

/// Bytes up to the bracket that closes: one right at the start belongs to the set.
fn set_length(text: &str) -> usize {
    let start = text.len() - text.strip_prefix('!').unwrap_or(text).len();
    let start = start + usize::from(text[start..].starts_with(']'));
    text[start..].find(']').map_or(text.len(), |end| start + end)
}

fn holds(set: &str, character: char) -> bool {
    let mut left = set.chars();
    while let Some(first) = left.next() {
        let mut range = left.clone();
        let last = if range.next() == Some('-') { range.next() } else { None };
        match last {
            Some(last) if (first..=last).contains(&character) => return true,
            Some(_) => left = range,
            None if first == character => return true,
            None => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meet(one: &[&str], other: &[&str]) -> bool {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let (one, other) = (owned(one), owned(other));
        assert_eq!(partitions_meet(&one, &other), partitions_meet(&other, &one));
        partitions_meet(&one, &other)
    }

    #[test]
    fn ports_meet_in_a_partition_they_share() {
        assert!(meet(&[], &[]) && meet(&[], &[""]) && meet(&[], &["*"]) && meet(&["a", "b"], &["c", "b"]));
        assert!(!meet(&[], &["a"]) && !meet(&["a"], &["b"]) && !meet(&["a"], &["?b"]));
        assert!(meet(&["left/*"], &["left/arm"]) && meet(&["[a-c]?"], &["b7"]) && meet(&["[!x]"], &["y"]));
        assert!(!meet(&["[!x]"], &["x"]) && !meet(&["a*"], &["ab?"]) && meet(&["a*"], &["a*"]));
        assert!(
            fnmatch("[]a]", "]")
                && fnmatch("[a-]", "-")
                && fnmatch("[ab", "[ab")
                && fnmatch("\\*", "*")
                && !fnmatch("\\*", "a")
        );
    }

    #[test]
    fn a_peer_beyond_the_limits_is_not_believed() {
        let many: Vec<String> = (0..MOST + 1).map(|n| n.to_string()).collect();
        assert!(partitions_meet(&many, &[(MOST - 1).to_string()]) && !partitions_meet(&many, &[MOST.to_string()]));
        let long = vec!["x".repeat(LONGEST + 1)];
        assert!(!partitions_meet(&long, &long));
    }

    fn brute_force(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => (0..=name.len()).any(|n| brute_force(rest, &name[n..])),
            (Some((p, rest)), Some((c, left))) => (*p == '?' || p == c) && brute_force(rest, left),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_take_what_a_brute_force_matcher_fnmatch(pattern in "[ab*?]{0,8}", name in "[ab]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fnmatch(&pattern, &name), brute_force(&chars(&pattern), &chars(&name)));
        }
        #[test]
        fn no_text_makes_the_matcher_fail(pattern in ".{0,60}", name in ".{0,60}") {
            let _ = fnmatch(&pattern, &name);
        }
    }
}
