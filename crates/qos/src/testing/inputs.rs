//! Inputs for the body of a fuzz target under the stable compiler: a stored corpus, then random bytes, and examples with random changes. Coverage is not
//! followed, unlike in cargo-fuzz, so it finds shallow bugs and earlier ones.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

/// The body of a fuzz target: it takes any bytes, and panics when a promise is broken.
pub type Body = fn(&[u8]);

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
}

/// A few changes of an example: bytes replaced, removed, inserted, doubled.
fn changed(example: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = example.to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        let to = (at + random.below(40)).min(bytes.len());
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..to)),
            3 => drop(bytes.splice(at..at, random.bytes(12)).collect::<Vec<_>>()),
            _ => bytes.extend_from_within(at..to),
        }
    }
    bytes
}

/// Findings of cargo-fuzz for a target, by file name: those in `seeds/NAME`.
///
/// # Panics
/// If one cannot be read.
pub fn stored(seeds: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(seeds.join(name)).into_iter().flatten().flatten();
    let read = |file: std::fs::DirEntry| {
        let text = std::fs::read(file.path());
        (file.file_name().to_string_lossy().into_owned(), text.unwrap_or_else(|e| panic!("{:?}: {e}", file.path())))
    };
    let mut all: Vec<_> = files.map(read).collect();
    all.sort();
    all
}

/// The fewest inputs of a body: an idle machine does 100/s and more. A busy one may take [`PATIENCE`] times as long, so less than 5/s fails.
const LEAST: u64 = if cfg!(debug_assertions) { 20 } else { 200 };
const PATIENCE: f64 = 20.0;

/// The inputs that a body had, beside stored ones, and the time that they took.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Their number.
    pub inputs: u64,
    /// Processor time of the thread that called the body; `None`: the kernel does not tell it.
    pub processor: Option<Duration>,
}

impl Ran {
    /// Inputs per second of processor time: the same on a busy machine as on an idle one. `None` where that time is not known.
    pub fn rate(&self) -> Option<f64> {
        self.processor.map(|time| self.inputs as f64 / time.as_secs_f64())
    }
}

/// Processor time of this thread so far (proc(5), `schedstat`); `None` where the kernel does not tell it.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Runs a body with what is stored for it in `seeds`, then for THALWEG_FUZZ_SECONDS (default 2) with others. The numbers come from THALWEG_SEED
/// ([`super::seed`]): a failure prints it, and the input in hexadecimal.
///
/// # Panics
/// If the body does, or is too slow for a fair number of inputs.
pub fn run(name: &str, body: Body, mut examples: Vec<Vec<u8>>, seeds: &Path) -> Ran {
    let seconds = std::env::var("THALWEG_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let stored = stored(seeds, name);
    for (file, input) in &stored {
        assert!(catch_unwind(|| body(input)).is_ok(), "{name} fails with fuzz/seeds/{name}/{file}");
    }
    let replayed = stored.len();
    examples.extend(stored.into_iter().map(|(_, input)| input));
    let seed = super::seed();
    // Each body has its own numbers.
    let mut random = Random(name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())));
    let mut inputs: u64 = 0;
    examples.iter().for_each(|example| body(example));
    let (began, before) = (Instant::now(), processor_time());
    let after = |seconds: f64| began.elapsed() >= Duration::from_secs_f64(seconds);
    while !after(seconds) || inputs < LEAST {
        let late = after(seconds.max(2.0) * PATIENCE);
        assert!(!late, "{name}: {inputs} inputs in {:?}, {LEAST} are needed", began.elapsed());
        let input = match random.below(4) {
            0 => random.bytes(600),
            _ => changed(&examples[random.below(examples.len())], &mut random),
        };
        if catch_unwind(|| body(&input)).is_err() {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{name} fails after {inputs} inputs of THALWEG_SEED={seed} with these {} bytes: {hex}", input.len());
        }
        inputs += 1;
    }
    let processor = before.and_then(|before| processor_time()?.checked_sub(before));
    let ran = Ran { inputs, processor };
    let (rate, alone) = (inputs as f64 / began.elapsed().as_secs_f64(), ran.rate().unwrap_or(f64::NAN));
    println!(
        "{name}: {replayed} stored and {inputs} other inputs, {rate:.0}/s, {alone:.0}/s of processor time, THALWEG_SEED={seed}"
    );
    ran
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_processor_time() {
        let rate = |inputs, processor| Ran { inputs, processor }.rate();
        assert_eq!(rate(199, Some(Duration::from_secs(2))), Some(99.5));
        assert_eq!(rate(200, None), None);
    }
}
