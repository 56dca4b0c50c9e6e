//! Counts at the store that nobody holds: the count of a latch, and a semaphore's number of
//! permits.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::limits::{IDEMPOTENCY_TTL, MOST_PERMITS, check_count};
use crate::base::lock_name::{Kind, LockName};
use crate::base::random::Backoff;
use crate::os;
use crate::store::{Count, CountAnswer, Undo, UnknownOutcomes};
use crate::sync::handle::Handle;
use crate::wait::client_state::ClientState;
use crate::wait::life::closed;

pub(crate) struct Counter<'a> {
    handle: &'a Handle,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle }
    }

    /// The remaining count or the number of free permits, and how many permits are held.
    pub(crate) fn ask(&self) -> Result<(i64, i64)> {
        let name = self.handle.usable()?;
        self.handle
            .client
            .store
            .counts()
            .and_then(|counts| counts.counted(name))
            .map_err(|e| e.for_name(&name.name))
    }

    /// Sets the count, unless it was set before: then the answer has the existing count. The
    /// smallest count that may be set is `least`, which is 0 or 1.
    pub(crate) fn set_from(&self, least: u32, count: u32) -> Result<CountAnswer> {
        check_count(count.max(1 - least), MOST_PERMITS)
            .map_err(|e| e.for_name(self.handle.name()))?;
        self.change(Count::Set(count))
    }

    /// Adds permits, or removes them. Returns how many are free.
    pub(crate) fn add(&self, permits: i64) -> Result<i64> {
        let name = self.handle.usable()?;
        if permits == 0 || permits.unsigned_abs() > u64::from(MOST_PERMITS) {
            let why =
                format!("{permits} is out of range: add or remove between 1 and 2^31 - 1 permits");
            return Err(Error::named(ErrorKind::InvalidInput, &name.name, why));
        }
        self.change(Count::Add(permits)).map(|answer| answer.value)
    }

    /// Changes the count once, however often the request is repeated: all repeats carry one
    /// idempotency key.
    ///
    /// # Errors
    /// When the request fails. If it was sent before the failure, the count may have changed.
    pub(crate) fn change(&self, change: Count) -> Result<CountAnswer> {
        let client = &self.handle.client;
        let name = self.handle.usable()?;
        let _call = client.life.count_call();
        client.life.ensure_open().map_err(|e| e.for_name(&name.name))?;
        let counts = client.store.counts().map_err(|e| e.for_name(&name.name))?;
        let ask = |id: &str, unknowns: &mut _| counts.count(name, change, id, unknowns);
        let answer = repeat(client, name, ask).map_err(|e| e.for_name(&name.name))?;
        // Wakes the waiters of this client before the message arrives.
        client.local_queues.notify(&name.key);
        Ok(answer)
    }
}

/// How often permits are asked for that others have just taken.
const DRAINS: u32 = 10;

/// Takes all permits that are free, `most` at most. Also asks for one if none is free: if nobody
/// has set the permits, the answer is an error.
pub(crate) fn drain<G>(
    most: u32,
    free: impl Fn() -> Result<i64>,
    take: impl Fn(u32) -> Result<Option<G>>,
) -> Result<Option<G>> {
    for _ in 0..DRAINS {
        let free = u32::try_from(free()?.max(0)).unwrap_or(most).min(most);
        let taken = match take(free.max(1)) {
            // Their number has been lowered since: there are fewer in all.
            Err(e) if e.kind() == ErrorKind::Conflict && free > 1 => continue,
            taken => taken?,
        };
        if taken.is_some() || free == 0 {
            return Ok(taken);
        }
    }
    Ok(None)
}

/// Stops a change of unknown outcome. It may have run, but must not run later, when the name may be
/// used for another count.
fn resolve(client: &Arc<ClientState>, name: &LockName, holder: Holder, unknowns: UnknownOutcomes) {
    if !unknowns.is_empty() {
        // This undoes nothing: it marks the idempotency key as used once no request with it can
        // still run.
        let name = Arc::new(name.of_kind(Kind::CountingSemaphore));
        let expires = client.clock.now().plus(IDEMPOTENCY_TTL);
        client.watchdog.undo(Undo::of_attempt(name, holder, 1, unknowns, expires));
    }
}

/// Sends a request that must not run twice, until it is answered: all repeats carry one idempotency
/// key.
pub(super) fn repeat<T>(
    client: &Arc<ClientState>,
    name: &LockName,
    ask: impl Fn(&str, &mut UnknownOutcomes) -> Result<T>,
) -> Result<T> {
    let id = client.who.id.fresh_holder();
    let mut unknowns = UnknownOutcomes::default();
    let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
    // Measured by the clock that counts suspended time, because the key expires at the store during
    // it.
    let first = client.clock.now();
    let patience = client.config.io_timeout * 2;
    loop {
        let error = match ask(id.as_str(), &mut unknowns) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let spent = client.clock.now().since(first);
        // A repeat after the idempotency key has expired could count twice.
        let may_repeat = spent < patience && spent + client.config.io_timeout * 2 < IDEMPOTENCY_TTL;
        let over = if unknowns.is_empty() || !error.kind().is_outage() || !may_repeat {
            Some(error)
        } else {
            client.life.is_closed().then(closed)
        };
        if let Some(error) = over {
            resolve(client, name, id, unknowns);
            return Err(error);
        }
        os::thread::sleep(pause.next());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_drain_asks_again_when_others_were_faster() {
        let (free, asked) = (Cell::new(7), Cell::new(0));
        let take = |permits| {
            asked.set(asked.get() + 1);
            // Others take permits before each request, until three are left.
            free.set((free.get() - 2).max(3));
            Ok((i64::from(permits) <= free.get()).then_some(permits))
        };
        assert_eq!(drain(5, || Ok(free.get()), take).unwrap(), Some(5), "five at most");
        assert_eq!(drain(5, || Ok(free.get()), take).unwrap(), Some(3));
        assert_eq!(asked.get(), 3);
    }

    /// Somebody lowers their number between the look and the request.
    #[test]
    fn a_drain_asks_again_when_there_are_fewer_in_all() {
        let all = Cell::new(10);
        let take = |permits| {
            let free = all.replace(4);
            let too_many = || Err(Error::new(ErrorKind::Conflict, "fewer than were asked for"));
            if i64::from(permits) > all.get() { too_many() } else { Ok(Some((permits, free))) }
        };
        assert_eq!(drain(9, || Ok(all.get()), take).unwrap(), Some((4, 4)));
        let never_set = |_| Err::<Option<()>, _>(Error::new(ErrorKind::Conflict, "not set"));
        assert_eq!(drain(9, || Ok(0), never_set).unwrap_err().kind(), ErrorKind::Conflict);
    }

    #[test]
    fn a_drain_ends() {
        let asked = Cell::new(0);
        let nothing = |_| {
            asked.set(asked.get() + 1);
            Ok(None::<()>)
        };
        assert!(drain(5, || Ok(3), nothing).unwrap().is_none());
        assert_eq!(asked.take(), DRAINS);
        assert!(drain(5, || Ok(-2), nothing).unwrap().is_none());
        assert_eq!(asked.take(), 1, "that of one permit");
    }
}
