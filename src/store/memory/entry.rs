//! What can stand under a name, and until when.

use crate::base::error::{Error, ErrorKind};
use crate::base::holder::Holder;
use crate::base::lease::Moment;

/// What stands under a name.
#[derive(Debug)]
pub(super) enum Entry {
    /// Of a mutex or a fair lock: they exclude each other.
    Lock(Stand),
    ReadWrite(ReadWrite),
    Semaphore(Permits),
    /// How many permits are free.
    CountingSemaphore(i64),
    /// What is left to count.
    Latch(i64),
    Value(Value),
}

/// One holder, how often it holds, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) holder: Holder,
    pub(super) count: u32,
    pub(super) until: Moment,
}

impl Stand {
    /// Never shortens.
    pub(super) fn lengthen(&mut self, until: Moment) {
        self.until = self.until.max(until);
    }
}

impl Entry {
    pub(super) fn lock(&mut self) -> Option<&mut Stand> {
        if let Self::Lock(stand) = self { Some(stand) } else { None }
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

    pub(super) fn value(&mut self) -> Option<&mut Value> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// Removes the leases that have ended; true: nobody holds it any more. Permits and counts stay
    /// until they are removed.
    pub(super) fn drop_ended(&mut self, now: Moment) -> bool {
        match self {
            Self::Lock(stand) => stand.until <= now,
            Self::ReadWrite(lock) => lock.drop_ended(now),
            _ => false,
        }
    }
}

#[cold]
pub(super) fn another_kind() -> Error {
    Error::new(ErrorKind::WrongType, "what stands under this name is of another kind")
}

/// The permits of a semaphore.
#[derive(Debug)]
pub(super) struct Permits {
    /// Fewer than none where some that were out have been taken away.
    pub(super) free: i64,
    /// Those that are out, by acquisition: the count is how many permits.
    pub(super) out: Vec<Stand>,
}

impl Permits {
    pub(super) fn new(free: i64) -> Self {
        Self { free, out: Vec::new() }
    }

    pub(super) fn held(&self) -> i64 {
        self.out.iter().map(|stand| i64::from(stand.count)).sum()
    }

    /// Takes back what keeps to `is_over`; true: there was something.
    pub(super) fn take_back(&mut self, is_over: impl Fn(&Stand) -> bool) -> bool {
        let before = self.held();
        self.out.retain(|stand| !is_over(stand));
        self.free += before - self.held();
        self.held() < before
    }

    pub(super) fn take_all_back(&mut self) -> bool {
        self.take_back(|_| true)
    }

    pub(super) fn lengthen(&mut self, holder: &Holder, until: Moment, now: Moment) -> bool {
        let theirs = self.out.iter_mut().find(|stand| stand.holder == *holder && stand.until > now);
        theirs.map(|stand| stand.lengthen(until)).is_some()
    }
}

/// A writer, or readers. While a downgrade is unknown its holder may stand as either.
#[derive(Debug, Default)]
pub(super) struct ReadWrite {
    pub(super) writer: Option<Stand>,
    pub(super) readers: Vec<Stand>,
}

/// A writer that waits, and keeps new readers out meanwhile.
#[derive(Debug)]
pub(super) struct Marker {
    pub(super) holder: Holder,
    pub(super) until: Moment,
}

impl ReadWrite {
    /// Removes those whose lease has ended; true: nobody is left.
    pub(super) fn drop_ended(&mut self, now: Moment) -> bool {
        self.writer = self.writer.take().filter(|writer| writer.until > now);
        self.readers.retain(|reader| reader.until > now);
        self.writer.is_none() && self.readers.is_empty()
    }

    pub(super) fn until(&self) -> Moment {
        let all = self.writer.iter().chain(&self.readers);
        all.map(|stand| stand.until).max().unwrap_or(Moment::from_nanos(0))
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
            None => self.readers.push(Stand { holder: holder.clone(), count, until }),
        }
    }

    pub(super) fn lengthen(&mut self, holder: &Holder, until: Moment) -> bool {
        let mut stands = false;
        for stand in self.writer.iter_mut().chain(&mut self.readers).filter(|stand| stand.holder == *holder) {
            stand.lengthen(until);
            stands = true;
        }
        stands
    }

    /// Until when, and who: a writer has `:write` behind its id.
    pub(super) fn holders(&self) -> (Moment, Vec<(String, u64)>) {
        let writer =
            self.writer.iter().map(|writer| (format!("{}:write", writer.holder.as_str()), writer.count.into()));
        let readers = self.readers.iter().map(|reader| (reader.holder.as_str().to_owned(), reader.count.into()));
        (self.until(), writer.chain(readers).collect())
    }
}

/// A value that refuses stale holders.
#[derive(Debug)]
pub(super) struct Value {
    /// The highest that claimed it.
    pub(super) token: u64,
    pub(super) bytes: Option<Vec<u8>>,
}
