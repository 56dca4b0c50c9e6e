//! A session of the plain protocol, for inspecting a server and for changing nodes behind a
//! client's back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::CAP;

/// The kinds of nodes, as encoded in `create`.
pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL: i32 = 1;
pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
pub const CONTAINER: i32 = 4;

/// Error codes of the protocol.
pub const NO_NODE: i32 = -101;
pub const NODE_EXISTS: i32 = -110;

/// What the server reports about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub data: Vec<u8>,
    pub czxid: i64,
    pub version: i32,
    /// How often a child was created or deleted.
    pub cversion: i32,
    /// The session of an ephemeral node; 0 for others, also for containers.
    pub owner: i64,
    pub children: i32,
}

impl Node {
    pub fn is_ephemeral(&self) -> bool {
        self.owner != 0
    }
}

pub struct Raw {
    stream: TcpStream,
    xid: i32,
    session: i64,
    password: Vec<u8>,
}

impl Raw {
    pub fn connect(port: u16, timeout: Duration) -> Option<Self> {
        Self::resume(port, timeout, 0, &[0; 16])
    }

    /// Resumes an existing session on a new connection; `None` also if it has expired.
    pub fn resume(port: u16, timeout: Duration, session: i64, password: &[u8]) -> Option<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(CAP)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut body = Body::default();
        body.int(0)
            .long(0)
            .int(i32::try_from(timeout.as_millis()).unwrap())
            .long(session)
            .bytes(password)
            .byte(0);
        stream.write_all(&body.frame()).ok()?;
        let mut answer = Answer::read(&mut stream)?;
        let (_, timeout, session) = (answer.int(), answer.int(), answer.long());
        let password = answer.bytes();
        (timeout > 0).then_some(Self { stream, xid: 0, session, password })
    }

    pub fn session(&self) -> i64 {
        self.session
    }

    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// Returns the body of the reply, or the error code.
    #[track_caller]
    fn call(&mut self, op: i32, body: &Body) -> Result<Answer, i32> {
        self.try_call(op, body).expect("the server answers")
    }

    /// Returns `None` if no reply arrives.
    fn try_call(&mut self, op: i32, body: &Body) -> Option<Result<Answer, i32>> {
        self.xid += 1;
        let mut frame = Body::default();
        frame.int(self.xid).int(op).0.extend_from_slice(&body.0);
        self.stream.write_all(&frame.frame()).ok()?;
        loop {
            let mut answer = Answer::read(&mut self.stream)?;
            let (xid, _zxid, error) = (answer.int(), answer.long(), answer.int());
            // -1 is a watch event.
            if xid == self.xid {
                return Some(if error == 0 { Ok(answer) } else { Err(error) });
            }
            assert!(xid < 0, "reply {xid} to request {}", self.xid);
        }
    }

    /// Returns the path, which ends with the sequence number if it has one.
    pub fn create(&mut self, path: &str, data: &[u8], kind: i32) -> Result<String, i32> {
        let op = if kind == CONTAINER { 19 } else { 15 };
        Ok(self.call(op, &creation(path, data, kind))?.text())
    }

    /// Creates a persistent node on a connection that may break. Returns whether a reply confirmed
    /// it within half a second.
    pub fn try_create(&mut self, path: &str) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        matches!(self.try_call(15, &creation(path, b"", PERSISTENT)), Some(Ok(_)))
    }

    /// Creates the node, and missing parents as containers.
    pub fn create_below_containers(
        &mut self,
        path: &str,
        data: &[u8],
        kind: i32,
    ) -> Result<String, i32> {
        for (end, _) in path.match_indices('/').filter(|(end, _)| *end > 0) {
            match self.create(&path[..end], b"", CONTAINER) {
                Ok(_) | Err(NODE_EXISTS) => {}
                Err(error) => return Err(error),
            }
        }
        self.create(path, data, kind)
    }

    pub fn delete(&mut self, path: &str) -> Result<(), i32> {
        self.call(2, Body::default().text(path).int(-1)).map(drop)
    }

    pub fn set(&mut self, path: &str, data: &[u8]) -> Result<(), i32> {
        self.call(5, Body::default().text(path).bytes(data).int(-1)).map(drop)
    }

    pub fn get(&mut self, path: &str) -> Result<Node, i32> {
        let mut answer = self.call(4, Body::default().text(path).byte(0))?;
        let data = answer.bytes();
        let (czxid, _mzxid, _ctime, _mtime) =
            (answer.long(), answer.long(), answer.long(), answer.long());
        let (version, cversion, _aversion) = (answer.int(), answer.int(), answer.int());
        let (owner, _length, children) = (answer.long(), answer.int(), answer.int());
        Ok(Node { data, czxid, version, cversion, owner, children })
    }

    /// Sets the rights of everybody on the node: 1 read, 2 write, 4 create children, 8 delete them,
    /// 16 change the rights.
    pub fn allow(&mut self, path: &str, rights: i32) -> Result<(), i32> {
        self.allow_only(path, rights, "world", "anyone")
    }

    /// The same for an identity of this scheme.
    pub fn allow_only(
        &mut self,
        path: &str,
        rights: i32,
        scheme: &str,
        id: &str,
    ) -> Result<(), i32> {
        let mut body = Body::default();
        body.text(path).int(1).int(rights).text(scheme).text(id).int(-1);
        self.call(7, &body).map(drop)
    }

    /// Sets a watch on the node's data.
    pub fn watch(&mut self, path: &str) -> Result<(), i32> {
        self.call(4, Body::default().text(path).byte(1)).map(drop)
    }

    /// The children, sorted as text.
    pub fn children(&mut self, path: &str) -> Result<Vec<String>, i32> {
        let mut answer = self.call(8, Body::default().text(path).byte(0))?;
        let mut names: Vec<String> = (0..answer.int()).map(|_| answer.text()).collect();
        names.sort();
        Ok(names)
    }

    pub fn sync(&mut self, path: &str) -> Result<(), i32> {
        self.call(9, Body::default().text(path)).map(drop)
    }

    /// All nodes below the path, parents first, without those of the server itself. Some may be
    /// deleted meanwhile.
    pub fn tree(&mut self, path: &str) -> Vec<(String, Node)> {
        let mut found = Vec::new();
        let mut ahead = vec![path.to_owned()];
        while let Some(parent) = ahead.pop() {
            for name in self.children(&parent).unwrap_or_default() {
                let path = format!("{}/{name}", parent.trim_end_matches('/'));
                if path != "/zookeeper"
                    && let Ok(node) = self.get(&path)
                {
                    ahead.push(path.clone());
                    found.push((path, node));
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Ends the session, and with it its ephemeral nodes. If it is dropped instead, the session
    /// lasts until it expires.
    pub fn close(mut self) {
        let _ = self.call(-11, &Body::default());
    }
}

fn creation(path: &str, data: &[u8], kind: i32) -> Body {
    let mut body = Body::default();
    body.text(path).bytes(data);
    // The ACL has one entry: all rights for world:anyone.
    body.int(1).int(31).text("world").text("anyone").int(kind);
    body
}

/// The body of a request.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(i32::try_from(value.len()).unwrap()).0.extend_from_slice(value);
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = u32::try_from(self.0.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&self.0);
        frame
    }
}

/// The unread rest of a reply's body.
struct Answer(std::vec::IntoIter<u8>);

impl Answer {
    fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body).ok()?;
        Some(Self(body.into_iter()))
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.0.next().expect("the reply is long enough"))
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    /// The length of a null is -1.
    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::try_from(self.int()).unwrap_or(0);
        self.0.by_ref().take(length).collect()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}
