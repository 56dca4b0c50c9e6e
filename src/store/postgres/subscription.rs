//! Wake-ups by `NOTIFY`: which channel brings which topic.
//!
//! A name has a channel, which is notified when something under the name becomes free. A client has
//! one for all its waiters in queues: the message says whose turn it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::channel_of;
use super::wire::{Frame, ListenReader, ListenWriter};
use crate::base::error::Result;
use crate::os::Mutex;
use crate::signal::event::Interrupt;
use crate::store::net::Waker;
use crate::store::topics::{Progress, Topics};
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// Both halves of a subscription.
pub(super) fn subscribe_to(
    (reader, writer): (ListenReader, ListenWriter),
    own_channel: &str,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let topics = Arc::new(Mutex::new(Topics::new(own_channel.to_owned())));
    let waker = Waker::new().ok().map(Arc::new);
    (
        Box::new(Receiver { reader, waker, topics: topics.clone() }),
        Box::new(Sender { writer, topics }),
    )
}

struct Receiver {
    reader: ListenReader,
    /// Ends a read of a waiter that has something else to do.
    waker: Option<Arc<Waker>>,
    topics: Arc<Mutex<Topics>>,
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
        let mut topics = self.topics.lock();
        match frame {
            Frame::Message { channel, payload } => {
                let is_turn = channel == topics.turns_channel();
                let notified = if is_turn { topics.turn_of(&payload) } else { topics.of(&channel) };
                notified.map_or(Received::Alive, Received::Notified)
            }
            Frame::Listening { channel } => {
                topics.confirm(&channel).map_or(Received::Alive, Received::Watching)
            }
            Frame::Alive => Received::Alive,
            Frame::Timeout => Received::Timeout,
        }
    }
}

struct Sender {
    writer: ListenWriter,
    topics: Arc<Mutex<Topics>>,
}

impl SubscriptionSender for Sender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let mut watched = self.topics.lock();
        let mut all_confirmed = true;
        for topic in topics {
            let (channel, progress) = match &topic.turn_of {
                Some(holder) => {
                    let progress = watched.watch_turn(holder, topic);
                    (watched.turns_channel().to_owned(), progress)
                }
                None => {
                    let channel = channel_of(&topic.key);
                    let progress = watched.watch(&channel, topic);
                    (channel, progress)
                }
            };
            all_confirmed &= progress == Progress::Confirmed;
            if progress == Progress::New {
                self.writer.listen(&channel)?;
            }
        }
        Ok(all_confirmed)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        let mut watched = self.topics.lock();
        if let Some(holder) = &topic.turn_of {
            watched.unwatch_turn(holder);
            return Ok(());
        }
        let channel = channel_of(&topic.key);
        if watched.unwatch(&channel, topic) { self.writer.unlisten(&channel) } else { Ok(()) }
    }

    fn covers(&self, topic: &Topic) -> bool {
        topic.turn_of.is_some() && self.topics.lock().turns_progress() == Progress::Confirmed
    }

    fn ping(&mut self) -> Result<()> {
        self.writer.ping()
    }

    fn maintain(&mut self) -> Result<()> {
        let mut watched = self.topics.lock();
        if watched.end_idle_turns(Instant::now()) {
            self.writer.unlisten(watched.turns_channel())
        } else {
            Ok(())
        }
    }

    fn close(&self) {
        self.writer.close();
    }
}
