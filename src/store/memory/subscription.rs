//! The two halves of a subscription.

use std::sync::Arc;
use std::time::Duration;

use super::state::Memory;
use super::subscriptions::ended;
use crate::base::error::Result;
use crate::os::mpsc::{Receiver, RecvTimeoutError, Sender};
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// Both halves.
pub(super) fn subscribe(
    memory: &Arc<Memory>,
    store: u64,
    read_timeout: Duration,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let (id, sender, receiver) = memory.state.lock().subscriptions.begin(store);
    let sender = MemorySender { memory: memory.clone(), id, sender };
    (
        Box::new(MemorySubscriber { memory: memory.clone(), id, receiver, read_timeout }),
        Box::new(sender),
    )
}

struct MemorySubscriber {
    memory: Arc<Memory>,
    id: u64,
    receiver: Receiver<Result<Received>>,
    read_timeout: Duration,
}

impl Subscriber for MemorySubscriber {
    fn receive(&mut self) -> Result<Received> {
        match self.receiver.recv_timeout(self.read_timeout) {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => Ok(Received::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

impl Drop for MemorySubscriber {
    fn drop(&mut self) {
        self.memory.state.lock().subscriptions.list.retain(|one| one.id != self.id);
    }
}

struct MemorySender {
    memory: Arc<Memory>,
    id: u64,
    sender: Sender<Result<Received>>,
}

impl SubscriptionSender for MemorySender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut state = self.memory.state.lock();
        let subscription = state.subscriptions.find(self.id)?;
        subscription.topics.extend(topics.iter().map(|&topic| topic.clone()));
        let watching = topics.iter().map(|&topic| topic.clone()).collect();
        self.sender.send(Ok(Received::Watching(watching))).map_err(|_| ended())?;
        Ok(false)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        self.memory.state.lock().subscriptions.find(self.id)?.topics.remove(topic);
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        self.memory.state.lock().subscriptions.find(self.id)?;
        self.sender.send(Ok(Received::Alive)).map_err(|_| ended())
    }

    fn close(&self) {
        self.memory.state.lock().subscriptions.list.retain(|one| one.id != self.id);
        // Fails only if the receiving half is gone already.
        let _ = self.sender.send(Err(ended()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::lock_name::{Kind, LockName};

    #[test]
    fn only_what_is_watched_is_brought() {
        let memory = Arc::new(Memory::new());
        let short = Duration::from_millis(1);
        let topic = |name| Topic::freed(&LockName::new("", name, Kind::Mutex).unwrap());
        let (mut subscriber, mut sender) = subscribe(&memory, 1, Duration::from_secs(10));
        assert!(!sender.watch(&[&topic("a")]).unwrap());
        assert_eq!(subscriber.receive().unwrap(), Received::Watching(vec![topic("a")]));
        let published: Vec<_> = ["a", "b"]
            .map(|name| memory.state.lock().subscriptions.publish(&topic(name)))
            .into_iter()
            .collect();
        assert_eq!(published, [1, 0]);
        assert_eq!(subscriber.receive().unwrap(), Received::Notified(vec![topic("a")]));
        sender.ping().unwrap();
        assert_eq!(subscriber.receive().unwrap(), Received::Alive);
        sender.unwatch(&topic("a")).unwrap();
        assert_eq!(memory.state.lock().subscriptions.publish(&topic("a")), 0);
        assert_eq!(subscribe(&memory, 1, short).0.receive().unwrap(), Received::Timeout);
        sender.close();
        assert_eq!(subscriber.receive().unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(sender.ping().is_err() && memory.state.lock().subscriptions.list.is_empty());
    }

    #[test]
    fn it_ends_with_its_store() {
        let memory = Arc::new(Memory::new());
        let halves = [1, 2].map(|store| subscribe(&memory, store, Duration::from_millis(1)));
        memory.state.lock().subscriptions.end(Some(1), &ended());
        let [first, second] = halves.map(|(mut subscriber, _)| subscriber.receive());
        assert!(first.is_err());
        assert_eq!(second.unwrap(), Received::Timeout);
    }
}
