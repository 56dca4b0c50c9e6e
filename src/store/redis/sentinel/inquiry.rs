//! Asking the sentinels for the master, and the epoch that ends when they name another one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::known::{Known, Sentinel};
use super::question::NamedMaster;
use super::verdict::{is_settled, judge, nobody_is_missing};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::os::{Condvar, Mutex};
use crate::store::redis::wire::{Endpoint, Epoch, Master, ask_all};

pub(super) struct Inquiry {
    name: String,
    /// How to connect to the master, except its address.
    server: Endpoint,
    pub(super) known: Known,
    io_timeout: Duration,
    state: Mutex<InquiryState>,
    changed: Condvar,
    /// How many epochs have ended. Kept outside the state, which a thread that waits for a core may
    /// keep locked while renewals are due.
    moves: AtomicU64,
}

#[derive(Default)]
struct InquiryState {
    current: Option<Current>,
    /// A round is under way. Threads that ask at the same time share it.
    asking: bool,
    /// The number of finished rounds, and why the last one found no master.
    rounds: u64,
    failed: Option<Error>,
    closed: bool,
}

/// The server that is believed to be the master, and its epoch.
struct Current {
    named: NamedMaster,
    epoch: Epoch,
}

/// The round also ends if its thread panics: others wait for it.
struct EndOfRound<'i> {
    inquiry: &'i Inquiry,
    outcome: Option<Result<()>>,
}

impl Drop for EndOfRound<'_> {
    fn drop(&mut self) {
        let panicked = || {
            Err(Error::new(ErrorKind::Unreachable, "the thread that asked the sentinels panicked"))
        };
        let mut state = self.inquiry.state.lock();
        state.failed = self.outcome.take().unwrap_or_else(panicked).err();
        state.asking = false;
        state.rounds += 1;
        self.inquiry.changed.notify_all();
    }
}

impl Inquiry {
    pub(super) fn new(name: String, server: Endpoint, known: Known, io_timeout: Duration) -> Self {
        Self {
            name,
            server,
            known,
            io_timeout,
            state: Mutex::default(),
            changed: Condvar::new(),
            moves: AtomicU64::new(0),
        }
    }

    /// The master that the sentinels name now. Blocks for at most the I/O timeout, as long as the
    /// system can start threads.
    ///
    /// # Errors
    /// Nobody answers, they do not agree, or they know no such master.
    pub(super) fn find(&self) -> Result<Master> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        if state.asking {
            let this_round = state.rounds;
            let deadline = Instant::now() + 2 * self.io_timeout;
            while state.rounds == this_round {
                if self.changed.wait_until(&mut state, deadline).timed_out() {
                    let why = "the thread that asks the sentinels for the master hangs";
                    return Err(Error::new(ErrorKind::Unreachable, why));
                }
            }
        } else {
            state.asking = true;
            drop(state);
            let mut end = EndOfRound { inquiry: self, outcome: None };
            end.outcome = Some(self.ask().map(|named| self.believe(named)));
            drop(end);
            state = self.state.lock();
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let Current { named, epoch } =
            state.current.as_ref().expect("a round that did not fail has found a master");
        let endpoint = self.server.at(&named.host, named.port).named_by("the sentinels");
        Ok(Master { endpoint, epoch: epoch.clone() })
    }

    fn ask(&self) -> Result<NamedMaster> {
        let sentinels = self.known.to_ask();
        let name = self.name.clone();
        let seen =
            self.state.lock().current.as_ref().map_or(0, |current| current.named.config_epoch);
        let written_off: Vec<bool> =
            sentinels.iter().map(|sentinel| sentinel.is_written_off()).collect();
        let asked = written_off.iter().filter(|is_off| !**is_off).count();
        let ask = move |sentinel: Arc<Sentinel>| sentinel.ask(&name);
        let outcomes =
            ask_all("lh-sentinel-ask", sentinels.clone(), ask, self.io_timeout, |outcomes| {
                is_settled(outcomes, asked) || nobody_is_missing(outcomes, &written_off, seen)
            });
        self.known.write_off(&sentinels, &outcomes);
        let addresses: Vec<String> =
            sentinels.iter().map(|sentinel| format!("{:?}", sentinel.endpoint())).collect();
        let judged = judge(&outcomes, &self.name, asked, seen, &addresses);
        self.known.learn(&sentinels, &outcomes, judged.is_ok());
        judged
    }

    /// Ends the epoch if this is another master, or the same one after a failover there and back,
    /// in which it lost what only it had.
    fn believe(&self, named: NamedMaster) {
        let mut state = self.state.lock();
        let before = state.current.take();
        let address = |named: &NamedMaster| (named.host.clone(), named.port);
        let goes_on = before.as_ref().is_some_and(|Current { named: old, .. }| {
            address(old) == address(&named) && named.config_epoch <= old.config_epoch
        });
        if goes_on {
            state.current = before;
            return;
        }
        state.current = Some(Current { named: named.clone(), epoch: Epoch::default() });
        let ended = before.map(|Current { named, epoch }| {
            epoch.end();
            self.moves.fetch_add(1, Ordering::AcqRel);
            named
        });
        drop(state);
        let place = |named: &NamedMaster| format!("{:?}", self.server.at(&named.host, named.port));
        match ended {
            Some(old) => log::warn!(
                "the sentinels name {} as the master {:?}, no longer {}: connecting there",
                place(&named),
                self.name,
                place(&old)
            ),
            None => {
                log::debug!("the sentinels name {} as the master {:?}", place(&named), self.name);
            }
        }
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    pub(super) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state.lock().current {
            Some(Current { named, .. }) => {
                write!(f, "{:?}", self.server.at(&named.host, named.port))
            }
            None => write!(f, "the master {:?} of the sentinels", self.name),
        }
    }

    /// The limit for one round of questions.
    pub(super) fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    /// The name of the master.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.known.close();
    }
}
