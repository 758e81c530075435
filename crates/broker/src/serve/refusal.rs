//! Callers that are refused before their first request: why, and how often that is told.

use rustls::{CertificateError, Error};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// Shortest time between two refusals that are told: who comes again and again fills no log.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Longest time for a caller to read why it was refused.
const LETS_GO: Duration = Duration::from_secs(1);
/// Most times that it is read meanwhile.
const MOST_READS: usize = 64;

/// Refusals, of which some are told.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Time of the last one that was told.
    told: Option<Duration>,
    untold: u64,
}

impl Refusals {
    /// There is one more. `Some`: it is told now, with the number of those that were not since the last one.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        if self.told.is_some_and(|told| now < told + TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// Why a handshake failed; `None`: its caller went away, or did not speak TLS.
pub(super) fn reason(error: &io::Error) -> Option<String> {
    let text = match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "its certificate is not valid yet: do the clocks differ?".to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "another authority has issued its certificate".to_owned()
        }
        Error::InvalidCertificate(other) => format!("its certificate: {other}"),
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::AlertReceived(alert) => format!("it does not take the broker's certificate: {alert:?}"),
        _ => return None,
    };
    Some(text)
}

/// Lets a caller read why it was refused, and drops what it sends meanwhile: were the connection closed with bytes that nobody has read, the
/// caller's system would report that it broke.
pub(super) async fn let_go(mut stream: TcpStream) {
    let _ = poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await;
    let mut dropped = [0; 1024];
    let read_out = async {
        // As long as there is something to read, `readable` never waits, and no time would be over.
        for _ in 0..MOST_READS {
            if stream.readable().await.is_err() {
                return;
            }
            match stream.try_read(&mut dropped) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(LETS_GO, read_out).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_a_second_is_told_with_the_number_of_the_others() {
        let (mut refusals, at) = (Refusals::default(), Duration::from_millis);
        assert_eq!(refusals.next(at(0)), Some(0));
        assert_eq!([10, 500, 999].map(|ms| refusals.next(at(ms))), [None; 3]);
        assert_eq!(refusals.next(at(1000)), Some(3));
        assert_eq!(refusals.next(at(5000)), Some(0));
    }

    #[test]
    fn what_is_no_refusal_has_no_reason() {
        assert_eq!(reason(&io::ErrorKind::UnexpectedEof.into()), None);
        assert_eq!(reason(&io::Error::other(Error::DecryptError)), None);
        assert!(reason(&io::Error::other(Error::NoCertificatesPresented)).is_some());
    }
}
