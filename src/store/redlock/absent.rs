//! Masters to which there is no subscription: they were down when it began, or have ended it before
//! they confirmed anything, because they refuse it. Each is subscribed to later, beside the others,
//! which go on: a master that refuses must not make the waiters deaf to all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::node::{Node, is_late};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::random::Backoff;
use crate::store::redis::Several;
use crate::store::redis::wire::{Frame, PubSubReader, PubSubWriter};

/// Between two attempts, at first and at most: messages of the others wait for the connect.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// One that is silent for this long is pinged.
const SILENCE: Duration = Duration::from_secs(5);

pub(super) struct Absent {
    nodes: Arc<[Node]>,
    indexes: VecDeque<usize>,
    /// Those that are subscribed to, in the order of the reader's.
    present: Vec<Present>,
    next_at: Moment,
    pause: Backoff,
}

struct Present {
    index: usize,
    /// When anything was last received.
    heard: Moment,
    /// When it was pinged, if nothing has been received since.
    pinged: Option<Moment>,
    /// It has confirmed a subscription.
    is_proven: bool,
}

impl Absent {
    pub(super) fn new(nodes: Arc<[Node]>) -> Self {
        let indexes = (0..nodes.len()).collect();
        let pause = Backoff::new(PAUSE, LONGEST_PAUSE);
        let present = Vec::new();
        let mut absent = Self { nodes, indexes, present, next_at: Moment::NEVER, pause };
        absent.rest();
        absent
    }

    /// No attempt is made for a while.
    fn rest(&mut self) {
        self.next_at = self.now().plus(self.pause.next());
    }

    fn now(&self) -> Moment {
        self.nodes[0].connector.clock.now()
    }

    /// Connects to all masters that are up.
    ///
    /// # Errors
    /// There is none that can be subscribed to.
    pub(super) fn subscribe_to_all(&mut self) -> Result<(PubSubReader, PubSubWriter)> {
        let mut all: Option<(PubSubReader, PubSubWriter)> = None;
        let mut wrong = Error::new(ErrorKind::Unreachable, "no server can be subscribed to");
        for _ in 0..self.indexes.len() {
            match (self.next(), &mut all) {
                (None, _) => {}
                (Some(Err(error)), _) => wrong = error,
                (Some(Ok(first)), None) => all = Some(first),
                (Some(Ok((reader, writer))), Some(all)) => {
                    all.0.join(reader);
                    all.1.join(writer);
                }
            }
        }
        all.ok_or(wrong)
    }

    /// Connects to the next one. `None`: it is down.
    fn next(&mut self) -> Option<Result<(PubSubReader, PubSubWriter)>> {
        let index = self.indexes.pop_front()?;
        let node = &self.nodes[index];
        let is_up = node.health().1.is_none();
        let subscribed = is_up.then(|| node.connector.subscribe_without_waiting());
        if matches!(subscribed, Some(Ok(_))) {
            let heard = self.now();
            self.present.push(Present { index, heard, pinged: None, is_proven: false });
        } else {
            self.indexes.push_back(index);
        }
        subscribed
    }
}

impl Several for Absent {
    fn one_more(&mut self) -> Option<(PubSubReader, PubSubWriter)> {
        if self.now() < self.next_at {
            return None;
        }
        let subscribed = (0..self.indexes.len()).find_map(|_| self.next())?;
        self.rest();
        subscribed.ok()
    }

    fn silent(&mut self) -> Option<(usize, Result<()>)> {
        let now = self.now();
        let answer = self.nodes[0].connector.io_timeout;
        self.present.iter_mut().enumerate().find_map(|(at, one)| match one.pinged {
            Some(pinged) if now.since(pinged) > answer => Some((at, Err(is_late()))),
            None if now.since(one.heard) > SILENCE => {
                one.pinged = Some(now);
                Some((at, Ok(())))
            }
            _ => None,
        })
    }

    fn received(&mut self, at: usize, frame: &Frame) {
        let now = self.now();
        let one = &mut self.present[at];
        one.heard = now;
        one.pinged = None;
        one.is_proven |= matches!(frame, Frame::Subscribed { .. });
    }

    fn lost(&mut self, at: usize) -> (String, bool) {
        let Present { index, is_proven, .. } = self.present.remove(at);
        self.indexes.push_back(index);
        self.rest();
        (format!("{:?}", self.nodes[index].connector.endpoint), is_proven)
    }
}
