//! Where a server listens, and which of several hosts is tried next.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
use crate::base::error::{Error, Result};

/// Why a URL with the path of a socket is refused where there is none of this kind: the standard
/// library has unix sockets on Unix only.
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) const NO_UNIX_SOCKETS: &str = "on this system leasehold cannot connect to unix sockets: the URL must have a host name or an IP address";

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Tries every one of `count` hosts at most once, beginning with the host at `first`, until
/// `attempt` succeeds: then the place of the host and the result. Each attempt gets an equal share
/// of the time that is left of `within`; a single host has exactly `within`, which errors name.
///
/// # Errors
/// The errors of all hosts, in the order of the attempts.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) fn try_each<T>(
    count: usize,
    first: usize,
    within: Duration,
    mut attempt: impl FnMut(usize, Duration) -> Result<T>,
) -> std::result::Result<(usize, T), Vec<Error>> {
    let deadline = crate::os::now() + within;
    let mut failed = Vec::new();
    for untried in (1..=count).rev() {
        let place = (first + count - untried) % count;
        let left = deadline.saturating_duration_since(crate::os::now());
        let share = if count == 1 { within } else { left / u32::try_from(untried).unwrap_or(1) };
        match attempt(place, share.max(Duration::from_millis(1))) {
            Ok(done) => return Ok((place, done)),
            Err(error) => failed.push(error),
        }
    }
    Err(failed)
}

#[cfg(all(test, any(feature = "postgres", feature = "mysql", feature = "zookeeper")))]
mod rotation_tests {
    use super::*;
    use crate::base::error::ErrorKind;

    fn refuse<T>(place: usize) -> Result<T> {
        Err(Error::new(ErrorKind::Unreachable, place.to_string()))
    }

    #[test]
    fn each_host_is_tried_once_and_the_first_that_answers_is_taken() {
        let within = Duration::from_secs(60);
        let mut tried = Vec::new();
        let reached = try_each(3, 1, within, |place, share| {
            tried.push(place);
            assert!(share <= within, "{share:?}");
            if place == 0 { Ok("connected") } else { refuse(place) }
        });
        assert_eq!((tried, reached.unwrap()), (vec![1, 2, 0], (0, "connected")));
        let failed = try_each(3, 2, within, |place, _| refuse::<()>(place)).unwrap_err();
        assert_eq!(failed.iter().map(Error::message).collect::<Vec<_>>(), ["2", "0", "1"]);
    }

    #[test]
    fn hosts_share_the_time_and_a_single_one_has_all_of_it() {
        let within = Duration::from_secs(60);
        let mut shares = Vec::new();
        let _ = try_each(3, 0, within, |place, share| {
            shares.push(share);
            refuse::<()>(place)
        });
        // Nothing was waited for, so the time that is left is shared anew.
        assert!(
            shares[0] <= within / 3 && shares[1] <= within / 2 && shares[1] > shares[0],
            "{shares:?}"
        );
        assert!(shares[2] > shares[1], "{shares:?}");
        assert_eq!(try_each(1, 0, within, |_, share| Ok(share)).unwrap(), (0, within));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written_in_a_url() {
        let tcp = |host: &str| format!("{:?}", Address::Tcp { host: host.to_owned(), port: 7 });
        assert_eq!((tcp("h"), tcp("::1")), ("h:7".to_owned(), "[::1]:7".to_owned()));
        #[cfg(unix)]
        assert_eq!(format!("{:?}", Address::Unix("/tmp/s".into())), "/tmp/s");
    }
}
