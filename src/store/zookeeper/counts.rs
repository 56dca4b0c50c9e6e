//! Counts that nobody holds: latches, and the number of a semaphore's permits. Each is a node with
//! four bytes, as Curator's `SharedCount`.
//!
//! A change is one transaction: it sets the new count if the old one is still the one that was
//! read, and makes an ephemeral mark with the id of the change. Whoever gets no answer looks for
//! the mark.

use super::queue::{
    Recency, TRIES, ZooKeeperResult, busy_directory, certain, children_in, is_there, transacted,
    unsettled,
};
use super::semaphore::count_in;
use super::wire::{Code, Mode, Request, Transacted};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::limits::MOST_PERMITS;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Count, CountAnswer, CountStore, UnknownOutcomes};

/// The effect of a change on a count.
enum Effect {
    Nothing(i64),
    Becomes(i64),
    Goes,
}

/// `count`: `None` if there is none.
fn effect(change: Count, kind: Kind, count: Option<i64>) -> Result<Effect> {
    Ok(match (change, count) {
        (Count::Set(_), Some(count)) if kind == Kind::Semaphore || count > 0 => {
            Effect::Nothing(count)
        }
        (Count::Set(count), _) => Effect::Becomes(count.into()),
        (Count::Down, Some(count @ 1..)) => Effect::Becomes(count - 1),
        (Count::Down, _) => Effect::Nothing(0),
        (Count::Delete, None) => Effect::Nothing(0),
        (Count::Delete, Some(_)) => Effect::Goes,
        (Count::Add(more), count) => {
            let sum = count.unwrap_or(0) + more;
            if sum < 0 || sum > i64::from(MOST_PERMITS) {
                let before = count.unwrap_or(0);
                let why = format!(
                    "with {before} permits in all now, the result would not be between 0 and 2^31 - 1"
                );
                return Err(invalid(why));
            }
            Effect::Becomes(sum)
        }
    })
}

impl CountStore for ZooKeeperStore {
    fn count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer> {
        let outcome = self.change_count(name, change, id, unknowns);
        self.note(outcome, unknowns)
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        self.looked(|| self.read_count(name))
    }
}

impl ZooKeeperStore {
    fn count_path<'n>(&self, name: &'n LockName) -> &'n str {
        let paths = self.paths(name);
        if name.kind == Kind::Latch { &paths.base } else { &paths.permits }
    }

    fn read_count(&self, name: &LockName) -> ZooKeeperResult<(i64, i64)> {
        let paths = self.paths(name);
        let path = self.count_path(name);
        let look = [Request::get_data(path, false), Request::children(&paths.leases, false)];
        let look = if name.kind == Kind::Latch { &look[..1] } else { &look };
        let exchange = self.ask(look)?;
        let read = count_in(&exchange.replies[0], path)?;
        let count = read.map_or(0, |(count, _)| count);
        if name.kind == Kind::Latch {
            return Ok((count, self.latches.lock().read(path, read)));
        }
        let taken =
            children_in(&exchange.replies[1], &paths.leases)?.map_or(0, |permits| permits.len());
        // In Java, a caller that waits for permits has already made them: those are not held.
        let held = i64::try_from(taken).unwrap_or(i64::MAX).min(count.max(0));
        Ok((count - held, held))
    }

    fn change_count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<CountAnswer> {
        let path = self.count_path(name);
        let mark = names::mark(path, id);
        if let Some(unsettled) = unsettled(unknowns) {
            let exchange =
                self.ask(&[self.client.quorum_check(), Request::exists(&mark, false)])?;
            if unsettled.generation != exchange.session.generation {
                let why = "the session ended before the server had answered: the change may have run or not, so look \
                           at the count before you repeat it";
                return Err(certain(Error::new(ErrorKind::Server, why)));
            }
            self.agreed_in(&exchange.replies[0])?;
            // An error taken for "it has not run" would make the change run into its own mark,
            // again and again.
            let has_run = is_there(&exchange.replies[1], &mark)?;
            if has_run {
                self.client.delete_later(unsettled.generation, [mark]);
                let exchange = self.ask(&[Request::get_data(path, false)])?;
                let value = count_in(&exchange.replies[0], path)?.map_or(0, |(count, _)| count);
                return Ok(CountAnswer { done: true, value: self.available(name, value)? });
            }
        }
        let mut parents = Vec::new();
        for _ in 0..TRIES {
            let exchange = self.ask(&[Request::get_data(path, false)])?;
            let read = count_in(&exchange.replies[0], path)?;
            let effect = effect(change, name.kind, read.map(|(count, _)| count))?;
            let (mut changes, value) = match effect {
                Effect::Nothing(value) => return Ok(CountAnswer { done: false, value }),
                Effect::Becomes(value) => {
                    let bytes =
                        i32::try_from(value).expect("checked against the limit").to_be_bytes();
                    let set = match read {
                        Some((_, stat)) => Request::set_data(path, &bytes, stat.version),
                        None => Request::create(path, &bytes, self.acl, Mode::Persistent),
                    };
                    (vec![set], value)
                }
                Effect::Goes => {
                    (self.removal(name, path, read.map_or(-1, |(_, stat)| stat.version))?, 0)
                }
            };
            let has_mark = change != Count::Delete;
            changes.splice(0..0, std::mem::take(&mut parents));
            if has_mark {
                changes.push(Request::create(&mark, &[], self.acl, Mode::Ephemeral));
            }
            let exchange = self.ask(&[Request::multi(&changes)])?;
            let code = match transacted(&exchange.replies[0], &changes, path)? {
                Transacted::Refused { code, .. } => code,
                Transacted::Made(_) => {
                    if has_mark {
                        self.client.delete_later(exchange.session.generation, [mark]);
                    }
                    return Ok(CountAnswer { done: true, value: self.available(name, value)? });
                }
            };
            match code {
                Code::NO_NODE if read.is_none() => {
                    parents = self.missing(path.rfind('/').map(|end| &path[..end]))?;
                }
                // Another client was faster.
                Code::NO_NODE | Code::NODE_EXISTS | Code::BAD_VERSION | Code::NOT_EMPTY => {}
                code => return Err(certain(code.to_error(path))),
            }
        }
        Err(certain(busy_directory(path)))
    }

    /// Deletes a count with its marks, and the permits of a semaphore.
    fn removal(&self, name: &LockName, path: &str, version: i32) -> ZooKeeperResult<Vec<Request>> {
        let below = |directory: &str, nodes: Vec<String>| -> Vec<Request> {
            nodes.iter().map(|node| Request::delete(&format!("{directory}/{node}"))).collect()
        };
        let marks = self
            .list(path, Recency::Any)?
            .into_iter()
            .filter(|node| names::is_mark(node))
            .collect();
        let mut changes = below(path, marks);
        if name.kind == Kind::Semaphore {
            let leases = &self.paths(name).leases;
            changes.extend(below(leases, self.list(leases, Recency::Any)?));
        }
        changes.push(Request::delete_version(path, version));
        Ok(changes)
    }

    /// The value that a caller gets for a count: for a semaphore, the number of free permits.
    fn available(&self, name: &LockName, count: i64) -> ZooKeeperResult<i64> {
        if name.kind == Kind::Latch || count == 0 {
            return Ok(count);
        }
        let taken = self.list(&self.paths(name).leases, Recency::Any)?.len();
        Ok(count - i64::try_from(taken).unwrap_or(i64::MAX).min(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_what_their_names_say() {
        let becomes = |change, kind, count| match effect(change, kind, count).unwrap() {
            Effect::Becomes(value) => Some(value),
            Effect::Nothing(_) | Effect::Goes => None,
        };
        assert_eq!(becomes(Count::Set(3), Kind::Latch, None), Some(3));
        assert_eq!(becomes(Count::Set(3), Kind::Latch, Some(0)), Some(3));
        assert_eq!(becomes(Count::Set(3), Kind::Latch, Some(1)), None);
        assert_eq!(becomes(Count::Set(3), Kind::Semaphore, Some(0)), None);
        assert_eq!(becomes(Count::Down, Kind::Latch, Some(1)), Some(0));
        assert_eq!(becomes(Count::Down, Kind::Latch, Some(0)), None);
        assert_eq!(becomes(Count::Add(-2), Kind::Semaphore, Some(3)), Some(1));
        for (more, count) in [(-1, None), (i64::from(MOST_PERMITS), Some(1))] {
            let error = effect(Count::Add(more), Kind::Semaphore, count).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
}
