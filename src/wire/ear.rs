//! A connection that listens: one thread reads it, and anybody may ask for channels on it meanwhile.
//!
//! On a socket of our own, because a `redis::Connection` is driven by one thread at a time: nobody could subscribe
//! while it reads, except by waking the reader with a message of its own, one command and one thread hop more for every
//! first wait (`redis-client.md` §4).

use std::io::{self, Write};
use std::time::Duration;

use super::dial::{Dialer, Endpoint, to_error, to_reply};
use super::stream::Stream;
use super::{Reply, Request};
use crate::error::Result;

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message {
        channel: Vec<u8>,
    },
    /// The server has confirmed a subscription to a channel or a pattern.
    Subscribed {
        topic: Vec<u8>,
    },
    /// Anything else that shows that the server is there.
    Sign,
    /// Nothing within the read timeout.
    Silence,
}

/// The half that reads.
pub(crate) struct Ear {
    stream: Stream,
    parser: redis::Parser,
    endpoint: Endpoint,
}

/// The half that asks. After any error both halves must be given up.
pub(crate) struct Mouth {
    stream: Stream,
    endpoint: Endpoint,
}

impl Dialer {
    /// Connects and logs in; reads then wait for `read_timeout`.
    pub(crate) fn listen(&self, read_timeout: Duration) -> Result<(Ear, Mouth)> {
        let fail = |e: io::Error| to_error(e.into(), &self.endpoint);
        let stream = Stream::connect(&self.endpoint, self.io_timeout).map_err(fail)?;
        let twin = stream.try_clone().map_err(fail)?;
        let mut ear = Ear { stream, parser: redis::Parser::new(), endpoint: self.endpoint.clone() };
        let mut mouth = Mouth { stream: twin, endpoint: self.endpoint.clone() };
        let redis = self.endpoint.info().redis_settings();
        if let Some(password) = redis.password() {
            let user = redis.username().unwrap_or("default");
            mouth.say(&Request::plain(&["AUTH", user, password]))?;
            ear.expect_no_error()?;
        }
        mouth.say(&Request::plain(&["CLIENT", "SETNAME", &self.client_name]))?;
        // Not being allowed to have a name is no reason to be deaf.
        ear.read()?;
        ear.stream.set_timeouts(read_timeout, self.io_timeout).map_err(fail)?;
        Ok((ear, mouth))
    }
}

impl Ear {
    pub(crate) fn hear(&mut self) -> Result<Heard> {
        let parts = match self.parser.parse_value(&mut self.stream) {
            Ok(value) => match to_reply(value) {
                Reply::Array(parts) => parts,
                Reply::Error(e) => return Err(e.into_error()),
                _ => return Ok(Heard::Sign),
            },
            // The parser keeps the half of a message that has arrived.
            Err(e) if e.is_timeout() => return Ok(Heard::Silence),
            Err(e) => return Err(to_error(e, &self.endpoint)),
        };
        let mut words = parts.into_iter().map(|part| if let Reply::Bytes(bytes) = part { bytes } else { Vec::new() });
        let (kind, channel) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Ok(match &*kind {
            b"message" => Heard::Message { channel },
            // The pattern comes first.
            b"pmessage" => Heard::Message { channel: words.next().unwrap_or_default() },
            b"subscribe" | b"psubscribe" => Heard::Subscribed { topic: channel },
            _ => Heard::Sign,
        })
    }

    fn read(&mut self) -> Result<Reply> {
        self.parser.parse_value(&mut self.stream).map(to_reply).map_err(|e| to_error(e, &self.endpoint))
    }

    fn expect_no_error(&mut self) -> Result<()> {
        match self.read()? {
            Reply::Error(e) => Err(e.into_error()),
            _ => Ok(()),
        }
    }
}

impl Mouth {
    pub(crate) fn subscribe(&mut self, channels: &[&str]) -> Result<()> {
        let words: Vec<&str> = std::iter::once("SUBSCRIBE").chain(channels.iter().copied()).collect();
        self.say(&Request::plain(&words))
    }

    pub(crate) fn unsubscribe(&mut self, channel: &str) -> Result<()> {
        self.say(&Request::plain(&["UNSUBSCRIBE", channel]))
    }

    pub(crate) fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.say(&Request::plain(&["PSUBSCRIBE", pattern]))
    }

    pub(crate) fn unsubscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.say(&Request::plain(&["PUNSUBSCRIBE", pattern]))
    }

    pub(crate) fn ping(&mut self) -> Result<()> {
        self.say(&Request::plain(&["PING"]))
    }

    /// Ends the read of the other half, too.
    pub(crate) fn close(&self) {
        self.stream.shutdown();
    }

    fn say(&mut self, request: &Request) -> Result<()> {
        let mut bytes = Vec::new();
        request.write_unstamped(&mut bytes);
        self.stream.write_all(&bytes).map_err(|e| to_error(e.into(), &self.endpoint))
    }
}
