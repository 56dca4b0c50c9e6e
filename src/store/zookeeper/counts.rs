//! Counts that nobody holds: latches, and the number of a semaphore's permits. Each is a node with
//! four bytes, as Curator's `SharedCount`.
//!
//! A change is one transaction: it sets or deletes the count if it is still the one that was read,
//! and makes an ephemeral mark beside the gate, with the id of the change and the new count.
//! Whoever gets no answer closes the [gate](super::gate), and looks for the mark. A transaction can
//! compare versions only: one count that replaced another between the two is taken for it if both
//! were changed equally often.

use super::client::ZooKeeperFailure;
use super::gate::Making;
use super::queue::{
    Recency, TRIES, Unsettled, ZooKeeperResult, busy_directory, certain, children_in, data_in,
    is_there, unsettled,
};
use super::semaphore::{count_in, held_of};
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
    /// It becomes 0 when it is deleted.
    Becomes(i64),
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
        (Count::Delete, Some(_)) => Effect::Becomes(0),
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

    /// What is read of a count besides itself: the permits of a semaphore.
    fn permits_look(&self, name: &LockName) -> Option<Request> {
        (name.kind == Kind::Semaphore).then(|| Request::children(&self.paths(name).leases, false))
    }

    /// How many permits of a semaphore are held, by the answer to that.
    fn held_in(&self, name: &LockName, count: i64, looked: Option<&Reply>) -> ZooKeeperResult<i64> {
        let Some(looked) = looked else { return Ok(0) };
        let taken = children_in(looked, &self.paths(name).leases)?.unwrap_or_default();
        Ok(held_of(&taken, count))
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
        change: Count,
        mark: &str,
        unsettled: Unsettled,
    ) -> ZooKeeperResult<Option<CountAnswer>> {
        // Otherwise it could run when this has looked for its mark.
        self.close_the_gate()?;
        let mut look = vec![self.client.quorum_check(), Request::get_data(mark, false)];
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
        let Some((count, _)) = count_in(&exchange.replies[1], mark)? else { return Ok(None) };
        let looked = exchange.replies.get(2);
        self.changed(name, change, mark, unsettled.generation, count, looked).map(Some)
    }

    /// Answers a change that has run, which its mark shows until then.
    fn changed(
        &self,
        name: &LockName,
        change: Count,
        mark: &str,
        generation: u64,
        count: i64,
        looked: Option<&Reply>,
    ) -> ZooKeeperResult<CountAnswer> {
        let unknown = |failure: ZooKeeperFailure| ZooKeeperFailure::Unknown {
            error: failure.into_error(),
            generation,
        };
        let held = self.held_in(name, count, looked).map_err(unknown)?;
        if change == Count::Delete && name.kind == Kind::Semaphore {
            self.delete_permits(name).map_err(unknown)?;
        }
        // Only now: if anything fails before, the next repeat needs it.
        self.client.delete_later(generation, [mark.to_owned()]);
        Ok(CountAnswer { done: true, value: count - held })
    }

    fn change_count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<CountAnswer> {
        let path = self.count_path(name);
        let mark = names::mark(&self.gates(), id);
        if let Some(unsettled) = unsettled(unknowns)
            && let Some(answer) = self.changed_before(name, change, &mark, unsettled)?
        {
            return Ok(answer);
        }
        let mut parents = Vec::new();
        for _ in 0..TRIES {
            let exchange = self.ask(&[Request::get_data(path, false)])?;
            let read = count_in(&exchange.replies[0], path)?;
            let value = match effect(change, name.kind, read.map(|(count, _)| count))? {
                Effect::Nothing(value) => return Ok(CountAnswer { done: false, value }),
                Effect::Becomes(value) => value,
            };
            let bytes = i32::try_from(value).expect("checked against the limit").to_be_bytes();
            let change_it = match read {
                Some((_, stat)) if change == Count::Delete => {
                    Request::delete_version(path, stat.version)
                }
                Some((_, stat)) => Request::set_data(path, &bytes, stat.version),
                None => Request::create(path, &bytes, self.acl, Mode::Persistent),
            };
            let mut changes = std::mem::take(&mut parents);
            changes.extend([change_it, Request::create(&mark, &bytes, self.acl, Mode::Ephemeral)]);
            let Making { exchange, outcome } =
                self.make(&changes, self.permits_look(name).as_slice())?;
            let code = match outcome {
                Transacted::Refused { code, .. } => code,
                Transacted::Made(_) => {
                    let generation = exchange.session.generation;
                    let looked = exchange.replies.get(1);
                    return self.changed(name, change, &mark, generation, value, looked);
                }
            };
            match code {
                Code::NO_NODE if read.is_none() => {
                    parents = self.missing(path.rfind('/').map(|end| &path[..end]))?;
                }
                Code::NOT_EMPTY => self.check_empty(path)?,
                // Another client was faster.
                Code::NO_NODE | Code::NODE_EXISTS | Code::BAD_VERSION => {}
                code => return Err(certain(code.to_error(path))),
            }
        }
        Err(certain(busy_directory(path)))
    }

    /// # Errors
    /// There is something below the node.
    fn check_empty(&self, path: &str) -> ZooKeeperResult<()> {
        let Some(other) = self.list(path, Recency::Any)?.pop() else { return Ok(()) };
        let why = format!("{path}/{other} exists, and a node with others below it cannot go");
        Err(certain(Error::new(ErrorKind::WrongType, why)))
    }

    /// Deletes the permits of a semaphore that was deleted, but not those of one that was made
    /// since: all that are older than the count that there is now. There may be too many for one
    /// transaction.
    fn delete_permits(&self, name: &LockName) -> ZooKeeperResult<()> {
        let paths = self.paths(name);
        let leases = &paths.leases;
        // In this order: without a count, what was listed before belongs to no semaphore.
        let look = [Request::children(leases, false), Request::get_data(&paths.permits, false)];
        let exchange = self.ask(&look)?;
        let permits = children_in(&exchange.replies[0], leases)?.unwrap_or_default();
        let newer = data_in(&exchange.replies[1], &paths.permits)?.map(|(_, stat)| stat.czxid);
        let mut permits: Vec<String> =
            permits.iter().map(|node| format!("{leases}/{node}")).collect();
        if let Some(newer) = newer {
            permits = self.made_before(newer, &permits)?;
        }
        for some in permits.chunks(MOST_AT_ONCE) {
            for reply in &self.delete(some)?.replies {
                is_there(reply, leases)?;
            }
        }
        Ok(())
    }

    /// Those of these nodes that were made before the change with this number.
    fn made_before(&self, change: i64, paths: &[String]) -> ZooKeeperResult<Vec<String>> {
        let mut older = Vec::new();
        for some in paths.chunks(MOST_AT_ONCE) {
            let looks: Vec<Request> =
                some.iter().map(|path| Request::exists(path, false)).collect();
            for (reply, path) in self.ask(&looks)?.replies.iter().zip(some) {
                if is_there(reply, path)? && reply.stat()?.czxid < change {
                    older.push(path.clone());
                }
            }
        }
        Ok(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_what_their_names_say() {
        let becomes = |change, kind, count| match effect(change, kind, count).unwrap() {
            Effect::Becomes(value) => Some(value),
            Effect::Nothing(_) => None,
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
