//! The primitives, as users distinguish them.

use std::fmt;

use crate::base::lock_name::Kind;

/// What was asked for: which kind of lock, and for a read-write lock which side.
///
/// [As JSON](crate::observe#as-json) it is its [name](Self::as_str).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Primitive {
    /// [`ReentrantMutex`](crate::ReentrantMutex).
    Mutex,
    /// [`FairMutex`](crate::FairMutex).
    Fair,
    /// [`RwLock`](crate::RwLock), for reading.
    Read,
    /// [`RwLock`](crate::RwLock), for writing.
    Write,
    /// [`MultiLock`](crate::MultiLock): its calls, and each of the plain locks that it holds. The
    /// end of such a hold is reported to a [`Listener`](crate::observe::Listener) as that of a
    /// [`Mutex`](Self::Mutex), under its own name.
    Multi,
    /// [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// [`CountingSemaphore`](crate::CountingSemaphore).
    CountingSemaphore,
    /// Waits for a [`CountDownLatch`](crate::CountDownLatch). Nothing is held.
    Latch,
    /// [`RateLimiter`](crate::RateLimiter). Nothing is held.
    RateLimiter,
    /// [`ScheduledJob`](crate::ScheduledJob): a run of it, and waits for one.
    Once,
}

impl Primitive {
    pub(crate) const ALL: [Self; 10] = [
        Self::Mutex,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Multi,
        Self::Semaphore,
        Self::CountingSemaphore,
        Self::Latch,
        Self::RateLimiter,
        Self::Once,
    ];

    /// The name in lower case, as in labels of metrics: `mutex`, `fair`, `read`, `write`, `multi`,
    /// `semaphore`, `counting_semaphore`, `latch`, `rate_limiter`, `once`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Multi => "multi",
            Self::Semaphore => "semaphore",
            Self::CountingSemaphore => "counting_semaphore",
            Self::Latch => "latch",
            Self::RateLimiter => "rate_limiter",
            Self::Once => "once",
        }
    }
}

impl From<Kind> for Primitive {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Mutex => Self::Mutex,
            Kind::Fair => Self::Fair,
            Kind::Read => Self::Read,
            Kind::Write => Self::Write,
            Kind::Semaphore => Self::Semaphore,
            Kind::CountingSemaphore => Self::CountingSemaphore,
            Kind::Latch => Self::Latch,
            Kind::RateLimiter => Self::RateLimiter,
            Kind::Job | Kind::Done => Self::Once,
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_in_the_list() {
        Primitive::ALL
            .iter()
            .enumerate()
            .for_each(|(place, primitive)| assert_eq!(*primitive as usize, place));
    }
}
