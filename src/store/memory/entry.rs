//! What can exist under a name, and for how long.

use super::limiter::Limiter;
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::REMEMBERED;

/// What exists under a name.
#[derive(Debug)]
pub(super) enum Entry {
    /// A mutex or a fair lock: they exclude each other.
    Lock(HolderEntry),
    ReadWrite(ReadWrite),
    Semaphore(Permits),
    /// How many permits are free.
    CountingSemaphore(i64),
    /// The remaining count.
    Latch(i64),
    RateLimiter(Limiter),
    Value(Value),
}

/// One holder, its hold count, and the end of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HolderEntry {
    pub(super) holder: Holder,
    pub(super) count: u32,
    pub(super) until: Moment,
}

impl HolderEntry {
    /// Never shortens.
    pub(super) fn lengthen(&mut self, until: Moment) {
        self.until = self.until.max(until);
    }
}

impl Entry {
    pub(super) fn lock(&mut self) -> Option<&mut HolderEntry> {
        if let Self::Lock(current) = self { Some(current) } else { None }
    }

    pub(super) fn read_write(&mut self) -> Option<&mut ReadWrite> {
        if let Self::ReadWrite(lock) = self { Some(lock) } else { None }
    }

    pub(super) fn semaphore(&mut self) -> Option<&mut Permits> {
        if let Self::Semaphore(permits) = self { Some(permits) } else { None }
    }

    pub(super) fn counting_semaphore(&mut self) -> Option<&mut i64> {
        if let Self::CountingSemaphore(free) = self { Some(free) } else { None }
    }

    pub(super) fn rate_limiter(&mut self) -> Option<&mut Limiter> {
        if let Self::RateLimiter(limiter) = self { Some(limiter) } else { None }
    }

    pub(super) fn value(&mut self) -> Option<&mut Value> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// Removes leases that have ended; true if nobody holds the lock any more. Permits and counts
    /// are kept.
    pub(super) fn drop_ended(&mut self, now: Moment) -> bool {
        match self {
            Self::Lock(current) => current.until <= now,
            Self::ReadWrite(lock) => lock.drop_ended(now),
            _ => false,
        }
    }
}

#[cold]
pub(super) fn another_kind() -> Error {
    Error::new(ErrorKind::WrongType, "something of another kind exists under this name")
}

/// The permits of a semaphore.
#[derive(Debug)]
pub(super) struct Permits {
    /// Below zero if more permits were removed than were free.
    pub(super) free: i64,
    /// One entry for each acquisition; its count is the number of permits.
    pub(super) taken: Vec<HolderEntry>,
}

impl Permits {
    pub(super) fn new(free: i64) -> Self {
        Self { free, taken: Vec::new() }
    }

    pub(super) fn held(&self) -> i64 {
        self.taken.iter().map(|current| i64::from(current.count)).sum()
    }

    /// Returns the permits of the acquisitions that `is_over` selects; true if there were some.
    pub(super) fn take_back(&mut self, is_over: impl Fn(&HolderEntry) -> bool) -> bool {
        let before = self.held();
        self.taken.retain(|current| !is_over(current));
        self.free += before - self.held();
        self.held() < before
    }

    pub(super) fn take_all_back(&mut self) -> bool {
        self.take_back(|_| true)
    }

    pub(super) fn lengthen(&mut self, holder: &Holder, until: Moment, now: Moment) -> bool {
        let theirs =
            self.taken.iter_mut().find(|current| current.holder == *holder && current.until > now);
        theirs.map(|current| current.lengthen(until)).is_some()
    }
}

/// A writer, or readers. While the outcome of a downgrade is unknown, its holder may be either.
#[derive(Debug, Default)]
pub(super) struct ReadWrite {
    pub(super) writer: Option<HolderEntry>,
    pub(super) readers: Vec<HolderEntry>,
}

/// Keeps new readers out while a writer waits.
#[derive(Debug)]
pub(super) struct Marker {
    pub(super) holder: Holder,
    pub(super) until: Moment,
}

impl ReadWrite {
    /// Removes leases that have ended; true if nobody is left.
    pub(super) fn drop_ended(&mut self, now: Moment) -> bool {
        self.writer = self.writer.take().filter(|writer| writer.until > now);
        self.readers.retain(|reader| reader.until > now);
        self.writer.is_none() && self.readers.is_empty()
    }

    pub(super) fn until(&self) -> Moment {
        let all = self.writer.iter().chain(&self.readers);
        all.map(|current| current.until).max().unwrap_or(Moment::from_nanos(0))
    }

    pub(super) fn is_writer(&self, holder: &Holder) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.holder == *holder)
    }

    pub(super) fn is_reader(&self, holder: &Holder) -> bool {
        self.readers.iter().any(|reader| reader.holder == *holder)
    }

    pub(super) fn read(&mut self, holder: &Holder, count: u32, until: Moment) {
        match self.readers.iter_mut().find(|reader| reader.holder == *holder) {
            Some(reader) => {
                reader.count = count;
                reader.lengthen(until);
            }
            None => self.readers.push(HolderEntry { holder: holder.clone(), count, until }),
        }
    }

    pub(super) fn lengthen(&mut self, holder: &Holder, until: Moment) -> bool {
        let mut stands = false;
        for current in self
            .writer
            .iter_mut()
            .chain(&mut self.readers)
            .filter(|current| current.holder == *holder)
        {
            current.lengthen(until);
            stands = true;
        }
        stands
    }

    /// Until when it is held, and by whom: a writer's id ends with `:write`.
    pub(super) fn holders(&self) -> (Moment, Vec<(String, u64)>) {
        let writer = self
            .writer
            .iter()
            .map(|writer| (format!("{}:write", writer.holder.as_str()), writer.count.into()));
        let readers = self
            .readers
            .iter()
            .map(|reader| (reader.holder.as_str().to_owned(), reader.count.into()));
        (self.until(), writer.chain(readers).collect())
    }
}

/// A value that refuses stale holders.
#[derive(Debug)]
pub(super) struct Value {
    /// The highest token that has claimed it.
    pub(super) token: u64,
    pub(super) bytes: Option<Vec<u8>>,
}

/// What the last holder with data has written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) holder: String,
    pub(super) number: u64,
    pub(super) data: HoldData,
    /// The fencing token of the holder; 0 for none.
    pub(super) token: u64,
    /// How often somebody has asked for the lock.
    pub(super) asked: u64,
    /// When its lease ends, or when it was given up.
    pub(super) until: Moment,
}

impl Written {
    pub(super) fn is_forgotten(&self, now: Moment) -> bool {
        now >= self.until.plus(REMEMBERED)
    }
}
