//! `thalweg audit`: who had how much of the network, and whether anybody has changed that since.

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, table};
use agent::accounts::claim::Disputed;
use agent::accounts::signatures::Signature;
use agent::accounts::{Audit, Bill, Broken, Head, shown_time};
use agent::keys::realm_in;
use clap::Args;
use qos::show_bit_rate;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Check a broker's accounts, and show what each session had: reserved, sent, received
///
/// Each record names the hash of the one before it. Note the number and hash of the last one: with --head they prove later that no record from the first
/// one shown to that one was changed, left out or added. The broker signs its records, and neighbours those that name them; with --keys, the signatures
/// are checked. Exit code 1 if something is wrong; the record is named.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg audit --broker 10.0.0.1:7450 --keys keys --save march.jsonl\n         thalweg audit march.jsonl --head 1024:9f86d081... --keys keys"
)]
pub(crate) struct Arguments {
    /// Records that were saved, instead of the broker's
    file: Option<PathBuf>,
    /// Save the records, a line each, in a new file
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    save: Option<PathBuf>,
    /// Number and hash of a record that were printed before: it has to be among them
    #[arg(long, value_name = "NUMBER:HASH")]
    head: Option<Head>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Clocks whose difference has changed by more than that: each end of a session is right to a minute.
const DOUBTFUL_MS: u64 = 120_000;
/// Most disputed records that are shown of each neighbour.
const SHOWN: usize = 10;

/// Checks and shows.
pub(crate) fn run(Arguments { file, save, head, broker, json }: &Arguments) -> Result {
    let realm =
        broker.keys()?.as_deref().map(realm_in).transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let mut audit = Audit::new(head.clone(), realm);
    match file {
        Some(file) => of_file(file, &mut audit)?,
        None => of_broker(broker, save.as_deref(), &mut audit)?,
    }
    let (first, last, signatures) = (audit.first(), audit.head().clone(), audit.signatures());
    // What goes on is counted up to now, where the broker was asked now.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let bills = audit.bills(file.is_none().then_some(now)).map_err(broken)?;
    let document = json!({
        "first": first, "last": last.number, "head": last.to_string(), "sessions": bills, "signatures": signatures,
    });
    let proved = || proved(first, &last, head.as_ref());
    Output { json: *json }.result(&document, || format!("{}\n\n{}{}", shown(&bills), proved(), signed(&signatures)))
}

/// Lines about who has signed.
fn signed(signatures: &[Signature]) -> String {
    let line = |one: &Signature| {
        let Signature { domain, own, last, records, disputed, without_prices, clocks_ms, gone, checked, .. } = one;
        let mut line = match own {
            true => format!("\nsigned by the broker of {domain} up to record {last}"),
            false => format!("\ncountersigned by {domain} up to record {last}: {records} that name it"),
        };
        let also = [(*without_prices, "without prices"), (!*checked, "not checked: needs --keys DIR")];
        also.iter().filter(|(is, _)| *is).for_each(|(_, text)| line.push_str(&format!(", {text}")));
        if *gone > 0 {
            line.push_str(&format!(
                "\n  {gone} signatures are of records some of which are gone here: they prove nothing"
            ));
        }
        if *clocks_ms > DOUBTFUL_MS {
            let changed = clocks_ms / 1000;
            line.push_str(&format!(
                "\n  times are doubtful: both clocks differed by {changed} s more from one signature to another"
            ));
        }
        for Disputed { number, because } in disputed.iter().take(SHOWN) {
            line.push_str(&format!("\n  record {number} is disputed: {because}"));
        }
        match disputed.len().saturating_sub(SHOWN) {
            0 => line,
            more => format!("{line}\n  and {more} more"),
        }
    };
    signatures.iter().map(line).collect()
}

/// What is proved of these records.
fn proved(first: u64, last: &Head, noted: Option<&Head>) -> String {
    let number = last.number;
    match noted {
        _ if number == 0 => "no records".to_owned(),
        None => format!(
            "records {first} to {number} fit together; later, --head {last} proves that none of them was changed"
        ),
        Some(noted) => format!(
            "records {first} to {number} fit together, and none from {first} to {} was changed since its hash was noted",
            noted.number
        ),
    }
}

fn broken(why: Broken) -> Failure {
    Failure::No(why.to_string())
}

fn of_file(file: &Path, audit: &mut Audit) -> Result {
    let unreadable = |e: std::io::Error| Failure::Usage(format!("{}: {e}", file.display()));
    for line in BufReader::new(fs::File::open(file).map_err(unreadable)?).split(b'\n') {
        // A byte that is no text was changed.
        audit.read(&String::from_utf8_lossy(&line.map_err(unreadable)?)).map_err(broken)?;
    }
    Ok(())
}

/// Reads all records of a broker, and saves them.
fn of_broker(broker: &BrokerArguments, save: Option<&Path>, audit: &mut Audit) -> Result {
    let client = broker.client()?;
    let mut saved = None;
    let unwritten = |e: std::io::Error| Failure::System(format!("{}: {e}", save.unwrap_or(Path::new("")).display()));
    loop {
        let lines = client.accounts(audit.head().number).map_err(failure)?;
        if let (Some(file), None) = (save, &saved) {
            saved = Some(BufWriter::new(created(file)?));
        }
        let all = lines.iter().try_for_each(|line| saved.as_mut().map_or(Ok(()), |file| writeln!(file, "{line}")));
        all.map_err(unwritten)?;
        lines.iter().try_for_each(|line| audit.read(line)).map_err(broken)?;
        if lines.is_empty() {
            return saved.map_or(Ok(()), |mut file| file.flush()).map_err(unwritten);
        }
    }
}

/// A file that was not there: records that were saved before are evidence.
fn created(file: &Path) -> Result<fs::File> {
    let why = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Failure::Usage(format!("{}: is there already: name another file", file.display())),
        _ => Failure::System(format!("{}: {e}", file.display())),
    };
    fs::File::create_new(file).map_err(why)
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
