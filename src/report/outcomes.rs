//! What became of a client's calls for scheduled jobs, and which elections it has won, by name.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::os::Mutex;
use crate::signal::cancel::CancelToken;

/// Names with figures of their own.
const MOST: usize = 64;

/// The entry of all names after those.
const OTHERS: &str = "(others)";

/// How a call for an occurrence of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    Done,
    Failed,
    Unrecorded,
    AlreadyDone,
    GaveUp,
    /// For any other reason.
    NotRun,
}

impl RunOutcome {
    pub(crate) const ALL: [Self; 6] =
        [Self::Done, Self::Failed, Self::Unrecorded, Self::AlreadyDone, Self::GaveUp, Self::NotRun];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unrecorded => "unrecorded",
            Self::AlreadyDone => "already_done",
            Self::GaveUp => "gave_up",
            Self::NotRun => "not_run",
        }
    }
}

/// What became of a client's calls for one [scheduled job](crate::ScheduledJob), whichever
/// occurrence they were for: part of [`Stats`](crate::observe::Stats).
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `done`, `failed`, `unrecorded`,
/// `already_done`, `gave_up`, `not_run` and `last_done_unix_ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStats {
    name: Arc<str>,
    counts: [u64; RunOutcome::ALL.len()],
    /// Since 1970.
    last_done: Option<Duration>,
}

impl JobStats {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, counts: [0; RunOutcome::ALL.len()], last_done: None }
    }

    pub(crate) fn add(&mut self, outcome: RunOutcome, done_at: Option<Duration>) {
        self.counts[outcome as usize] += 1;
        self.last_done = self.last_done.max(done_at);
    }

    pub(crate) fn count(&self, outcome: RunOutcome) -> u64 {
        self.counts[outcome as usize]
    }

    /// The name of the job; `(others)` for all jobs after the first 64.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs whose success was recorded: [`Once::Done`](crate::Once::Done).
    #[must_use]
    pub fn done(&self) -> u64 {
        self.count(RunOutcome::Done)
    }

    /// Runs that returned an error, or panicked.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.count(RunOutcome::Failed)
    }

    /// Runs whose success was not recorded, or may not be:
    /// [`Once::Unrecorded`](crate::Once::Unrecorded). Their work may be done again.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.count(RunOutcome::Unrecorded)
    }

    /// Calls that ran nothing because it was done before.
    #[must_use]
    pub fn already_done(&self) -> u64 {
        self.count(RunOutcome::AlreadyDone)
    }

    /// Calls that ran nothing because too many attempts had failed: nobody tries this occurrence
    /// again.
    #[must_use]
    pub fn gave_up(&self) -> u64 {
        self.count(RunOutcome::GaveUp)
    }

    /// Calls that ran nothing for another reason: somebody else was at it, it paused, or its time
    /// had passed. Those that returned an error are not in here.
    #[must_use]
    pub fn not_run(&self) -> u64 {
        self.count(RunOutcome::NotRun)
    }

    /// When the newest success was recorded that this client knows of, its own or another's: by
    /// its own clock if it was its own, otherwise by that of the store.
    #[must_use]
    pub fn last_done(&self) -> Option<SystemTime> {
        self.last_done.and_then(|at| UNIX_EPOCH.checked_add(at))
    }

    pub(crate) fn last_done_since_1970(&self) -> Option<Duration> {
        self.last_done
    }
}

/// The terms of a client in one [election](crate::Election): part of
/// [`Stats`](crate::observe::Stats).
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `terms` and `leads`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionStats {
    pub(crate) name: Arc<str>,
    pub(crate) terms: u64,
    pub(crate) leads: bool,
}

impl ElectionStats {
    /// The name of the election; `(others)` for all elections after the first 64.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many terms this client has won.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.terms
    }

    /// Whether this client led at the moment of the copy: in a term that had not been told to end.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leads
    }
}

/// The terms of one election.
#[derive(Default)]
struct Terms {
    count: u64,
    /// Of those that have not ended.
    tokens: Vec<CancelToken>,
}

/// Counted rarely, beside requests to the store, so each has a mutex. In a forked child nothing of
/// it may be called: another thread may have held one.
#[derive(Default)]
pub(crate) struct Outcomes {
    jobs: Mutex<Vec<JobStats>>,
    elections: Mutex<Vec<(Arc<str>, Terms)>>,
}

impl Outcomes {
    /// `done_at`: if it is done, when, since 1970.
    pub(crate) fn job_ended(&self, name: &str, outcome: RunOutcome, done_at: Option<Duration>) {
        let mut jobs = self.jobs.lock();
        entry(&mut jobs, name, |job| &job.name, JobStats::new).add(outcome, done_at);
    }

    /// A term has begun; its token is cancelled when it ends.
    pub(crate) fn term_began(&self, name: &str, token: CancelToken) {
        let mut elections = self.elections.lock();
        let new = |name| (name, Terms::default());
        let (_, terms) = entry(&mut elections, name, |(name, _)| name, new);
        terms.count += 1;
        terms.tokens.retain(|token| !token.is_cancelled());
        terms.tokens.push(token);
    }

    pub(crate) fn jobs(&self) -> Vec<JobStats> {
        self.jobs.lock().clone()
    }

    pub(crate) fn elections(&self) -> Vec<ElectionStats> {
        let of = |(name, terms): &(Arc<str>, Terms)| ElectionStats {
            name: name.clone(),
            terms: terms.count,
            leads: terms.tokens.iter().any(|token| !token.is_cancelled()),
        };
        self.elections.lock().iter().map(of).collect()
    }
}

/// The entry of a name, or that of all others.
fn entry<'t, T>(
    table: &'t mut Vec<T>,
    name: &str,
    name_of: impl Fn(&T) -> &str,
    new: impl FnOnce(Arc<str>) -> T,
) -> &'t mut T {
    let place_of = |wanted: &str| table.iter().position(|one| name_of(one) == wanted);
    let is_full = table.len() >= MOST && place_of(name).is_none();
    let name = if is_full { OTHERS } else { name };
    let place = place_of(name);
    let place = place.unwrap_or_else(|| {
        table.push(new(name.into()));
        table.len() - 1
    });
    &mut table[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_first_are_counted_together() {
        let outcomes = Outcomes::default();
        for n in 0..MOST + 3 {
            outcomes.job_ended(&format!("job-{n}"), RunOutcome::Done, None);
            outcomes.term_began(&format!("election-{n}"), CancelToken::new());
        }
        let (jobs, elections) = (outcomes.jobs(), outcomes.elections());
        assert_eq!((jobs.len(), elections.len()), (MOST + 1, MOST + 1));
        assert_eq!((jobs[MOST].name(), jobs[MOST].done()), (OTHERS, 3));
        assert_eq!((elections[MOST].name(), elections[MOST].terms()), (OTHERS, 3));
        outcomes.job_ended("job-0", RunOutcome::Failed, None);
        assert_eq!((outcomes.jobs()[0].done(), outcomes.jobs()[0].failed()), (1, 1));
    }

    #[test]
    fn the_newest_success_is_kept_and_a_term_ends_with_its_token() {
        let outcomes = Outcomes::default();
        let at = |seconds| Some(Duration::from_secs(seconds));
        outcomes.job_ended("job", RunOutcome::AlreadyDone, at(7));
        outcomes.job_ended("job", RunOutcome::AlreadyDone, at(5));
        outcomes.job_ended("job", RunOutcome::NotRun, None);
        assert_eq!(outcomes.jobs()[0].last_done(), Some(UNIX_EPOCH + Duration::from_secs(7)));
        let token = CancelToken::new();
        outcomes.term_began("election", token.clone());
        assert!(outcomes.elections()[0].leads());
        token.cancel();
        assert!(!outcomes.elections()[0].leads());
        assert_eq!(outcomes.elections()[0].terms(), 1);
    }
}
