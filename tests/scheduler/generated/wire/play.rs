//! Plays a program over servers once, beside its model.

use std::cell::RefCell;
use std::panic::panic_any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::os::thread::{current, sleep};
use leasehold::os::{now, since};
use leasehold::{Error, ErrorKind, Held, LockClient};

use super::{
    CONNECTS_LATE, Connects, Mishap, Program, Restart, Section, Side, Step, Thing, Thread,
};
use crate::book::{As, pause};
use crate::generated::program::Wait;
use crate::generated::text::name_of;
use crate::redis;
use crate::stage::{OnPurpose, join_all, may_panic_on_purpose};
use crate::wire::Wire;

thread_local! {
    static PROGRAM: RefCell<Option<Arc<Program>>> = const { RefCell::new(None) };
}

/// The program that [`play`] plays on this thread.
pub(crate) fn choose_program(program: Arc<Program>) {
    PROGRAM.set(Some(program));
}

/// A call that waits for so long gets the lock, unless something happens to the servers: nobody
/// keeps it for long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The steps of a call take no longer, and far less than an I/O timeout.
const AT_ONCE: Duration = Duration::from_millis(100);

/// What may have run and cannot be killed is waited for.
const ENDS_BY_ITSELF: Duration = Duration::from_secs(5);

/// A call of one of the four waiting methods.
macro_rules! take {
    ($wait:expr, $lock:ident, $ever:ident, $once:ident, $within:ident) => {
        match $wait {
            Wait::Ever => $lock.$ever().map(Some),
            Wait::Never => $lock.$once(),
            Wait::For(time) => $lock.$within(time.time()),
        }
    };
}

/// What the threads of a program share.
#[derive(Clone)]
struct Play {
    program: Arc<Program>,
    wire: Wire,
    clients: Arc<[LockClient]>,
    /// When each close has returned, and whether it has said that nothing is left.
    closes: Arc<Mutex<Vec<Closed>>>,
}

#[derive(Clone, Copy)]
struct Closed {
    client: usize,
    at: Instant,
    is_clean: bool,
}

pub(crate) fn play() {
    let program = PROGRAM.with_borrow(|program| program.clone()).expect("a program was chosen");
    let play = Play::begin(program);
    let threads: Vec<_> = (0..play.program.threads.len())
        .map(|n| {
            let play = play.clone();
            play.wire.clone().spawn(move |_| play.thread(&play.program.threads[n]))
        })
        .collect();
    join_all(threads);
    play.check();
}

impl Play {
    fn begin(program: Arc<Program>) -> Self {
        let settings = &program.settings;
        let wire = Wire::of(settings.servers);
        let lease = settings.lease.time();
        if program.is_redlock() {
            // Without it no master would ever vote.
            wire.redlock(lease, true).close(lease).expect("it has nothing to release");
        }
        if !settings.kills {
            for server in wire.servers.iter() {
                server.forbid_kills();
            }
        }
        let client = |_| {
            if program.is_redlock() {
                wire.redlock(lease, false)
            } else {
                wire.client(|builder| builder.connections(settings.connections).lease(lease))
            }
        };
        let clients = (0..settings.clients).map(client).collect();
        Self { program: program.clone(), wire, clients, closes: Arc::default() }
    }

    fn thread(&self, thread: &Thread) {
        for step in &thread.steps {
            may_panic_on_purpose(|| self.step(thread.client, step));
        }
    }

    fn step(&self, client: usize, step: &Step) {
        let servers = &self.wire.servers;
        match step {
            Step::Section(section) => self.section(client, section),
            Step::Sleep(time) => sleep(time.time()),
            Step::Next(server, request, mishap) => {
                servers[*server].next(request.word(), mishap.at_server());
            }
            Step::EndConnections(server) => servers[*server].end_connections(),
            Step::FlushScripts(server) => servers[*server].flush_scripts(),
            Step::AnswersLate(server, time) => servers[*server].answers_late(time.time()),
            Step::RunsLate(server, time) => servers[*server].runs_late(time.time()),
            Step::Restart(Restart { server, keeps, away }) => {
                servers[*server].stop();
                sleep(away.time());
                servers[*server].restart(*keeps);
            }
            Step::Connects(Connects::Late) => {
                servers[0].intervene(Some(|| sleep(CONNECTS_LATE)));
            }
            Step::Connects(Connects::Panics) => {
                servers[0].intervene(Some(panic_of_caller));
            }
            Step::Close(time) => {
                let closed = self.clients[client].close(time.time());
                if let Err(e) = &closed {
                    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
                }
                let closed = Closed { client, at: now(), is_clean: closed.is_ok() };
                self.closes.lock().unwrap_or_else(PoisonError::into_inner).push(closed);
            }
        }
    }

    fn section(&self, client: usize, section: &Section) {
        let began = now();
        self.take_and_give_up(client, section);
        // Nothing more is sent for a client that was closed, so those who queue for a connection
        // are told, and only the answers that are under way are waited for.
        let closes = self.closes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ends = if self.program.settings.kills { AT_ONCE } else { ENDS_BY_ITSELF };
        // They come one after the other, for a call of each thread.
        let answers = self.program.threads.len() as u32 * self.program.longest_late();
        let most = answers + section.stay.time() + ends;
        for closed in closes.iter().filter(|closed| closed.client == client) {
            let lasted = since(closed.at.max(began));
            assert!(lasted <= most, "{section}: it went on for {lasted:?} after the close");
        }
    }

    fn take_and_give_up(&self, client: usize, section: &Section) {
        let client_ = &self.clients[client];
        let name = name_of(section.thing);
        let began = now();
        match (self.program.things[section.thing], section.side) {
            (Thing::Mutex, _) => {
                let lock = client_.mutex(name);
                let taken = take!(section.wait, lock, lock, try_lock, try_lock_for);
                self.inside(client, section, As::Writer, began, taken);
            }
            (Thing::Fair, _) => {
                let lock = client_.fair(name);
                let taken = take!(section.wait, lock, lock, try_lock, try_lock_for);
                self.inside(client, section, As::Writer, began, taken);
            }
            (Thing::ReadWrite, Side::Write) => {
                let lock = client_.rw_lock(name);
                let taken = take!(section.wait, lock, write, try_write, try_write_for);
                self.inside(client, section, As::Writer, began, taken);
            }
            (Thing::ReadWrite, Side::Read) => {
                let lock = client_.rw_lock(name);
                let taken = take!(section.wait, lock, read, try_read, try_read_for);
                self.inside(client, section, As::Reader, began, taken);
            }
        }
    }

    /// What follows a call for a lock that began at that moment.
    fn inside<G: Held>(
        &self,
        client: usize,
        section: &Section,
        how: As,
        began: Instant,
        taken: leasehold::Result<Option<G>>,
    ) {
        let waited = since(began);
        // Nothing here may read the clock: the schedule would no longer fit.
        crate::runs::tell(|| {
            let outcome = taken.as_ref().map(Option::is_some).map_err(Error::kind);
            format!("{began:?} + {waited:?}: {section}: {outcome:?}")
        });
        let guard = match taken {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                assert_ne!(section.wait, Wait::Ever, "{section}: it has given up");
                let is_free = waited >= PATIENCE && !self.program.has_faults();
                assert!(!is_free, "{section}: it gave up after {waited:?}, and nobody keeps it");
                return;
            }
            Err(e) => return self.expect(&e, client),
        };
        let name = name_of(section.thing);
        let token = guard.fencing_token().ok().map(|token| token.get());
        assert!(token.is_some() || how == As::Reader, "{section}: it has a token");
        let book = &self.wire.book;
        book.enter(name, how, token);
        pause();
        sleep(section.stay.time());
        let believed = guard.is_held();
        assert!(believed || self.may_be_lost(client), "{section}: nothing took it away");
        book.leave(name, how);
        match guard.unlock() {
            Ok(()) => assert!(believed, "{section}: unlock said that it was held to the end"),
            Err(e) => self.expect(&e, client),
        }
    }

    /// Each thing can be taken, after so many calls at most that fail.
    fn is_free(&self, client: usize, failures: u32) {
        for (thing, kind) in self.program.things.iter().enumerate() {
            let client = &self.clients[client];
            let name = name_of(thing);
            let wait = 2 * PATIENCE;
            let take = || match kind {
                Thing::Mutex => client.mutex(name).try_lock_for(wait).map(|taken| taken.is_some()),
                Thing::Fair => client.fair(name).try_lock_for(wait).map(|taken| taken.is_some()),
                Thing::ReadWrite => {
                    client.rw_lock(name).try_write_for(wait).map(|taken| taken.is_some())
                }
            };
            let mut taken = take();
            for _ in 0..failures {
                if taken.as_ref().is_err_and(Error::is_outage) {
                    sleep(Duration::from_millis(100));
                    taken = take();
                }
            }
            assert!(taken.expect("the servers answer again"), "something is left of {name}");
        }
    }

    /// A release ran in a process that has ended, and its reply is lost: that looks like a lock that
    /// the server has forgotten.
    fn may_be_lost(&self, client: usize) -> bool {
        self.program.restarts() || self.program.has_closed(client)
    }

    /// Checks that the program gives a reason for this error.
    fn expect(&self, error: &Error, client: usize) {
        let has_reason = match error.kind() {
            ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::NotReady => {
                self.program.has_faults()
            }
            ErrorKind::Closed => self.program.has_closed(client),
            ErrorKind::Lost => self.may_be_lost(client),
            _ => false,
        };
        assert!(has_reason, "nothing in the program explains this error: {error}");
    }

    /// The servers are well again: everything can be taken, and nothing is left.
    fn check(self) {
        let program = self.program.clone();
        let wire = self.wire.clone();
        for server in wire.servers.iter() {
            server.calm_down();
        }
        let settings = &program.settings;
        // Three more than those for locks: for renewals, for messages, and for kills.
        let most = settings.clients * (settings.connections + 3);
        let at_once = wire.servers[0].connections().1;
        assert!(
            program.is_redlock() || at_once <= most,
            "{at_once} connections at once, where {most} were allowed"
        );
        let open = || (0..settings.clients).filter(|client| !program.has_closed(*client));
        let closes = self.closes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_clean = closes.iter().all(|closed| closed.is_clean);
        // What a close that says so leaves ends with its lease.
        if is_clean {
            // A master whose connections may not be killed does not vote while a request is under
            // way.
            let failures = if settings.kills { 1 } else { 30 };
            for client in open() {
                self.is_free(client, failures);
            }
        }
        let left: Vec<LockClient> = open().map(|client| self.clients[client].clone()).collect();
        drop(self);
        if is_clean {
            return wire.end(left);
        }
        for client in left {
            client.close(PATIENCE).expect("it has nothing to release");
        }
        wire.stop();
    }
}

/// In a thread of the library nobody could catch it, and the scheduler takes that for a failure.
fn panic_of_caller() {
    if !current().name().is_some_and(|name| name.starts_with("lh-")) {
        panic_any(OnPurpose);
    }
}

impl Mishap {
    fn at_server(self) -> redis::Mishap {
        match self {
            Self::RunsLate(time) => redis::Mishap::RunsLate(time.time()),
            Self::AnsweredLate(time) => redis::Mishap::AnsweredLate(time.time()),
            Self::Refused(time) => redis::Mishap::Refused(time.time()),
            Self::CutBefore => redis::Mishap::CutBefore,
            Self::CutAfter => redis::Mishap::CutAfter,
            Self::AnsweredTwice => redis::Mishap::AnsweredTwice,
        }
    }
}
