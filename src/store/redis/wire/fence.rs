//! What stands between the replies of two writes.

use super::reply::Reply;
use super::request::Request;
use crate::base::digits::Digits;

/// Sent before each write behind replies that are due: an `ECHO` of a number that no other one on
/// this connection has. Before a write over an idle connection nothing may have come. Here the
/// replies of others come at any time, and one that comes twice would be taken for the first reply
/// of this write: for the grant of a lock that somebody else holds. So it is found where the number
/// is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence(u64);

impl Fence {
    /// With it the handshake asks whether the server, and what is before it, returns such numbers.
    pub(super) const FIRST: Self = Self(1_000_000_000_000_000_000);

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn request(self) -> Request {
        Request::plain(&["ECHO"]).number(self.0)
    }

    pub(super) fn is_answered_by(self, reply: &Reply) -> bool {
        matches!(reply, Reply::Bytes(bytes) if bytes == Digits::of(self.0).as_bytes())
    }
}
