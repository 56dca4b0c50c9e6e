//! One server, and requests to it that may be repeated: an earlier attempt must not run after a
//! later one.

use std::sync::Arc;
use std::time::Duration;

use super::background::Background;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::node_status::NodeStatus;
use crate::os;
use crate::signal::clock::Clock;
use crate::store::UnknownOutcomes;
use crate::store::net::Repeats;
use crate::store::redis::wire::{
    Answer, Connector, Pool, RedisFailure, Request, Target, UnknownOutcome, fail_on_error,
};

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) pool: Arc<Pool>,
    pub(super) background: Background,
    /// What both connect to.
    target: Target,
    clock: Arc<dyn Clock>,
}

/// Why a request has no reply.
pub(super) enum Unanswered {
    /// No byte of it has reached a server.
    NotSent(Error),
    /// It may have run, or may still run: it is among the unknown outcomes.
    Unknown(Error),
}

impl Unanswered {
    pub(super) fn into_error(self) -> Error {
        let (Self::NotSent(error) | Self::Unknown(error)) = self;
        error
    }
}

impl Server {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(super) fn new(foreground: Connector, background: Connector, connections: usize) -> Self {
        let clock = foreground.clock.clone();
        let target = foreground.endpoint.clone();
        Self {
            pool: Pool::new(foreground, connections),
            background: Background::new(background),
            target,
            clock,
        }
    }

    /// Connects once, which also checks the server and the user's rights.
    pub(super) fn connect_now(&self) -> Result<()> {
        self.pool.connect_aside()?.keep();
        Ok(())
    }

    /// Makes the connections for lock calls.
    pub(super) fn connector(&self) -> &Connector {
        &self.pool.connector
    }

    pub(super) fn status(&self) -> NodeStatus {
        // A client that only holds locks sends nothing but renewals.
        self.pool.status(self.background.is_connected())
    }

    /// If there are unknown outcomes, the kills of the earlier connections come right before the
    /// request, so that no earlier attempt can run after it.
    ///
    /// It is repeated at once if its connection had ended while idle (a restart, an idle timeout of
    /// the server): that says nothing about the server now. Repeats go through the pool like all
    /// other requests: a server that ends all connections at once meets those that the pool makes
    /// again, and not one of each thread.
    pub(super) fn ask(
        &self,
        request: &impl Fn() -> Request,
        unknowns: &mut UnknownOutcomes,
    ) -> std::result::Result<Answer, Unanswered> {
        let mut repeats = Repeats::over(&self.pool, &*self.clock);
        loop {
            let earlier: &[UnknownOutcome] = unknowns.list();
            let answered = if earlier.iter().any(UnknownOutcome::needs_time) {
                self.ask_too_late_for(request(), earlier)
            } else {
                let mut request = request();
                request.earlier = earlier.to_vec();
                self.pool.ask(request, self.pool.most)
            };
            match answered {
                Ok(answered) => return Ok(answered),
                Err(RedisFailure::NotSent(error)) => return Err(Unanswered::NotSent(error)),
                Err(RedisFailure::Unknown { error, unknown, ended }) => {
                    unknowns.push(unknown);
                    if !ended || !repeats.one_more() {
                        return Err(Unanswered::Unknown(error));
                    }
                }
            }
        }
    }

    /// Where the user may not kill connections: after the not-after time of the earlier attempts,
    /// on a new connection. The server's clock may have been set back, and the handshake has just
    /// read it.
    fn ask_too_late_for(
        &self,
        request: Request,
        earlier: &[UnknownOutcome],
    ) -> std::result::Result<Answer, RedisFailure> {
        let connect = || self.pool.connect_aside().map_err(RedisFailure::NotSent);
        let mut connection = connect()?;
        if let Err(wait) = connection.kills_for(earlier) {
            // Other threads need a new connection, too.
            drop(connection);
            // It is longer than the I/O timeout only if the server's clock was set back, and no
            // caller waits for that.
            os::thread::sleep(wait.min(self.pool.connector.io_timeout));
            connection = connect()?;
        }
        let mut requests =
            connection.kills_for(earlier).map_err(|wait| RedisFailure::NotSent(not_yet(wait)))?;
        let kills = requests.len();
        requests.push(request);
        let repeated = earlier.iter().any(|unknown| connection.may_have_run(unknown));
        let (mut replies, flight) = connection.exchange(&requests)?;
        let reply = replies.pop().expect("a reply for every request");
        if !reply.is_demotion() {
            connection.keep();
        }
        // After a refused kill an earlier attempt can still run, so this reply does not count.
        for kill in replies.into_iter().take(kills) {
            fail_on_error(kill).map_err(|error| RedisFailure::Unknown {
                error,
                unknown: earlier[0].clone(),
                ended: false,
            })?;
        }
        Ok(Answer { reply, sent_at: flight.sent_at, repeated, is_first: true })
    }

    /// How often another server has become the master.
    pub(super) fn moves(&self) -> u64 {
        self.target.moves()
    }

    pub(super) fn close(&self) {
        self.pool.close();
        self.background.close();
        self.target.close();
    }
}

#[cold]
fn not_yet(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "an earlier attempt can still reach the server for {wait:?}, and CLIENT KILL is not permitted"
        ),
    )
}
