//! Tables 1 and 2 as measured, beside the paper's.

use super::places::{Arm, Cost, HZ, MANY, Node, ONE, SIZE};
use crate::lab::Size;
use crate::part::AWAKE;
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{median, uncertainty};

/// The most of the traffic that a tenth of the samples may be: nodes also exchange a few messages of their own.
const TRAFFIC: f64 = 0.11;
/// The same for the publisher's processor time.
const PROCESSOR: f64 = 0.15;

const PLACES: [&str; 3] = ["relay", "publisher", "subscriber"];
/// The paper's delays of both tables, in the order of [`PLACES`].
const DELAYS: [&str; 3] = ["Medium", "High", "Low"];
const NODES: [(Node, &str); 2] = [(Node::Publisher, "publisher"), (Node::Subscriber, "subscriber")];

/// The paper's levels of publisher and subscriber, in the order of [`PLACES`]: the same for processor time and traffic.
struct Paper {
    title: &'static str,
    prefix: &'static str,
    levels: [[Level; 3]; 2],
    /// `true` if processor time is judged, of the publisher and of the subscriber.
    processor: [bool; 2],
}

const TABLES: [Paper; 3] = [
    Paper {
        title: "Table 1, unicast: one subscriber of every 10th sample",
        prefix: "one",
        levels: [[Level::High, Level::Low, Level::High], [Level::Low, Level::Low, Level::High]],
        processor: [true, true],
    },
    Paper {
        title: "Table 2, multicast: six subscribers of every 2nd to 7th sample",
        prefix: "many",
        levels: MULTICAST,
        processor: [false, true],
    },
    Paper {
        title: "Table 2, multicast: six subscribers of 4/5 to 9/10 of the samples",
        prefix: "most",
        levels: MULTICAST,
        processor: [true, false],
    },
];
const MULTICAST: [[Level; 3]; 2] = [[Level::Low, Level::High, Level::Low], [Level::Low, Level::Low, Level::High]];

/// Nearer to the greatest of the three places, or to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Low,
    High,
}

/// Levels of the places, by ratios.
fn levels(values: [f64; 3]) -> [Level; 3] {
    let [least, greatest] = ends(values);
    let values = values.map(|value| value.max(f64::MIN_POSITIVE));
    values.map(|value| if value * value > least * greatest { Level::High } else { Level::Low })
}

/// Costs in µs and bytes of each published sample. The costs of nodes without a subscription are subtracted.
struct Costs<'a> {
    arms: &'a [Arm],
}

const PROCESSOR_TIME: fn(&Cost) -> f64 = |cost| cost.us;
const SENT: fn(&Cost) -> f64 = |cost| cost.sent;
const RECEIVED: fn(&Cost) -> f64 = |cost| cost.received;

impl Costs<'_> {
    fn arm(&self, name: &str) -> &Arm {
        self.arms.iter().find(|arm| arm.name == name).unwrap_or(&self.arms[0])
    }

    /// Median of the repetitions.
    fn of(&self, arm: &str, node: Node, figure: fn(&Cost) -> f64) -> f64 {
        self.arm(arm).cost(node, figure) - self.arm("none").cost(node, figure)
    }

    /// The traffic in the paper's sense: sent by a publisher, and received by a subscriber.
    fn traffic(&self, arm: &str, node: Node) -> f64 {
        self.of(arm, node, if node == Node::Publisher { SENT } else { RECEIVED })
    }

    /// Costs of every 10th sample at the publisher, in parts of those of all samples, repetition by repetition.
    fn tenth(&self, figure: fn(&Cost) -> f64) -> Vec<f64> {
        let each = |arm: &str| self.arm(arm).each(Node::Publisher, figure);
        let (none, whole, tenth) = (each("none"), each("whole"), each("one-publisher"));
        none.iter().zip(whole).zip(tenth).map(|((none, whole), tenth)| (tenth - none) / (whole - none)).collect()
    }
}

/// Tables, figure and checks.
pub(super) fn judge(arms: &[Arm]) -> Findings {
    let costs = Costs { arms };
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    for arm in arms.iter().filter(|arm| !arm.shares.is_empty()) {
        let factors = Factors::new().with("arm", arm.name).with("proxy", arm.place.to_string());
        let factors = factors.with("measured", if arm.carrier == "mcast" { "multicast" } else { "unicast" });
        findings.cells.push(arm.tally.cell(factors.with("payload_bytes", SIZE), false));
        findings.checks.push(Check::at_most(format!("{}: lost", arm.name), arm.tally.missing(), 0.0));
    }
    for (what, figure, limit, needs) in
        [("traffic", SENT, TRAFFIC, Size::Ci), ("processor time", PROCESSOR_TIME, PROCESSOR, Size::Quick)]
    {
        let found = costs.tenth(figure);
        let name = format!("every {}th sample: the publisher's {what} for it / for all samples", ONE.1);
        findings.checks.push(
            Check::at_most(name, median(&found), limit)
                .certain_within(uncertainty(&found), limit - 1.0 / f64::from(ONE.1))
                .judged_from(needs),
        );
    }
    for paper in &TABLES {
        note(paper, &costs, &mut findings);
    }
    findings.figure.title = "What the place of a proxy costs, for each sample published".into();
    findings.figure.axis = "Processor time in µs, traffic in hundreds of bytes, medians over repetitions".into();
    findings
}

/// One paper's table: its rows, and how many levels are as printed.
fn note(paper: &Paper, costs: &Costs, findings: &mut Findings) {
    let arms = PLACES.map(|place| format!("{}-{place}", paper.prefix));
    let heads = [
        "of",
        "proxy at",
        "processor µs",
        "as in the paper",
        "sent B",
        "received B",
        "as in the paper",
        "delay p50 µs (in the paper)",
    ];
    let mut table = Table::new(paper.title, &heads);
    // Of processor time and of traffic: levels as in the paper, and levels.
    let mut counts = [(0, 0); 2];
    for (((node, name), wanted), by_processor) in NODES.iter().zip(&paper.levels).zip(paper.processor) {
        let cost = |figure: fn(&Cost) -> f64| arms.each_ref().map(|arm| costs.of(arm, *node, figure));
        let (processor, sent, received) = (cost(PROCESSOR_TIME), cost(SENT), cost(RECEIVED));
        let found = [levels(processor), levels(arms.each_ref().map(|arm| costs.traffic(arm, *node)))];
        for ((equal, of), (found, is_judged)) in counts.iter_mut().zip(found.iter().zip([by_processor, true])) {
            if is_judged {
                *equal += found.iter().zip(wanted).filter(|(found, wanted)| found == wanted).count();
                *of += found.len();
            }
        }
        for (n, place) in PLACES.iter().enumerate() {
            let verdict = |level: Level| format!("{level:?} ({:?})", wanted[n]);
            let delay = median(&costs.arm(&arms[n]).tally.each(|d| d.p50));
            let delay = if *node == Node::Subscriber { format!("{delay:.0} ({})", DELAYS[n]) } else { String::new() };
            table.rows.push(vec![
                (*name).into(),
                (*place).into(),
                format!("{:.1}", processor[n]),
                verdict(found[0][n]),
                format!("{:.0}", sent[n]),
                format!("{:.0}", received[n]),
                verdict(found[1][n]),
                delay,
            ]);
        }
    }
    let of_relay = relay_levels(costs, &arms);
    for ((equal, of), (found, wanted)) in counts.iter_mut().zip(of_relay.iter().zip(RELAY_LEVELS)) {
        *equal += usize::from(*found == wanted);
        *of += 1;
    }
    let relay = |figure, digits: usize| format!("{:.digits$}", costs.of(&arms[0], Node::Relay, figure));
    let verdict = |n: usize| format!("{} ({})", of_relay[n], RELAY_LEVELS[n]);
    let row = [relay(PROCESSOR_TIME, 1), verdict(0), relay(SENT, 0), relay(RECEIVED, 0), verdict(1), String::new()];
    table.rows.push(["relay".into(), "relay".into()].into_iter().chain(row).collect());
    findings.tables.push(table);
    for (what, (equal, of), needs) in [("processor time", counts[0], Size::Quick), ("traffic", counts[1], Size::Ci)] {
        let name = format!("{}: levels of {what} as in the paper, of {of}", paper.title);
        findings.checks.push(Check::at_least(name, equal as f64, of as f64).judged_from(needs));
    }
    let delays = |arm: &String| costs.arm(arm).tally.each(|d| d.p50);
    let longer: Vec<f64> =
        delays(&arms[0]).iter().zip(delays(&arms[1])).map(|(relay, direct)| relay / direct).collect();
    let name = format!("{}: delay over the relay / from a proxy at the publisher", paper.title);
    findings.checks.push(Check::at_least(name, median(&longer), 1.0).judged_from(Size::Quick));
    findings.figure.panels.extend(panels(paper, &arms, costs));
}

/// The relay's processor time and traffic in both tables.
const RELAY_LEVELS: [&str; 2] = ["High", "Medium"];

/// The relay's levels of processor time and traffic (the mean of both directions), among the publisher's at the three places.
fn relay_levels(costs: &Costs, arms: &[String; 3]) -> [&'static str; 2] {
    let of_publisher = |figure| arms.each_ref().map(|arm| costs.of(arm, Node::Publisher, figure));
    let relay = |figure| costs.of(&arms[0], Node::Relay, figure);
    [
        high_or_low(of_publisher(PROCESSOR_TIME), relay(PROCESSOR_TIME)),
        within(of_publisher(SENT), (relay(SENT) + relay(RECEIVED)) / 2.0),
    ]
}

/// Nearer to the greatest of these values, or to the least.
fn high_or_low(values: [f64; 3], value: f64) -> &'static str {
    let [least, greatest] = ends(values);
    if value * value > least * greatest { "High" } else { "Low" }
}

/// Medium: between the least of these values and the greatest.
fn within(values: [f64; 3], value: f64) -> &'static str {
    let [least, greatest] = ends(values);
    match value {
        _ if value <= least => "Low",
        _ if value >= greatest => "High",
        _ => "Medium",
    }
}

/// The least and the greatest; costs are below zero only by noise.
fn ends(values: [f64; 3]) -> [f64; 2] {
    let values = values.map(|value| value.max(f64::MIN_POSITIVE));
    [values.into_iter().fold(f64::INFINITY, f64::min), values.into_iter().fold(0.0, f64::max)]
}

fn panels(paper: &Paper, arms: &[String; 3], costs: &Costs) -> [Panel; 2] {
    let panel = |what: &str, figure: &dyn Fn(&str, Node) -> f64| {
        let nodes = NODES.into_iter().chain([(Node::Relay, "relay")]);
        let bars = |node| {
            let bar = |(arm, place): (&String, &str)| Bar {
                series: format!("proxy at the {place}"),
                value: figure(arm, node).max(0.0),
                ..Bar::default()
            };
            arms.iter().zip(PLACES).map(bar).collect()
        };
        let groups = nodes.map(|(node, name)| Group { label: name.into(), bars: bars(node) }).collect();
        Panel { title: format!("{}: {what}", paper.title.split(':').next().unwrap_or_default()), groups }
    };
    let traffic = |arm: &str, node: Node| match node {
        Node::Relay => (costs.of(arm, node, SENT) + costs.of(arm, node, RECEIVED)) / 200.0,
        _ => costs.traffic(arm, node) / 100.0,
    };
    [panel("processor time", &|arm, node| costs.of(arm, node, PROCESSOR_TIME)), panel("traffic", &traffic)]
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{SIZE} bytes at {HZ} Hz from one host; a relay, and {} subscribers on hosts of their own around a switch that \
             lets groups out only where they were asked for. One stream at a time, in turns; all processes on one processor, the switch on the other one.",
            MANY.len()
        ),
        AWAKE.into(),
        "Processor time is what the kernel counts for all threads of the process, and traffic what its host's card counts, both for \
         each sample published and beyond what they are when nobody subscribes; of subscribers their mean."
            .into(),
        "High is nearer to the greatest of the three places than to the least (by ratio), the paper's in brackets. Traffic is what a \
         publisher sends, and what a subscriber receives; in the figure, of a relay the mean of both directions."
            .into(),
        "The paper's delays (Low at the subscriber, Medium, High at the publisher) are of nodes that each send once a period: \
         that is what `thalweg plan` computes with `delay = \"paper\"`. Ours pass samples on at once: what a relay adds \
         is a hop, and the other two are alike."
            .into(),
        "A proxy at the publisher sends a group for each share. Of every 2nd to 7th sample these are 1.6 times what is published, and nothing for \
         23 % of the samples; what goes to several groups leaves at once, and a send right after another costs a fraction of the first: the \
         publisher's processor time is not judged there. Of 4/5 to 9/10 they are 5.1 times: there it is, and the subscribers' is not, which \
         save little."
            .into(),
        "The relay's processor time is High if it is by the publisher's scale, and its traffic, the mean of both \
         directions, Medium if it is between the publisher's least and greatest."
            .into(),
        "A relay takes the stream whole and once, and sends a group for each share, as the publisher does in its place (Table 2).".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_judged_beside_the_publisher() {
        assert_eq!([high_or_low([10.0, 20.0, 11.0], 30.0), high_or_low([10.0, 20.0, 11.0], 12.0)], ["High", "Low"]);
        let traffic = |value| within([1000.0, 100.0, 1000.0], value);
        assert_eq!([100.0, 550.0, 1000.0, f64::INFINITY].map(traffic), ["Low", "Medium", "High", "High"]);
    }

    #[test]
    fn levels_go_by_ratios() {
        use Level::{High, Low};
        assert_eq!(levels([1.0, 0.1, 0.9]), [High, Low, High]);
        assert_eq!(levels([1.0, 1.28, 1.02]), [Low, High, Low]);
        assert_eq!(levels([0.0, -0.1, 5.0]), [Low, Low, High]);
    }
}
