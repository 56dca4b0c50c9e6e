//! Readers, writers, permits and several locks as one: the decisive orders, one by one.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result, SetPermits};

use super::{at_last, released};
use crate::rig::{Mysql, ms, wait_until};
use crate::support::{Clients, ShortLease};

const LATER: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))+60000000";

fn patient(server: &Mysql) -> LockClient {
    server.builder().lease(Duration::from_secs(60)).io_timeout(ms(4000)).build().unwrap()
}

/// What a call returns that waits for the row of a name, which a stranger has locked, while he makes
/// a change and commits it. `before` is undone by `change`, and done again for each try: the call
/// gives up after a second.
fn beside<T: Send>(
    server: &Mysql,
    name: &str,
    before: &str,
    change: &str,
    call: impl Fn() -> Result<T> + Sync,
) -> T {
    beside_after(server, name, &|| drop(server.query(before)), change, call)
}

fn beside_after<T: Send>(
    server: &Mysql,
    name: &str,
    before: &dyn Fn(),
    change: &str,
    call: impl Fn() -> Result<T> + Sync,
) -> T {
    let literal: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID() \
         AND info LIKE '%leasehold_lock%{literal}%'"
    );
    for _ in 0..20 {
        before();
        let mut db = server.connect();
        db.query(&format!(
            "START TRANSACTION; SELECT name FROM leasehold_lock WHERE name='{name}' FOR UPDATE"
        ))
        .unwrap();
        let outcome = std::thread::scope(|s| {
            let call = s.spawn(&call);
            let mut seen = 0;
            wait_until("it waits", || {
                seen = if server.number_of(&waiting) > 0 { seen + 1 } else { 0 };
                seen == 3 || call.is_finished()
            });
            let has_waited = !call.is_finished();
            db.query(&format!("{change}; COMMIT")).unwrap();
            (has_waited, call.join().unwrap())
        });
        match outcome {
            (_, Err(error)) if error.kind() == ErrorKind::NotReady => {}
            (has_waited, outcome) => {
                assert!(has_waited, "it waits for the row");
                return outcome.unwrap();
            }
        }
    }
    panic!("it was too slow each time");
}

#[test]
fn whoever_waited_for_a_semaphore_counts_what_was_taken_and_given_back_meanwhile() {
    let server = Mysql::shared();
    let client = patient(&server);
    let pool = client.semaphore("order-pool");
    assert_eq!(pool.try_set_permits(2).unwrap(), SetPermits::New);
    let taken = format!("REPLACE INTO leasehold_share VALUES ('order-pool','x',2,{LATER})");
    let given = "DELETE FROM leasehold_share WHERE holder='x'";
    let take = || pool.try_acquire().map(|permit| permit.is_some());
    assert!(!beside(&server, "order-pool", given, &taken, take), "none is left");
    assert!(beside(&server, "order-pool", &taken, given, take), "all are free");
    // Its number was changed meanwhile.
    let set =
        |number: u32| format!("UPDATE leasehold_lock SET level={number} WHERE name='order-pool'");
    let two = || match pool.try_acquire_many(2) {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
        other => other.map(|permit| permit.is_some()),
    };
    assert!(!beside(&server, "order-pool", &set(2), &set(1), two));
    assert!(beside(&server, "order-pool", &set(1), &set(2), two));
}

#[test]
fn whoever_waited_for_a_read_write_lock_sees_who_has_it() {
    let server = Mysql::shared();
    let client = patient(&server);
    let lock = client.rw_lock("order-data");
    lock.write().unwrap().unlock().unwrap();
    let free = "UPDATE leasehold_lock SET holder=NULL WHERE name='order-data'; \
                DELETE FROM leasehold_share WHERE name='order-data'";
    let by = |holder: &str| {
        format!("UPDATE leasehold_lock SET holder='{holder}',ends={LATER} WHERE name='order-data'")
    };
    let shared = format!("REPLACE INTO leasehold_share VALUES ('order-data','x',1,{LATER})");
    let (written, is_read) = (by("x:write"), format!("{}; {shared}", by("~r")));
    let read = || lock.try_read().map(|guard| guard.is_some());
    let write = || lock.try_write().map(|guard| guard.is_some());
    assert!(!beside(&server, "order-data", free, &written, read));
    assert!(!beside(&server, "order-data", free, &written, write));
    assert!(!beside(&server, "order-data", free, &is_read, write));
    assert!(beside(&server, "order-data", &written, &is_read, read), "it was downgraded");
    assert!(beside(&server, "order-data", &written, free, read));
    assert!(beside(&server, "order-data", &is_read, free, write));
}

/// The row lasts as long as its longest share: a writer and a plain lock look at nothing else.
#[test]
fn a_reader_that_leaves_takes_nothing_from_one_that_came_meanwhile() {
    let server = Mysql::shared();
    let (a, b) = (patient(&server), patient(&server));
    let lock = a.rw_lock("order-last");
    let guard = parking_lot::Mutex::new(None);
    lock.read().unwrap().unlock().unwrap();
    let come = format!("REPLACE INTO leasehold_share VALUES ('order-last','x',1,{LATER})");
    let leave = || {
        let taken = guard.lock().take();
        taken.map_or(Ok(()), leasehold::OwnedRwLockReadGuard::unlock)
    };
    let before = || {
        server.query("DELETE FROM leasehold_share WHERE holder='x'");
        guard.lock().get_or_insert_with(|| lock.read_owned().unwrap());
    };
    beside_after(&server, "order-last", &before, &come, leave);
    assert!(b.rw_lock("order-last").try_write().unwrap().is_none(), "somebody reads");
    assert_eq!(b.try_lock("order-last").unwrap_err().kind(), ErrorKind::WrongType);
    // What was too slow before is given back in the background.
    wait_until("x alone reads", || {
        let left = b.rw_lock("order-last").holders().unwrap();
        assert!(left.iter().any(|holder| holder.id() == "x"), "{left:?}");
        left.len() == 1
    });
    server.query("UPDATE leasehold_share SET ends=1 WHERE holder='x'");
    assert!(b.rw_lock("order-last").force_unlock().unwrap());
    assert!(b.try_lock("order-last").unwrap().is_some());
}

#[test]
fn several_locks_wait_for_a_row_and_take_nothing_if_it_is_taken_then() {
    let server = Mysql::shared();
    let client = patient(&server);
    let all = client.multi(["order-a", "order-b", "order-c"]);
    all.lock().unwrap().unlock().unwrap();
    let free = "UPDATE leasehold_lock SET holder=NULL WHERE name='order-b'";
    let taken = format!("UPDATE leasehold_lock SET holder='x',ends={LATER} WHERE name='order-b'");
    let take = || all.try_lock().map(|guard| guard.is_some());
    assert!(!beside(&server, "order-b", free, &taken, take));
    assert_eq!(server.held(), ["order-b"]);
    assert!(beside(&server, "order-b", &taken, free, take));
    // One of the names is fenced between the request and its turn: it asks again, with the fence.
    let fence = "UPDATE leasehold_lock SET fenced=1 WHERE name='order-b'; \
                 REPLACE INTO leasehold_fence (name,token) SELECT name,token FROM leasehold_lock WHERE name='order-b'";
    assert!(beside(&server, "order-b", free, fence, take));
    let differ = "SELECT COUNT(*) FROM leasehold_lock l JOIN leasehold_fence f USING (name) WHERE l.token<>f.token";
    assert_eq!(server.number_of(differ), 0, "the fence has the token of the last grant");
}

/// A writer whose lease has ended cannot commit beside readers, nor a former holder of a name that
/// became a semaphore; and whoever comes after an open fence waits for its transaction.
#[test]
fn fences_of_earlier_holders_fail_whatever_comes_next() {
    let server = Mysql::shared();
    let (a, b) = (patient(&server), patient(&server));
    let fenced = |fence: &leasehold::fencing::TransactionFence| {
        let (name, token) = (fence.name(), fence.token().get());
        format!("START TRANSACTION; CALL leasehold_fence('{name}',{token})")
    };
    let expire = || server.query("UPDATE leasehold_lock SET ends=1 WHERE holder<>'~s'");
    let refused = |statements: &str| server.connect().query(statements).unwrap_err().code;

    let writer = a.rw_lock("data").write().unwrap();
    let late = fenced(&writer.fence_sql().unwrap());
    expire();
    let mut db = server.connect();
    db.query(&late).unwrap();
    let reads = || match b.rw_lock("data").try_read() {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
            false
        }
        Ok(guard) => guard.is_some(),
    };
    assert!(!reads(), "the transaction has not ended");
    db.query("COMMIT").unwrap();
    let reader = b.rw_lock("data").read().unwrap();
    assert_eq!(refused(&late), 1644, "others read");
    drop((writer, reader));
    let next = b.rw_lock("data").write().unwrap();
    assert_eq!(refused(&late), 1644, "another one writes");
    server.query(&fenced(&next.fence_sql().unwrap()));
    drop(next);

    let plain = a.lock("pool").unwrap();
    let late = fenced(&plain.fence_sql().unwrap());
    expire();
    assert_eq!(b.semaphore("pool").try_set_permits(1).unwrap(), SetPermits::New);
    let permit = b.semaphore("pool").acquire().unwrap();
    assert_eq!(refused(&late), 1644, "it is a semaphore now");
    drop((plain, permit));

    let multi = a.multi(["one", "two"]).lock().unwrap();
    let late = fenced(&multi.fence_sql("two").unwrap());
    expire();
    let next = b.multi(["one", "two"]).lock().unwrap();
    assert_eq!(refused(&late), 1644, "another one has both");
    drop((multi, next));
}

/// Connections are ended all the time: never are there more inside than may be, and nothing is left.
#[test]
fn killed_connections_cost_no_permit_and_let_nobody_in() {
    let server = Mysql::shared();
    let clients: Vec<LockClient> = (0..2).map(|_| patient(&server)).collect();
    assert_eq!(clients[0].semaphore("pool").try_set_permits(3).unwrap(), SetPermits::New);
    let (held, inside, turns) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let (client, held, inside, turns) = (&clients[n % 2], &held, &inside, &turns);
                s.spawn(move || {
                    let of = |counter: &AtomicI64, many: i64, most: i64| {
                        let now = counter.fetch_add(many, SeqCst) + many;
                        assert!(now <= most, "{now} of {most}");
                        std::thread::sleep(ms(1));
                        counter.fetch_sub(many, SeqCst);
                        turns.fetch_add(1, SeqCst);
                    };
                    while turns.load(SeqCst) < 150 {
                        match n {
                            0..3 => {
                                let many = n as u32 % 2 + 1;
                                let Ok(permit) = client.semaphore("pool").acquire_many(many) else {
                                    continue;
                                };
                                of(held, many.into(), 3);
                                let _ = permit.release();
                            }
                            3 | 4 => {
                                let Ok(guard) = client.rw_lock("data").write() else { continue };
                                of(inside, 100, 100);
                                let _ = guard.unlock();
                            }
                            _ => {
                                let Ok(guard) = client.rw_lock("data").read() else { continue };
                                of(inside, 1, 99);
                                let _ = guard.unlock();
                            }
                        }
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            server.end_connections();
            std::thread::sleep(ms(20));
        }
    });
    wait_until("nothing is left", || server.held().is_empty());
    assert_eq!(clients[0].semaphore("pool").available_permits().unwrap(), 3);
    drop(clients);
    server.assert_clean();
}

/// Shares are renewed in one transaction while others come and go: no renewal meets a deadlock, and
/// no holder loses anything.
#[test]
fn shares_are_renewed_beside_those_that_come_and_go() {
    let server = Mysql::start();
    let holder = server.builder().short_lease(ms(6000)).build().unwrap();
    let others: Vec<LockClient> = (0..2).map(|_| patient(&server)).collect();
    let names = ["n0", "n1", "n2", "n3"];
    for name in names {
        let pool = holder.semaphore(&*format!("pool-{name}"));
        assert_eq!(pool.try_set_permits(5).unwrap(), SetPermits::New);
    }
    let permits: Vec<_> = names
        .iter()
        .map(|name| holder.semaphore(&*format!("pool-{name}")).acquire_many(2).unwrap())
        .collect();
    let reads: Vec<_> =
        names.iter().map(|name| holder.rw_lock(*name).read_owned().unwrap()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for n in 0..4_usize {
            let (client, over) = (&others[n % 2], &over);
            s.spawn(move || {
                for turn in 0.. {
                    if over.load(SeqCst) {
                        return;
                    }
                    let name = names[(n + turn) % 4];
                    let permit = at_last(|| client.semaphore(&*format!("pool-{name}")).acquire());
                    let write = at_last(|| client.rw_lock(name).try_write());
                    assert!(write.is_none(), "it is read");
                    released(at_last(|| client.rw_lock(name).read()).unlock());
                    released(permit.release());
                }
            });
        }
        // Two leases.
        std::thread::sleep(ms(12_000));
        over.store(true, SeqCst);
    });
    assert!(permits.iter().all(|permit| permit.is_held()), "{permits:?}");
    assert!(reads.iter().all(|guard| guard.is_held()), "{reads:?}");
    // All that the server has broken since it was started.
    let deadlocks =
        "SELECT `COUNT` FROM information_schema.innodb_metrics WHERE name='lock_deadlocks'";
    assert_eq!(server.number_of(deadlocks), 0);
}

/// Operators see who has what.
#[test]
fn shares_are_listed() {
    let server = Mysql::shared();
    let (a, b) = (patient(&server), patient(&server));
    assert_eq!(a.semaphore("pool").try_set_permits(5).unwrap(), SetPermits::New);
    let permits =
        (a.semaphore("pool").acquire_many(2).unwrap(), b.semaphore("pool").acquire().unwrap());
    let reads = (a.rw_lock("data").read().unwrap(), b.rw_lock("data").read().unwrap());
    let write = a.rw_lock("page").write().unwrap();
    let listed = b.locks("*").unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|lock| (lock.name(), lock.holders().len(), lock.taken(), lock.number()))
        .collect();
    assert_eq!(seen, [("data", 2, 2, None), ("page", 1, 1, None), ("pool", 2, 3, Some(2))]);
    let own = listed[2].holders().iter().filter(|holder| holder.is_this_client()).count();
    assert_eq!(listed[1].last_token(), Some(write.fencing_token().unwrap()));
    assert_eq!((own, b.inspect("data").unwrap().unwrap().locks()[0].holders().len()), (1, 2));
    drop((permits, reads, write));
    wait_until("nothing is left", || server.held().is_empty());
}

/// The server ends the re-entry, and not the stranger who has written more: the hold is neither
/// entered nor lost.
#[test]
fn whoever_reenters_and_meets_a_deadlock_keeps_the_lock() {
    let server = Mysql::shared();
    let client = patient(&server);
    let lock = client.rw_lock("order-deadlock");
    let guard = lock.read().unwrap();
    server.query("CREATE TABLE heavy (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB");
    let mut db = server.connect();
    db.query(&format!(
        "START TRANSACTION; INSERT INTO heavy VALUES {}; \
         SELECT holder FROM leasehold_share WHERE name='order-deadlock' FOR UPDATE",
        vec!["(NULL)"; 100].join(",")
    ))
    .unwrap();
    // Not a renewal, which sets no level.
    let waits = "SELECT COUNT(*) FROM information_schema.innodb_trx t \
                 JOIN information_schema.processlist p ON p.id=t.trx_mysql_thread_id AND p.db=DATABASE() \
                 WHERE trx_state='LOCK WAIT' AND trx_query LIKE 'UPDATE leasehold_lock l%,s.level=%'";
    // Each waits a second for the row.
    let reenter = || {
        let mut errors = Vec::new();
        while let Err(error) = lock.read().map(drop) {
            assert!(guard.is_held(), "{error:?}");
            errors.push(error);
        }
        errors
    };
    let errors = std::thread::scope(|s| {
        let beside = s.spawn(|| {
            // It has the row of the lock, and waits for that of the share. The server fills this
            // table anew only when nobody has read it for 100 ms.
            wait_until("it waits", || {
                std::thread::sleep(ms(150));
                server.number_of(waits) > 0
            });
            db.query("SELECT name FROM leasehold_lock WHERE name='order-deadlock' FOR UPDATE")
                .unwrap();
            db.query("ROLLBACK").unwrap();
        });
        let errors = reenter();
        beside.join().unwrap();
        errors
    });
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|e| e.kind() == ErrorKind::NotReady), "{errors:?}");
    lock.read().unwrap().unlock().unwrap();
    guard.unlock().unwrap();
}
