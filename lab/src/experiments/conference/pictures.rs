//! Pictures by host (P-03): each is as small as its host wants it, and so much less is on the link.

use super::{KINDS, PICTURES, VIDEO, WHOLE};
use crate::lab::Size;
use crate::part::picture;
use crate::results::{Check, Findings, Table};
use std::collections::BTreeMap;
use thalweg::proxy::Picture;

/// Bytes on a link for each byte of samples that arrived: headers, and small messages of the nodes. Pictures alone have 1.06; the whole was
/// 1.09 to 1.13. A picture made smaller behind the link would have 4.
const HEADERS: f64 = 1.25;

/// The samples that a host took.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    wanted: Picture,
    /// Pictures by their size.
    pictures: BTreeMap<Picture, u64>,
    /// Bytes of all samples.
    payload: f64,
    /// Bytes that its link carried to it.
    link: f64,
}

impl Taken {
    /// Nothing yet.
    pub(super) fn of(wanted: Picture) -> Self {
        Self { wanted, pictures: BTreeMap::new(), payload: 0.0, link: f64::NAN }
    }

    /// They came over a link that carried so many bytes.
    pub(super) fn over(self, link: f64) -> Self {
        Self { link, ..self }
    }

    /// Adds so many samples of a stream.
    pub(super) fn add(&mut self, kind: usize, count: u64, pictures: &BTreeMap<Picture, u64>) {
        for (size, count) in pictures {
            *self.pictures.entry(*size).or_default() += count;
        }
        self.payload += if KINDS[kind].name == VIDEO {
            pictures.iter().map(|(size, count)| *count as f64 * picture::size(*size) as f64).sum()
        } else {
            count as f64 * KINDS[kind].size as f64
        };
    }

    fn count(&self) -> u64 {
        self.pictures.values().sum()
    }

    fn as_wanted(&self) -> u64 {
        self.pictures.get(&self.wanted).copied().unwrap_or(0)
    }
}

/// Judges sizes, and bytes on the links, of the phase before the link is narrow.
pub(super) fn judge(taken: &[Taken], findings: &mut Findings) {
    let heads = ["host", "every", "size wanted", "pictures that came", "of this size", "link, kB", "link / samples"];
    let mut table = Table::new("Pictures by host, before the link is narrow", &heads);
    for (host, (taken, (every, _))) in (1..).zip(taken.iter().zip(PICTURES)) {
        let beside = taken.link / taken.payload;
        table.rows.push(vec![
            format!("h{host}"),
            every.to_string(),
            taken.wanted.to_string(),
            taken.count().to_string(),
            taken.as_wanted().to_string(),
            format!("{:.0}", taken.link / 1000.0),
            format!("{beside:.2}"),
        ]);
        let share = taken.as_wanted() as f64 / taken.count() as f64;
        let name = format!("h{host}: share of the pictures that are {}", taken.wanted);
        findings.checks.push(Check::at_least(name, share, 1.0));
        let name = format!("h{host}: bytes on the link / of the samples that came");
        // All of them came over it: less would be a wrong measurement, which keeps every upper limit.
        findings.checks.push(Check::at_least(format!("{name}, at least"), beside, 1.0).judged_from(Size::Quick));
        findings.checks.push(Check::at_most(name, beside, HEADERS));
    }
    findings.tables.push(table);
    let each = |taken: &Taken| taken.link / taken.count() as f64;
    let whole = taken.iter().find(|taken| taken.wanted == WHOLE).map_or(f64::NAN, each);
    for (host, taken) in (1..).zip(taken).filter(|(_, taken)| taken.wanted != WHOLE) {
        let smaller = picture::size(WHOLE) as f64 / picture::size(taken.wanted) as f64;
        let name = format!("h{host}: bytes on the link for each picture, of {}, / where it is {WHOLE}", taken.wanted);
        // The other streams are on both links, but there are fewer pictures on this one.
        findings.checks.push(Check::at_most(name, each(taken) / whole, HEADERS * HEADERS / smaller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten pictures of this size for each host, and so many bytes on the link for each.
    fn failed(of: impl Fn(Picture) -> (Picture, f64)) -> Vec<String> {
        let video = KINDS.iter().position(|kind| kind.name == VIDEO).unwrap();
        let taken = PICTURES.map(|(_, wanted)| {
            let mut taken = Taken::of(wanted);
            let (came, link) = of(wanted);
            taken.add(video, 10, &BTreeMap::from([(came, 10)]));
            taken.over(10.0 * link)
        });
        let mut findings = Findings::default();
        judge(&taken, &mut findings);
        findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn smaller_pictures_are_of_their_size_and_save_the_link() {
        let bytes = |size| picture::size(size) as f64;
        assert_eq!(failed(|wanted| (wanted, 1.1 * bytes(wanted))), Vec::<String>::new());
        // Whole ones for all: they are not as wanted, and the link saves nothing.
        let whole = failed(|_| (WHOLE, 1.1 * bytes(WHOLE)));
        assert!(matches!(&whole[..], [size, link] if size.contains("share") && link.contains("for each picture")));
        // Made smaller behind the link.
        let late = failed(|wanted| (wanted, 1.1 * bytes(WHOLE)));
        assert!(matches!(&late[..], [samples, link] if samples.contains("came") && link.contains("for each picture")));
    }

    #[test]
    fn a_link_that_carried_less_than_came_over_it_fails() {
        let little = failed(|wanted| (wanted, 0.9 * picture::size(wanted) as f64));
        assert_eq!(little.len(), PICTURES.len(), "{little:?}");
        assert!(little.iter().all(|name| name.ends_with("at least")), "{little:?}");
    }

    #[test]
    fn a_host_without_pictures_fails() {
        let mut findings = Findings::default();
        judge(&[Taken::of(WHOLE).over(1000.0)], &mut findings);
        assert!(findings.checks.iter().all(|check| !check.pass), "{:?}", findings.checks);
    }
}
