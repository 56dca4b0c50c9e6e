//! Leases in a PostgreSQL database: rows that end by the server's clock. Each request is one call
//! of a function in the database, which is one transaction and one round trip.

mod background;
mod blockers;
mod capabilities;
mod diagnosis;
mod jobs;
mod listing;
mod remembered;
mod requests;
mod server;
mod subscription;
pub(crate) mod url;
pub(crate) mod wire;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;

use self::background::Background;
use self::remembered::{Places, UsedMarks};
use self::requests::{AcquireContext, SWEEP, SWEEP_LOCKS, channel_of_client};
use self::server::{Server, are_untold, part};
use self::subscription::subscribe_to;
pub use self::wire::POSTGRES_SCHEMA;
use self::wire::{Answer, PostgresFailure, Request, Row, ServerError, Statement};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::base::log;
use crate::base::node_status::NodeStatus;
use crate::report::diagnosis::Finding;
use crate::signal::clock::Clock;
use crate::store::database::{DatabaseSettings, LOCKED, MAY_BE_FREE};
use crate::store::resolve::resolve_first;
use crate::store::{
    Acquire, Acquired, CountStore, DataStore, Diagnose, FenceStatements, FenceStore, HandedOver,
    HoldCounts, JobStore, ListingStore, LockStatus, LockStore, MultiStore, NO_RATES, OwnerStore,
    QueueStore, Release, Released, Renewal, Renewed, Subscriber, SubscriptionSender, Undo,
    UnknownOutcomes, has,
};

/// How often a client removes rows that nobody uses. It does so with its first hold if no client
/// has for as long: most programs live for less than this.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// When it continues after a full batch. Renewals are due in between.
const SWEEP_ON: Duration = Duration::from_secs(1);
/// How long a row must have been unused.
const AT_REST_SECONDS: u32 = 3600;
/// Maximum number of rows of each table that one sweep removes.
const SWEPT: u32 = 1000;

/// The settings of a client.
pub(crate) type PostgresSettings = DatabaseSettings<url::More, wire::Known>;

#[derive(Debug)]
pub(crate) struct PostgresStore {
    server: Server,
    background: Background,
    places: Places,
    used_marks: UsedMarks,
    clock: Arc<dyn Clock>,
    waiter_timeout: Duration,
    /// The channel of this client, for its waiters in queues.
    channel: String,
    /// When unused rows are removed next, and by which function.
    next_sweep: Mutex<(Moment, &'static Statement)>,
    /// When a session that locks rows is reported again.
    next_warning: Mutex<Moment>,
    /// Owners cannot be written or read in this database: see [`listing`].
    without_owners: AtomicBool,
}

impl PostgresStore {
    pub(crate) fn new(
        settings: &PostgresSettings,
        waiter_timeout: Duration,
        client_id: &str,
    ) -> Self {
        let clock = settings.hosts.clock.clone();
        Self {
            server: Server::new(settings.foreground(), settings.connections),
            background: Background::new(settings.background()),
            places: Places::default(),
            used_marks: UsedMarks::default(),
            waiter_timeout,
            channel: channel_of_client(client_id),
            without_owners: AtomicBool::new(false),
            next_sweep: Mutex::new((clock.now().plus(SWEEP_EVERY), &SWEEP)),
            next_warning: Mutex::new(clock.now()),
            clock,
        }
    }

    /// Connects once, which also checks the server and the role's rights, and installs the schema.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.server.connect_now()
    }

    fn acquire_request(&self, acquire: &Acquire<'_>) -> Request {
        let place = if acquire.name.kind.has_queue() { self.places.of(acquire.holder) } else { 0 };
        let used_marks = &*self.used_marks_for(acquire.name);
        let waiter = AcquireContext {
            timeout: self.waiter_timeout,
            place,
            channel: &self.channel,
            used_marks,
        };
        requests::acquire(acquire, &waiter)
    }

    fn release_request(
        &self,
        release: &Release<'_>,
        told: bool,
        now: impl FnOnce() -> Moment,
    ) -> Request {
        let place = if release.name.kind.has_queue() { self.places.of(release.holder) } else { 0 };
        requests::release(release, place, told, &self.used_marks_for(release.name), now)
    }

    /// The used marks that a request about this name takes along.
    fn used_marks_for(&self, name: &LockName) -> Vec<String> {
        if name.kind == Kind::CountingSemaphore { self.used_marks.take() } else { Vec::new() }
    }

    fn read_acquired(
        &self,
        acquire: &Acquire<'_>,
        answer: Answer,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Acquired> {
        let rows = match answer.rows {
            Ok(rows) => rows,
            // "Busy" would be a loss for who has the lock.
            Err(error) if acquire.held > 0 => {
                return Err(self.refused(&error, &[&acquire.name.key]));
            }
            // The effects of an earlier attempt are still unknown.
            Err(error) if error.is_lock_timeout() => {
                self.ensure_contended(&error, &[&acquire.name.key], acquire.goes_on)?;
                return Ok(Acquired::Busy { ttl: Some(LOCKED) });
            }
            Err(error) => return Err(error.to_error()),
        };
        let acquired = requests::acquire_answer(&rows, acquire, answer.sent_at)?;
        if acquire.name.kind.has_queue() {
            match acquired {
                Acquired::Busy { .. } => {
                    self.places.keep(acquire.holder, requests::place_of(&rows));
                }
                _ => self.places.forget(acquire.holder),
            }
        }
        // Only an answer about the lock resolves the earlier attempts: after an error (a full disk,
        // for example) their effects remain.
        unknowns.clear();
        Ok(acquired)
    }

    fn read_released(
        &self,
        release: &Release<'_>,
        answer: Answer,
        repeated: bool,
    ) -> Result<Released> {
        let rows = answer.rows.map_err(|e| self.refused(&e, &[&release.name.key]))?;
        let released = requests::release_answer(&rows, release, repeated)?;
        if release.name.kind.has_queue() && release.left == HoldCounts::NONE {
            self.places.forget(release.holder);
        }
        if release.name.kind == Kind::CountingSemaphore {
            self.used_marks.add(release.holder.as_str());
        }
        Ok(released)
    }

    /// Extends a hold whose row is locked at the moment, when that is over. Not over the connection
    /// for renewals: several threads would make several of those.
    fn extend_patiently(&self, one: &Renewal) -> Result<Renewed> {
        let answer = self.server.ask_freely(&requests::renew(std::iter::once(one), true))?;
        let rows = answer.rows.map_err(|e| self.refused(&e, &[&one.name.key]))?;
        let renewed = requests::renew_answers(&rows, 1, answer.sent_at)?.pop().flatten();
        renewed.ok_or_else(|| {
            Error::new(ErrorKind::NotReady, "another transaction has locked the row")
        })
    }

    fn tell(&self, name: &LockName) {
        self.tell_all(std::iter::once(name));
    }

    /// Notifies the waiters of other clients of locks that were freed without that. A transaction
    /// of its own: what commits synchronously notifies nobody itself, because while it waits for a
    /// standby nobody else on the server could.
    fn tell_all<'n>(&self, names: impl Iterator<Item = &'n LockName> + Clone) {
        let told = self.server.ask_freely(&requests::tell(names.clone()));
        if let Err(error) = told.and_then(|answer| answer.rows.map_err(|e| e.to_error())) {
            // They have their timers.
            let names: Vec<&str> = names.map(|name| &*name.name).collect();
            log::debug!("waiters for {names:?} were not notified: {}", error.chain());
        }
    }

    /// Removes one batch of rows by one of the two functions. Returns how long to wait for the next
    /// one, and which that is.
    fn sweep(&self, by: &'static Statement) -> (Duration, &'static Statement) {
        let request = Request::new(by).number(AT_REST_SECONDS).number(SWEPT);
        let swept = self
            .background
            .exchange_alone(&[request])
            .map_err(PostgresFailure::into_error)
            .and_then(|mut answers| answers.remove(0).rows.map_err(|error| error.to_error()));
        let answer = |rows: &[Row]| requests::text(rows.first()?, 0).map(str::to_owned);
        match swept.as_deref().map(answer) {
            // It was due, so the locks are, too. Not at once: a renewal may be due before.
            Ok(Some(_)) if by.id == SWEEP.id => (Duration::ZERO, &SWEEP_LOCKS),
            Ok(Some(more)) if more == "t" => (SWEEP_ON, &SWEEP),
            Ok(_) => (SWEEP_EVERY, &SWEEP),
            Err(error) => {
                log::debug!("could not remove unused rows: {}", error.chain());
                (SWEEP_EVERY, &SWEEP)
            }
        }
    }
}

impl LockStore for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgresql"
    }

    fn check(&self, name: &LockName) -> Result<()> {
        if name.kind == Kind::RateLimiter {
            return Err(Error::named(ErrorKind::Unsupported, &name.name, NO_RATES));
        }
        if name.key.contains('\0') {
            return Err(Error::named(
                ErrorKind::InvalidInput,
                &name.name,
                "a lock name must not contain a zero byte",
            ));
        }
        Ok(())
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let answer = self.server.ask(&self.acquire_request(acquire), unknowns)?;
        let is_untold = are_untold(unknowns);
        let acquired = self.read_acquired(acquire, answer, unknowns)?;
        if is_untold && !matches!(acquired, Acquired::Granted(_)) {
            self.tell(acquire.name);
        }
        Ok(acquired)
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        // One instant for all: whether it keeps the lock decides who notifies the waiters.
        let now = self.clock.now();
        let request = |told| self.release_request(release, told, || now);
        let mut answer = self.server.ask(&request(true), unknowns)?;
        if answer.rows.as_ref().is_err_and(ServerError::is_full_of_messages) {
            // Nobody can be notified; the waiters have their timers.
            answer = self.server.ask(&request(false), unknowns)?;
        }
        let repeated = !unknowns.is_empty();
        let released = self.read_released(release, answer, repeated)?;
        let waits_nobody =
            || !repeated && matches!(released, Released::Freed { listeners: Some(0), .. });
        if are_untold(unknowns) || requests::is_told_apart(release, || now) && !waits_nobody() {
            self.tell(release.name);
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
        // Nobody else is notified: if another client gets in between, its own release notifies
        // them. Of a queue the first waiter is, which may be another client's.
        let first =
            self.release_request(release, release.name.kind.has_queue(), || self.clock.now());
        let second = self.acquire_request(next);
        let [first, second] = self.server.pool.ask_two(&first, &second)?;
        let is_full =
            |answer: &Answer| answer.rows.as_ref().is_err_and(ServerError::is_full_of_messages);
        let released = part(first, unknowns).and_then(|answer| match answer {
            Some(answer) if !is_full(&answer) => self.read_released(release, answer, false),
            _ => self.release(release, unknowns),
        });
        let mut next_unknowns = UnknownOutcomes::default();
        let acquired = part(second, &mut next_unknowns).and_then(|answer| match answer {
            Some(answer) => self.read_acquired(next, answer, &mut next_unknowns),
            None => self.acquire(next, &mut next_unknowns),
        });
        // Only the first part has run, and the next thread may give up now. While its part is
        // unknown, whoever repeats or undoes that notifies them.
        if matches!(released, Ok(Released::Freed { .. }))
            && !matches!(acquired, Ok(Acquired::Granted(_)))
            && next_unknowns.is_empty()
        {
            self.tell(release.name);
        }
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.background.renew(batch, &self.server.pool)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        resolve_first(undos, &*self.clock, |chunk| {
            let resolved = self.background.resolve(chunk, |undo| self.places.of(&undo.holder))?;
            for (undo, resolution) in chunk.iter().zip(&resolved) {
                if matches!(resolution, crate::store::resolve::Resolution::Done) {
                    self.places.forget(&undo.holder);
                }
            }
            Ok(resolved)
        });
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut outcomes = Vec::with_capacity(renewals.len());
        let mut failed: Option<Error> = None;
        let answer = self.server.ask_freely(&requests::renew(renewals.iter(), false))?;
        let keys = || renewals.iter().map(|one| &*one.name.key).collect::<Vec<_>>();
        let rows = answer.rows.map_err(|e| self.refused(&e, &keys()))?;
        for (renewed, one) in requests::renew_answers(&rows, renewals.len(), answer.sent_at)?
            .into_iter()
            .zip(renewals)
        {
            // Its row is locked at the moment, usually by a client that asks for the lock. After
            // one that stays locked no other is waited for.
            let patiently = || failed.clone().map_or_else(|| self.extend_patiently(one), Err);
            let renewed = renewed.map_or_else(patiently, Ok);
            outcomes.push(
                renewed.unwrap_or_else(|error| Renewed::Failed(failed.insert(error).clone())),
            );
        }
        Ok(outcomes)
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        let answer = self.server.ask_freely(&requests::inspect(name))?;
        requests::inspect_answer(&answer.rows.map_err(|e| e.to_error())?)
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        let answer = self.server.ask_once(&requests::force(name), MAY_BE_FREE)?;
        let was_held =
            requests::force_answer(&answer.rows.map_err(|e| self.refused(&e, &[&name.key]))?)?;
        if was_held {
            self.tell(name);
        }
        Ok(was_held)
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        Ok(subscribe_to(self.background.connector.listen(read_timeout)?, &self.channel))
    }

    fn counts_own_listener(&self) -> bool {
        false
    }

    fn maintain(&self) -> Option<Moment> {
        let now = self.clock.now();
        let mut next = self.next_sweep.lock();
        let (at, by) = *next;
        if now < at && !self.background.connector.takes_due_sweep() {
            return Some(at);
        }
        // While the time of the next sweep is unknown, no other thread begins one.
        *next = (now.plus(SWEEP_EVERY), &SWEEP);
        drop(next);
        let (pause, by) = self.sweep(by);
        let at = now.plus(pause);
        *self.next_sweep.lock() = (at, by);
        Some(at)
    }

    fn moves(&self) -> u64 {
        self.background.connector.moves()
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        vec![self.server.pool.status(false)]
    }

    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        self.examine_hosts(asked)
    }

    has! {
        multi: MultiStore, queue: QueueStore, counts: CountStore, data: DataStore,
        jobs: JobStore
    }

    fn fence(&self) -> Result<&dyn FenceStore> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "fenced values are kept in Redis; in PostgreSQL the transaction itself is fenced",
        ))
    }

    fn fence_statements(&self, _name: &LockName) -> Result<FenceStatements> {
        Ok(requests::FENCE)
    }

    fn listing(&self) -> &dyn ListingStore {
        self
    }

    fn owners(&self) -> Option<&dyn OwnerStore> {
        Some(self)
    }

    fn close(&self) {
        self.server.pool.close();
        self.background.close();
    }
}
