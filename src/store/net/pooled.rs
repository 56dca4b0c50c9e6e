//! What a pool needs from the store whose connections it keeps.

use std::convert::Infallible;
use std::time::Duration;

use super::callers::Callers;
use super::failure::Failure;
use crate::base::error::Result;

pub(crate) type Outcome<C> = std::result::Result<<C as PooledConnector>::Answer, FailureOf<C>>;
pub(crate) type FailureOf<C> = Failure<<C as PooledConnector>::Unknown>;

/// Makes the connections of a pool, and knows its requests and answers.
pub(crate) trait PooledConnector: Sized + Send + Sync + 'static {
    type Connection: PooledConnection<Self>;
    /// The other half of a connection, with which another thread sends while answers are due.
    /// `Infallible` where a connection carries one write at a time.
    type Sender: PooledSender<Self>;
    type Request: Send + Sync;
    /// What is known of requests from before they are sent until their answers have come.
    type Flight: Send;
    type Answer: Send;
    /// How to make sure that a request without an answer can no longer run.
    type Unknown: Clone + Send;

    fn connect(&self) -> Result<Self::Connection>;

    fn io_timeout(&self) -> Duration;

    /// The server, for messages.
    fn address(&self) -> String;

    /// What has held up requests within the last I/O timeout, if it is known.
    fn held_up_by(&self) -> Option<String> {
        None
    }

    /// Whether a thread may use a core while it waits for an answer.
    fn may_poll(&self) -> bool {
        false
    }

    /// Whether it goes before all others that wait for a connection.
    fn is_urgent(_request: &Self::Request) -> bool {
        false
    }

    /// Whether requests of two callers may be sent in one write.
    fn share_a_write(one: &Self::Request, other: &Self::Request) -> bool;

    /// Whether others may be sent before its answer has come, and it before theirs. Asked only
    /// where connections have senders.
    fn may_follow(_request: &Self::Request) -> bool {
        true
    }

    /// Called with each answer, when its connection has been returned. What has to be sent in
    /// place of the request, because it did not run.
    fn again(&self, _request: &Self::Request, _answer: &Self::Answer) -> Option<Self::Request> {
        None
    }

    /// Whether a connection that has brought this answer must not be used again.
    fn is_last(answer: &Self::Answer) -> bool;

    fn unknown(flight: &Self::Flight) -> Self::Unknown;
}

/// Any failure is final for a connection: the next answer could belong to an earlier request.
pub(crate) trait PooledConnection<C: PooledConnector>: Send {
    /// Asked before requests are sent over a connection that was not made for them.
    fn is_usable(&mut self, _connector: &C) -> bool {
        true
    }

    /// It is returned to the pool.
    fn mark_idle(&mut self) {}

    /// The client closes an idle connection. Only here, and never in a drop: a forked child drops
    /// its copy of a connection that its parent goes on using.
    fn say_goodbye(&mut self) {}

    /// Packs requests that are sent in one write. No byte leaves the client here.
    fn prepare<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r C::Request>,
    ) -> std::result::Result<C::Flight, FailureOf<C>>
    where
        C::Request: 'r;

    /// Sends what was prepared.
    fn transmit(&mut self, flight: &C::Flight) -> std::result::Result<(), FailureOf<C>>;

    /// Reads the answers, and puts the outcome of each request in its place. A failure is the
    /// outcome of all that have none. `callers`: they may poll for an answer for a short while.
    fn receive(
        &mut self,
        flight: &mut C::Flight,
        outcomes: &mut [Option<Outcome<C>>],
        callers: Option<&Callers>,
    ) -> std::result::Result<(), FailureOf<C>>;

    /// The other half of a new connection; `None` if it carries one write at a time.
    fn sender(&self) -> Option<C::Sender> {
        None
    }

    /// Ends a connection whose sender another thread may have.
    fn shut(&self) {}
}

/// Sends over a connection while another thread reads from it.
pub(crate) trait PooledSender<C: PooledConnector>: Send {
    /// Whether requests may still be sent to this server.
    fn is_current(&self) -> bool;

    /// Packs requests that are sent in one write, behind those whose answers are due.
    fn prepare<'r>(&mut self, requests: impl Iterator<Item = &'r C::Request>) -> C::Flight
    where
        C::Request: 'r;

    /// Sends what was prepared last. After a failure, whoever reads finds that the connection has
    /// ended, and the outcome of these requests is unknown.
    fn transmit(&mut self) -> Result<()>;

    /// Ends the connection for the thread that reads from it.
    fn shut(&self);
}

impl<C: PooledConnector> PooledSender<C> for Infallible {
    fn is_current(&self) -> bool {
        match *self {}
    }

    fn prepare<'r>(&mut self, _: impl Iterator<Item = &'r C::Request>) -> C::Flight
    where
        C::Request: 'r,
    {
        match *self {}
    }

    fn transmit(&mut self) -> Result<()> {
        match *self {}
    }

    fn shut(&self) {
        match *self {}
    }
}
