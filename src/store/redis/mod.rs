//! Leases on one Redis server.

mod background;
mod capabilities;
pub(crate) mod keys;
mod kinds;
mod repeat;
pub(crate) mod script;
pub(crate) mod sentinel;
mod subscription;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use self::background::{Background, Resolution};
use self::keys::check_name;
use self::kinds::{Kinds, is_a_number, used_otherwise};
use self::repeat::{Answered, Repeater, add_unknown};
use self::script::{Family, WaiterTimeouts};
use self::subscription::PatternRights;
pub(crate) use self::subscription::subscribe_to;
use self::wire::{Connector, Failure, Pool, Replicas, Reply, Request, Target};
use crate::base::clock::Clock;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::LockName;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::store::{
    Acquire, Acquired, CountStore, FenceStore, HandedOver, HoldCounts, LockStatus, LockStore, MultiStore, QueueStore,
    Release, Released, Renewal, Renewed, Subscriber, SubscriptionSender, Undo, UnknownOutcomes,
};

/// Holds renewed by one run of the script: the server serves nobody else while a script runs.
const RENEW_CHUNK: usize = 200;
/// Undos resolved in one write.
const RESOLVE_CHUNK: usize = 200;

/// The settings of a client of one server.
#[derive(Debug, Clone)]
pub(crate) struct RedisSettings {
    pub(crate) connections: usize,
    /// How many replicas must acknowledge a grant or a renewal before it counts.
    pub(crate) replicas: Option<u32>,
    pub(crate) waiter_timeouts: WaiterTimeouts,
    /// The id of the client, which the channels of its fair waiters contain.
    pub(crate) client_id: String,
}

#[derive(Debug)]
pub(crate) struct RedisStore {
    requests: Repeater,
    background: Background,
    /// Where both connect to.
    master: Target,
    kinds: Kinds,
    clock: Arc<dyn Clock>,
    replicas: Option<Replicas>,
    waiter_timeouts: WaiterTimeouts,
    client_id: String,
    pattern_rights: Arc<PatternRights>,
}

impl RedisStore {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(crate) fn new(foreground: Connector, background: Connector, settings: RedisSettings) -> Self {
        let RedisSettings { connections, replicas, waiter_timeouts, client_id } = settings;
        let (clock, master) = (foreground.clock.clone(), foreground.endpoint.clone());
        // Less than both I/O timeouts, or the connection would be given up during the wait.
        let timeout = foreground.io_timeout.min(background.io_timeout) / 2;
        let replicas = replicas.map(|count| Replicas { count, millis: ceil_millis(timeout), grant: true });
        let (pool, background) = (Pool::new(foreground, connections), Background::new(background));
        let requests = Repeater::new(pool, clock.clone());
        let (kinds, pattern_rights) = (Kinds::default(), Arc::default());
        Self { requests, background, master, kinds, clock, replicas, waiter_timeouts, client_id, pattern_rights }
    }

    /// Connects once, which also checks the server and the user's rights.
    pub(crate) fn connect_now(&self) -> Result<()> {
        let connection = self.requests.pool.connect()?;
        self.requests.pool.adopt(connection);
        Ok(())
    }

    /// Releases what may have been granted without enough acknowledgements from replicas: the
    /// caller is told that it was not granted.
    fn take_back(&self, release: impl FnOnce() -> Result<()>) {
        if self.replicas.is_some()
            && let Err(e) = release()
        {
            log::debug!("a grant without enough replicas is undone in the background: {}", e.chain());
        }
    }

    /// Refuses a name that this client has used for another kind of number, unless the server no
    /// longer has it.
    fn check_use(&self, name: &LockName) -> Result<()> {
        let Some(other) = self.kinds.other_use(name) else { return Ok(()) };
        let there = self.requests.ask_repeatable(|| Request::plain(&["EXISTS", &name.key]))?.reply;
        if script::fail_on_error(there)? != Reply::Int(0) {
            return Err(used_otherwise(name, other));
        }
        self.kinds.forget(name);
        Ok(())
    }

    /// Remembers whether the number `exists` as the kind of this name.
    fn learn_use(&self, name: &LockName, exists: bool) {
        if exists { self.kinds.note(name) } else { self.kinds.forget(name) }
    }

    fn acquire_request(&self, acquire: &Acquire<'_>) -> Request {
        script::acquire(acquire, self.waiter_timeouts).acknowledged_by(self.replicas)
    }

    /// For holds of one family.
    fn renewal_request<'a>(&self, chunk: impl Iterator<Item = &'a Renewal> + Clone) -> Request {
        let family = chunk.clone().next().map_or(Family::Hash, |first| Family::of(first.name.kind));
        let replicas = self.replicas.map(|replicas| Replicas { grant: false, ..replicas });
        script::renew(family, chunk).acknowledged_by(replicas)
    }
}

impl LockStore for RedisStore {
    fn check(&self, name: &LockName) -> Result<()> {
        check_name(name)
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let is_a_number = is_a_number(acquire.name.kind);
        if is_a_number {
            self.check_use(acquire.name)?;
        }
        let answered = self.requests.ask(|| self.acquire_request(acquire), unknowns)?;
        let outcome = script::acquire_answer(answered.reply, answered.sent_at);
        if outcome.is_err() && acquire.held == 0 {
            let Acquire { name, holder, permits, .. } = *acquire;
            let release = Release { name, holder, permits, left: HoldCounts::NONE, granted: false };
            self.take_back(|| self.release(&release, unknowns).map(drop));
        }
        // Only an answer about the lock resolves the earlier attempts: after an error (a full
        // server, say) their effects remain.
        if let Ok(acquired) = &outcome {
            unknowns.clear();
            if is_a_number {
                self.learn_use(acquire.name, !matches!(acquired, Acquired::TooFew { permits: 0 }));
            }
        }
        outcome
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let Answered { reply, repeated, .. } = self.requests.ask(|| script::release(release), unknowns)?;
        // A release that leaves counts removes no holder: if the holder is missing, no earlier
        // attempt is the reason.
        let outcome = script::release_answer(reply)
            .map(|answer| or_freed_before(answer, repeated && release.left == HoldCounts::NONE));
        if outcome.is_ok() {
            unknowns.clear();
        }
        outcome
    }

    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        if self.replicas.is_some() {
            // A grant without enough replicas must be taken back by the call that requested it.
            return None;
        }
        let acquire = script::acquire(next, self.waiter_timeouts);
        let (first, second) = self.requests.pool.call_two(&script::release(release), &acquire)?;
        let mut next_unknowns = UnknownOutcomes::default();
        let acquired = match second {
            Ok(answer) => script::acquire_answer(answer.reply, answer.sent_at),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, .. }) => {
                add_unknown(&mut next_unknowns, unknown);
                Err(error)
            }
        };
        let released = match first {
            Ok(answer) => script::release_answer(answer.reply),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, stale }) => {
                add_unknown(unknowns, unknown);
                if stale { self.release(release, unknowns) } else { Err(error) }
            }
        };
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        // One script serves one family. The outcomes are put in the order of the batch.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|&at| Family::of(batch[at].name.kind));
        let families = order.chunk_by(|&a, &b| Family::of(batch[a].name.kind) == Family::of(batch[b].name.kind));
        let chunks: Vec<&[usize]> = families.flat_map(|family| family.chunks(RENEW_CHUNK)).collect();
        let requests: Vec<Request> =
            chunks.iter().map(|chunk| self.renewal_request(chunk.iter().map(|&at| &batch[at]))).collect();
        let mut outcomes: Vec<Option<Renewed>> = batch.iter().map(|_| None).collect();
        match self.background.exchange(&requests, &self.requests.pool) {
            Ok((replies, sent_at)) => {
                for (chunk, reply) in chunks.iter().zip(replies) {
                    put_outcomes(&mut outcomes, chunk, script::renew_answers(reply, sent_at));
                }
            }
            Err(error) => outcomes.fill_with(|| Some(Renewed::Failed(error.clone()))),
        }
        let missing = || Renewed::Failed(Error::new(ErrorKind::Protocol, "an answer to a renewal is missing"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let mut kept = Vec::new();
        // After the TTL of the idempotency key a repeat could return the permits twice.
        let asked_at = self.clock.now();
        let is_expired = |undo: &Undo| asked_at >= undo.expires && undo.permits_without_lease().is_some();
        let (expired, rest): (Vec<Undo>, Vec<Undo>) = undos.drain(..).partition(is_expired);
        *undos = rest;
        expired.iter().for_each(Undo::warn_of_a_leak);
        if undos.is_empty() {
            return;
        }
        let chunk: Vec<Undo> = undos.drain(..undos.len().min(RESOLVE_CHUNK)).collect();
        match self.background.resolve(&chunk) {
            Ok(done) => {
                for (mut undo, resolved) in chunk.into_iter().zip(done) {
                    match resolved {
                        Resolution::Done => continue,
                        // Refused, for lack of permission, say: from here on only its lease ends
                        // it.
                        Resolution::NothingUnderWay => undo.note_refusal(asked_at),
                        Resolution::MayHaveRun => undo.note_possible_run(asked_at),
                        Resolution::NotYet => {}
                    }
                    kept.push(undo);
                }
            }
            Err(error) => {
                let count = chunk.len() + undos.len();
                log::debug!("{count} unknown outcomes cannot be resolved yet: {}", error.chain());
                kept.extend(chunk);
            }
        }
        // The undos that failed go behind the others.
        undos.append(&mut kept);
        let now = self.clock.now();
        // Past `expires` a lease has ended by itself, unless an outcome is unknown: the request may
        // still lie in the buffer of a suspended server, for any time. Permits without leases are
        // given up above.
        let goes_on = |undo: &Undo| !undo.unknowns.is_empty() || undo.permits_without_lease().is_some();
        undos.retain(|undo| goes_on(undo) || now < undo.expires);
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let Answered { reply, sent_at, .. } = self.requests.ask_repeatable(|| self.renewal_request(renewals.iter()))?;
        let answers = script::renew_answers(reply, sent_at)?;
        if answers.len() != renewals.len() {
            return Err(Error::new(ErrorKind::Protocol, "an answer to a renewal is missing"));
        }
        Ok(answers)
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        script::inspect_answer(self.requests.ask_repeatable(|| script::inspect(name))?.reply)
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        match self.requests.pool.call(script::force_unlock(name)) {
            Ok(answer) => script::force_unlock_answer(answer.reply),
            Err(Failure::NotSent(error) | Failure::Unknown { error, .. }) => Err(error),
        }
    }

    fn subscribe(&self, read_timeout: Duration) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        let connection = self.background.subscribe(read_timeout)?;
        Ok(subscribe_to(connection, &self.client_id, self.pattern_rights.clone()))
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let (reached, last_error) = self.requests.pool.reached();
        // Without a connection and without a failure, it has not been asked yet.
        let state = if reached || last_error.is_none() { NodeState::Voting } else { NodeState::Down };
        vec![NodeStatus { address: self.requests.pool.address(), state, latency: None, last_error }]
    }

    fn multi(&self) -> Result<&dyn MultiStore> {
        Ok(self)
    }

    fn queue(&self) -> Result<&dyn QueueStore> {
        Ok(self)
    }

    fn counts(&self) -> Result<&dyn CountStore> {
        Ok(self)
    }

    fn fence(&self) -> Result<&dyn FenceStore> {
        Ok(self)
    }

    fn close(&self) {
        self.requests.pool.close();
        self.background.close();
        self.master.close();
    }
}

/// `repeated`: an earlier attempt of the same release may have run on the data that answered now.
fn or_freed_before(answer: Released, repeated: bool) -> Released {
    match answer {
        // The attempt whose reply was lost has freed it. Not so after a restart: then the hold may
        // have been lost with the data, and a false alarm is better than none.
        Released::NotHeld if repeated => Released::Freed { listeners: None, next: None },
        answer => answer,
    }
}

fn put_outcomes(outcomes: &mut [Option<Renewed>], places: &[usize], answers: Result<Vec<Renewed>>) {
    match answers {
        Ok(answers) => places.iter().zip(answers).for_each(|(&at, answer)| outcomes[at] = Some(answer)),
        Err(error) => places.iter().for_each(|&at| outcomes[at] = Some(Renewed::Failed(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::FakeClock;
    use crate::base::limits::TAKEN_TTL;
    use crate::base::lock_name::Kind;
    use crate::store::REPEATED;
    use crate::store::redis::wire::Endpoint;

    /// A store whose server does not exist.
    fn unreachable_store(clock: &Arc<FakeClock>) -> RedisStore {
        let clock: Arc<dyn Clock> = clock.clone();
        let connector = Connector {
            endpoint: Endpoint::parse("redis+unix:///nonexistent/s", None).unwrap().into(),
            client_name: "t".to_owned(),
            handshake: script::handshake(""),
            io_timeout: Duration::from_millis(100),
            clock,
            memory_seen: Arc::default(),
        };
        let ms = Duration::from_millis;
        let settings = RedisSettings {
            connections: 1,
            replicas: None,
            waiter_timeouts: WaiterTimeouts { own: ms(5000), redisson: ms(300_000) },
            client_id: "c".to_owned(),
        };
        RedisStore::new(connector.clone(), connector, settings)
    }

    fn permits_to_give_back(clock: &FakeClock) -> Undo {
        let name = Arc::new(LockName::new("", "s", Kind::CountingSemaphore).unwrap());
        let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
        Undo::of_permits(name, holder, 3, UnknownOutcomes::default(), clock.now())
    }

    /// No lease returns them, so they are given up only when a repeat could count twice.
    #[test]
    fn permits_are_given_back_until_a_repeat_could_count_twice() {
        let clock = Arc::new(FakeClock::default());
        let store = unreachable_store(&clock);
        let mut undos = vec![permits_to_give_back(&clock)];
        clock.advance(Duration::from_secs(24 * 60 * 60));
        store.resolve(&mut undos);
        assert_eq!(undos.len(), 1, "no request for it has reached a server yet");

        undos[0].note_possible_run(clock.now());
        undos[0].note_refusal(clock.now());
        clock.advance(REPEATED - Duration::from_secs(1));
        // A later repeat does not start the time again.
        undos[0].note_possible_run(clock.now());
        store.resolve(&mut undos);
        assert_eq!(undos.len(), 1);
        assert!(undos[0].leak().unwrap().starts_with("3 permits of the counting semaphore \"s\""));
        clock.advance(Duration::from_secs(1));
        store.resolve(&mut undos);
        assert!(undos.is_empty());

        let mut undos = vec![permits_to_give_back(&clock)];
        undos[0].note_refusal(clock.now());
        clock.advance(TAKEN_TTL);
        store.resolve(&mut undos);
        assert!(undos.is_empty(), "refused for too long");
    }
}
