//! Wake-ups by `NOTIFY`: which channel brings which topic.
//!
//! A name has a channel, which is told when something under it comes free. A client has one for all
//! its waiters in queues: the message says whose turn it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::requests::channel_of;
use super::wire::{Frame, ListenReader, ListenWriter};
use crate::base::error::Result;
use crate::base::event::Interrupt;
use crate::store::net::Waker;
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// The channel of the client is kept this long after its last waiter in a queue left.
const LINGER: Duration = Duration::from_secs(1);

/// Both halves of a subscription.
pub(super) fn subscribe_to(
    (reader, writer): (ListenReader, ListenWriter),
    own_channel: &str,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let turns = Turns { channel: own_channel.to_owned(), ..Turns::default() };
    let channels = Arc::new(Mutex::new(Channels { by_name: HashMap::new(), turns }));
    // Elsewhere a waker ends no wait.
    let waker = cfg!(unix).then(Waker::new).and_then(|waker| waker.ok()).map(Arc::new);
    (Box::new(Receiver { reader, waker, channels: channels.clone() }), Box::new(Sender { writer, channels }))
}

struct Channels {
    by_name: HashMap<String, Channel>,
    turns: Turns,
}

#[derive(Default)]
struct Channel {
    /// Mostly one: a lock and a fair lock of one name share a channel.
    topics: Vec<Topic>,
    confirmed: bool,
}

/// The client's own channel.
#[derive(Default)]
struct Turns {
    channel: String,
    asked: bool,
    confirmed: bool,
    /// By holder.
    topics: HashMap<Arc<str>, Topic>,
    idle_since: Option<Instant>,
}

struct Receiver {
    reader: ListenReader,
    /// Ends a read of a waiter that has something else to do.
    waker: Option<Arc<Waker>>,
    channels: Arc<Mutex<Channels>>,
}

impl Subscriber for Receiver {
    fn receive(&mut self) -> Result<Received> {
        let frame = self.reader.receive()?;
        Ok(self.take_in(frame))
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.waker.clone().map(|waker| waker as Arc<dyn Interrupt>)
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Received> {
        let frame = match &self.waker {
            Some(waker) => self.reader.receive_within(waker, timeout)?,
            None => self.reader.receive()?,
        };
        Ok(self.take_in(frame))
    }
}

impl Receiver {
    fn take_in(&self, frame: Frame) -> Received {
        match frame {
            Frame::Message { channel, payload } => {
                let channels = self.channels.lock();
                let topics = if channel == channels.turns.channel {
                    channels.turns.topics.get(&*payload).map(|topic| vec![topic.clone()])
                } else {
                    channels.by_name.get(&channel).map(|known| known.topics.clone())
                };
                topics.map_or(Received::Alive, Received::Notified)
            }
            Frame::Listening { channel } => self.confirmed(&channel).map_or(Received::Alive, Received::Watching),
            Frame::Alive => Received::Alive,
            Frame::Timeout => Received::Timeout,
        }
    }

    fn confirmed(&self, name: &str) -> Option<Vec<Topic>> {
        let mut channels = self.channels.lock();
        if name == channels.turns.channel {
            channels.turns.confirmed = true;
            return Some(channels.turns.topics.values().cloned().collect());
        }
        let channel = channels.by_name.get_mut(name)?;
        channel.confirmed = true;
        Some(channel.topics.clone())
    }
}

struct Sender {
    writer: ListenWriter,
    channels: Arc<Mutex<Channels>>,
}

impl SubscriptionSender for Sender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut channels = self.channels.lock();
        let mut all_confirmed = true;
        for topic in topics {
            if let Some(holder) = &topic.turn_of {
                let turns = &mut channels.turns;
                turns.topics.insert(holder.clone(), (*topic).clone());
                turns.idle_since = None;
                all_confirmed &= turns.confirmed;
                if !std::mem::replace(&mut turns.asked, true) {
                    self.writer.listen(&turns.channel)?;
                }
                continue;
            }
            let name = channel_of(&topic.key);
            if !channels.by_name.contains_key(&name) {
                self.writer.listen(&name)?;
            }
            let channel = channels.by_name.entry(name).or_default();
            channel.topics.push((*topic).clone());
            all_confirmed &= channel.confirmed;
        }
        Ok(all_confirmed)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        let mut channels = self.channels.lock();
        if let Some(holder) = &topic.turn_of {
            channels.turns.topics.remove(holder);
            if channels.turns.topics.is_empty() {
                channels.turns.idle_since = Some(Instant::now());
            }
            return Ok(());
        }
        let name = channel_of(&topic.key);
        let Some(channel) = channels.by_name.get_mut(&name) else { return Ok(()) };
        channel.topics.retain(|other| other != topic);
        if channel.topics.is_empty() {
            channels.by_name.remove(&name);
            self.writer.unlisten(&name)?;
        }
        Ok(())
    }

    fn covers(&self, topic: &Topic) -> bool {
        topic.turn_of.is_some() && self.channels.lock().turns.confirmed
    }

    fn ping(&mut self) -> Result<()> {
        self.writer.ping()
    }

    fn maintain(&mut self) -> Result<()> {
        let mut channels = self.channels.lock();
        let turns = &mut channels.turns;
        // An unconfirmed one stays: its confirmation must not be taken for that of the next.
        if turns.confirmed && turns.idle_since.is_some_and(|since| since.elapsed() > LINGER) {
            (turns.asked, turns.confirmed, turns.idle_since) = (false, false, None);
            self.writer.unlisten(&turns.channel)?;
        }
        Ok(())
    }

    fn close(&self) {
        self.writer.close();
    }
}
