//! Programs over servers of the scheduler's network, for what the store in memory does not have:
//! connections, late answers, requests of unknown outcome, and the majority of a Redlock.

mod make;
mod play;
mod text;

use std::time::Duration;

use super::program::{Micros, Wait, words};

pub(crate) use self::make::make;
pub(crate) use self::play::{choose_program, play};
pub(crate) use self::text::parse;

/// What the threads of some clients do, and what happens to their servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) settings: Settings,
    /// What is under the names "a", "b", ...
    pub(crate) things: Vec<Thing>,
    pub(crate) threads: Vec<Thread>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// More than one: a Redlock.
    pub(crate) servers: u16,
    pub(crate) clients: usize,
    /// Those of a client to one server.
    pub(crate) connections: usize,
    pub(crate) lease: Micros,
    /// Whether a client may kill connections.
    pub(crate) kills: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) client: usize,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Section(Section),
    Sleep(Micros),
    /// The next request of this name, at this server.
    Next(usize, Request, Mishap),
    /// Ends all connections to a server.
    EndConnections(usize),
    FlushScripts(usize),
    /// From now on scripts are answered this much later.
    AnswersLate(usize, Micros),
    /// From now on scripts run this much later.
    RunsLate(usize, Micros),
    Restart(Restart),
    /// From now on each connect takes 300 ms, or the thread that connects panics.
    Connects(Connects),
    /// Closes the client of this thread.
    Close(Micros),
}

/// Takes a lock, stays, and gives it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) thing: usize,
    pub(crate) side: Side,
    pub(crate) wait: Wait,
    pub(crate) stay: Micros,
}

/// A server is away for this long, and comes back with its data or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restart {
    pub(crate) server: usize,
    pub(crate) keeps: bool,
    pub(crate) away: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    RunsLate(Micros),
    AnsweredLate(Micros),
    Refused(Micros),
    CutBefore,
    CutAfter,
    AnsweredTwice,
}

impl Mishap {
    /// How late the answer is.
    fn late(self) -> Duration {
        match self {
            Self::RunsLate(late) | Self::AnsweredLate(late) | Self::Refused(late) => late.time(),
            Self::CutBefore | Self::CutAfter | Self::AnsweredTwice => Duration::ZERO,
        }
    }
}

words!(Thing { Mutex = "mutex", Fair = "fair", ReadWrite = "read-write" });
words!(
    /// Of a read-write lock.
    Side { Write = "write", Read = "read" }
);
words!(Request {
    Acquire = "mutex_acquire",
    Release = "mutex_release",
    FairAcquire = "fair_acquire",
    FairRelease = "fair_release",
    Read = "read_acquire",
    Write = "write_acquire",
    ReadWriteRelease = "rw_release",
    RedlockAcquire = "redlock_acquire",
    Subscribe = "SUBSCRIBE",
});
words!(Connects { Late = "late", Panics = "panics" });

/// How long a connect takes that is late.
const CONNECTS_LATE: Duration = Duration::from_millis(300);

impl Program {
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.threads.iter().flat_map(|thread| &thread.steps)
    }

    fn any(&self, is_it: impl Fn(&Step) -> bool) -> bool {
        self.steps().any(is_it)
    }

    pub(crate) fn is_redlock(&self) -> bool {
        self.settings.servers > 1
    }

    /// Whether something happens to its servers for which a call may fail.
    fn has_faults(&self) -> bool {
        let is_calm = |step: &Step| {
            matches!(
                step,
                Step::Section(_) | Step::Sleep(_) | Step::FlushScripts(_) | Step::Close(_)
            )
        };
        self.any(|step| !is_calm(step))
    }

    fn has_closed(&self, client: usize) -> bool {
        let closes = |step: &Step| matches!(step, Step::Close(_));
        self.threads.iter().any(|thread| thread.client == client && thread.steps.iter().any(closes))
    }

    fn restarts(&self) -> bool {
        self.any(|step| matches!(step, Step::Restart(_)))
    }

    /// How late an answer is at most: every one of a server, and one that is late besides.
    fn longest_late(&self) -> Duration {
        let every = |step: &Step| match step {
            Step::AnswersLate(_, late) | Step::RunsLate(_, late) => late.time(),
            _ => Duration::ZERO,
        };
        let one = |step: &Step| match step {
            Step::Next(.., mishap) => mishap.late(),
            _ => Duration::ZERO,
        };
        let longest = |of: &dyn Fn(&Step) -> Duration| self.steps().map(of).max();
        longest(&every).unwrap_or_default() + longest(&one).unwrap_or_default()
    }

    /// How long it may take by the clock of the execution. Much less than an I/O timeout beyond
    /// what its steps take: no call waits for one because another call's connection has ended.
    pub(crate) fn limit(&self) -> Duration {
        let calls = self.steps().filter(|step| matches!(step, Step::Section(_))).count() as u32;
        let of = |step: &Step| match step {
            Step::Section(section) => section.stay.time(),
            Step::Sleep(time) => time.time(),
            Step::Next(.., mishap) => 4 * mishap.late(),
            // Each call may send several requests, and a few more follow at the end.
            Step::AnswersLate(_, late) | Step::RunsLate(_, late) => 4 * (calls + 8) * late.time(),
            Step::Restart(restart) => restart.away.time() + Duration::from_secs(10),
            Step::Connects(_) => 4 * CONNECTS_LATE + Duration::from_secs(10),
            Step::Close(time) => time.time() + Duration::from_secs(5),
            Step::EndConnections(_) | Step::FlushScripts(_) => Duration::ZERO,
        };
        // What may have run and cannot be killed is waited for; rounds of a Redlock have pauses,
        // and a master without its data votes again after a lease.
        let slow = if self.is_redlock() || !self.settings.kills { 15 } else { 0 };
        let own: Duration = self.steps().map(of).sum();
        own + Duration::from_secs(1 + slow)
    }

    /// Programs that are a little smaller. The biggest cuts come first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut changed = self.clone();
            change(&mut changed);
            if changed != *self && !changed.threads.is_empty() {
                smaller.push(changed);
            }
        };
        for thread in 0..self.threads.len() {
            add(&|program| drop(program.threads.remove(thread)));
        }
        for thread in 0..self.threads.len() {
            for step in 0..self.threads[thread].steps.len() {
                add(&|program| {
                    program.threads[thread].steps.remove(step);
                });
                add(&|program| {
                    if let Step::Section(section) = &mut program.threads[thread].steps[step] {
                        section.wait = Wait::Ever;
                        section.stay = Micros(0);
                    }
                });
            }
            add(&|program| program.threads[thread].client = 0);
        }
        add(&|program| program.settings.kills = true);
        add(&|program| program.settings.connections = 1);
        let used = 1 + self.threads.iter().map(|thread| thread.client).max().unwrap_or(0);
        add(&|program| program.settings.clients = used);
        smaller
    }
}
