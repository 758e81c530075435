//! The name that a mistyped one stands for.

/// The most similar of `names`, of equally similar ones the first; `None`: none is similar. At most 64 letters of what was `written` count.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written: String = written.chars().take(MOST_COMPARED).collect();
    let most = 2.max(written.len() / 3);
    let similar = names.into_iter().filter_map(|name| {
        let steps = distance(&written, name);
        (steps <= most && steps < written.len().max(name.len())).then_some((steps, name))
    });
    similar.min_by_key(|(steps, _)| *steps).map(|(_, name)| name)
}

/// Letters that must be inserted, removed, replaced or swapped with their neighbour (optimal string alignment).
pub fn distance(a: &str, b: &str) -> usize {
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

/// Most letters of a mistyped name that are compared.
const MOST_COMPARED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_letters_count_as_one_difference() {
        assert_eq!([distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")], [1, 3, 3]);
    }

    #[test]
    fn a_slip_of_the_pen_has_a_nearest_name_and_another_word_has_none() {
        let names = ["reliability", "deadline", "key", "pull", "pull-age"];
        assert_eq!(nearest("relability", names), Some("reliability"));
        assert_eq!(nearest("daedline", names), Some("deadline"));
        assert_eq!(nearest("pull_age", names), Some("pull-age"));
        assert!(["colour", "", "x"].iter().all(|word| nearest(word, names).is_none()));
        assert_eq!(nearest(&"deadline".repeat(1000), names), None);
    }
}
