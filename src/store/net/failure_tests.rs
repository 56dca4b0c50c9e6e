use std::time::Duration;

use super::super::limits::within_limit;
use super::*;

#[test]
fn an_error_says_whether_nobody_listens_or_the_other_end_has_gone() {
    let message = |e: io::Error| {
        let error = to_error(e, &"h:7", "redis://", ENDED);
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        error.message().to_owned()
    };
    use io::ErrorKind as Io;
    for kind in [Io::ConnectionRefused, Io::NotFound] {
        assert_eq!(message(kind.into()), "no server listens at \"h:7\"");
    }
    let gone = [Io::UnexpectedEof, Io::ConnectionReset, Io::ConnectionAborted, Io::BrokenPipe];
    for kind in gone {
        assert!(ends(kind));
        assert_eq!(message(kind.into()), ENDED);
    }
    assert!(!ends(Io::ConnectionRefused) && !ends(Io::TimedOut));
    let other = message(io::Error::other("no route"));
    assert_eq!(other, "\"h:7\" cannot be reached: no route");
    let late = within_limit::<()>(Err(Io::TimedOut.into()), Duration::from_secs(2));
    let late = message(late.unwrap_err());
    assert_eq!(late, "\"h:7\" did not answer within 2s (io_timeout)");
}

#[test]
fn the_error_of_a_failure_is_that_of_its_caller() {
    let error = || Error::new(ErrorKind::NotReady, "full");
    let unknown = Failure::Unknown { error: error(), unknown: (), ended: true };
    for failure in [Failure::NotSent(error()), unknown] {
        assert_eq!(failure.into_error().kind(), ErrorKind::NotReady);
    }
}
