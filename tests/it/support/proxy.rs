//! A proxy in front of a server that breaks one chosen exchange at one chosen byte.
//!
//! Each connection has two threads: one carries requests up, one carries replies down (`carry.rs`). All they share is
//! one state under one lock, with one condition variable for everything that anybody waits for.

use std::collections::{HashMap, VecDeque};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::carry;
use super::net::{Address, Listener, Stream, TempDir};
use super::{Action, CAP, Fault, Rule, Server, became_true};

/// A reply that the server owes, and what to do with it.
#[derive(Debug)]
pub(super) struct Owed {
    /// `SUBSCRIBE a b` is answered twice.
    pub(super) replies: usize,
    pub(super) fault: Option<(Action, Rule)>,
}

/// A connection through the proxy.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Stream,
    /// None until the proxy has connected, or for a connection that came during a black hole.
    pub(super) server: Option<Stream>,
    pub(super) owed: VecDeque<Owed>,
    /// The connection is over; its threads are to end.
    pub(super) cut: bool,
    /// The client has closed its side.
    pub(super) client_gone: bool,
    /// Nothing goes either way any more.
    pub(super) black: bool,
    /// A request is being held, for which the way to the server stays open after a cut.
    pub(super) holding: bool,
    /// The last request that matters has been sent.
    pub(super) no_more: bool,
    /// Messages may come between the replies.
    pub(super) subscribed: bool,
    /// The threads that still use this.
    pub(super) users: usize,
}

impl Link {
    /// Ends both sides, except for a held request's way to the server.
    pub(super) fn cut(&mut self) {
        self.cut = true;
        self.client.shutdown(Shutdown::Both);
        if !self.holding {
            self.cut_server();
        }
    }

    pub(super) fn cut_server(&self) {
        if let Some(server) = &self.server {
            server.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) links: HashMap<u64, Link>,
    pub(super) rules: Vec<Rule>,
    pub(super) refuse: bool,
    pub(super) black_hole: bool,
    pub(super) paused: bool,
    pub(super) drop_messages: bool,
    /// Goes up with each release of the held requests.
    pub(super) releases: u64,
    pub(super) stop: bool,
    threads: Vec<JoinHandle<()>>,
    panicked: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: Address,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for a change of anything.
    pub(super) fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.changed.wait(state);
    }

    /// As `wait`, but not past the deadline.
    pub(super) fn wait_until(&self, state: &mut MutexGuard<'_, State>, deadline: std::time::Instant) {
        self.changed.wait_until(state, deadline);
    }

    /// Tells all who wait.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Starts a thread that the proxy's drop waits for.
    pub(super) fn spawn(self: &Arc<Self>, state: &mut State, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("test-proxy".to_owned()).spawn(move || work(&shared)).unwrap();
        let (ended, running): (Vec<_>, Vec<_>) = state.threads.drain(..).partition(JoinHandle::is_finished);
        state.panicked |= ended.into_iter().any(|thread| thread.join().is_err());
        state.threads = running;
        state.threads.push(thread);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.notify();
    }
}

/// The proxy; it and all its connections end on drop.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: Address,
    password: Option<String>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Proxy {
    /// In front of this server, and on the same kind of socket.
    pub(crate) fn start(server: &Server) -> Self {
        let dir = TempDir::new();
        let (listener, address) = Listener::bind(server.address(), dir.path());
        let shared =
            Arc::new(Shared { upstream: server.address().clone(), state: Mutex::default(), changed: Condvar::new() });
        let accepting = shared.clone();
        let acceptor = std::thread::Builder::new()
            .name("test-proxy".to_owned())
            .spawn(move || carry::accept_all(&accepting, &listener))
            .unwrap();
        Self { address, password: server.password().map(str::to_owned), shared, acceptor: Some(acceptor), _dir: dir }
    }

    /// For `redis::Client::open`.
    pub(crate) fn url(&self) -> String {
        self.address.url(self.password.as_deref())
    }

    /// Adds a fault. Each one sees every request; the first that wants it has it.
    pub(crate) fn inject(&self, fault: Fault) -> Rule {
        let rule = fault.into_rule();
        self.shared.lock().rules.push(rule.clone());
        rule
    }

    /// Adds a fault for the next request that matches.
    pub(crate) fn inject_once(
        &self,
        matcher: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static,
        action: Action,
    ) -> Rule {
        self.inject(Fault::new(matcher, action))
    }

    /// Waits until the fault has happened so often.
    #[track_caller]
    pub(crate) fn wait_hits(&self, rule: &Rule, n: u32) {
        let happened = became_true(CAP, || rule.hits() >= n);
        assert!(happened, "the fault happened {} times, not {n}, in {CAP:?}: {rule:?}", rule.hits());
    }

    /// Sends the requests that are held now; later ones are held again.
    pub(crate) fn release_held(&self) {
        self.shared.change(|state| state.releases += 1);
    }

    /// New connections are accepted and closed at once.
    pub(crate) fn refuse(&self, on: bool) {
        self.shared.change(|state| state.refuse = on);
    }

    /// All connections, new ones too, stay open and carry nothing. The ones it has met stay so when it ends.
    ///
    /// Only that the client has closed is passed on, so that the server is not left with its connection.
    pub(crate) fn black_hole(&self, on: bool) {
        self.shared.change(|state| {
            state.black_hole = on;
            if on {
                state.links.values_mut().for_each(|link| link.black = true);
            }
        });
    }

    /// Nothing goes either way until it ends; then everything that waited does.
    pub(crate) fn pause(&self, on: bool) {
        self.shared.change(|state| state.paused = on);
    }

    /// Published messages are lost; replies are not.
    pub(crate) fn drop_messages(&self, on: bool) {
        self.shared.change(|state| state.drop_messages = on);
    }

    /// Ends every connection that there is.
    pub(crate) fn kill_all(&self) {
        self.shared.change(|state| state.links.values_mut().for_each(Link::cut));
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().links.values().filter(|link| !link.cut).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stop = true;
            for link in state.links.values_mut() {
                link.holding = false;
                link.cut();
            }
        });
        // Wakes the acceptor from its wait for a connection.
        let _ = self.address.connect();
        let mut panicked = self.acceptor.take().is_some_and(|thread| thread.join().is_err());
        let threads = std::mem::take(&mut self.shared.lock().threads);
        panicked |= self.shared.lock().panicked;
        for thread in threads {
            panicked |= thread.join().is_err();
        }
        if panicked && !std::thread::panicking() {
            panic!("a thread of the proxy panicked, perhaps in a matcher");
        }
    }
}
