//! The sentinels that a client knows: those of its settings, and those that they report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::question::{self, Neighbour, Testimony};
use crate::base::error::Result;
use crate::store::redis::wire::{Endpoint, Line};

/// Maximum number of sentinels taken from answers, so that a faulty answer cannot make a client ask
/// for ever.
const MOST_TOLD: usize = 32;

pub(super) struct Sentinel {
    line: Line,
    /// Its id, once it has answered or was reported by another.
    id: Mutex<Option<String>>,
    /// Whether there is a subscription, or one is being made.
    listening: AtomicBool,
    /// It did not answer the last time, and of the others all that mention it called it down: it is
    /// not waited for. Sentinels that were replaced are listed until somebody resets the others,
    /// and an address that swallows packets costs an I/O timeout. Both are needed: those that
    /// answer first may be a minority that is cut off from the rest, and call it down although it
    /// answers this client.
    is_written_off: AtomicBool,
    /// How many questions to it are under way.
    asking: AtomicUsize,
}

impl Sentinel {
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.line.endpoint
    }

    pub(super) fn ask(&self, master: &str) -> Result<Testimony> {
        self.asking.fetch_add(1, Ordering::AcqRel);
        let _asking = Asking(self);
        let testimony = question::ask(&self.line, master)?;
        // Recorded here as well, because an outcome that comes late is dropped.
        *self.id.lock() = Some(testimony.id.clone());
        self.is_written_off.store(false, Ordering::Release);
        Ok(testimony)
    }

    pub(super) fn is_written_off(&self) -> bool {
        self.is_written_off.load(Ordering::Acquire)
    }

    fn is(&self, other: &Neighbour, at: &Endpoint) -> bool {
        self.id.lock().as_ref() == Some(&other.id) || self.endpoint().is_same_address(at)
    }

    fn close(&self) {
        self.line.close();
    }
}

/// A question under way, which ends by a panic too.
struct Asking<'s>(&'s Sentinel);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to subscribe at a sentinel, which one thread at a time has.
pub(super) struct Listening(pub(super) Arc<Sentinel>);

impl Listening {
    pub(super) fn at(sentinel: &Arc<Sentinel>) -> Option<Self> {
        (!sentinel.listening.swap(true, Ordering::AcqRel)).then(|| Self(sentinel.clone()))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listening.store(false, Ordering::Release);
    }
}

pub(super) struct Known {
    configured: Vec<Arc<Sentinel>>,
    told: Mutex<Vec<Arc<Sentinel>>>,
    client_name: String,
    io_timeout: Duration,
}

impl Known {
    pub(super) fn new(configured: Vec<Endpoint>, client_name: &str, io_timeout: Duration) -> Self {
        let told = Mutex::default();
        let client_name = client_name.to_owned();
        let mut known = Self { configured: Vec::new(), told, client_name, io_timeout };
        known.configured = configured
            .into_iter()
            .map(|endpoint| Arc::new(known.sentinel(endpoint, None)))
            .collect();
        known
    }

    fn sentinel(&self, endpoint: Endpoint, id: Option<String>) -> Sentinel {
        let line = Line::new(endpoint, self.client_name.clone(), self.io_timeout);
        Sentinel {
            line,
            id: Mutex::new(id),
            listening: AtomicBool::new(false),
            is_written_off: AtomicBool::new(false),
            asking: AtomicUsize::new(0),
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Sentinel>> {
        self.configured.iter().chain(&*self.told.lock()).cloned().collect()
    }

    /// All but those that are written off and still have not answered an earlier question: each
    /// question that hangs keeps a thread.
    pub(super) fn to_ask(&self) -> Vec<Arc<Sentinel>> {
        let mut all = self.all();
        all.retain(|sentinel| {
            !sentinel.is_written_off() || sentinel.asking.load(Ordering::Acquire) == 0
        });
        all
    }

    /// Writes off those that did not answer and that all others call down.
    pub(super) fn write_off(
        &self,
        asked: &[Arc<Sentinel>],
        outcomes: &[(usize, Result<Testimony>)],
    ) {
        let answers = || {
            outcomes
                .iter()
                .filter_map(|(place, outcome)| Some((&asked[*place], outcome.as_ref().ok()?)))
        };
        for sentinel in
            asked.iter().filter(|sentinel| !answers().any(|(one, _)| Arc::ptr_eq(one, sentinel)))
        {
            let mentions = answers().flat_map(|(teller, testimony)| {
                let is_it = |other: &&Neighbour| {
                    sentinel.is(other, &teller.endpoint().at(&other.host, other.port))
                };
                testimony.others.iter().filter(is_it)
            });
            let calls: Vec<bool> = mentions.map(|other| other.is_down).collect();
            sentinel
                .is_written_off
                .store(!calls.is_empty() && !calls.contains(&false), Ordering::Release);
        }
    }

    /// Records the other sentinels that the sentinels report. A sentinel of the settings that they
    /// list under another address is not asked twice, once its id is known. `forgets`: those that
    /// they do not report are gone. Otherwise a minority that knows nobody would be all there is.
    pub(super) fn learn(
        &self,
        asked: &[Arc<Sentinel>],
        outcomes: &[(usize, Result<Testimony>)],
        forgets: bool,
    ) {
        let told_by = |(place, outcome): &(usize, Result<Testimony>)| {
            let teller = asked[*place].clone();
            outcome.as_ref().ok().map(|testimony| (teller, testimony.others.clone()))
        };
        let testimonies: Vec<(Arc<Sentinel>, Vec<Neighbour>)> =
            outcomes.iter().filter_map(told_by).collect();
        if testimonies.is_empty() {
            return;
        }
        let mut told = self.told.lock();
        let before = std::mem::take(&mut *told);
        for (teller, others) in &testimonies {
            for other in others {
                let endpoint =
                    teller.endpoint().at(&other.host, other.port).named_by("another sentinel");
                let is_known = |sentinel: &Arc<Sentinel>| sentinel.is(other, &endpoint);
                if told.len() == MOST_TOLD || self.configured.iter().chain(&*told).any(is_known) {
                    continue;
                }
                let same = before.iter().find(|sentinel| sentinel.is(other, &endpoint)).cloned();
                told.push(
                    same.unwrap_or_else(|| {
                        Arc::new(self.sentinel(endpoint, Some(other.id.clone())))
                    }),
                );
            }
        }
        // One that answers stays, even if no other sentinel reports it in this round.
        let tells = |sentinel: &Arc<Sentinel>| {
            testimonies.iter().any(|(teller, _)| Arc::ptr_eq(teller, sentinel))
        };
        for sentinel in before {
            if told.iter().any(|kept| Arc::ptr_eq(kept, &sentinel)) {
                continue;
            }
            let is_configured = || {
                let id = sentinel.id.lock().clone();
                self.configured.iter().any(|configured| *configured.id.lock() == id)
            };
            if (tells(&sentinel) || !forgets) && !is_configured() {
                told.push(sentinel);
            } else {
                sentinel.close();
            }
        }
    }

    pub(super) fn close(&self) {
        for sentinel in &self.all() {
            sentinel.close();
        }
    }
}
