//! The capabilities that not every store has: multi-locks, queues, counts, fenced values.

use std::cell::Cell;

use super::RedisStore;
use super::keys::{RESERVED, is_reserved};
use super::repeat::Answered;
use super::script;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    AcquireAll, AcquiredAll, Count, CountAnswer, CountStore, FenceAnswer, FenceStore, HoldCounts, MultiStore, Part,
    QueueStore, Release, Released, UnknownOutcomes,
};

impl MultiStore for RedisStore {
    fn acquire_all(&self, acquire: &AcquireAll<'_>, unknowns: &mut UnknownOutcomes) -> Result<AcquiredAll> {
        let asked = Cell::new(!unknowns.is_empty());
        let request = || script::acquire_all(acquire, asked.replace(true)).acknowledged_by(self.replicas);
        let Answered { reply, sent_at, .. } = self.requests.ask(request, unknowns)?;
        let answer = script::acquire_all_answer(reply, acquire, sent_at).inspect_err(|_| {
            let fresh = acquire.parts.iter().filter(|part| part.held == 0);
            let releases: Vec<_> = fresh.map(fresh_release).collect();
            if !releases.is_empty() {
                self.take_back(|| self.release_all(&releases, unknowns).map(drop));
            }
        })?;
        // Not after an error reply: earlier attempts may still have taken the locks.
        unknowns.clear();
        Ok(answer)
    }

    fn release_all(&self, releases: &[Release<'_>], unknowns: &mut UnknownOutcomes) -> Result<Vec<Result<Released>>> {
        let Answered { reply, repeated, .. } = self.requests.ask(|| script::release_all(releases), unknowns)?;
        let answers = script::release_all_answer(reply, releases.len())?;
        unknowns.clear();
        let outcome = |(answer, one): (Result<Released>, &Release<'_>)| {
            answer.map(|answer| super::or_freed_before(answer, repeated && one.left == HoldCounts::NONE))
        };
        Ok(answers.into_iter().zip(releases).map(outcome).collect())
    }
}

fn fresh_release<'a>(part: &Part<'a>) -> Release<'a> {
    Release { name: part.name, holder: part.holder, permits: 1, left: HoldCounts::NONE, granted: false }
}

impl QueueStore for RedisStore {
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)> {
        script::queue_answer(self.requests.ask_repeatable(|| script::queue(name, client))?.reply)
    }
}

impl CountStore for RedisStore {
    fn count(&self, name: &LockName, change: Count, id: &str, unknowns: &mut UnknownOutcomes) -> Result<CountAnswer> {
        self.check_use(name)?;
        let answer = script::count_answer(self.requests.ask(|| script::count(name, change, id), unknowns)?.reply);
        if let Ok(CountAnswer { value, .. }) = &answer {
            unknowns.clear();
            self.learn_use(name, change != Count::Delete && (change != Count::Down || *value > 0));
        }
        answer
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        self.check_use(name)?;
        let reply = self.requests.ask_repeatable(|| script::count_question(name))?.reply;
        let (left, more) = script::question_answer(reply)?;
        self.learn_use(name, name.kind != Kind::Latch || left > 0);
        Ok((left, more))
    }
}

impl FenceStore for RedisStore {
    fn check_key(&self, key: &str) -> Result<()> {
        if is_reserved(key) { Err(Error::named(ErrorKind::InvalidInput, key, RESERVED)) } else { Ok(()) }
    }

    fn claim(&self, key: &str, token: u64) -> Result<FenceAnswer> {
        script::fence_answer(self.requests.ask_repeatable(|| script::fence_claim(key, token))?.reply)
    }

    fn write(&self, key: &str, token: u64, value: &[u8], unknowns: &mut UnknownOutcomes) -> Result<FenceAnswer> {
        let reply = self.requests.ask(|| script::fence_write(key, token, value), unknowns)?.reply;
        let answer = script::fence_answer(reply);
        if answer.is_ok() {
            unknowns.clear();
        }
        answer
    }
}
