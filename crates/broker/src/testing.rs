//! Bodies of fuzz targets: what neighbours' brokers say ([`peer`]), and requests of all parties ([`requests`]). Each takes any bytes, and panics when a
//! promise is broken.

mod memory;
mod peer;
mod requests;

pub use peer::{peer, peers};
pub use requests::{asked, requests};

/// The contract of a domain between two others: a fast pipe and a slow, cheap one.
const CONTRACT: &str = r#"
[[node]]
name = "rw"
[[node]]
name = "wb"
[[link]]
name = "line"
between = ["rw", "wb"]
rate = "10 Mbit/s"
scheduler = "htb"
shares = { critical = "10 %", high = "40 %", normal = "30 %", low = "20 %" }
devices = { rw = "next" }
[[neighbour]]
domain = "robot"
via = "rw"
broker = "127.0.0.1:1"
[[neighbour]]
domain = "base"
via = "wb"
broker = "127.0.0.1:1"
[[pipe]]
from = "rw"
to = "wb"
class = "high"
rate = "200 kbit/s"
burst = "20 kB"
largest = "1 kB"
deadline = "40 ms"
price = 5
[[pipe]]
from = "rw"
to = "wb"
class = "low"
rate = "400 kbit/s"
burst = "20 kB"
largest = "1 kB"
deadline = "90 ms"
price = 1
"#;

#[cfg(test)]
mod tests {
    use qos::testing::inputs;
    use std::path::PathBuf;

    fn run(name: &str, body: inputs::Body, examples: Vec<Vec<u8>>) {
        inputs::run(name, body, examples, &PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds"));
    }

    #[test]
    fn neighbours_may_say_anything() {
        run("peer", super::peer, super::peers());
    }

    #[test]
    fn anybody_may_ask_for_anything() {
        run("requests", super::requests, super::asked());
    }
}
