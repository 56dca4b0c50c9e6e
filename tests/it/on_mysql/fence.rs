//! The data and the lock in one transaction: a late holder cannot commit.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient};
use parking_lot::Mutex;

use super::{at_last, released};
use crate::rig::mysql::{Client, Refused};
use crate::rig::{CAP, Mysql, ms, wait_until};
use crate::support::Clients;
use crate::turns::in_the_middle_of_a_block;

/// The statement, with its values.
fn call(fence: &TransactionFence) -> String {
    fence.sql().replacen('?', &format!("'{}'", fence.name()), 1).replacen(
        '?',
        &fence.token().as_i64().to_string(),
        1,
    )
}

fn fenced(db: &mut Client, fence: &TransactionFence) -> Result<(), Refused> {
    db.query(&format!("START TRANSACTION; {}", call(fence))).map(drop)
}

fn clients(server: &Mysql) -> (LockClient, LockClient) {
    // MySQL looks once a second whether a wait for a row is over, so it may take two.
    let patient = || server.builder().lease(Duration::from_secs(60)).io_timeout(ms(5000));
    let client = || patient().build().unwrap();
    (client(), client())
}

/// Simulates a lease that ended while its holder was suspended: the guard does not know it yet.
fn expire(server: &Mysql, name: &str) {
    server.query(&format!("UPDATE leasehold_lock SET ends=1 WHERE name='{name}'"));
}

#[test]
fn a_fence_keeps_others_out_until_its_transaction_ends() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let guard = a.lock("job").unwrap();
    let fence = guard.fence_sql().unwrap();
    assert_eq!(fence.sql(), fence.sql_at_commit());
    let mut db = server.connect();
    fenced(&mut db, &fence).unwrap();
    // Renewed, re-entered and extended meanwhile.
    guard.extend(Duration::from_secs(90)).unwrap();
    a.lock("job").unwrap().unlock().unwrap();
    assert!(b.try_lock("job").unwrap().is_none(), "it is held");
    expire(&server, "job");
    assert!(b.try_lock("job").unwrap().is_none(), "it has ended, and is fenced");
    db.query("COMMIT").unwrap();
    let next = b.try_lock("job").unwrap().expect("the transaction has ended");
    assert!(next.fencing_token().unwrap() > fence.token());
    let refused = fenced(&mut db, &fence).unwrap_err();
    assert_eq!(refused.code, 1644, "{refused:?}");
    assert!(refused.text.contains(TransactionFence::STALE), "{refused:?}");
    db.query("ROLLBACK").unwrap();
    // The next holder's own fence knows its token.
    let own = next.fence_sql().unwrap();
    fenced(&mut db, &own).unwrap();
    db.query("COMMIT").unwrap();
    next.unlock().unwrap();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_fence_outlasts_the_release() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let guard = a.lock("job").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = server.connect();
    fenced(&mut db, &fence).unwrap();
    guard.unlock().unwrap();
    assert!(b.try_lock("job").unwrap().is_none(), "the transaction has not ended");
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.lock("job").unwrap().unlock().unwrap());
        std::thread::sleep(ms(50));
        db.query("ROLLBACK").unwrap();
        waits.join().unwrap();
    });
}

/// Nobody waits in the database for a transaction that is fenced: a try says at once that the lock is
/// taken. (To wait for a row takes a second at least.)
#[test]
fn a_try_does_not_wait_for_a_fence() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let mut db = server.connect();
    let guard = a.lock("job").unwrap();
    fenced(&mut db, &guard.fence_sql().unwrap()).unwrap();
    guard.unlock().unwrap();
    let tries: [(&str, &dyn Fn() -> bool); 4] = [
        ("plain", &|| b.try_lock("job").unwrap().is_none()),
        ("multi", &|| b.multi(["a", "job"]).try_lock().unwrap().is_none()),
        ("read", &|| b.rw_lock("job").try_read().unwrap().is_none()),
        ("write", &|| b.rw_lock("job").try_write().unwrap().is_none()),
    ];
    for (kind, is_taken) in tries {
        // A busy machine may be slow once.
        let at_once = (0..5).any(|_| {
            let began = Instant::now();
            assert!(is_taken(), "{kind}");
            began.elapsed() < ms(900)
        });
        assert!(at_once, "{kind} waits for the transaction");
    }
    let error = b.semaphore("job").try_set_permits(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
    assert!(error.to_string().contains("fenced"), "{error}");
    // The row of the lock is locked by nobody, and no other name is left taken.
    assert!(b.try_lock("a").unwrap().is_some());
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.lock("job").unwrap().unlock().unwrap());
        let multi = s.spawn(|| b.multi(["job", "z"]).lock().unwrap().unlock().unwrap());
        std::thread::sleep(ms(100));
        db.query("COMMIT").unwrap();
        waits.join().unwrap();
        multi.join().unwrap();
    });
    assert!(b.semaphore("job").try_set_permits(2).unwrap().is_new());
}

/// Readers of a name that was fenced once lock its fence for a moment, one after the other behind
/// the row of the name: none takes another one for a transaction that is fenced.
#[test]
fn readers_do_not_take_each_other_for_a_fence() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let guard = a.rw_lock("rw").write().unwrap();
    guard.fence_sql().unwrap();
    guard.unlock().unwrap();
    std::thread::scope(|s| {
        for n in 0..6 {
            let client = if n % 2 == 0 { &a } else { &b };
            s.spawn(move || {
                for _ in 0..30 {
                    let read = at_last(|| client.rw_lock("rw").try_read());
                    released(read.expect("nobody writes").unlock());
                }
            });
        }
    });
}

/// The first fence of a name is made while others take the lock. Whatever is first, the row of the
/// fence has the token of the last grant.
#[test]
fn the_row_of_a_fence_never_has_an_old_token() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let same = "SELECT l.token=f.token FROM leasehold_lock l JOIN leasehold_fence f USING (name) WHERE name='job'";
    drop(a.lock("job").unwrap());
    // It is being made: the row of the lock is locked, and the fence's is not there yet.
    let mut db = server.connect();
    db.query("START TRANSACTION; UPDATE leasehold_lock SET fenced=1 WHERE name='job'").unwrap();
    std::thread::scope(|s| {
        let takes = s.spawn(|| b.lock("job").unwrap().fencing_token().unwrap().as_i64());
        wait_until("it waits for the row", || {
            server.number_of(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND info LIKE 'UPDATE leasehold_lock%' \
                 AND id<>CONNECTION_ID()",
            ) > 0
        });
        db.query(
            "REPLACE INTO leasehold_fence (name,token) SELECT name,token FROM leasehold_lock WHERE name='job'; COMMIT",
        )
        .unwrap();
        let token = takes.join().unwrap();
        let fenced = server.number_of("SELECT token FROM leasehold_fence WHERE name='job'");
        assert_eq!(fenced, token, "the grant has seen the fence");
    });
    // And with many at once.
    std::thread::scope(|s| {
        for n in 0..6 {
            let client = if n % 2 == 0 { &a } else { &b };
            s.spawn(move || {
                for turn in 0..10 {
                    let name = format!("n{turn}");
                    let guard = at_last(|| client.lock(&name));
                    let fence = at_last(|| guard.fence_sql());
                    assert_eq!(fence.token(), guard.fencing_token().unwrap());
                    released(guard.unlock());
                }
            });
        }
    });
    assert_eq!(server.number_of(same), 1);
    let differ = "SELECT COUNT(*) FROM leasehold_lock l LEFT JOIN leasehold_fence f USING (name) \
                  WHERE NOT (l.fenced AND l.token <=> f.token)";
    assert_eq!(server.number_of(differ), 0);
}

/// A turn fences like the first token of its block: nobody gets the lock before the transaction ends,
/// and a turn that was lost is refused.
#[test]
fn a_turn_fences_with_a_token_of_its_block() {
    let server = Mysql::shared();
    let (client, other) = clients(&server);
    let db = Mutex::new(server.connect());
    let is_inside = |token: i64| {
        let look = format!(
            "SELECT {token}+tokens>token AND {token}<token FROM leasehold_lock WHERE name='job'"
        );
        db.lock().query(&look).unwrap()[0][0] == "1"
    };
    // Its first fence makes the row of the name, and later ones find it.
    for lost in [false, true, false] {
        let errors = in_the_middle_of_a_block(&client, is_inside, |guard| {
            let fence = guard.fence_sql().unwrap();
            assert_eq!(fence.token(), guard.fencing_token().unwrap());
            let mut db = server.connect();
            if lost {
                server.query("UPDATE leasehold_lock SET holder=NULL,level=0 WHERE name='job'");
                let next = other.try_lock("job").unwrap().expect("free");
                assert_eq!(fenced(&mut db, &fence).unwrap_err().code, 1644);
                drop((next, guard));
                return;
            }
            fenced(&mut db, &fence).unwrap();
            guard.unlock().unwrap();
            let mine = || {
                std::thread::scope(|s| {
                    s.spawn(|| client.try_lock("job").unwrap().is_some()).join().unwrap()
                })
            };
            assert!(
                other.try_lock("job").unwrap().is_none() && !mine(),
                "the transaction is open, and other threads of the client wait"
            );
            db.query("COMMIT").unwrap();
        });
        assert!(errors.iter().all(|kind| lost && *kind == ErrorKind::Lost), "{errors:?}");
        wait_until("nothing is held", || server.held().is_empty());
    }
}

/// A thread behind which others wait draws a block of tokens. It has the first of them.
#[test]
fn whoever_others_of_its_client_wait_behind_has_a_fence() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let tokens = |table: &str| {
        server.number_of(&format!("SELECT tokens FROM leasehold_{table} WHERE name='job'"))
    };
    for name_is in ["fresh", "fenced before"] {
        let (held, first) = (b.lock("job").unwrap(), AtomicBool::new(true));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let guard = a.lock("job").unwrap();
                    let fence = guard.fence_sql().unwrap();
                    let mut db = server.connect();
                    fenced(&mut db, &fence).unwrap_or_else(|e| panic!("{name_is}: {e:?}"));
                    if first.swap(false, SeqCst) {
                        assert!(
                            tokens("lock") > 1 && tokens("fence") == tokens("lock"),
                            "{name_is}"
                        );
                    }
                    db.query("COMMIT").unwrap();
                    guard.unlock().unwrap();
                });
            }
            wait_until("they wait", || a.stats().waiting() == 3);
            held.unlock().unwrap();
        });
    }
    // Whoever takes it in another way draws one token.
    let takes: [&dyn Fn() -> leasehold::Result<()>; 4] = [
        &|| b.multi(["job", "too"]).lock().map(drop),
        &|| b.rw_lock("job").read().map(drop),
        &|| b.rw_lock("job").write().map(drop),
        &|| b.semaphore("job").try_set_permits(1).map(drop),
    ];
    for take in takes {
        server.query("UPDATE leasehold_lock SET tokens=8; UPDATE leasehold_fence SET tokens=8");
        take().unwrap();
        assert_eq!((tokens("lock"), tokens("fence")), (1, 1));
    }
}

/// A transaction moves money while the lease of the first holder has ended.
#[test]
fn money_is_moved_once() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    server.query(
        "CREATE TABLE account (id INT PRIMARY KEY, balance INT) ENGINE=InnoDB; INSERT INTO account VALUES (1,100),(2,0)",
    );
    let pay = |db: &mut Client, fence: &TransactionFence| {
        fenced(db, fence)?;
        db.query("UPDATE account SET balance=balance-30 WHERE id=1 AND balance>=30")?;
        db.query("UPDATE account SET balance=balance+30 WHERE id=2")?;
        db.query("COMMIT").map(drop)
    };
    let (first, mut one, mut two) = (a.lock("pay").unwrap(), server.connect(), server.connect());
    let late = first.fence_sql().unwrap();
    expire(&server, "pay");
    let second = b.lock("pay").unwrap();
    pay(&mut two, &second.fence_sql().unwrap()).unwrap();
    assert_eq!(pay(&mut one, &late).unwrap_err().code, 1644);
    one.query("ROLLBACK").unwrap();
    assert_eq!(server.number_of("SELECT balance FROM account WHERE id=2"), 30);
}

/// A multi-lock waits for the name that it cannot have, neither for its own hold of another one nor
/// in the queue of one that is free.
#[test]
fn a_multi_lock_waits_for_the_name_whose_row_or_fence_is_locked() {
    let server = Mysql::shared();
    let (a, b) = clients(&server);
    let waiting = || wait_until("it waits", || b.stats().waiting() == 1);
    let mut db = server.connect();
    for last in ["fenced", "locked"] {
        let both = |own: bool| {
            let own = own.then(|| b.lock("a").unwrap());
            let both = b.multi(["a", last]).try_lock_for(CAP).unwrap();
            both.expect("the transaction has ended long before").unlock().unwrap();
            drop(own);
        };
        for own in [true, false] {
            let guard = a.lock(last).unwrap();
            if last == "fenced" {
                fenced(&mut db, &guard.fence_sql().unwrap()).unwrap();
                guard.unlock().unwrap();
            } else {
                guard.unlock().unwrap();
                let row = "SELECT name FROM leasehold_lock WHERE name='locked' FOR UPDATE";
                db.query(&format!("START TRANSACTION; {row}")).unwrap();
            }
            std::thread::scope(|s| {
                let waits = s.spawn(|| both(own));
                waiting();
                if !own {
                    let free = b.try_lock_for("a", ms(3000)).unwrap();
                    free.expect("nobody has it").unlock().unwrap();
                }
                db.query("COMMIT").unwrap();
                waits.join().unwrap();
            });
        }
    }
}

/// Nobody has looked at the hold: its thread does not wait for it.
#[test]
fn a_multi_lock_that_is_only_entered_once_more_never_waits() {
    let server = Mysql::shared();
    let (_, b) = clients(&server);
    let both = b.multi(["a", "z"]);
    let guard = both.lock().unwrap();
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT name FROM leasehold_lock WHERE name='z' FOR UPDATE")
        .unwrap();
    let error = both.try_lock_for(CAP).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
    let error = b.multi(["a", "free", "z"]).try_lock_for(CAP).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
    assert!(guard.is_held());
    db.query("COMMIT").unwrap();
    both.lock().unwrap().unlock().unwrap();
    guard.unlock().unwrap();
}
