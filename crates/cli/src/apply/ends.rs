//! The ends of channels after their priorities were set, for people.

use crate::output::table;
use qos::priority::Policy;
use std::collections::BTreeSet;
use thalweg::admin::EndReport;

/// The last report of each end, because several settings of one end have a report each.
pub(super) fn latest(reports: Vec<EndReport>) -> Vec<EndReport> {
    let mut ends: Vec<EndReport> = Vec::new();
    for report in reports {
        let key = |one: &EndReport| (one.publisher.clone(), one.subscriber.clone(), one.end.clone());
        match ends.iter_mut().find(|before| key(before) == key(&report)) {
            Some(before) => *before = report,
            None => ends.push(report),
        }
    }
    ends
}

/// A row for each end, and what these settings do not reach.
pub(super) fn text(ends: &[EndReport]) -> String {
    let headers =
        [("channel", '<'), ("end", '<'), ("thread", '<'), ("mark", '<'), ("lands in", '<'), ("effective", '<')];
    let rows = table(&headers, &ends.iter().map(cells).collect::<Vec<_>>());
    let beyond: BTreeSet<String> = ends.iter().filter_map(publishing_thread).collect();
    std::iter::once(rows).chain(beyond).collect::<Vec<_>>().join("\n\n")
}

fn cells(end: &EndReport) -> Vec<String> {
    let thread = match end.tid {
        Some(tid) => match end.reservation {
            Some(reserved) => format!("{tid}: {reserved}"),
            None => format!("{tid}: {} {}", end.policy, end.priority),
        },
        None => "-".to_owned(),
    };
    let mark = end.dscp.map_or("-".to_owned(), |dscp| dscp.to_string());
    let effective = match end.effective {
        true => "yes".to_owned(),
        false if has_no_packets(end) => format!("no packets over {}", end.carrier),
        false => format!("no: {}", end.because),
    };
    let channel = format!("{} → {}", end.publisher, end.subscriber);
    vec![channel, end.end.clone(), thread, mark, end.band.clone(), effective]
}

fn has_no_packets(end: &EndReport) -> bool {
    end.tos.is_none() && end.carrier.is_within_host()
}

/// Where the publishing thread hands samples over itself, a priority of the publisher's end reaches no thread.
fn publishing_thread(end: &EndReport) -> Option<String> {
    let sched = end.asked.sched.filter(|sched| matches!(sched.policy, Policy::Fifo(_) | Policy::RoundRobin(_)))?;
    let port = &end.publisher;
    (end.end == "publisher" && end.tid.is_none() && has_no_packets(end)).then(|| {
        format!(
            "{port}: the program's own thread hands its samples over, and this sets no priority of it: `thalweg set {port} {port} sched={sched}` \
             sets that of all threads of the program (sched=default takes it back)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str, carrier: &str, tid: Option<i32>) -> EndReport {
        let mut report = EndReport { publisher: "/out".into(), subscriber: "/in".into(), tid, ..EndReport::default() };
        (report.end, report.carrier) = (name.into(), carrier.into());
        report.asked.sched = Some("fifo:48".parse().unwrap());
        report
    }

    #[test]
    fn an_end_has_one_row_however_often_it_was_set() {
        let first = EndReport { policy: "other".into(), ..end("subscriber", "tcp", Some(7)) };
        let last = EndReport { policy: "fifo".into(), priority: 48, ..first.clone() };
        let ends = latest(vec![end("publisher", "tcp", Some(6)), first, last.clone()]);
        assert_eq!(ends[1..], [last]);
    }

    #[test]
    fn a_publishing_thread_that_stays_as_it_is_is_told() {
        let says = |ends: &[EndReport]| text(ends).contains("`thalweg set /out /out sched=fifo:48`");
        assert!(says(&[end("publisher", "shm", None)]));
        assert!(!says(&[end("publisher", "tcp", Some(6)), end("subscriber", "shm", Some(7))]));
        assert!(!says(&[EndReport { asked: Default::default(), ..end("publisher", "shm", None) }]));
        assert!(text(&[end("publisher", "shm", None)]).contains("no packets over shm"));
    }
}
