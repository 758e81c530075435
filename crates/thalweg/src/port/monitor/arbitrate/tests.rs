use super::*;
use crate::bottle::Bottle;

fn arbitrate(inputs: &[&str]) -> Arbitrate {
    let mut arbitrate = Arbitrate::default();
    for input in inputs {
        let Bottle(values) = Bottle::parse(input).unwrap();
        arbitrate.set("input", &Value::List(values)).unwrap();
    }
    arbitrate
}

fn passes(arbitrate: &mut Arbitrate, from: &str, ms: u64) -> bool {
    let seen = Seen { from, seq: 1, source_ns: 0, now_ns: ms * 1_000_000, bytes: &[] };
    arbitrate.sample(&seen, &mut Vec::new()) == Verdict::Pass
}

#[test]
fn ys_38_the_higher_level_silences_the_lower_until_its_time_constant_is_over() {
    let mut a = arbitrate(&["(from /low) (level 5) (tc 0.1)", "(from /high) (level 15) (tc 0.1)"]);
    let said: Vec<bool> =
        [("/low", 0), ("/high", 10), ("/low", 20), ("/high", 30), ("/low", 120), ("/low", 131), ("/high", 140)]
            .map(|(from, ms)| passes(&mut a, from, ms))
            .into();
    assert_eq!(said, [true, true, false, true, false, true, true]);
    assert!(!passes(&mut a, "/stranger", 150) && passes(&mut a, "/stranger", 5000));
    assert_eq!(a.parameters().last(), Some(&("dropped".to_owned(), Value::Int(3))));
}

#[test]
fn an_active_source_inhibits_and_excites_others_and_a_virtual_one_never_passes() {
    let mut a = arbitrate(&["(from /a) (level 15)", "(from /stop) (virtual) (ex (/a -20))", "(from /b) (level 1) "]);
    assert!(passes(&mut a, "/a", 0));
    assert!(!passes(&mut a, "/stop", 10), "virtual");
    assert!(!passes(&mut a, "/a", 20), "inhibited");
    assert!(passes(&mut a, "/b", 30));
    assert!(passes(&mut a, "/a", 2000), "the inhibition is over");
}

#[test]
fn a_source_that_rests_lets_nothing_in_and_must_be_stimulated_to_the_threshold() {
    let mut a = arbitrate(&["(from /a) (st 5) (tc 0.1) (tr 0.1)"]);
    let said: Vec<bool> = [0, 10, 50, 100, 120, 200, 220, 230].map(|ms| passes(&mut a, "/a", ms)).into();
    assert_eq!(said, [false, true, true, true, false, false, false, true]);
}

#[test]
fn contradicting_excitations_let_nothing_in() {
    let mut a = arbitrate(&["(from /a) (ex (/b 10))", "(from /b) (ex (/a 10))"]);
    assert!(passes(&mut a, "/a", 0));
    assert!(!passes(&mut a, "/b", 1), "y_a = 1 + y_b and y_b = 1 + y_a have no solution");
    assert!(!passes(&mut a, "/stranger", 2));
    assert!(passes(&mut a, "/stranger", 5000), "no longer than the sources are active");
}
