//! Server faults that affect its clients: ended backends, restarts, crashes, suspension, failover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use super::{server, url_of_both, wait_for_a_renewal};
use crate::rig::Postgres;
use crate::rig::{CAP, Fault, PROMPT, Proxy, ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

/// A waiting call repeats its request after the loss under the same holder id: it gets the lock,
/// exactly once.
#[test]
fn a_waiter_whose_reply_is_lost_gets_in() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client =
        LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(9000)).build().unwrap();
    let direct = server.client();
    for fault in
        [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::Garbage, Fault::CutReplyAt(20)]
    {
        for fair in [false, true] {
            let guard = direct.lock("k").unwrap();
            std::thread::scope(|s| {
                let waits = s.spawn(|| {
                    if !fair {
                        drop(client.lock("k").unwrap());
                    } else {
                        drop(client.fair("k").lock().unwrap());
                    }
                });
                let (waiters, wanted) =
                    ("leasehold.waiter", "leasehold.lock WHERE wants IS NOT NULL");
                let sql = format!("SELECT count(*) FROM {}", if fair { waiters } else { wanted });
                wait_until("it waits", || server.number_of(&sql) > 0);
                // The attempt that follows the release.
                proxy.inject("k", fault);
                guard.unlock().unwrap();
                waits.join().unwrap();
            });
            proxy.disarm();
            wait_until("nothing is held", || server.held().is_empty());
            server.run_sql("UPDATE leasehold.lock SET wants = NULL");
        }
    }
    drop((client, direct, proxy));
    server.assert_clean();
}

/// Backends are ended while they are idle, while they wait for a row, and with the process id of
/// another one.
#[test]
fn ended_backends_are_replaced() {
    let server = server!();
    let client = server.builder().lease(ms(6000)).io_timeout(ms(4000)).build().unwrap();
    let guard = client.lock("kept").unwrap();
    for _ in 0..3 {
        server.end_backends();
        client.lock("k").unwrap().unlock().unwrap();
        wait_for_a_renewal(&server, "kept");
        assert!(guard.is_held());
    }
    guard.unlock().unwrap();
    // Whoever hears nothing asks again after a lease.
    let guard = client.mutex("kept").with_lease(LONG).lock().unwrap();
    // The listener is ended too: the waiter is notified of the release nevertheless.
    std::thread::scope(|s| {
        let waits =
            s.spawn(|| server.builder().build().unwrap().lock("kept").unwrap().unlock().unwrap());
        let waits_now = "SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL";
        wait_until("it waits", || server.number_of(waits_now) > 0);
        wait_until("it listens", || server.listeners() > 0);
        server.end_backends();
        wait_until("it listens again", || server.listeners() > 0);
        let start = Instant::now();
        guard.unlock().unwrap();
        waits.join().unwrap();
        assert!(start.elapsed() < PROMPT);
    });
    drop(client);
    server.assert_clean();
}

#[test]
fn locks_outlive_a_restart_and_a_crash() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(LONG).build().unwrap();
    let guard = client.lock("kept").unwrap();
    let permit = {
        client.semaphore("pool").try_set_permits(1).unwrap();
        client.semaphore("pool").acquire().unwrap()
    };
    for mode in ["fast", "immediate"] {
        server.stop(mode);
        let error = client.try_lock("other").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NotReady), "{error:?}");
        server.run();
        wait_until("it works again", || client.try_lock("other").is_ok());
        wait_until("the holder is served", || guard.extend(LONG).is_ok());
        let other = server.client();
        assert!(
            other.try_lock("kept").unwrap().is_none()
                && other.semaphore("pool").try_acquire().unwrap().is_none()
        );
    }
    // One backend crashes, and the server ends all others.
    let (mut victim, mut bystander) = (server.connect(), server.connect());
    let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    crate::rig::signal(u32::try_from(pid).unwrap(), "KILL");
    wait_until("all backends end", || bystander.batch_execute("SELECT").is_err());
    wait_until("it works again", || client.try_lock("other").is_ok_and(|won| won.is_some()));
    wait_until("the holder is served", || guard.extend(LONG).is_ok());
    guard.unlock().unwrap();
    permit.release().unwrap();
    drop(client);
    server.assert_clean();
}

/// A waiter continues through a restart; the data are kept, so the holder keeps its lock.
#[test]
fn a_waiter_rides_out_a_restart() {
    let server = server!(Postgres::start());
    let (a, b) = (
        server.builder().lease(LONG).build().unwrap(),
        server.builder().lease(LONG).build().unwrap(),
    );
    let guard = a.lock("k").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.lock("k").map(|guard| guard.is_held()));
        let waits_now = "SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL";
        wait_until("it waits", || server.number_of(waits_now) > 0);
        server.stop("immediate");
        server.run();
        assert!(guard.is_held());
        wait_until("the holder is served", || guard.extend(LONG).is_ok());
        guard.unlock().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    drop((a, b));
    server.assert_clean();
}

/// The lease ends by the clock of the holder, and the late effect of its requests does not count.
#[test]
fn a_suspended_server_costs_the_lease_and_nothing_stays() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(ms(2400)).io_timeout(ms(1500)).build().unwrap();
    let guard = client.lock("k").unwrap();
    server.suspend();
    let error = client.try_lock("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(guard.wait_lost(CAP).is_lost() && !guard.is_held());
    server.resume();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("nothing is held", || server.held().is_empty());
    wait_until("it works again", || client.try_lock("other").is_ok_and(|won| won.is_some()));
    drop(client);
    server.assert_clean();
}

/// Each connection is refused, then accepted again: too many connections, starting up.
#[test]
fn a_server_that_is_full_is_ridden_out() {
    let server =
        server!(Postgres::start_with("max_connections = 8\nsuperuser_reserved_connections = 1"));
    server.run_sql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url().replace("leasehold@", "app@");
    let client =
        LockClient::builder().url(&url).lease(ms(9000)).io_timeout(ms(6000)).connections(2);
    let client = client.build().unwrap();
    let guard = client.lock("k").unwrap();
    wait_until("it has been renewed", || server.backends() >= 2);
    let mut admin = server.connect();
    let mut others = Vec::new();
    // A backend that has just ended may leave room for a moment.
    wait_until("it is full", || {
        others.extend(std::iter::from_fn(|| {
            let mut config = postgres::Config::new();
            config.host_path(server.dir()).user("app").dbname("postgres");
            config.connect(postgres::NoTls).ok()
        }));
        LockClient::open(&url).is_err_and(|e| e.kind() == ErrorKind::NotReady)
    });
    let mut ends = || -> i64 {
        let sql = "SELECT (extract(epoch FROM ends) * 1000000)::bigint FROM leasehold.lock";
        admin.query_one(&format!("{sql} WHERE name = 'k'"), &[]).unwrap().get(0)
    };
    let before = ends();
    wait_until("its connections still work", || ends() > before);
    drop((admin, others));
    wait_until("a new client is served", || LockClient::open(&url).is_ok());
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

/// With an asynchronous standby a failover may forget the last grants, and nothing else.
#[test]
fn a_promoted_standby_goes_on() {
    let primary = server!(Postgres::start_with("wal_level = replica"));
    drop(primary.client());
    let standby = primary.standby("hot_standby = on");
    standby.run();
    let both = url_of_both(&standby, &primary);
    let client = LockClient::builder().url(&both).lease(ms(20_000)).io_timeout(ms(3000));
    let client = client.build().unwrap();
    let only = LockClient::open(&standby.url()).unwrap_err();
    assert_eq!(only.kind(), ErrorKind::ReadOnly, "{only:?}");

    let kept = client.lock("kept").unwrap();
    let token = kept.fencing_token().unwrap();
    wait_until("the standby has it", || standby.held().contains(&"kept".to_owned()));
    primary.stop("immediate");
    standby.promote();
    wait_until("the hold is renewed there", || {
        client.try_lock("other").is_ok_and(|won| won.is_some())
    });
    // What the standby had is respected.
    wait_for_a_renewal(&standby, "kept");
    assert!(kept.is_held());
    let other = standby.client();
    assert!(other.try_lock("kept").unwrap().is_none());
    kept.unlock().unwrap();
    assert!(other.try_lock("kept").unwrap().unwrap().fencing_token().unwrap() > token);

    // A hold that the standby did not have is reported as lost.
    let forgotten = client.lock("forgotten").unwrap();
    let token = forgotten.fencing_token().unwrap();
    standby.run_sql("DELETE FROM leasehold.lock WHERE name = 'forgotten'");
    assert!(forgotten.wait_lost(CAP).is_lost());
    assert!(other.try_lock("forgotten").unwrap().unwrap().fencing_token().unwrap() > token);
    drop((forgotten, client, other));
    standby.assert_clean();
}

/// A synchronous standby is missing: the commit waits, our I/O timeout does not, and nothing is
/// left.
#[test]
fn a_synchronous_standby_that_is_away_leaves_nothing() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(LONG).io_timeout(ms(1500)).build().unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    server.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.run_sql("SELECT pg_reload_conf()");
    wait_until("commits wait", || {
        client.try_lock("k").is_err_and(|e| e.kind() == ErrorKind::Unreachable)
    });
    let held =
        "SELECT count(*) FROM leasehold.lock WHERE holder IS NOT NULL AND ends > clock_timestamp()";
    wait_until("it was taken back", || server.number_of(held) == 0);
    let mut db = server.connect();
    let reset = [
        "SET synchronous_commit = off",
        "ALTER SYSTEM RESET synchronous_standby_names",
        "SELECT pg_reload_conf()",
    ];
    for sql in &reset {
        db.batch_execute(sql).unwrap();
    }
    wait_until("it works again", || client.try_lock("k").is_ok_and(|won| won.is_some()));
    drop((client, db));
    server.assert_clean();
}

/// The wait of a commit for the standby is cancelled, as by a DBA: the standby may not have the
/// grant, so it is none.
#[test]
fn a_commit_whose_wait_for_the_standby_is_cancelled_grants_nothing() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(LONG).io_timeout(ms(20_000)).build().unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    server.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.run_sql("SELECT pg_reload_conf()");
    let probe = server.builder().io_timeout(ms(1500)).build().unwrap();
    wait_until("commits wait", || {
        probe.try_lock("probe").is_err_and(|e| e.kind() == ErrorKind::Unreachable)
    });
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    std::thread::scope(|s| {
        let call = s.spawn(|| client.try_lock("k").map(|won| won.is_some()));
        wait_until("its wait was cancelled", || {
            server.number_of(cancel);
            call.is_finished()
        });
        assert_eq!(call.join().unwrap().unwrap_err().kind(), ErrorKind::NotReplicated);
    });
    wait_until("it was taken back", || !server.held().contains(&"k".to_owned()));
    let mut db = server.connect();
    db.batch_execute("SET synchronous_commit = off").unwrap();
    db.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    db.batch_execute("SELECT pg_reload_conf()").unwrap();
    wait_until("it works again", || client.try_lock("k").is_ok_and(|won| won.is_some()));
    drop((client, probe, db));
    server.assert_clean();
}

/// Only the lock protects the counter, while backends end all the time.
#[test]
fn a_counter_stays_exact_while_backends_are_ended() {
    let server = server!();
    server.run_sql("CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)");
    let over = AtomicBool::new(false);
    let clients = [server.client(), server.client()];
    let counted: u32 = std::thread::scope(|s| {
        s.spawn(|| {
            let (mut killer, start) = (server.connect(), Instant::now());
            while !over.load(Ordering::SeqCst) && start.elapsed() < LONG {
                // Not those of the counter's own connections.
                let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                            WHERE datname = current_database() AND application_name = 'leasehold' AND random() < 0.3";
                killer.execute(kill, &[]).unwrap();
                std::thread::sleep(ms(40));
            }
        });
        let workers: Vec<_> = (0..6)
            .map(|n| {
                let (client, server) = (clients[n % 2].clone(), &server);
                s.spawn(move || {
                    let (mut db, mut done) = (server.connect(), 0);
                    for turn in 0.. {
                        if done == 25 {
                            break;
                        }
                        let guard = match (n + turn) % 3 {
                            0 => client.mutex("k").lock_owned().map(drop_after),
                            1 => client.fair("k").lock_owned().map(drop_after),
                            _ => client.multi(["k", "l"]).lock_owned().map(drop_after),
                        };
                        let Ok(guard) = guard else { continue };
                        let n: i64 = db.query_one("SELECT n FROM counter", &[]).unwrap().get(0);
                        db.execute("UPDATE counter SET n = $1", &[&(n + 1)]).unwrap();
                        done += 1;
                        drop(guard);
                    }
                    done
                })
            })
            .collect();
        let counted = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        over.store(true, Ordering::SeqCst);
        counted
    });
    assert_eq!(server.number_of("SELECT n FROM counter"), i64::from(counted));
    drop(clients);
    server.assert_clean();
}

fn drop_after<G: Send + 'static>(guard: G) -> Box<dyn std::any::Any> {
    Box::new(guard)
}
