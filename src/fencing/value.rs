//! A value in the store that refuses writes from stale holders.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::token::FencingToken;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::os::Mutex;
use crate::store::{FenceAnswer, UnknownOutcomes};
use crate::wait::client_state::ClientState;

/// Bytes under a key of the server, together with the highest fencing token that has claimed them.
///
/// Made by [`LockClient::fenced_value`](crate::LockClient::fenced_value), without I/O. The key is a
/// hash with the fields `token` and `value`, and has no TTL: a resource that forgot its token would
/// accept a stale one. The key belongs only to the value and is never the name of the lock that
/// guards it. If both use one name, the second of the two is refused with
/// [`WrongType`](ErrorKind::WrongType).
///
/// # Examples
/// ```no_run
/// # fn add_one(client: &leasehold::LockClient) -> leasehold::Result<()> {
/// let guard = client.lock("balance-lock")?;
/// let token = guard.fencing_token()?;
/// let balance = client.fenced_value("balance");
/// let claim = balance.claim(token)?; // before the read
/// let old: u64 = claim.value().map_or(0, |v| String::from_utf8_lossy(v).parse().unwrap_or(0));
/// claim.write((old + 1).to_string())?; // refused if a newer holder has claimed it meanwhile
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedValue {
    client: Arc<ClientState>,
    key: Arc<str>,
    /// Why the key is refused. Making a handle cannot fail, so the first call reports it.
    refused: Option<Error>,
}

/// A claim on a [`FencedValue`]: the value at the time of the claim, and the right to replace it as
/// long as no newer holder claims it. A claim does not have to be released.
#[derive(Debug)]
pub struct ValueClaim {
    of: FencedValue,
    token: FencingToken,
    value: Option<Vec<u8>>,
    /// Writes of this claim whose replies were lost. Each is stopped before the next write is sent.
    unknowns: Mutex<UnknownOutcomes>,
}

// An unknown write is added whole.
impl UnwindSafe for ValueClaim {}
impl RefUnwindSafe for ValueClaim {}

impl FencedValue {
    pub(crate) fn new(client: &Arc<ClientState>, key: &str) -> Self {
        let mapped: Arc<str> = format!("{}{key}", client.config.key_prefix).into();
        let refused = if key.is_empty() {
            Some(invalid("the key of a fenced value must not be empty"))
        } else {
            client
                .store
                .fence()
                .and_then(|fence| fence.check_key(&mapped))
                .map_err(|e| e.for_name(&mapped))
                .err()
        };
        Self { client: client.clone(), key: mapped, refused }
    }

    /// The key at the server, prefix included.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Claims the value with the token and reads it, in one step. One round trip, or a few I/O
    /// timeouts if the server hangs. The same token may claim again.
    ///
    /// # Errors
    /// - [`Stale`](ErrorKind::Stale) if a newer token has claimed it;
    /// - [`WrongType`](ErrorKind::WrongType) if the key is used for something else, such as a lock,
    ///   which is left unchanged;
    /// - [`InvalidInput`](ErrorKind::InvalidInput) for an empty key, or one that is reserved for
    ///   locks;
    /// - [`Unsupported`](ErrorKind::Unsupported) where the store has [no such
    ///   values](crate::LockClient::fenced_value);
    /// - any failure to ask the server.
    pub fn claim(&self, token: FencingToken) -> Result<ValueClaim> {
        self.usable()?;
        let claimed =
            self.client.store.fence().and_then(|fence| fence.claim(&self.key, token.get()));
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
        self.client.check_usable().map_err(|e| e.for_name(&self.key))
    }

    #[cold]
    fn stale(&self, token: FencingToken, standing: Option<u64>) -> Error {
        let by =
            standing.map_or("no claim is left".to_owned(), |t| format!("token {t} has claimed it"));
        Error::named(ErrorKind::Stale, &self.key, format!("fencing token {token} is stale: {by}"))
    }
}

impl ValueClaim {
    /// The value at the time of the claim; `None` if it was never written.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// The token of the claim.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Replaces the value if this is still the newest claim. One round trip, or a few I/O timeouts
    /// if the server hangs. Safe to repeat: a write whose reply was lost cannot run after a later
    /// one of the same claim.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale) if a newer holder has claimed the value: nothing was written.
    /// [`WrongType`](ErrorKind::WrongType) as for [`FencedValue::claim`]. After
    /// [`Unreachable`](ErrorKind::Unreachable) the value may have been written; the same call may
    /// be made again.
    pub fn write(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.of.usable()?;
        let store = &self.of.client.store;
        let key = &self.of.key;
        let mut unknowns = self.unknowns.lock();
        let written = store
            .fence()
            .and_then(|fence| fence.write(key, self.token.get(), value.as_ref(), &mut unknowns));
        match written.map_err(|e| e.for_name(key))? {
            FenceAnswer::Accepted(_) => Ok(()),
            FenceAnswer::Refused { standing } => Err(self.of.stale(self.token, standing)),
        }
    }
}
