//! Connections without the checks of a store: to a server of any role and version, for questions
//! about the server, and for occasional questions to a server that stores no locks.

use std::time::{Duration, Instant};

use super::connector::{Connector, exchange};
use super::endpoint::Endpoint;
use super::reply::Reply;
use super::request::Request;
use super::transport::{Transport, handshake_failed};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::{self, Mutex};
use crate::store::net::Stream;

pub(crate) struct BareConnection {
    transport: Transport,
    /// How long the connect took, with TLS and the log-in, but without finding the master.
    pub(crate) connected_in: Duration,
}

impl Connector {
    /// Connects and logs in, and no more.
    pub(crate) fn connect_bare(&self) -> Result<BareConnection> {
        let (endpoint, _) = self.endpoint.find()?;
        let began = os::now();
        let mut transport = Transport::connect(&endpoint, self.io_timeout)?;
        let connected_in = os::since(began);
        transport.handshake_done()?;
        let mut connection = BareConnection { transport, connected_in };
        let name = Request::plain(&["CLIENT", "SETNAME", &self.client_name]);
        // A user who may not set a name can still ask.
        connection.ask(&[name]).map_err(|e| handshake_failed(&endpoint, e))?;
        Ok(connection)
    }
}

impl BareConnection {
    /// Sends all requests in one write and reads all replies.
    pub(crate) fn ask(&mut self, requests: &[Request]) -> Result<Vec<Reply>> {
        exchange(&mut self.transport, requests)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.transport.stream
    }
}

/// Made when it is needed, and kept for the next question.
pub(crate) struct Line {
    pub(crate) endpoint: Endpoint,
    client_name: String,
    io_timeout: Duration,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    idle: Option<Box<Transport>>,
    /// When the question under way began.
    asking: Option<Instant>,
    /// Whether connections are no longer kept.
    closed: bool,
}

/// A question under way, which ends by a panic too.
struct Asking<'l>(&'l Line);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.state.lock().asking = None;
    }
}

impl Line {
    pub(crate) fn new(endpoint: Endpoint, client_name: String, io_timeout: Duration) -> Self {
        Self { endpoint, client_name, io_timeout, state: Mutex::default() }
    }

    /// Sends requests that may be repeated, and reads their replies. Takes at most one I/O timeout,
    /// or two if a kept connection has ended.
    ///
    /// # Errors
    /// Those of any connect; also if an earlier question has hung for longer than an I/O timeout,
    /// because each question that hangs keeps a thread.
    pub(crate) fn ask(&self, requests: &[Request]) -> Result<Vec<Reply>> {
        let idle = {
            let mut state = self.state.lock();
            if state.asking.is_some_and(|since| os::since(since) > self.io_timeout) {
                let why = format!("{:?} still has not answered an earlier question", self.endpoint);
                return Err(Error::new(ErrorKind::Unreachable, why));
            }
            state.asking.get_or_insert_with(os::now);
            state.idle.take()
        };
        let _asking = Asking(self);
        let (transport, replies) = self.ask_over(idle, requests)?;
        let mut state = self.state.lock();
        state.idle = (!state.closed).then_some(transport);
        Ok(replies)
    }

    fn ask_over(
        &self,
        idle: Option<Box<Transport>>,
        requests: &[Request],
    ) -> Result<(Box<Transport>, Vec<Reply>)> {
        if let Some(mut transport) = idle.filter(|transport| !transport.has_input())
            && let Ok(replies) = exchange(&mut transport, requests)
        {
            return Ok((transport, replies));
        }
        let mut transport = Box::new(Transport::connect(&self.endpoint, self.io_timeout)?);
        let name = Request::plain(&["CLIENT", "SETNAME", &self.client_name]);
        let all: Vec<Request> = std::iter::once(&name).chain(requests).cloned().collect();
        let mut replies =
            exchange(&mut transport, &all).map_err(|e| handshake_failed(&self.endpoint, e))?;
        transport.handshake_done()?;
        // A user who may not set a name can still ask.
        replies.remove(0);
        Ok((transport, replies))
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.idle = None;
    }
}
