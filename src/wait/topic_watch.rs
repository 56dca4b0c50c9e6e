//! Who waits for a topic.

use std::sync::Arc;
use std::time::Instant;

use crate::signal::event::Event;

#[derive(Default)]
pub(super) struct TopicWatch {
    pub(super) events: Vec<Arc<Event>>,
    pub(super) waiters: usize,
    /// When the last waiter left.
    pub(super) idle_since: Option<Instant>,
    /// Whether the store has confirmed the subscription on the present connection: from then on no
    /// message is missed.
    pub(super) confirmed: bool,
    /// The store has refused it on the present connection.
    pub(super) refused: bool,
}

impl TopicWatch {
    pub(super) fn notify(&self) {
        for event in &self.events {
            event.notify();
        }
    }

    /// The connection ended: waiters that sleep for a whole lease must learn that no messages
    /// arrive for now, so that they poll.
    pub(super) fn lose(&mut self) {
        self.confirmed = false;
        self.refused = false;
        self.notify();
    }
}
