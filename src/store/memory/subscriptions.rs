//! Which client waits for what. Each subscriber has a channel, into which a release sends a
//! message.

use crate::base::error::{Error, ErrorKind, Result};
#[cfg(feature = "testing")]
use crate::base::job_keys::key_for_user;
use crate::os::{
    HashSet,
    mpsc::{Receiver, Sender, channel},
};
use crate::store::{Received, Topic};

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    pub(super) list: Vec<Subscription>,
    next: u64,
}

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) id: u64,
    /// The store that subscribed.
    store: u64,
    pub(super) topics: HashSet<Topic>,
    sender: Sender<Result<Received>>,
}

impl Subscriptions {
    /// Returns the number of subscribers that were notified.
    pub(super) fn publish(&mut self, topic: &Topic) -> u64 {
        self.send(topic, |topic| Received::Notified(vec![topic]))
    }

    /// The waiter for this turn has the lock now, with this fencing token.
    pub(super) fn grant(&mut self, topic: &Topic, token: u64) -> u64 {
        self.send(topic, |topic| Received::Granted(topic, token))
    }

    fn send(&mut self, topic: &Topic, message: impl Fn(Topic) -> Received) -> u64 {
        let mut listeners = 0;
        for subscription in self.list.iter().filter(|one| one.topics.contains(topic)) {
            listeners += u64::from(subscription.sender.send(Ok(message(topic.clone()))).is_ok());
        }
        listeners
    }

    /// Notifies every subscriber of all its topics.
    #[cfg(feature = "testing")]
    pub(super) fn publish_all(&self) {
        for subscription in self.list.iter().filter(|one| !one.topics.is_empty()) {
            let _ = subscription
                .sender
                .send(Ok(Received::Notified(subscription.topics.iter().cloned().collect())));
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn listeners(&self, key: &str) -> usize {
        let is_meant = |topic: &Topic| key_for_user(&topic.key) == key;
        self.list.iter().filter(|one| one.topics.iter().any(is_meant)).count()
    }

    /// Ends the subscriptions of a store, or all.
    pub(super) fn end(&mut self, store: Option<u64>, why: &Error) {
        self.list.retain(|one| {
            let stays = store.is_some_and(|store| store != one.store);
            if !stays {
                let _ = one.sender.send(Err(why.clone()));
            }
            stays
        });
    }

    pub(super) fn begin(
        &mut self,
        store: u64,
    ) -> (u64, Sender<Result<Received>>, Receiver<Result<Received>>) {
        let (id, (sender, receiver)) = (self.next, channel());
        self.next += 1;
        self.list.push(Subscription {
            id,
            store,
            topics: HashSet::default(),
            sender: sender.clone(),
        });
        (id, sender, receiver)
    }

    pub(super) fn find(&mut self, id: u64) -> Result<&mut Subscription> {
        self.list.iter_mut().find(|one| one.id == id).ok_or_else(ended)
    }
}

#[cold]
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Unreachable, "the subscription has ended")
}
