//! Connections that listen, to one server or to several: one thread reads them, and anybody may ask for channels meanwhile.
//!
//! On a socket of our own, because a `redis::Connection` is driven by one thread at a time: nobody could subscribe
//! while it reads, except by waking the reader with a message of its own, one command and one thread hop more for every
//! first wait (`redis-client.md` §4).

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::connector::{Dialer, Endpoint, next_reply, shake, to_error};
use super::poll::readable;
use super::reader::ReplyReader;
use super::stream::{Stream, is_timeout};
use super::{Reply, Request};
use crate::base::error::{Error, ErrorKind, Result};

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

/// What wakes waiters of Java, to whom it is the number 0 that stands for a release, and none of ours.
pub(crate) const FOR_JAVA: &[u8] = b"00";

/// The half that reads.
pub(crate) struct Ear {
    lines: Vec<Line>,
    /// For several servers: how long a read may take, and when it is time to listen to one more.
    several: Option<Several>,
}

struct Line {
    stream: Stream,
    reader: ReplyReader,
    endpoint: Endpoint,
}

struct Several {
    read_timeout: Duration,
    /// How often a server came back, now and when this ear was made.
    returns: Arc<AtomicU64>,
    known: u64,
}

/// The half that asks. After any error both halves must be given up.
pub(crate) struct Mouth(Vec<Voice>);

struct Voice {
    stream: Stream,
    endpoint: Endpoint,
}

impl Dialer {
    /// Connects and logs in; reads then wait for `read_timeout`.
    pub(crate) fn listen(&self, read_timeout: Duration) -> Result<(Ear, Mouth)> {
        let (line, voice) = self.open_line()?;
        line.stream.set_timeouts(read_timeout, self.io_timeout).map_err(|e| to_error(e, &self.endpoint))?;
        Ok((Ear { lines: vec![line], several: None }, Mouth(vec![voice])))
    }

    /// Listens to all that can be reached, until one of them ends or another comes back (`returns` counts that). `cannot` is
    /// told of each that cannot be.
    pub(crate) fn listen_to_all(
        dialers: &[&Self],
        read_timeout: Duration,
        returns: Arc<AtomicU64>,
        cannot: impl Fn(usize, &Error),
    ) -> Result<(Ear, Mouth)> {
        let known = returns.load(Ordering::Acquire);
        let (mut lines, mut voices) = (Vec::new(), Vec::new());
        let mut wrong = Error::new(ErrorKind::Unreachable, "no server can be listened to");
        for (at, dialer) in dialers.iter().enumerate() {
            let opened = dialer.open_line().and_then(|(line, voice)| {
                line.stream.set_nonblocking().map_err(|e| to_error(e, &dialer.endpoint))?;
                Ok((line, voice))
            });
            match opened {
                Ok((line, voice)) => {
                    lines.push(line);
                    voices.push(voice);
                }
                Err(error) => {
                    cannot(at, &error);
                    wrong = error;
                }
            }
        }
        if lines.is_empty() {
            return Err(wrong);
        }
        let several = Some(Several { read_timeout, returns, known });
        Ok((Ear { lines, several }, Mouth(voices)))
    }

    fn open_line(&self) -> Result<(Line, Voice)> {
        let fail = |e: io::Error| to_error(e, &self.endpoint);
        let (stream, deadline) = Stream::connect(&self.endpoint, self.io_timeout).map_err(fail)?;
        let twin = stream.try_clone().map_err(fail)?;
        let mut line = Line { stream, reader: ReplyReader::default(), endpoint: self.endpoint.clone() };
        let voice = Voice { stream: twin, endpoint: self.endpoint.clone() };
        if let Some(request) = self.endpoint.log_in()
            && let Reply::Error(e) = line.shake(&request, deadline)?
        {
            return Err(e.into_error());
        }
        // Not being allowed to have a name is no reason to be deaf.
        match line.shake(&Request::plain(&["CLIENT", "SETNAME", &self.client_name]), deadline)? {
            Reply::Error(e) if e.is_too_many_clients() => return Err(e.into_error()),
            _ => {}
        }
        Ok((line, voice))
    }
}

impl Ear {
    pub(crate) fn hear(&mut self) -> Result<Heard> {
        let Some(several) = &self.several else { return self.lines[0].hear() };
        if several.returns.load(Ordering::Acquire) != several.known {
            return Err(Error::new(ErrorKind::Unreachable, "a server came back: listening to it as well"));
        }
        let timeout = several.read_timeout;
        // First what a parser has read ahead, which waiting for the sockets would not show.
        for wait in [Duration::ZERO, timeout] {
            if !wait.is_zero() {
                let streams: Vec<&Stream> = self.lines.iter().map(|line| &line.stream).collect();
                readable(&streams, wait);
            }
            for line in &mut self.lines {
                match line.hear()? {
                    Heard::Silence => {}
                    heard => return Ok(heard),
                }
            }
        }
        Ok(Heard::Silence)
    }
}

impl Line {
    fn hear(&mut self) -> Result<Heard> {
        let reply = loop {
            if let Some(reply) = next_reply(&mut self.reader, &self.endpoint)? {
                break reply;
            }
            match self.reader.fill(&mut self.stream) {
                // The half of a message that has arrived is kept.
                Err(e) if is_timeout(&e) => return Ok(Heard::Silence),
                filled => filled.map_err(|e| to_error(e, &self.endpoint))?,
            }
        };
        let parts = match reply {
            Reply::Array(parts) => parts,
            Reply::Error(e) => return Err(e.into_error()),
            _ => return Ok(Heard::Sign),
        };
        let mut words = parts.into_iter().map(|part| if let Reply::Bytes(bytes) = part { bytes } else { Vec::new() });
        let (kind, channel) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Ok(match &*kind {
            b"message" if words.next().as_deref() == Some(FOR_JAVA) => Heard::Sign,
            b"message" => Heard::Message { channel },
            // The pattern comes first.
            b"pmessage" => Heard::Message { channel: words.next().unwrap_or_default() },
            b"subscribe" | b"psubscribe" => Heard::Subscribed { topic: channel },
            _ => Heard::Sign,
        })
    }

    fn shake(&mut self, request: &Request, deadline: Instant) -> Result<Reply> {
        let mut bytes = Vec::new();
        request.write_unstamped(&mut bytes);
        self.stream.within(deadline).write_all(&bytes).map_err(|e| to_error(e, &self.endpoint))?;
        shake(&mut self.reader, &mut self.stream, deadline, &self.endpoint)
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
        self.0.iter().for_each(|voice| voice.stream.shutdown());
    }

    fn say(&mut self, request: &Request) -> Result<()> {
        self.0.iter_mut().try_for_each(|voice| voice.say(request))
    }
}

impl Voice {
    fn say(&mut self, request: &Request) -> Result<()> {
        let mut bytes = Vec::new();
        request.write_unstamped(&mut bytes);
        self.stream.write_all(&bytes).map_err(|e| to_error(e, &self.endpoint))
    }
}
