//! What the server sends: replies, and messages about watches.

use super::code::Code;
use super::jute::{Decoder, malformed};
use super::request::{Opcode, Request, SessionId, Shape, THE_END};
use crate::base::error::{Error, Result};

/// One frame without its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) xid: i32,
    /// The last change that the server knew of.
    pub(crate) zxid: i64,
    pub(crate) code: Code,
    body: Vec<u8>,
}

/// What the server keeps about a node, as far as the store needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stat {
    /// The change that made the node; 0 if the server has not reported it.
    pub(crate) czxid: i64,
    /// The change that last set its data.
    pub(crate) mzxid: i64,
    /// When it was made, and when its data was last set: by the clock of the leader, in
    /// milliseconds since 1970.
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// The session whose end removes it; 0 for none.
    pub(crate) ephemeral_owner: i64,
}

impl Stat {
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        let czxid = from.long()?;
        let mzxid = from.long()?;
        let ctime = from.long()?;
        let mtime = from.long()?;
        let version = from.int()?;
        let _cversion = from.int()?;
        let _aversion = from.int()?;
        let ephemeral_owner = from.long()?;
        let _data_length = from.int()?;
        let _children = from.int()?;
        let _pzxid = from.long()?;
        Ok(Self { czxid, mzxid, ctime, mtime, version, ephemeral_owner })
    }
}

/// What one identity may do with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    /// Bits: read 1, write 2, create 4, delete 8, administrate 16.
    pub(crate) rights: i32,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// A node that was made: its path with what the server appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) path: String,
    pub(crate) stat: Stat,
}

impl Created {
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { path: from.text()?.to_owned(), stat: Stat::decode(from)? })
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transacted {
    /// All changes have run. The nodes that were made, in order.
    Made(Vec<Created>),
    /// None has run, because the change at this place was refused.
    Refused { place: usize, code: Code },
}

impl Reply {
    pub(crate) fn decode(frame: &[u8]) -> Result<Self> {
        let mut fields = Decoder::new(frame);
        let xid = fields.int()?;
        let zxid = fields.long()?;
        let code = Code(fields.int()?);
        Ok(Self { xid, zxid, code, body: fields.rest().to_vec() })
    }

    /// Reads the body of a reply that is not an error.
    fn read<T>(&self, read: impl FnOnce(&mut Decoder<'_>) -> Result<T>) -> Result<T> {
        let mut fields = Decoder::new(&self.body);
        let value = read(&mut fields)?;
        if fields.is_at_its_end() { Ok(value) } else { Err(malformed("it is too long")) }
    }

    pub(crate) fn created(&self) -> Result<Created> {
        self.read(Created::decode)
    }

    pub(crate) fn data(&self) -> Result<(Vec<u8>, Stat)> {
        self.read(|fields| {
            Ok((fields.bytes()?.unwrap_or_default().to_vec(), Stat::decode(fields)?))
        })
    }

    /// What a change of a node's data has made of it.
    pub(crate) fn stat(&self) -> Result<Stat> {
        self.read(Stat::decode)
    }

    /// Who may do what with a node.
    pub(crate) fn acl(&self) -> Result<Vec<Permission>> {
        self.read(|fields| {
            let permission = |fields: &mut Decoder<'_>| {
                let (rights, scheme, id) =
                    (fields.int()?, fields.text()?.to_owned(), fields.text()?.to_owned());
                Ok(Permission { rights, scheme, id })
            };
            let all = fields.list(permission)?;
            Stat::decode(fields).map(|_| all)
        })
    }

    pub(crate) fn children(&self) -> Result<Vec<String>> {
        self.read(|fields| fields.list(|names| names.text().map(str::to_owned)))
    }

    /// What became of the changes of a transaction.
    pub(crate) fn transacted(&self, requested: &[Request]) -> Result<Transacted> {
        let changes: Vec<Opcode> = requested.iter().map(|request| request.shape.opcode).collect();
        self.outcome_of(&changes)
    }

    fn outcome_of(&self, changes: &[Opcode]) -> Result<Transacted> {
        self.read(|fields| {
            let mut made = Vec::new();
            let mut failed = false;
            let mut refused = None;
            for (place, opcode) in changes.iter().enumerate() {
                match Changed::decode(fields, *opcode)? {
                    Changed::Made(created) => made.push(created),
                    Changed::Done => {}
                    Changed::Failed(code) => {
                        failed = true;
                        if !code.is_ok() {
                            refused.get_or_insert(Transacted::Refused { place, code });
                        }
                    }
                }
            }
            let _kind = fields.int()?;
            let is_the_end = fields.bool()?;
            let _code = fields.int()?;
            match refused {
                Some(refused) if is_the_end => Ok(refused),
                None if is_the_end && !failed => Ok(Transacted::Made(made)),
                _ => Err(mismatch()),
            }
        })
    }

    /// The replies to the parts of a transaction (transactions and deletions), as if each had been
    /// sent alone. `None`: one was refused, and nothing has run.
    pub(crate) fn split<'s>(
        &self,
        parts: impl Iterator<Item = &'s Shape>,
    ) -> Result<Option<Vec<Self>>> {
        let mut fields = Decoder::new(&self.body);
        let mut replies = Vec::new();
        for part in parts {
            let unread = fields.rest();
            for opcode in part.opcodes() {
                if let Changed::Failed(_) = Changed::decode(&mut fields, *opcode)? {
                    return Ok(None);
                }
            }
            let own = &unread[..unread.len() - fields.rest().len()];
            // A deletion that is sent alone is answered by a code.
            let is_multi = part.opcode == Opcode::Multi;
            let body = if is_multi { [own, &THE_END].concat() } else { Vec::new() };
            replies.push(Self { xid: self.xid, zxid: self.zxid, code: self.code, body });
        }
        Ok(Some(replies))
    }

    /// The replies to looks for children that were asked for together, as if each had been sent
    /// alone.
    pub(crate) fn split_looks(&self, count: usize) -> Result<Vec<Self>> {
        self.read(|fields| {
            let mut replies = Vec::with_capacity(count);
            for _ in 0..count {
                let kind = fields.int()?;
                let is_the_end = fields.bool()?;
                let mut code = Code(fields.int()?);
                let unread = fields.rest();
                if is_the_end {
                    return Err(mismatch());
                } else if kind == FAILED {
                    code = Code(fields.int()?);
                } else if kind == Opcode::GetChildren as i32 && code.is_ok() {
                    fields.list(|names| names.text().map(drop))?;
                } else {
                    return Err(mismatch());
                }
                let own = &unread[..unread.len() - fields.rest().len()];
                let body = if code.is_ok() { own.to_vec() } else { Vec::new() };
                replies.push(Self { xid: self.xid, zxid: self.zxid, code, body });
            }
            if fields.take(THE_END.len())? == THE_END { Ok(replies) } else { Err(mismatch()) }
        })
    }

    /// Whether this transaction reports the numbers of a node that it has made. Older servers
    /// report only its path. `None`: it has made no such node.
    pub(crate) fn reports_numbers(&self, shape: &Shape) -> Option<bool> {
        let Ok(Transacted::Made(made)) = self.outcome_of(&shape.parts) else { return None };
        let makes = |opcode: &&Opcode| matches!(opcode, Opcode::Create2 | Opcode::CreateContainer);
        let creates = shape.parts.iter().filter(makes).zip(made);
        // Containers are reported in full by all.
        let mut reported = creates.filter(|(opcode, _)| **opcode == Opcode::Create2);
        reported.next().map(|(_, made)| made.stat.czxid != 0)
    }

    /// The error of the reply. If the session of a transaction has ended, that is reported in the
    /// result of one of its changes, while its own code is 0.
    ///
    /// # Errors
    /// The reply says that nodes were made or changed, and cannot be read: only what is read here
    /// tells whoever asked which nodes these are.
    pub(crate) fn verdict(&self, shape: &Shape) -> Result<Code> {
        if !self.code.is_ok() {
            return Ok(self.code);
        }
        match shape.opcode {
            Opcode::Create2 | Opcode::CreateContainer => {
                self.created()?;
            }
            Opcode::Multi => match self.outcome_of(&shape.parts)? {
                Transacted::Refused { code, .. } if code.ends_the_connection() => return Ok(code),
                _ => {}
            },
            _ => {}
        }
        Ok(Code::OK)
    }

    /// A message about a watch; its xid belongs to no request.
    pub(crate) fn event(&self) -> Result<WatchEvent> {
        self.read(|fields| {
            let kind = fields.int()?;
            let _state = fields.int()?;
            Ok(WatchEvent { kind: EventKind::of(kind), path: fields.text()?.to_owned() })
        })
    }
}

/// The result of a change in a transaction.
enum Changed {
    Made(Created),
    Done,
    /// Nothing of the transaction has run. OK for the changes before the refused one.
    Failed(Code),
}

impl Changed {
    fn decode(from: &mut Decoder<'_>, opcode: Opcode) -> Result<Self> {
        let kind = from.int()?;
        let is_the_end = from.bool()?;
        let code = Code(from.int()?);
        if is_the_end {
            return Err(mismatch());
        }
        if kind == FAILED {
            // The code is sent twice.
            return Ok(Self::Failed(Code(from.int()?)));
        }
        if !code.is_ok() {
            return Err(mismatch());
        }
        match opcode {
            // Servers 3.5 send only the path.
            Opcode::Create2 if kind == CREATED => {
                let path = from.text()?.to_owned();
                Ok(Self::Made(Created { path, stat: Stat::default() }))
            }
            _ if kind != result_of(opcode) => Err(mismatch()),
            Opcode::Create2 | Opcode::CreateContainer => Created::decode(from).map(Self::Made),
            Opcode::SetData => Stat::decode(from).map(|_| Self::Done),
            _ => Ok(Self::Done),
        }
    }
}

#[cold]
fn mismatch() -> Error {
    malformed("the results do not match what was asked together")
}

/// The result of a change in a transaction that did not run.
const FAILED: i32 = -1;
/// The result of a create in a transaction that returns only the path.
const CREATED: i32 = 1;

/// The number by which the result of a change in a transaction is marked.
fn result_of(opcode: Opcode) -> i32 {
    // Observed on a live server: a container is answered like any other node.
    if opcode == Opcode::CreateContainer { Opcode::Create2 as i32 } else { opcode as i32 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// About the session, or a watch that was removed.
    Other,
}

impl EventKind {
    fn of(kind: i32) -> Self {
        match kind {
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchEvent {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
}

/// The answer to the first frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Connected {
    /// The session, with the timeout in milliseconds that the server grants.
    Session { session: SessionId, timeout_ms: u32 },
    /// The session that was asked for is over.
    Expired,
}

impl Connected {
    pub(crate) fn decode(frame: &[u8]) -> Result<Self> {
        let mut fields = Decoder::new(frame);
        let _version = fields.int()?;
        let timeout_ms = fields.int()?;
        let id = fields.long()?;
        let password = fields.bytes()?.unwrap_or_default();
        // Servers before 3.4 do not send the last field.
        if !fields.is_at_its_end() {
            let _read_only = fields.bool()?;
        }
        if !fields.is_at_its_end() {
            return Err(malformed("it is too long"));
        }
        let password = password
            .try_into()
            .map_err(|_| malformed("the password of a session does not have 16 bytes"))?;
        // Exactly as servers answer it: another frame, read as this one, would end all holds, and
        // the nodes of the session, which lives, would keep out everybody.
        if (timeout_ms, id) == (0, 0) {
            return Ok(Self::Expired);
        }
        if timeout_ms <= 0 {
            return Err(malformed("a session has no time"));
        }
        Ok(Self::Session {
            session: SessionId { id, password },
            timeout_ms: timeout_ms.unsigned_abs(),
        })
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
