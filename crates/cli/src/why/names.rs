//! Suggestions of similar names.

/// At most three of `names` that are similar to `name`, the most similar first.
pub(super) fn near<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<(usize, &str)> =
        names.filter(|other| *other != name).filter_map(|other| Some((likeness(name, other)?, other))).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, other)| other).collect()
}

/// The rank of a similar name, 0 the best; `None`: not similar.
fn likeness(name: &str, other: &str) -> Option<usize> {
    let plain = |text: &str| text.trim_matches('/').to_ascii_lowercase();
    let (a, b) = (plain(name), plain(other));
    let steps = distance(&a, &b);
    let last = |text: &str| text.rsplit('/').next().map(str::to_owned);
    match steps {
        0 => Some(0),
        _ if steps <= 2.max(a.len() / 4) && steps < a.len().max(b.len()) => Some(steps),
        _ if last(&a) == last(&b) || a.contains(&b) || b.contains(&a) => Some(steps + 100),
        _ => None,
    }
}

/// Letters that must be inserted, removed, replaced or swapped with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { least.min(rows[i - 2][j - 2] + 1) } else { least }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found_the_most_similar_first() {
        let all = ["/camera/left/out", "/camera/right/out", "/viewer/in", "/in"];
        assert_eq!(near("/camera/lfet/out", all.into_iter())[0], "/camera/left/out");
        assert_eq!(near("/Viewer/IN", all.into_iter())[0], "/viewer/in");
        assert_eq!(near("/viewr/in", all.into_iter()), ["/viewer/in", "/in"]);
        assert_eq!(near("/motor", all.into_iter()), [""; 0]);
        assert_eq!(near("/ni", ["/in", "/ax"].into_iter()), ["/in"]);
    }

    #[test]
    fn swapped_letters_count_as_one_difference() {
        assert_eq!([distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")], [1, 3, 3]);
    }
}
