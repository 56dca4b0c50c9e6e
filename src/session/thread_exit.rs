//! Threads that end with holds: their guards were forgotten, or sit in other thread-locals.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::session::Shared;

thread_local! {
    /// The clients that have holds of this thread. When the thread ends, what it still holds is released: its guards
    /// were forgotten, or sit in other thread-locals.
    static THREAD_EXIT: RefCell<ThreadExitHook> = RefCell::new(ThreadExitHook { thread: std::thread::current().id(), clients: Vec::new() });
}

struct ThreadExitHook {
    thread: std::thread::ThreadId,
    clients: Vec<Weak<Shared>>,
}

/// When the calling thread ends, the client gives up what it holds then.
pub(crate) fn release_at_thread_exit(shared: &Arc<Shared>) {
    // In the destructor of another thread-local the thread-exit hook may be gone: then that guard's own drop must do.
    let _ = THREAD_EXIT.try_with(|hook| {
        let mut hook = hook.borrow_mut();
        if !hook.clients.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(shared))) {
            hook.clients.retain(|known| known.strong_count() > 0);
            hook.clients.push(Arc::downgrade(shared));
        }
    });
}

impl Drop for ThreadExitHook {
    fn drop(&mut self) {
        for shared in self.clients.drain(..).filter_map(|client| client.upgrade()) {
            if shared.is_forked() {
                // Not even dropped: that could end the client in a process that owns nothing of it.
                std::mem::forget(shared);
                continue;
            }
            for hold in shared.holds.take_thread(self.thread) {
                log::warn!("a thread ended with a hold of {:?}: releasing it", hold.name());
                hold.abandon();
            }
        }
    }
}
