//! Leases on one Redis server, the master that sentinels name, or a cluster.

mod background;
mod capabilities;
mod cluster;
mod diagnosis;
#[cfg(test)]
mod fuzz_tests;
mod jobs;
pub(crate) mod keys;
mod kinds;
pub(crate) mod listing;
mod multi;
mod owners;
mod renewals;
pub(crate) mod script;
pub(crate) mod sentinel;
mod server;
mod servers;
mod subscription;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::diagnosis::{Part, Subject, examine_all};
use self::keys::{RedisKeys, check_name, check_name_in_cluster};
use self::kinds::{Kinds, used_otherwise};
pub(crate) use self::owners::{announce, clients, clients_answer, is_written, texts, withdraw};
use self::script::WaiterTimeouts;
use self::server::Server;
use self::servers::Servers;
pub(crate) use self::subscription::{PatternRights, subscribe_to};
#[cfg(feature = "redlock")]
pub(crate) use self::subscription::{Several, subscribe_to_several};
use self::wire::{Answer, Connector, RedisFailure, Replicas, Reply, Request};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, Result};
use crate::base::lock_name::LockName;
use crate::base::node_status::NodeStatus;
use crate::os::atomic::AtomicBool;
use crate::report::diagnosis::Finding;
use crate::signal::clock::Clock;
use crate::store::resolve::{Resolution, resolve_first};
use crate::store::{
    Acquire, Acquired, CountStore, DataStore, Diagnose, FenceStore, HandedOver, HoldCounts,
    JobStore, ListingStore, LockStatus, LockStore, MultiStore, OwnerStore, QueueStore, RateStore,
    Release, Released, Renewal, Renewed, Spent, Subscriber, SubscriptionSender, Undo,
    UnknownOutcomes, has,
};

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
    servers: Servers,
    kinds: Kinds,
    clock: Arc<dyn Clock>,
    replicas: Option<Replicas>,
    waiter_timeouts: WaiterTimeouts,
    client_id: String,
    pattern_rights: Arc<PatternRights>,
    /// Whether the user may not write the index of clients.
    without_index: AtomicBool,
}

impl RedisStore {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(crate) fn new(
        foreground: Connector,
        background: Connector,
        settings: RedisSettings,
    ) -> Self {
        Self::build(foreground, background, None, settings)
    }

    /// A store over the primaries of a cluster, which are found by asking the nodes in `seeds`.
    pub(crate) fn of_cluster(
        seeds: &[Connector],
        background: Connector,
        settings: RedisSettings,
    ) -> Self {
        Self::build(seeds[0].clone(), background, Some(seeds), settings)
    }

    fn build(
        foreground: Connector,
        background: Connector,
        seeds: Option<&[Connector]>,
        settings: RedisSettings,
    ) -> Self {
        let RedisSettings { connections, replicas, waiter_timeouts, client_id } = settings;
        let clock = foreground.clock.clone();
        // Less than both I/O timeouts, because otherwise the connection would be given up during
        // the wait.
        let timeout = foreground.io_timeout.min(background.io_timeout) / 2;
        let replicas =
            replicas.map(|count| Replicas { count, millis: ceil_millis(timeout), grant: true });
        let servers = match seeds {
            None => Servers::one(foreground, background, connections),
            Some(seeds) => Servers::cluster(foreground, background, seeds, connections),
        };
        let (kinds, pattern_rights, without_index) =
            (Kinds::default(), Arc::default(), AtomicBool::new(false));
        Self {
            servers,
            kinds,
            clock,
            replicas,
            waiter_timeouts,
            client_id,
            pattern_rights,
            without_index,
        }
    }

    /// Connects once, which also checks the server and the user's rights.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.servers.connect_now()
    }

    /// Called after an error: the lock may have been granted without enough acknowledgements from
    /// replicas, and such a grant does not count.
    fn spend(&self, unknowns: &mut UnknownOutcomes) {
        if self.replicas.is_some() {
            unknowns.spend(Spent::Unreleased);
        }
    }

    /// Refuses a name that this client has used for another kind of number, unless the server no
    /// longer has that number.
    fn check_use(&self, name: &LockName) -> Result<()> {
        let Some(other) = self.kinds.other_use(name) else { return Ok(()) };
        let there = self
            .servers
            .ask_repeatable(RedisKeys::of(name).slot, || Request::plain(&["EXISTS", &name.key]))?
            .reply;
        if script::fail_on_error(there)? != Reply::Int(0) {
            return Err(used_otherwise(name, other));
        }
        self.kinds.forget(name);
        Ok(())
    }

    /// Records whether the number `exists` as the kind of this name.
    fn learn_use(&self, name: &LockName, exists: bool) {
        if exists { self.kinds.note(name) } else { self.kinds.forget(name) }
    }

    fn resolve_chunk(&self, chunk: &[Undo]) -> Result<Vec<Resolution>> {
        if let Some(cluster) = self.servers.as_cluster() {
            let undos: Vec<_> =
                chunk.iter().map(|undo| (RedisKeys::of(&undo.name).slot, undo.clone())).collect();
            return Ok(cluster.resolve_all(&undos).into_iter().map(Into::into).collect());
        }
        let resolved =
            self.servers.as_one().expect("there is no third kind").background.resolve(chunk)?;
        Ok(resolved.into_iter().map(Into::into).collect())
    }
}

impl LockStore for RedisStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn check(&self, name: &LockName) -> Result<()> {
        if self.servers.as_cluster().is_some() {
            check_name_in_cluster(name)
        } else {
            check_name(name)
        }
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let is_a_number = acquire.name.kind.is_number();
        if is_a_number {
            self.check_use(acquire.name)?;
        }
        let slot = RedisKeys::of(acquire.name).slot;
        let request =
            || script::acquire(acquire, self.waiter_timeouts).acknowledged_by(self.replicas);
        let answered = self.servers.ask(slot, request, unknowns)?;
        let mut outcome = script::acquire_answer(answered.reply, answered.sent_at);
        if let Ok(Acquired::Queued { is_new, .. }) = &mut outcome {
            // The attempt before may have queued it anew.
            *is_new |= answered.repeated;
        }
        if outcome.is_err() && acquire.held == 0 {
            self.spend(unknowns);
        }
        // Only an answer about the lock resolves the earlier attempts: after an error (a full
        // server, for example) their effects remain.
        if let Ok(acquired) = &outcome {
            unknowns.clear();
            if is_a_number {
                self.learn_use(acquire.name, !matches!(acquired, Acquired::TooFew { permits: 0 }));
            }
        }
        outcome
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let slot = RedisKeys::of(release.name).slot;
        let request = || script::release(release, || self.clock.now());
        let Answer { reply, repeated, .. } = self.servers.ask(slot, request, unknowns)?;
        let mut released = script::release_answer(reply)?;
        // A release that leaves counts removes no holder: if the holder is missing, an earlier
        // attempt cannot be the reason.
        if repeated && release.left == HoldCounts::NONE {
            released = or_freed_before(released);
        }
        unknowns.clear();
        Ok(released)
    }

    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        // A grant without enough replicas must be released by the call that requested it. The
        // release of a fair lock is a grant.
        if self.replicas.is_some() || next.name.kind.has_queue() {
            return None;
        }
        let released = script::release(release, || self.clock.now());
        let acquire = script::acquire(next, self.waiter_timeouts);
        let [first, second] =
            self.servers.call_two(RedisKeys::of(next.name).slot, released, acquire)?;
        // A redirected request is sent again: the release before the acquire. One that a node of a
        // cluster did not run goes to the node that has the slot now, as any release.
        let follows =
            |error: &Error| self.servers.as_cluster().is_some() && error.kind().is_outage();
        let released = match first {
            Ok(ref answer) if self.servers.is_redirected(&answer.reply, unknowns) => {
                self.release(release, unknowns)
            }
            Ok(answer) => match script::release_answer(answer.reply) {
                Err(error) if follows(&error) => self.release(release, unknowns),
                released => released,
            },
            Err(RedisFailure::NotSent(error)) if follows(&error) => self.release(release, unknowns),
            Err(RedisFailure::NotSent(error)) => Err(error),
            Err(RedisFailure::Unknown { error, unknown, ended }) => {
                unknowns.push(unknown);
                if ended { self.release(release, unknowns) } else { Err(error) }
            }
        };
        let mut next_unknowns = UnknownOutcomes::default();
        let acquired = match second {
            Ok(ref answer) if self.servers.is_redirected(&answer.reply, &mut next_unknowns) => {
                self.acquire(next, &mut next_unknowns)
            }
            Ok(answer) => script::acquire_answer(answer.reply, answer.sent_at),
            Err(RedisFailure::NotSent(error)) => Err(error),
            Err(RedisFailure::Unknown { error, unknown, .. }) => {
                next_unknowns.push(unknown);
                Err(error)
            }
        };
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }

    fn trusts_grants(&self) -> bool {
        self.replicas.is_none()
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.renew_in_background(batch)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        resolve_first(undos, &*self.clock, |chunk| self.resolve_chunk(chunk));
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.extend_now(renewals)
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        script::inspect_answer(
            self.servers.ask_repeatable(RedisKeys::of(name).slot, || script::inspect(name))?.reply,
        )
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        script::force_unlock_answer(
            self.servers.ask_once(RedisKeys::of(name).slot, || script::force_unlock(name))?,
        )
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        let Some(server) = self.servers.as_one() else {
            return self
                .servers
                .as_cluster()
                .expect("there is no third kind")
                .subscribe(read_timeout);
        };
        let connection = server.background.connector.subscribe(read_timeout)?;
        Ok(subscribe_to(connection, &self.client_id, self.pattern_rights.clone()))
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.servers.nodes()
    }

    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        self.examine_servers(asked)
    }

    has! {
        multi: MultiStore, queue: QueueStore, counts: CountStore, rates: RateStore,
        data: DataStore, jobs: JobStore, fence: FenceStore
    }

    fn moves(&self) -> u64 {
        self.servers.as_one().map_or(0, Server::moves)
    }

    fn listing(&self) -> &dyn ListingStore {
        self
    }

    fn owners(&self) -> Option<&dyn OwnerStore> {
        Some(self)
    }

    fn close(&self) {
        self.servers.close();
    }
}

/// For a release of which an earlier attempt may have run on the data that answered now.
fn or_freed_before(answer: Released) -> Released {
    match answer {
        // The attempt whose reply was lost has freed it. Not after a restart: then the hold may
        // have been lost with the data, and a false alarm is better than none.
        Released::NotHeld => Released::Freed { listeners: None, next: None },
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::TAKEN_TTL;
    use crate::base::lock_name::Kind;
    use crate::signal::clock::FakeClock;
    use crate::store::redis::wire::Endpoint;
    use crate::store::requests::REPEATED;

    /// A store whose server does not exist.
    fn unreachable_store(clock: &Arc<FakeClock>) -> RedisStore {
        let clock: Arc<dyn Clock> = clock.clone();
        let connector = Connector {
            endpoint: Endpoint::parse("redis+unix:///nonexistent/s").unwrap().into(),
            client_name: "t".to_owned(),
            handshake: script::handshake(""),
            io_timeout: Duration::from_millis(100),
            clock,
            busy_poll: true,
            memory_seen: Arc::default(),
            introduced: Arc::default(),
            cluster: None,
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
        // A later repeat does not restart the time.
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
