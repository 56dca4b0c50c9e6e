//! The only wait loop: it carries out the steps of the [machine](crate::wait::machine), with the
//! store, the local queue and the messages.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::os;
use crate::signal::event::{Awaited, Event};
use crate::store::Topic;
use crate::wait::attempt::{AcquireAttempt, Tried};
use crate::wait::client_state::ClientState;
use crate::wait::contender::Contender;
use crate::wait::leader::Leader;
use crate::wait::machine::{Answer, Happened, Situation, Step, Wait, WaitTerms};
use crate::wait::notifications::Listening;
use crate::wait::piggyback::PiggybackOutcome;

/// Whether the last reply in a queue is recent enough to return `None` because of it. If the server
/// has hung since an older reply, `None` would claim without evidence that another holder has the
/// lock.
pub(super) fn has_answer(client: &ClientState, event: &Event) -> bool {
    event.is_answered_within(client.config.io_timeout)
}

/// Why a call no longer leads its local queue.
pub(super) enum LeadEnd<W> {
    Over(Option<W>),
    /// It has to wait, and the user has to be told first.
    Announces,
}

/// A request of a call that will wait if the lock is busy. It leaves something in the store for
/// that only once the user knows of the wait.
pub(super) fn try_first<'a, C: Contender<'a>>(contender: &mut C) -> Result<Tried<C::Won>> {
    let waits = !contender.attempt().must_announce();
    contender.try_once(waits)
}

/// Leads a local queue until the call is over, or has to announce that it waits.
pub(super) fn lead<'a, C: Contender<'a>>(
    contender: &mut C,
    leader: &mut Leader<'_>,
    deadline: Deadline,
    first: Option<Answer>,
) -> Result<LeadEnd<C::Won>> {
    let AcquireAttempt { client, name, cancel, .. } = *contender.attempt();
    // Until the role passes on: the next leader waits by the same event.
    let _woken = cancel.map(|token| token.wakes(leader.event().clone()));
    let topic = topic_of(contender.attempt(), leader);
    // If other waiters of this client that have places are subscribed, their subscription covers
    // this waiter's messages as well.
    let queues = name.kind.has_queue() || client.store.queues_all() && name.kind.can_be_held();
    let begun = Happened::Begun {
        first,
        has_waited: leader.has_waited || contender.attempt().is_announced(),
        is_covered: queues
            && first.is_none()
            && !contender.attempt().must_announce()
            && client.notifications.is_subscribed(&topic),
    };
    let terms = WaitTerms {
        deadline,
        lease: client.config.lease,
        outage_timeout: client.config.outage_timeout,
        has_turn: name.kind.has_queue(),
        is_exclusive: name.kind.is_exclusive() && !leader.is_at_server(),
        has_messages: name.kind.sends_messages(),
    };
    let mut wait = Wait::new(terms);
    // The first look begins round 1, which is later than this round 0, in which listening may
    // begin.
    let mut led = LeaderWait { contender, leader, deadline, topic, listening: None, round: 0 };
    let mut happened = begun;
    loop {
        let step = wait.next(happened, &os::now);
        let waits =
            matches!(step, Step::Listen { .. } | Step::SleepForLocal(_) | Step::SleepUntilFree(_));
        if waits && led.contender.attempt().must_announce() {
            return Ok(LeadEnd::Announces);
        }
        happened = match led.carry_out(step, &wait) {
            ControlFlow::Continue(happened) => happened,
            ControlFlow::Break(outcome) => return outcome.map(LeadEnd::Over),
        };
    }
}

fn topic_of(attempt: &AcquireAttempt<'_>, leader: &Leader<'_>) -> Topic {
    if leader.is_at_server() {
        Topic::turn(attempt.name, attempt.holder.as_str())
    } else {
        Topic::freed(attempt.name)
    }
}

/// A call that leads its local queue.
struct LeaderWait<'l, 's, 'a, C> {
    contender: &'l mut C,
    leader: &'l mut Leader<'s>,
    deadline: Deadline,
    topic: Topic,
    /// The interest in the topic, and the round of the event in which listening began.
    listening: Option<(Listening<'a>, u64)>,
    /// The present round of the event.
    round: u64,
}

/// What has happened, or the result with which the call ends.
type Outcome<W> = ControlFlow<Result<Option<W>>, Happened>;

impl<'a, C: Contender<'a>> LeaderWait<'_, '_, 'a, C> {
    fn client(&mut self) -> &'a Arc<ClientState> {
        self.contender.attempt().client
    }

    fn carry_out(&mut self, step: Step, wait: &Wait) -> Outcome<C::Won> {
        // What threads of this client have done for the call comes first. Before it sends a request
        // of its own, and before it leaves, the call takes its acquire out of the queue.
        let done = match step {
            Step::Look | Step::SleepForLocal(_) => self.leader.collect(),
            Step::LetOthersFirst | Step::Ask | Step::Return(_) => self.leader.withdraw(),
            Step::Listen { .. } | Step::Sleep(_) | Step::SleepUntilFree(_) => None,
        };
        if let Some(outcome) = done {
            return self.take_in(outcome, wait);
        }
        if let Some(outcome) = self.take_grant() {
            return outcome;
        }
        match step {
            Step::Look => ControlFlow::Continue(Happened::Looked(self.look())),
            Step::LetOthersFirst => ControlFlow::Continue(self.let_others_first()),
            Step::Ask => self.ask(wait),
            Step::Listen { mistrusts } => ControlFlow::Continue(self.listen(mistrusts)),
            Step::Sleep(pause) => self.sleep(pause, wait),
            Step::SleepUntilFree(pause) => {
                self.contender.attempt().begin_wait(self.deadline);
                self.sleep(pause, wait)
            }
            Step::SleepForLocal(most) => self.sleep_for_local(most, wait),
            Step::Return(outcome) => ControlFlow::Break(outcome.map(|()| None)),
        }
    }

    fn look(&mut self) -> Situation {
        // Before all else: if the wait was ended before this, it is seen here; if later, it wakes
        // the call. And before the request is sent: a message that arrives while it is under way
        // may announce a release after it.
        self.round = self.leader.event().clear();
        let attempt = self.contender.attempt();
        // A waiter with a place in the store learns only from the store when its turn comes.
        let held_here = if self.leader.is_at_server() {
            None
        } else {
            attempt.client.holds.blocks(attempt.name)
        };
        let ended = attempt.ensure_waits().err();
        let comes_last = self.leader.comes_last();
        Situation { ended, held_here, comes_last, outage: self.leader.outage() }
    }

    fn let_others_first(&mut self) -> Happened {
        let client = self.client();
        let deadline = self.deadline;
        let Self { leader, listening, topic, round, .. } = self;
        // Otherwise messages that nobody has read yet would count as new ones.
        client.notifications.catch_up();
        let patience =
            |pause: Duration| deadline.remaining(os::now()).map_or(pause, |left| left.min(pause));
        leader.let_others_first(patience, |awaited, pause| {
            let listen = || (client.notifications.listen(topic.clone(), leader.event()), *round);
            listening.get_or_insert_with(listen).0.wait_for(awaited, pause)
        });
        client.notifications.catch_up();
        Happened::OthersCameFirst
    }

    fn ask(&mut self, wait: &Wait) -> Outcome<C::Won> {
        let tokens = self.leader.tokens();
        let round = self.round;
        self.contender.draw_tokens(tokens);
        let tried = try_first(self.contender);
        self.judge(tried, wait, |ttl| Happened::Answered(Answer { round: Some(round), ttl }))
    }

    fn listen(&mut self, mistrusts: bool) -> Happened {
        let client = self.client();
        self.contender.attempt().begin_wait(self.deadline);
        if mistrusts {
            client.notifications.mistrust();
        }
        let Self { leader, listening, topic, round, .. } = self;
        let listen = || (client.notifications.listen(topic.clone(), leader.event()), *round);
        let since = listening.get_or_insert_with(listen).1;
        // If the store has yet to confirm the subscription, the event is notified when it does.
        Happened::Listens {
            since,
            round: *round,
            is_confirmed: client.notifications.is_subscribed(topic),
        }
    }

    fn sleep(&mut self, pause: Duration, wait: &Wait) -> Outcome<C::Won> {
        let client = self.client();
        // The store names the next waiter to the releasing holder: if the holder belongs to this
        // client, it sends this acquire with its release. A reader of this client does the same for
        // a writer.
        if self.contender.attempt().name.kind.leaves_marker() {
            self.leave_acquire();
        }
        let event = self.leader.event().clone();
        match &self.listening {
            Some((listening, _)) => listening.wait_for(Awaited::Notification, pause),
            None => event.wait(pause),
        };
        match self.leader.withdraw() {
            Some(outcome) => self.take_in(outcome, wait),
            None => {
                let is_notified = event.is_notified();
                let has_answer = has_answer(client, &event);
                ControlFlow::Continue(Happened::Woke { is_notified, has_answer })
            }
        }
    }

    /// A thread of this client has the lock: it parks its hold for this call, or its release takes
    /// the acquire of this call along. If it does neither, the acquire stays in the queue, so that
    /// a release between two sleeps finds it.
    fn sleep_for_local(&mut self, most: Duration, wait: &Wait) -> Outcome<C::Won> {
        self.contender.attempt().begin_wait(self.deadline);
        if !self.leader.has_piggyback() && !self.leader.must_yield() {
            self.leave_acquire();
        }
        // The acquire is left before the call sleeps: a release before this has already notified
        // the event, and a later one takes the acquire along.
        let mut done = self.leader.collect();
        if done.is_none() {
            self.leader.event().wait(most);
            done = self.leader.collect();
        }
        // That thread got the lock from a server. A later outage is a new one.
        self.leader.forget_outage();
        match done {
            Some(outcome) => self.take_in(outcome, wait),
            None => ControlFlow::Continue(Happened::WokeForLocal),
        }
    }

    fn leave_acquire(&mut self) {
        if self.contender.attempt().is_resolved()
            && let Some(piggyback) = self.contender.piggyback()
        {
            self.leader.leave_piggyback(piggyback);
        }
    }

    /// Processes what a thread of this client has done for the call.
    fn take_in(&mut self, outcome: PiggybackOutcome, wait: &Wait) -> Outcome<C::Won> {
        match outcome {
            PiggybackOutcome::NotSent => ControlFlow::Continue(Happened::NothingCame),
            PiggybackOutcome::Parked(admission) => match self.contender.take_over(admission) {
                Ok(None) => ControlFlow::Continue(Happened::NothingCame),
                won_or_failed => {
                    self.leader.forget_outage();
                    ControlFlow::Break(won_or_failed)
                }
            },
            PiggybackOutcome::Sent { acquired, unknowns, tokens, round } => {
                self.contender.draw_tokens(tokens);
                let tried = self.contender.on_piggyback_reply(acquired, unknowns);
                self.judge(tried, wait, |ttl| {
                    Happened::AnsweredBeside(Answer { round: Some(round), ttl })
                })
            }
        }
    }

    /// `None`: no release has given the lock to the call.
    fn take_grant(&mut self) -> Option<Outcome<C::Won>> {
        if !self.leader.is_at_server() {
            return None;
        }
        let holder = &self.contender.attempt().holder;
        let token = self.leader.event().take_grant(holder.as_str())?;
        Some(match self.contender.take_grant(token) {
            // It has the lock in the store, and asks for it.
            Ok(None) => ControlFlow::Continue(Happened::NothingCame),
            won_or_failed => {
                self.leader.end_outage();
                ControlFlow::Break(won_or_failed)
            }
        })
    }

    /// The call ends with what it won. `busy`: how to interpret an answer with this time to live.
    fn judge(
        &mut self,
        tried: Result<Tried<C::Won>>,
        wait: &Wait,
        busy: impl FnOnce(Option<Duration>) -> Happened,
    ) -> Outcome<C::Won> {
        // Its earlier holder is spent. Messages for that holder announce another turn, and a
        // releasing thread of this client looks for the fresh holder.
        if self.leader.ask_as(&self.contender.attempt().holder) {
            self.topic = topic_of(self.contender.attempt(), self.leader);
            self.listening = None;
        }
        match tried {
            Ok(Tried::Won(won)) => {
                self.leader.end_outage();
                ControlFlow::Break(Ok(Some(won)))
            }
            Ok(Tried::Busy(ttl)) => {
                self.leader.end_outage();
                if self.contender.attempt().name.kind.is_exclusive() {
                    self.leader.note_busy();
                }
                ControlFlow::Continue(busy(ttl))
            }
            Err(error) => {
                let outage =
                    wait.tolerates(&error).then(|| os::since(self.leader.note_outage(&error)));
                ControlFlow::Continue(Happened::Failed { error, outage })
            }
        }
    }
}
