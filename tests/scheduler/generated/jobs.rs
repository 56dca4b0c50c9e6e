//! Steps with a scheduled job, and the model of it: at most one success is recorded for each
//! occurrence, and nobody begins after it, unless it was forgotten.
//!
//! The order is that of the fencing tokens; what was asked, and what was answered, has a number.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use leasehold::os::thread::sleep;
use leasehold::os::{now, since};
use leasehold::{Error, ErrorKind, LockClient, Once, ScheduledJob, Settled};

use super::ledger::SOON;
use super::play::Play;
use super::program::{Client, Ending, Family, Fire, Program, Step};
use super::text::name_of;
use crate::book::pause;
use crate::stage::OnPurpose;

/// Nobody gives up.
const ATTEMPTS: u32 = 99;

/// An occurrence that comes after all of a program.
const LAST: u8 = 9;

thread_local! {
    static JOBS: RefCell<Jobs> = RefCell::default();
}

#[derive(Default)]
struct Jobs {
    /// Counts what happens.
    tick: u64,
    jobs: Vec<Job>,
}

#[derive(Default)]
struct Job {
    calls: Vec<Call>,
    forgets: Vec<Forget>,
    /// Those that are in their closure.
    inside: usize,
}

/// A call of `run`.
struct Call {
    occurrence: u8,
    asked: u64,
    run: Option<Run>,
    said: Option<Said>,
}

struct Run {
    token: u64,
    number: u32,
    began: u64,
}

struct Said {
    tick: u64,
    at: Instant,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Done,
    /// Nobody knows whether it is recorded.
    Unrecorded,
    Failed,
    /// It has not run.
    Nothing,
}

struct Forget {
    occurrence: u8,
    asked: u64,
    /// `None`: nobody knows when it runs.
    ended: Option<u64>,
}

fn with<T>(thing: usize, run: impl FnOnce(&mut Job, u64) -> T) -> T {
    JOBS.with_borrow_mut(|jobs| {
        jobs.tick += 1;
        let tick = jobs.tick;
        run(&mut jobs.jobs[thing], tick)
    })
}

pub(crate) fn begin(things: usize) {
    let jobs = (0..things).map(|_| Job::default()).collect();
    JOBS.set(Jobs { tick: 0, jobs });
}

fn handle(client: &LockClient, thing: usize, occurrence: u8) -> ScheduledJob {
    client.once(name_of(thing), occurrence.to_string()).attempts(ATTEMPTS)
}

/// A call that is under way. Its closure may panic.
struct UnderWay {
    thing: usize,
    call: usize,
    what: Cell<What>,
}

impl UnderWay {
    fn begin(thing: usize, occurrence: u8) -> Self {
        let call = with(thing, |job, asked| {
            job.calls.push(Call { occurrence, asked, run: None, said: None });
            job.calls.len() - 1
        });
        Self { thing, call, what: Cell::new(What::Nothing) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (at, what) = (now(), self.what.get());
        with(self.thing, |job, tick| job.calls[self.call].said = Some(Said { tick, at, what }));
    }
}

/// In its closure.
struct Inside(usize);

impl Drop for Inside {
    fn drop(&mut self) {
        with(self.0, |job, _| job.inside -= 1);
    }
}

impl Job {
    /// Whether a success of an occurrence may be recorded that was not forgotten for certain before
    /// that time.
    fn may_be_done(&self, is_meant: impl Fn(u8) -> bool, asked: u64, open: u8) -> bool {
        self.calls.iter().any(|call| {
            let recorded = call.said.as_ref().map_or(u64::MAX, |said| said.tick);
            let was_forgotten = |one: &Forget| {
                one.occurrence == open
                    && one.asked > recorded
                    && one.ended.is_some_and(|ended| ended < asked)
            };
            is_meant(call.occurrence)
                && call.run.is_some()
                && call.said.as_ref().is_none_or(|said| said.what != What::Failed)
                && !self.forgets.iter().any(was_forgotten)
        })
    }

    /// Whether one of these may have been forgotten between these times.
    fn may_forget(&self, from: u64, until: u64, is_meant: impl Fn(u8) -> bool) -> bool {
        self.forgets.iter().any(|one| {
            is_meant(one.occurrence)
                && one.asked < until
                && one.ended.is_none_or(|ended| ended > from)
        })
    }

    /// Whether another call was under way at some time since then.
    fn was_busy(&self, asked: u64) -> bool {
        let overlaps = |call: &&Call| call.said.as_ref().is_none_or(|said| said.tick > asked);
        self.calls.iter().filter(overlaps).count() > 1
    }

    /// What must be true of all runs together.
    fn check(&self) {
        let mut runs: Vec<(&Call, &Run)> =
            self.calls.iter().filter_map(|call| Some((call, call.run.as_ref()?))).collect();
        runs.sort_by_key(|(_, run)| run.token);
        for (place, (call, run)) in runs.iter().enumerate() {
            let number = call.occurrence;
            for (before, earlier) in &runs[..place] {
                let newer = before.occurrence;
                let again = |one| one == number || newer > number && one >= newer;
                let may_again = self.may_forget(earlier.began, run.began, again)
                    || newer > number && self.may_forget(0, run.began, |one| one == number);
                let is_done = before.said.as_ref().is_some_and(|said| said.what == What::Done);
                assert!(
                    !is_done || newer < number || may_again,
                    "the occurrence {number} began after {newer} was done"
                );
                // It was counted in the store before its closure began.
                let may_count_anew = self.may_forget(before.asked, run.began, |one| one == number);
                assert!(
                    newer != number || run.number > earlier.number || may_count_anew,
                    "attempt {} of the occurrence {number} came after {}",
                    run.number,
                    earlier.number
                );
            }
        }
    }
}

impl Play {
    pub(crate) fn fire(&self, client: Client, fire: &Fire) {
        let Fire { thing, occurrence, .. } = *fire;
        let under_way = UnderWay::begin(thing, occurrence);
        let asked = with(thing, |job, _| job.calls[under_way.call].asked);
        let is_run = Cell::new(false);
        let outcome = handle(self.client(client), thing, occurrence).run(|run| {
            under_way.what.set(What::Failed);
            is_run.set(true);
            let (token, number) = (run.fencing_token().get(), run.attempt());
            let others = with(thing, |job, began| {
                job.calls[under_way.call].run = Some(Run { token, number, began });
                job.inside += 1;
                job.inside - 1
            });
            let inside = Inside(thing);
            assert!(others == 0 || self.may_lose(thing), "{fire}: two run at a time");
            for _ in 0..2 {
                sleep(fire.works.time() / 2);
                pause();
                assert!(run.is_held() || self.may_lose(thing), "{fire}: nothing took it away");
            }
            drop(inside);
            match fire.ending {
                Ending::Fails => return Err(()),
                Ending::Panics => std::panic::panic_any(OnPurpose),
                Ending::Done | Ending::Resigns => {}
            }
            under_way.what.set(What::Unrecorded);
            Ok(())
        });
        crate::runs::tell(|| format!("{fire}: {outcome:?}"));
        match &outcome {
            Ok(Once::Done(())) => under_way.what.set(What::Done),
            Ok(Once::Unrecorded((), why)) => self.expect_unrecorded(client, fire, why),
            Ok(Once::Failed(())) => assert_eq!(fire.ending, Ending::Fails, "{fire}"),
            Ok(Once::AlreadyDone { .. }) => self.expect_done(thing, occurrence, asked, false),
            Ok(Once::Passed { .. }) => self.expect_done(thing, occurrence, asked, true),
            Ok(Once::Running { .. }) => {
                let is_busy = with(thing, |job, _| job.was_busy(asked));
                assert!(
                    is_busy || !self.is_calm(),
                    "{fire}: nobody runs, or wants to: {outcome:?}"
                );
            }
            Ok(other) => panic!("{fire}: {other:?}"),
            Err(e) => self.expect_of_job(client, fire, e),
        }
        let is_open = under_way.what.get() != What::Nothing;
        assert!(is_open == is_run.get(), "{fire}: {outcome:?}");
        drop(under_way);
        with(thing, |job, _| job.check());
    }

    /// A success whose record is unknown has a reason: an end whose reply was lost is repeated.
    fn expect_unrecorded(&self, client: Client, fire: &Fire, why: &Error) {
        let program = &self.program;
        let takes_long = |step: &Step| {
            matches!(step, Step::Cut(_) | Step::Hang(_))
                || matches!(step, Step::Close(closed) if *closed == client)
        };
        // Each repeat pauses for longer than the one before.
        let repeats =
            program.has_failures() && program.settings.lease.time() < Duration::from_secs(1);
        // Forgotten between the end, whose reply was lost, and its repeat.
        let reopens = |step: &Step| *step == Step::Reopen(fire.thing, fire.occurrence);
        let is_forgotten = program.has_failures() && program.any(reopens);
        let has_reason =
            self.may_lose(fire.thing) || program.any(takes_long) || repeats || is_forgotten;
        assert!(has_reason, "{fire}: nothing explains that it was not recorded: {why}");
    }

    /// A call was told that the occurrence, or a newer one, was done.
    fn expect_done(&self, thing: usize, occurrence: u8, asked: u64, or_newer: bool) {
        let is_meant = |one| one == occurrence || or_newer && one > occurrence;
        let is_explained = with(thing, |job, _| job.may_be_done(is_meant, asked, occurrence));
        assert!(
            is_explained,
            "the occurrence {occurrence} was said to be over: nobody had done it"
        );
    }

    fn expect_of_job(&self, client: Client, fire: &Fire, error: &Error) {
        match error.kind() {
            ErrorKind::Lost => assert!(self.may_lose(fire.thing), "{fire}: {error}"),
            // Others took and gave up the lease again and again.
            ErrorKind::NotReady => {}
            _ => self.expect(error, client, false),
        }
    }

    pub(crate) fn await_done(&self, client: Client, thing: usize, occurrence: u8, time: Duration) {
        let (began, asked) = (now(), with(thing, |_, tick| tick));
        match handle(self.client(client), thing, occurrence).wait_done_for(time) {
            Ok(Some(Settled::Done { .. })) => self.expect_done(thing, occurrence, asked, false),
            Ok(Some(Settled::Passed { .. })) => self.expect_done(thing, occurrence, asked, true),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => {
                let ended = now();
                assert!(since(began) >= time, "it waited for {:?} of {time:?}", since(began));
                let was_told = with(thing, |job, _| {
                    let is_done = |call: &Call| {
                        let Some(said) = &call.said else { return false };
                        call.occurrence == occurrence
                            && said.what == What::Done
                            && (said.at + SOON < ended || said.tick < asked)
                            && !job.may_forget(call.asked, u64::MAX, |one| one >= occurrence)
                    };
                    !job.calls.iter().any(is_done)
                });
                assert!(was_told || !self.is_calm(), "it waited for {occurrence}, which was done");
            }
            Err(e) => self.expect(&e, client, false),
        }
    }

    pub(crate) fn reopen(&self, client: Client, thing: usize, occurrence: u8) {
        let place = with(thing, |job, asked| {
            job.forgets.push(Forget { occurrence, asked, ended: None });
            job.forgets.len() - 1
        });
        match handle(self.client(client), thing, occurrence).forget() {
            Ok(_) => with(thing, |job, tick| job.forgets[place].ended = Some(tick)),
            Err(e) => self.expect(&e, client, false),
        }
    }

    /// Whether a hold of this thing may be lost in this program.
    pub(super) fn may_lose(&self, thing: usize) -> bool {
        self.program.any(|step| match step {
            Step::Force(other) | Step::Lose(other) => *other == thing,
            Step::Advance(_) | Step::Cut(_) | Step::Hang(_) | Step::Close(_) => true,
            Step::Fail(..) => self.program.settings.lease.time() < Duration::from_secs(1),
            _ => false,
        })
    }

    /// Whether nothing happens but what its threads do with things.
    pub(super) fn is_calm(&self) -> bool {
        let is_event = |step: &Step| {
            matches!(
                step,
                Step::Cancel
                    | Step::Close(_)
                    | Step::StopWaiting(_)
                    | Step::Force(_)
                    | Step::Lose(_)
                    | Step::Advance(_)
            )
        };
        !self.program.has_failures() && !self.program.any(is_event)
    }
}

/// Each of these clients may run the job: nothing is in its way.
pub(super) fn is_free(program: &Program, client: &LockClient, thing: usize) {
    let until = now() + program.longest_wait_at_all(thing) + program.settings.lease.time();
    loop {
        match handle(client, thing, LAST).run(|_| Ok::<_, ()>(())) {
            Ok(Once::Done(()) | Once::AlreadyDone { .. }) => return,
            // What an attempt of unknown outcome has left.
            Ok(Once::Running { .. } | Once::Unrecorded((), _)) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
        assert!(now() < until, "the job {:?} cannot run any more", name_of(thing));
        sleep(Duration::from_millis(100));
    }
}

/// When everything is over.
pub(super) fn check(program: &Program) {
    for (thing, family) in program.things.iter().enumerate() {
        if *family == Family::Job {
            with(thing, |job, _| job.check());
        }
    }
}
