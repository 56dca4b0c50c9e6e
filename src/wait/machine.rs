//! What a waiting call does, as a state machine without I/O: the [loop](crate::wait::wait_loop)
//! reports what has happened, and carries out the step that the machine answers.
//!
//! | what has happened | what the call does next |
//! |---|---|
//! | it begins to lead its local queue | listens, if that costs no request; else looks |
//! | it looked: its wait was ended | returns why |
//! | it looked: others have to come first | lets them go first, and looks again |
//! | it looked: a thread of the client has the lock | sleeps until that thread has given it up |
//! | it looked: the store could not be asked for the outage timeout | returns the error |
//! | it looked: none of these | asks the store |
//! | the store answered "busy" | listens; returns `None` if it was asked at the deadline |
//! | the store answered "busy", and nobody will send a message | sleeps for as long as the store said |
//! | it listens, and the answer is no older | sleeps |
//! | it listens, and the answer is older | looks |
//! | the store cannot be asked, and it waits already | sleeps for a pause; returns the error after the outage timeout, or at the deadline |
//! | the request failed otherwise | returns the error |
//! | it was notified, or its timer ran | looks; returns `None` at the deadline if the last answer is recent |
//!
//! **No wake-up is lost.** What frees the lock sets the latch of the waiter's event, by a message
//! or, in this process, directly. Before each look the latch is cleared, which begins a new *round*
//! of the event. Each answer carries the round in which its request was sent, and listening the
//! round in which it began. The call may sleep on an answer only if its request was sent in the
//! present round, and in a later round than listening began: whatever frees the lock after that
//! request then sets the latch, and the call sees it. An answer to a request that another thread
//! has sent can be older, and so can one from before the call was in the queue. While the store has
//! not confirmed the subscription, an answer from before the queue suffices: the confirmation
//! notifies the event.

use std::time::{Duration, Instant};

use crate::base::advice::Advice;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::random::Backoff;
use crate::wait::blind_poll::BlindPoll;

/// What a waiting call knows.
pub(super) struct Wait {
    terms: WaitTerms,
    /// The last "busy", until it is too old.
    answer: Option<Answer>,
    /// The request under way was sent at the deadline: no other follows it.
    is_last: bool,
    /// A thread of the client has had the lock for so long that the store is asked anyway.
    asks_anyway: bool,
    /// The last sleep ended by its timer: the lock may have been released in between.
    was_woken_by_timer: bool,
    /// Since when it sleeps for a thread of the client, and the longest time that it sleeps.
    sleeps_for_local: Option<(Instant, Duration)>,
    /// The store has answered that the lock is taken: from now on an outage is waited out.
    has_waited: bool,
    in_outage: bool,
    outage_pause: Backoff,
    poll: Backoff,
    blind_poll: BlindPoll,
}

/// What does not change while it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitTerms {
    pub(super) deadline: Deadline,
    /// The longest sleep, in case a message is lost.
    pub(super) lease: Duration,
    pub(super) outage_timeout: Duration,
    /// The store reports to a waiter its place in the queue, and not the lease of the holder.
    pub(super) has_turn: bool,
    /// Threads of one client can keep the lock by handing it to each other.
    pub(super) is_exclusive: bool,
    /// A message is sent when something comes free. If not, the store's answer says when that is.
    pub(super) has_messages: bool,
}

/// The store's answer that the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The round in which it was asked for. `None`: before the call was in the queue.
    pub(super) round: Option<u64>,
    /// How long the lock is taken, if that is known.
    pub(super) ttl: Option<Duration>,
}

impl Answer {
    /// The call is not in the queue yet.
    pub(crate) fn before_queueing(ttl: Option<Duration>) -> Self {
        Self { round: None, ttl }
    }
}

/// What has happened.
#[derive(Debug)]
pub(super) enum Happened {
    /// The call leads its local queue. `is_covered`: listening costs no request.
    Begun {
        first: Option<Answer>,
        has_waited: bool,
        is_covered: bool,
    },
    Looked(Situation),
    /// "Busy", to its own request.
    Answered(Answer),
    /// "Busy", to a request that another thread has sent for it.
    AnsweredBeside(Answer),
    /// What it was given is of no use, or it was given nothing.
    NothingCame,
    /// `outage`: how long the store could not be asked, if the call tolerates that.
    Failed {
        error: Error,
        outage: Option<Duration>,
    },
    /// It has listened since this round; messages reach it if `is_confirmed`.
    Listens {
        since: u64,
        round: u64,
        is_confirmed: bool,
    },
    OthersCameFirst,
    /// `has_answer`: the store has answered a call of the queue within the I/O timeout.
    Woke {
        is_notified: bool,
        has_answer: bool,
    },
    WokeForLocal,
}

/// What the call sees when it looks, before it asks the store.
#[derive(Debug, Default)]
pub(super) struct Situation {
    /// Why it has stopped waiting.
    pub(super) ended: Option<Error>,
    /// The longest time for which a thread of the client still has the lock.
    pub(super) held_here: Option<Duration>,
    /// Other clients have to come first.
    pub(super) comes_last: bool,
    /// How long the store could not be asked, as far as the queue knows, and the latest error.
    pub(super) outage: Option<(Duration, Error)>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Clear the latch, and look.
    Look,
    LetOthersFirst,
    Ask,
    /// `mistrusts`: the message of a release may have been lost.
    Listen {
        mistrusts: bool,
    },
    /// Sleeps until a message, or until a thread of this client has done something for the call.
    Sleep(Duration),
    /// Sleeps until something comes free by itself, or until a thread of this client has changed
    /// the name.
    SleepUntilFree(Duration),
    /// Sleeps until the thread of this client that has the lock gives it up.
    SleepForLocal(Duration),
    Return(Result<()>),
}

impl Wait {
    pub(super) fn new(terms: WaitTerms) -> Self {
        Self {
            terms,
            answer: None,
            is_last: false,
            asks_anyway: false,
            was_woken_by_timer: false,
            sleeps_for_local: None,
            has_waited: false,
            in_outage: false,
            outage_pause: Backoff::new(Duration::from_millis(20), Duration::from_millis(250)),
            poll: Backoff::new(Duration::from_millis(2), Duration::from_millis(200)),
            blind_poll: BlindPoll::new(terms.is_exclusive && !terms.has_turn),
        }
    }

    /// `now`: read only where the time matters.
    pub(super) fn next(&mut self, happened: Happened, now: &impl Fn() -> Instant) -> Step {
        match happened {
            Happened::Begun { first, has_waited, is_covered } => {
                self.begins(first, has_waited, is_covered)
            }
            Happened::Looked(situation) => self.looked(situation, now),
            Happened::Answered(answer) => self.answered(answer, now),
            Happened::AnsweredBeside(answer) => {
                self.is_last = self.is_at_deadline(now);
                self.answered(answer, now)
            }
            Happened::NothingCame => Step::Look,
            Happened::Failed { error, outage } => self.failed(error, outage, now),
            Happened::Listens { since, round, is_confirmed } => {
                self.listens(since, round, is_confirmed, now)
            }
            // An earlier answer is too old: other clients had the lock in between.
            Happened::OthersCameFirst => {
                self.answer = None;
                Step::Look
            }
            Happened::Woke { is_notified, has_answer } => self.woke(is_notified, has_answer, now),
            Happened::WokeForLocal => self.woke_for_local(now),
        }
    }

    /// Whether the call waits for a server that cannot be asked: only if a server has answered it
    /// before that the lock is taken. If only another part of it cannot be asked, it does not wait
    /// here, where others wait behind it for a name that can be.
    pub(super) fn tolerates(&self, error: &Error) -> bool {
        self.has_waited && error.kind().is_outage() && !error.is_of_a_part()
    }

    fn begins(&mut self, first: Option<Answer>, has_waited: bool, is_covered: bool) -> Step {
        self.has_waited = has_waited || first.is_some();
        // Without messages nobody would tell the call what has changed since that answer.
        self.answer = first.filter(|_| self.terms.has_messages);
        if is_covered { Step::Listen { mistrusts: false } } else { Step::Look }
    }

    fn looked(&mut self, situation: Situation, now: &impl Fn() -> Instant) -> Step {
        if let Some(ended) = situation.ended {
            return Step::Return(Err(ended));
        }
        if situation.comes_last && situation.held_here.is_none() {
            return Step::LetOthersFirst;
        }
        let asks_anyway = std::mem::take(&mut self.asks_anyway);
        if let Some(remaining) = situation.held_here.filter(|_| !asks_anyway) {
            // At most a lease: a longer hold may have ended in another way, and a release that
            // takes so long may never end, so the store is asked then.
            let most = until_after(remaining).min(self.terms.lease);
            self.answer = None;
            self.has_waited = true;
            self.in_outage = false;
            self.sleeps_for_local = Some((now(), most));
            return Step::SleepForLocal(self.patience(most, now));
        }
        // Not one more request: each thread that leads the queue in turn would send one, and the
        // last of fifty would learn of the outage after fifty I/O timeouts.
        if let Some((lasted, error)) =
            situation.outage.filter(|(lasted, _)| self.is_too_long(*lasted))
        {
            return Step::Return(Err(given_up(error, lasted)));
        }
        self.is_last = self.is_at_deadline(now);
        match self.answer.filter(|answer| answer.round.is_none()) {
            // Asked for just before the call entered the queue.
            Some(answer) => self.answered(answer, now),
            None => Step::Ask,
        }
    }

    fn answered(&mut self, answer: Answer, now: &impl Fn() -> Instant) -> Step {
        self.ends_outage();
        self.has_waited = true;
        self.answer = Some(answer);
        if self.is_last {
            return Step::Return(Ok(()));
        }
        let mistrusts = std::mem::take(&mut self.was_woken_by_timer)
            && answer.ttl.is_some()
            && !self.terms.has_turn;
        if self.is_at_deadline(now) {
            // Checks once more whether it was notified in the meantime.
            return Step::Sleep(Duration::ZERO);
        }
        if !self.terms.has_messages {
            return Step::SleepUntilFree(self.pause_for(answer.ttl, self.terms.lease, now));
        }
        Step::Listen { mistrusts }
    }

    /// How long a sleep on an answer lasts.
    fn pause_for(
        &mut self,
        ttl: Option<Duration>,
        most: Duration,
        now: &impl Fn() -> Instant,
    ) -> Duration {
        let pause = match ttl {
            Some(ttl) => {
                self.poll.reset();
                until_after(ttl)
            }
            None => self.poll.next(),
        };
        self.patience(pause.min(most), now)
    }

    fn listens(
        &mut self,
        since: u64,
        round: u64,
        is_confirmed: bool,
        now: &impl Fn() -> Instant,
    ) -> Step {
        let Some(answer) = self.answer.take() else { return Step::Look };
        let is_recent = match answer.round {
            Some(asked) => asked == round && (asked > since || !is_confirmed),
            None => !is_confirmed,
        };
        if !is_recent {
            return Step::Look;
        }
        let most = if is_confirmed {
            self.terms.lease
        } else {
            self.blind_poll.pause(now()).min(self.terms.lease / 2)
        };
        Step::Sleep(self.pause_for(answer.ttl, most, now))
    }

    fn failed(
        &mut self,
        error: Error,
        outage: Option<Duration>,
        now: &impl Fn() -> Instant,
    ) -> Step {
        let Some(lasted) = outage else { return Step::Return(Err(error)) };
        if self.is_too_long(lasted) {
            return Step::Return(Err(given_up(error, lasted)));
        }
        if self.is_at_deadline(now) {
            return Step::Return(Err(error));
        }
        self.in_outage = true;
        let pause = self.outage_pause.next();
        Step::Sleep(self.patience(pause, now))
    }

    fn is_too_long(&self, outage: Duration) -> bool {
        outage >= self.terms.outage_timeout
    }

    fn woke(&mut self, is_notified: bool, has_answer: bool, now: &impl Fn() -> Instant) -> Step {
        self.was_woken_by_timer = !is_notified;
        // Without a notification another request would learn nothing new, if the last answer is
        // recent.
        let is_known = has_answer && !self.in_outage;
        if !is_notified && is_known && self.is_at_deadline(now) {
            return Step::Return(Ok(()));
        }
        Step::Look
    }

    fn woke_for_local(&mut self, now: &impl Fn() -> Instant) -> Step {
        if self.is_at_deadline(now) {
            return Step::Return(Ok(()));
        }
        let slept = self.sleeps_for_local.take();
        self.asks_anyway =
            slept.is_some_and(|(since, most)| now().saturating_duration_since(since) >= most);
        Step::Look
    }

    fn ends_outage(&mut self) {
        if std::mem::take(&mut self.in_outage) {
            self.outage_pause.reset();
        }
    }

    fn is_at_deadline(&self, now: &impl Fn() -> Instant) -> bool {
        self.terms.deadline != Deadline::Never && self.terms.deadline.has_passed(now())
    }

    /// The part of a pause that the deadline leaves time for.
    fn patience(&self, pause: Duration, now: &impl Fn() -> Instant) -> Duration {
        if self.terms.deadline == Deadline::Never {
            return pause;
        }
        self.terms.deadline.remaining(now()).map_or(pause, |left| left.min(pause))
    }
}

#[cold]
fn given_up(error: Error, lasted: Duration) -> Error {
    error
        .and_also(format!("given up after {lasted:.1?} of waiting for the server"))
        .advise(Advice::RaiseOutageTimeout)
}

/// A millisecond more than the TTL, which stores may round down.
fn until_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
