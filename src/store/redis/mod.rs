//! Leases on one Redis server.

mod background;
mod kinds;
pub(crate) mod script;
pub(crate) mod wire;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use self::background::{Background, Resolution};
use self::kinds::{Kinds, is_a_number, used_otherwise};
use self::script::{AcquireAllAnswer, AcquireAnswer, Family, FenceAnswer, LockStatus, ReleaseAnswer, RenewAnswer};
use self::wire::{Connector, Failure, Pool, Replicas, Reply, Request, Subscriber, SubscriptionSender};
use super::{
    Acquire, AcquireAll, Acquired, AcquiredAll, Count, CountAnswer, HandedOver, HoldCounts, LeaseStore, Leaving,
    NodeState, NodeStatus, Part, Released, Renewal, Renewed, Undo, UnknownOutcomes,
};
use crate::base::clock::Clock;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::key::{Kind, LockKeys};
use crate::base::lease::Moment;
use crate::base::limits::ONCE;

/// Holds renewed by one run of the script: a script keeps the server from everybody else while it runs.
const RENEW_CHUNK: usize = 200;
/// Undos resolved in one write.
const RESOLVE_CHUNK: usize = 200;

#[derive(Debug)]
pub(crate) struct RedisStore {
    pool: Pool,
    background: Background,
    kinds: Kinds,
    clock: Arc<dyn Clock>,
    /// Who must have what a grant or a renewal wrote before it counts.
    replicas: Option<Replicas>,
}

impl RedisStore {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(crate) fn new(foreground: Connector, connections: usize, background: Connector, replicas: Option<u32>) -> Self {
        let clock = foreground.clock.clone();
        // Within the I/O timeout, also of a renewal, or the connection would be given up meanwhile.
        let patience = foreground.io_timeout.min(background.io_timeout) / 2;
        let replicas = replicas.map(|count| Replicas { count, millis: ceil_millis(patience), grant: true });
        let (pool, background) = (Pool::new(foreground, connections), Background::new(background));
        Self { pool, background, kinds: Kinds::default(), clock, replicas }
    }

    /// Granted, perhaps, and fewer replicas have it than must, or nobody knows how many: to whoever asked, it is not granted.
    fn take_back(&self, release: impl FnOnce() -> Result<()>) {
        if self.replicas.is_some()
            && let Err(e) = release()
        {
            log::debug!("what too few replicas have is taken back in the background: {}", e.chain());
        }
    }

    /// Whether this client knows the name as another kind of number. Asked of the server as well before anybody is refused: it
    /// may be over by now.
    fn check_number(&self, keys: &LockKeys) -> Result<()> {
        let Some(other) = self.kinds.other_use(keys) else { return Ok(()) };
        let there = self.ask_freely(keys, || Request::plain(&["EXISTS", &keys.lock]))?.reply;
        if script::fail_on_error(there)? != Reply::Int(0) {
            return Err(used_otherwise(keys, other));
        }
        self.kinds.forget(keys);
        Ok(())
    }

    /// What an answer shows of a number: it `stands` as what it was taken for, or not (any more).
    fn learn_number(&self, keys: &LockKeys, stands: bool) {
        if stands { self.kinds.note(keys) } else { self.kinds.forget(keys) }
    }

    /// Connects once, which also checks the server and what the user may do there.
    pub(crate) fn check(&self) -> Result<()> {
        let connection = self.pool.connect()?;
        self.pool.adopt(connection);
        Ok(())
    }

    /// The connections that serve a key. One server has one pool; a cluster will choose by slot.
    fn pool_of(&self, _keys: &LockKeys) -> &Pool {
        &self.pool
    }

    /// One repeatable request. Without unknown outcomes it goes through the pool; with unknown outcomes it follows their settlement on a
    /// connection of its own, so that nothing in unknown outcome can run after it.
    fn ask(&self, keys: &LockKeys, request: impl Fn() -> Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        self.ask_through(self.pool_of(keys), request, unknowns)
    }

    fn ask_through(
        &self,
        pool: &Pool,
        request: impl Fn() -> Request,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Answered> {
        if unknowns.is_empty() {
            let asked_at = self.clock.now();
            match pool.call(request()) {
                Ok(answer) => return Ok(Answered { reply: answer.reply, sent_at: answer.sent_at, repeated: false }),
                Err(Failure::NotSent(error)) => return Err(error),
                Err(Failure::Unknown { error, unknown, stale }) => {
                    unknowns.push(unknown);
                    // Long ago (the machine slept): what keeps a repeat from counting twice may be forgotten.
                    if !stale || self.clock.now().since(asked_at) > ONCE / 2 {
                        return Err(error);
                    }
                    // The connection had ended in its sleep (a restart, an idle timeout of the server): that says
                    // nothing about the server now, and the repeat below cannot meet the first attempt.
                }
            }
        }
        self.ask_again(pool, request(), unknowns)
    }

    fn ask_again(&self, pool: &Pool, request: Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        let mut connection = pool.connect()?;
        if let Err(wait) = connection.kills_for(unknowns.iter()) {
            // After an I/O timeout the earlier attempt is refused by its not-after; it is longer only if the server's clock
            // was stepped back, and for that no caller waits.
            std::thread::sleep(wait.min(pool.io_timeout()));
        }
        let mut requests = connection.kills_for(unknowns.iter()).map_err(not_yet)?;
        let kills = requests.len();
        requests.push(request);
        let repeated = unknowns.iter().any(|unknown| connection.may_have_run(unknown));
        match connection.exchange(&requests) {
            Ok((mut replies, flight)) => {
                let reply = replies.pop().expect("a reply for every request");
                pool.adopt(connection);
                // With a kill refused, what is in unknown outcome can still run: as if this attempt had not been answered.
                for kill in replies.into_iter().take(kills) {
                    script::fail_on_error(kill)?;
                }
                Ok(Answered { reply, sent_at: flight.sent_at, repeated })
            }
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, .. }) => {
                unknowns.push(unknown);
                Err(error)
            }
        }
    }

    /// Of holds of one family.
    fn renewal_request<'a>(&self, chunk: impl Iterator<Item = &'a Renewal> + Clone) -> Request {
        let family = chunk.clone().next().map_or(Family::Hash, |first| Family::of(first.keys.kind));
        let replicas = self.replicas.map(|replicas| Replicas { grant: false, ..replicas });
        script::renew(family, chunk.map(|r| (&*r.keys, &r.holder, r.lease))).acknowledged_by(replicas)
    }

    /// What changes nothing that a later run of it would spoil: no unknown outcome has to be remembered.
    fn ask_freely(&self, keys: &LockKeys, request: impl Fn() -> Request) -> Result<Answered> {
        self.ask(keys, request, &mut UnknownOutcomes::default())
    }
}

struct Answered {
    reply: Reply,
    sent_at: Moment,
    /// An earlier attempt may have run as well, on the data that answered now.
    repeated: bool,
}

/// An earlier attempt may still run at the server, and we may not kill its connection.
#[cold]
fn not_yet(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("an earlier attempt can still reach the server for {wait:?}, and CLIENT KILL is not permitted"),
    )
}

impl LeaseStore for RedisStore {
    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let is_a_number = is_a_number(acquire.keys.kind);
        if is_a_number {
            self.check_number(acquire.keys)?;
        }
        let request = || script::acquire(acquire).acknowledged_by(self.replicas);
        let answered = self.ask(acquire.keys, request, unknowns)?;
        let outcome = acquired(answered.reply, answered.sent_at);
        if outcome.is_err() && acquire.held == 0 {
            self.take_back(|| self.release(acquire.keys, acquire.holder, HoldCounts::NONE, unknowns).map(drop));
        }
        // Only an answer about the lock settles the earlier attempts: with an error (a full server, say) what they did
        // still stands.
        if let Ok(acquired) = &outcome {
            unknowns.clear();
            if is_a_number {
                self.learn_number(acquire.keys, !matches!(acquired, Acquired::TooFew { permits: 0 }));
            }
        }
        outcome
    }

    fn release(
        &self,
        keys: &LockKeys,
        holder: &Holder,
        left: HoldCounts,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        let Answered { reply, repeated, .. } = self.ask(keys, || script::release(keys, holder, left), unknowns)?;
        // Inner levels leave the holder where it is: if it is not there, no earlier attempt took it.
        let outcome = released(reply, repeated && left == HoldCounts::NONE);
        if outcome.is_ok() {
            unknowns.clear();
        }
        outcome
    }

    fn acquire_all(&self, acquire: &AcquireAll<'_>, unknowns: &mut UnknownOutcomes) -> Result<AcquiredAll> {
        let keys = acquire.parts.first().ok_or_else(nothing_asked)?.keys;
        let asked = Cell::new(!unknowns.is_empty());
        let request = || script::acquire_all(acquire, asked.replace(true)).acknowledged_by(self.replicas);
        let Answered { reply, sent_at, .. } = self.ask(keys, request, unknowns)?;
        let answer = script::acquire_all_answer(reply, acquire.parts.len()).inspect_err(|_| {
            let fresh = acquire.parts.iter().filter(|part| part.held == 0);
            let fresh = fresh.map(|Part { keys, holder, .. }| Leaving { keys, holder, left: HoldCounts::NONE });
            self.take_back(|| self.release_all(&fresh.collect::<Vec<_>>(), unknowns).map(drop));
        });
        let outcome = match answer? {
            AcquireAllAnswer::Granted { tokens } => AcquiredAll::Granted { tokens, sent_at },
            AcquireAllAnswer::Busy { at, ttl } => AcquiredAll::Busy { at, ttl },
            AcquireAllAnswer::Gone { at } => AcquiredAll::Gone { at },
            AcquireAllAnswer::TooLate => return Err(too_late()),
            AcquireAllAnswer::WrongType { at } => {
                let why = "something that is no plain lock stands under this name";
                return Err(Error::named(ErrorKind::WrongType, &acquire.parts[at].keys.name, why));
            }
        };
        // Not before: with an error, what the earlier attempts did still stands.
        unknowns.clear();
        Ok(outcome)
    }

    fn release_all(&self, leaving: &[Leaving<'_>], unknowns: &mut UnknownOutcomes) -> Result<Vec<Result<Released>>> {
        let keys = leaving.first().ok_or_else(nothing_asked)?.keys;
        let Answered { reply, repeated, .. } = self.ask(keys, || script::release_all(leaving), unknowns)?;
        let answers = script::release_all_answer(reply, leaving.len())?;
        unknowns.clear();
        let outcome = |(answer, one): (Result<ReleaseAnswer>, &Leaving<'_>)| {
            answer.map(|answer| left(answer, repeated && one.left == HoldCounts::NONE))
        };
        Ok(answers.into_iter().zip(leaving).map(outcome).collect())
    }

    fn hand_over(
        &self,
        keys: &LockKeys,
        holder: &Holder,
        unknowns: &mut UnknownOutcomes,
        next: &Acquire<'_>,
    ) -> Option<HandedOver> {
        if self.replicas.is_some() {
            // A grant that has to be taken back is the business of whoever asked for it.
            return None;
        }
        let release = script::release(keys, holder, HoldCounts::NONE);
        let acquire = script::acquire(next);
        let (first, second) = self.pool_of(keys).call_two(&release, &acquire)?;
        let mut next_unknowns = UnknownOutcomes::default();
        let acquired = match second {
            Ok(answer) => acquired(answer.reply, answer.sent_at),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, .. }) => {
                next_unknowns.push(unknown);
                Err(error)
            }
        };
        let released = match first {
            Ok(answer) => released(answer.reply, false),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, stale }) => {
                unknowns.push(unknown);
                if stale { self.release(keys, holder, HoldCounts::NONE, unknowns) } else { Err(error) }
            }
        };
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        // One script serves one family; the outcomes go back to where their holds stand in the batch.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|&at| Family::of(batch[at].keys.kind));
        let families = order.chunk_by(|&a, &b| Family::of(batch[a].keys.kind) == Family::of(batch[b].keys.kind));
        let chunks: Vec<&[usize]> = families.flat_map(|family| family.chunks(RENEW_CHUNK)).collect();
        let requests: Vec<Request> =
            chunks.iter().map(|chunk| self.renewal_request(chunk.iter().map(|&at| &batch[at]))).collect();
        let mut outcomes: Vec<Option<Renewed>> = batch.iter().map(|_| None).collect();
        match self.background.exchange(&requests, &self.pool) {
            Ok((replies, sent_at)) => {
                for (chunk, reply) in chunks.iter().zip(replies) {
                    put_outcomes(&mut outcomes, chunk, script::renew_answers(reply), sent_at);
                }
            }
            Err(error) => outcomes.fill_with(|| Some(Renewed::Failed(error.clone()))),
        }
        let missing = || Renewed::Failed(Error::new(ErrorKind::Protocol, "an answer to a renewal is missing"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let mut kept = Vec::new();
        // A permit given back once its mark may be gone would be given back twice.
        let asked_at = self.clock.now();
        let (over, going_on) = undos.drain(..).partition(|undo| asked_at >= undo.expires && undo.permits().is_some());
        *undos = going_on;
        let over: Vec<Undo> = over;
        over.iter().for_each(Undo::warn_of_a_leak);
        if undos.is_empty() {
            return;
        }
        let chunk: Vec<Undo> = undos.drain(..undos.len().min(RESOLVE_CHUNK)).collect();
        match self.background.resolve(&chunk) {
            Ok(done) => {
                for (mut undo, resolved) in chunk.into_iter().zip(done) {
                    match resolved {
                        Resolution::Done => continue,
                        // Refused, for want of permission, say: from here on its lease ends it.
                        Resolution::NothingUnderWay => undo.was_refused(asked_at),
                        Resolution::MayHaveRun => undo.may_have_run(asked_at),
                        Resolution::NotYet => {}
                    }
                    kept.push(undo);
                }
            }
            Err(error) => {
                let count = chunk.len() + undos.len();
                log::debug!("{count} unknown outcomes cannot be settled yet: {}", error.chain());
                kept.extend(chunk);
            }
        }
        // What cannot be done yet goes behind the others.
        undos.append(&mut kept);
        let now = self.clock.now();
        // Without a unknown outcome the lease has ended by itself. With one, the request may still lie in the buffer of a
        // stalled server, however long that takes. Permits without leases are given up above.
        undos.retain(|undo| !undo.unknowns.is_empty() || undo.permits().is_some() || now < undo.expires);
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let keys = &renewals.first().ok_or_else(nothing_asked)?.keys;
        let Answered { reply, sent_at, .. } = self.ask_freely(keys, || self.renewal_request(renewals.iter()))?;
        let answers = script::renew_answers(reply)?;
        if answers.len() != renewals.len() {
            return Err(Error::new(ErrorKind::Protocol, "an answer to a renewal is missing"));
        }
        Ok(answers.into_iter().map(|answer| renewed(answer, sent_at)).collect())
    }

    fn inspect(&self, keys: &LockKeys) -> Result<Option<LockStatus>> {
        script::inspect_answer(self.ask_freely(keys, || script::inspect(keys))?.reply)
    }

    fn force_unlock(&self, keys: &LockKeys) -> Result<bool> {
        match self.pool_of(keys).call(script::force_unlock(keys)) {
            Ok(answer) => script::force_unlock_answer(answer.reply),
            Err(Failure::NotSent(error) | Failure::Unknown { error, .. }) => Err(error),
        }
    }

    fn queue(&self, keys: &LockKeys, client: &str) -> Result<(usize, Option<usize>)> {
        script::queue_answer(self.ask_freely(keys, || script::queue(keys, client))?.reply)
    }

    fn count(&self, keys: &LockKeys, change: Count, id: &str, unknowns: &mut UnknownOutcomes) -> Result<CountAnswer> {
        self.check_number(keys)?;
        let answer = script::count_answer(self.ask(keys, || script::count(keys, change, id), unknowns)?.reply);
        if let Ok(CountAnswer { value, .. }) = &answer {
            unknowns.clear();
            self.learn_number(keys, change != Count::Delete && (change != Count::Down || *value > 0));
        }
        answer
    }

    fn counted(&self, keys: &LockKeys) -> Result<(i64, i64)> {
        self.check_number(keys)?;
        let (left, more) = script::question_answer(self.ask_freely(keys, || script::count_question(keys))?.reply)?;
        self.learn_number(keys, keys.kind != Kind::Latch || left > 0);
        Ok((left, more))
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let (reached, last_error) = self.pool.reached();
        // Without a connection and without a failure nobody has asked it yet.
        let state = if reached || last_error.is_none() { NodeState::Voting } else { NodeState::Down };
        vec![NodeStatus { address: self.pool.address(), state, latency: None, last_error }]
    }

    fn listen(&self, read_timeout: Duration) -> Result<(Subscriber, SubscriptionSender)> {
        self.background.listen(read_timeout)
    }

    fn fence_claim(&self, key: &str, token: u64) -> Result<FenceAnswer> {
        let request = || script::fence_claim(key, token);
        script::fence_answer(self.ask_through(&self.pool, request, &mut UnknownOutcomes::default())?.reply)
    }

    fn fence_write(&self, key: &str, token: u64, value: &[u8], unknowns: &mut UnknownOutcomes) -> Result<FenceAnswer> {
        let request = || script::fence_write(key, token, value);
        let answer = script::fence_answer(self.ask_through(&self.pool, request, unknowns)?.reply);
        if answer.is_ok() {
            unknowns.clear();
        }
        answer
    }

    fn close(&self) {
        self.pool.close();
        self.background.close();
    }
}

fn acquired(reply: Reply, sent_at: Moment) -> Result<Acquired> {
    match script::acquire_answer(reply)? {
        AcquireAnswer::Granted { token, next } => Ok(Acquired::Granted { token, sent_at, next }),
        AcquireAnswer::Busy { ttl } => Ok(Acquired::Busy { ttl }),
        AcquireAnswer::Gone => Ok(Acquired::Gone),
        AcquireAnswer::TooFew { permits } => Ok(Acquired::TooFew { permits }),
        AcquireAnswer::TooLate => Err(too_late()),
    }
}

#[cold]
fn too_late() -> Error {
    Error::new(ErrorKind::Unreachable, "the request reached the server after the I/O timeout")
}

#[cold]
fn nothing_asked() -> Error {
    Error::new(ErrorKind::InvalidInput, "no lock was asked for")
}

fn released(reply: Reply, repeated: bool) -> Result<Released> {
    script::release_answer(reply).map(|answer| left(answer, repeated))
}

/// `repeated`: an earlier attempt of the same release may have run on the data that answered now.
fn left(answer: ReleaseAnswer, repeated: bool) -> Released {
    match answer {
        // The attempt whose reply was lost did it. After a restart one cannot say that: the hold may have been lost with
        // the data, and a false alarm is better than none.
        ReleaseAnswer::NotHeld if repeated => Released::Freed { listeners: 0, next: None },
        ReleaseAnswer::NotHeld => Released::NotHeld,
        ReleaseAnswer::StillHeld => Released::StillHeld,
        ReleaseAnswer::Freed { receivers, next } => Released::Freed { listeners: receivers, next },
    }
}

fn renewed(answer: RenewAnswer, sent_at: Moment) -> Renewed {
    match answer {
        RenewAnswer::Held { beside } => Renewed::Held { sent_at, again: false, beside },
        RenewAnswer::Gone => Renewed::Gone,
        RenewAnswer::Failed(error) => Renewed::Failed(error),
    }
}

fn put_outcomes(
    outcomes: &mut [Option<Renewed>],
    places: &[usize],
    answers: Result<Vec<RenewAnswer>>,
    sent_at: Moment,
) {
    match answers {
        Ok(answers) => {
            for (&at, answer) in places.iter().zip(answers) {
                outcomes[at] = Some(renewed(answer, sent_at));
            }
        }
        Err(error) => places.iter().for_each(|&at| outcomes[at] = Some(Renewed::Failed(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::FakeClock;
    use crate::base::limits::TAKEN;
    use crate::store::REPEATED;
    use crate::store::redis::wire::Endpoint;

    /// A store whose server is not there.
    fn unreachable_store(clock: &Arc<FakeClock>) -> RedisStore {
        let clock: Arc<dyn Clock> = clock.clone();
        let connector = Connector {
            endpoint: Endpoint::parse("redis+unix:///nonexistent/s").unwrap(),
            client_name: "t".to_owned(),
            key_prefix: String::new(),
            io_timeout: Duration::from_millis(100),
            clock,
            memory_seen: Arc::default(),
        };
        RedisStore::new(connector.clone(), 1, connector, None)
    }

    fn permits_to_give_back(clock: &FakeClock) -> Undo {
        let keys = Arc::new(LockKeys::new("", "s", Kind::Counting { permits: 3, taken: true }).unwrap());
        let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
        Undo::of_permits(keys, holder, UnknownOutcomes::default(), clock.now())
    }

    /// No lease brings them back, so only a repeat that could count twice is a reason to give them up.
    #[test]
    fn permits_are_given_back_until_a_repeat_could_count_twice() {
        let clock = Arc::new(FakeClock::default());
        let store = unreachable_store(&clock);
        let mut undos = vec![permits_to_give_back(&clock)];
        clock.advance(Duration::from_secs(24 * 60 * 60));
        store.resolve(&mut undos);
        assert_eq!(undos.len(), 1, "nothing of it has reached a server yet");

        undos[0].may_have_run(clock.now());
        undos[0].was_refused(clock.now());
        clock.advance(REPEATED - Duration::from_secs(1));
        // A later repeat does not begin anew.
        undos[0].may_have_run(clock.now());
        store.resolve(&mut undos);
        assert_eq!(undos.len(), 1);
        assert!(undos[0].leak().unwrap().starts_with("3 permits of the counting semaphore \"s\""));
        clock.advance(Duration::from_secs(1));
        store.resolve(&mut undos);
        assert!(undos.is_empty());

        let mut undos = vec![permits_to_give_back(&clock)];
        undos[0].was_refused(clock.now());
        clock.advance(TAKEN);
        store.resolve(&mut undos);
        assert!(undos.is_empty(), "refused for good");
    }
}
