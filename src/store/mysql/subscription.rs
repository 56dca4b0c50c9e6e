//! Wake-ups by looking: the server notifies nobody, so whoever waits reads the rows of all names
//! that its client waits for, in one query, again and again.
//!
//! A look sees whether a lock is free *now*, and not only that it was freed, so nothing is missed
//! between two looks but a lock that somebody else took meanwhile. What several may have at once
//! has a number that each of them changes when he leaves: the first look does not know what it was
//! when the waiter tried, so it wakes him. The pause is an eighth of the
//! wait so far: what was waited for shortly is seen soon, and a long wait costs four looks a
//! second.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::{self, text};
use super::wire::{Connection, MysqlFailure};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::random;
use crate::os::{Condvar, Mutex};
use crate::signal::event::Interrupt;
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(250);

/// Both halves of a subscription.
pub(super) fn subscribe_to(
    connection: Connection,
    read_timeout: Duration,
) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>) {
    let shared = Arc::new(Shared::default());
    let last_look = Instant::now();
    let seen = HashMap::new();
    let looker = Looker { connection, read_timeout, last_look, seen, shared: shared.clone() };
    (Box::new(looker), Box::new(Sender(shared)))
}

/// What both halves know.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is waited for, and since when.
    topics: Vec<(Topic, Instant)>,
    /// A sign of life of the server is wanted.
    pinged: bool,
    interrupted: bool,
    closed: bool,
}

impl State {
    /// How long after the last look the next one is due; `None`: there is nothing to look at.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let waited = |since: &Instant| now.saturating_duration_since(*since);
        let youngest = self.topics.iter().map(|(_, since)| waited(since)).min();
        let pause = youngest.map(|waited| (waited / 8).clamp(SHORTEST, LONGEST));
        if self.pinged { Some(Duration::ZERO) } else { pause }
    }
}

impl Interrupt for Shared {
    fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
    }
}

struct Looker {
    connection: Connection,
    read_timeout: Duration,
    last_look: Instant,
    /// Of the names that several may have: their number.
    seen: HashMap<String, String>,
    shared: Arc<Shared>,
}

impl Looker {
    /// Waits until a look is due. False: the time is over, or it was interrupted.
    fn await_turn(&self, timeout: Duration) -> Result<bool> {
        let until = Instant::now() + timeout;
        // So that clients that began to wait at once do not look at once.
        let jitter = 0.75 + random::fraction() / 2.0;
        let mut state = self.shared.state.lock();
        loop {
            if state.closed {
                return Err(Error::new(ErrorKind::Closed, "the subscription was ended"));
            }
            if std::mem::take(&mut state.interrupted) {
                return Ok(false);
            }
            let now = Instant::now();
            let due = state.pause(now).map(|pause| self.last_look + pause.mul_f64(jitter));
            if due.is_some_and(|due| due <= now) {
                return Ok(true);
            }
            if now >= until {
                return Ok(false);
            }
            self.shared.changed.wait_until(&mut state, due.map_or(until, |due| due.min(until)));
        }
    }

    fn look(&mut self) -> Result<Received> {
        let (topics, pinged) = {
            let mut state = self.shared.state.lock();
            let topics: Vec<Topic> = state.topics.iter().map(|(topic, _)| topic.clone()).collect();
            (topics, std::mem::take(&mut state.pinged))
        };
        // A name that nothing has: the query is the sign of life.
        let keys = topics.iter().map(|topic| &*topic.key).chain(pinged.then_some(""));
        let answer = self.connection.ask(&requests::poll(keys));
        self.last_look = Instant::now();
        let set = answer.map_err(MysqlFailure::into_error)?.last()?;
        let seen = std::mem::take(&mut self.seen);
        let mut taken = HashSet::new();
        for row in &set.rows {
            let (Some(name), Some(number)) = (text(row, 0), text(row, 1)) else { continue };
            let is_shared = text(row, 2) == Some("1");
            if is_shared {
                self.seen.insert(name.to_owned(), number.to_owned());
            }
            if !is_shared || seen.get(name).is_some_and(|before| before == number) {
                taken.insert(name);
            }
        }
        let is_taken = |topic: &Topic| taken.contains(&*topic.key);
        let free: Vec<Topic> = topics.into_iter().filter(|topic| !is_taken(topic)).collect();
        Ok(match (free.is_empty(), pinged) {
            (false, _) => Received::Notified(free),
            (true, true) => Received::Alive,
            (true, false) => Received::Timeout,
        })
    }
}

impl Subscriber for Looker {
    fn receive(&mut self) -> Result<Received> {
        self.receive_within(self.read_timeout)
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.shared.clone())
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Received> {
        let until = Instant::now() + timeout;
        while self.await_turn(until.saturating_duration_since(Instant::now()))? {
            match self.look()? {
                Received::Timeout => {}
                received => return Ok(received),
            }
        }
        Ok(Received::Timeout)
    }
}

struct Sender(Arc<Shared>);

impl SubscriptionSender for Sender {
    /// The waiter tries again after it, and every look is later than that.
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let now = Instant::now();
        self.0.state.lock().topics.extend(topics.iter().map(|&topic| (topic.clone(), now)));
        self.0.changed.notify_all();
        Ok(true)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        self.0.state.lock().topics.retain(|(other, _)| other != topic);
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        self.0.state.lock().pinged = true;
        self.0.changed.notify_all();
        Ok(())
    }

    fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lock_name::{Kind, LockName};

    #[test]
    fn the_pause_is_an_eighth_of_the_shortest_wait() {
        let topic = |name| Topic::freed(&LockName::new("", name, Kind::Mutex).unwrap());
        let now = Instant::now();
        let since = |millis| now.checked_sub(Duration::from_millis(millis)).unwrap();
        let mut state = State::default();
        assert_eq!(state.pause(now), None);
        state.topics.push((topic("a"), since(8_000)));
        assert_eq!(state.pause(now), Some(LONGEST));
        state.topics.push((topic("b"), since(80)));
        assert_eq!(state.pause(now), Some(Duration::from_millis(10)));
        state.topics.push((topic("c"), now));
        assert_eq!(state.pause(now), Some(SHORTEST));
        state.pinged = true;
        assert_eq!(state.pause(now), Some(Duration::ZERO));
    }
}
