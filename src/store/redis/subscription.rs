//! Wake-ups by publish and subscribe: which channel brings which topic.
//!
//! The channel of a fair waiter ends in its holder id. One pattern subscription serves all fair
//! waiters of a client, which saves a SUBSCRIBE and a second attempt in each wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::keys::{channel_of, channel_of_waiter, waiters_pattern};
use super::wire::{Frame, PubSubReader, PubSubWriter};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Interrupt;
use crate::store::net::Waker;
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// The pattern subscription is kept this long after the last fair waiter left.
const LINGER: Duration = Duration::from_secs(1);

/// Whether the user may subscribe to the pattern. With an ACL that lists channels it may not, and
/// each waiter's channel is subscribed by itself.
#[derive(Debug, Default)]
pub(crate) struct PatternRights {
    denied: AtomicBool,
}

/// Both halves of a subscription.
pub(crate) fn subscribe_to(
    (reader, writer): (PubSubReader, PubSubWriter),
    client_id: &str,
    rights: Arc<PatternRights>,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let pattern = Pattern { name: waiters_pattern(client_id), ..Pattern::default() };
    let channels = Arc::new(Mutex::new(Channels { by_name: HashMap::new(), pattern }));
    // Elsewhere a waker ends no wait. Of several servers only the client's own thread reads.
    let can_interrupt = cfg!(unix) && reader.is_of_one();
    let waker = can_interrupt.then(Waker::new).and_then(|waker| waker.ok()).map(Arc::new);
    let receiver = RedisSubscriber { reader, waker, channels: channels.clone(), rights: rights.clone() };
    (Box::new(receiver), Box::new(RedisSender { writer, channels, rights }))
}

struct Channels {
    by_name: HashMap<String, Channel>,
    pattern: Pattern,
}

#[derive(Default)]
struct Channel {
    /// Mostly one. Two locks share a channel if one has the other's name in braces, and so do the
    /// two kinds of semaphore under one name.
    topics: Vec<Topic>,
    confirmed: bool,
}

#[derive(Default)]
struct Pattern {
    name: String,
    asked: bool,
    confirmed: bool,
    /// By channel.
    turns: HashMap<String, Topic>,
    idle_since: Option<Instant>,
}

pub(super) fn channel_name(topic: &Topic) -> String {
    match &topic.turn_of {
        Some(holder) => channel_of_waiter(&topic.key, holder),
        None => channel_of(topic.kind, &topic.key),
    }
}

struct RedisSubscriber {
    reader: PubSubReader,
    /// Ends a read of a waiter that has something else to do.
    waker: Option<Arc<Waker>>,
    channels: Arc<Mutex<Channels>>,
    rights: Arc<PatternRights>,
}

impl Subscriber for RedisSubscriber {
    fn receive(&mut self) -> Result<Received> {
        let received = self.reader.receive();
        self.take_in(received)
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.waker.clone().map(|waker| waker as Arc<dyn Interrupt>)
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Received> {
        let received = match &self.waker {
            Some(waker) => self.reader.receive_within(waker, timeout),
            None => self.reader.receive(),
        };
        self.take_in(received)
    }
}

impl RedisSubscriber {
    fn take_in(&mut self, received: Result<Frame>) -> Result<Received> {
        match received {
            Ok(Frame::Message { channel }) => Ok(self.topics_of(&channel).map_or(Received::Alive, Received::Notified)),
            Ok(Frame::Subscribed { topic }) => Ok(self.confirmed(&topic).map_or(Received::Alive, Received::Watching)),
            // The last two come only from a cluster.
            Ok(Frame::Alive | Frame::Unsubscribed { .. } | Frame::Moved { .. }) => Ok(Received::Alive),
            Ok(Frame::Timeout) => Ok(Received::Timeout),
            Err(e) if e.kind() == ErrorKind::Denied && self.may_blame_the_pattern() => {
                self.rights.denied.store(true, Ordering::Release);
                let why = "the pattern of fair waiters is not permitted, so each subscribes for itself";
                Err(Error::new(ErrorKind::Unreachable, why).caused_by(e))
            }
            Err(e) => Err(e),
        }
    }

    fn topics_of(&self, channel: &[u8]) -> Option<Vec<Topic>> {
        let channel = std::str::from_utf8(channel).ok()?;
        let channels = self.channels.lock();
        match channels.by_name.get(channel) {
            Some(known) => Some(known.topics.clone()),
            None => channels.pattern.turns.get(channel).map(|topic| vec![topic.clone()]),
        }
    }

    fn confirmed(&self, name: &[u8]) -> Option<Vec<Topic>> {
        let name = std::str::from_utf8(name).ok()?;
        let mut channels = self.channels.lock();
        if name == channels.pattern.name {
            channels.pattern.confirmed = true;
            return Some(channels.pattern.turns.values().cloned().collect());
        }
        let channel = channels.by_name.get_mut(name)?;
        channel.confirmed = true;
        Some(channel.topics.clone())
    }

    fn may_blame_the_pattern(&self) -> bool {
        self.channels.lock().pattern.asked && !self.rights.denied.load(Ordering::Acquire)
    }
}

struct RedisSender {
    writer: PubSubWriter,
    channels: Arc<Mutex<Channels>>,
    rights: Arc<PatternRights>,
}

impl RedisSender {
    fn goes_by_pattern(&self, topic: &Topic) -> bool {
        topic.turn_of.is_some() && !self.rights.denied.load(Ordering::Acquire)
    }
}

impl SubscriptionSender for RedisSender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut channels = self.channels.lock();
        let (mut new, mut all_confirmed) = (Vec::new(), true);
        for topic in topics {
            let name = channel_name(topic);
            if self.goes_by_pattern(topic) {
                let pattern = &mut channels.pattern;
                pattern.turns.insert(name, (*topic).clone());
                pattern.idle_since = None;
                all_confirmed &= pattern.confirmed;
                if !std::mem::replace(&mut pattern.asked, true) {
                    self.writer.subscribe_pattern(&pattern.name)?;
                }
                continue;
            }
            if !channels.by_name.contains_key(&name) {
                new.push(name.clone());
            }
            let channel = channels.by_name.entry(name).or_default();
            channel.topics.push((*topic).clone());
            all_confirmed &= channel.confirmed;
        }
        if !new.is_empty() {
            self.writer.subscribe(&new.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(all_confirmed)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        let mut channels = self.channels.lock();
        let name = channel_name(topic);
        if channels.pattern.turns.remove(&name).is_some() {
            if channels.pattern.turns.is_empty() {
                channels.pattern.idle_since = Some(Instant::now());
            }
            return Ok(());
        }
        let Some(channel) = channels.by_name.get_mut(&name) else { return Ok(()) };
        channel.topics.retain(|other| other != topic);
        if channel.topics.is_empty() {
            channels.by_name.remove(&name);
            self.writer.unsubscribe(&name)?;
        }
        Ok(())
    }

    fn covers(&self, topic: &Topic) -> bool {
        self.goes_by_pattern(topic) && self.channels.lock().pattern.confirmed
    }

    fn ping(&mut self) -> Result<()> {
        self.writer.ping()
    }

    fn maintain(&mut self) -> Result<()> {
        let mut channels = self.channels.lock();
        let pattern = &mut channels.pattern;
        // An unconfirmed pattern stays: its confirmation must not be taken for that of the next
        // subscription.
        if pattern.confirmed && pattern.idle_since.is_some_and(|since| since.elapsed() > LINGER) {
            (pattern.asked, pattern.confirmed, pattern.idle_since) = (false, false, None);
            self.writer.unsubscribe_pattern(&pattern.name)?;
        }
        Ok(())
    }

    fn close(&self) {
        self.writer.close();
    }
}
