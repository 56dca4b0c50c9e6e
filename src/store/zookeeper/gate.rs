//! The gate of a session: nothing that was sent on an earlier connection makes a node any more.
//!
//! A session outlives its connections. A server that has read a request hands it on even if the
//! session has a new connection to the same server since (at another server the leader refuses it):
//! a busy one was seen to run a request 0.3 s after it had answered on the next connection. A place
//! that appears so late belongs to nobody, and keeps everybody out until the session ends.
//!
//! So each session has a node of its own, the gate. A transaction that makes nodes of a holder, or
//! changes a count, begins with a check of the gate's version. Whoever must know what became of a
//! request [closes](ZooKeeperStore::close_the_gate) the gate to earlier connections first: he sets
//! the gate's data on the present one, which gives it another version.
//!
//! | what runs late | the check says |
//! |---|---|
//! | a transaction of an earlier connection, after the gate was closed | another version: refused |
//! | the same, before that | it runs, and whoever looks after the closing finds its nodes |
//! | a closing of an earlier connection | it gives another version again: what is under way on the present connection is refused, closes the gate once more, and is sent again |
//! | the making of a gate, of which nobody knows | no transaction ever names this gate; it goes with the session |
//! | anything, after the gate was deleted by hand | no such node: the next gate has another name |
//!
//! Two threads may make a gate at the same time. Only the first that is noted is ever used: with
//! two in use, closing the one would not keep out what names the other.

use super::client::Exchange;
use super::queue::{TRIES, ZooKeeperResult, busy_directory, certain, transacted};
use super::remembered::GateSeen;
use super::wire::{Acl, Code, Mode, Request, Transacted};
use super::{ZooKeeperStore, names};

/// The outcome of a transaction that makes nodes, and what was read behind it.
pub(super) struct Making {
    pub(super) exchange: Exchange,
    pub(super) outcome: Transacted,
}

impl ZooKeeperStore {
    /// Makes nodes of holders, or changes others, in one transaction. `looks` are read behind it:
    /// their replies follow the first one of the exchange.
    pub(super) fn make(&self, changes: &[Request], looks: &[Request]) -> ZooKeeperResult<Making> {
        for _ in 0..TRIES {
            let gate = self.closed_gate()?;
            let mut all = vec![Request::check(&gate.path, gate.version)];
            all.extend_from_slice(changes);
            let mut requests = vec![Request::multi(&all)];
            requests.extend_from_slice(looks);
            let exchange = self.change(&requests)?;
            match transacted(&exchange.replies[0], &all, &gate.path)? {
                Transacted::Refused { place: 0, code: Code::BAD_VERSION } => {
                    self.gate.distrust(&gate);
                }
                Transacted::Refused { place: 0, code: Code::NO_NODE } => self.gate.forget(&gate),
                Transacted::Refused { place: 0, code } => {
                    return Err(certain(code.to_error(&gate.path)));
                }
                Transacted::Refused { place, code } => {
                    let outcome = Transacted::Refused { place: place - 1, code };
                    return Ok(Making { exchange, outcome });
                }
                outcome @ Transacted::Made(_) => return Ok(Making { exchange, outcome }),
            }
        }
        Err(certain(busy_directory(&self.gates())))
    }

    /// From now on nothing makes a node that was sent on an earlier connection. It asks the server
    /// only if this has not been done on the present one.
    pub(super) fn close_the_gate(&self) -> ZooKeeperResult<()> {
        self.closed_gate().map(drop)
    }

    /// The gate, closed to all connections before the present one.
    fn closed_gate(&self) -> ZooKeeperResult<GateSeen> {
        for _ in 0..TRIES {
            let Some(known) = self.gate.seen() else {
                self.make_gate()?;
                continue;
            };
            if self.client.connection() == Some(known.connection) {
                return Ok(known);
            }
            let exchange = self.ask(&[Request::set_data(&known.path, &[], -1)])?;
            let reply = &exchange.replies[0];
            match reply.code {
                Code::OK => self.gate.closed(&known, reply.stat()?.version, exchange.connection),
                // Its session is over, or somebody has deleted it.
                Code::NO_NODE => self.gate.forget(&known),
                code => return Err(certain(code.to_error(&known.path))),
            }
        }
        Err(certain(busy_directory(&self.gates())))
    }

    fn make_gate(&self) -> ZooKeeperResult<()> {
        let directory = self.gates();
        let path = format!("{directory}/{}", names::GATE);
        let gate = Request::create(&path, &[], self.acl, Mode::EphemeralSequential);
        let mut missing = Vec::new();
        for _ in 0..TRIES {
            // Alone if it can be: in a transaction, servers whose sessions are local say that the
            // session has expired.
            let changes = [&missing[..], std::slice::from_ref(&gate)].concat();
            let request = if missing.is_empty() { gate.clone() } else { Request::multi(&changes) };
            let exchange = self.ask(&[request])?;
            let reply = &exchange.replies[0];
            let outcome = match reply.code {
                Code::OK if missing.is_empty() => Transacted::Made(vec![reply.created()?]),
                Code::OK => transacted(reply, &changes, &directory)?,
                code => Transacted::Refused { place: 0, code },
            };
            match outcome {
                Transacted::Made(mut made) => {
                    let path = made.pop().expect("the gate is the last one").path;
                    if !self.gate.begin(&path, exchange.connection) {
                        self.client.delete_later(exchange.session.generation, [path]);
                    }
                    return Ok(());
                }
                // Another client has made the directory in the meantime.
                Transacted::Refused { code: Code::NODE_EXISTS, .. } => missing.clear(),
                Transacted::Refused { code: Code::NO_NODE, .. } if missing.is_empty() => {
                    // Clients share it whatever their identities are. Whoever deletes a gate there
                    // only makes its client make another one.
                    missing = vec![Request::create(&directory, &[], Acl::Open, Mode::Container)];
                }
                Transacted::Refused { code: Code::NO_NODE, .. } => self.make_chroot()?,
                Transacted::Refused { code, .. } => return Err(certain(code.to_error(&directory))),
            }
        }
        Err(certain(busy_directory(&directory)))
    }

    /// The directory of all gates.
    pub(super) fn gates(&self) -> String {
        format!("{}/{}", self.chroot, names::GATES)
    }
}
