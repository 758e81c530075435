//! `thalweg links`: what the links of a domain carry now, and saying so where no agent can see it.

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::quantity;
use agent::message::{Link, Links};
use clap::Args;
use qos::show_bit_rate;

/// Show the links of a domain, or set that one carries less than the contract says: a radio link, say, or one of a rented line
///
/// Agents report links that are down by themselves. Sessions that do not fit any more are thinned as far as they allow, or suspended, the least
/// important first; they get back what they had when the links carry it again. Exit code 1 if the contract itself does not fit.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg links --broker 10.0.0.1:7450 --keys keys\n         thalweg links air --rate 600kbit/s --broker 10.0.0.1:7450 --keys keys\n         thalweg links air --clear --broker 10.0.0.1:7450 --keys keys"
)]
pub(crate) struct Arguments {
    /// The link, by its name in the contract
    #[arg(requires = "change")]
    link: Option<String>,
    /// It carries so much, such as 600kbit/s
    #[arg(long, value_name = "RATE", requires = "link", group = "change", value_parser = quantity::bit_rate)]
    rate: Option<u64>,
    /// It carries nothing
    #[arg(long, requires = "link", group = "change")]
    down: bool,
    /// It carries what the contract says again, unless an agent reports that it is down
    #[arg(long, requires = "link", group = "change")]
    clear: bool,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Sets what is to be set, and shows all.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let Arguments { link, rate, down, clear: _, broker, json } = arguments;
    let client = broker.client()?;
    let links = match link {
        Some(link) => client.state_link(link, rate.or(down.then_some(0))),
        None => client.links(),
    };
    let links = links.map_err(failure)?;
    Output { json: *json }.result(&links, || shown(&links))?;
    match &links.because {
        Some(_) => Err(Failure::No(String::new())),
        None => Ok(()),
    }
}

/// For people: one line per link.
fn shown(Links { links, left_out, because }: &Links) -> String {
    let headers = [("link", '<'), ("between", '<'), ("by the contract", '>'), ("carries", '>')];
    let mut text = table(&headers, &links.iter().map(row).collect::<Vec<_>>());
    if !left_out.is_empty() {
        text += &format!("\n\nleft out: {}", left_out.join(", "));
    }
    if let Some(because) = because {
        text += &format!("\n\nno plan for these links: {because}");
    }
    text
}

fn row(link: &Link) -> Vec<String> {
    let carries = match (link.carries_bits_per_s, link.stated) {
        (rate, _) if link.measured && rate > 0 => format!("{} (measured)", show_bit_rate(rate as f64)),
        (0, false) => "down".to_owned(),
        (0, true) => "down (set)".to_owned(),
        (rate, false) if rate < link.rate_bits_per_s => format!("{} (by its devices)", show_bit_rate(rate as f64)),
        (rate, false) => show_bit_rate(rate as f64),
        (rate, true) => format!("{} (set)", show_bit_rate(rate as f64)),
    };
    vec![link.link.clone(), link.between.join(" - "), show_bit_rate(link.rate_bits_per_s as f64), carries]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_who_has_told_its_rate() {
        let by = |carries_bits_per_s, stated, measured| {
            let between = ["a".to_owned(), "b".to_owned()];
            let link = Link {
                link: "wire".into(),
                between,
                rate_bits_per_s: 1_000_000_000,
                carries_bits_per_s,
                stated,
                measured,
            };
            row(&link).pop().unwrap_or_default()
        };
        let carries = |carries_bits_per_s, stated| by(carries_bits_per_s, stated, false);
        assert_eq!([by(5_000_000, false, true), by(0, false, true)], ["5 Mbit/s (measured)", "down"]);
        assert_eq!(
            [carries(1_000_000_000, false), carries(100_000_000, false)],
            ["1 Gbit/s", "100 Mbit/s (by its devices)"]
        );
        assert_eq!(
            [carries(0, false), carries(0, true), carries(5_000_000, true)],
            ["down", "down (set)", "5 Mbit/s (set)"]
        );
    }
}
