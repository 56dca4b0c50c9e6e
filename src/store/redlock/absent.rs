//! Masters to which there is no subscription: they were down when it began, or refused it. Each is
//! subscribed to later, beside the others, which go on: a master that comes and goes must not make
//! the waiters deaf to all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::random::Backoff;
use crate::store::redis::wire::{PubSubReader, PubSubWriter};

/// Between two attempts, at first and at most: messages of the others wait for the connect.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Absent {
    nodes: Arc<[Node]>,
    indexes: VecDeque<usize>,
    next_at: Moment,
    pause: Backoff,
}

impl Absent {
    pub(super) fn new(nodes: Arc<[Node]>) -> Self {
        let indexes = (0..nodes.len()).collect();
        let pause = Backoff::new(PAUSE, LONGEST_PAUSE);
        let mut absent = Self { nodes, indexes, next_at: Moment::NEVER, pause };
        absent.rest();
        absent
    }

    /// No attempt is made for a while.
    fn rest(&mut self) {
        self.next_at = self.nodes[0].connector.clock.now().plus(self.pause.next());
    }

    /// Connects to all masters that are up.
    ///
    /// # Errors
    /// There is none that can be subscribed to.
    pub(super) fn subscribe_to_all(
        &mut self,
        read_timeout: Duration,
    ) -> Result<(PubSubReader, PubSubWriter)> {
        let mut all: Option<(PubSubReader, PubSubWriter)> = None;
        let mut wrong = Error::new(ErrorKind::Unreachable, "no server can be subscribed to");
        for _ in 0..self.indexes.len() {
            match (self.next(), &mut all) {
                (None, _) => {}
                (Some(Err(error)), _) => wrong = error,
                (Some(Ok((reader, writer))), None) => {
                    all = Some((reader.of_several(read_timeout), writer));
                }
                (Some(Ok((reader, writer))), Some(all)) => {
                    all.0.join(reader);
                    all.1.join(writer);
                }
            }
        }
        all.ok_or(wrong)
    }

    /// Connects to one that is up, if there is one and it is time.
    pub(super) fn subscribe_to_one(&mut self) -> Option<(PubSubReader, PubSubWriter)> {
        if self.nodes[0].connector.clock.now() < self.next_at {
            return None;
        }
        let subscribed = (0..self.indexes.len()).find_map(|_| self.next())?;
        if subscribed.is_ok() {
            self.pause.reset();
        }
        self.rest();
        subscribed.ok()
    }

    /// Connects to the next one. `None`: it is down.
    fn next(&mut self) -> Option<Result<(PubSubReader, PubSubWriter)>> {
        let index = self.indexes.pop_front()?;
        let node = &self.nodes[index];
        let is_up = node.health().1.is_none();
        let subscribed = is_up.then(|| node.connector.subscribe_without_waiting());
        if !matches!(subscribed, Some(Ok(_))) {
            self.indexes.push_back(index);
        }
        subscribed
    }
}
