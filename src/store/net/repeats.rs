//! How often a request whose connection has ended is sent again at once: that says nothing about
//! the server now.

use super::pool::Pool;
use super::pooled::PooledConnector;
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::signal::clock::Clock;

/// Every connection of the pool may have ended with the first one. After a long time (the machine
/// slept) the idempotency key may be gone, and a repeat could count twice.
pub(crate) struct Repeats<'c> {
    left: usize,
    clock: &'c dyn Clock,
    until: Moment,
}

impl<'c> Repeats<'c> {
    pub(crate) fn over<C: PooledConnector>(pool: &Pool<C>, clock: &'c dyn Clock) -> Self {
        Self { left: pool.most() + 1, clock, until: clock.now().plus(IDEMPOTENCY_TTL / 2) }
    }

    pub(crate) fn one_more(&mut self) -> bool {
        let goes_on = self.left > 0 && self.clock.now() < self.until;
        self.left = self.left.saturating_sub(1);
        goes_on
    }
}
