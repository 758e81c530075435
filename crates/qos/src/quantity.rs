//! Quantities as text with a unit: "10 ms", "8 KiB", "100 Mbit/s", "50 Hz". A bare number is refused.

use std::fmt;
use std::time::Duration;

/// Text that is no quantity of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// The text.
    pub text: String,
    /// The units that would fit.
    pub units: &'static str,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a number with one of the units {}", self.text, self.units)
    }
}

impl std::error::Error for QuantityError {}

/// The units of durations, for messages.
pub(crate) const DURATIONS: &str = "ns us ms s min h";

/// A duration: ns, us, ms, s, min, h.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let seconds = parse(text, DURATIONS, &units)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| QuantityError { text: text.to_owned(), units: DURATIONS })
}

/// A size in bytes: B, kB, MB, GB, KiB, MiB, GiB.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let binary = [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
    let table = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];
    let table: Vec<_> = binary.into_iter().chain(table).collect();
    parse(text, "B kB MB GB KiB MiB GiB", &table).map(|v| v.round() as u64)
}

/// A rate in events per second: Hz, kHz.
pub fn parse_rate(text: &str) -> Result<f64, QuantityError> {
    parse(text, "Hz kHz", &[("kHz", 1e3), ("Hz", 1.0)])
}

/// A bit rate, in bits per second: bit/s, kbit/s, Mbit/s, Gbit/s.
pub fn parse_bit_rate(text: &str) -> Result<u64, QuantityError> {
    let table = [("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("bit/s", 1.0)];
    parse(text, "bit/s kbit/s Mbit/s Gbit/s", &table).map(|v| v.round() as u64)
}

/// A share as a number from 0 to 1, written in %.
pub fn parse_share(text: &str) -> Result<f64, QuantityError> {
    let share = parse(text, "% (0% to 100%)", &[("%", 0.01)])?;
    if share > 1.0 {
        return Err(QuantityError { text: text.to_owned(), units: "% (0% to 100%)" });
    }
    Ok(share)
}

/// A time in microseconds, in a contract's units: "83.3 us", "40 ms".
pub fn show_time(us: f64) -> String {
    show(us * 1e3, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// A number of bytes, exactly: "36 KiB", "36865 B".
#[cfg(any(feature = "placement", test))]
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{bytes} B"), |(unit, factor)| format!("{} {unit}", bytes / factor))
}

/// A bit rate: "100 Mbit/s".
pub fn show_bit_rate(bits_per_s: f64) -> String {
    show(bits_per_s, &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)])
}

/// A share (0…1): "45 %", to a ten-thousandth of one.
pub(crate) fn show_share(share: f64) -> String {
    let number = format!("{:.4}", share * 100.0);
    format!("{} %", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A quantity in the largest unit of which there is at least one, to a thousandth. The text can be read again.
fn show(value: f64, units: &[(&str, f64)]) -> String {
    let fits = units.iter().rev().find(|(_, factor)| value >= *factor);
    let (unit, factor) = fits.or(units.first()).copied().unwrap_or(("", 1.0));
    let thousandths = (value / factor * 1e3).round();
    if !(0.0..1e15).contains(&thousandths) {
        return format!("{:.0} {unit}", value / factor);
    }
    // Integers are shown much faster than other numbers, and a plan shows thousands.
    let thousandths = thousandths as u64;
    match (thousandths / 1000, thousandths % 1000) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, part) => format!("{whole}.{} {unit}", format!("{part:03}").trim_end_matches('0')),
    }
}

fn parse(text: &str, units: &'static str, table: &[(&str, f64)]) -> Result<f64, QuantityError> {
    let wrong = || QuantityError { text: text.to_owned(), units };
    let digits = text.trim().find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
    let (number, unit) = text.trim().split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let (_, factor) = table.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_quantities_have_a_fitting_unit_and_are_read_back() {
        assert_eq!([0.0, 0.5, 83.3, 40_000.0, 2e6].map(show_time), ["0 ns", "500 ns", "83.3 us", "40 ms", "2 s"]);
        assert_eq!([-5.0, f64::INFINITY, 2e21].map(show_time), ["-5000 ns", "inf s", "2000000000000000 s"]);
        assert_eq!([5.0, 1.5e6, 1e8].map(show_bit_rate), ["5 bit/s", "1.5 Mbit/s", "100 Mbit/s"]);
        assert_eq!([0, 1000, 36_864, 5 << 20].map(show_bytes), ["0 B", "1000 B", "36 KiB", "5 MiB"]);
        assert_eq!(
            [1023, 1024, 1025, 3 << 30].map(|n| parse_bytes(&show_bytes(n))),
            [1023, 1024, 1025, 3 << 30].map(Ok)
        );
        assert_eq!(parse_duration(&show_time(123.456)).unwrap(), Duration::from_nanos(123_456));
    }

    #[test]
    fn units_are_required_and_read() {
        assert_eq!(parse_duration("20ms").unwrap(), Duration::from_millis(20));
        assert_eq!(parse_duration("0.5 us").unwrap(), Duration::from_nanos(500));
        assert_eq!(["2 min", "1 h"].map(|text| parse_duration(text).unwrap().as_secs()), [120, 3600]);
        assert_eq!(["8 KiB", "4GiB", "2GB"].map(|text| parse_bytes(text).unwrap()), [8192, 4 << 30, 2_000_000_000]);
        assert_eq!(parse_rate("1.5 kHz").unwrap(), 1500.0);
        assert_eq!(parse_bit_rate("1 Mbit/s").unwrap(), 1_000_000);
        assert_eq!(parse_share("0.5%").unwrap(), 0.005);
        assert!(parse_share("101 %").is_err() && parse_share("1").is_err());
        for bad in ["20", "", "ms", "-1 ms", "1 parsec", "1..2 s"] {
            assert!(parse_duration(bad).unwrap_err().to_string().contains("ns us ms s"), "{bad}");
        }
    }
}
