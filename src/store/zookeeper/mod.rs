//! Locks in a ZooKeeper ensemble: ephemeral sequential nodes in Curator's layout, so that Java
//! services with Curator and these clients exclude each other.
//!
//! The lease is the session. All holds of a client share it, one thread keeps it alive, and a hold
//! costs no renewal. When the session may have ended is in [`lease`].

mod client;
mod counts;
mod data;
mod diagnosis;
mod directories;
mod gate;
mod inspect;
mod jobs;
mod lease;
mod listing;
mod locks;
mod multi;
mod names;
mod nodes;
mod queue;
mod remembered;
mod semaphore;
mod set_data;
mod subscription;
mod upkeep;
pub(crate) mod url;
pub(crate) mod wire;

pub(crate) use client::ClientSettings;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::client::{Client, ZooKeeperFailure};
use self::names::Paths;
use self::nodes::Nodes;
use self::remembered::{BusyNames, Gate, Latches};
use self::wire::Acl;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeStatus;
use crate::report::diagnosis::Finding;
use crate::report::owner::HolderOwner;
use crate::store::{
    Acquire, Acquired, CountStore, DataStore, Diagnose, FenceStore, HandedOver, JobStore,
    ListingStore, LockStatus, LockStore, MultiStore, NO_RATES, QueueStore, Release, Released,
    Renewal, Renewed, Subscriber, SubscriptionSender, Undo, UnknownOutcomes, has,
};

/// The settings of a store.
pub(crate) struct ZooKeeperSettings {
    pub(crate) client: ClientSettings,
    pub(crate) acl: Acl,
    /// Added to each fencing token.
    pub(crate) token_base: u64,
    /// `None`: the owner is not published.
    pub(crate) owner: Option<HolderOwner>,
}

#[derive(Debug)]
pub(crate) struct ZooKeeperStore {
    client: Arc<Client>,
    gate: Gate,
    nodes: Nodes,
    busy_names: BusyNames,
    latches: Mutex<Latches>,
    chroot: String,
    /// The owner of the client, written into each of its nodes.
    owner: Option<HolderOwner>,
    acl: Acl,
    token_base: u64,
    /// The session timeout to ask for.
    asked_lease: Duration,
}

impl ZooKeeperStore {
    pub(crate) fn new(settings: ZooKeeperSettings) -> Self {
        let ZooKeeperSettings { client, acl, token_base, owner } = settings;
        let chroot = client.chroot.clone();
        let asked_lease = client.lease;
        let client = Arc::new(Client::new(client));
        Self {
            gate: Gate::default(),
            nodes: Nodes::new(client.clone()),
            busy_names: BusyNames::default(),
            latches: Mutex::default(),
            chroot,
            owner,
            acl,
            token_base,
            asked_lease,
            client,
        }
    }

    /// Connects once, and makes the chroot if it is missing.
    pub(crate) fn connect_now(&self) -> Result<()> {
        let connected = self.catch_up().and_then(|()| self.make_chroot());
        // A client that is never returned is never closed.
        connected.inspect_err(|_| self.client.close()).map_err(ZooKeeperFailure::into_error)
    }

    fn paths<'n>(&self, name: &'n LockName) -> &'n Paths {
        name.spelling(|| Paths::new(&self.chroot, &name.key))
    }

    /// The session timeout.
    fn lease(&self) -> Duration {
        self.client.granted().unwrap_or(self.asked_lease)
    }
}

impl LockStore for ZooKeeperStore {
    fn kind(&self) -> &'static str {
        "zookeeper"
    }

    fn check(&self, name: &LockName) -> Result<()> {
        if name.kind == Kind::CountingSemaphore {
            let why = "ZooKeeper has no permits without a holder: a session that ends gives back what it had; use \
                       semaphore";
            return Err(Error::named(ErrorKind::Unsupported, &name.name, why));
        }
        if name.kind == Kind::RateLimiter {
            return Err(Error::named(ErrorKind::Unsupported, &name.name, NO_RATES));
        }
        names::check(&name.key)
    }

    /// Not longer than the session can give.
    fn check_lease(&self, lease: Duration) -> Result<()> {
        let longest = self.lease().max(self.asked_lease);
        if lease <= longest {
            return Ok(());
        }
        let why = format!(
            "a lease of {lease:?} is longer than the session of {longest:?}, with which every hold ends"
        );
        let advice = "give the client a longer lease (servers grant 20 ticks at most, see maxSessionTimeout)";
        Err(Error::new(ErrorKind::Unsupported, why).advise(advice))
    }

    fn check_min_hold(&self, _least: Duration) -> Result<()> {
        let why = "over ZooKeeper a lock is the node of a session, and nothing removes that at a later time when the \
                   process has ended: hold the guard for as long instead of min_hold";
        Err(Error::new(ErrorKind::Unsupported, why))
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        self.check_lease(acquire.lease)?;
        match acquire.name.kind {
            _ if acquire.held > 0 => Ok(self.reenter(acquire)),
            Kind::Semaphore => self.acquire_permits(acquire, unknowns),
            _ => self.acquire_lock(acquire, unknowns),
        }
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        match release.name.kind {
            Kind::Semaphore => self.release_permits(release, unknowns),
            // A change of a count whose outcome was unknown: from now on it cannot run. If it has
            // run, its mark is removed when the session ends.
            Kind::CountingSemaphore | Kind::Latch | Kind::Done => {
                self.note(self.close_the_gate(), unknowns).map(|()| Released::NotHeld)
            }
            _ => self.release_lock(release, unknowns),
        }
    }

    /// It may be given up elsewhere, of which this client would not learn.
    fn forget(&self, name: &LockName, holder: &Holder) {
        if let Some(node) = self.nodes.remove(name, holder) {
            self.client.unguard(&node.paths());
        }
    }

    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        self.pass_on(release, next, unknowns)
    }

    fn queues_all(&self) -> bool {
        true
    }

    fn shared_lease(&self) -> Option<Duration> {
        self.client.granted()
    }

    /// The queue decides who is next, also between this client and Java; and a fencing token
    /// belongs to a node.
    fn passes_on(&self) -> bool {
        false
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.look_after(batch)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        self.settle(undos);
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.extend_all(renewals)
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        self.looked(|| self.holders_of(name))
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        self.force(name)
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        Ok(subscription::subscribe(&self.client, &self.chroot, read_timeout))
    }

    fn tell_losses(&self, told: Box<dyn Fn() + Send + Sync>) {
        self.client.tell_losses(told);
    }

    /// Holds whose session is in doubt, or over, are visited at once.
    fn moves(&self) -> u64 {
        self.client.moves()
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.client.nodes()
    }

    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        self.examine_ensemble(asked)
    }

    has! {
        multi: MultiStore, queue: QueueStore, counts: CountStore, data: DataStore,
        jobs: JobStore
    }

    fn fence(&self) -> Result<&dyn FenceStore> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "fenced values are kept in Redis; over ZooKeeper, compare the fencing token at the resource, see the module \
             fencing",
        ))
    }

    fn listing(&self) -> &dyn ListingStore {
        self
    }

    fn close(&self) {
        self.client.close();
    }
}
