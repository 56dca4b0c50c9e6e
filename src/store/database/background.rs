//! Requests of the watchdog thread, over the connection for renewals and undos.

use super::server::{Database, only};
use super::session::Failure;
use crate::base::error::Result;
use crate::store::net::{Background, Next, Pool};

impl<C: Database> Background<C> {
    /// Over a connection of the locks if it cannot open one.
    pub(crate) fn exchange(&self, request: &C::Request, locks: &Pool<C>) -> Result<C::Answer> {
        self.exchange_all(std::slice::from_ref(request), locks).map(only)
    }

    /// The same for several requests.
    pub(crate) fn exchange_all(
        &self,
        requests: &[C::Request],
        locks: &Pool<C>,
    ) -> Result<Vec<C::Answer>> {
        let over_locks = || {
            let each = requests.iter();
            each.map(|request| C::ask_over_open(locks, request.clone()).ok()).collect()
        };
        self.or_over_locks(|| self.exchange_alone(requests), over_locks)
    }

    /// Never over a connection of the locks, whose timeout may be longer than leases allow.
    pub(crate) fn exchange_alone(
        &self,
        requests: &[C::Request],
    ) -> std::result::Result<Vec<C::Answer>, Failure<C::SessionId>> {
        let ask = |connection: &mut C::Connection| self.connector.ask_all(connection, requests);
        self.exchange_by(ask, |answers| next::<C>(answers))
    }

    /// Keeps a connection that has brought these answers, if it can be used again.
    pub(crate) fn put_back_after(&self, connection: C::Connection, answers: &[C::Answer]) {
        self.put_back(connection, next::<C>(answers));
    }
}

fn next<C: Database>(answers: &[C::Answer]) -> Next {
    if answers.iter().any(C::is_last) { Next::Close } else { Next::Keep }
}
