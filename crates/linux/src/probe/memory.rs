//! Memory: reasons why a page can be slow to reach.

use super::{Tree, field};

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory, in KiB.
    pub total_kib: Option<u64>,
    /// Memory available without swapping, in KiB.
    pub available_kib: Option<u64>,
    /// Swap space in use, in KiB.
    pub swapped_kib: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
}

/// Reads them.
pub fn read(tree: &Tree) -> Memory {
    let text = tree.text("proc/meminfo").unwrap_or_default();
    let kib = |name| field(&text, name).and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    let huge_pages = tree.text("sys/kernel/mm/transparent_hugepage/enabled");
    Memory {
        total_kib: kib("MemTotal"),
        available_kib: kib("MemAvailable"),
        swapped_kib: kib("SwapTotal").zip(kib("SwapFree")).map(|(total, free)| total.saturating_sub(free)),
        huge_pages: huge_pages.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
    }
}
