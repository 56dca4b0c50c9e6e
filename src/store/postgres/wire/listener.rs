//! Messages: one thread reads them while other threads subscribe, on one connection.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::connection::Connection;
use super::messages::{MessageReader, malformed, to_error};
use super::server_error::ServerError;
use crate::base::error::Result;
use crate::store::database::Protocol;
use crate::store::net::{Address, Stream, Waker, is_timeout};

/// What a read received.
#[derive(Debug)]
pub(crate) enum Frame {
    Message {
        channel: String,
        payload: String,
    },
    /// From here on messages of the channel are received.
    Listening {
        channel: String,
    },
    /// Anything else that shows that the server answers.
    Alive,
    Timeout,
}

/// A statement that was sent and has not been answered yet.
enum ListenRequest {
    Listen(String),
    Other,
}

/// The statements under way, in the order in which they were sent.
type UnderWay = Arc<Mutex<VecDeque<ListenRequest>>>;

pub(crate) struct ListenReader {
    stream: Stream,
    address: Address,
    reader: MessageReader,
    under_way: UnderWay,
}

pub(crate) struct ListenWriter {
    stream: Stream,
    address: Address,
    under_way: UnderWay,
}

/// Turns a new connection into a subscription. A read waits for at most `read_timeout`, a write for
/// at most `write_timeout`.
pub(super) fn listen(
    connection: Connection,
    read_timeout: Duration,
    write_timeout: Duration,
) -> Result<(ListenReader, ListenWriter)> {
    let (mut stream, address, reader) = connection.into_parts();
    stream.set_timeouts(read_timeout, write_timeout).map_err(|e| to_error(e, &address))?;
    let writing = stream.twin();
    let under_way = UnderWay::default();
    let writer =
        ListenWriter { stream: writing, address: address.clone(), under_way: under_way.clone() };
    Ok((ListenReader { stream, address, reader, under_way }, writer))
}

impl ListenReader {
    pub(crate) fn receive(&mut self) -> Result<Frame> {
        self.receive_by(|own| own.reader.fill(&mut own.stream))
    }

    /// [`receive`](Self::receive), but waits for at most `timeout`, and only until woken.
    pub(crate) fn receive_within(&mut self, waker: &Waker, timeout: Duration) -> Result<Frame> {
        self.receive_by(|own| own.reader.fill(&mut own.stream.until_woken(waker, timeout)))
    }

    fn receive_by(&mut self, fill: impl Fn(&mut Self) -> io::Result<()>) -> Result<Frame> {
        loop {
            let message = match self.reader.next().map_err(|_| malformed(&self.address))? {
                Some(message) => message,
                None => match fill(self) {
                    // The part of a message that has arrived is kept.
                    Err(e) if is_timeout(&e) => return Ok(Frame::Timeout),
                    filled => {
                        filled.map_err(|e| to_error(e, &self.address))?;
                        continue;
                    }
                },
            };
            match message {
                Message::NotificationResponse(body) => {
                    let read =
                        || Some((body.channel().ok()?.to_owned(), body.message().ok()?.to_owned()));
                    let (channel, payload) = read().ok_or_else(|| malformed(&self.address))?;
                    return Ok(Frame::Message { channel, payload });
                }
                // The statement is committed only now.
                Message::ReadyForQuery(_) => {
                    return match self.under_way.lock().pop_front() {
                        Some(ListenRequest::Listen(channel)) => Ok(Frame::Listening { channel }),
                        Some(ListenRequest::Other) => Ok(Frame::Alive),
                        None => Err(malformed(&self.address)),
                    };
                }
                Message::ErrorResponse(body) => {
                    return Err(ServerError::read(&body)
                        .map_err(|_| malformed(&self.address))?
                        .to_error());
                }
                Message::CommandComplete(_)
                | Message::EmptyQueryResponse
                | Message::NoticeResponse(_)
                | Message::ParameterStatus(_) => {}
                _ => return Err(malformed(&self.address)),
            }
        }
    }
}

impl ListenWriter {
    /// Channels are made of letters, digits and underscores.
    pub(crate) fn listen(&mut self, channel: &str) -> Result<()> {
        self.send(&format!("LISTEN {channel}"), ListenRequest::Listen(channel.to_owned()))
    }

    pub(crate) fn unlisten(&mut self, channel: &str) -> Result<()> {
        self.send(&format!("UNLISTEN {channel}"), ListenRequest::Other)
    }

    pub(crate) fn ping(&mut self) -> Result<()> {
        self.send("", ListenRequest::Other)
    }

    /// Also ends the read of the other half.
    pub(crate) fn close(&self) {
        self.stream.say_last(MessageReader::GOODBYE);
        self.stream.shutdown();
    }

    fn send(&mut self, sql: &str, asked: ListenRequest) -> Result<()> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(|e| to_error(e, &self.address))?;
        self.stream.meter.requests(1);
        // Recorded before it is sent, because the answer may be read at once.
        self.under_way.lock().push_back(asked);
        self.stream.write_all(&out).map_err(|e| to_error(e, &self.address))
    }
}
