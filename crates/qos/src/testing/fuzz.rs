//! Bodies of the fuzz targets: functions that take any bytes and panic when a promise is broken.

use std::time::Duration;

use super::systems::extreme;
use crate::contract::{Contract, Lines, check};
use crate::placement::Watch;
use crate::plan::{Channel, Model, Plan, make};
use crate::system::System;

/// Contracts to begin from.
pub fn contracts() -> Vec<Vec<u8>> {
    let plain = r#"[[node]]
name = "a"
[[node]]
name = "b"
[[node]]
name = "c"
[[link]]
between = ["a", "b"]
rate = "1 Mbit/s"
scheduler = "strict"
[[link]]
between = ["b", "c"]
rate = "2 Mbit/s"
delay = "5 us"
[[topic]]
name = "t"
size = "1 KiB"
rate = "50 Hz"
publisher = "a"
cpu_send = "90 us"
[[subscriber]]
topic = "t"
node = "c"
scale = 2
deadline = "90 ms"
cpu_receive = "1 ms"
[placement]
delay = "bound"
"#;
    vec![plain.as_bytes().to_vec(), plain.replace("90 ms", "9 ms").replace("bound", "paper").into_bytes()]
}

/// Steps of 100 ms, so that work with a time limit ends.
struct Steps(u64);

impl Watch for Steps {
    fn elapsed(&mut self) -> Duration {
        self.0 += 1;
        Duration::from_millis(100 * self.0)
    }
}

/// Any text: it is refused with a line of its own, or it has a plan by every model.
pub fn contract(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let contract = match Contract::read(&text) {
        Ok(contract) => contract,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1 && !error.problem.is_empty());
            return;
        }
    };
    let system = &contract.system;
    if system.nodes.len().max(system.links.len()).max(system.topics.len()).max(system.subscribers.len()) > 8 {
        return;
    }
    check(&contract).iter().for_each(|finding| assert!(finding.line >= 1 && !finding.because.is_empty()));
    plan(&contract, Model::ALL[bytes.len() % Model::ALL.len()]);
}

/// Any seed (the first 8 bytes): its system, with quantities at the limits of a contract, has a plan by every model.
pub fn planner(bytes: &[u8]) {
    let mut seed = [0; 8];
    bytes.iter().zip(&mut seed).for_each(|(byte, seed)| *seed = *byte);
    let system: System = extreme(u64::from_le_bytes(seed));
    let model = Model::ALL[bytes.len() % Model::ALL.len()];
    plan(&Contract { system, lines: Lines::default(), hash: 0 }, model);
}

/// Checks a plan: its numbers are finite, its terms add up, it keeps every deadline or gives the reason, and its file
/// is read back unchanged.
fn plan(contract: &Contract, model: Model) {
    let plan = make(contract, model, &mut Steps(0));
    assert_eq!(plan.feasible, plan.refusals.is_empty(), "it fits, or it is said why not");
    plan.channels.iter().for_each(|channel| judge(channel, plan.feasible));
    assert!(plan.links.iter().all(|link| link.utilisation.is_finite()));
    let mut written = plan.clone();
    written.solver.ms = None;
    written.channels.iter_mut().for_each(|channel| (channel.derivation, channel.also) = Default::default());
    assert_eq!(Plan::from_text(&plan.to_text()), Ok(written), "a plan survives its file");
}

fn judge(channel: &Channel, feasible: bool) {
    assert!(channel.terms.values().all(|us| us.is_finite() && *us >= 0.0));
    let Some(delay) = channel.mean_us.or(channel.bound_us) else { return };
    let sum: f64 = channel.terms.values().sum();
    assert!((sum - delay).abs() <= 1e-3 + delay * 1e-9, "terms {sum}, delay {delay}");
    if let Some(deadline) = channel.deadline_us.filter(|_| feasible) {
        assert!(delay <= deadline * 1.000_001, "{delay} later than {deadline}");
    }
}
