//! Plays a program once, beside its model.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::os::thread::{JoinHandle, sleep};
use leasehold::os::{deadlines_race, now, since};
use leasehold::testing::{Failure, Operation};
use leasehold::{CancelToken, Error, ErrorKind, LockClient};

use super::after;
use super::bounds::HANGS;
use super::ears::{Ears, Told};
use super::ledger;
use super::program::{Client, Code, Family, Program, Request, Step, Thread, When};
use super::text::name_of;
use super::{jobs, rates, terms};
use crate::scenarios::logger_panics;
use crate::stage::{Stage, join_all, may_panic_on_purpose};

thread_local! {
    static PROGRAM: RefCell<Option<Arc<Program>>> = const { RefCell::new(None) };
}

/// The program that [`play`] plays on this thread.
pub(crate) fn choose_program(program: Arc<Program>) {
    PROGRAM.set(Some(program));
}

/// What the threads of a program share.
#[derive(Clone)]
pub(crate) struct Play {
    pub(crate) program: Arc<Program>,
    pub(crate) stage: Stage,
    pub(crate) cancel: CancelToken,
    pub(crate) ears: Arc<Vec<Arc<Ears>>>,
    pub(crate) promises: Arc<Mutex<Vec<Promise>>>,
    /// Threads that drop the guards of others.
    pub(crate) droppers: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// How often a callback must have been called when everything is over, and why it may.
pub(crate) struct Promise {
    pub(crate) told: Told,
    pub(crate) least: usize,
    pub(crate) most: usize,
    pub(crate) reasons: Vec<leasehold::LossReason>,
}

pub(crate) fn play() {
    let program = PROGRAM.with_borrow(|program| program.clone()).expect("a program was chosen");
    if program.settings.races {
        deadlines_race();
    }
    ledger::begin(program.things.len());
    jobs::begin(program.things.len());
    terms::begin(program.things.len());
    rates::begin(program.things.len());
    let play = Play::begin(program);
    logger_panics(play.program.settings.logger == Code::Panics);
    let threads: Vec<_> = (0..play.program.threads.len())
        .map(|n| {
            let play = play.clone();
            play.stage.clone().spawn(move |_| play.thread(&play.program.threads[n]))
        })
        .collect();
    join_all(threads);
    let droppers =
        std::mem::take(&mut *play.droppers.lock().unwrap_or_else(PoisonError::into_inner));
    join_all(droppers);
    logger_panics(false);
    after::check(play);
}

impl Play {
    fn begin(program: Arc<Program>) -> Self {
        let settings = &program.settings;
        let ears = RefCell::new(Vec::new());
        let stage = Stage::with(|builder| {
            let heard = Ears::new(settings.listener);
            ears.borrow_mut().push(heard.clone());
            let builder =
                builder.lease(settings.lease.time()).outage_timeout(settings.outage.time());
            // Without a listener a call that waits takes another path.
            let builder = if settings.tokens || settings.listener != Code::Calm {
                builder.listener(heard)
            } else {
                builder
            };
            builder.fencing(settings.tokens)
        });
        for (thing, family) in program.things.iter().enumerate() {
            let name = name_of(thing);
            let counts =
                program.steps().filter(|(_, step)| **step == Step::CountDown(thing)).count() as u32;
            match family {
                Family::Semaphore => {
                    let set = stage.one.semaphore(name).try_set_permits(settings.permits);
                    assert!(set.expect("it answers").is_new());
                }
                Family::Counting => {
                    let set = stage.one.counting_semaphore(name).try_set_permits(settings.permits);
                    assert!(set.expect("it answers").is_new());
                }
                Family::Limiter => {
                    let set = stage.one.rate_limiter(name).try_set_rate(rates::RATE, rates::PER);
                    assert!(set.expect("it answers"));
                }
                Family::Latch if counts > 0 => {
                    stage.one.latch(name).set_count(counts).expect("it answers");
                }
                _ => {}
            }
        }
        Self {
            program: program.clone(),
            stage,
            cancel: CancelToken::new(),
            ears: Arc::new(ears.into_inner()),
            promises: Arc::default(),
            droppers: Arc::default(),
        }
    }

    pub(crate) fn client(&self, client: Client) -> &LockClient {
        self.stage.client(client == Client::One)
    }

    fn thread(&self, thread: &Thread) {
        for step in &thread.steps {
            may_panic_on_purpose(|| self.step(thread.client, step));
        }
    }

    fn step(&self, client: Client, step: &Step) {
        let faults = &self.stage.faults;
        match step {
            Step::Take(take) => self.take(client, take),
            Step::Sleep(time) => sleep(time.time()),
            Step::Cancel => self.cancel.cancel(),
            Step::Close(closed) => {
                ledger::closes(*closed);
                let closes = self.client(*closed).close(std::time::Duration::from_secs(1));
                assert!(
                    closes.is_ok() || self.program.has_failures(),
                    "it closes within its timeout: {closes:?}"
                );
            }
            Step::StopWaiting(client) => self.client(*client).stop_waiting(),
            Step::Force(thing) => self.force(client, *thing),
            Step::Lose(thing) => {
                let (doubt, known) = (ledger::doubt(*thing), ledger::known(*thing));
                if faults.lose(name_of(*thing)) {
                    for one in &known {
                        one.is_taken.set(true);
                    }
                }
                drop(known);
                ledger::doubt_is_over(doubt, None);
            }
            Step::Advance(time) => faults.advance(time.time()),
            Step::Cut(time) => faults.hang(time.time(), std::time::Duration::ZERO),
            Step::Hang(time) => faults.hang(time.time(), HANGS),
            Step::Fail(request, when) => faults.fail_next(request.operation(), when.failure()),
            Step::CountDown(thing) => self.count_down(client, *thing),
            Step::WaitFor(thing) => {
                let began = now();
                match self.client(client).latch(name_of(*thing)).wait() {
                    Ok(()) => {
                        assert!(since(began) <= self.program.limit(), "a latch opens in time");
                    }
                    Err(e) => self.expect(&e, client, false),
                }
            }
            Step::Fire(fire) => self.fire(client, fire),
            Step::AwaitDone(thing, occurrence, time) => {
                self.await_done(client, *thing, *occurrence, time.time());
            }
            Step::Reopen(thing, occurrence) => self.reopen(client, *thing, *occurrence),
            Step::Lead(lead) => self.lead(client, lead),
            Step::AskFor(thing) => self.ask_for(client, *thing),
            Step::Pace(pace) => self.pace(client, pace),
            Step::SetRate(thing) => self.set_rate(client, *thing),
        }
    }

    fn force(&self, client: Client, thing: usize) {
        let doubt = ledger::doubt(thing);
        let (name, client_) = (name_of(thing), self.client(client));
        let forced = match self.program.things[thing] {
            Family::Mutex | Family::Election => client_.mutex(name).force_unlock(),
            Family::Job => client_.once(name, "any").force_out(),
            Family::Fair => client_.fair(name).force_unlock(),
            Family::ReadWrite => client_.rw_lock(name).force_unlock(),
            _ => Ok(self.stage.faults.lose(name)),
        };
        if let Err(e) = &forced {
            self.expect(e, client, false);
        }
        ledger::doubt_is_over(doubt, forced.is_ok().then_some(client));
    }

    /// Counts until the store has answered: others wait for it.
    fn count_down(&self, client: Client, thing: usize) {
        while let Err(e) = self.client(client).latch(name_of(thing)).count_down() {
            self.expect(&e, client, false);
            if e.kind() == ErrorKind::Closed {
                return;
            }
            sleep(std::time::Duration::from_secs(1));
        }
    }

    /// Checks that the program gives a reason for this error of a call.
    pub(crate) fn expect(&self, error: &Error, client: Client, cancellable: bool) {
        let program = &self.program;
        let jumps = program.any(|step| matches!(step, Step::Advance(_)));
        let has_reason = match error.kind() {
            ErrorKind::Unreachable => program.has_failures() || jumps,
            ErrorKind::Closed => program.has_ended(client),
            ErrorKind::Cancelled => cancellable && program.any(|step| *step == Step::Cancel),
            _ => false,
        };
        assert!(
            has_reason,
            "nothing in the program explains this error of client {}: {error}",
            client.word()
        );
    }
}

impl Request {
    fn operation(self) -> Operation {
        match self {
            Self::Acquire => Operation::Acquire,
            Self::Release => Operation::Release,
            Self::Renew => Operation::Renew,
            Self::Extend => Operation::Extend,
            Self::Subscribe => Operation::Subscribe,
            Self::ForceUnlock => Operation::ForceUnlock,
            Self::Inspect => Operation::Inspect,
        }
    }
}

impl When {
    fn failure(self) -> Failure {
        match self {
            Self::Before => Failure::BeforeItRan,
            Self::After => Failure::AfterItRan,
            Self::NotConfirmed => Failure::NotConfirmed,
        }
    }
}
