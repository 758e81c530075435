//! The part of a domain's contract that names a neighbour.

/// The neighbour `domain`, by the node `via`, with the address of its broker, and the domains that are reached by it.
pub fn neighbour(domain: &str, via: &str, broker: &str, reach: &[impl std::fmt::Debug]) -> String {
    format!("[[neighbour]]\ndomain = {domain:?}\nvia = {via:?}\nbroker = {broker:?}\nreach = {reach:?}\n")
}
