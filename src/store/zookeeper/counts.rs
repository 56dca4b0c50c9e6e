//! Counts that nobody holds: latches, and the number of a semaphore's permits. Each is a node with
//! four bytes, as Curator's `SharedCount`.
//!
//! A change is one transaction: it sets the new count if the old one is still the one that was
//! read, and makes an ephemeral mark with the id of the change. Whoever gets no answer closes the
//! [gate](super::gate), and looks for the mark. A deletion has no mark: it may run twice.

use super::gate::Making;
use super::queue::{
    Recency, TRIES, Unsettled, ZooKeeperResult, busy_directory, certain, children_in, is_there,
    unsettled,
};
use super::semaphore::count_in;
use super::wire::{Code, Mode, Reply, Request, Transacted};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::limits::MOST_PERMITS;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Count, CountAnswer, CountStore, UnknownOutcomes};

/// How many permits are deleted in one write.
const MOST_AT_ONCE: usize = 1000;

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
        let is_repeated = !unknowns.is_empty();
        let mut outcome = self.change_count(name, change, id, unknowns);
        if let (Count::Delete, Kind::Semaphore, Ok(answer)) = (change, name.kind, &outcome)
            && (answer.done || is_repeated)
            && let Err(failure) = self.delete_permits(name)
        {
            outcome = Err(failure);
        }
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

    /// What is read of a count besides itself: the permits of a semaphore.
    fn permits_look(&self, name: &LockName) -> Option<Request> {
        (name.kind == Kind::Semaphore).then(|| Request::children(&self.paths(name).leases, false))
    }

    /// How many permits of a semaphore are held, by the answer to that.
    fn held_in(&self, name: &LockName, count: i64, looked: Option<&Reply>) -> ZooKeeperResult<i64> {
        let Some(looked) = looked else { return Ok(0) };
        let taken = children_in(looked, &self.paths(name).leases)?.map_or(0, |nodes| nodes.len());
        // In Java, a caller that waits for permits has already made them: those are not held.
        Ok(i64::try_from(taken).unwrap_or(i64::MAX).min(count.max(0)))
    }

    fn read_count(&self, name: &LockName) -> ZooKeeperResult<(i64, i64)> {
        let path = self.count_path(name);
        let mut look = vec![Request::get_data(path, false)];
        look.extend(self.permits_look(name));
        let exchange = self.ask(&look)?;
        let read = count_in(&exchange.replies[0], path)?;
        let count = read.map_or(0, |(count, _)| count);
        if name.kind == Kind::Latch {
            let is_waited_for = |path: &str| self.client.is_latch_watched(path);
            let generation = exchange.session.generation;
            return Ok((count, self.latches.lock().read(path, read, generation, is_waited_for)));
        }
        let held = self.held_in(name, count, exchange.replies.get(1))?;
        Ok((count - held, held))
    }

    /// The answer if the change has run, before the request whose outcome is unknown was repeated.
    fn changed_before(
        &self,
        name: &LockName,
        mark: &str,
        unsettled: Unsettled,
    ) -> ZooKeeperResult<Option<CountAnswer>> {
        // Otherwise it could run when this has looked for its mark.
        self.close_the_gate()?;
        let path = self.count_path(name);
        let mut look = vec![
            self.client.quorum_check(),
            Request::exists(mark, false),
            Request::get_data(path, false),
        ];
        look.extend(self.permits_look(name));
        let exchange = self.ask(&look)?;
        if unsettled.generation != exchange.session.generation {
            let why = "the session ended before the server had answered: the change may have run or not, so look \
                       at the count before you repeat it";
            return Err(certain(Error::new(ErrorKind::Server, why)));
        }
        self.agreed_in(&exchange.replies[0])?;
        // An error taken for "it has not run" would make the change run into its own mark, again
        // and again.
        if !is_there(&exchange.replies[1], mark)? {
            return Ok(None);
        }
        let count = count_in(&exchange.replies[2], path)?.map_or(0, |(count, _)| count);
        let held = self.held_in(name, count, exchange.replies.get(3))?;
        // Only now: if this fails, the next repeat needs it.
        self.client.delete_later(unsettled.generation, [mark.to_owned()]);
        Ok(Some(CountAnswer { done: true, value: count - held }))
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
        if let Some(unsettled) = unsettled(unknowns)
            && let Some(answer) = self.changed_before(name, &mark, unsettled)?
        {
            return Ok(answer);
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
                Effect::Goes => (self.removal(path, read.map_or(-1, |(_, stat)| stat.version))?, 0),
            };
            let has_mark = change != Count::Delete;
            changes.splice(0..0, std::mem::take(&mut parents));
            if has_mark {
                changes.push(Request::create(&mark, &[], self.acl, Mode::Ephemeral));
            }
            let Making { exchange, outcome } =
                self.make(&changes, self.permits_look(name).as_slice())?;
            let code = match outcome {
                Transacted::Refused { code, .. } => code,
                Transacted::Made(_) => {
                    if has_mark {
                        self.client.delete_later(exchange.session.generation, [mark]);
                    }
                    let held = self.held_in(name, value, exchange.replies.get(1))?;
                    return Ok(CountAnswer { done: true, value: value - held });
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

    /// Deletes a count with its marks.
    fn removal(&self, path: &str, version: i32) -> ZooKeeperResult<Vec<Request>> {
        let below = self.list(path, Recency::Any)?;
        if let Some(other) = below.iter().find(|node| !names::is_mark(node)) {
            let why = format!("{path}/{other} exists, and a node with others below it cannot go");
            return Err(certain(Error::new(ErrorKind::WrongType, why)));
        }
        let marks = below.iter().map(|mark| Request::delete(&format!("{path}/{mark}")));
        Ok(marks.chain([Request::delete_version(path, version)]).collect())
    }

    /// Deletes the permits of a semaphore that is gone: there may be too many for one transaction.
    fn delete_permits(&self, name: &LockName) -> ZooKeeperResult<()> {
        let leases = &self.paths(name).leases;
        let permits = self.list(leases, Recency::Any)?;
        let paths: Vec<String> = permits.iter().map(|node| format!("{leases}/{node}")).collect();
        for some in paths.chunks(MOST_AT_ONCE) {
            for reply in &self.delete(some)?.replies {
                is_there(reply, leases)?;
            }
        }
        Ok(())
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
