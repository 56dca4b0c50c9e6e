//! Subscriptions at one server or at several: one thread reads the messages while other threads
//! subscribe. A `redis::Connection` would not do, because only one thread at a time can use it: no
//! other thread could subscribe while one reads, except by first waking the reader with a message.
//! Every first wait would cost one more command and thread switch.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::connector::Connector;
use super::endpoint::Endpoint;
use super::reply::{Reply, ReplyReader};
use super::request::Request;
use super::server_error::ServerError;
use super::transport::{next_reply, shake, to_error};
use super::unknown_outcome::Epoch;
use crate::base::error::{Error, ErrorKind, Result};
use crate::os;
use crate::store::net::{ENDED, Stream, Waker, is_timeout, readable};

/// What a read received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Message {
        channel: Vec<u8>,
        /// A message to a channel that is subscribed to by itself as well comes twice.
        by_pattern: bool,
        /// The fencing token, 0 for none, if the message gives a fair lock to its waiter.
        grant: Option<u64>,
    },
    /// The server has confirmed a subscription to a channel or a pattern.
    Subscribed { topic: Vec<u8> },
    /// A subscription to a sharded channel has ended, on request or because its slot has moved.
    Unsubscribed { topic: Vec<u8> },
    /// The node does not have the slot of the sharded channel to be subscribed.
    Moved {
        slot: u16,
        /// The same as in [`Redirect::Moved`](super::server_error::Redirect::Moved).
        address: String,
    },
    /// Any other reply, which shows that the server is alive.
    Alive,
    /// Nothing came within the read timeout.
    Timeout,
}

/// The message that wakes only Redisson's waiters: Redisson parses it as the number 0, which means
/// a release, and leasehold ignores it.
pub(crate) const WAKE_REDISSON: &[u8] = b"00";

/// The half that reads.
pub(crate) struct PubSubReader {
    sockets: Vec<Socket>,
    /// For several servers: the read timeout.
    several: Option<Duration>,
    epoch: Option<Epoch>,
}

struct Socket {
    stream: Stream,
    reader: ReplyReader,
    endpoint: Endpoint,
}

/// The half that subscribes. After any error both halves must be dropped.
pub(crate) struct PubSubWriter(Vec<SendHalf>);

struct SendHalf {
    stream: Stream,
    endpoint: Endpoint,
}

impl Connector {
    /// Connects and logs in; reads will wait for `read_timeout`.
    pub(crate) fn subscribe(&self, read_timeout: Duration) -> Result<(PubSubReader, PubSubWriter)> {
        let (endpoint, epoch) = self.endpoint.find()?;
        let (mut socket, send_half) = open_socket(&endpoint, &self.client_name, self.io_timeout)?;
        socket
            .stream
            .set_timeouts(read_timeout, self.io_timeout)
            .map_err(|e| to_error(e, &endpoint))?;
        Ok((
            PubSubReader { sockets: vec![socket], several: None, epoch },
            PubSubWriter(vec![send_half]),
        ))
    }

    /// Connects and logs in; reads will not wait.
    pub(crate) fn subscribe_without_waiting(&self) -> Result<(PubSubReader, PubSubWriter)> {
        let (endpoint, epoch) = self.endpoint.find()?;
        let (mut reader, writer) = listen_at(&endpoint, &self.client_name, self.io_timeout)?;
        reader.epoch = epoch;
        Ok((reader, writer))
    }
}

/// The node that has the slot of a sharded channel.
fn moved(error: &ServerError) -> Option<Frame> {
    let mut words = error.text.split(' ');
    let (Some("MOVED"), Some(slot), Some(address)) = (words.next(), words.next(), words.next())
    else {
        return None;
    };
    Some(Frame::Moved { slot: slot.parse().ok()?, address: address.to_owned() })
}

/// What a reply means on a connection with subscriptions.
pub(super) fn frame(reply: Reply) -> Result<Frame> {
    let parts = match reply {
        Reply::Array(parts) => parts,
        // Not a refusal of the request: the next connection logs in again.
        Reply::Error(e) if e.says("NOAUTH") => {
            return Err(Error::new(ErrorKind::Unreachable, ENDED).caused_by(e.into_error()));
        }
        Reply::Error(e) => return moved(&e).ok_or_else(|| e.into_error()),
        _ => return Ok(Frame::Alive),
    };
    let mut words = parts
        .into_iter()
        .map(|part| if let Reply::Bytes(bytes) = part { bytes } else { Vec::new() });
    let kind = words.next().unwrap_or_default();
    let channel = words.next().unwrap_or_default();
    Ok(match &*kind {
        b"message" | b"smessage" => match words.next() {
            Some(text) if text == WAKE_REDISSON => Frame::Alive,
            text => Frame::Message { channel, by_pattern: false, grant: grant(text) },
        },
        // The pattern is the first word.
        b"pmessage" => {
            let channel = words.next().unwrap_or_default();
            Frame::Message { channel, by_pattern: true, grant: grant(words.next()) }
        }
        b"sunsubscribe" => Frame::Unsubscribed { topic: channel },
        b"subscribe" | b"psubscribe" | b"ssubscribe" => Frame::Subscribed { topic: channel },
        _ => Frame::Alive,
    })
}

/// The fencing token in the message of a release that gave the lock to a waiter.
fn grant(message: Option<Vec<u8>>) -> Option<u64> {
    std::str::from_utf8(message?.strip_prefix(b"grant:")?).ok()?.parse().ok()
}

/// Waits until one of the readers has input, until `waker` is woken, or for `timeout`. Replies that
/// were read ahead do not count.
pub(crate) fn wait_for_input<'r>(
    readers: impl Iterator<Item = &'r PubSubReader>,
    waker: &'r Waker,
    timeout: Duration,
) {
    let streams = readers.flat_map(|reader| &reader.sockets).map(|socket| &socket.stream);
    waker.wait_with(streams, timeout);
}

/// Connects to one server and logs in; reads will not wait.
pub(crate) fn listen_at(
    endpoint: &Endpoint,
    client_name: &str,
    io_timeout: Duration,
) -> Result<(PubSubReader, PubSubWriter)> {
    let (socket, send_half) = open_socket(endpoint, client_name, io_timeout)?;
    socket.stream.set_nonblocking().map_err(|e| to_error(e, endpoint))?;
    let reader = PubSubReader { sockets: vec![socket], several: None, epoch: None };
    Ok((reader, PubSubWriter(vec![send_half])))
}

fn open_socket(
    endpoint: &Endpoint,
    client_name: &str,
    io_timeout: Duration,
) -> Result<(Socket, SendHalf)> {
    let fail = |e: io::Error| to_error(e, endpoint);
    let deadline = os::now() + io_timeout;
    let log_in = endpoint.begin_log_in(deadline)?;
    let stream = endpoint.dial(io_timeout, deadline).map_err(fail)?;
    let twin = stream.twin();
    let mut socket = Socket { stream, reader: ReplyReader::default(), endpoint: endpoint.clone() };
    let send_half = SendHalf { stream: twin, endpoint: endpoint.clone() };
    if let Some(log_in) = log_in {
        log_in.log_in(|request| socket.shake(request, deadline))?;
    }
    // A user who may not set a name can still subscribe.
    match socket.shake(&Request::plain(&["CLIENT", "SETNAME", client_name]), deadline)? {
        Reply::Error(e) if e.is_too_many_clients() => return Err(e.into_error()),
        _ => {}
    }
    Ok((socket, send_half))
}

impl PubSubReader {
    /// One that does not wait becomes one of several servers, which waits for `read_timeout`.
    pub(crate) fn of_several(self, read_timeout: Duration) -> Self {
        Self { several: Some(read_timeout), ..self }
    }

    /// Reads from that server as well.
    pub(crate) fn join(&mut self, other: Self) {
        self.sockets.extend(other.sockets);
    }

    pub(crate) fn is_of_one(&self) -> bool {
        self.several.is_none()
    }

    /// [`receive`](Self::receive) from one server, but waits for at most `timeout`, and only until
    /// woken.
    pub(crate) fn receive_within(&mut self, waker: &Waker, timeout: Duration) -> Result<Frame> {
        self.check_epoch()?;
        self.sockets[0].receive_within(waker, timeout)
    }

    /// The server may be a replica by now, or cut off from its replicas: holders that use the new
    /// master publish there.
    fn check_epoch(&self) -> Result<()> {
        match &self.epoch {
            Some(epoch) if epoch.is_over() => Err(Error::new(
                ErrorKind::Unreachable,
                "another server is the master: subscribing there",
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn receive(&mut self) -> Result<Frame> {
        self.check_epoch()?;
        let Some(timeout) = self.several else { return self.sockets[0].receive() };
        // Replies that were read ahead come first, because poll does not report them.
        for wait in [Duration::ZERO, timeout] {
            if !wait.is_zero() {
                let streams: Vec<&Stream> =
                    self.sockets.iter().map(|socket| &socket.stream).collect();
                readable(&streams, wait);
            }
            for socket in &mut self.sockets {
                match socket.receive()? {
                    Frame::Timeout => {}
                    received => return Ok(received),
                }
            }
        }
        Ok(Frame::Timeout)
    }
}

impl Socket {
    /// [`receive`](Self::receive), but waits for at most `timeout`, and only until woken.
    fn receive_within(&mut self, waker: &Waker, timeout: Duration) -> Result<Frame> {
        self.receive_by(|socket| socket.reader.fill(&mut socket.stream.until_woken(waker, timeout)))
    }

    fn receive(&mut self) -> Result<Frame> {
        self.receive_by(|socket| socket.reader.fill(&mut socket.stream))
    }

    fn receive_by(&mut self, fill: impl Fn(&mut Self) -> io::Result<()>) -> Result<Frame> {
        let reply = loop {
            if let Some(reply) = next_reply(&mut self.reader, &self.endpoint)? {
                break reply;
            }
            match fill(self) {
                // The part of a message that has arrived is kept.
                Err(e) if is_timeout(&e) => return Ok(Frame::Timeout),
                filled => filled.map_err(|e| to_error(e, &self.endpoint))?,
            }
        };
        frame(reply)
    }

    fn shake(&mut self, request: &Request, deadline: Instant) -> Result<Reply> {
        let mut bytes = Vec::new();
        request.write_plain(&mut bytes);
        self.stream.meter.requests(1);
        self.stream.within(deadline).write_all(&bytes).map_err(|e| to_error(e, &self.endpoint))?;
        shake(&mut self.reader, &mut self.stream, deadline, &self.endpoint)
    }
}

impl PubSubWriter {
    /// Sends to that server as well.
    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn subscribe(&mut self, channels: &[&str]) -> Result<()> {
        let words: Vec<&str> =
            std::iter::once("SUBSCRIBE").chain(channels.iter().copied()).collect();
        self.send(&Request::plain(&words))
    }

    pub(crate) fn unsubscribe(&mut self, channel: &str) -> Result<()> {
        self.send(&Request::plain(&["UNSUBSCRIBE", channel]))
    }

    /// One request for each channel: the channels of one request would have to be in one slot.
    pub(crate) fn subscribe_sharded(&mut self, channel: &str) -> Result<()> {
        self.send(&Request::plain(&["SSUBSCRIBE", channel]))
    }

    pub(crate) fn unsubscribe_sharded(&mut self, channel: &str) -> Result<()> {
        self.send(&Request::plain(&["SUNSUBSCRIBE", channel]))
    }

    pub(crate) fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.send(&Request::plain(&["PSUBSCRIBE", pattern]))
    }

    pub(crate) fn unsubscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.send(&Request::plain(&["PUNSUBSCRIBE", pattern]))
    }

    pub(crate) fn ping(&mut self) -> Result<()> {
        self.send(&Request::plain(&["PING"]))
    }

    /// Also ends the read of the other half.
    pub(crate) fn close(&self) {
        for send_half in &self.0 {
            send_half.stream.shutdown();
        }
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        self.0.iter_mut().try_for_each(|send_half| send_half.send(request))
    }
}

impl SendHalf {
    fn send(&mut self, request: &Request) -> Result<()> {
        let mut bytes = Vec::new();
        request.write_plain(&mut bytes);
        self.stream.meter.requests(1);
        self.stream.write_all(&bytes).map_err(|e| to_error(e, &self.endpoint))
    }
}
