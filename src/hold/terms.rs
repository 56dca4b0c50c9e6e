//! The terms on which a handle takes its holds: their lease, longest and shortest time and token,
//! and what cancels the waits for them.

use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::error::{Result, invalid};
use crate::base::limits::{LONGEST_LEASE, check_lease, in_words, zero_max_hold};
use crate::lease::records::{Owner, User};
use crate::signal::cancel::CancelToken;
use crate::store::{LockStore, TokenRule};
use crate::wait::client_state::Config;

/// The terms of an outermost acquire.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Renewed by the watchdog, up to `max_hold` if that is set; else the lease is fixed.
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The least time for which the lock stays taken; zero: for no longer than it is held.
    pub(crate) min_hold: Duration,
    pub(crate) token: TokenRule,
    /// Whether a thread that has the lock may enter it again.
    pub(crate) reentrant: bool,
    /// Ends the waits of the handle.
    pub(crate) cancel: Option<CancelToken>,
    /// What a grant writes beside the hold.
    pub(crate) data: Option<HoldData>,
}

impl Terms {
    /// The terms from a client's settings.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            lease: config.lease,
            renewed: true,
            max_hold: config.max_hold,
            min_hold: Duration::ZERO,
            token: if config.fencing { TokenRule::On } else { TokenRule::Off },
            reentrant: true,
            cancel: None,
            data: None,
        }
    }

    /// Checks that they fit each other and the store. No I/O.
    pub(crate) fn check(&self, store: &dyn LockStore) -> Result<()> {
        if !self.renewed {
            check_lease(self.lease)?;
        }
        if self.max_hold == Some(Duration::ZERO) {
            return Err(zero_max_hold());
        }
        if let Some(data) = &self.data {
            store.data()?;
            data.check()?;
        }
        if self.min_hold.is_zero() {
            return Ok(());
        }
        self.check_min_hold()?;
        store.check_min_hold(self.min_hold)
    }

    /// The least time must not exceed the longest: if the job hung, the lock would be free before
    /// the least time.
    fn check_min_hold(&self) -> Result<()> {
        let least = self.min_hold;
        let shown = in_words(least);
        let refuse = |why: String| Err(invalid(why));
        match self.max_hold {
            _ if least > LONGEST_LEASE => {
                refuse(format!("a minimum hold of {shown} is more than 365 days"))
            }
            _ if !self.renewed && self.lease < least => refuse(format!(
                "a minimum hold of {shown} is longer than the fixed lease of {}: set a lease that is at least as long",
                in_words(self.lease)
            )),
            Some(most) if self.renewed && most < least => refuse(format!(
                "a minimum hold of {shown} is longer than the maximum hold of {}: set a maximum that is at least as long",
                in_words(most)
            )),
            _ => Ok(()),
        }
    }

    /// Checks whether a reader may use them.
    pub(crate) fn check_read(&self) -> Result<()> {
        if self.min_hold.is_zero() {
            return Ok(());
        }
        let why = "readers share the lock, and a minimum hold would keep writers out for a reader that has left: read \
                   through a handle without it";
        Err(invalid(why))
    }

    /// Whether a hold of these terms may pass to another thread of the client. A lock that stays
    /// taken passes to nobody, and a caller that asks for that needs a hold whose time begins anew.
    /// Data is of one user, so the store has to learn of each.
    pub(super) fn may_pass_on(&self) -> bool {
        self.renewed && self.min_hold.is_zero() && self.data.is_none()
    }

    pub(crate) fn user(&self, owner: Owner) -> User {
        let max_hold = if self.renewed { self.max_hold } else { None };
        User { owner, reentrant: self.reentrant, max_hold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[test]
    fn a_minimum_hold_fits_the_others() {
        let seconds = Duration::from_secs;
        let terms = |min_hold, lease, max_hold: Option<Duration>| Terms {
            lease,
            renewed: true,
            max_hold,
            min_hold,
            token: TokenRule::On,
            reentrant: true,
            cancel: None,
            data: None,
        };
        let fixed = |min_hold, lease| Terms { renewed: false, ..terms(min_hold, lease, None) };
        for good in [
            terms(Duration::ZERO, seconds(5), None),
            terms(seconds(60), seconds(5), None),
            terms(seconds(60), seconds(5), Some(seconds(60))),
            terms(LONGEST_LEASE, seconds(5), None),
            fixed(seconds(5), seconds(5)),
        ] {
            good.check_min_hold().unwrap();
        }
        for (bad, why) in [
            (terms(LONGEST_LEASE + seconds(1), seconds(5), None), "365 days"),
            (terms(LONGEST_LEASE * 2, seconds(5), None), "365 days"),
            (terms(seconds(60), seconds(5), Some(seconds(59))), "the maximum hold"),
            (fixed(seconds(6), seconds(5)), "the fixed lease"),
        ] {
            let error = bad.check_min_hold().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.message().contains(why), "{error}");
        }
    }
}
