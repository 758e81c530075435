//! `cac`: admission control by four rules on one trace of sessions (V-43), in virtual time and in namespaces.
//!
//! | module | contents |
//! |---|---|
//! | `trace` | sessions that come and go, and each rule's decisions about them |
//! | `testbed` | the most sessions that a rule has admitted at once, as a running network |

mod testbed;
mod trace;

use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Size};
use crate::link::LinkReport;
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use qos::Class;
use qos::admission::Rule;
use std::time::Duration;
use testbed::Testbed;
use trace::{Outcome, Session, Trace, rules};

/// The experiment.
pub(crate) struct Cac;

/// Three domains in a row, with a router each.
const NETWORK: &str = include_str!("cac.toml");
/// The links between domains.
const BORDERS: [usize; 2] = [1, 2];
/// From and to the nodes a, b and c.
const ROUTES: [(usize, usize); 3] = [(0, 4), (0, 5), (5, 4)];

/// A kind of session, after Table 3 of the Velox paper.
struct Kind {
    name: &'static str,
    class: Class,
    /// Bytes of a sample: it comes as a burst of packets.
    size: usize,
    hz: f64,
    deadline_ms: u64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "continuous data", class: Class::Normal, size: 4000, hz: 10.0, deadline_ms: 500 },
    Kind { name: "state", class: Class::High, size: 2000, hz: 20.0, deadline_ms: 300 },
    Kind { name: "alarms", class: Class::Critical, size: 6000, hz: 5.0, deadline_ms: 120 },
];

impl Kind {
    /// bit/s, without headers.
    fn rate(&self) -> f64 {
        self.size as f64 * 8.0 * self.hz
    }
}

/// A line behind a queue of this rate, which is 98 % of the line's.
const fn line(rate: u64) -> u64 {
    rate + rate / 49
}
/// The rate of a border's queue, bit/s.
const BORDER: u64 = 10_000_000;

/// The longest that a decision by pipes may take, at the 99th percentile, µs.
const PIPES_US: f64 = 2000.0;
/// Bounds and pipes admit at least this part of the traffic that declared rates admit, at the highest load.
const PART: f64 = 0.2;

/// Loads of a trace, sessions in it, and seconds in namespaces.
fn amount(size: Size) -> (&'static [f64], usize, f64) {
    match size {
        Size::Tiny => (&[2.0], 60, 1.2),
        Size::Ci => (&[2.0], 100, 2.0),
        Size::Quick => (&[0.5, 1.0, 2.0], 150, 6.0),
        Size::Whole => (&[0.5, 1.0, 1.5, 2.0], 400, 20.0),
    }
}

/// A rule's results.
struct Found {
    rule: Rule,
    /// For each load.
    outcomes: Vec<Outcome>,
    /// At the highest load in namespaces, for each of [`KINDS`].
    measured: Vec<Tally>,
}

/// The name of a rule here.
fn name(rule: &Rule) -> &'static str {
    match rule {
        Rule::Declared => "velox",
        Rule::Measured => "measured",
        Rule::Bound => "bound",
        Rule::Pipes(_) => "pipes",
    }
}

impl Experiment for Cac {
    fn name(&self) -> &'static str {
        "cac"
    }

    fn about(&self) -> &'static str {
        "sessions admitted by declared rates, measured load, bounds and pipes: which of them are late"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (loads, count, seconds) = amount(lab.options.size);
        let aimed = lab.options.size >= Size::Quick;
        let traces = loads.iter().map(|load| Trace::new(*load, count, lab.options.seed)).collect::<Result<Vec<_>>>()?;
        let (mut found, mut reports) = (Vec::new(), Vec::new());
        for rule in rules()? {
            let name = name(&rule);
            lab.tell(&format!("{name}, in virtual time"));
            let outcomes = traces.iter().map(|trace| trace.decide(lab, &rule, aimed)).collect::<Result<Vec<_>>>()?;
            let measured = match (traces.last(), outcomes.last()) {
                (Some(trace), Some(outcome)) => {
                    lab.tell(&format!("{name}, {} sessions in namespaces", outcome.most.len()));
                    measure(lab, trace, outcome, Duration::from_secs_f64(seconds), &mut reports)?
                }
                _ => Vec::new(),
            };
            found.push(Found { rule, outcomes, measured });
        }
        let mut findings = judge(loads, count, &found);
        lines::judge("all rules", &reports, &mut findings);
        Ok(findings)
    }
}

fn measure(
    lab: &Lab,
    trace: &Trace,
    outcome: &Outcome,
    time: Duration,
    reports: &mut Vec<LinkReport>,
) -> Result<Vec<Tally>> {
    let sessions: Vec<(usize, Session)> = outcome.most.iter().map(|flow| (*flow, trace.sessions[*flow])).collect();
    let mut testbed = Testbed::new(lab, &sessions)?;
    let tallies = testbed.run(lab, &sessions, time)?;
    reports.extend(testbed.end());
    Ok(tallies)
}

fn judge(loads: &[f64], count: usize, found: &[Found]) -> Findings {
    let mut findings = Findings { notes: notes(count), ..Findings::default() };
    findings.tables.extend(decided(loads, count, found));
    let heads = ["rule, kind", "sent", "lost", "late", "late, less stalls", "p50, ms", "max, ms", "deadline, ms"];
    let mut measured = Table::new("Samples in namespaces, the most sessions at once, at the highest load", &heads);
    for of in found {
        for (kind, tally) in KINDS.iter().zip(&of.measured) {
            let factors = Factors::new().with("arm", name(&of.rule)).with("kind", kind.name).with("measured", "udp");
            let cell = tally.cell(factors.with("payload_bytes", kind.size), false);
            let [p50, max] = cell.latency_us.as_ref().map_or([f64::NAN; 2], |d| [d.p50 / 1e3, d.max / 1e3]);
            let (late, excused) = tally.beyond(kind.deadline_ms as f64 * 1e3);
            let numbers = [tally.sent() as f64, tally.lost() as f64, late as f64, (late - excused) as f64];
            let label = format!("{}, {}", name(&of.rule), kind.name);
            measured.row(label, &[&numbers[..], &[p50, max, kind.deadline_ms as f64]].concat());
            findings.cells.push(cell);
        }
    }
    findings.tables.push(measured);
    findings.checks = checks(loads, found);
    findings.figure = figure(loads, found);
    findings
}

/// Tables of decisions and refusals.
fn decided(loads: &[f64], count: usize, found: &[Found]) -> [Table; 2] {
    let heads = ["rule, load", "asked", "admitted", "late", "border, %", "decision p50, µs", "p99, µs"];
    let mut decided = Table::new("Sessions in virtual time", &heads);
    let mut refused = Table::new("Refusals", &["rule, load, reason", "sessions"]);
    for of in found {
        for (load, outcome) in loads.iter().zip(&of.outcomes) {
            let [p50, p99] = outcome.decision_us;
            let [admitted, late] = [&outcome.admitted, &outcome.late].map(|all| all.len() as f64);
            let label = format!("{}, {load}", name(&of.rule));
            decided.row(label.clone(), &[count as f64, admitted, late, outcome.used * 100.0, p50, p99]);
            for (reason, times) in &outcome.refused {
                refused.row(format!("{label}, {reason}"), &[*times as f64]);
            }
        }
    }
    [decided, refused]
}

fn checks(loads: &[f64], found: &[Found]) -> Vec<Check> {
    let declared = found.first().map_or(f64::NAN, Found::used);
    let mut checks = Vec::new();
    for of in found {
        match of.rule.guarantees() {
            true => checks.extend(of.guaranteed(loads, declared)),
            false => checks.extend(of.harmed()),
        }
        if let (Rule::Pipes(_), Some(outcome)) = (&of.rule, of.outcomes.last()) {
            checks.push(Check::at_most("pipes: time of a decision, p99, µs", outcome.decision_us[1], PIPES_US));
        }
        let fastest = |(kind, tally): (&Kind, &Tally)| {
            let name = name(&of.rule);
            let name = format!("{name}, {}: the fastest, µs (limit: transmission over one border)", kind.name);
            Check::at_least(name, tally.least(), lines::transmission_us(kind.size, line(BORDER)))
        };
        checks.extend(KINDS.iter().zip(&of.measured).map(fastest));
    }
    checks
}

impl Found {
    /// Use of the borders at the highest load.
    fn used(&self) -> f64 {
        self.outcomes.last().map_or(f64::NAN, |outcome| outcome.used)
    }

    /// Samples in namespaces that were late, those of them that stalls excuse, and samples that were lost.
    fn late_and_lost(&self) -> [u64; 3] {
        let of = |(tally, kind): (&Tally, &Kind)| (tally.beyond(kind.deadline_ms as f64 * 1e3), tally.lost());
        let each = self.measured.iter().zip(&KINDS).map(of);
        each.fold([0; 3], |[late, excused, lost], (one, more)| [late + one.0, excused + one.1, lost + more])
    }

    /// None of its sessions is late, and it does not refuse nearly all of them.
    fn guaranteed(&self, loads: &[f64], declared: f64) -> Vec<Check> {
        let rule = name(&self.rule);
        let [late, excused, lost] = self.late_and_lost();
        let virtually = loads.iter().zip(&self.outcomes).map(|(load, outcome)| {
            let name = format!("{rule}, load {load}: sessions with a late sample, in virtual time");
            Check::at_most(name, outcome.late.len() as f64, 0.0)
        });
        let mut checks: Vec<Check> = virtually.collect();
        let name = format!("{rule}: samples later than their deadline in namespaces, less stalls of the machine");
        checks.push(Check::at_most(name, (late - excused) as f64, 0.0).less_stalls(late as f64));
        checks.push(Check::at_most(format!("{rule}: lost samples in namespaces"), lost as f64, 0.0));
        let name = format!("{rule}: traffic admitted / admitted by declared rates, at the highest load");
        checks.push(Check::at_least(name, self.used() / declared, PART));
        checks
    }

    /// Some of its sessions are late: otherwise the trace would not show what others prevent.
    fn harmed(&self) -> Vec<Check> {
        let rule = name(&self.rule);
        let late = self.outcomes.last().map_or(f64::NAN, |outcome| outcome.late.len() as f64);
        let [all, _, lost] = self.late_and_lost();
        vec![
            Check::at_least(format!("{rule}: sessions with a late sample, in virtual time"), late, 1.0),
            Check::at_least(format!("{rule}: late and lost samples in namespaces"), (all + lost) as f64, 1.0)
                .judged_from(Size::Quick),
        ]
    }
}

/// Sessions admitted and late, and the use of the borders, by load.
fn figure(loads: &[f64], found: &[Found]) -> Figure {
    let panel = |title: &str, of: &dyn Fn(&Outcome) -> f64| {
        let group = |(at, load): (usize, &f64)| Group {
            label: format!("load {load}"),
            bars: found
                .iter()
                .filter_map(|rule| {
                    let value = of(rule.outcomes.get(at)?);
                    Some(Bar { series: name(&rule.rule).into(), value, deviation: 0.0, mark: None })
                })
                .collect(),
        };
        Panel { title: title.into(), groups: loads.iter().enumerate().map(group).collect() }
    };
    let part = |some: usize, of: usize| 100.0 * some as f64 / of.max(1) as f64;
    Figure {
        title: "Admission of sessions over three domains, by four rules".into(),
        axis: "%".into(),
        logarithmic: false,
        panels: vec![
            panel("admitted, of those with a late sample", &|one| part(one.late.len(), one.admitted.len())),
            panel("use of the borders, as declared", &|one| one.used * 100.0),
        ],
    }
}

fn notes(count: usize) -> Vec<String> {
    let kind = |kind: &Kind| {
        format!(
            "{} ({}): {} bytes at {} Hz within {} ms",
            kind.name,
            kind.class.name(),
            kind.size,
            kind.hz,
            kind.deadline_ms
        )
    };
    vec![
        format!(
            "{count} sessions: Poisson arrivals, 60 s each on average (exponential), 30 % of them continuous data, 30 % state, 40 % alarms, from a to c, a to b or b to c; load 1 offers each border its rate, without headers. {}",
            KINDS.iter().map(kind).collect::<Vec<_>>().join("; ")
        ),
        "velox: declared rates fit into the class's share of each link, inside domains and between them; the paper gives no formula (E-V17). measured: 90 % of the share, and of the sessions' load what they send when another one asks: 60 % of them 30 % of what they declared".into(),
        "late: a sample comes after its deadline in a simulation of the sessions that are there together, if all send what they declared, by all patterns of release. In namespaces the most sessions that were there at once begin together".into(),
    ]
}

#[cfg(test)]
mod tests;
