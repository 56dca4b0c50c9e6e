//! One outermost call under way. It has a holder of its own, and it knows what its requests may
//! have left at the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::data::HoldData;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::limits::too_few;
use crate::base::lock_name::{Kind, LockName};
use crate::base::primitive::Primitive;
use crate::base::random;
use crate::lease::records::HoldRequest;
use crate::os;
use crate::report::record::CallRecord;
use crate::report::spans::Span;
use crate::signal::cancel::{CancelToken, cancelled};
use crate::store::{Acquire, Acquired, AcquiredAll, Granted, TokenRule, UnknownOutcomes, Waiting};
use crate::wait::client_state::ClientState;
use crate::wait::leftovers::Leftovers;
use crate::wait::life::Call;
use crate::wait::waits::WaitEntry;

/// On drop: undoes requests of unknown outcome, leaves the queue and removes the wait marker.
pub(crate) struct AcquireAttempt<'a> {
    pub(crate) client: &'a Arc<ClientState>,
    /// The name that it waits for; for several names taken as one, the one that blocked it last.
    pub(crate) name: &'a Arc<LockName>,
    pub(super) wanted: Wanted<'a>,
    pub(crate) holder: Holder,
    /// Ends the waits of this call.
    pub(crate) cancel: Option<&'a CancelToken>,
    /// How many fencing tokens a request draws.
    pub(crate) tokens: u32,
    /// The client's generation, read before the last request was sent or left for another thread to
    /// send.
    pub(super) generation: u64,
    pub(super) traces: Leftovers,
    /// Whether it has a deadline to wait until, or none.
    pub(crate) may_wait: bool,
    /// Set once the lock was found taken.
    announced: Option<Announced>,
    /// Its entry among the waits of the client.
    wait: Option<WaitEntry<'a>>,
    /// The last field: unknown outcomes reach the watchdog before the call counts as over.
    call: Call,
}

/// What a call asks for.
pub(crate) struct Wanted<'a> {
    /// All names that it takes under its holder, and therefore has to undo.
    pub(crate) all: &'a [Arc<LockName>],
    pub(crate) primitive: Primitive,
    pub(crate) permits: u32,
    pub(crate) lease: Duration,
    pub(crate) token: TokenRule,
}

impl<'a> Wanted<'a> {
    /// For a call that gets no fencing token: permits, or a wait for a latch or for a job.
    pub(crate) fn permits(name: &'a Arc<LockName>, permits: u32, lease: Duration) -> Self {
        let all = std::slice::from_ref(name);
        Self { all, primitive: name.kind.into(), permits, lease, token: TokenRule::Off }
    }
}

/// The result of one try.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    Won(T),
    /// Another holder has it; for how long, if that is known.
    Busy(Option<Duration>),
}

impl<'a> AcquireAttempt<'a> {
    /// `name`: the one that it wants; for several names taken as one, any of them.
    ///
    /// # Errors
    /// `Closed`; and why it does not begin to wait, unless it only re-enters holds of its thread:
    /// that is no wait.
    pub(crate) fn new(
        client: &'a Arc<ClientState>,
        name: &'a Arc<LockName>,
        wanted: Wanted<'a>,
        cancel: Option<&'a CancelToken>,
    ) -> Result<Self> {
        let only_reenters = wanted.all.is_empty();
        let attempt = Self {
            client,
            name,
            wanted,
            holder: fresh_holder(client, name.kind),
            cancel,
            tokens: 1,
            generation: 0,
            traces: Leftovers::default(),
            may_wait: false,
            announced: None,
            wait: None,
            call: client.life.count_call(),
        };
        // Only once the call is counted: a close either sees the call and waits for it, or the call
        // sees the close.
        if only_reenters {
            client.life.ensure_open().map_err(|e| e.for_name(&name.name))?;
        } else {
            attempt.ensure_waits()?;
        }
        Ok(attempt)
    }

    /// Its grant writes this data beside the hold. Call it before the first request.
    pub(crate) fn writes(&mut self, data: &HoldData) {
        self.holder = self.holder.clone().with_data(Some(data.clone()));
    }

    /// # Errors
    /// Why it stopped waiting and sends no more requests: `Closed`, `Cancelled`.
    pub(crate) fn ensure_waits(&self) -> Result<()> {
        if self.is_ended() { Err(self.why_ended()) } else { Ok(()) }
    }

    /// Whether it has stopped waiting and sends no more requests.
    pub(crate) fn is_ended(&self) -> bool {
        self.client.life.has_stopped() || matches!(self.cancel, Some(token) if token.is_cancelled())
    }

    #[cold]
    fn why_ended(&self) -> Error {
        let why = self.client.life.ensure_waits().err().unwrap_or_else(cancelled);
        why.for_name(&self.name.name)
    }

    /// The outcome of the call. If it was ended during an outage, the error reports that it was
    /// ended, as its caller asked, and not the outage.
    pub(crate) fn end<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(e) if e.kind().is_outage() && self.is_ended() => Err(self.why_ended().caused_by(e)),
            outcome => outcome,
        }
    }

    /// The request. `waits`: it will be repeated if the lock is busy.
    pub(crate) fn request(&self, waits: bool) -> Acquire<'_> {
        let Self { name, holder, wanted: Wanted { permits, lease, token, .. }, .. } = self;
        let waiting = match (waits, self.traces.queued) {
            (false, _) => Waiting::No,
            (true, false) => Waiting::Yes,
            (true, true) => Waiting::Again,
        };
        Acquire {
            name,
            holder,
            permits: *permits,
            lease: *lease,
            held: 0,
            token: *token,
            tokens: self.tokens,
            waiting,
            goes_on: self.may_wait,
        }
    }

    /// What a request that was sent at this moment asked for.
    pub(crate) fn asked(&self, at: Moment, is_renewed: bool) -> HoldRequest {
        let Self { name, holder, generation, .. } = self;
        let Wanted { primitive, permits, lease, .. } = &self.wanted;
        HoldRequest {
            name: Arc::clone(name),
            primitive: *primitive,
            holder: holder.clone(),
            permits: *permits,
            lease: *lease,
            is_renewed,
            at,
            generation: *generation,
        }
    }

    pub(crate) fn ask(&mut self, waits: bool) -> Result<Tried<Granted>> {
        let gets_place = waits && self.name.kind.has_queue();
        let before = if gets_place { Some(self.before_request()) } else { None };
        for split in 0..MAX_SPLITS {
            let acquired = self.ask_with(|attempt, unknowns| {
                attempt.note_marker(waits);
                attempt.client.store.acquire(&attempt.request(waits), unknowns)
            });
            let Ok(Acquired::Split { round }) = acquired else {
                if let Some(before) = before {
                    self.note_place(&before, &acquired);
                }
                return self.judge(acquired);
            };
            // After pauses of equal length each caller would get a part again.
            let longest = round.max(Duration::from_micros(500)) * (1 << split);
            os::thread::sleep(longest.mul_f64(random::fraction()));
        }
        Ok(Tried::Busy(Some(Duration::from_millis(5 + random::number() % 20))))
    }

    /// Call this before a request is sent or left for another thread.
    pub(crate) fn begin_request(&mut self) {
        self.generation = self.client.watchdog.generation();
    }

    /// Call this before a request. `waits`: it will be repeated if the lock is busy.
    pub(crate) fn note_marker(&mut self, waits: bool) {
        self.traces.has_marker |= waits && self.leaves_marker();
    }

    /// A waiter of a fair lock leaves an entry in its queue; a waiting writer leaves a marker that
    /// keeps new readers out. In a store that queues all waiters, each has a place.
    fn leaves_marker(&self) -> bool {
        let kind = self.name.kind;
        kind.leaves_marker() || self.client.store.queues_all() && kind.can_be_held()
    }

    /// Whether a request that waits gets a place in a queue in the store.
    pub(super) fn takes_place(&self) -> bool {
        self.name.kind.has_queue() || self.client.store.queues_all() && self.leaves_marker()
    }

    /// Whether it has a place in a queue in the store, and sends its own requests.
    pub(crate) fn has_place(&self) -> bool {
        self.name.kind.has_queue() || self.traces.has_marker && self.client.store.queues_all()
    }

    /// Processes the outcome of an acquire of all names.
    pub(crate) fn note_all(&mut self, acquired: &Result<AcquiredAll>) {
        match acquired {
            Ok(AcquiredAll::Granted { .. }) => {
                (self.traces.has_marker, self.traces.queued) = (false, false);
            }
            Ok(_) => self.traces.queued = self.traces.has_marker,
            Err(_) => {}
        }
    }

    /// Processes the outcome of an acquire that another thread sent with its release.
    pub(crate) fn on_piggyback_reply(
        &mut self,
        acquired: Result<Acquired>,
        unknowns: UnknownOutcomes,
    ) -> Result<Tried<Granted>> {
        self.note_marker(true);
        self.traces.unknowns = unknowns;
        if let Some(spent) = self.traces.unknowns.take_spent() {
            self.replace_spent(spent);
        }
        self.judge(acquired)
    }

    fn judge(&mut self, acquired: Result<Acquired>) -> Result<Tried<Granted>> {
        let name = &self.name.name;
        match acquired {
            Ok(Acquired::Granted(granted)) => {
                (self.traces.has_marker, self.traces.queued) = (false, false);
                Ok(Tried::Won(granted))
            }
            Ok(Acquired::Busy { ttl } | Acquired::Queued { ttl, .. }) => {
                self.traces.queued = self.traces.has_marker;
                Ok(Tried::Busy(ttl))
            }
            Ok(Acquired::Split { .. }) => Ok(Tried::Busy(None)),
            Ok(Acquired::TooFew { permits }) => Err(too_few(self.name, permits)),
            Ok(Acquired::Gone) => Err(never_held(name)),
            Err(e) => Err(e.for_name(name)),
        }
    }

    /// Whether the listener or the tracer has yet to be told that this call waits. Until then it
    /// leads no queue while it does not ask, and leaves nothing in the store that others would wait
    /// for: code of the user that blocks must delay nobody else.
    pub(crate) fn must_announce(&self) -> bool {
        self.announced.is_none() && self.client.seen.observer.calls_user()
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.is_some()
    }

    /// Tells the user that the call waits, once. Code of the user may block: the call has no role
    /// and no place now, and a close does not wait for it, unless it has something to undo.
    pub(crate) fn announce(&mut self, deadline: Deadline) {
        if self.announced.is_some() {
            return;
        }
        let calls_user = self.must_announce();
        if calls_user {
            // People see where a call hangs.
            self.enter_wait(deadline);
        }
        // With something left at the server it counts: a close that ended in this moment would have
        // stopped the watchdog, and nobody would undo a place or a wait marker.
        let has_left_nothing = self.is_resolved() && !self.traces.has_marker;
        let _uncounted = (calls_user && has_left_nothing).then(|| self.call.pause());
        let observer = &self.client.seen.observer;
        let primitive = self.wanted.primitive;
        let since = os::now();
        observer.tell_of(&self.name.name, primitive, |listener, lock| listener.waiting(lock));
        self.announced = Some(Announced { since, span: observer.wait_span(self.name, primitive) });
    }

    /// The call waits from now on for its name.
    pub(crate) fn begin_wait(&mut self, deadline: Deadline) {
        self.announce(deadline);
        self.enter_wait(deadline);
    }

    fn enter_wait(&mut self, deadline: Deadline) {
        if self.wait.is_none() {
            self.wait = Some(begin_wait(self.client, self.name, self.wanted.primitive, deadline));
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    pub(crate) fn primitive(&self) -> Primitive {
        self.wanted.primitive
    }

    /// Takes over a wait that has already begun for this call.
    pub(crate) fn note_wait(&mut self, wait: Option<WaitEntry<'a>>) {
        self.wait = self.wait.take().or(wait);
    }

    /// From now on it waits for another of its names.
    pub(crate) fn set_name(&mut self, name: &'a Arc<LockName>) {
        self.name = name;
        if let Some(wait) = &self.wait {
            wait.set_name(name);
        }
    }

    /// To be called at its end, whatever that is.
    pub(crate) fn end_wait(&mut self, record: &mut CallRecord) {
        if let Some(announced) = &mut self.announced {
            record.note_wait(self.name, os::since(announced.since), announced.span.take());
        }
    }

    /// No earlier request can still run.
    pub(crate) fn is_resolved(&self) -> bool {
        self.traces.unknowns.is_empty()
    }
}

/// That a call waits, as its listener and its tracer know it.
#[derive(Debug)]
struct Announced {
    since: Instant,
    span: Option<Span>,
}

/// Enters a wait of the calling thread among those of the client.
pub(crate) fn begin_wait<'a>(
    client: &'a Arc<ClientState>,
    name: &Arc<LockName>,
    primitive: Primitive,
    deadline: Deadline,
) -> WaitEntry<'a> {
    if primitive == Primitive::Fair {
        // Others see its place in the queue, and ask whose it is.
        client.watchdog.introduce();
    }
    client.seen.waits.begin(name, primitive, deadline)
}

/// The holder is fresh: only a server that mixes up its replies says that its hold is gone.
#[cold]
pub(crate) fn never_held(name: &str) -> Error {
    Error::named(ErrorKind::Protocol, name, "the server reported a hold that was never requested")
}

/// After this many rounds in which no caller got all parts of a lock, it counts as busy.
const MAX_SPLITS: u32 = 4;

pub(super) fn fresh_holder(client: &ClientState, kind: Kind) -> Holder {
    match kind {
        Kind::Semaphore | Kind::RateLimiter => Holder::random_permits(),
        _ => client.who.id.fresh_holder(),
    }
}
