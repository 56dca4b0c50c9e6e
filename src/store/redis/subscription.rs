//! Wake-ups by publish and subscribe: which channel brings which topic.
//!
//! The channel of a fair waiter ends in its holder id. While a client has many fair waiters, one
//! pattern subscription serves them all.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{channel_of, channel_of_waiter, waiters_pattern};
use super::wire::{Frame, PubSubReader, PubSubWriter};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::os::atomic::{AtomicBool, Ordering};
use crate::os::{self, Mutex};
use crate::signal::event::Interrupt;
use crate::store::net::Waker;
use crate::store::topics::{Progress, Topics};
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// From so many fair waiters of a client on, one pattern serves them. The server compares every
/// message on any channel with the patterns of all clients, so a client with a few waiters, as most
/// have, subscribes each by itself: a request and a second attempt in each wait.
const MANY_TURNS: usize = 16;

/// What is known of the user's rights. With an ACL that lists channels it may not subscribe to the
/// pattern, and each waiter's channel is subscribed by itself.
#[derive(Debug, Default)]
pub(crate) struct PatternRights {
    denied: AtomicBool,
    /// Whether a log line has already said that a channel, or a server, is denied.
    warned: AtomicBool,
}

impl PatternRights {
    /// An error other than a refusal is no reason for a warning.
    fn log(&self, what: &str, error: &Error) {
        let is_known =
            error.kind() != ErrorKind::Denied || self.warned.swap(true, Ordering::Relaxed);
        log_refusal(is_known, what, error);
    }
}

/// Whether the user may subscribe, but not to a channel of the request.
pub(super) fn is_about_channels(error: &Error) -> bool {
    error.kind() == ErrorKind::Denied && error.message().contains("channel")
}

/// A refusal lasts, so it is logged as a warning, but only once.
pub(super) fn log_refusal(is_known: bool, what: &str, error: &Error) {
    let why = error.chain();
    if is_known {
        log::debug!("no release messages {what}: {why}");
    } else {
        log::warn!("release messages {what} cannot be received: {why}");
    }
}

/// Both halves of a subscription.
pub(crate) fn subscribe_to(
    connection: (PubSubReader, PubSubWriter),
    client_id: &str,
    rights: Arc<PatternRights>,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let (receiver, sender) = halves(connection, client_id, rights);
    (Box::new(receiver), Box::new(sender))
}

/// The servers of one subscription to several: each can end, and come back later. Positions are
/// those of the reader.
#[cfg(feature = "redlock")]
pub(crate) trait Several: Send {
    /// Connects to one more, if there is one and it is time. It is the last one then.
    fn one_more(&mut self) -> Option<(PubSubReader, PubSubWriter)>;

    /// The next one that is to be pinged, or that has not answered a ping.
    fn silent(&mut self) -> Option<(usize, Result<()>)>;

    fn received(&mut self, at: usize, frame: &Frame);

    /// It is subscribed to no more. Returns its address, and whether it has confirmed a
    /// subscription.
    fn lost(&mut self, at: usize) -> (String, bool);
}

/// The same at several servers. No lock of a Redlock has a queue in Redis, so the pattern for a
/// client's waiters is unused.
#[cfg(feature = "redlock")]
pub(crate) fn subscribe_to_several(
    connections: (PubSubReader, PubSubWriter),
    several: Box<dyn Several>,
    rights: Arc<PatternRights>,
    read_timeout: Duration,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let (mut receiver, sender) = halves(connections, "", rights);
    // Only the client's own thread reads.
    receiver.waker = None;
    receiver.several = Some((several, read_timeout));
    (Box::new(receiver), Box::new(sender))
}

fn halves(
    (reader, writer): (PubSubReader, PubSubWriter),
    client_id: &str,
    rights: Arc<PatternRights>,
) -> (RedisSubscriber, RedisSender) {
    let topics = Arc::new(Mutex::new(Topics::new(waiters_pattern(client_id))));
    let writer = Arc::new(Mutex::new(writer));
    let receiver = RedisSubscriber {
        reader,
        waker: Waker::new().ok().map(Arc::new),
        writer: writer.clone(),
        topics: topics.clone(),
        rights: rights.clone(),
        #[cfg(feature = "redlock")]
        several: None,
    };
    (receiver, RedisSender { writer, topics, rights, turns_alone: 0 })
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
    writer: Arc<Mutex<PubSubWriter>>,
    topics: Arc<Mutex<Topics>>,
    rights: Arc<PatternRights>,
    /// With the read timeout.
    #[cfg(feature = "redlock")]
    several: Option<(Box<dyn Several>, Duration)>,
}

impl Subscriber for RedisSubscriber {
    fn receive(&mut self) -> Result<Received> {
        #[cfg(feature = "redlock")]
        if self.several.is_some() {
            return self.receive_from_several();
        }
        let received = self.reader.receive();
        self.take_in(0, received)
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.waker.clone().map(|waker| waker as Arc<dyn Interrupt>)
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Received> {
        let received = match &self.waker {
            Some(waker) => self.reader.receive_within(waker, timeout),
            None => return self.receive(),
        };
        self.take_in(0, received)
    }
}

impl RedisSubscriber {
    /// One that ends before it has confirmed anything ends none of the others. The end of another
    /// one ends all: waiters rely on it, and have to look.
    #[cfg(feature = "redlock")]
    fn receive_from_several(&mut self) -> Result<Received> {
        let Some((several, timeout)) = &mut self.several else { return Ok(Received::Timeout) };
        let timeout = *timeout;
        if let Some((reader, mut writer)) = several.one_more() {
            // What is asked for next goes to that server as well.
            let topics = self.topics.lock();
            let channels: Vec<&str> = topics.channels().collect();
            if !channels.is_empty() {
                // If that fails, the reader finds the end.
                let _ = writer.subscribe(&channels);
            }
            self.writer.lock().join(writer);
            self.reader.join(reader);
        }
        let mut received = self.reader.receive_from_any(timeout);
        // Only when nothing is left to read: an answer may have come long ago.
        while received.is_none()
            && let Some((at, answers)) = several.silent()
        {
            match answers {
                Ok(()) => self.writer.lock().ping_one(at),
                Err(error) => received = Some((at, Err(error))),
            }
        }
        let Some((at, received)) = received else { return Ok(Received::Timeout) };
        if let Ok(frame) = &received {
            several.received(at, frame);
        }
        let taken = self.take_in(at, received);
        if let Err(error) = &taken
            && let Some((several, _)) = &mut self.several
        {
            let (address, is_relied_on) = several.lost(at);
            self.rights.log(&format!("from {address}"), error);
            self.writer.lock().leave(at);
            let is_last = self.reader.leave(at);
            if !is_last && !is_relied_on {
                return Ok(Received::Alive);
            }
        }
        taken
    }

    /// `at`: the position of the server.
    fn take_in(&mut self, at: usize, received: Result<Frame>) -> Result<Received> {
        match received {
            Ok(Frame::Message { channel, by_pattern, grant }) => {
                Ok(Received::message(self.topics_of(&channel, by_pattern), grant))
            }
            Ok(Frame::Subscribed { topic }) => {
                self.writer.lock().confirmed(at, &topic);
                Ok(self.confirmed(&topic).map_or(Received::Alive, Received::Watching))
            }
            // The last two come only from a cluster.
            Ok(Frame::Alive | Frame::Unsubscribed { .. } | Frame::Moved { .. }) => {
                Ok(Received::Alive)
            }
            Ok(Frame::Timeout) => Ok(Received::Timeout),
            Err(e) if e.kind() == ErrorKind::Denied && self.may_blame_the_pattern() => {
                self.rights.denied.store(true, Ordering::Release);
                let why =
                    "the pattern of fair waiters is not permitted, so each subscribes for itself";
                Err(Error::new(ErrorKind::Unreachable, why).caused_by(e))
            }
            Err(e) if is_about_channels(&e) => {
                let refused = self.writer.lock().refused(at);
                for channel in &refused {
                    self.rights.log(&format!("on {channel:?}"), &e);
                }
                let topics = self.topics.lock();
                let topics = refused.iter().filter_map(|channel| topics.of(channel)).flatten();
                Ok(Received::Refused(topics.collect()))
            }
            Err(e) => Err(e),
        }
    }

    /// The pattern brings the messages of all waiters, also of those that subscribed by themselves.
    fn topics_of(&self, channel: &[u8], by_pattern: bool) -> Option<Vec<Topic>> {
        let channel = std::str::from_utf8(channel).ok()?;
        let topics = self.topics.lock();
        if by_pattern { topics.turn_of(channel) } else { topics.of(channel) }
    }

    fn confirmed(&self, channel: &[u8]) -> Option<Vec<Topic>> {
        self.topics.lock().confirm(std::str::from_utf8(channel).ok()?)
    }

    fn may_blame_the_pattern(&self) -> bool {
        self.topics.lock().turns_progress() != Progress::New
            && !self.rights.denied.load(Ordering::Acquire)
    }
}

struct RedisSender {
    writer: Arc<Mutex<PubSubWriter>>,
    topics: Arc<Mutex<Topics>>,
    rights: Arc<PatternRights>,
    /// How many fair waiters are subscribed by themselves.
    turns_alone: usize,
}

impl RedisSender {
    fn goes_by_pattern(&self, watched: &Topics, topic: &Topic) -> bool {
        if topic.turn_of.is_none() || self.rights.denied.load(Ordering::Acquire) {
            return false;
        }
        // Fewer are enough to keep it: otherwise it would come and go with each waiter at the
        // limit.
        let enough =
            if watched.turns_progress() == Progress::New { MANY_TURNS } else { MANY_TURNS / 2 };
        self.turns_alone + watched.turns() >= enough
    }
}

impl SubscriptionSender for RedisSender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut watched = self.topics.lock();
        let mut new = Vec::new();
        let mut all_confirmed = true;
        for topic in topics {
            let name = channel_name(topic);
            let by_pattern = self.goes_by_pattern(&watched, topic);
            let progress = if by_pattern {
                watched.watch_turn(&name, topic)
            } else {
                watched.watch(&name, topic)
            };
            all_confirmed &= progress == Progress::Confirmed;
            match progress {
                Progress::New if by_pattern => {
                    self.writer.lock().subscribe_pattern(watched.turns_channel())?;
                }
                Progress::New => {
                    self.turns_alone += usize::from(topic.turn_of.is_some());
                    new.push(name);
                }
                Progress::Asked | Progress::Confirmed => {}
            }
        }
        if !new.is_empty() {
            self.writer.lock().subscribe(&new.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(all_confirmed)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        let mut watched = self.topics.lock();
        let name = channel_name(topic);
        if watched.unwatch_turn(&name) || !watched.unwatch(&name, topic) {
            return Ok(());
        }
        self.turns_alone -= usize::from(topic.turn_of.is_some());
        self.writer.lock().unsubscribe(&name)
    }

    fn covers(&self, topic: &Topic) -> bool {
        let watched = self.topics.lock();
        self.goes_by_pattern(&watched, topic) && watched.turns_progress() == Progress::Confirmed
    }

    fn ping(&mut self) -> Result<()> {
        self.writer.lock().ping()
    }

    fn maintain(&mut self) -> Result<()> {
        let mut watched = self.topics.lock();
        if watched.end_idle_turns(os::now()) {
            self.writer.lock().unsubscribe_pattern(watched.turns_channel())
        } else {
            Ok(())
        }
    }

    fn close(&self) {
        self.writer.lock().close();
    }
}
