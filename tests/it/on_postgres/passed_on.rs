//! Holds that several threads of a client have, one after another or at the same time, when the
//! database loses them or a reply about them.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient, OwnedRwLockReadGuard, RwLock};

use super::server;
use crate::rig::Postgres;
use crate::rig::{CAP, Child, Fault, Proxy, ms, wait_for, wait_until};
use crate::support::Clients;
use crate::turns::{in_a_passed_turn, in_the_middle_of_a_block};

const NAME: &str = "job";
const READERS: usize = 6;

fn readers(server: &Postgres) -> i64 {
    server.number_of("SELECT count(*) FROM leasehold.share WHERE ends > clock_timestamp()")
}

/// Guards that share one hold: retries until they begin close enough together.
fn shared(lock: &RwLock, server: &Postgres) -> Vec<OwnedRwLockReadGuard> {
    let mut guards = Vec::new();
    wait_until("all of them have one hold", || {
        guards.clear();
        guards.extend((0..READERS).map(|_| lock.read_owned().unwrap()));
        readers(server) == 1
    });
    guards
}

/// Simulates a failover that has forgotten the last grants.
fn forget(server: &Postgres) {
    server
        .run_sql("DELETE FROM leasehold.share; UPDATE leasehold.lock SET holder = NULL, level = 0");
}

#[test]
fn all_readers_of_a_hold_learn_that_it_is_lost() {
    let server = server!();
    let client = server.builder().lease(ms(6000)).io_timeout(ms(4000)).build().unwrap();
    let other = server.client();
    let lock = client.rw_lock(NAME);
    let lose: [&dyn Fn(); 4] = [
        &|| assert!(other.rw_lock(NAME).force_unlock().unwrap()),
        &|| assert!(lock.force_unlock().unwrap()),
        &|| forget(&server),
        &|| {
            // Its lease is over by the server's clock.
            server.run_sql("UPDATE leasehold.share SET ends = now() - interval '1 s'");
        },
    ];
    for lose in lose {
        let guards = shared(&lock, &server);
        let (tell, told) = channel();
        for guard in &guards {
            let tell = tell.clone();
            guard.on_lost(move |_| tell.send(()).unwrap());
        }
        lose();
        let write = other.rw_lock(NAME).try_write().unwrap().expect("free");
        assert!(guards.iter().all(|guard| guard.wait_lost(CAP).is_lost()));
        for _ in &guards {
            told.recv_timeout(CAP).unwrap();
        }
        assert!(lock.try_read().unwrap().is_none(), "nobody joins the lost hold");
        assert!(
            guards.into_iter().all(|guard| guard.unlock().unwrap_err().kind() == ErrorKind::Lost)
        );
        wait_until("what was lost is undone, and not the writer", || server.held() == [NAME]);
        assert_eq!(readers(&server), 0);
        write.unlock().unwrap();
    }
    drop((lock, client, other));
    server.assert_clean();
}

/// A member whose request meets a fault does not cause a loss for the other members of its hold.
#[test]
fn a_shared_hold_outlives_faults_and_its_last_release_may_be_lost() {
    let server = server!(Postgres::start());
    let proxy = Proxy::before_postgres(&server);
    let url = proxy.url();
    let client =
        LockClient::builder().url(url).lease(ms(20_000)).io_timeout(ms(6000)).build().unwrap();
    let (lock, other) = (client.rw_lock(NAME), server.client());
    for fault in
        [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(20), Fault::BlackHoleReply]
    {
        let mut guards = shared(&lock, &server);
        server.end_backends();
        server.stop("immediate");
        server.run();
        wait_until("it works again", || guards[0].extend(ms(20_000)).is_ok());
        assert!(
            guards.iter().all(OwnedRwLockReadGuard::is_held) && readers(&server) == 1,
            "{fault:?}"
        );
        let last = guards.pop().unwrap();
        for guard in guards {
            guard.unlock().unwrap();
        }
        assert!(last.is_held() && other.rw_lock(NAME).try_write().unwrap().is_none());
        proxy.inject(NAME, fault);
        if let Err(error) = last.unlock() {
            assert!(
                matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                "{fault:?}: {error:?}"
            );
        }
        wait_until("it is undone", || server.held().is_empty());
        proxy.disarm();
        other.rw_lock(NAME).try_write().unwrap().expect("free").unlock().unwrap();
    }
    drop((lock, client, other, proxy));
    server.assert_clean();
}

#[test]
fn nobody_joins_a_hold_of_a_suspended_server() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(ms(2400)).io_timeout(ms(1500)).build().unwrap();
    let lock = client.rw_lock(NAME);
    let guards = shared(&lock, &server);
    server.suspend();
    assert!(
        guards.iter().all(|guard| guard.wait_lost(CAP).is_lost() && guard.remaining().is_zero())
    );
    assert_eq!(lock.try_read().unwrap_err().kind(), ErrorKind::Unreachable);
    server.resume();
    for guard in guards {
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    }
    wait_until("it is undone", || server.held().is_empty());
    drop((lock, client));
    server.assert_clean();
}

#[test]
fn a_run_of_turns_outlives_backends_and_its_last_release_may_be_lost() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client = LockClient::builder()
        .url(proxy.url())
        .lease(ms(20_000))
        .io_timeout(ms(6000))
        .build()
        .unwrap();
    for _ in 0..5 {
        let errors = in_a_passed_turn(&client, |guard| {
            server.end_backends();
            assert!(guard.is_held());
            proxy.cut_all();
            drop(guard);
        });
        assert!(errors.iter().all(|kind| *kind == ErrorKind::Unreachable), "{errors:?}");
        wait_until("it is undone", || server.held().is_empty());
        drop(server.client().try_lock(NAME).unwrap().expect("free"));
    }
    drop((client, proxy));
    server.assert_clean();
}

/// It fences like the first token of the block: nobody gets the lock before the transaction ends,
/// and a turn that was lost is refused.
#[test]
fn a_turn_fences_with_a_token_of_its_block() {
    let server = server!();
    let (client, other) = (server.client(), server.client());
    let filled = |fence: &TransactionFence, sql: &str| {
        sql.replace("$1", &format!("'{}'", fence.name())).replace("$2", &fence.token().to_string())
    };
    for lost in [false, true] {
        let db = Mutex::new(server.connect());
        let inside = "SELECT count(*) FROM leasehold.lock WHERE $1 > token - tokens AND $1 < token";
        let is_inside = |token: i64| {
            db.lock().unwrap().query_one(inside, &[&token]).unwrap().get::<_, i64>(0) == 1
        };
        let errors = in_the_middle_of_a_block(&client, is_inside, |guard| {
            let fence = guard.fence_sql().unwrap();
            assert_eq!(fence.token(), guard.fencing_token().unwrap());
            let mut db = server.connect();
            if lost {
                forget(&server);
                let next = other.try_lock(NAME).unwrap().expect("free");
                for sql in [fence.sql(), fence.sql_at_commit()] {
                    let error = db.execute(&filled(&fence, sql), &[]).unwrap_err();
                    assert_eq!(error.code().unwrap().code(), TransactionFence::STALE, "{sql}");
                }
                drop((next, guard));
                return;
            }
            db.execute(&filled(&fence, fence.sql_at_commit()), &[]).expect("it holds the lock");
            let mut transaction = db.transaction().unwrap();
            transaction.execute(&filled(&fence, fence.sql()), &[]).expect("it holds the lock");
            guard.unlock().unwrap();
            let is_free = || other.try_lock(NAME).unwrap().is_some();
            let mine = || {
                std::thread::scope(|s| {
                    s.spawn(|| client.try_lock(NAME).unwrap().is_some()).join().unwrap()
                })
            };
            assert!(
                !is_free() && !mine(),
                "the transaction is open, and other threads of the client wait"
            );
            transaction.commit().unwrap();
        });
        assert!(errors.iter().all(|kind| lost && *kind == ErrorKind::Lost), "{errors:?}");
        wait_until("nothing is held", || server.held().is_empty());
    }
    drop((client, other));
    server.assert_clean();
}

/// Over turns of two clients, while backends end.
#[test]
fn tokens_grow_over_all_turns() {
    const TURNS: usize = 150;
    let server = server!();
    let clients = [server.client(), server.client()];
    let tokens = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let (client, tokens) = (&clients[n % 2], &tokens);
                s.spawn(move || {
                    let mut done = 0;
                    while done < TURNS {
                        let Ok(guard) = client.lock(NAME) else { continue };
                        tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                        done += 1;
                        // Its reply may be lost.
                        let _ = guard.unlock();
                    }
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(ms(100));
            server.run_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'leasehold' AND random() < 0.2",
            );
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 8 * TURNS);
    assert!(tokens.is_sorted_by(|a, b| a < b));
    wait_until("nothing is held", || server.held().is_empty());
    let next = clients[0].lock(NAME).unwrap();
    assert!(next.fencing_token().unwrap() > *tokens.last().unwrap());
    drop(next);
    drop(clients);
    server.assert_clean();
}

/// In the middle of a run, or with a hold that its threads share.
#[test]
fn a_process_that_dies_or_stops_keeps_others_out_for_a_lease() {
    let server = server!();
    let client = server.client();
    for (program, ready) in
        [("turns::turning_process", "turning"), ("shared_reads::reading_process", "reading")]
    {
        let name = if ready == "turning" { NAME } else { "config" };
        for stopped in [false, true] {
            let mut child = Child::spawn(program, &[("LEASEHOLD_TEST_URL", &server.url())]);
            child.expect(ready);
            if stopped {
                child.signal("STOP");
            } else {
                child.kill();
            }
            let token = server.number_of("SELECT coalesce(max(token), 0) FROM leasehold.lock");
            if ready == "turning" {
                let guard =
                    client.try_lock_for(name, ms(600) + CAP / 2).unwrap().expect("its lease ended");
                assert!(
                    guard.fencing_token().unwrap().as_i64() > token,
                    "larger than all that the run has drawn"
                );
                if stopped {
                    child.signal("CONT");
                    std::thread::sleep(ms(700));
                    assert!(guard.is_held(), "late requests of the child affect only its own hold");
                }
                guard.unlock().unwrap();
            } else {
                let guard = client
                    .rw_lock(name)
                    .try_write_for(ms(600) + CAP / 2)
                    .unwrap()
                    .expect("its leases ended");
                if stopped {
                    child.signal("CONT");
                    std::thread::sleep(ms(700));
                    assert!(guard.is_held() && readers(&server) == 0, "nobody joins an ended hold");
                }
                guard.unlock().unwrap();
            }
            if stopped {
                let sql = "SELECT count(*) FROM leasehold.lock WHERE holder IS NOT NULL";
                wait_for(CAP, "it continues", || server.number_of(sql) + readers(&server) > 0);
                child.kill();
            }
        }
    }
    wait_until("the last lease ends", || server.held().is_empty());
    drop(client);
    server.assert_clean();
}
