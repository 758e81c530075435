//! An acceptance that is packed before its channel has joined the publisher. The number of the publisher's last sample is known only then, and the
//! thread that knows it may be the publishing one: it writes the number where there is room for it, without an allocation.

use super::{Accepted, Answer, LAST_SAMPLE, pack};
use std::io::Write;
use std::ops::Range;

/// The name of the number.
const NAME: &[u8] = br#""last_seq":"#;

/// The packed answer.
pub(crate) struct Acceptance {
    bytes: Vec<u8>,
    /// The place of the number.
    number: Range<usize>,
}

impl Acceptance {
    /// Packs the answer, with room for any number of a last sample.
    ///
    /// # Errors
    /// As [`pack`].
    pub(crate) fn pack(accepted: Accepted) -> Result<Self, String> {
        let bytes = pack(&Answer::Accepted(Accepted { last_seq: LAST_SAMPLE, ..accepted }))?;
        // In a text the quotation marks would have a backslash before them.
        let at = bytes.windows(NAME.len()).position(|part| part == NAME);
        let start = at.ok_or("an answer without last_seq")? + NAME.len();
        let digits = bytes.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count();
        Ok(Self { bytes, number: start..start + digits })
    }

    /// The answer of a publisher with this last sample.
    pub(crate) fn after(mut self, last_seq: u64) -> Vec<u8> {
        let (last_seq, width) = (last_seq.min(LAST_SAMPLE), self.number.len());
        if let Some(mut place) = self.bytes.get_mut(self.number) {
            let _ = write!(place, "{last_seq:width$}"); // spaces before a number have no meaning in JSON
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::Parameters;
    use crate::handshake::unpack;
    use proptest::prelude::*;

    fn accepted(last_seq: u64, clock: &str) -> Accepted {
        let (clock, parameters) = (clock.to_owned(), Parameters::default());
        let (flow, incarnation, max_message) = (1, 1, 1);
        Accepted { flow, incarnation, last_seq, max_message, clock, parameters, answers: None, scaled: None }
    }

    proptest! {
        #[test]
        fn the_number_is_that_of_the_join_and_nothing_else_changes(last_seq in 0..=LAST_SAMPLE) {
            for clock in ["a clock", r#""last_seq":12,"#] {
                let bytes = Acceptance::pack(accepted(7, clock)).unwrap().after(last_seq);
                let wanted = Answer::Accepted(accepted(last_seq, clock));
                prop_assert_eq!(unpack::<Answer>(&bytes).unwrap(), Some((wanted, bytes.len())));
            }
        }
    }

    #[test]
    fn numbers_of_any_length_have_room() {
        for last_seq in [0, 9, 10, LAST_SAMPLE] {
            let bytes = Acceptance::pack(accepted(0, "")).unwrap().after(last_seq);
            let Some((Answer::Accepted(found), _)) = unpack::<Answer>(&bytes).unwrap() else { panic!("{bytes:?}") };
            assert_eq!(found.last_seq, last_seq);
        }
    }
}
