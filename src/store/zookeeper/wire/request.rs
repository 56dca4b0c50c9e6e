//! The requests that the store needs, each as the bytes after its header.

use super::jute::Encoder;

/// The numbers of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Opcode {
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    Check = 13,
    Multi = 14,
    Create2 = 15,
    RemoveWatches = 18,
    CreateContainer = 19,
    MultiRead = 22,
    Auth = 100,
    CloseSession = -11,
}

impl Opcode {
    /// Whether a majority of the servers agrees to it before it is answered without an error. Not
    /// `sync`: a leader that a majority has replaced answers it until it notices that.
    pub(crate) fn is_write(self) -> bool {
        matches!(
            self,
            Self::Delete | Self::SetData | Self::Multi | Self::Create2 | Self::CreateContainer
        )
    }
}

/// The xids of requests that are not counted.
pub(crate) const PING_XID: i32 = -2;
pub(crate) const AUTH_XID: i32 = -4;
/// The xid of a message about a watch.
pub(crate) const WATCH_XID: i32 = -1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) shape: Shape,
    body: Vec<u8>,
    /// In which queues it draws fencing tokens.
    draws_in: Vec<String>,
}

/// What a request asks for, as far as the form of its reply depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) opcode: Opcode,
    /// The changes of a transaction, or the looks that are asked for together.
    pub(crate) parts: Vec<Opcode>,
}

/// How long a node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Persistent,
    Ephemeral,
    EphemeralSequential,
    /// Removed by the server some time after its last child.
    Container,
}

/// Behind the parts of a transaction, or of their results.
pub(super) const THE_END: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff];

impl Shape {
    pub(crate) fn is_multi_read(&self) -> bool {
        self.opcode == Opcode::MultiRead
    }

    /// What it changes.
    pub(super) fn opcodes(&self) -> &[Opcode] {
        if self.opcode == Opcode::Multi { &self.parts } else { std::slice::from_ref(&self.opcode) }
    }
}

impl Mode {
    fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
        }
    }
}

/// Who may do what with the nodes that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Anybody may do everything, as by default in Curator.
    Open,
    /// Whoever has the identity that made the node may do everything, and others nothing.
    CreatorAll,
}

impl Acl {
    const ALL: i32 = 31;

    fn encode(self, to: Encoder) -> Encoder {
        let (scheme, id) = match self {
            Self::Open => ("world", "anyone"),
            Self::CreatorAll => ("auth", ""),
        };
        to.int(1).int(Self::ALL).text(scheme).text(id)
    }
}

impl Request {
    fn new(opcode: Opcode, body: Encoder) -> Self {
        let shape = Shape { opcode, parts: Vec::new() };
        Self { shape, body: body.0, draws_in: Vec::new() }
    }

    pub(crate) fn create(path: &str, data: &[u8], acl: Acl, mode: Mode) -> Self {
        let opcode =
            if mode == Mode::Container { Opcode::CreateContainer } else { Opcode::Create2 };
        let body = acl.encode(Encoder::default().text(path).bytes(data)).int(mode.flags());
        Self::new(opcode, body)
    }

    /// Deletes the node whatever the version of its data is.
    pub(crate) fn delete(path: &str) -> Self {
        Self::delete_version(path, -1)
    }

    pub(crate) fn delete_version(path: &str, version: i32) -> Self {
        Self::new(Opcode::Delete, Encoder::default().text(path).int(version))
    }

    /// `watch`: a message follows when the node is made, changed or deleted.
    pub(crate) fn exists(path: &str, watch: bool) -> Self {
        Self::new(Opcode::Exists, Encoder::default().text(path).bool(watch))
    }

    /// `watch`: if there is such a node, a message follows when it is changed or deleted.
    pub(crate) fn get_data(path: &str, watch: bool) -> Self {
        Self::new(Opcode::GetData, Encoder::default().text(path).bool(watch))
    }

    /// Who may do what with the node.
    pub(crate) fn get_acl(path: &str) -> Self {
        Self::new(Opcode::GetAcl, Encoder::default().text(path))
    }

    pub(crate) fn set_data(path: &str, data: &[u8], version: i32) -> Self {
        Self::new(Opcode::SetData, Encoder::default().text(path).bytes(data).int(version))
    }

    /// `watch`: if there is such a node, a message follows when a child is made or deleted.
    pub(crate) fn children(path: &str, watch: bool) -> Self {
        Self::new(Opcode::GetChildren, Encoder::default().text(path).bool(watch))
    }

    /// From now on this connection no longer watches the node.
    pub(crate) fn remove_watches(path: &str) -> Self {
        const ANY: i32 = 3;
        Self::new(Opcode::RemoveWatches, Encoder::default().text(path).int(ANY))
    }

    /// Answered once the server has what its leader had when it was asked. A leader that a majority
    /// has replaced answers, too, so the answer proves nothing: see
    /// [`quorum_check`](Self::quorum_check).
    pub(crate) fn sync(path: &str) -> Self {
        Self::new(Opcode::Sync, Encoder::default().text(path))
    }

    /// A write that changes nothing: a transaction that only checks whether the node exists. It is
    /// answered when a majority of the servers has agreed to it, and what is read after it shows
    /// everything that was agreed before. A bare check would be answered by any server.
    pub(crate) fn quorum_check(path: &str) -> Self {
        Self::multi(&[Self::check(path, -1)])
    }

    /// Whether the node exists and has this version, or any if that is -1. For transactions.
    pub(crate) fn check(path: &str, version: i32) -> Self {
        Self::new(Opcode::Check, Encoder::default().text(path).int(version))
    }

    /// Several changes as one: all or none. A transaction among them adds its own changes.
    pub(crate) fn multi<'r>(changes: impl IntoIterator<Item = &'r Self>) -> Self {
        Self::joined(Opcode::Multi, changes)
    }

    /// Several looks for the children of nodes, without watches. Servers know it since 3.6.
    pub(crate) fn multi_read<'r>(looks: impl IntoIterator<Item = &'r Self>) -> Self {
        Self::joined(Opcode::MultiRead, looks)
    }

    fn joined<'r>(opcode: Opcode, parts: impl IntoIterator<Item = &'r Self>) -> Self {
        let mut body = Encoder::default();
        let mut all = Self::new(opcode, Encoder::default());
        for part in parts {
            body = match part.body.strip_suffix(&THE_END) {
                Some(own) if part.shape.opcode == Opcode::Multi => body.raw(own),
                _ => body.int(part.shape.opcode as i32).bool(false).int(-1).raw(&part.body),
            };
            all.shape.parts.extend_from_slice(part.shape.opcodes());
            all.draws_in.extend_from_slice(&part.draws_in);
        }
        all.body = body.raw(&THE_END).0;
        all
    }

    /// The number of the node that it makes becomes a fencing token of this queue.
    pub(crate) fn drawing_in(mut self, queue: &str) -> Self {
        self.draws_in.push(queue.to_owned());
        self
    }

    /// In which queues it draws fencing tokens.
    pub(crate) fn draws_in(&self) -> &[String] {
        &self.draws_in
    }

    pub(crate) fn ping() -> Self {
        Self::new(Opcode::Ping, Encoder::default())
    }

    pub(crate) fn close_session() -> Self {
        Self::new(Opcode::CloseSession, Encoder::default())
    }

    /// Adds an identity to the connection.
    pub(crate) fn auth(scheme: &str, secret: &[u8]) -> Self {
        Self::new(Opcode::Auth, Encoder::default().int(0).text(scheme).bytes(secret))
    }

    /// The length of its frame, without the length field itself.
    pub(crate) fn length(&self) -> usize {
        8 + self.body.len()
    }

    /// The whole frame: length, header, body.
    pub(crate) fn write_to(&self, xid: i32, frames: &mut Vec<u8>) {
        let length = i32::try_from(self.length()).expect("no request is that long");
        frames.extend(length.to_be_bytes());
        frames.extend(xid.to_be_bytes());
        frames.extend((self.shape.opcode as i32).to_be_bytes());
        frames.extend(&self.body);
    }
}

/// The session that a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId {
    pub(crate) id: i64,
    pub(crate) password: [u8; 16],
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.id)
    }
}

/// The first frame of a connection. Without a session the server makes a new one.
pub(crate) fn connect_frame(
    session: Option<SessionId>,
    last_zxid: i64,
    timeout_ms: i32,
) -> Vec<u8> {
    let session = session.unwrap_or(SessionId { id: 0, password: [0; 16] });
    let body = Encoder::default()
        .int(0)
        .long(last_zxid)
        .int(timeout_ms)
        .long(session.id)
        .bytes(&session.password);
    // The last field declines servers that are cut off from the others and serve only reads.
    let body = body.bool(false).0;
    let length = i32::try_from(body.len()).expect("it is short");
    [&length.to_be_bytes()[..], &body].concat()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
