//! The treatment of each class and flow after queues were installed: read back, and counted where the queues count.

use super::failure;
use crate::failure::{Failure, Result};
use crate::output::table;
use linux::queueing::{Counted, Leaf, Placement, Wanted, Whose, counted, read};
use qos::Class;
use qos::priority::{CONTROL, Mark};
use serde::Serialize;

/// Treatment of one class on one device after the queues were installed: read back, and counted where they count.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    class: Class,
    dscp: u8,
    version: u8,
    #[serde(flatten)]
    placement: Placement,
    proved: Proved,
}

/// Source of the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Proved {
    /// A packet was sent, and the queue counted it.
    #[serde(rename = "counted")]
    Counted,
    /// The queues were read, and walked as the kernel does. Either they do not count per class, or no packet could be
    /// sent.
    #[serde(rename = "read back")]
    ReadBack,
}

/// Treatment of each class on a device, over IPv4 and IPv6. One datagram per class is sent where the device has an
/// address.
///
/// # Errors
/// The kernel's error, or a packet that went to the queue of another class.
pub(super) fn prove(wanted: &Wanted) -> Result<Vec<Row>> {
    let queues = read(&wanted.device).map_err(failure)?;
    let row = |class: Class, v6: bool| {
        let mark = Mark::Class(class);
        let placement = queues.placement(mark.tos(), mark.socket_priority(), v6);
        let proved = match counted(&wanted.device, &mark, v6).map_err(failure)? {
            Counted::AsPlaced => Proved::Counted,
            Counted::Nowhere => Proved::ReadBack,
            Counted::Elsewhere(found) => return Err(elsewhere(class, v6, &placement, &found)),
        };
        Ok(Row { class, dscp: mark.dscp().value(), version: if v6 { 6 } else { 4 }, placement, proved })
    };
    Class::ALL.into_iter().rev().flat_map(|class| [row(class, false), row(class, true)]).collect()
}

fn elsewhere(class: Class, v6: bool, placement: &Placement, found: &str) -> Failure {
    let version = if v6 { "IPv6" } else { "IPv4" };
    let Placement { device, place, .. } = placement;
    Failure::No(format!(
        "{device}: a packet of class {class} over {version} was counted in {found}, not in {place}: something else sets \
         priorities (`nft list ruleset`, `tc filter show dev {device}`); the queues are as they were before"
    ))
}

impl Row {
    /// `true` if the class gets the treatment that it asks for.
    pub(super) fn effective(&self) -> bool {
        self.placement.effective
    }
}

/// For people: one line per class if IPv4 and IPv6 agree.
pub(super) fn rows_text(rows: &[Row]) -> String {
    let headers = [
        ("device", '<'),
        ("class", '<'),
        ("DSCP", '>'),
        ("IP", '<'),
        ("lands in", '<'),
        ("sent", '<'),
        ("effective", '<'),
        ("proved", '<'),
    ];
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let Placement { device, discipline, place, rank, of, effective, .. } = &row.placement;
        let version = if row.version == 4 { "v4" } else { "v6" };
        let order = if *of > 1 { format!("{} of {of}", rank + 1) } else { "in turn".to_owned() };
        let line = [
            device.clone(),
            row.class.to_string(),
            row.dscp.to_string(),
            version.to_owned(),
            format!("{place} of {discipline}"),
            order,
            if *effective { "yes".to_owned() } else { format!("no: {}", row.placement.because) },
            if row.proved == Proved::Counted { "counted" } else { "read back, not counted" }.to_owned(),
        ];
        match lines.last_mut() {
            Some(last) if last[..3] == line[..3] && last[4..] == line[4..] => last[3] = "v4, v6".to_owned(),
            _ => lines.push(line.to_vec()),
        }
    }
    table(&headers, &lines)
}

/// A queue and rate of its own.
#[derive(Debug, Serialize)]
pub(super) struct FlowRow {
    device: String,
    flow: String,
    class: Class,
    rate_bits_per_s: u64,
    place: String,
}

/// The flows of a device; their queues were read back when they were installed.
pub(super) fn flows(wanted: &Wanted) -> Vec<FlowRow> {
    let row = |(number, leaf): (usize, &Leaf)| FlowRow {
        device: wanted.device.clone(),
        flow: match leaf.whose {
            Whose::Flow(flow) => flow.to_string(),
            Whose::Sockets(_) => "sockets that name it".to_owned(),
            Whose::Control => format!("control traffic, {CONTROL}"),
        },
        class: leaf.class,
        rate_bits_per_s: leaf.rate,
        place: leaf.class_handle(number).to_string(),
    };
    wanted.leaves().iter().enumerate().map(row).collect()
}

/// For people: one line per flow.
pub(super) fn flows_text(flows: &[FlowRow]) -> String {
    let headers = [("device", '<'), ("flow", '<'), ("class", '<'), ("rate, kbit/s", '>'), ("lands in", '<')];
    let row = |FlowRow { device, flow, class, rate_bits_per_s, place }: &FlowRow| {
        let rate = format!("{}", *rate_bits_per_s as f64 / 1000.0);
        vec![device.clone(), flow.clone(), class.to_string(), rate, format!("class {place} of htb")]
    };
    table(&headers, &flows.iter().map(row).collect::<Vec<_>>())
}
