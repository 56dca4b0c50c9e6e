//! One connection, the session at its other end, and what is known of a request without an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::transport::{Protocol, Transport};
use crate::base::error::{Error, Result};
use crate::base::lease::Moment;
use crate::base::log;
use crate::signal::clock::Clock;
use crate::store::net::{self, ENDED, KEEPALIVE_PAUSE, Stream};

pub(crate) type Failure<I> = net::Failure<UnknownOutcome<I>>;

/// The session at the other end of a connection.
#[derive(Debug)]
struct Session<I> {
    id: I,
    /// It has ended: nothing that was sent to it can run any more. One kill serves all threads that
    /// had requests there.
    ended: AtomicBool,
}

/// A request was sent on a connection that then failed. It can still run until its session has
/// ended.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome<I> {
    session: Arc<Session<I>>,
    /// It is part of a hand-over, which frees the lock without notifying the waiters of other
    /// clients. If only that part has run, somebody still has to.
    pub(crate) untold: bool,
}

impl<I> UnknownOutcome<I> {
    pub(crate) fn session(&self) -> &I {
        &self.session.id
    }

    /// Whether both were sent on one connection: then one kill resolves both.
    pub(super) fn same_session(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.session, &other.session)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.session.ended.load(Ordering::Acquire)
    }

    pub(super) fn note_end(&self) {
        self.session.ended.store(true, Ordering::Release);
    }
}

/// A live connection. Any error is final: after a timeout the next answer could belong to an
/// earlier request.
pub(crate) struct Link<P, I> {
    pub(crate) transport: Transport<P>,
    session: Arc<Session<I>>,
    clock: Arc<dyn Clock>,
    /// When its last requests were sent.
    last_sent: Moment,
}

/// Requests that are sent in one write.
pub(crate) struct Sent<I> {
    pub(crate) at: Moment,
    pub(crate) unknown: UnknownOutcome<I>,
    /// They are sent after so long a pause that the connection may have been cut in silence (by a
    /// NAT that has forgotten it, a host that is gone) before.
    after_pause: bool,
}

impl<P: Protocol, I: Clone> Link<P, I> {
    /// A connection after its handshake.
    pub(crate) fn new(transport: Transport<P>, session: I, clock: Arc<dyn Clock>) -> Self {
        let session = Arc::new(Session { id: session, ended: AtomicBool::new(false) });
        let last_sent = clock.now();
        Self { transport, session, clock, last_sent }
    }

    pub(crate) fn session(&self) -> &I {
        &self.session.id
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.transport.stream
    }

    /// Whether an idle connection can still be used.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.ensure_quiet().is_ok()
    }

    fn ensure_quiet(&mut self) -> Result<()> {
        self.transport.ensure_quiet().inspect_err(|error| {
            self.transport.stream.meter.broke();
            log::debug!(
                "an idle connection has ended, or has received what nobody asked for: {}",
                error.chain()
            );
        })
    }

    /// Without it the server notes in its log and its statistics that a client was lost. For an
    /// idle connection: in the middle of a request it would be read as a part of that.
    pub(crate) fn goodbye(&mut self) {
        self.transport.stream.say_last(P::GOODBYE);
    }

    /// Requests are about to be sent.
    pub(crate) fn begin(&mut self) -> std::result::Result<Sent<I>, Failure<I>> {
        self.ensure_quiet().map_err(Failure::NotSent)?;
        let unknown = UnknownOutcome { session: self.session.clone(), untold: false };
        let at = self.clock.now();
        let after_pause = at.since(self.last_sent) > KEEPALIVE_PAUSE;
        self.last_sent = at;
        Ok(Sent { at, unknown, after_pause })
    }

    /// `closed`: the server has said that it closes the connection.
    #[cold]
    pub(crate) fn as_unknown(&self, error: Error, sent: &Sent<I>, closed: bool) -> Failure<I> {
        // Counted after a timeout as well, because the connection is closed then.
        self.transport.stream.meter.broke();
        let is_silent =
            || sent.after_pause && self.clock.now().since(sent.at) >= self.transport.io_timeout;
        let ended = closed || error.message() == ENDED || is_silent();
        Failure::Unknown { error, unknown: sent.unknown.clone(), ended }
    }
}
