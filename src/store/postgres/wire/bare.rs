//! A connection to a server of any role, without checks and without installing anything: for
//! questions about the server.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::connector::{Connector, OWN_PATH};
use super::messages::Transport;
use super::request::Row;
use super::server_error::ServerError;
use crate::base::error::Result;
use crate::store::net::{Address, Stream};

pub(crate) struct BareConnection {
    transport: Transport,
    /// The process id that the other end reported for the backend.
    pub(crate) pid: i32,
    /// How long the connect took, with TLS and the log-in.
    pub(crate) connected_in: Duration,
}

impl Connector {
    /// Connects to one of the hosts and logs in, and no more.
    pub(crate) fn connect_bare(&self, address: &Address) -> Result<BareConnection> {
        let began = Instant::now();
        let (mut transport, pid) = self.open(address)?;
        transport.handshake_done()?;
        Ok(BareConnection { transport, pid, connected_in: began.elapsed() })
    }
}

impl BareConnection {
    /// The rows of the last of these statements.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<std::result::Result<Vec<Row>, ServerError>> {
        // Sent with each statement: behind a pooler the next one may have another session.
        Connection::simple(&mut self.transport, &format!("{OWN_PATH}; {sql}"))
    }

    /// Like [`ask`](Self::ask), with a refusal as an error.
    pub(crate) fn rows(&mut self, sql: &str) -> Result<Vec<Row>> {
        self.ask(sql)?.map_err(|refused| refused.to_error())
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.transport.stream
    }
}
