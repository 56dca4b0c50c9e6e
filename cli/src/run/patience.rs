//! Retries while the store is unavailable.

use std::time::{Duration, Instant};

use leasehold::{CancelToken, Result};

use super::args::Wait;
use crate::failure::{say, status, status_of};
use crate::words::chain;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Patience<'t> {
    wait: Wait,
    since: Instant,
    /// Whether it says that it retries. If all retries fail, the error is reported in any case.
    says_so: bool,
    token: &'t CancelToken,
}

impl<'t> Patience<'t> {
    /// It begins now.
    pub(super) fn new(wait: Wait, says_so: bool, token: &'t CancelToken) -> Self {
        Self { wait, since: Instant::now(), says_so, token }
    }

    pub(super) fn left(&self) -> Wait {
        self.wait.left(self.since)
    }

    /// Retries while the store is unavailable, until the time is over or a signal has arrived.
    pub(super) fn until_it_answers<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match ask() {
                Err(e) if status_of(e.kind()) == status::UNAVAILABLE => e,
                answered => return answered,
            };
            let left = self.left();
            if left.most().is_zero() || self.token.is_cancelled() {
                return Err(error);
            }
            if self.says_so && pause == FIRST_PAUSE {
                let why = chain(&error);
                match left {
                    Wait::AtMost(left) => say(format_args!("retrying for up to {left:.0?}: {why}")),
                    _ => say(format_args!("retrying: {why}")),
                }
            }
            if self.token.wait_timeout(pause.min(left.most())) {
                return Err(error);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
