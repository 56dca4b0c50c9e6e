//! The capabilities that not every store has: queues, counts, fenced values.

use super::keys::Slot;
use super::keys::{RESERVED, is_reserved};
use super::script;
use super::{RedisStore, slot_of};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Count, CountAnswer, CountStore, FenceAnswer, FenceStore, QueueStore, UnknownOutcomes};

impl QueueStore for RedisStore {
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)> {
        script::queue_answer(self.servers.ask_repeatable(slot_of(name), || script::queue(name, client))?.reply)
    }
}

impl CountStore for RedisStore {
    fn count(&self, name: &LockName, change: Count, id: &str, unknowns: &mut UnknownOutcomes) -> Result<CountAnswer> {
        self.check_use(name)?;
        let answered = self.servers.ask(slot_of(name), || script::count(name, change, id), unknowns)?;
        let answer = script::count_answer(answered.reply);
        if let Ok(CountAnswer { value, .. }) = &answer {
            unknowns.clear();
            self.learn_use(name, change != Count::Delete && (change != Count::Down || *value > 0));
        }
        answer
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        self.check_use(name)?;
        let reply = self.servers.ask_repeatable(slot_of(name), || script::count_question(name))?.reply;
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
        let slot = Slot::for_key(key);
        script::fence_answer(self.servers.ask_repeatable(slot, || script::fence_claim(key, token))?.reply)
    }

    fn write(&self, key: &str, token: u64, value: &[u8], unknowns: &mut UnknownOutcomes) -> Result<FenceAnswer> {
        let slot = Slot::for_key(key);
        let reply = self.servers.ask(slot, || script::fence_write(key, token, value), unknowns)?.reply;
        let answer = script::fence_answer(reply);
        if answer.is_ok() {
            unknowns.clear();
        }
        answer
    }
}
