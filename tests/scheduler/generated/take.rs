//! One step that takes something: the call, its section, its end, and what must be true of each.

use std::cell::Cell;
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use leasehold::os::thread::sleep;
use leasehold::os::{now, since};
use leasehold::{ErrorKind, LossReason};

use super::bounds::BLOCKED;
use super::ears::Told;
use super::guards::{Guard, acquire};
use super::ledger::{self, Believer, Share};
use super::play::{Play, Promise};
use super::program::{Client, End, Family, Inside, Mode, Step, Take, Terms, Wait};
use super::text::name_of;
use crate::book::pause;
use crate::stage::OnPurpose;

/// A call, and the hold that it takes, while others count it.
struct Traffic {
    things: Vec<usize>,
    /// It stays taken until then.
    free: Instant,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        ledger::is_over(&self.things, self.free.max(now()));
    }
}

/// Whether its guard gives up the last level, so that the store is asked.
fn again_is_given_up(take: &Take) -> bool {
    !take.inside.contains(&Inside::AgainForLonger)
}

/// A hold of the program.
struct Section<'p> {
    play: &'p Play,
    client: Client,
    take: &'p Take,
    granted: Instant,
    told: Told,
}

impl Play {
    pub(crate) fn take(&self, client: Client, take: &Take) {
        let things = self.program.taken(take);
        ledger::call_begins(&things);
        let began = now();
        let mut traffic = Traffic { things, free: began };
        let blocked = ledger::blocked();
        let taken = acquire(self.client(client), &self.program, take, take.wait, &self.cancel);
        let lasted = since(began);
        // Nothing here may read the clock: the schedule would no longer fit.
        crate::runs::tell(|| {
            let outcome = taken.as_ref().map(Option::is_some).map_err(leasehold::Error::kind);
            format!("{began:?} + {lasted:?}: {take}: {outcome:?}")
        });
        let waited = lasted.saturating_sub(BLOCKED * (ledger::blocked() - blocked));
        let bound = |at_all: bool| {
            let wait = |thing: &usize| {
                if at_all {
                    self.program.longest_wait_at_all(*thing)
                } else {
                    self.program.longest_wait(*thing)
                }
            };
            traffic.things.iter().map(wait).max().unwrap_or_default()
        };
        match taken {
            Ok(Some(guard)) => {
                let longest = bound(true);
                assert!(
                    waited <= longest,
                    "{take}: it waited for {waited:?}, and nothing before it takes {longest:?}"
                );
                if let Terms::MinHold(least) = take.terms {
                    traffic.free = now() + least.time();
                }
                let section =
                    Section { play: self, client, take, granted: now(), told: Told::default() };
                section.run(began, guard, traffic);
            }
            // Its deadline passed in its listener.
            Ok(None) if ledger::blocked() > blocked => {}
            Ok(None) => self.check_none(take, began, waited, bound(true), &traffic.things),
            Err(e) => {
                self.expect(&e, client, take.cancellable);
                let longest = bound(false);
                assert!(
                    waited <= longest,
                    "{take}: it waited {waited:?} for an error, at most {longest:?}: {e}"
                );
            }
        }
    }

    /// A call has given up. It may not if nobody else has or wants the lock.
    fn check_none(
        &self,
        take: &Take,
        began: Instant,
        waited: Duration,
        longest: Duration,
        things: &[usize],
    ) {
        let deadline = match take.wait {
            Wait::Ever => panic!("{take}: a call without a deadline has given up"),
            Wait::Never => began,
            Wait::For(time) => {
                assert!(since(began) >= time.time(), "{take}: it gave up after {waited:?}");
                assert!(
                    time.time() <= longest,
                    "{take}: it gave up, and nothing before it takes {longest:?}"
                );
                began + time.time()
            }
        };
        let was_free = |thing: &usize| {
            let since = ledger::free_since(*thing);
            since.is_some_and(|since| since.is_none_or(|since| since + ledger::SOON < deadline))
        };
        // A fair lock that is kept (`min_hold`) notifies the head of its queue of the end. If that
        // one leaves, the next one does not know of it for a third of the waiter timeout.
        let is_kept_fair = |take: &Take| {
            self.program.things[take.thing] == Family::Fair
                && matches!(take.terms, Terms::MinHold(_))
        };
        let is_calm = !self.program.has_failures() && !self.program.takes().any(is_kept_fair);
        assert!(
            !(is_calm && things.iter().all(was_free)),
            "{take}: it gave up, and the lock was free"
        );
    }
}

impl Section<'_> {
    fn run(self, began: Instant, guard: Guard, traffic: Traffic) {
        if let Some(held) = guard.held() {
            self.told.listen(held, self.play.program.settings.callbacks);
        }
        let believer = self.enter(began, guard, &traffic, self.share());
        let mut again = None;
        pause();
        self.look(&believer);
        for inside in &self.take.inside {
            match inside {
                Inside::Stay(time) => (0..4).for_each(|_| {
                    sleep(time.time() / 4);
                    self.look(&believer);
                }),
                Inside::Again => drop(self.again()),
                Inside::AgainForLonger => again = self.again(),
                Inside::Extend(lease) => self.extend(&believer, lease.time()),
                Inside::Downgrade if matches!(self.take.mode, Mode::Write | Mode::OwnedWrite) => {
                    self.promise(&self.told, 0, 1);
                    return match believer.leave().guard.downgrade() {
                        Ok(guard) => self.downgraded(began, guard, traffic),
                        Err(e) => self.expect_loss(&e),
                    };
                }
                Inside::Downgrade => {}
            }
        }
        self.end(believer.leave(), traffic);
        drop(again);
    }

    /// A writer that has become a reader. It only ends.
    fn downgraded(self, began: Instant, guard: Guard, traffic: Traffic) {
        let section = Section { told: Told::default(), ..self };
        if let Some(held) = guard.held() {
            section.told.listen(held, section.play.program.settings.callbacks);
        }
        let believer = section.enter(began, guard, &traffic, Share::Reader);
        pause();
        section.look(&believer);
        section.end(believer.leave(), traffic);
    }

    fn share(&self) -> Share {
        let most = self.play.program.settings.permits;
        match self.take.mode {
            Mode::Read | Mode::OwnedRead => Share::Reader,
            Mode::OnePermit => Share::Permits(1, most),
            Mode::TwoPermits => Share::Permits(2.min(most), most),
            _ => Share::Alone,
        }
    }

    fn enter(&self, began: Instant, guard: Guard, traffic: &Traffic, share: Share) -> Rc<Believer> {
        let token =
            guard.held().and_then(|held| held.fencing_token().ok()).map(|token| token.get());
        let lease = self.play.program.settings.lease.time().max(self.take.own_lease());
        let (things, client, is_taken) = (traffic.things.clone(), self.client, Cell::new(false));
        Believer { things, share, client, began, lease, is_taken, guard }.enter(token)
    }

    fn look(&self, believer: &Believer) {
        believer.look();
        let looked = since(self.granted);
        let is_held = believer.guard.is_held();
        assert!(is_held || self.may_be_lost(), "{}: nothing took it away", self.take);
        let most = self.take.ends_after(&self.play.program.settings);
        let is_late =
            is_held && believer.guard.held().is_some() && most.is_some_and(|most| looked > most);
        assert!(!is_late, "{}: it believes {looked:?} after its grant", self.take);
    }

    /// One level more.
    fn again(&self) -> Option<Guard> {
        let Play { program, cancel, .. } = self.play;
        if self.take.mode.is_owned() {
            return None;
        }
        match acquire(self.play.client(self.client), program, self.take, Wait::Never, cancel) {
            Ok(taken) => {
                assert!(
                    taken.is_some() || self.may_be_lost(),
                    "{}: its own thread has it",
                    self.take
                );
                taken
            }
            Err(e) => {
                self.expect_loss(&e);
                None
            }
        }
    }

    fn extend(&self, believer: &Believer, lease: Duration) {
        if let Some(Err(e)) = believer.guard.held().map(|held| held.extend(lease)) {
            self.expect_loss(&e);
        }
    }

    fn end(self, believer: Believer, traffic: Traffic) {
        // A hold that passes on, or is shared, asks the store later.
        let asks =
            believer.share != Share::Reader && again_is_given_up(self.take) && self.is_only_one();
        let (was_taken, guard) = (asks && believer.is_taken.get(), believer.guard);
        let believed = guard.is_held();
        let is_lost = guard.held().is_some_and(|held| held.loss().is_some());
        match self.take.end {
            End::Unlock => match guard.unlock() {
                Ok(()) => {
                    assert!(believed, "{}: unlock reported that it was held to the end", self.take);
                    assert!(
                        !was_taken,
                        "{}: the store had lost it, and unlock reported no loss",
                        self.take
                    );
                    self.promise(&self.told, 0, 0);
                }
                Err(e) => {
                    self.expect_loss(&e);
                    let is_told =
                        usize::from(matches!(e.kind(), ErrorKind::Lost | ErrorKind::Closed));
                    self.promise(&self.told, is_told, is_told);
                }
            },
            End::Drop => {
                self.promise(&self.told, usize::from(is_lost), 1);
                drop(guard);
            }
            End::DropElsewhere => {
                self.promise(&self.told, usize::from(is_lost), 1);
                let dropper = guard.drop_elsewhere(|| drop(traffic));
                self.play.droppers.lock().unwrap_or_else(PoisonError::into_inner).extend(dropper);
            }
            End::Panic => {
                self.promise(&self.told, usize::from(is_lost), 1);
                panic_any(OnPurpose);
            }
            End::Forget => {
                self.promise(&self.told, 0, 1);
                std::mem::forget((guard, traffic));
            }
        }
    }

    /// Whether no other thread of its client ever wants what it has.
    fn is_only_one(&self) -> bool {
        let things = self.play.program.taken(self.take);
        let wants = |step: &Step| match step {
            Step::Take(take) => {
                self.play.program.taken(take).iter().any(|thing| things.contains(thing))
            }
            _ => false,
        };
        let threads = self.play.program.threads.iter();
        threads
            .filter(|thread| thread.client == self.client && thread.steps.iter().any(wants))
            .count()
            == 1
    }

    fn promise(&self, told: &Told, least: usize, most: usize) {
        if matches!(self.play.program.things[self.take.thing], Family::Counting) {
            return;
        }
        let mut reasons = self.reasons();
        // Its client is closed at the end of the program, perhaps before the lease has ended.
        reasons.extend((self.take.end == End::Forget).then_some(LossReason::Closed));
        let promise = Promise { told: told.clone(), least, most, reasons };
        self.play.promises.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
    }

    /// Why the hold may be lost.
    fn reasons(&self) -> Vec<LossReason> {
        let program = &self.play.program;
        let things = program.taken(self.take);
        let mut reasons = Vec::new();
        match self.take.terms {
            // A fixed read hold is inspected. If the answer is read after the end, it is told the
            // wrong one of the two reasons.
            Terms::Lease(_) if matches!(self.take.mode, Mode::Read | Mode::OwnedRead) => {
                reasons.extend([LossReason::FixedLease, LossReason::NotRenewed]);
            }
            Terms::Lease(_) => reasons.push(LossReason::FixedLease),
            Terms::MaxHold(_) => reasons.push(LossReason::MaxHold),
            Terms::Usual | Terms::MinHold(_) => {}
        }
        if self.take.end == End::Forget {
            // By the close after the program.
            reasons.push(LossReason::Closed);
        }
        for (_, step) in program.steps() {
            match step {
                Step::Force(thing) | Step::Lose(thing) if things.contains(thing) => {
                    reasons.push(LossReason::TakenAway);
                }
                Step::Advance(_) => reasons.extend([LossReason::NotRenewed, LossReason::TakenAway]),
                Step::Cut(_) | Step::Hang(_) | Step::Fail(..) => {
                    reasons.extend([LossReason::NotRenewed, LossReason::TakenAway]);
                }
                Step::Close(client) if *client == self.client => reasons.push(LossReason::Closed),
                _ => {}
            }
        }
        reasons
    }

    fn may_be_lost(&self) -> bool {
        !self.reasons().is_empty()
    }

    /// Checks that the program gives a reason for this error of a guard.
    fn expect_loss(&self, error: &leasehold::Error) {
        match error.kind() {
            ErrorKind::Lost => {
                assert!(self.may_be_lost(), "{}: nothing took it away: {error}", self.take);
            }
            ErrorKind::Closed | ErrorKind::Unreachable => {
                self.play.expect(error, self.client, self.take.cancellable);
            }
            _ => panic!("{} {}: {error}", self.take, name_of(self.take.thing)),
        }
    }
}
