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
use leasehold::observe::Severity;

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

/// When the lease of a lock ends at the server, in microseconds.
fn ends_of(server: &Postgres, name: &str) -> i64 {
    server.number_of(&format!(
        "SELECT (extract(epoch FROM ends) * 1000000)::bigint FROM leasehold.lock WHERE name = '{name}'"
    ))
}

/// Its client has a lease whose third is far less than [`CAP`](crate::rig::CAP).
#[track_caller]
fn wait_for_a_renewal(server: &Postgres, name: &str) {
    let before = ends_of(server, name);
    wait_until("it is renewed", || ends_of(server, name) > before);
}

/// The sessions know by another process of the server that commits wait for a standby. The probe
/// goes on until [`end_the_probe`], or the end of the server.
pub(crate) fn wait_for_a_commit_that_waits(server: &Postgres) {
    let mut probe = server.connect();
    probe.batch_execute("SET application_name = 'the-probe'").expect("it obeys");
    std::thread::spawn(move || {
        while probe.batch_execute("COMMENT ON TABLE leasehold.meta IS 'a change'").is_ok() {
            std::thread::sleep(ms(10));
        }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name = 'the-probe' AND wait_event = 'SyncRep'";
    wait_until("a commit waits", || server.number_of(waits) == 1);
}

pub(crate) fn end_the_probe(server: &Postgres) {
    server.run_sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'the-probe'",
    );
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
    let found = client.diagnose();
    assert_eq!(found.count(Severity::Problem), 0, "{found:?}");
    let proxy = Proxy::before_postgres(server);
    let url = proxy.url().replace("leasehold@", "app@");
    let lossy = LockClient::builder().url(url).io_timeout(ms(1500)).build().unwrap();
    proxy.inject("lost", Fault::BlackHoleReply);
    assert!(lossy.try_lock("lost").is_err());
    wait_until("nothing is held", || server.held().is_empty());
}
