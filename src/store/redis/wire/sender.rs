//! Sends over a connection while another thread reads from it.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Awaited, InFlight, SentBehind};
use super::connector::Connector;
use super::endpoint::Endpoint;
use super::fence::Fence;
use super::request::Request;
use super::transport::to_error;
use super::unknown_outcome::{ConnectionFacts, UnknownOutcome};
use crate::base::error::Result;
use crate::signal::clock::Clock;
use crate::store::net::{PooledSender, Stream};

/// The other half of a connection on which replies are due.
pub(crate) struct Sender {
    stream: Stream,
    endpoint: Endpoint,
    facts: Arc<ConnectionFacts>,
    clock: Arc<dyn Clock>,
    io_timeout: Duration,
    out: Vec<u8>,
    fence: Fence,
}

impl Sender {
    pub(super) fn new(
        stream: Stream,
        endpoint: Endpoint,
        facts: Arc<ConnectionFacts>,
        clock: Arc<dyn Clock>,
        io_timeout: Duration,
    ) -> Self {
        Self { stream, endpoint, facts, clock, io_timeout, out: Vec::new(), fence: Fence::FIRST }
    }
}

impl PooledSender<Connector> for Sender {
    /// False if another server has become the master.
    fn is_current(&self) -> bool {
        !self.facts.is_outdated()
    }

    fn prepare<'r>(&mut self, requests: impl Iterator<Item = &'r Request>) -> InFlight {
        let sent_at = self.clock.now();
        self.fence = self.fence.next();
        self.out.clear();
        self.fence.request().write_plain(&mut self.out);
        let mut awaited = Awaited::default();
        let (commands, not_after) =
            awaited.pack(&mut self.out, &self.facts, sent_at, self.io_timeout, requests);
        self.stream.meter.requests(1 + commands);
        let unknown = UnknownOutcome { facts: self.facts.clone(), not_after, sent: true };
        let behind = Some(Box::new(SentBehind { fence: self.fence, awaited }));
        InFlight { sent_at, unknown, behind }
    }

    fn transmit(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).map_err(|e| {
            self.stream.meter.broke();
            to_error(e, &self.endpoint)
        })
    }

    fn shut(&self) {
        self.stream.shutdown();
    }
}
