//! Requests that cannot be decided at the moment.

use crate::output::tell;
use agent::client::ClientError;

/// The status of a refusal that is no limit: another time the session may be admitted. So it is while hosts report a plan that their broker has made
/// anew, or a broker on the way does not answer.
const UNDECIDED: u16 = 503;

/// The answer to a request that is made again as long as it is undecided, and there is time: `waits` for the next attempt, and is `true` then. Each
/// reason is told once in a row.
pub(super) fn decided<T>(
    mut ask: impl FnMut() -> Result<T, ClientError>,
    mut waits: impl FnMut() -> bool,
) -> Result<T, ClientError> {
    let mut told = String::new();
    loop {
        let answer = ask();
        let Err(ClientError::Refused(UNDECIDED, why)) = &answer else { return answer };
        if *why != told {
            tell(&format!("{why}; asked again"));
            told.clone_from(why);
        }
        if !waits() {
            return answer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of a broker that refuses so many times with this status, and how often it was asked by somebody who waits ten times.
    fn asked(refusals: u32, status: u16) -> (bool, u32) {
        let (mut asked, mut waited) = (0, 0);
        let ask = || {
            asked += 1;
            if asked <= refusals {
                Err(ClientError::Refused(status, "its hosts have not reported".into()))
            } else {
                Ok(())
            }
        };
        let waits = || {
            waited += 1;
            waited <= 10
        };
        let is_admitted = decided(ask, waits).is_ok();
        (is_admitted, asked)
    }

    #[test]
    fn what_is_undecided_is_asked_again_as_long_as_there_is_time() {
        assert_eq!(asked(0, UNDECIDED), (true, 1));
        assert_eq!(asked(3, UNDECIDED), (true, 4));
        assert_eq!(asked(100, UNDECIDED), (false, 11));
        assert_eq!(asked(1, 409), (false, 1), "a limit");
    }
}
