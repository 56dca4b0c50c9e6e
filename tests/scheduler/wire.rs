//! Clients over servers of the scheduler's network, and what must hold when a scenario is over.

use std::sync::Arc;
use std::time::Duration;

use leasehold::os::thread::{JoinHandle, running, sleep, spawn};
use leasehold::{Builder, ErrorKind, LockClient, Redlock};

use crate::book::{As, Book};
use crate::redis::Server;

/// Nothing may be left much longer than an I/O timeout, and long before a lease has ended.
const LEFT_AT_MOST: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) servers: Arc<[Server]>,
    pub(crate) book: Arc<Book>,
}

impl Wire {
    pub(crate) fn of(servers: u16) -> Self {
        Self { servers: (1..=servers).map(Server::start).collect(), book: Arc::default() }
    }

    /// A client of the first server.
    pub(crate) fn client(&self, settings: impl Fn(Builder) -> Builder) -> LockClient {
        let builder =
            LockClient::builder().redis(self.servers[0].url().as_str()).announce_owner(false);
        settings(builder).connect_lazily().build().expect("the settings are valid")
    }

    /// A client of a Redlock over all servers. `fresh`: a master without any data votes at once.
    pub(crate) fn redlock(&self, lease: Duration, fresh: bool) -> LockClient {
        let masters = Redlock::new(self.servers.iter().map(Server::url))
            .admit_fresh_nodes(fresh)
            .longest_lease(lease);
        let builder = LockClient::builder().redlock(masters).announce_owner(false).lease(lease);
        builder.build().expect("a majority of the masters answers")
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        run: impl FnOnce(Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let wire = self.clone();
        spawn(move || run(wire))
    }

    /// Takes the lock, runs a section, and releases it; an outage is an outcome, too. Returns
    /// whether it had the lock.
    pub(crate) fn section(&self, client: &LockClient, name: &str) -> bool {
        let unreachable = |e: leasehold::Error| {
            let kinds = [ErrorKind::Unreachable, ErrorKind::NoQuorum];
            assert!(kinds.contains(&e.kind()), "{e}");
        };
        let guard = match client.try_lock_for(name, Duration::from_secs(5)) {
            Ok(Some(guard)) => guard,
            Ok(None) => return false,
            Err(e) => {
                unreachable(e);
                return false;
            }
        };
        let token = guard.fencing_token().expect("a mutex has tokens").get();
        self.book.enter(name, As::Writer, Some(token));
        crate::book::pause();
        assert!(guard.is_held(), "a lease is much longer than a section");
        self.book.leave(name, As::Writer);
        match guard.unlock() {
            Ok(()) => true,
            // The release ran in a process that has ended, and its reply is lost: that looks like a
            // lock that the server has forgotten.
            Err(e) if e.kind() == ErrorKind::Lost => {
                let restarted = self.servers.iter().any(Server::has_restarted);
                assert!(restarted, "{e}");
                false
            }
            Err(e) => {
                unreachable(e);
                false
            }
        }
    }

    /// The lock can be taken, although requests had unknown outcomes. The first call may meet the
    /// end of a connect that began before the servers were well, and no other may.
    pub(crate) fn is_free(&self, client: &LockClient, name: &str) {
        let take = || client.try_lock_for(name, Duration::from_secs(10));
        let guard = take().or_else(|e| if e.is_outage() { take() } else { Err(e) });
        let guard = guard.expect("the servers answer again").expect("nothing is left of it");
        guard.unlock().expect("it is held");
    }

    /// Closes the clients, and waits until nothing is left of them in the process and at the
    /// servers.
    pub(crate) fn end(self, clients: impl AsRef<[LockClient]>) {
        for client in clients.as_ref() {
            let snapshot = client.snapshot();
            assert!(
                snapshot.waits().is_empty(),
                "a call that has returned still waits: {snapshot:?}"
            );
            assert!(snapshot.holds().is_empty(), "a hold is left: {snapshot:?}");
        }
        self.nothing_left("locks", |server| server.locks().is_empty());
        self.close(clients);
    }

    /// The same, for clients that need not have released everything.
    pub(crate) fn close(self, clients: impl AsRef<[LockClient]>) {
        for client in clients.as_ref() {
            client.close(LEFT_AT_MOST).expect("it closes within the timeout");
        }
        self.nothing_left("locks", |server| server.locks().is_empty());
        self.stop();
    }

    /// Stops the servers when nobody is connected any more, and waits for all threads.
    pub(crate) fn stop(self) {
        self.nothing_left("connections", |server| server.connections().0 == 0);
        for server in self.servers.iter() {
            server.stop();
        }
        wait_for("threads", || running().is_empty(), || format!("{:?}", running()));
    }

    fn nothing_left(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        let left = || {
            let left =
                |server: &Server| format!("{:?} and {:?}", server.locks(), server.connections());
            self.servers.iter().map(left).collect::<Vec<_>>().join("; ")
        };
        wait_for(what, || self.servers.iter().all(&is_so), left);
    }
}

fn wait_for(what: &str, is_over: impl Fn() -> bool, left: impl Fn() -> String) {
    let mut waited = Duration::from_micros(100);
    while !is_over() {
        assert!(waited < LEFT_AT_MOST, "left behind: {what}, {}", left());
        sleep(waited);
        waited *= 2;
    }
}
