//! Three domains over the hosts of a chain: each host but the last has the broker of the domain from it to the next one.

#[path = "../../../broker/examples/neighbour/mod.rs"]
mod neighbour;

use neighbour::neighbour;

/// The hosts.
pub const HOSTS: [&str; 4] = ["cam", "rw", "wb", "desk"];
/// The domain from each host to the next one; its broker is on that host.
pub const DOMAINS: [&str; 3] = ["robot", "wan", "base"];

/// The part of a domain's contract that names its neighbours.
pub fn neighbours(domain: usize) -> String {
    match domain {
        0 => neighbour("wan", "rw", "10.97.0.2:7450", &["base"]),
        1 => {
            let none: [&str; 0] = [];
            neighbour("robot", "rw", "10.97.0.1:7450", &none) + &neighbour("base", "wb", "10.97.1.2:7450", &none)
        }
        _ => neighbour("wan", "wb", "10.97.1.1:7450", &["robot"]),
    }
}
