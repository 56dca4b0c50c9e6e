//! What a waiter waits for, and the subscription that wakes it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::signal::event::Interrupt;

/// What a waiter waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub(crate) kind: Kind,
    pub(crate) key: Arc<str>,
    /// `Some`: this holder waits for its turn in a queue in the store. `None`: the topic is any
    /// release under the name.
    pub(crate) turn_of: Option<Arc<str>>,
}

impl Topic {
    pub(crate) fn freed(name: &LockName) -> Self {
        // Readers and writers wait for each other.
        let kind = if name.kind.is_read() { Kind::Write } else { name.kind };
        Self { kind, key: name.key.clone(), turn_of: None }
    }

    pub(crate) fn turn(name: &LockName, holder: &str) -> Self {
        Self { kind: name.kind, key: name.key.clone(), turn_of: Some(holder.into()) }
    }
}

/// What a subscriber received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Another attempt may succeed: a hint, never a grant.
    Notified(Vec<Topic>),
    /// A release has given the lock to the waiter for this turn, with this fencing token, 0 for
    /// none, for as long as its place lasts, counted from its last request that was answered.
    Granted(Topic, u64),
    /// From here on no message about these topics is missed.
    Watching(Vec<Topic>),
    /// From here on messages about these topics may be missed, until they are reported as watched
    /// again.
    Unwatched(Vec<Topic>),
    /// The store does not permit to watch these: nothing comes before they are watched anew.
    Refused(Vec<Topic>),
    /// Anything else that shows that the store answers.
    Alive,
    /// Nothing came within the read timeout.
    Timeout,
}

#[cfg(feature = "redis")]
impl Received {
    /// A message about these topics: of a lock that is free, or a grant with this fencing token.
    pub(crate) fn message(topics: Option<Vec<Topic>>, grant: Option<u64>) -> Self {
        match (topics, grant) {
            (None, _) => Self::Alive,
            (Some(mut topics), Some(token)) if topics.len() == 1 && topics[0].turn_of.is_some() => {
                Self::Granted(topics.remove(0), token)
            }
            (Some(topics), _) => Self::Notified(topics),
        }
    }
}

/// The half of a subscription that one thread at a time reads. Any error ends both halves.
pub(crate) trait Subscriber: Send {
    fn receive(&mut self) -> Result<Received>;

    /// What ends a wait in [`receive_within`](Self::receive_within) early. `None`: nothing does, so
    /// only a thread with no other work can read.
    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        None
    }

    /// [`receive`](Self::receive), but waits at most for `timeout`, and only until it is
    /// interrupted (then [`Received::Timeout`], which can also be returned without a reason). Does
    /// not wait at all for a timeout of zero. Only for subscribers that can be interrupted.
    fn receive_within(&mut self, _timeout: Duration) -> Result<Received> {
        self.receive()
    }
}

/// The half that any thread uses, under a mutex, to choose the topics. It never waits for replies.
pub(crate) trait SubscriptionSender: Send {
    /// True if messages of all these topics are received already.
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool>;

    fn unwatch(&mut self, topic: &Topic) -> Result<()>;

    /// Whether messages of the topic are received even before it is watched.
    fn covers(&self, _topic: &Topic) -> bool {
        false
    }

    /// Requests a reply, which shows that the store still answers.
    fn ping(&mut self) -> Result<()>;

    /// Called from time to time.
    fn maintain(&mut self) -> Result<()> {
        Ok(())
    }

    /// Also ends a read of the other half.
    fn close(&self);
}
