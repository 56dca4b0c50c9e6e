//! A connection to a server of any role and version, without checks: for questions about the
//! server.

use std::time::{Duration, Instant};

use super::connector::{Connector, exchange};
use super::reply::Reply;
use super::request::Request;
use super::transport::{Transport, handshake_failed};
use crate::base::error::Result;
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
        let began = Instant::now();
        let mut transport = Transport::connect(&endpoint, self.io_timeout)?;
        let connected_in = began.elapsed();
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
        self.transport.stream()
    }
}
