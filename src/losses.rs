//! Telling holders of their loss: runs `on_lost` callbacks, each on a thread of its own.
//!
//! The deadline of every lease that has a callback is kept here, not by the watchdog, which may sit in a connect
//! when a lease ends. The thread starts with the first callback of a client.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::grant::{Grant, OnLost, tick};
use crate::lease::State;

#[derive(Default)]
pub(crate) struct Losses {
    list: Mutex<List>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct List {
    watched: Vec<Arc<Grant>>,
    stop: bool,
}

impl Losses {
    /// Runs `callback` when `grant` is lost; at once if it is already, never once it was released.
    pub(crate) fn watch(self: &Arc<Self>, client_name: &str, grant: &Arc<Grant>, callback: OnLost) {
        grant.add_callback(callback);
        let mut list = self.list.lock();
        if !list.watched.iter().any(|g| Arc::ptr_eq(g, grant)) {
            list.watched.push(grant.clone());
        }
        drop(list);
        self.changed.notify_one();
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let me = self.clone();
            let spawned = std::thread::Builder::new().name(format!("lh-loss-{client_name}")).spawn(move || me.run());
            match spawned {
                Ok(handle) => *thread = Some(handle),
                Err(e) => log::warn!("no thread for on_lost callbacks: {e}"),
            }
        }
    }

    /// A lease may have ended early: look now.
    pub(crate) fn look(&self) {
        // Taken and dropped, so that the thread is either before its look or in its wait.
        drop(self.list.lock());
        self.changed.notify_one();
    }

    /// Ends the thread once every grant is lost or released, which the client has seen to.
    pub(crate) fn stop(&self) {
        self.list.lock().stop = true;
        self.changed.notify_one();
        let handle = self.thread.lock().take();
        if let Some(handle) = handle {
            // It runs no foreign code and drops none, so it comes to an end, and it is not the one that calls this.
            let _ = handle.join();
        }
    }

    fn run(&self) {
        let mut list = self.list.lock();
        loop {
            let mut pause = Duration::from_secs(3600);
            let mut lost = Vec::new();
            let mut never = Vec::new();
            list.watched.retain(|grant| {
                let now = grant.now();
                match grant.lease.state(now) {
                    State::Lost => lost.push(grant.clone()),
                    State::Released => never.extend(grant.take_callbacks()),
                    State::Held | State::Suspect => {
                        pause = pause.min(tick(grant.span)).min(grant.lease.until().since(now));
                        return true;
                    }
                }
                false
            });
            if !lost.is_empty() || !never.is_empty() {
                // Not under the mutex, and those that never run are dropped elsewhere too: what they captured may be the
                // last handle of a client, or a guard.
                parking_lot::MutexGuard::unlocked(&mut list, || {
                    lost.iter().for_each(tell);
                    drop_elsewhere(never);
                });
                continue;
            }
            if list.stop {
                return;
            }
            self.changed.wait_for(&mut list, pause.max(Duration::from_micros(50)));
        }
    }
}

fn drop_elsewhere(callbacks: Vec<OnLost>) {
    if !callbacks.is_empty() {
        let _ = std::thread::Builder::new().name("leasehold-on-lost".into()).spawn(move || drop(callbacks));
    }
}

/// A callback that blocks delays nobody else's.
fn tell(grant: &Arc<Grant>) {
    log::warn!("the lease of {:?} was lost", grant.keys.name);
    for callback in grant.take_callbacks().iter().filter_map(OnLost::take) {
        if let Err(e) = std::thread::Builder::new().name("leasehold-on-lost".into()).spawn(callback) {
            log::warn!("no thread for an on_lost callback of {:?}: {e}", grant.keys.name);
        }
    }
}
