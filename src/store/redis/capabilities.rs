//! Capabilities that not every store has: queues, counts, rates, data of holds, fenced values.

use super::keys::RedisKeys;
use super::keys::{RESERVED, Slot, is_reserved};
use super::{RedisStore, script};
use crate::base::advice::Advice;
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Count, CountAnswer, CountStore, DataStore, FenceAnswer, FenceStore, LastHold, QueueStore, Rate,
    RateChange, RateStore, UnknownOutcomes,
};

impl QueueStore for RedisStore {
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)> {
        script::queue_answer(
            self.servers
                .ask_repeatable(RedisKeys::of(name).slot, || script::queue(name, client))?
                .reply,
        )
    }
}

impl CountStore for RedisStore {
    fn count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer> {
        self.check_use(name)?;
        let answered = self.servers.ask(
            RedisKeys::of(name).slot,
            || script::count(name, change, id),
            unknowns,
        )?;
        let answer = script::count_answer(answered.reply);
        if let Ok(CountAnswer { value, .. }) = &answer {
            unknowns.clear();
            self.learn_use(name, change != Count::Delete && (change != Count::Down || *value > 0));
        }
        answer
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        self.check_use(name)?;
        let reply = self
            .servers
            .ask_repeatable(RedisKeys::of(name).slot, || script::count_question(name))?
            .reply;
        let (left, more) = script::question_answer(reply)?;
        // A semaphore without permits may be none at all: a look at nothing is no use of the name.
        if name.kind == Kind::Latch || (left, more) != (0, 0) {
            self.learn_use(name, name.kind != Kind::Latch || left > 0);
        }
        Ok((left, more))
    }
}

impl RateStore for RedisStore {
    fn change_rate(
        &self,
        name: &LockName,
        change: RateChange,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<bool> {
        let answered = self.servers.ask(
            RedisKeys::of(name).slot,
            || script::change_rate(name, change, id),
            unknowns,
        )?;
        script::change_rate_answer(answered.reply).inspect(|_| unknowns.clear())
    }

    fn rate_of(&self, name: &LockName) -> Result<Option<(Rate, i64)>> {
        let reply = self
            .servers
            .ask_repeatable(RedisKeys::of(name).slot, || script::rate_question(name))?
            .reply;
        script::rate_answer(reply)
    }
}

impl DataStore for RedisStore {
    fn set_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> Result<bool> {
        let request = || script::set_data(name, holder, number, data);
        script::set_data_answer(
            self.servers.ask_repeatable(RedisKeys::of(name).slot, request)?.reply,
        )
    }

    fn ask_for(&self, name: &LockName) -> Result<bool> {
        let reply =
            self.servers.ask_repeatable(RedisKeys::of(name).slot, || script::ask_for(name))?.reply;
        script::set_data_answer(reply)
    }

    fn last_hold(&self, name: &LockName) -> Result<Option<LastHold>> {
        let reply = self
            .servers
            .ask_repeatable(RedisKeys::of(name).slot, || script::last_hold(name))?
            .reply;
        script::last_hold_answer(reply)
    }
}

impl FenceStore for RedisStore {
    fn check_key(&self, key: &str) -> Result<()> {
        if is_reserved(key) {
            Err(Error::named(ErrorKind::InvalidInput, key, RESERVED).advise(Advice::ChooseName))
        } else {
            Ok(())
        }
    }

    fn claim(&self, key: &str, token: u64) -> Result<FenceAnswer> {
        let slot = Slot::for_key(key);
        script::fence_answer(
            self.servers.ask_repeatable(slot, || script::fence_claim(key, token))?.reply,
        )
    }

    fn write(
        &self,
        key: &str,
        token: u64,
        value: &[u8],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<FenceAnswer> {
        let slot = Slot::for_key(key);
        let reply =
            self.servers.ask(slot, || script::fence_write(key, token, value), unknowns)?.reply;
        let answer = script::fence_answer(reply);
        if answer.is_ok() {
            unknowns.clear();
        }
        answer
    }
}
