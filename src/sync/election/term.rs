//! One term of a leader.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::fencing::FencingToken;
use crate::hold::guarded::Hold;
use crate::os::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::signal::cancel::CancelToken;
use crate::signal::event::Interrupt;
use crate::sync::guard::{Guard, Movable};

/// One term of a leader, as [`Election::run`](crate::Election::run) gives it to its closure. A
/// clone is the same term, for other threads of the leader; it does not prolong it.
#[derive(Clone)]
pub struct Term(Arc<Inner>);

struct Inner {
    hold: Hold,
    number: FencingToken,
    /// Cancelled when the term ends or the leader has to end it, for whatever reason.
    ends: CancelToken,
    lost: Receiver<Infallible>,
    has_resigned: AtomicBool,
    lease: Duration,
}

/// Disconnects the receivers.
struct Disconnects(Mutex<Option<Sender<Infallible>>>);

impl Interrupt for Disconnects {
    fn interrupt(&self) {
        // Dropped without the mutex.
        let _sender = self.0.lock().take();
    }
}

impl Term {
    /// `stops`: cancelled when all terms have to end.
    pub(super) fn begin(
        guard: &Guard<Hold, Movable>,
        stops: &CancelToken,
        lease: Duration,
    ) -> Result<Self> {
        let number = guard.fencing_token()?;
        let ends = stops.child();
        let (sender, lost) = crossbeam_channel::bounded(0);
        ends.tells(Arc::new(Disconnects(Mutex::new(Some(sender)))));
        guard.cancels(ends.clone());
        let hold = guard.parts()[0].clone();
        let has_resigned = AtomicBool::new(false);
        Ok(Self(Arc::new(Inner { hold, number, ends, lost, has_resigned, lease })))
    }

    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.hold.name()
    }

    pub(super) fn holder(&self) -> &Holder {
        &self.0.hold.tenure().store_hold.asked.holder
    }

    /// Larger than the number of every earlier term: the fencing token of the hold. Send it to the
    /// resource with every change.
    #[must_use]
    pub fn number(&self) -> FencingToken {
        self.0.number
    }

    /// Whether the caller certainly leads, and may go on: false as soon as the lease may have
    /// ended, and once the term [has to end](Self::cancel_token). Then it stays false. No I/O.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        !self.0.ends.is_cancelled() && self.0.hold.is_held()
    }

    /// How long the caller is certain to lead without another renewal; zero once the lease is lost.
    /// No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.hold.remaining()
    }

    /// A token that is cancelled when the term ends or has to end: the lease is lost, the client
    /// stops waiting or is closed, the token of the election is cancelled, the leader
    /// [resigns](Self::resign), the closure has returned. Use it for the pauses and the waits of
    /// the leader. Cancelling it ends the term without standing back.
    ///
    /// It is cancelled within about a millisecond of the end of the lease; if the machine was
    /// asleep then, within a tenth of the lease after it is awake, 1 s at most. Whoever must not be
    /// late asks [`is_leader`](Self::is_leader).
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.0.ends.clone()
    }

    /// A channel that becomes ready when the [token](Self::cancel_token) is cancelled, for a
    /// `select!`. It carries no messages and stays ready, for every clone.
    #[must_use]
    pub fn lost(&self) -> Receiver<Infallible> {
        self.0.lost.clone()
    }

    /// Ends the term once the closure has returned, and then lets others lead:
    /// [`run`](crate::Election::run) stands for election again when another has led since, or a
    /// lease has passed. From now on [`is_leader`](Self::is_leader) is false. After the end of the
    /// term it does nothing. No I/O.
    pub fn resign(&self) {
        self.0.has_resigned.store(true, Ordering::Release);
        self.0.ends.cancel();
    }

    pub(super) fn has_resigned(&self) -> bool {
        self.0.has_resigned.load(Ordering::Acquire)
    }

    /// Whether somebody has [asked](crate::Election::request) for the leadership within the last
    /// lease. The leader decides what follows, such as to [resign](Self::resign) when its work can
    /// be interrupted. No I/O: the renewals of the hold bring the answer.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.hold.tenure().store_hold.is_asked_for(self.0.lease)
    }

    /// Replaces what others see of the leader. One round trip.
    ///
    /// # Errors
    /// The same as [`set_data`](crate::OwnedMutexGuard::set_data) of a guard. Safe to repeat.
    pub fn set_data(&self, data: impl AsRef<[u8]>) -> Result<()> {
        self.0.hold.set_data(data.as_ref())
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("name", &self.name())
            .field("number", &self.number())
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}
