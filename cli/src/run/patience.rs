//! Retries while the store is unavailable at the start of a run.

use std::time::{Duration, Instant};

use leasehold::{CancelToken, Result};

use crate::failure::{say, status, status_of};
use crate::words::chain;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a pause checks whether a signal has ended it.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Patience<'t> {
    /// `None`: no retries.
    until: Option<Instant>,
    /// Whether it says that it retries. If all retries fail, the error is reported in any case.
    says_so: bool,
    token: &'t CancelToken,
}

impl<'t> Patience<'t> {
    pub(super) fn new(longest: Option<Duration>, says_so: bool, token: &'t CancelToken) -> Self {
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        Self { until, says_so, token }
    }

    /// Retries while the store is unavailable, until the time is over or a signal has arrived.
    pub(super) fn until_it_answers<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match ask() {
                Err(e) if status_of(e.kind()) == status::UNAVAILABLE => e,
                answered => return answered,
            };
            let left = self
                .until
                .map(|until| until.saturating_duration_since(Instant::now()))
                .unwrap_or_default();
            if left.is_zero() || self.token.is_cancelled() {
                return Err(error);
            }
            if self.says_so && pause == FIRST_PAUSE {
                say(format_args!("retrying for up to {left:.0?}: {}", chain(&error)));
            }
            self.sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn sleep(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.token.is_cancelled() {
            std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
    }
}
