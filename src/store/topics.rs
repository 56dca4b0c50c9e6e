//! What is waited for over one connection for messages: which channel brings which topics.
//!
//! A lock name has a channel, into which a message is sent when something under it comes free. One
//! subscription of the client brings the turns of all its waiters in queues, which saves a request
//! and a second attempt in each wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Topic;

/// The subscription to turns is kept this long after the last waiter in a queue left.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Topics {
    channels: HashMap<String, Channel>,
    turns: Turns,
}

#[derive(Debug, Default)]
struct Channel {
    /// Mostly one: several locks may share a channel.
    topics: Vec<Topic>,
    confirmed: bool,
}

#[derive(Debug, Default)]
struct Turns {
    channel: String,
    asked: bool,
    confirmed: bool,
    /// By what a message says to name the waiter.
    topics: HashMap<String, Topic>,
    idle_since: Option<Instant>,
}

/// How far the subscription is that brings a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has to be asked for now.
    New,
    Asked,
    Confirmed,
}

impl Topics {
    /// `turns`: the channel, or the pattern of channels, that brings the turns of all waiters.
    pub(super) fn new(turns: String) -> Self {
        Self { channels: HashMap::new(), turns: Turns { channel: turns, ..Turns::default() } }
    }

    pub(super) fn turns_channel(&self) -> &str {
        &self.turns.channel
    }

    pub(super) fn turns_progress(&self) -> Progress {
        match (self.turns.asked, self.turns.confirmed) {
            (false, _) => Progress::New,
            (true, false) => Progress::Asked,
            (true, true) => Progress::Confirmed,
        }
    }

    /// How many waiters the subscription to turns serves.
    pub(super) fn turns(&self) -> usize {
        self.turns.topics.len()
    }

    pub(super) fn watch(&mut self, channel: &str, topic: &Topic) -> Progress {
        match self.channels.get_mut(channel) {
            Some(known) => {
                known.topics.push(topic.clone());
                if known.confirmed { Progress::Confirmed } else { Progress::Asked }
            }
            None => {
                let new = Channel { topics: vec![topic.clone()], confirmed: false };
                self.channels.insert(channel.to_owned(), new);
                Progress::New
            }
        }
    }

    pub(super) fn watch_turn(&mut self, waiter: &str, topic: &Topic) -> Progress {
        let progress = self.turns_progress();
        self.turns.topics.insert(waiter.to_owned(), topic.clone());
        (self.turns.asked, self.turns.idle_since) = (true, None);
        progress
    }

    /// True if that was the last topic of the channel, whose subscription is to be ended.
    pub(super) fn unwatch(&mut self, channel: &str, topic: &Topic) -> bool {
        let Some(known) = self.channels.get_mut(channel) else { return false };
        known.topics.retain(|other| other != topic);
        let is_last = known.topics.is_empty();
        if is_last {
            self.channels.remove(channel);
        }
        is_last
    }

    /// False if the turn of this waiter was not watched.
    pub(super) fn unwatch_turn(&mut self, waiter: &str) -> bool {
        let was_watched = self.turns.topics.remove(waiter).is_some();
        if was_watched && self.turns.topics.is_empty() {
            self.turns.idle_since = Some(Instant::now());
        }
        was_watched
    }

    /// True if the subscription to turns is to be ended, because nobody has needed it for a while.
    /// An unconfirmed one stays: its confirmation must not be taken for that of the next.
    pub(super) fn end_idle_turns(&mut self, now: Instant) -> bool {
        let turns = &mut self.turns;
        let is_over =
            turns.idle_since.is_some_and(|since| now.saturating_duration_since(since) > LINGER);
        let ends = turns.confirmed && is_over;
        if ends {
            turns.asked = false;
            turns.confirmed = false;
            turns.idle_since = None;
        }
        ends
    }

    /// The server has confirmed a subscription. Returns the topics that it brings.
    pub(super) fn confirm(&mut self, channel: &str) -> Option<Vec<Topic>> {
        if channel == self.turns.channel {
            self.turns.confirmed = true;
            return Some(self.turns.topics.values().cloned().collect());
        }
        let channel = self.channels.get_mut(channel)?;
        channel.confirmed = true;
        Some(channel.topics.clone())
    }

    /// The channels that are subscribed to by themselves.
    pub(super) fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.keys().map(String::as_str)
    }

    pub(super) fn of(&self, channel: &str) -> Option<Vec<Topic>> {
        self.channels.get(channel).map(|channel| channel.topics.clone())
    }

    pub(super) fn turn_of(&self, waiter: &str) -> Option<Vec<Topic>> {
        self.turns.topics.get(waiter).map(|topic| vec![topic.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lock_name::{Kind, LockName};

    fn freed(kind: Kind) -> Topic {
        Topic::freed(&LockName::new("", "job", kind).unwrap())
    }

    fn turn(holder: &str) -> Topic {
        Topic::turn(&LockName::new("", "job", Kind::Fair).unwrap(), holder)
    }

    #[test]
    fn the_first_topic_of_a_channel_subscribes_and_the_last_ends_it() {
        let (mut topics, one, other) =
            (Topics::new("turns".into()), freed(Kind::Mutex), freed(Kind::Fair));
        assert_eq!(topics.watch("c", &one), Progress::New);
        assert_eq!(topics.watch("c", &other), Progress::Asked);
        assert_eq!(topics.confirm("c"), Some(vec![one.clone(), other.clone()]));
        assert_eq!(topics.confirm("d"), None);
        assert!(!topics.unwatch("c", &one));
        assert_eq!(topics.watch("c", &one), Progress::Confirmed);
        assert_eq!(topics.of("c"), Some(vec![other.clone(), one.clone()]));
        assert!(
            !topics.unwatch("c", &other) && topics.unwatch("c", &one) && !topics.unwatch("c", &one)
        );
        assert_eq!((topics.of("c"), topics.watch("c", &one)), (None, Progress::New));
    }

    #[test]
    fn all_turns_come_by_one_subscription_which_lingers() {
        let mut topics = Topics::new("turns".into());
        let later = || Instant::now() + 2 * LINGER;
        assert_eq!(topics.watch_turn("h1", &turn("h1")), Progress::New);
        assert_eq!(topics.watch_turn("h2", &turn("h2")), Progress::Asked);
        assert!(
            topics.unwatch_turn("h1") && topics.unwatch_turn("h2") && !topics.unwatch_turn("h2")
        );
        assert!(!topics.end_idle_turns(later()), "it is not confirmed");
        assert_eq!(topics.confirm("turns"), Some(vec![]));
        assert!(!topics.end_idle_turns(Instant::now()), "it lingers");
        assert_eq!(topics.watch_turn("h3", &turn("h3")), Progress::Confirmed);
        assert!(!topics.end_idle_turns(later()), "somebody waits");
        assert_eq!((topics.turn_of("h3"), topics.turn_of("h1")), (Some(vec![turn("h3")]), None));
        assert!(topics.unwatch_turn("h3") && topics.end_idle_turns(later()));
        assert_eq!(topics.turns_progress(), Progress::New);
    }
}
