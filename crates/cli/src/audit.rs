//! `thalweg audit`: who had how much of the network, and whether anybody has changed that since.

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, table};
use agent::accounts::{Audit, Bill, Broken, Head, MOST_RECORDS, shown_time};
use clap::Args;
use qos::show_bit_rate;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Check a broker's accounts, and show what each session had: reserved, sent, received
///
/// Each record names the hash of the one before it. Note the head that is printed: with --head it proves later that nothing before it was changed, left
/// out or added. Exit code 1 if something was; the record is named.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg audit --broker 10.0.0.1:7450 --keys keys --save march.jsonl\n         thalweg audit march.jsonl --head 1024:9f86d081..."
)]
pub(crate) struct Arguments {
    /// Records that were saved, instead of the broker's
    file: Option<PathBuf>,
    /// Save the records, a line each
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    save: Option<PathBuf>,
    /// A head that was printed before: it has to be among them
    #[arg(long, value_name = "NUMBER:HASH")]
    head: Option<Head>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks and shows.
pub(crate) fn run(Arguments { file, save, head, broker, json }: &Arguments) -> Result {
    let mut audit = Audit::new(head.clone());
    match file {
        Some(file) => of_file(file, &mut audit)?,
        None => of_broker(broker, save.as_deref(), &mut audit)?,
    }
    let last = audit.head().clone();
    let bills = audit.bills().map_err(broken)?;
    let document = json!({"records": last.number, "head": last.to_string(), "sessions": bills});
    Output { json: *json }.result(&document, || format!("{}\n\nhead {last}: nothing was changed", shown(&bills)))
}

fn broken(why: Broken) -> Failure {
    Failure::No(why.to_string())
}

fn of_file(file: &Path, audit: &mut Audit) -> Result {
    let unreadable = |e: std::io::Error| Failure::Usage(format!("{}: {e}", file.display()));
    let lines = BufReader::new(fs::File::open(file).map_err(unreadable)?).lines();
    for line in lines {
        audit.read(&line.map_err(unreadable)?).map_err(broken)?;
    }
    Ok(())
}

/// Reads all records of a broker, and saves them.
fn of_broker(broker: &BrokerArguments, save: Option<&Path>, audit: &mut Audit) -> Result {
    let client = broker.client()?;
    let unwritten = |e: std::io::Error| Failure::System(format!("{}: {e}", save.unwrap_or(Path::new("")).display()));
    let mut saved = save.map(fs::File::create).transpose().map_err(unwritten)?.map(BufWriter::new);
    loop {
        let lines = client.accounts(audit.head().number).map_err(failure)?;
        for line in &lines {
            audit.read(line).map_err(broken)?;
            saved.as_mut().map_or(Ok(()), |file| writeln!(file, "{line}")).map_err(unwritten)?;
        }
        if lines.len() < MOST_RECORDS {
            return saved.map_or(Ok(()), |mut file| file.flush()).map_err(unwritten);
        }
    }
}

/// For people: one line per session.
fn shown(bills: &[Bill]) -> String {
    let headers = [
        ("session", '<'),
        ("owner", '<'),
        ("from", '<'),
        ("until", '<'),
        ("reserved", '>'),
        ("sent", '>'),
        ("received", '>'),
        ("price", '>'),
    ];
    table(&headers, &bills.iter().map(row).collect::<Vec<_>>())
}

fn row(bill: &Bill) -> Vec<String> {
    let seconds = bill.until_unix_ms.saturating_sub(bill.from_unix_ms) as f64 / 1e3;
    let rate = if seconds > 0.0 { bill.reserved_bits as f64 / seconds } else { 0.0 };
    let owner = bill.owner.rsplit('/').next().unwrap_or(&bill.owner);
    vec![
        bill.session.clone(),
        owner.to_owned(),
        shown_time(bill.from_unix_ms),
        if bill.active { "active".to_owned() } else { shown_time(bill.until_unix_ms) },
        format!("{} ({} on average)", bytes(bill.reserved_bits as f64 / 8.0), show_bit_rate(rate)),
        bytes(bill.traffic.sent.bytes as f64),
        bytes(bill.traffic.received.bytes as f64),
        bill.price.to_string(),
    ]
}
