//! Locks in a PostgreSQL database.

mod backends;
mod blocked;
mod clock;
mod connecting;
mod contention;
mod faults;
mod fence;
mod full;
mod functions;
mod intervals;
mod load;
mod lost_replies;
mod messages;
mod owners;
mod passed_on;
mod primitives;
mod repeats;
mod replication;
mod search_path;
#[cfg(feature = "tls")]
mod secure;
mod sessions;
mod sweeping;
mod versions;

use leasehold::LockClient;

use crate::rig::{Fault, Postgres, Proxy, ms, wait_until};

/// A server for a test.
macro_rules! server {
    () => {
        crate::rig::Postgres::shared()
    };
    ($started:expr) => {
        $started
    };
}
pub(crate) use server;

/// The URL of two servers, the first of which is tried first.
fn url_of_both(first: &Postgres, second: &Postgres) -> String {
    let hosts = [first, second].map(|server| server.dir().display().to_string());
    format!("postgres://leasehold@/postgres?host={}", hosts.join(","))
}

/// Uses every primitive with a client of the role `app`, and resolves a lost reply with the rights
/// of that role.
fn use_everything_as_app(server: &Postgres, client: &LockClient) {
    client.fair("f").lock().unwrap().unlock().unwrap();
    client.rw_lock("r").read().unwrap().unlock().unwrap();
    client.rw_lock("r").write().unwrap().downgrade().unwrap().unlock().unwrap();
    client.multi(["a", "b"]).lock().unwrap().unlock().unwrap();
    client.semaphore("s").try_set_permits(1).unwrap();
    client.semaphore("s").acquire().unwrap().release().unwrap();
    client.counting_semaphore("c").try_set_permits(1).unwrap();
    drop(client.counting_semaphore("c").acquire().unwrap());
    client.latch("l").set_count(1).unwrap();
    client.latch("l").count_down().unwrap();
    client.mutex("k").force_unlock().unwrap();
    client.locks("*").unwrap();
    assert!(!client.diagnose().findings().is_empty());
    let proxy = Proxy::before_postgres(server);
    let url = proxy.url().replace("leasehold@", "app@");
    let lossy = LockClient::builder().url(url).io_timeout(ms(1500)).build().unwrap();
    proxy.inject("lost", Fault::BlackHoleReply);
    assert!(lossy.try_lock("lost").is_err());
    wait_until("nothing is held", || server.held().is_empty());
}
