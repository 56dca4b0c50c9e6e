//! A server's address and how to log in there.

use redis::ConnectionInfo;

use super::request::Request;
use super::url;
use crate::base::error::Result;

/// A server's address, taken apart and checked; nothing is connected.
#[derive(Clone)]
pub(crate) struct Endpoint {
    info: ConnectionInfo,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address only: the rest has the password.
        write!(f, "{}", self.info.addr())
    }
}

impl Endpoint {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        url::parse(url).map(|info| Self { info })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.info.addr(), redis::ConnectionAddr::Tcp(..))
    }

    /// What logs in, if the URL has a password.
    pub(super) fn log_in(&self) -> Option<Request> {
        let redis = self.info.redis_settings();
        redis.password().map(|password| Request::plain(&["AUTH", redis.username().unwrap_or("default"), password]))
    }
}
