//! A value in Redis that refuses the writes of stale holders.

use std::sync::Arc;

use parking_lot::Mutex;

use super::token::FencingToken;
use crate::base::error::{Error, ErrorKind, Result};
use crate::session::Shared;
use crate::store::{FenceAnswer, UnknownOutcomes};

/// Bytes under a Redis key, together with the highest fencing token that has claimed them.
///
/// Made by [`LockClient::fenced_value`](crate::LockClient::fenced_value); no I/O until a method. The key is a hash with
/// the fields `token` and `value`, without a TTL: a resource that forgot its token would take a stale one. It is the value's
/// own, never the name of the lock that guards it: whichever of the two comes second under one name is refused with
/// [`WrongType`](ErrorKind::WrongType).
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let guard = client.lock("balance-lock")?;
/// let token = guard.fencing_token().expect("fencing is on");
/// let balance = client.fenced_value("balance");
/// let claim = balance.claim(token)?; // before the read
/// let old: u64 = claim.value().map_or(0, |v| String::from_utf8_lossy(v).parse().unwrap_or(0));
/// claim.write((old + 1).to_string())?; // refused if a newer holder has claimed it meanwhile
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FencedValue {
    shared: Arc<Shared>,
    key: Arc<str>,
    /// What is wrong with the key. Told by the first method: making a handle cannot fail.
    refused: Option<Error>,
}

/// A claim on a [`FencedValue`]: what stood there when it was claimed, and the right to replace it as long as no newer
/// holder claims it. Nothing has to be given back.
#[derive(Debug)]
pub struct ValueClaim {
    of: FencedValue,
    token: FencingToken,
    value: Option<Vec<u8>>,
    /// Writes of this claim whose replies were lost: each is stopped before the next one goes out.
    unknowns: Mutex<UnknownOutcomes>,
}

impl FencedValue {
    pub(crate) fn new(shared: &Arc<Shared>, key: &str) -> Self {
        let mapped: Arc<str> = format!("{}{key}", shared.config.key_prefix).into();
        let refused = if key.is_empty() {
            Some(Error::new(ErrorKind::InvalidInput, "the key of a fenced value must not be empty"))
        } else {
            shared.store.fence().and_then(|fence| fence.check_key(&mapped)).err()
        };
        Self { shared: shared.clone(), key: mapped, refused }
    }

    /// The Redis key, prefix included.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Claims the value with the token and reads it, in one step. One round trip, or a few I/O timeouts. Repeat-safe:
    /// the same token may claim again.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale) when a newer token has claimed it; [`WrongType`](ErrorKind::WrongType) when something
    /// else stands under the key, a lock for one: nothing of it was changed; [`InvalidInput`](ErrorKind::InvalidInput) for
    /// an empty key, or one that locks keep for themselves; any failure to ask the server.
    pub fn claim(&self, token: FencingToken) -> Result<ValueClaim> {
        self.usable()?;
        let claimed = self.shared.store.fence().and_then(|fence| fence.claim(&self.key, token.get()));
        match claimed.map_err(|e| e.for_name(&self.key))? {
            FenceAnswer::Accepted(value) => {
                Ok(ValueClaim { of: self.clone(), token, value, unknowns: Mutex::default() })
            }
            FenceAnswer::Refused { standing } => Err(self.stale(token, standing)),
        }
    }

    fn usable(&self) -> Result<()> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        self.shared.check_usable().map_err(|e| e.for_name(&self.key))
    }

    #[cold]
    fn stale(&self, token: FencingToken, standing: Option<u64>) -> Error {
        let by = standing.map_or("nobody's claim stands any more".to_owned(), |t| format!("token {t} has claimed it"));
        Error::named(ErrorKind::Stale, &self.key, format!("fencing token {token} is stale: {by}"))
    }
}

impl ValueClaim {
    /// What stood there when it was claimed; `None` for a value that was never written.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// The token of the claim.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Replaces the value if this is still the newest claim. One round trip; bounded by a few I/O timeouts when the
    /// server hangs. Repeat-safe: a write whose reply was lost cannot run after a later one of the same claim.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale) when a newer holder has claimed it: nothing was written. As
    /// [`FencedValue::claim`] when something else has taken the key. After
    /// [`Unreachable`](ErrorKind::Unreachable) it may have been; the same call may be made again.
    pub fn write(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.of.usable()?;
        let store = &self.of.shared.store;
        let key = &self.of.key;
        let mut unknowns = self.unknowns.lock();
        let written = store.fence().and_then(|fence| fence.write(key, self.token.get(), value.as_ref(), &mut unknowns));
        match written.map_err(|e| e.for_name(key))? {
            FenceAnswer::Accepted(_) => Ok(()),
            FenceAnswer::Refused { standing } => Err(self.of.stale(self.token, standing)),
        }
    }
}
