//! Standbys: synchronous, asynchronous, promoted, and hosts that change roles.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, OwnedMutexGuard};
use parking_lot::Mutex;

use super::{end_the_probe, server, url_of_both, wait_for_a_commit_that_waits};
use crate::rig::Postgres;
use crate::rig::{CAP, ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

fn with_standby(settings: &str) -> (Postgres, Postgres) {
    let primary = Postgres::start_with(&format!("wal_level = replica\n{settings}"));
    primary.run_sql(leasehold::POSTGRES_SCHEMA);
    let standby = primary.standby("hot_standby = on");
    standby.run();
    let streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    wait_until("the standby streams", || primary.number_of(streams) == 1);
    (primary, standby)
}

fn set(server: &Postgres, setting: &str) {
    let mut db = server.connect();
    // The change itself must not wait for a standby.
    db.batch_execute("SET synchronous_commit = off").unwrap();
    db.batch_execute(&format!("ALTER SYSTEM SET {setting}")).unwrap();
    db.batch_execute("SELECT pg_reload_conf()").unwrap();
}

/// After the promotion every grant that was reported exists; one that was not is undone.
#[test]
fn a_synchronous_standby_forgets_nothing() {
    let (primary, standby) = server!(with_standby(""));
    set(&primary, "synchronous_standby_names = '*'");
    let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("it is synchronous", || primary.number_of(sync) == 1);
    let client = LockClient::builder()
        .url(url_of_both(&primary, &standby))
        .lease(LONG)
        .io_timeout(ms(2000))
        .build()
        .unwrap();
    let granted: Mutex<Vec<(String, OwnedMutexGuard)>> = Mutex::default();
    let (over, released) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for thread in 0..6 {
            let (client, granted, released, over) = (&client, &granted, &released, &over);
            s.spawn(move || {
                for n in 0.. {
                    let name = format!("held-{thread}-{n}");
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(Some(guard)) = client.mutex(&name).try_lock_owned() else { continue };
                    // More than a few are kept, but not all.
                    if n % 3 == 0 {
                        granted.lock().push((name, guard));
                    } else {
                        released.lock().push(name);
                        let _ = guard.unlock();
                    }
                }
            });
        }
        wait_until("they take locks", || granted.lock().len() > 60);
        primary.stop("immediate");
        standby.promote();
        let after = client.clone();
        wait_until("it works again", || after.try_lock("other").is_ok_and(|won| won.is_some()));
        over.store(true, Ordering::SeqCst);
    });
    let (granted, released) = (granted.into_inner(), released.into_inner());
    let kept: Vec<&String> = granted.iter().map(|(name, _)| name).collect();
    let is_theirs = |held: &[String]| kept.iter().all(|name| held.contains(*name));
    let held = standby.held();
    assert!(is_theirs(&held), "forgotten: {:?}", kept.iter().find(|name| !held.contains(**name)));
    assert!(granted.iter().all(|(_, guard)| guard.is_held()));
    // Undone there as well: grants that were never reported, and released holds that the crash
    // restored.
    let mine = |name: &String| kept.contains(&name) || released.contains(name);
    wait_until("nothing else is held", || standby.held().iter().all(mine));
    for (name, guard) in granted {
        let token = guard.fencing_token().unwrap();
        guard.unlock().unwrap();
        let again = client.mutex(&name).try_lock_owned().unwrap().expect("free");
        assert!(again.fencing_token().unwrap() > token);
    }
    drop(client);
    // Releases are asynchronous: the crash may have forgotten some, for a lease.
    standby.run_sql("UPDATE leasehold.lock SET ends = now() WHERE name LIKE 'held-%'");
    standby.assert_clean();
}

/// A lock that the standby did not have yet is granted again, with a higher token, and its holder
/// is notified.
#[test]
fn what_an_asynchronous_standby_did_not_have_is_told_as_lost() {
    let (primary, standby) = server!(with_standby(""));
    let client = LockClient::builder()
        .url(url_of_both(&primary, &standby))
        .lease(ms(20_000))
        .io_timeout(ms(3000));
    let client = client.build().unwrap();
    let kept = client.lock("kept").unwrap();
    wait_until("the standby has it", || standby.held().contains(&"kept".to_owned()));
    // From here on it receives nothing.
    standby.run_sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.run_sql("SELECT pg_reload_conf()");
    let streams = "SELECT count(*) FROM pg_stat_replication";
    wait_until("it streams no more", || primary.number_of(streams) == 0);
    let forgotten = client.lock("forgotten").unwrap();
    let token = forgotten.fencing_token().unwrap();
    primary.stop("immediate");
    standby.promote();
    let other = standby.client();
    let next =
        other.try_lock_for("forgotten", CAP).unwrap().expect("the new primary knows nothing of it");
    assert!(next.fencing_token().unwrap() > token, "a fence refuses the forgotten holder");
    assert!(forgotten.wait_lost(CAP).is_lost(), "reported by its next renewal");
    assert!(kept.wait_lost(ms(200)).is_still_held() && other.try_lock("kept").unwrap().is_none());
    next.unlock().unwrap();
    kept.unlock().unwrap();
    drop((forgotten, client, other));
    standby.assert_clean();
}

/// An old primary that goes on beside the new one: some clients could have their locks there.
#[test]
fn two_primaries_of_one_cluster_are_refused() {
    let (primary, standby) = server!(with_standby(""));
    let url = url_of_both(&primary, &standby);
    let client = LockClient::open(&url).unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    drop(client);
    standby.promote();
    wait_until("there are two", || {
        standby.number_of("SELECT pg_is_in_recovery()::int::bigint") == 0
    });
    for url in [url, url_of_both(&standby, &primary)] {
        // The other one is asked for a second.
        let error = (0..5).find_map(|_| LockClient::open(&url).err()).expect("there are two");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(error.to_string().contains("both take writes"), "{error}");
    }
    primary.stop("fast");
    let client = LockClient::open(&url_of_both(&primary, &standby)).unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    drop(client);
    standby.assert_clean();
}

/// Switched over and back: one guard is held all the time, and waiters get in after each switch.
#[test]
fn hosts_change_roles() {
    let (a, b) = server!(with_standby("hot_standby = on"));
    let url = url_of_both(&a, &b);
    let build =
        || LockClient::builder().url(&url).lease(LONG).io_timeout(ms(4000)).build().unwrap();
    let (client, other) = (build(), build());
    let kept = client.lock("kept").unwrap();
    let mut token = kept.fencing_token().unwrap();
    let (mut primary, mut standby) = (&a, &b);
    for round in 0..3 {
        let before = other.lock("turn").unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| client.lock("turn").map(|guard| guard.is_held()));
            // A first attempt without a reply would fail: the client must know that it waits.
            wait_until("it waits", || client.snapshot().waits().len() == 1);
            // All its writes reach the standby before it ends.
            primary.stop("fast");
            standby.promote();
            primary.follow(standby);
            wait_until("the holder is served there", || before.extend(LONG).is_ok());
            before.unlock().unwrap();
            assert!(waits.join().unwrap().unwrap(), "round {round}");
        });
        assert!(kept.is_held(), "round {round}");
        kept.extend(LONG).unwrap();
        assert!(other.try_lock("kept").unwrap().is_none(), "round {round}");
        let next = other.lock("token").unwrap();
        assert!(next.fencing_token().unwrap() > token, "round {round}");
        token = next.fencing_token().unwrap();
        drop(next);
        (primary, standby) = (standby, primary);
        let streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        wait_until("the old primary follows", || primary.number_of(streams) == 1);
    }
    kept.unlock().unwrap();
    drop((client, other));
    primary.assert_clean();
}

/// The commit of a grant waits for a standby that is away. Releases do not, nor do those that are
/// repeated in the background, and nothing that they ask keeps a row locked.
#[test]
fn releases_do_not_wait_for_a_standby_that_is_away() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(LONG).io_timeout(ms(3000)).build().unwrap();
    let guards: Vec<_> =
        (0..6).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    let last = client.mutex("last").lock_owned().unwrap();
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock WHERE name LIKE 'n%' FOR UPDATE", &[]).unwrap();
    set(&server, "synchronous_standby_names = 'nobody'");
    wait_for_a_commit_that_waits(&server);
    let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE wait_event = 'SyncRep' AND application_name <> 'the-probe'";
    std::thread::scope(|s| {
        for guard in guards {
            s.spawn(|| guard.unlock().unwrap_err());
        }
    });
    last.unlock().unwrap();
    transaction.rollback().unwrap();
    wait_until("all are released in the background", || server.held().is_empty());
    assert_eq!(server.number_of(waits), 0);
    set(&server, "synchronous_standby_names = ''");
    end_the_probe(&server);
    drop((client, other));
    server.assert_clean();
}
