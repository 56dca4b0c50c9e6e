//! Threads that end while they hold something: their guards were forgotten, or live in other
//! thread-locals that are destroyed later or never.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::os::{self, thread::ThreadId};

/// Notified when a thread ends: a client with holds of that thread.
pub(crate) trait OnThreadExit {
    /// Called on the thread that ends, while its thread-locals are destroyed.
    fn on_thread_exit(self: Arc<Self>, thread: ThreadId);
}

os::thread_local! {
    static THREAD_EXIT: RefCell<ThreadExitHook> =
        RefCell::new(ThreadExitHook { thread: os::thread::current().id(), clients: Vec::new() });
}

/// The clients that have had holds of this thread.
struct ThreadExitHook {
    thread: ThreadId,
    clients: Vec<Weak<dyn OnThreadExit>>,
}

/// From now on the client is notified when the calling thread ends.
pub(crate) fn notify_at_thread_exit<C: OnThreadExit + 'static>(client: &Arc<C>) {
    // In the destructor of another thread-local the hook may already be gone. Then a guard that is
    // made there is released by its own drop, or not at all.
    let _ = THREAD_EXIT.try_with(|hook| {
        let mut hook = hook.borrow_mut();
        if !hook.clients.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(client)))
        {
            hook.clients.retain(|known| known.strong_count() > 0);
            let client: Weak<C> = Arc::downgrade(client);
            hook.clients.push(client);
        }
    });
}

impl Drop for ThreadExitHook {
    fn drop(&mut self) {
        for client in self.clients.drain(..).filter_map(|client| client.upgrade()) {
            client.on_thread_exit(self.thread);
        }
    }
}
