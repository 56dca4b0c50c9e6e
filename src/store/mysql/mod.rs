//! Leases in a MySQL or MariaDB database: rows that end by the server's clock. Each request is one
//! query, whose statements are transactions of their own.
//!
//! The token of a hold is in the row of its lock, so that a grant is one UPDATE of one row: that is
//! half of what `SELECT .. FOR UPDATE` and one write cost, with two commits where that has one. A
//! fence must lock something that renewals do not write, so it has a row of its own, which a name
//! gets with its first fence ([`requests`]).

mod background;
mod counts;
mod diagnosis;
mod kinds;
mod listing;
mod multi;
mod requests;
mod server;
mod shares;
mod subscription;
pub(crate) mod url;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use self::background::Background;
use self::requests::{Step, Stepped};
use self::server::Server;
use self::subscription::subscribe_to;
use self::wire::Answer;
pub use self::wire::MYSQL_SCHEMA;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeStatus;
use crate::report::diagnosis::Finding;
use crate::signal::clock::Clock;
use crate::store::database::{DatabaseSettings, LOCKED, MAY_BE_FREE, another_kind};
use crate::store::resolve::resolve_first;
use crate::store::{
    Acquire, Acquired, CountStore, DataStore, Diagnose, FenceStatements, FenceStore, Found,
    HandedOver, JobStore, ListingStore, LockStatus, LockStore, MultiStore, OwnerStore, QueueStore,
    Release, Released, Renewal, Renewed, Subscriber, SubscriptionSender, Undo, UnknownOutcomes,
    Waiting, each_until_failure,
};

/// How many steps an acquire has at most: a row that is made, and others that come in between.
const STEPS: usize = 6;

/// The settings of a client.
pub(crate) type MysqlSettings = DatabaseSettings<(), wire::Known>;

#[derive(Debug)]
pub(crate) struct MysqlStore {
    server: Server,
    background: Background,
    /// For how long a writer that waits keeps new readers out without another try.
    waiter_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl MysqlStore {
    pub(crate) fn new(settings: &MysqlSettings, waiter_timeout: Duration) -> Self {
        Self {
            server: Server::new(settings.foreground(), settings.connections),
            background: Background::new(settings.background()),
            waiter_timeout,
            clock: settings.hosts.clock.clone(),
        }
    }

    /// Connects once, which also checks the server and creates the tables.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.server.connect_now()
    }
}

impl LockStore for MysqlStore {
    fn kind(&self) -> &'static str {
        "mysql"
    }

    fn check(&self, name: &LockName) -> Result<()> {
        let why = match name.kind {
            Kind::Mutex | Kind::Read | Kind::Write | Kind::Semaphore => return Ok(()),
            Kind::Fair => {
                "fair locks are not kept in MySQL: each waiter would write its place, and the database wakes nobody"
            }
            Kind::CountingSemaphore => {
                "counting semaphores are not kept in MySQL; use a semaphore, whose permits have leases"
            }
            Kind::Latch => "latches are not kept in MySQL",
            Kind::RateLimiter => crate::store::NO_RATES,
            Kind::Job | Kind::Done => NO_JOBS,
        };
        Err(Error::named(ErrorKind::Unsupported, &name.name, why))
    }

    /// A try on a lock that may be free takes it at once; one that has found it taken before looks
    /// first, because a look locks no row and waits for nobody.
    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let mut step = if acquire.waiting == Waiting::No { Step::Take } else { Step::Look };
        let mut passed_by = false;
        for _ in 0..STEPS {
            let bar = self.waiter_timeout;
            let answer = self.server.ask(&kinds::acquire(acquire, &step, bar), unknowns)?;
            let sent_at = answer.sent_at;
            let sets = match answer.sets {
                // It says nothing of the lock: a transaction that is not one of a client; or a
                // deadlock, and the holder itself asks.
                Err(error) if acquire.held > 0 || error.is_timeout() && !acquire.goes_on => {
                    return Err(error.to_error());
                }
                // The effects of an earlier attempt are still unknown.
                Err(error) if error.is_contended() => {
                    return Ok(Acquired::Busy { ttl: Some(LOCKED) });
                }
                sets => sets.map_err(|e| e.to_error())?,
            };
            passed_by |= step == Step::TakeFenced;
            match kinds::acquire_answer(&sets, acquire, &step, bar, sent_at)? {
                // It is still free, so its fence could not be passed: a transaction is fenced.
                Stepped::Next(Step::TakeFenced) if passed_by => break,
                Stepped::Next(next) => step = next,
                Stepped::Done(acquired) => {
                    // Only an answer about the lock resolves the earlier attempts.
                    unknowns.clear();
                    return Ok(acquired);
                }
            }
        }
        // Or others took it and gave it up between all of these steps.
        Ok(Acquired::Busy { ttl: Some(LOCKED) })
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let now = self.clock.now();
        let kept = release.keeps_for(|| now).is_some();
        let answer = self.server.ask(&kinds::release(release, || now), unknowns)?;
        let sets = answer.all()?;
        let set = kinds::decisive(&sets).ok_or_else(|| requests::unexpected("a release"))?;
        let released = kinds::release_answer(set, release, kept, !unknowns.is_empty());
        unknowns.clear();
        Ok(released)
    }

    /// A release and an acquire in one request would still be two commits.
    fn hand_over(
        &self,
        _release: &Release<'_>,
        _next: &Acquire<'_>,
        _unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        None
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.background.renew(batch, &self.server.pool)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        resolve_first(undos, &*self.clock, |chunk| self.background.resolve(chunk));
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let extend = |one: &Renewal| {
            let answer = self.server.ask_freely(&wire::Request::new(kinds::renew(one)))?;
            let sent_at = answer.sent_at;
            Ok(requests::renewed(&answer.last()?, sent_at))
        };
        Ok(each_until_failure(renewals, extend))
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        self.look_at(name)?.pop().map(status).transpose()
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        let answer = self.server.ask_once(&kinds::force(name), MAY_BE_FREE)?;
        let sets = answer.all()?;
        if kinds::decisive(&sets).is_some_and(|set| set.affected > 0) {
            return Ok(true);
        }
        // Nobody had it, or it is of another kind.
        match self.look_at(name)?.first().and_then(|found| found.kind) {
            Some(kind) if !kind.is_same_primitive_as(name.kind) => Err(another_kind()),
            _ => Ok(false),
        }
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        Ok(subscribe_to(self.background.connector.connect()?, read_timeout))
    }

    fn counts_own_listener(&self) -> bool {
        false
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        vec![self.server.pool.status(false)]
    }

    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        self.examine_hosts(asked)
    }

    fn multi(&self) -> Result<&dyn MultiStore> {
        Ok(self)
    }

    fn queue(&self) -> Result<&dyn QueueStore> {
        Err(unsupported("there are no queues in MySQL"))
    }

    fn counts(&self) -> Result<&dyn CountStore> {
        Ok(self)
    }

    fn data(&self) -> Result<&dyn DataStore> {
        Err(unsupported("locks have no data in MySQL, and so there are no elections"))
    }

    fn jobs(&self) -> Result<&dyn JobStore> {
        Err(unsupported(NO_JOBS))
    }

    fn fence(&self) -> Result<&dyn FenceStore> {
        Err(unsupported(
            "fenced values are kept in Redis; in MySQL the transaction itself is fenced",
        ))
    }

    /// The first fence of a name makes its row; then a look is enough.
    fn fence_statements(&self, name: &LockName) -> Result<FenceStatements> {
        let look = self.server.ask_freely(&requests::is_fenced(name))?.last()?;
        let fenced = look.rows.first().and_then(|row| requests::text(row, 0));
        if fenced != Some("1") {
            self.server.ask_freely(&requests::make_fence(name)).and_then(Answer::all)?;
        }
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

/// What is found under a name that somebody has.
fn status(found: Found) -> Result<LockStatus> {
    if !found.kind.is_some_and(Kind::is_lock) {
        return Err(another_kind());
    }
    let ttl = found.holders.iter().filter_map(|holder| holder.left).max();
    let holders = found.holders.into_iter().map(|holder| (holder.id, holder.count)).collect();
    Ok(LockStatus { ttl, holders, owners: Vec::new(), data: None })
}

const NO_JOBS: &str =
    "scheduled jobs are not kept in MySQL; use Redis, PostgreSQL or ZooKeeper for them";

#[cold]
fn unsupported(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}
