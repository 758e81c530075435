//! What is effective per class, as the kernel shows it after the queues were installed.

use crate::failure::Result;
use crate::output::table;
use linux::queueing::{Placement, Wanted, read};
use qos::Class;
use qos::priority::Mark;
use serde::Serialize;

/// What one class gets on one device.
#[derive(Debug, Serialize)]
pub struct Row {
    class: Class,
    dscp: u8,
    version: u8,
    #[serde(flatten)]
    placement: Placement,
}

/// What every class gets on a device, IPv4 and IPv6.
///
/// # Errors
/// What the kernel says.
pub fn of(wanted: &Wanted) -> Result<Vec<Row>> {
    let queues = read(&wanted.device).map_err(super::failure)?;
    let row = |class: Class, v6: bool| {
        let mark = Mark::Class(class);
        let placement = queues.placement(mark.tos(), mark.socket_priority(), v6);
        Row { class, dscp: mark.dscp().value(), version: if v6 { 6 } else { 4 }, placement }
    };
    Ok(Class::ALL.into_iter().rev().flat_map(|class| [row(class, false), row(class, true)]).collect())
}

impl Row {
    /// Whether the class is treated as it says.
    pub fn effective(&self) -> bool {
        self.placement.effective
    }
}

/// For people: one line per class where both versions agree.
pub fn text(rows: &[Row]) -> String {
    let headers = [
        ("device", '<'),
        ("class", '<'),
        ("DSCP", '>'),
        ("IP", '<'),
        ("lands in", '<'),
        ("sent", '<'),
        ("effective", '<'),
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
        ];
        match lines.last_mut() {
            Some(last) if last[..3] == line[..3] && last[4..] == line[4..] => last[3] = "v4, v6".to_owned(),
            _ => lines.push(line.to_vec()),
        }
    }
    table(&headers, &lines)
}
