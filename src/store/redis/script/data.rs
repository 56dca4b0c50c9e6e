//! Scripts for the data of a hold. Those that take, renew or give up a hold with data run the
//! script of a hold without data as a part of themselves: what they add to its keys and arguments
//! comes in front.

use std::time::Duration;

use super::{DATA_ASK, DATA_LOOK, DATA_SET, fail_on_error, unexpected};
use crate::base::data::HoldData;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::wire::{Reply, Request, Script};
use crate::store::{Acquire, LastHold, Release};

/// The beginning of a request to take a mutex or a fair lock with `data`, up to the arguments of
/// the script without data.
pub(super) fn begin_acquire(
    script: &'static Script,
    acquire: &Acquire<'_>,
    data: &HoldData,
    keys: &[&[u8]],
) -> Request {
    let request = Request::script(script, &behind(&RedisKeys::of(acquire.name).data(), keys));
    request.arg(data.bytes()).number(u64::from(acquire.held == 0))
}

/// The same for a request to give it up.
pub(super) fn begin_release(
    script: &'static Script,
    release: &Release<'_>,
    keys: &[&[u8]],
) -> Request {
    let request = Request::script(script, &behind(&RedisKeys::of(release.name).data(), keys));
    request.number(u64::from(release.granted))
}

fn behind<'k>(data: &'k str, keys: &[&'k [u8]]) -> Vec<&'k [u8]> {
    std::iter::once(data.as_bytes()).chain(keys.iter().copied()).collect()
}

/// Replaces the data of a holder, unless it was replaced with this number or a higher one.
pub(crate) fn set_data(name: &LockName, holder: &Holder, number: u64, data: &HoldData) -> Request {
    let keys = RedisKeys::of(name);
    Request::script(&DATA_SET, &[keys.data().as_bytes(), keys.lock.as_bytes()])
        .arg(holder.as_str())
        .number(number)
        .arg(data.bytes())
}

/// Asks the holder with data for the lock.
pub(crate) fn ask_for(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    Request::script(&DATA_ASK, &[keys.data().as_bytes(), keys.lock.as_bytes()])
}

/// False: the holder does not have the lock, or nobody with data has it.
pub(crate) fn set_data_answer(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(1) => Ok(true),
        Reply::Int(0) => Ok(false),
        other => Err(unexpected("a change of data", &format!("{other:?}"))),
    }
}

/// Asks for the last holder with data.
pub(crate) fn last_hold(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    Request::script(&DATA_LOOK, &[keys.data().as_bytes(), keys.lock.as_bytes()])
}

pub(crate) fn last_hold_answer(reply: Reply) -> Result<Option<LastHold>> {
    let bad = || unexpected("a question about the last holder", "no list of its parts");
    let parts = fail_on_error(reply)?.into_list().ok_or_else(bad)?;
    match &parts[..] {
        [Reply::Int(0)] => Ok(None),
        [Reply::Bytes(holder), Reply::Bytes(data), Reply::Int(ended)] => Ok(Some(LastHold {
            holder: String::from_utf8_lossy(holder).into_owned(),
            data: HoldData::new(data),
            ended: u64::try_from(*ended).ok().map(Duration::from_millis),
        })),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_data_are_typed() {
        assert!(
            set_data_answer(Reply::Int(1)).unwrap() && !set_data_answer(Reply::Int(0)).unwrap()
        );
        set_data_answer(Reply::Int(2)).unwrap_err();
        let bytes = |text: &str| Reply::Bytes(text.into());
        let answer = |ended| {
            let parts = vec![bytes("u:1"), bytes("x"), Reply::Int(ended)];
            last_hold_answer(Reply::Array(parts)).unwrap().unwrap()
        };
        assert_eq!(answer(7).ended, Some(Duration::from_millis(7)));
        assert_eq!((answer(-1).ended, &*answer(-1).holder), (None, "u:1"));
        assert_eq!(last_hold_answer(Reply::Array(vec![Reply::Int(0)])).unwrap(), None);
        for bad in [vec![], vec![Reply::Int(1)], vec![bytes("u:1"), bytes("x")]] {
            last_hold_answer(Reply::Array(bad)).unwrap_err();
        }
    }
}
