//! Requests over a connection that no pool shares: Redlock reads from several at once, and the
//! background has one for itself.

use std::time::Duration;

use super::connection::{Connection, Due, InFlight, misfit};
use super::pool::Pool;
use super::reply::{Reply, Shape};
use super::request::Request;
use super::unknown_outcome::{RedisFailure, Remedy, UnknownOutcome};
use crate::base::error::{Error, ErrorKind};
use crate::store::net::{ENDED, PooledConnection, readable};

impl Connection {
    /// Which connections have input or have ended. Waits at most `timeout` for the first.
    pub(crate) fn answered(connections: &[&Self], timeout: Duration) -> Vec<bool> {
        let streams: Vec<_> =
            connections.iter().map(|connection| &connection.transport.stream).collect();
        let is_ahead = |connection: &&Self| connection.transport.has_read_ahead();
        let timeout = if connections.iter().any(is_ahead) { Duration::ZERO } else { timeout };
        let polled = readable(&streams, timeout);
        polled
            .into_iter()
            .zip(connections)
            .map(|(polled, connection)| polled || is_ahead(connection))
            .collect()
    }

    /// Sends the requests in one write.
    pub(crate) fn send<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        if self.awaited.due.is_empty() && self.note_end_while_idle() {
            // Everything that was sent on it has been answered, so nothing can run late.
            let error = Error::new(ErrorKind::Unreachable, ENDED);
            let unknown = UnknownOutcome { facts: self.facts.clone(), not_after: 0, sent: false };
            return Err(RedisFailure::Unknown { error, unknown, ended: true });
        }
        let flight = self.prepare(requests)?;
        self.transmit(&flight)?;
        Ok(flight)
    }

    /// The reply to one request, where none of the write waits for replicas.
    pub(crate) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, RedisFailure> {
        debug_assert!(!self.awaited.replicas, "receive judges these replies");
        let due = self.next_due();
        let reply = self.read(due.shape, flight, None)?;
        Ok(due.judge(reply))
    }

    fn next_due(&mut self) -> Due {
        self.awaited.due.pop_front().unwrap_or_else(Due::unasked)
    }

    /// A reply that has already arrived. `fresh`: [`answered`](Self::answered) has reported input.
    pub(crate) fn recv_now(
        &mut self,
        flight: &InFlight,
        fresh: bool,
    ) -> std::result::Result<Option<Reply>, RedisFailure> {
        let Some(reply) =
            self.transport.recv_now(fresh).map_err(|error| self.as_unknown(error, flight))?
        else {
            return Ok(None);
        };
        // Only Redlock reads in this way, and it has neither replicas nor clusters.
        let due = self.next_due();
        if !due.shape.fits(&reply) {
            return Err(self.as_unknown(misfit(reply), flight));
        }
        Ok(Some(due.judge(reply)))
    }

    /// Sends all requests in one write and reads all replies. A script that the server does not
    /// know is sent again with its source, which is safe because NOSCRIPT guarantees that nothing
    /// ran.
    pub(crate) fn exchange(
        &mut self,
        requests: &[Request],
    ) -> std::result::Result<(Vec<Reply>, InFlight), RedisFailure> {
        let mut flight = self.send(requests.iter())?;
        let mut replies = self.recv_all(&mut flight, requests.len())?;
        let is_unknown = |reply: &Reply| reply.is_error("NOSCRIPT");
        let again: Vec<(usize, Request)> = (0..requests.len())
            .filter(|place| is_unknown(&replies[*place]))
            .filter_map(|place| Some((place, requests[place].whole()?)))
            .collect();
        if !again.is_empty() {
            let mut flight_again = self.send(again.iter().map(|(_, whole)| whole))?;
            let replies_again = self.recv_all(&mut flight_again, again.len())?;
            for ((place, _), reply) in again.iter().zip(replies_again) {
                replies[*place] = reply;
            }
        }
        Ok((replies, flight))
    }

    /// The replies to so many requests without earlier attempts.
    fn recv_all(
        &mut self,
        flight: &mut InFlight,
        requests: usize,
    ) -> std::result::Result<Vec<Reply>, RedisFailure> {
        let mut outcomes: Vec<_> = (0..requests).map(|_| None).collect();
        self.receive(flight, &mut outcomes, None)?;
        outcomes.into_iter().flatten().map(|outcome| Ok(outcome?.reply)).collect()
    }

    /// The `CLIENT KILL`s that must be sent before a repeat or an undo, or how long to wait first.
    pub(crate) fn kills_for<'a>(
        &self,
        unknowns: impl IntoIterator<Item = &'a UnknownOutcome>,
    ) -> std::result::Result<Vec<Request>, Duration> {
        let mut ids = Vec::new();
        let mut wait = Duration::ZERO;
        for unknown in unknowns {
            match unknown.remedy(&self.facts, self.clock.now()) {
                Remedy::None => {}
                // Several requests may have been sent on one connection.
                Remedy::Kill(id) if ids.contains(&id) => {}
                Remedy::Kill(id) => ids.push(id),
                Remedy::Wait(time) => wait = wait.max(time),
            }
        }
        let kill = |id| Request::kill(id).answered_by(Shape::Number);
        if wait.is_zero() { Ok(ids.into_iter().map(kill).collect()) } else { Err(wait) }
    }
}

impl Pool {
    /// Sends several requests in one write and reads all replies, if a connection is free now. For
    /// requests that may be repeated at any time.
    pub(crate) fn exchange_if_free(
        &self,
        requests: &[Request],
    ) -> Option<std::result::Result<Vec<Reply>, RedisFailure>> {
        let mut connection = self.borrow_free()?;
        connection.in_flight = true;
        let outcome = connection.get().exchange(requests).map(|(replies, _)| replies);
        connection
            .end(outcome.as_ref().map_or(true, |replies| replies.iter().any(Reply::is_demotion)));
        Some(outcome)
    }
}
