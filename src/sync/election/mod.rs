//! The election of a leader: `client.election(name)`.

mod leader;
mod term;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use self::leader::{Leader, LeaderWatch};
pub use self::term::Term;
use crate::base::data::HoldData;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::Kind;
use crate::base::log;
use crate::base::random::Backoff;
use crate::hold::guarded::Hold;
use crate::os;
use crate::signal::cancel::CancelToken;
use crate::store::TokenRule;
use crate::sync::guard::{Guard, Movable};
use crate::sync::handle::{Handle, handle_methods, without_deadline};
use crate::wait::client_state::ClientState;

/// The first pause after a leader has failed, or no server could be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause while no server can be reached: nobody may lead for so long after an outage.
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The pauses between looks at whether another has led.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The election of one leader among all who stand for it: of many processes that could do a job,
/// one does it, and when it ends or dies, another one goes on.
///
/// A cheap handle, created by [`LockClient::election`](crate::LockClient::election): creating and
/// cloning it costs no I/O.
///
/// # Terms
/// The leader is whoever holds the [plain lock](crate::LockClient::mutex) of the name, so whatever
/// is said of that lock is true here: leases, renewal, losses, other users of the name, Redisson's
/// `RLock` and Curator's `LeaderSelector` among them. [`run`](Self::run) stands for election, and
/// calls a closure for each [term](Term) that it wins. The number of a term is the fencing token of
/// its hold: it grows from term to term, with gaps.
///
/// **Two leaders.** A term ends at the latest when its lease may have ended, and from then on
/// [`is_leader`](Term::is_leader) is false. A closure that looks away for longer overlaps the next
/// term. So give the resource the number of the term with every change, and let it refuse lower
/// ones: see [`fencing`](crate::fencing).
///
/// # Stores
/// All but [Redlock](crate::guide::redlock) and [MySQL](crate::guide::mysql), where every call
/// returns [`Unsupported`](ErrorKind::Unsupported): one store has to say who leads, with what data.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// # fn work() -> leasehold::Result<()> { Ok(()) }
/// let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// client.election("scheduler").with_data("host-a").run(|term| {
///     // Until the term ends, or the program stops waiting:
///     while !term.cancel_token().wait_timeout(Duration::from_secs(1)) {
///         work()?; // with term.number()
///     }
///     Ok::<_, leasehold::Error>(())
/// })?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[cfg_attr(not(feature = "redis"), doc = include_str!("../../links/redis.md"))]
#[derive(Debug, Clone)]
pub struct Election {
    handle: Handle,
    again: bool,
}

/// How a term has ended.
enum Ended<T> {
    /// The closure is done.
    Done(T),
    /// It has been told to end, and another term may follow.
    Told,
    /// This holder has resigned.
    Resigned(Holder),
    Failed,
}

impl Election {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        let mut handle = Handle::new(client, name, Kind::Mutex);
        // Always with data: what others read of the leader is then written with the grant, and
        // comes with its token.
        handle.terms.data = Some(HoldData::new(&[]));
        Self { handle, again: false }
    }

    handle_methods!(name, cancel);

    /// What others see of the leader while it leads, such as the address at which it can be
    /// reached: see [`ReentrantMutex::with_data`](crate::ReentrantMutex::with_data). Empty if it is
    /// not set. [`Term::set_data`] replaces it.
    #[must_use]
    pub fn with_data(mut self, data: impl AsRef<[u8]>) -> Self {
        self.handle.terms.data = Some(HoldData::new(data.as_ref()));
        self
    }

    /// Stands for election again after a closure that was done, instead of returning its value:
    /// [`run`](Self::run) then ends only with an error.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// Stands for election and calls `lead` for each term that is won, on the calling thread.
    /// Returns its value once it is done. Blocks until then, for as long as it takes.
    ///
    /// | `lead` | what follows |
    /// |---|---|
    /// | returns `Ok` while it leads | the leadership is given up, and `run` returns the value, or stands [again](Self::again) |
    /// | returns `Ok` after its term has ended, or because it was told to end | `run` stands for election again |
    /// | [resigns](Term::resign), whatever it returns afterwards | `run` stands back until another has led, or a lease has passed, and then stands again |
    /// | returns an error, or panics | it is logged, and `run` stands again after a pause, which grows from 0.1 s to a lease and begins anew after a term of a lease |
    ///
    /// A closure is told to end when its lease is lost, when the client stops waiting or is closed,
    /// and when the token of [`with_cancel`](Self::with_cancel) is cancelled. See
    /// [`Term::cancel_token`]. While no server can be reached, `run` keeps trying, from its first
    /// attempt on, with pauses of 2 s at most.
    ///
    /// # Errors
    /// - [`Closed`](ErrorKind::Closed) once the client [stops
    ///   waiting](crate::LockClient::stop_waiting) or is closed, and
    ///   [`Cancelled`](ErrorKind::Cancelled) once the token is cancelled: after `lead` returned.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) when the client was built with `fencing(false)`,
    ///   because the numbers of terms are fencing tokens.
    /// - Errors of [`ReentrantMutex::lock`](crate::ReentrantMutex::lock) that no pause mends.
    pub fn run<T, E: Display>(
        &self,
        mut lead: impl FnMut(&Term) -> std::result::Result<T, E>,
    ) -> Result<T> {
        self.handle.usable()?;
        self.check_numbers()?;
        let client = &self.handle.client;
        let stops = client.life.stops().child();
        let token = self.handle.terms.cancel.as_ref();
        let _by_token = token.map(|token| token.wakes(Arc::new(stops.clone())));
        let mut pause = Backoff::new(FIRST_PAUSE, client.config.lease.max(FIRST_PAUSE));
        loop {
            let guard = self.stand(&stops)?;
            let begun = os::now();
            let ended = self.lead_once(guard, &stops, &mut lead)?;
            if os::since(begun) >= client.config.lease {
                pause.reset();
            }
            match ended {
                Ended::Done(value) if !self.again => return Ok(value),
                Ended::Done(_) | Ended::Told => {}
                Ended::Resigned(own) => self.stand_back(own.as_str(), &stops),
                Ended::Failed => {
                    let _ = stops.wait_timeout(pause.next());
                }
            }
        }
    }

    /// Who leads now: one look, and a second request if it is another client. `None` if nobody
    /// does.
    ///
    /// # Errors
    /// When the request fails, or the key is not a lock. Safe to repeat.
    pub fn leader(&self) -> Result<Option<Leader>> {
        Leader::of(&self.handle)
    }

    /// Who leads, now and after each change: an iterator whose `next` blocks until the leader, its
    /// term or its data is another one. The first answers at once.
    ///
    /// It looks every third of a lease, so it may be late by as much, and misses terms that were
    /// shorter. It never goes back to an earlier term.
    ///
    /// It ends when the client stops waiting or is closed, or the token of the handle is cancelled:
    /// the last item is that error. Other errors are passed on, and it goes on after them.
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch::new(self.handle.clone())
    }

    /// Asks the leader to give way. It learns of it with its next renewal, within a third of its
    /// lease, and decides: [`Term::is_requested`]. If it [resigns](Term::resign), all who stand for
    /// election may win. One round trip.
    ///
    /// Returns false if nobody leads, or the lock is held by somebody who does not stand for
    /// election, such as a client of Java. The request ends with the term. With ZooKeeper and ACLs,
    /// whoever asks needs the right to write the leader's node.
    ///
    /// # Errors
    /// When the request fails. Safe to repeat: a repeat asks again.
    pub fn request(&self) -> Result<bool> {
        let name = self.handle.usable()?;
        let asked = self.handle.client.store.data().and_then(|data| data.ask_for(name));
        asked.map_err(|e| e.for_name(&name.name))
    }

    /// The numbers of terms are fencing tokens.
    fn check_numbers(&self) -> Result<()> {
        if self.handle.terms.token != TokenRule::Off {
            return Ok(());
        }
        let why = "terms are numbered by fencing tokens: build the client with fencing";
        Err(Error::named(ErrorKind::InvalidInput, self.name(), why))
    }

    /// The lock. Tries again while no server can be reached.
    fn stand(&self, stops: &CancelToken) -> Result<Guard<Hold, Movable>> {
        let lease = self.handle.client.config.lease;
        let mut pause = Backoff::new(FIRST_PAUSE, lease.clamp(FIRST_PAUSE, LONGEST_RETRY));
        let mut level = log::Level::Warn;
        loop {
            match without_deadline(self.handle.owned(Kind::Mutex, Deadline::Never)) {
                Err(e) if e.is_transient() => {
                    let name = self.name();
                    log::line!(level, "{name:?} cannot be stood for, trying again: {}", e.chain());
                    // A warning for each outage, not for each attempt.
                    level = log::Level::Debug;
                    let _ = stops.wait_timeout(pause.next());
                }
                stood => return stood,
            }
        }
    }

    fn lead_once<T, E: Display>(
        &self,
        guard: Guard<Hold, Movable>,
        stops: &CancelToken,
        lead: &mut impl FnMut(&Term) -> std::result::Result<T, E>,
    ) -> Result<Ended<T>> {
        let term = Term::begin(&guard, stops, self.handle.client.config.lease)?;
        if !self.handle.client.is_forked() {
            let outcomes = &self.handle.client.seen.outcomes;
            outcomes.term_began(self.name(), term.cancel_token());
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| lead(&term)));
        let is_told = !term.is_leader();
        let is_lost = matches!(guard.unlock(), Err(e) if e.kind() == ErrorKind::Lost);
        Ok(match outcome {
            _ if term.has_resigned() => Ended::Resigned(term.holder().clone()),
            Ok(Ok(_)) if is_told || is_lost => Ended::Told,
            Ok(Ok(value)) => Ended::Done(value),
            Ok(Err(e)) => {
                log::warn!("the leader of {:?} failed, and stands again: {e}", self.name());
                Ended::Failed
            }
            Err(_) => {
                log::warn!("the leader of {:?} panicked, and stands again", self.name());
                Ended::Failed
            }
        })
    }

    /// Until another has led since this holder, or a lease has passed.
    fn stand_back(&self, own: &str, stops: &CancelToken) {
        let lease = self.handle.client.config.lease;
        let begun = os::now();
        let mut pause = Backoff::new(lease.min(FIRST_LOOK), lease.min(LAST_LOOK));
        while os::since(begun) < lease && !self.has_led_since(own) {
            if stops.wait_timeout(pause.next()) {
                return;
            }
        }
    }

    /// Whether somebody else leads, or has led since this holder. The record of the last holder
    /// shows also a term that has ended before this look: otherwise two that resign one right after
    /// the other would stand back for each other. (ZooKeeper has none.)
    fn has_led_since(&self, own: &str) -> bool {
        let client = &self.handle.client;
        let last = |name| client.store.data().and_then(|data| data.last_hold(name));
        let last = self.handle.usable().and_then(|name| last(name));
        if last.is_ok_and(|last| last.is_some_and(|last| last.holder != own)) {
            return true;
        }
        self.leader().is_ok_and(|leader| leader.is_some_and(|leader| leader.holder().id() != own))
    }
}
