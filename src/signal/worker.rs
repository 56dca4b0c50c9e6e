//! A background thread of a client: it starts when it is first needed, and ends when it is asked
//! to, or by a panic.

use std::fmt;
use std::time::Instant;

use crate::base::error::{Error, ErrorKind, Result};
use crate::os::thread::{self, JoinHandle};
use crate::os::{self, Condvar, Mutex, MutexGuard};

/// The phase of the thread, guarded by the mutex that it shares with its callers. The thread itself
/// sets `Ended`, however it ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    NotStarted,
    Running,
    Stopping,
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    /// Starts the thread, unless it was started before.
    ///
    /// # Errors
    /// It has ended, or the system has no further thread.
    pub(crate) fn start(
        &self,
        phase: &mut Phase,
        name: fmt::Arguments<'_>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        match phase {
            // While stopping, the thread still does what is asked of it.
            Phase::Running | Phase::Stopping => return Ok(()),
            Phase::Ended => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Phase::NotStarted => {}
        }
        let why = format!("the thread {name} cannot be started");
        let started = thread::Builder::new().name(name.to_string()).spawn(run);
        let handle = started.map_err(|e| Error::new(ErrorKind::Unreachable, why).caused_by(e))?;
        *self.0.lock() = Some(handle);
        *phase = Phase::Running;
        Ok(())
    }

    /// Asks the thread to end and waits for that until `deadline`. `phase`: that of the state, of
    /// which `changed` tells the thread. False: it is still busy, and ends later.
    pub(crate) fn stop<S>(
        &self,
        mut state: MutexGuard<'_, S>,
        phase: impl Fn(&mut S) -> &mut Phase,
        changed: &Condvar,
        deadline: Instant,
    ) -> bool {
        let now = phase(&mut state);
        *now = match now {
            Phase::NotStarted | Phase::Ended => Phase::Ended,
            Phase::Running | Phase::Stopping => Phase::Stopping,
        };
        changed.notify_all();
        let handle = self.0.lock().take();
        // The last handle of a client may be dropped on this very thread, in a logger for example.
        // It would wait for itself.
        if handle.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id()) {
            return true;
        }
        while *phase(&mut state) != Phase::Ended {
            if changed.wait_until(&mut state, deadline).timed_out()
                && *phase(&mut state) != Phase::Ended
            {
                return false;
            }
        }
        drop(state);
        if let Some(handle) = handle {
            os::join(handle, deadline);
        }
        true
    }
}
