//! What wakes waiters: messages of the I/O thread, in a channel. A waiter that enters a queue
//! watches the node that it waits for; a latch is watched while somebody waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::client::Client;
use super::names::Paths;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::Kind;
use crate::signal::event::Interrupt;
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// Both halves of a subscription.
pub(super) fn subscribe(
    client: &Arc<Client>,
    chroot: &str,
    read_timeout: Duration,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let (sender, receiver) = channel();
    client.publish_to(Some(sender.clone()));
    let half = Half { client: client.clone(), chroot: chroot.to_owned(), sender: sender.clone() };
    (Box::new(Messages { receiver, sender, read_timeout }), Box::new(half))
}

struct Messages {
    receiver: Receiver<Result<Received>>,
    sender: Sender<Result<Received>>,
    read_timeout: Duration,
}

struct Waker(Sender<Result<Received>>);

impl Interrupt for Waker {
    fn interrupt(&self) {
        let _ = self.0.send(Ok(Received::Timeout));
    }
}

impl Subscriber for Messages {
    fn receive(&mut self) -> Result<Received> {
        self.receive_within(self.read_timeout)
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::new(Waker(self.sender.clone())))
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Received> {
        loop {
            match self.receiver.recv_timeout(timeout) {
                // The interruption of an earlier wait, perhaps with messages after it.
                Ok(Ok(Received::Timeout)) if timeout.is_zero() => {}
                Ok(received) => return received,
                // It has a sender of its own.
                Err(_) => return Ok(Received::Timeout),
            }
        }
    }
}

struct Half {
    client: Arc<Client>,
    chroot: String,
    sender: Sender<Result<Received>>,
}

fn is_one_node(topic: &Topic) -> bool {
    matches!(topic.kind, Kind::Latch | Kind::Done)
}

impl Half {
    /// The node that is watched for the topic: a latch, or the record of a job's occurrence.
    fn latch(&self, topic: &Topic) -> Option<String> {
        is_one_node(topic).then(|| Paths::new(&self.chroot, &topic.key).base)
    }
}

impl SubscriptionSender for Half {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut has_latches = false;
        for topic in topics {
            if let Some(path) = self.latch(topic) {
                self.client.watch_latch(&path, topic)?;
                has_latches = true;
            }
        }
        if !has_latches {
            // Places are already watched.
            return Ok(true);
        }
        let places: Vec<Topic> = topics
            .iter()
            .filter(|topic| self.latch(topic).is_none())
            .map(|&topic| topic.clone())
            .collect();
        if !places.is_empty() {
            self.sender.send(Ok(Received::Watching(places))).map_err(|_| ended())?;
        }
        Ok(false)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        if let Some(path) = self.latch(topic) {
            self.client.unwatch_latch(path, topic);
        }
        Ok(())
    }

    fn covers(&self, topic: &Topic) -> bool {
        !is_one_node(topic)
    }

    fn ping(&mut self) -> Result<()> {
        // The session maintains the connection by itself.
        self.sender.send(Ok(Received::Alive)).map_err(|_| ended())
    }

    fn close(&self) {
        self.client.publish_to(None);
        let _ = self.sender.send(Err(ended()));
    }
}

#[cold]
fn ended() -> Error {
    Error::new(ErrorKind::Unreachable, "the subscription has ended")
}
