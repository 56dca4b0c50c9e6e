//! Threads that the scheduler runs.

use std::io;
use std::sync::Arc;
pub(crate) use std::thread::panicking;
use std::time::{Duration, Instant};

use shuttle::sync::atomic::{AtomicBool, Ordering};
pub use shuttle::thread::{JoinHandle, Thread, ThreadId, current};
pub(crate) use shuttle::thread::{Scope, ScopedJoinHandle, scope};

use super::parker::Parker;
use super::{now, time};

#[derive(Debug, Default)]
pub struct Builder(Option<String>);

impl Builder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    /// Counts the thread while it runs.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let name = self.0.clone();
        let counted = Counted::new(self.0);
        let builder =
            name.into_iter().fold(shuttle::thread::Builder::new(), shuttle::thread::Builder::name);
        builder.spawn(move || {
            let _counted = counted;
            run()
        })
    }

    /// Like [`spawn`](Self::spawn), for a thread that ends with its scope.
    pub(crate) fn spawn_scoped<'s, T: Send + 's>(
        self,
        scope: &'s Scope<'s, '_>,
        run: impl FnOnce() -> T + Send + 's,
    ) -> io::Result<ScopedJoinHandle<'s, T>> {
        let counted = Counted::new(self.0);
        Ok(scope.spawn(move || {
            let _counted = counted;
            run()
        }))
    }
}

pub(crate) fn join(thread: JoinHandle<()>, _deadline: Instant) {
    let _ = thread.join();
}

/// Like [`Builder::spawn`], without a name.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(run).expect("the scheduler can always run another thread")
}

/// Threads that run, by name.
pub fn running() -> Vec<Option<String>> {
    time::current().map(|time| time.threads.borrow().clone()).unwrap_or_default()
}

struct Counted(Option<String>);

impl Counted {
    fn new(name: Option<String>) -> Self {
        if let Some(time) = time::current() {
            time.threads.borrow_mut().push(name.clone());
        }
        Self(name)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(time) = time::current() else { return };
        let mut threads = time.threads.borrow_mut();
        let place = threads.iter().position(|name| *name == self.0);
        place.map(|place| threads.remove(place));
    }
}

pub fn sleep(duration: Duration) {
    let deadline = now().checked_add(duration).expect("it ends");
    let time = time::current().expect("only threads of an execution sleep");
    time.park_until(time::nanos_at(deadline), &Arc::new(Parker::default()));
}

/// Lets the scheduler choose another thread here.
pub(super) fn step() {
    // A thread that yields is put behind the others, one that touches an atomic is not.
    AtomicBool::new(false).load(Ordering::SeqCst);
}
