//! Messages to waiters that cannot be sent, or that wait: what frees something does so all the same.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use leasehold::LockClient;

use super::{end_the_probe, server, wait_for_a_commit_that_waits};
use crate::rig::Postgres;
use crate::rig::{ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

/// Somebody waits for each of the names, in its queue as well.
const WAITERS: &str = "SET synchronous_commit = off; \
    UPDATE leasehold.lock SET wants = '{ghost}', wanted = clock_timestamp(); \
    INSERT INTO leasehold.waiter (name, place, holder, wake, deadline) \
      SELECT name, 1, 'ghost:1', 'ghost', clock_timestamp() + interval '1 h' \
      FROM leasehold.lock WHERE name LIKE 'fair%'";

const HELD: &str = "SELECT count(*) FROM leasehold.lock \
    WHERE holder IS NOT NULL AND ends > clock_timestamp()";

/// From now on nobody can be notified, as when the queue of messages is full.
fn fill(server: &Postgres) {
    server.run_sql(
        "SET allow_system_table_mods = on; \
         ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO pg_notify_before; \
         CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
           RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; \
         END $$",
    );
}

#[test]
fn a_full_queue_of_messages_keeps_nobody_from_freeing() {
    let server = server!(Postgres::start());
    drop(server.client());
    fill(&server);
    let client = server.builder().lease(LONG).build().unwrap();
    let (mutex, fair) = (client.lock("k").unwrap(), client.fair("fair").lock().unwrap());
    let kept = client.fair("fair kept").min_hold(ms(1)).lock().unwrap();
    let both = client.multi(["m", "n"]).lock().unwrap();
    let data = client.fair("fair with data").with_data(b"d").lock().unwrap();
    let rw = client.rw_lock("rw");
    let write = rw.write().unwrap();
    let (permits, counted) = (client.semaphore("s"), client.counting_semaphore("c"));
    permits.try_set_permits(1).unwrap();
    counted.try_set_permits(1).unwrap();
    let (permit, taken) = (permits.acquire().unwrap(), counted.acquire().unwrap());
    let latch = client.latch("l");
    latch.set_count(1).unwrap();
    let forced = client.lock("forced").unwrap();
    server.run_sql(WAITERS);
    mutex.unlock().unwrap();
    fair.unlock().unwrap();
    kept.unlock().unwrap();
    both.unlock().unwrap();
    data.unlock().unwrap();
    write.unlock().unwrap();
    permit.release().unwrap();
    taken.release().unwrap();
    assert_eq!(latch.count_down().unwrap(), 0);
    assert!(client.mutex("forced").force_unlock().unwrap());
    assert!(forced.unlock().is_err());
    let job = client.once("job", "1");
    assert!(matches!(job.run(|_| Ok::<_, ()>(())).unwrap(), leasehold::Once::Done(())));
    assert!(job.forget().unwrap());
    assert!(permits.delete().unwrap() && counted.delete().unwrap());
    wait_until("all are free", || server.number_of(HELD) == 0);
}

/// The same for those that the client frees in the background.
#[test]
fn a_full_queue_of_messages_keeps_no_undo_from_freeing() {
    let server = server!(Postgres::start());
    drop(server.client());
    fill(&server);
    let client = server.builder().lease(LONG).io_timeout(ms(1500)).build().unwrap();
    let (mutex, fair) = (client.lock("k").unwrap(), client.fair("fair").lock().unwrap());
    server.run_sql(WAITERS);
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock FOR UPDATE", &[]).unwrap();
    mutex.unlock().unwrap_err();
    fair.unlock().unwrap_err();
    transaction.rollback().unwrap();
    wait_until("both are free", || server.number_of(HELD) == 0);
}

/// A call that waits for a standby; whether it succeeds.
type Waits = Box<dyn FnOnce(&LockClient) -> bool + Send>;

/// A commit with messages holds a lock of the whole server. One that waits for a standby that is
/// away would keep every release from its message.
#[test]
fn what_waits_for_a_standby_keeps_no_release_waiting() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(LONG).io_timeout(ms(15_000)).build().unwrap();
    let (latch, permits) = (client.latch("l"), client.semaphore("s"));
    let counted = client.counting_semaphore("c");
    latch.set_count(1).unwrap();
    permits.try_set_permits(1).unwrap();
    counted.try_set_permits(1).unwrap();
    let taken = counted.acquire().unwrap();
    let kept = client.fair("fair kept").min_hold(LONG).lock_owned().unwrap();
    let both = client.multi(["m", "n"]).min_hold(LONG).lock_owned().unwrap();
    let forced = client.lock("forced").unwrap();
    let job = client.once("job", "1");
    let _ = job.run(|_| Ok::<_, ()>(())).unwrap();
    let waiting: Vec<Waits> = vec![
        Box::new(|client| client.latch("l").count_down().is_ok()),
        Box::new(|client| client.semaphore("s").add_permits(1).is_ok()),
        Box::new(|_| taken.release().is_ok()),
        Box::new(|_| kept.unlock().is_ok()),
        Box::new(|_| both.unlock().is_ok()),
        Box::new(|client| client.mutex("forced").force_unlock().is_ok()),
        Box::new(|client| client.once("job", "1").forget().is_ok()),
    ];
    server.run_sql(WAITERS);
    let mut notifies = server.connect();
    notifies.batch_execute("SET synchronous_commit = off; SET lock_timeout = '2 s'").unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE wait_event = 'SyncRep' AND application_name = 'leasehold'";
    for what in waiting {
        set(&server, "synchronous_standby_names = 'nobody'");
        wait_for_a_commit_that_waits(&server);
        std::thread::scope(|s| {
            let waiter: ScopedJoinHandle<'_, bool> = s.spawn(|| what(&client));
            wait_until("it waits for the standby", || server.number_of(waits) > 0);
            // As a release does, which is asynchronous; a renewal would keep its row locked.
            notifies.batch_execute("NOTIFY another").unwrap();
            set(&server, "synchronous_standby_names = ''");
            assert!(waiter.join().unwrap());
        });
        end_the_probe(&server);
    }
    drop(forced);
}

fn set(server: &Postgres, setting: &str) {
    let mut db = server.connect();
    // The change itself must not wait for a standby.
    db.batch_execute("SET synchronous_commit = off").unwrap();
    db.batch_execute(&format!("ALTER SYSTEM SET {setting}")).unwrap();
    db.batch_execute("SELECT pg_reload_conf()").unwrap();
}
