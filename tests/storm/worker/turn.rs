//! One acquire attempt of a thread, its use of the hold, and the release.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{CancelToken, CountingPermit, ErrorKind, Held, LockClient, Result};
use rand::RngExt;
use rand::rngs::StdRng;

use super::job::{self, PAUSES};
use super::lead;
use crate::event::{Journal, Kind, LatchCall, Nanos, What, now};
use crate::rig::{ms, signal};

/// What all threads of a process share.
pub(crate) struct Place {
    pub(crate) client: LockClient,
    pub(crate) journal: std::sync::Arc<Journal>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) lease: Duration,
    /// See `Settings::clock`.
    pub(crate) clock: Duration,
    pub(crate) min_hold: bool,
    /// The next thread that gets a lock forks.
    pub(crate) fork: AtomicBool,
    /// Until this time a holder keeps its lock, unless it is lost earlier.
    pub(crate) keep_until: AtomicU64,
    /// Stop acquiring.
    pub(crate) over: AtomicBool,
    pub(crate) attempts: AtomicU64,
}

impl Place {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Sleeps for that long, or until the end of the storm.
    pub(crate) fn sleep(&self, span: Duration) {
        sleep_unless(span, &self.over);
    }
}

/// The names of each kind: few, so that threads meet.
pub(crate) fn names_of(kind: Kind) -> &'static [&'static [&'static str]] {
    match kind {
        Kind::Plain => &[&["m0"], &["m0"], &["m1"]],
        Kind::Fair => &[&["f0"]],
        Kind::Read | Kind::Write => &[&["r0"]],
        Kind::Permit => &[&["s0"]],
        Kind::Multi => &[&["m0", "m1"], &["m1", "m2"]],
        Kind::Count => &[&["c0"]],
        Kind::Job => &[&["j0"], &["j0"], &[PAUSES]],
        Kind::Leader => &[&["e0"]],
    }
}

/// The name of the one latch.
pub(crate) const LATCH: &str = "l0";

/// The number of permits.
pub(crate) const PERMITS: u32 = 2;

/// The number of permits without a lease: some are lost with processes that are killed.
pub(crate) const COUNTED: u32 = 6;

/// The parameters of one attempt.
pub(super) struct Turn<'a> {
    pub(super) place: &'a Place,
    thread: u32,
    attempt: u64,
    names: &'static [&'static str],
    /// How long it works.
    pub(super) section: Duration,
    /// Continues after a loss, like a careless program.
    careless: bool,
    reenters: bool,
    extends: bool,
}

/// How long a call waits.
#[derive(Clone, Copy)]
enum Patience {
    None,
    For(Duration),
    Ever,
}

impl Patience {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0 => Self::None,
            1 => Self::For(ms(rng.random_range(1..200))),
            2..4 => Self::For(ms(2000)),
            4..7 => Self::For(ms(12_000)),
            _ => Self::Ever,
        }
    }

    fn nanos(self) -> Option<Nanos> {
        match self {
            Self::None => Some(0),
            Self::For(span) => Some(u64::try_from(span.as_nanos()).unwrap()),
            Self::Ever => None,
        }
    }
}

/// Calls the form of a method that waits this long.
macro_rules! ask {
    ($handle:expr, $patience:expr, $lock:ident, $try_now:ident, $try_for:ident) => {
        match $patience {
            Patience::None => $handle.$try_now(),
            Patience::For(span) => $handle.$try_for(span),
            Patience::Ever => $handle.$lock().map(Some),
        }
    };
}

/// Mostly short; rarely longer than a lease.
fn random_section(rng: &mut StdRng, lease: Duration) -> Duration {
    match rng.random_range(0..100) {
        0..60 => ms(rng.random_range(0..5)),
        60..95 => ms(rng.random_range(5..40)),
        95..99 => ms(rng.random_range(100..400)),
        _ if rng.random_bool(0.5) => ms(0),
        _ => lease.mul_f64(rng.random_range(1.1..1.4)),
    }
}

/// One call of the latch, which has no holder.
fn use_latch(place: &Place, thread: u32, rng: &mut StdRng) {
    let latch = place.client.latch(LATCH);
    let call = match rng.random_range(0..4) {
        0 => LatchCall::Set(rng.random_range(1..4)),
        1 | 2 => LatchCall::Down,
        _ => LatchCall::Wait,
    };
    let attempt = place.attempts.fetch_add(1, Ordering::SeqCst);
    place.journal.note(now(), thread, attempt, What::Latch(call));
    let outcome = match call {
        LatchCall::Set(count) => latch.try_set_count(count),
        LatchCall::Down => latch.count_down().map(|_| true),
        LatchCall::Wait => latch.wait_for(ms(rng.random_range(1..100))),
    };
    place.journal.note(now(), thread, attempt, What::Said { yes: outcome.as_ref().ok().copied() });
    if let Err(e) = outcome {
        let never =
            [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::Closed, ErrorKind::Denied];
        assert!(!never.contains(&e.kind()), "using a latch: {e:?}");
    }
}

/// One attempt of the thread, from the call to the release.
pub(crate) fn take(place: &Place, thread: u32, rng: &mut StdRng) {
    // A deployment with fair locks also has latches.
    if place.kinds.contains(&Kind::Fair) && rng.random_bool(0.06) {
        return use_latch(place, thread, rng);
    }
    let kind = place.kinds[rng.random_range(0..place.kinds.len())];
    let names = names_of(kind);
    let names = names[rng.random_range(0..names.len())];
    let is_lock = !matches!(kind, Kind::Permit | Kind::Count);
    // Has a fixed lease, which it often uses to its end.
    let fixed = (is_lock && rng.random_bool(0.06)).then(|| ms(rng.random_range(150..700)));
    let whole = fixed
        .filter(|_| rng.random_bool(0.5))
        .map(|lease| lease.mul_f64(rng.random_range(0.8..1.4)));
    let turn = Turn {
        place,
        thread,
        attempt: place.attempts.fetch_add(1, Ordering::SeqCst),
        names,
        section: whole.unwrap_or_else(|| random_section(rng, place.lease)),
        careless: rng.random_bool(0.3),
        reenters: kind == Kind::Plain && rng.random_bool(0.1),
        extends: rng.random_bool(0.03),
    };
    match kind {
        Kind::Job => return job::call(turn, rng),
        Kind::Leader => return lead::call(turn, rng),
        _ => {}
    }
    let patience = match Patience::random(rng) {
        // They may all be lost.
        Patience::Ever if kind == Kind::Count => Patience::For(ms(12_000)),
        patience => patience,
    };
    // Some have a minimum hold time, some are cancelled from outside.
    let least = (place.min_hold && kind == Kind::Plain && fixed.is_none() && rng.random_bool(0.03))
        .then(|| ms(300));
    // Readers are let in together, so a cancelled one may be let in at that moment.
    let (cancelled, within) = if kind == Kind::Read { (0.3, 60) } else { (0.04, 300) };
    let cancel = rng.random_bool(cancelled).then(|| ms(rng.random_range(1..within)));
    let moves = rng.random_bool(0.05);
    let fixed_nanos = fixed.map(|lease| u64::try_from(lease.as_nanos()).unwrap());
    turn.asks(kind, patience.nanos(), fixed_nanos);
    let token = CancelToken::new();
    let client = &place.client;
    macro_rules! handle {
        ($handle:expr) => {{
            let handle = $handle.with_cancel(&token);
            if let Some(lease) = fixed { handle.with_lease(lease) } else { handle }
        }};
    }
    // Cancels the wait of this attempt, unless it ends earlier.
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        if let Some(after) = cancel {
            let (token, done) = (&token, &done);
            s.spawn(move || {
                sleep_unless(after, done);
                token.cancel();
            });
        }
        match kind {
            Kind::Plain => {
                let handle = handle!(client.mutex(names[0]));
                let handle = if let Some(least) = least { handle.min_hold(least) } else { handle };
                if moves {
                    let won =
                        ask!(handle, patience, lock_owned, try_lock_owned, try_lock_owned_for);
                    turn.elsewhere(won, |guard| vec![guard.fencing_token().unwrap().get()]);
                } else {
                    turn.goes_on(ask!(handle, patience, lock, try_lock, try_lock_for), one_token);
                }
            }
            Kind::Fair => {
                let handle = handle!(client.fair(names[0]));
                turn.goes_on(ask!(handle, patience, lock, try_lock, try_lock_for), one_token);
            }
            Kind::Read => {
                let handle = handle!(client.rw_lock(names[0]));
                turn.goes_on(ask!(handle, patience, read, try_read, try_read_for), |_| Vec::new());
            }
            Kind::Write => {
                let handle = handle!(client.rw_lock(names[0]));
                turn.goes_on(ask!(handle, patience, write, try_write, try_write_for), one_token);
            }
            Kind::Permit => {
                let handle = client.semaphore(names[0]).with_cancel(&token);
                turn.goes_on(ask!(handle, patience, acquire, try_acquire, try_acquire_for), |_| {
                    Vec::new()
                });
            }
            Kind::Count => {
                let handle = client.counting_semaphore(names[0]).with_cancel(&token);
                turn.counts(ask!(handle, patience, acquire, try_acquire, try_acquire_for));
            }
            Kind::Multi => {
                let handle = handle!(client.multi(names));
                turn.goes_on(ask!(handle, patience, lock, try_lock, try_lock_for), |guard| {
                    names.iter().map(|name| guard.fencing_token(name).unwrap().get()).collect()
                });
            }
            Kind::Job | Kind::Leader => unreachable!("not taken like a lock"),
        }
        done.store(true, Ordering::SeqCst);
    });
}

fn one_token(guard: &impl Held) -> Vec<u64> {
    guard.fencing_token().map(|token| token.get()).into_iter().collect()
}

fn sleep_unless(span: Duration, done: &AtomicBool) {
    let until = Instant::now() + span;
    while !done.load(Ordering::SeqCst) && Instant::now() < until {
        // Often enough for the end of a storm, and seldom enough for one that lasts for hours.
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min((span / 20).max(ms(5))));
    }
}

impl Turn<'_> {
    pub(super) fn note(&self, at: Nanos, what: What) {
        self.place.journal.note(at, self.thread, self.attempt, what);
    }

    pub(super) fn asks(&self, kind: Kind, patience: Option<Nanos>, fixed: Option<Nanos>) {
        let names = self.names.iter().map(|name| (*name).to_owned()).collect();
        self.note(now(), What::Asks { kind, names, patience, fixed });
    }

    /// The first of the names.
    pub(super) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The thread asks again.
    pub(super) fn begin_again(&mut self) {
        self.attempt = self.place.attempts.fetch_add(1, Ordering::SeqCst);
    }

    fn goes_on<G: Held>(&self, won: Result<Option<G>>, tokens: impl FnOnce(&G) -> Vec<u64>) {
        self.goes_on_with(won, tokens, |guard| self.work(guard));
    }

    fn goes_on_with<G>(
        &self,
        won: Result<Option<G>>,
        tokens: impl FnOnce(&G) -> Vec<u64>,
        work: impl FnOnce(G),
    ) {
        let at = now();
        match won {
            Ok(Some(guard)) => {
                self.note(at, What::Got { tokens: tokens(&guard) });
                work(guard);
            }
            Ok(None) => self.note(at, What::Vain),
            Err(e) => self.fails(&e),
        }
    }

    /// The answer of a call that takes nothing.
    pub(super) fn answers(&self, words: &str) {
        self.note(now(), What::Vain);
        self.note(now(), What::Says { words: words.to_owned() });
    }

    pub(super) fn fails(&self, e: &leasehold::Error) {
        let (error, message) = (format!("{:?}", e.kind()), e.to_string());
        self.note(now(), What::Failed { error, message });
        std::thread::sleep(ms(20));
    }

    /// Moves the guard to another thread.
    fn elsewhere<G: Held + Send>(
        &self,
        won: Result<Option<G>>,
        tokens: impl FnOnce(&G) -> Vec<u64> + Send,
    ) {
        std::thread::scope(|s| drop(s.spawn(|| self.goes_on(won, tokens)).join()));
    }

    /// A permit without a lease cannot be lost: it is had until it is given back.
    fn counts(&self, won: Result<Option<CountingPermit>>) {
        self.goes_on_with(
            won,
            |_| Vec::new(),
            |permit| {
                let has_it = || self.note(now(), What::Looked { held: true, until: now() });
                has_it();
                std::thread::sleep(self.section);
                has_it();
                self.gives(|| permit.release());
            },
        );
    }

    fn gives(&self, release: impl FnOnce() -> Result<()>) {
        let from = now();
        let answer = release().map_or_else(|e| format!("{:?}", e.kind()), |()| "ok".to_owned());
        self.note(from, What::Gave { answer, until: now() });
    }

    fn work<G: Held>(&self, guard: G) {
        self.use_it(&guard);
        self.gives(|| guard.unlock());
    }

    /// All that it does while it holds something.
    pub(super) fn use_it(&self, guard: &impl Held) {
        let (journal, thread, attempt) = (self.place.journal.clone(), self.thread, self.attempt);
        guard.on_lost(Box::new(move |loss| {
            journal.note(
                now(),
                thread,
                attempt,
                What::Told { reason: format!("{:?}", loss.reason()) },
            );
        }));
        let lost = guard.lost();
        self.keep(|| guard.is_held(), || self.on_the_way(guard));
        if lost.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected) {
            self.note(now(), What::Signalled);
        }
    }

    /// Keeps what it holds for its time, or until it is lost. Returns what the last look said.
    pub(super) fn keep(&self, is_held: impl Fn() -> bool, on_the_way: impl FnOnce()) -> bool {
        let until = Instant::now() + self.section;
        let (mut looks, mut on_the_way) = (0_u32, Some(on_the_way));
        loop {
            let held = self.look(&is_held);
            if let Some(act) = on_the_way.take() {
                act();
            }
            looks += 1;
            let kept = Duration::from_nanos(
                self.place.keep_until.load(Ordering::SeqCst).saturating_sub(now()),
            );
            let left = until.saturating_duration_since(Instant::now()).max(kept);
            if left.is_zero() || (!held && !self.careless) {
                break;
            }
            std::thread::sleep(left.min(ms(if looks < 20 { 2 } else { 15 })));
        }
        self.look(&is_held)
    }

    fn look(&self, is_held: impl Fn() -> bool) -> bool {
        let at = now();
        let held = is_held();
        self.note(at, What::Looked { held, until: now() });
        held
    }

    /// What a program may do in addition while it has the lock.
    fn on_the_way(&self, guard: &impl Held) {
        if self.place.fork.swap(false, Ordering::SeqCst) {
            self.fork(guard);
        }
        if self.extends {
            // The following calls of `is_held` show whether it worked.
            let _ = guard.extend(self.place.lease);
        }
        // Only the thread that took it can re-enter.
        if self.reenters && guard.hold_count() == 1 {
            self.reenter(guard);
        }
    }

    fn reenter(&self, guard: &impl Held) {
        match self.place.client.mutex(self.names[0]).try_lock() {
            Ok(Some(inner)) => drop(inner.unlock()),
            // An owned guard does not belong to its thread, which cannot re-enter.
            Ok(None) => {}
            Err(e) => {
                let fine = e.is_outage() || matches!(e.kind(), ErrorKind::Lost | ErrorKind::Closed);
                assert!(fine || !guard.is_held(), "re-entering: {e}");
            }
        }
    }

    fn fork(&self, guard: &impl Held) {
        match fork::fork() {
            Ok(fork::Fork::Child) => {
                let held = guard.is_held();
                // A child that mistakes itself for its parent could wait forever for one of its
                // mutexes.
                let answer = if held {
                    "not-asked".to_owned()
                } else {
                    format!("{:?}", self.place.client.try_lock("other").err().map(|e| e.kind()))
                };
                self.note(now(), What::Forked { held, answer });
                std::process::exit(0);
            }
            Ok(fork::Fork::Parent(pid)) => {
                let ended = AtomicBool::new(false);
                std::thread::scope(|s| {
                    // A child that mistakes itself for its parent may hang on exit, and would
                    // outlive the run.
                    s.spawn(|| {
                        sleep_unless(ms(3000), &ended);
                        if !ended.load(Ordering::SeqCst) {
                            signal(u32::try_from(pid).unwrap(), "KILL");
                        }
                    });
                    let _ = fork::waitpid(pid);
                    ended.store(true, Ordering::SeqCst);
                });
            }
            Err(e) => panic!("fork: {e}"),
        }
    }
}
