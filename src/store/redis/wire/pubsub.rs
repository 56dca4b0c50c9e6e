//! Subscriptions at one server or at several: one thread reads the messages while other threads
//! subscribe. A `redis::Connection` would not do, because only one thread at a time can use it: no
//! other thread could subscribe while one reads, except by first waking the reader with a message.
//! Every first wait would cost one more command and thread switch.

use std::collections::VecDeque;
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
    epoch: Option<Epoch>,
}

struct Socket {
    stream: Stream,
    reader: ReplyReader,
    endpoint: Endpoint,
}

/// The half that subscribes: at each server, in the order of the reader's. After an error both
/// halves must be dropped.
pub(crate) struct PubSubWriter(Vec<SendHalf>);

struct SendHalf {
    stream: Stream,
    endpoint: Endpoint,
    /// The channels of each subscription that has not been answered, in the order of the answers.
    asked: VecDeque<Vec<String>>,
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
        Ok((PubSubReader { sockets: vec![socket], epoch }, PubSubWriter(vec![send_half])))
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
    let reader = PubSubReader { sockets: vec![socket], epoch: None };
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
    let send_half = SendHalf { stream: twin, endpoint: endpoint.clone(), asked: VecDeque::new() };
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
    /// Reads from that server as well, which does not wait.
    pub(crate) fn join(&mut self, other: Self) {
        self.sockets.extend(other.sockets);
    }

    /// Reads no more from the server at this position. True if none is left.
    pub(crate) fn leave(&mut self, at: usize) -> bool {
        self.sockets.remove(at);
        self.sockets.is_empty()
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
        self.sockets[0].receive()
    }

    /// [`receive`](Self::receive) from several servers, and the position of the one. `None`:
    /// nothing came within `timeout`.
    pub(crate) fn receive_from_any(&mut self, timeout: Duration) -> Option<(usize, Result<Frame>)> {
        // Replies that were read ahead come first, because poll does not report them.
        for wait in [Duration::ZERO, timeout] {
            if !wait.is_zero() {
                let streams: Vec<&Stream> =
                    self.sockets.iter().map(|socket| &socket.stream).collect();
                readable(&streams, wait);
            }
            for (at, socket) in self.sockets.iter_mut().enumerate() {
                match socket.receive() {
                    Ok(Frame::Timeout) => {}
                    received => return Some((at, received)),
                }
            }
        }
        None
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

    pub(crate) fn leave(&mut self, at: usize) {
        self.0.remove(at);
    }

    pub(crate) fn subscribe(&mut self, channels: &[&str]) -> Result<()> {
        self.each(|half| half.subscribe("SUBSCRIBE", channels))
    }

    pub(crate) fn unsubscribe(&mut self, channel: &str) -> Result<()> {
        self.send(&["UNSUBSCRIBE", channel])
    }

    /// One request for each channel: the channels of one request would have to be in one slot.
    pub(crate) fn subscribe_sharded(&mut self, channel: &str) -> Result<()> {
        self.each(|half| half.subscribe("SSUBSCRIBE", &[channel]))
    }

    pub(crate) fn unsubscribe_sharded(&mut self, channel: &str) -> Result<()> {
        self.send(&["SUNSUBSCRIBE", channel])
    }

    pub(crate) fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.send(&["PSUBSCRIBE", pattern])
    }

    pub(crate) fn unsubscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        self.send(&["PUNSUBSCRIBE", pattern])
    }

    pub(crate) fn ping(&mut self) -> Result<()> {
        self.send(&["PING"])
    }

    /// If that fails, the reader finds the end.
    pub(crate) fn ping_one(&mut self, at: usize) {
        let _ = self.0[at].send(&["PING"]);
    }

    /// The server at this position has confirmed a subscription.
    pub(crate) fn confirmed(&mut self, at: usize, channel: &[u8]) {
        let asked = &mut self.0[at].asked;
        for channels in asked.iter_mut() {
            channels.retain(|asked| asked.as_bytes() != channel);
        }
        asked.retain(|channels| !channels.is_empty());
    }

    /// The server at this position has refused the oldest subscription. Returns its channel. If it
    /// has several, each is asked for by itself, and none is returned.
    pub(crate) fn refused(&mut self, at: usize) -> Vec<String> {
        let half = &mut self.0[at];
        let channels = half.asked.pop_front().unwrap_or_default();
        if channels.len() < 2 {
            return channels;
        }
        for channel in &channels {
            // If that fails, the reader finds the end.
            let _ = half.subscribe("SUBSCRIBE", &[channel]);
        }
        Vec::new()
    }

    /// The server at this position answers for one of these channels that it is at another one. It
    /// may be the end of a subscription for which it says that, and then nothing was asked for.
    pub(crate) fn redirected(&mut self, at: usize, is_it: impl Fn(&str) -> bool) {
        let asked = &mut self.0[at].asked;
        let is_one = |channels: &Vec<String>| channels.iter().any(|channel| is_it(channel));
        if let Some(place) = asked.iter().position(is_one) {
            asked.remove(place);
        }
    }

    /// Also ends the read of the other half.
    pub(crate) fn close(&self) {
        for send_half in &self.0 {
            send_half.stream.shutdown();
        }
    }

    fn send(&mut self, words: &[&str]) -> Result<()> {
        self.each(|half| half.send(words))
    }

    /// Fails only at all servers: the others go on without one whose connection has ended.
    fn each(&mut self, send: impl Fn(&mut SendHalf) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        let mut failed = 0;
        for half in &mut self.0 {
            if let Err(error) = send(half) {
                failed += 1;
                outcome = Err(error);
            }
        }
        if failed < self.0.len() { Ok(()) } else { outcome }
    }
}

impl SendHalf {
    fn subscribe(&mut self, command: &str, channels: &[&str]) -> Result<()> {
        self.asked.push_back(channels.iter().map(|&channel| channel.to_owned()).collect());
        let words: Vec<&str> = std::iter::once(command).chain(channels.iter().copied()).collect();
        self.send(&words)
    }

    fn send(&mut self, words: &[&str]) -> Result<()> {
        let mut bytes = Vec::new();
        Request::plain(words).write_plain(&mut bytes);
        self.stream.meter.requests(1);
        self.stream.write_all(&bytes).map_err(|e| {
            self.stream.shutdown();
            to_error(e, &self.endpoint)
        })
    }
}
