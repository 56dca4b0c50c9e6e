//! The limits of waits for the other end, and the error of a wait that has reached its limit: the
//! system's own text is "Resource temporarily unavailable", which helps nobody.

use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::os;

/// After so long a pause keepalive probes look for a peer that is gone without closing the
/// connection.
pub(crate) const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);

/// The time left until `deadline`.
///
/// # Errors
/// `TimedOut` if nothing is.
pub(crate) fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(os::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The limit that a wait had.
#[derive(Debug)]
struct Limit(Duration);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The remainder of a shared time has too many digits to be useful.
        let millis = Duration::from_millis(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX));
        write!(f, "{:?}", if millis.is_zero() { self.0 } else { millis })
    }
}

impl std::error::Error for Limit {}

/// A name that was not looked up in this time. Its look-up goes on.
#[derive(Debug)]
pub(super) struct LateName(pub(super) Duration);

impl fmt::Display for LateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "was not found within {} (io_timeout): the name server has not answered",
            Limit(self.0)
        )
    }
}

impl std::error::Error for LateName {}

impl From<LateName> for io::Error {
    fn from(late: LateName) -> Self {
        Self::new(io::ErrorKind::TimedOut, late)
    }
}

pub(crate) fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The same outcome, but an error because of the limit states what the limit was.
pub(super) fn within_limit<T>(outcome: io::Result<T>, limit: Duration) -> io::Result<T> {
    match outcome {
        // A late name has its own words.
        Err(e) if is_timeout(&e) && !e.get_ref().is_some_and(|why| why.is::<LateName>()) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, Limit(limit)))
        }
        outcome => outcome,
    }
}

/// A text that follows the address of the other end: "127.0.0.1:6379 did not answer ...". `None`
/// for an error that is not a timeout.
pub(super) fn no_answer(e: &io::Error) -> Option<String> {
    if !is_timeout(e) {
        return None;
    }
    let why = e.get_ref();
    if let Some(late) = why.and_then(|e| e.downcast_ref::<LateName>()) {
        return Some(late.to_string());
    }
    let limit = why.and_then(|e| e.downcast_ref::<Limit>());
    Some(limit.map_or_else(
        || "did not answer within the I/O timeout (io_timeout)".to_owned(),
        |limit| format!("did not answer within {limit} (io_timeout)"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_says_its_limit_and_nothing_of_the_system() {
        let limited = |kind: io::ErrorKind| {
            within_limit::<()>(Err(kind.into()), Duration::from_micros(1_500_123)).unwrap_err()
        };
        for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut] {
            let error = limited(kind);
            assert!(is_timeout(&error) && !error.to_string().contains("os error"), "{error}");
            assert_eq!(no_answer(&error).unwrap(), "did not answer within 1.5s (io_timeout)");
            assert_eq!(
                no_answer(&kind.into()).unwrap(),
                "did not answer within the I/O timeout (io_timeout)"
            );
        }
        assert!(no_answer(&limited(io::ErrorKind::BrokenPipe)).is_none());
    }

    #[test]
    fn a_limit_is_said_in_milliseconds_unless_it_is_shorter() {
        let said = |limit| {
            let late = within_limit::<()>(Err(io::ErrorKind::TimedOut.into()), limit).unwrap_err();
            no_answer(&late).unwrap()
        };
        assert!(said(Duration::from_nanos(20_000_999)).contains("within 20ms ("));
        assert!(said(Duration::from_micros(700)).contains("within 700µs ("));
    }

    #[test]
    fn a_late_name_has_its_own_words_whatever_the_limit() {
        let late: io::Error = LateName(Duration::from_secs(1)).into();
        let late = within_limit::<()>(Err(late), Duration::from_secs(9)).unwrap_err();
        assert!(is_timeout(&late));
        let words = "was not found within 1s (io_timeout): the name server has not answered";
        assert_eq!(no_answer(&late).unwrap(), words);
        assert_eq!(within_limit(Ok(7), Duration::ZERO).unwrap(), 7);
    }

    #[test]
    fn after_the_deadline_no_time_is_left() {
        assert!(is_timeout(&time_left(os::now()).unwrap_err()));
        let left = time_left(os::now() + Duration::from_secs(60)).unwrap();
        assert!(left > Duration::from_secs(1) && left <= Duration::from_secs(60));
    }
}
