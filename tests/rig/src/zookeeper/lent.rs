//! Servers that are reused by one test after another: starting one takes longer than most tests.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use super::{Mode, ZooKeeper};
use crate::ms;

/// The servers that no test uses at the moment, with their settings. Their number is the largest
/// number of tests that used one at a time. They end with this process.
static IDLE: Mutex<Vec<(&'static str, ZooKeeper)>> = Mutex::new(Vec::new());

/// A server for one test alone, without nodes and sessions of others. The next test gets it when
/// the sessions of this one have ended.
pub struct Lent {
    settings: &'static str,
    server: Option<ZooKeeper>,
}

impl ZooKeeper {
    /// `settings`: lines of its configuration. A test must not change it in any other way, because
    /// the change would affect later tests.
    pub fn lend(settings: &'static str) -> Lent {
        let idle = {
            let mut idle = IDLE.lock();
            idle.iter().position(|(own, _)| *own == settings).map(|at| idle.swap_remove(at).1)
        };
        let server = match idle {
            Some(server) => server,
            None => Self::start_with(settings),
        };
        Lent { settings, server: Some(server) }
    }

    /// One server for tests that use it at the same time, each below a path of its own.
    pub fn shared(settings: &str) -> Arc<Self> {
        static SHARED: OnceLock<Arc<ZooKeeper>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(Self::start_with(settings))).clone()
    }

    /// Removes all nodes. Returns whether no node and no session is left.
    fn is_as_new(&self) -> bool {
        if self.mode() != Some(Mode::Standalone) {
            return false;
        }
        let is_empty = self.look(|session| {
            for (path, _) in session.tree("/").into_iter().rev() {
                let _ = session.delete(&path);
            }
            session.tree("/").is_empty()
        });
        is_empty && self.sessions().is_empty()
    }
}

impl Deref for Lent {
    type Target = ZooKeeper;

    fn deref(&self) -> &ZooKeeper {
        self.server.as_ref().expect("it is taken on drop only")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let server = self.server.take().expect("it is taken on drop only");
        if std::thread::panicking() || !server.runs() {
            return;
        }
        // What the last clients left disappears soon; otherwise the next test starts another
        // server.
        let start = Instant::now();
        while start.elapsed() < ms(1000) {
            if server.is_as_new() {
                IDLE.lock().push((self.settings, server));
                return;
            }
            std::thread::sleep(ms(50));
        }
    }
}
