//! The terms of each delay, so that they can be followed and added up by hand.

use super::show;
use crate::output::table;
use qos::plan::{Chain, Channel, Model, Percentiles, Plan, Term};
use qos::show_time;

/// The steps of a chain.
const CHANNEL: &str = "a channel, as above";
const WAIT: &str = "until it is published";

/// The steps of a bound in the order in which a sample meets them, each with the source of its formula.
const STEPS: [(&str, &str); 22] = [
    ("from the application to the middleware", "declared (hand_in)"),
    ("handed over to its thread", "`publish` wakes the thread that sends the sample: hand_over of the node"),
    (
        "waiting for more urgent threads",
        "threads of higher priority on the same processors compute first (Audsley et al. 1993)",
    ),
    (
        "waiting for the reserved time",
        "a thread with a reservation is done by its deadline; longer, if samples come closer than its period (Abeni & Buttazzo 1998; Shin & Lee 2003)",
    ),
    ("sending", "the publisher's thread computes: cpu_send of the topic"),
    (
        "gathers",
        "small samples of a publisher with a latency budget wait for others, and leave together: half of it, 1 ms at most, and 50 us by which a timer is late",
    ),
    (
        "leaves at its pace",
        "the packets of a sample leave one after the other: its bytes with headers / pace, behind those that came before it",
    ),
    ("scaling at the proxy", "its thread leaves samples out or makes pictures smaller: cpu_proxy"),
    ("forwarding", "a node between hands a packet on: forwarding of the link that it leaves by"),
    (
        "blocking by what is being sent",
        "a packet of a lower class that is on the wire already is finished first; a host hands over up to 64 KiB as one (Davis et al. 2007)",
    ),
    (
        "latency of the class's share",
        "until the scheduler comes to this class (htb: its bucket empty, those of higher classes full, Le Boudec & Thiran 2001, §6.2.1; hfsc: Stoica, Zhang & Ng 1997, theorem 2)",
    ),
    (
        "waiting for higher classes",
        "packets of higher classes leave first, also those that come meanwhile (Davis et al. 2007)",
    ),
    (
        "waiting in the class's queue",
        "packets of the same class that came before leave first (Le Boudec & Thiran 2001, theorem 1.4.2)",
    ),
    (
        "waiting in its own queue",
        "packets of the same channel that came before leave first (Le Boudec & Thiran 2001, theorem 1.4.2)",
    ),
    (
        "transmission",
        "the sample's own bytes on the wire, headers included (size + packets · overhead), at the link's rate; on a later link what could not cross it meanwhile",
    ),
    (
        "in the device",
        "the token bucket of an installed queue hands its device a burst at once, of any class, which goes first (sch_tbf.c)",
    ),
    ("propagation", "from one end of the link to the other: its delay"),
    ("rounding", "very long analyses go in coarse steps at the end, always up"),
    ("receiving", "the subscriber's thread computes: cpu_receive"),
    ("from the middleware to the application", "declared (hand_out)"),
    (CHANNEL, "a part of a chain: the bound of a channel"),
    (
        WAIT,
        "a sampled topic of a chain: burst · period + jitter; and a period for each sample that the subscriber leaves out (Davare et al. 2007)",
    ),
];

/// Every channel, term by term.
pub(super) fn text(plan: &Plan) -> String {
    let mut parts = vec![show::verdict(plan), how_to_read(plan).to_owned()];
    if !plan.refusals.is_empty() {
        parts.push(show::refusals(&plan.refusals));
    }
    parts.extend(overview(plan));
    parts.extend(Some(show::settings(plan)).filter(|text| !text.is_empty()));
    parts.extend(legend(plan));
    parts.extend(plan.channels.iter().map(channel));
    parts.extend(plan.chains.iter().map(chain));
    parts.join("\n\n")
}

fn how_to_read(plan: &Plan) -> &'static str {
    if plan.model.is_mean() {
        "A mean is how long a sample takes on average, from the call of publish until the subscriber has it. Each line is a step on its\n\
         way: how long that takes, its part of the whole, what it is, and how it is computed. The last line of each channel is their\n\
         sum. Lines in brackets stand beside it: what another reading of the model gives."
    } else {
        "A bound is the longest that a sample can take, from the call of publish to the end of the subscriber's callback, whatever the\n\
         other channels of this contract do meanwhile. Each line is a step on its way: the longest that it can take, its part of the whole,\n\
         where (a node, or a link and the node that it leads to), and what. The last line of each channel is their sum. The longest\n\
         steps are where there is something to gain."
    }
}

/// One line for each channel with a deadline, those with the least slack first.
fn overview(plan: &Plan) -> Option<String> {
    let delay = |channel: &Channel| channel.mean_us.or(channel.bound_us);
    let used = |channel: &Channel| {
        let deadline = channel.deadline_us?;
        Some(delay(channel).map_or(f64::INFINITY, |us| us / deadline))
    };
    let mut listed: Vec<(&Channel, f64)> = plan.channels.iter().filter_map(|one| Some((one, used(one)?))).collect();
    listed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |(channel, used): &(&Channel, f64)| {
        let longest = channel.derivation.iter().max_by(|a, b| a.us.total_cmp(&b.us)).filter(|_| used.is_finite());
        let longest =
            longest.map(|term| format!("most of it {}: {}", show_time(term.us), term.name)).unwrap_or_default();
        let reason = channel.also.first().filter(|_| used.is_infinite()).map(|term| term.because.clone());
        let deadline = channel.deadline_us.map(show_time).unwrap_or_default();
        vec![
            String::new(),
            format!("{} → {}", channel.topic, channel.subscriber),
            delay(channel).map_or("no limit".to_owned(), show_time),
            format!("of {deadline}"),
            if used.is_finite() { format!("{:.0} %", used * 100.0) } else { String::new() },
            reason.unwrap_or(longest),
        ]
    };
    let sides = [("", '<'), ("", '<'), ("", '>'), ("", '<'), ("", '>'), ("", '<')];
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    (rows.len() > 1).then(|| format!("deadlines, those with the least to spare first\n{}", body(&sides, &rows)))
}

/// The steps that occur in this plan.
fn legend(plan: &Plan) -> Option<String> {
    let terms = || plan.channels.iter().flat_map(|channel| &channel.derivation);
    let occurs = |step: &str| terms().any(|term| place_and_step(term).is_some_and(|(_, what)| what == step));
    let parts = || plan.chains.iter().flat_map(|chain| &chain.parts);
    let in_chain = |step: &str| {
        (step == CHANNEL && parts().next().is_some()) || (step == WAIT && parts().any(|part| part.wait_us > 0.0))
    };
    let found: Vec<_> = STEPS.into_iter().filter(|(step, _)| occurs(step) || in_chain(step)).collect();
    let rows: Vec<Vec<String>> =
        found.iter().map(|(step, meaning)| vec![String::new(), (*step).to_owned(), (*meaning).to_owned()]).collect();
    (!rows.is_empty()).then(|| format!("steps\n{}", body(&[("", '<'), ("", '<'), ("", '<')], &rows)))
}

/// The place of a bound's step, and its name in [`STEPS`].
fn place_and_step(term: &Term) -> Option<(&str, &'static str)> {
    let numbered = term.name.rsplit_once(" #").filter(|(_, number)| number.parse::<u32>().is_ok());
    let name = numbered.map_or(term.name.as_str(), |(name, _)| name);
    STEPS.into_iter().find_map(|(step, _)| Some((name.strip_suffix(step)?.strip_suffix(": ")?, step)))
}

fn channel(channel: &Channel) -> String {
    let Channel { topic, publisher, subscriber, node, class, .. } = channel;
    let head = format!("{topic}: {publisher} → {subscriber} at {node}, class {class}{}", scaled(channel));
    let whole: f64 = channel.derivation.iter().map(|term| term.us).sum();
    let digits = digits(channel);
    let time = |us: f64| format!("{us:.digits$} us");
    let mut rows: Vec<[String; 5]> = Vec::new();
    for term in &channel.derivation {
        let part = format!("{:.0} %", 100.0 * term.us / whole.max(f64::MIN_POSITIVE));
        let (place, step, how) = match place_and_step(term) {
            Some((place, step)) => (place, step, numbers(&term.because)),
            None => (term.name.as_str(), "", term.because.as_str()),
        };
        rows.push([time(term.us), part, place.to_owned(), step.to_owned(), how.to_owned()]);
        let part = |part: &Term| {
            let because = format!("{} = {}", time(part.us), part.because);
            [String::new(), String::new(), format!("  {}", part.name), String::new(), because]
        };
        rows.extend(term.parts.iter().map(part));
    }
    let sum = channel.mean_us.or(channel.bound_us).map_or("no limit".to_owned(), time);
    let total = if channel.mean_us.is_some() { "= mean" } else { "= bound" };
    rows.push([sum, String::new(), total.to_owned(), String::new(), verdict(channel)]);
    let beside = |term: &Term| {
        [format!("({})", time(term.us)), String::new(), term.name.clone(), String::new(), term.because.clone()]
    };
    rows.extend(channel.also.iter().map(beside));
    rows.extend(channel.percentiles.as_ref().map(percentiles));
    // An empty column takes no space.
    let used: Vec<usize> = (0..5).filter(|column| rows.iter().any(|row| !row[*column].is_empty())).collect();
    let cells =
        |row: &[String; 5]| std::iter::once("  ".to_owned()).chain(used.iter().map(|at| row[*at].clone())).collect();
    let sides: Vec<(&str, char)> =
        std::iter::once(("", '<')).chain(used.iter().map(|at| ("", if *at < 2 { '>' } else { '<' }))).collect();
    format!("{head}\n{}", body(&sides, &rows.iter().map(cells).collect::<Vec<_>>()))
}

/// Percentiles of a queueing model: a line beside the sum.
fn percentiles(found: &Percentiles) -> [String; 5] {
    let Percentiles { model, p50_us, p99_us, p999_us } = found;
    let source = match model {
        Model::Mm1k => "M/M/1/K at the publisher: n + 1 services, if n are there (Wolff 1982)",
        _ => "M/M/1 at the publisher: exponential (Kleinrock 1975, chapter 5)",
    };
    let others = format!("p99; p50 {}, p99.9 {}", show_time(*p50_us), show_time(*p999_us));
    [format!("({p99_us:.3} us)"), String::new(), others, String::new(), format!("{source}; a model, no promise")]
}

/// A chain: the waits and bounds that it is the sum of.
fn chain(chain: &Chain) -> String {
    let time = |us: f64| format!("{us:.3} us");
    let cells = |us: Option<f64>, what: String, how: String| {
        vec!["  ".to_owned(), us.map_or("no limit".to_owned(), time), what, how]
    };
    let mut rows = Vec::new();
    for part in &chain.parts {
        if part.wait_us > 0.0 {
            rows.push(cells(Some(part.wait_us), part.topic.clone(), WAIT.to_owned()));
        }
        let way = format!("{}: {} → {}", part.topic, part.publisher, part.subscriber);
        rows.push(cells(part.bound_us, way, CHANNEL.to_owned()));
    }
    let rest = match (chain.bound_us, chain.deadline_us) {
        (_, None) => "no deadline".to_owned(),
        (Some(bound), Some(deadline)) if bound <= deadline * (1.0 + 1e-9) => {
            format!("deadline {}: {} to spare", show_time(deadline), show_time((deadline - bound).max(0.0)))
        }
        (Some(bound), Some(deadline)) => {
            format!("deadline {}: LATE by {}", show_time(deadline), show_time(bound - deadline))
        }
        (None, Some(deadline)) => format!("deadline {}", show_time(deadline)),
    };
    rows.push(cells(chain.bound_us, "= bound".to_owned(), rest));
    let sides = [("", '<'), ("", '>'), ("", '<'), ("", '<')];
    let head = "from the first publish to the end of the last callback, the sum of the parts";
    format!("chain {}: {head}\n{}", chain.name, body(&sides, &rows))
}

fn scaled(channel: &Channel) -> String {
    let Some(proxy) = &channel.proxy else { return String::new() };
    let samples = (channel.scale > 1).then(|| format!("one of {} samples", channel.scale));
    let pictures = channel.picture.as_ref().map(|picture| format!("pictures of {picture}"));
    let what: Vec<String> = samples.into_iter().chain(pictures).collect();
    let what = if what.is_empty() { String::new() } else { format!(" to {}", what.join(", ")) };
    format!(", scaled{what} at {proxy}")
}

/// Digits that make the shown terms add up exactly, at most whole nanoseconds.
fn digits(channel: &Channel) -> usize {
    let exact = |digits: &usize| {
        let scale = 10f64.powi(*digits as i32);
        channel.derivation.iter().all(|term| (term.us * scale - (term.us * scale).round()).abs() < 1e-6 * scale)
    };
    (0..3).find(exact).unwrap_or(3)
}

/// Bytes and rate of a step, if it has them.
fn numbers(because: &str) -> &str {
    let has = because.starts_with(|c: char| c.is_ascii_digit());
    if has { because.split([':', ',']).next().unwrap_or_default() } else { "" }
}

fn verdict(channel: &Channel) -> String {
    let loss = channel.loss.map(|loss| format!("; {:.3e} of all samples are lost", loss)).unwrap_or_default();
    let occupancy = channel.occupancy.map(|[waiting, processing]| {
        let (waiting, processing) = (100.0 * waiting, 100.0 * processing);
        format!(
            "; {} waits {waiting:.1} % and processes {processing:.2} % of the time (two-state chain, eq. 2)",
            channel.publisher
        )
    });
    let deadline = match (channel.mean_us.or(channel.bound_us), channel.deadline_us) {
        (_, None) => "no deadline".to_owned(),
        (Some(delay), Some(deadline)) if delay <= deadline * (1.0 + 1e-9) => {
            format!("deadline {}: {} to spare", show_time(deadline), show_time((deadline - delay).max(0.0)))
        }
        (Some(delay), Some(deadline)) => {
            format!("deadline {}: LATE by {}", show_time(deadline), show_time(delay - deadline))
        }
        (None, Some(deadline)) => format!("deadline {}: LATE", show_time(deadline)),
    };
    deadline + &loss + &occupancy.unwrap_or_default()
}

/// Rows in columns, without a header.
fn body(sides: &[(&str, char)], rows: &[Vec<String>]) -> String {
    table(sides, rows).lines().skip(1).collect::<Vec<_>>().join("\n")
}
