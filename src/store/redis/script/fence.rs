//! Scripts of fenced values: claim with a token, write under a claim.

use super::{FENCE_CLAIM, FENCE_WRITE, fail_on_error, unexpected};
use crate::base::error::Result;
use crate::store::FenceAnswer;
use crate::store::redis::wire::{Reply, Request};

pub(crate) fn fence_claim(key: &str, token: u64) -> Request {
    Request::script(&FENCE_CLAIM, &[key.as_bytes()]).number(token)
}

pub(crate) fn fence_write(key: &str, token: u64, value: &[u8]) -> Request {
    Request::script(&FENCE_WRITE, &[key.as_bytes()]).number(token).arg(value)
}

pub(crate) fn fence_answer(reply: Reply) -> Result<FenceAnswer> {
    let Some(parts) = fail_on_error(reply)?.into_list() else { return Err(unexpected("a fenced request", "no list")) };
    let mut parts = parts.into_iter();
    let (status, value) = (parts.next(), parts.next());
    let value = if let Some(Reply::Bytes(bytes)) = value { Some(bytes) } else { None };
    match status {
        Some(Reply::Int(1)) => Ok(FenceAnswer::Accepted(value)),
        Some(Reply::Int(0)) => Ok(FenceAnswer::Refused {
            standing: value.and_then(|v| String::from_utf8(v).ok()).and_then(|v| v.parse().ok()),
        }),
        other => Err(unexpected("a fenced request", &format!("{other:?}"))),
    }
}
