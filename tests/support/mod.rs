//! Opens clients of the library at the servers of the rig, which does not depend on it.

mod load;
mod masters;

use std::time::Duration;

use leasehold::{Builder, LockClient, Redis};

pub(crate) use load::Load;
pub(crate) use masters::{Masters, wait_for_votes};

use crate::rig::{Mysql, Postgres, Server};

/// Opens clients at a server.
pub(crate) trait Clients {
    fn builder(&self) -> Builder;

    fn client(&self) -> LockClient {
        self.builder().build().unwrap()
    }
}

impl Clients for Server {
    fn builder(&self) -> Builder {
        LockClient::builder().url(self.url())
    }

    /// Its calls have as long as its renewals: the 2 s of the default are little on a busy machine.
    fn client(&self) -> LockClient {
        self.builder().io_timeout(Duration::from_millis(7_500)).build().unwrap()
    }
}

/// The usual I/O timeout is a quarter of the lease. Of a short lease that is less than a busy machine
/// may take for one answer, and a test that is not about timeouts must not fail of it.
pub(crate) trait ShortLease {
    fn short_lease(self, lease: Duration) -> Self;
}

impl ShortLease for Builder {
    fn short_lease(self, lease: Duration) -> Self {
        self.lease(lease).io_timeout(lease * 9 / 10)
    }
}

/// A builder for this server with settings that only Redis has.
pub(crate) fn builder_with(server: &Server, settings: impl FnOnce(Redis) -> Redis) -> Builder {
    LockClient::builder().redis(settings(Redis::new(server.url())))
}

/// Of this time a statement of PostgreSQL may wait a quarter for a row, which is more than a busy
/// machine may take.
const DATABASE_IO: Duration = Duration::from_secs(6);

impl Clients for Postgres {
    fn builder(&self) -> Builder {
        // Tests find the library's backends by this name.
        LockClient::builder().url(self.url()).client_name("leasehold").io_timeout(DATABASE_IO)
    }
}

impl Clients for Mysql {
    fn builder(&self) -> Builder {
        LockClient::builder().url(self.url()).io_timeout(DATABASE_IO)
    }
}

/// Each of `threads` threads adds 20 to the key `counter` at `url`, each time under the lock `job`.
pub(crate) fn count_under_the_lock(client: &LockClient, url: &str, threads: usize) {
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
                for _ in 0..20 {
                    let guard = client.lock("job").unwrap();
                    // Read and write are separate commands, so only the lock keeps the counter
                    // exact.
                    let old: u32 = redis::cmd("GET").arg("counter").query(&mut redis).unwrap();
                    redis::cmd("SET").arg("counter").arg(old + 1).exec(&mut redis).unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
}
