//! Threads that add to a sum under a lock, over and over, while something disturbs their servers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Server, ms, wait_until};

/// Threads of each client.
const THREADS: usize = 3;

/// Reads the sum, and refuses any earlier holder of the lock, like a fenced resource.
const CLAIM: &str = "if tonumber(redis.call('get', 'token') or 0) > tonumber(ARGV[1]) then return -1 end \
                     redis.call('set', 'token', ARGV[1]) return tonumber(redis.call('get', 'sum') or 0)";
const WRITE: &str = "if tonumber(redis.call('get', 'token')) > tonumber(ARGV[1]) then return -1 end \
                     redis.call('set', 'sum', ARGV[2]) return 1";

pub(crate) struct Load {
    /// The number of sums written.
    added: AtomicU32,
    /// The number of writes refused because their holder had lost the lock.
    late: AtomicU32,
    stop: AtomicBool,
}

impl Load {
    /// Runs the load. The sum is on a separate, undisturbed server, and must be exact in the end:
    /// read and write are separate commands, so only the lock and its token keep it so. Returns how
    /// many writes were refused as late.
    #[track_caller]
    pub(crate) fn run(clients: &[&LockClient], sum: &Server, disturb: impl FnOnce(&Self)) -> u32 {
        let (added, late, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let load = Self { added, late, stop };
        std::thread::scope(|s| {
            for client in clients {
                for _ in 0..THREADS {
                    s.spawn(|| load.add(client, sum));
                }
            }
            let disturbed = catch_unwind(AssertUnwindSafe(|| disturb(&load)));
            load.stop.store(true, Ordering::SeqCst);
            if let Err(panic) = disturbed {
                std::panic::resume_unwind(panic);
            }
        });
        assert_eq!(sum.cmd::<u32>(&["GET", "sum"]), load.added.load(Ordering::SeqCst));
        load.late.load(Ordering::SeqCst)
    }

    fn add(&self, client: &LockClient, sum: &Server) {
        let mut redis = sum.connect();
        let mut eval = |script: &str, args: &[u64]| -> i64 {
            redis::cmd("EVAL").arg(script).arg(0).arg(args).query(&mut redis).unwrap()
        };
        while !self.stop.load(Ordering::SeqCst) {
            let guard = match client.lock("job") {
                Ok(guard) => guard,
                Err(e) => {
                    assert!(is_outage(e.kind()), "{e:?}");
                    std::thread::sleep(ms(5));
                    continue;
                }
            };
            let token = guard.fencing_token().unwrap().get();
            let old = eval(CLAIM, &[token]);
            let written = old >= 0 && eval(WRITE, &[token, old as u64 + 1]) == 1;
            let count = if written { &self.added } else { &self.late };
            count.fetch_add(1, Ordering::SeqCst);
            if let Err(e) = guard.unlock() {
                assert!(is_outage(e.kind()) || e.kind() == ErrorKind::Lost, "{e:?}");
            }
        }
    }

    /// Waits until `more` more sums are written.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, more: u32) {
        let until = self.added.load(Ordering::SeqCst) + more;
        wait_until("the work continues", || self.added.load(Ordering::SeqCst) >= until);
    }
}

fn is_outage(kind: ErrorKind) -> bool {
    use ErrorKind::{NoQuorum, NotReady, NotReplicated, ReadOnly, Unreachable};
    matches!(kind, Unreachable | NoQuorum | NotReady | NotReplicated | ReadOnly)
}
