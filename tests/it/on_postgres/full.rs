//! Servers without disk space or connections, and servers that refuse writes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, POSTGRES_SCHEMA};

use super::{server, wait_for_a_renewal};
use crate::rig::Postgres;
use crate::rig::{CAP, fresh_dir, ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

/// A small file system of its own, which is unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if this process may not mount one, which has been reported.
    fn mount(size: &str) -> Option<Self> {
        let dir = fresh_dir();
        let options = format!("size={size},mode=777");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&dir).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir));
        }
        crate::rig::cannot_run(
            "a disk that is full needs the right to mount a tmpfs, which root has",
        );
        let _ = std::fs::remove_dir(&dir);
        None
    }

    fn fill(&self) {
        let mut size = 32 << 20;
        // Until there is no space for even one more page.
        while size >= 4096 {
            let path = self.0.join(format!("filler-{size}"));
            // The part that was written stays.
            let _ = std::fs::write(&path, vec![1; size]);
            size /= 2;
        }
    }

    fn empty(&self) {
        for entry in std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server that is being stopped may still have files open.
        for _ in 0..50 {
            if Command::new("umount")
                .arg(&self.0)
                .output()
                .is_ok_and(|output| output.status.success())
            {
                break;
            }
            std::thread::sleep(ms(20));
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The tables are on a full disk: a new name is refused, and names that have a row continue to
/// work.
#[test]
fn a_full_disk_takes_no_new_lock_and_loses_none() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    // Declared after the disk, so that it ends before the disk is unmounted.
    let server = server!(Postgres::start());
    let space = disk.0.join("space");
    std::fs::create_dir(&space).unwrap();
    server.own(&space);
    server.run_sql(leasehold::POSTGRES_SCHEMA);
    let mut db = server.connect();
    db.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display())).unwrap();
    for table in ["lock", "share", "waiter", "once"] {
        db.batch_execute(&format!("ALTER TABLE leasehold.{table} SET TABLESPACE small")).unwrap();
        db.batch_execute(&format!("ALTER INDEX leasehold.{table}_pkey SET TABLESPACE small"))
            .unwrap();
    }
    drop(db);
    let client = server.builder().lease(ms(12_000)).io_timeout(ms(5000)).build().unwrap();
    let other = server.client();
    let held = client.lock("held").unwrap();
    let fair = client.fair("fair").lock().unwrap();
    let read = client.rw_lock("rw").read().unwrap();
    client.semaphore("permits").try_set_permits(2).unwrap();
    let permit = client.semaphore("permits").acquire().unwrap();
    client.latch("latch").set_count(2).unwrap();
    let crowd = server.builder().connections(1).lease(LONG).build().unwrap();
    for n in 0..6 {
        crowd.lock(format!("old-{n}")).unwrap().unlock().unwrap();
    }
    disk.fill();
    // New names use up the space that is left in their pages.
    let mut names =
        (0..100_000).map(|n| format!("a new name that is long, to take up room: {n:0200}"));
    let refused = names.find_map(|name| other.try_lock(&name).err()).expect("the disk is full");
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused:?}");
    let late = names.next().unwrap();
    // Occasionally one uses the space of another that was rolled back.
    let full = |kind: &str, ask: &dyn Fn(&str) -> leasehold::Result<bool>| {
        let refused = (0..200)
            .find_map(|n| ask(&format!("{late} {kind} {n}")).err())
            .expect("there is no room");
        assert_eq!(refused.kind(), ErrorKind::Full, "{kind}: {refused:?}");
    };
    full("plain", &|name| other.try_lock(name).map(|won| won.is_some()));
    full("fair", &|name| other.fair(name).try_lock().map(|won| won.is_some()));
    full("write", &|name| other.rw_lock(name).try_write().map(|won| won.is_some()));
    full("multi", &|name| other.multi([name, "free"]).try_lock().map(|won| won.is_some()));
    full("latch", &|name| other.latch(name).try_set_count(1));
    // Requests that are sent together are refused one by one.
    let refused = AtomicU32::new(0);
    std::thread::scope(|s| {
        for n in 0..6 {
            let (crowd, late, refused) = (&crowd, &late, &refused);
            s.spawn(move || {
                for _ in 0..10 {
                    crowd.lock(format!("old-{n}")).unwrap().unlock().unwrap();
                }
            });
            s.spawn(move || {
                for turn in 0..10 {
                    if let Err(error) = crowd.try_lock(format!("{late} {n} {turn}")) {
                        assert_eq!(error.kind(), ErrorKind::Full, "{error:?}");
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(refused.into_inner() > 0);
    // Names that have a row still work: they are renewed, released and acquired again.
    wait_for_a_renewal(&server, "held");
    assert!(fair.is_held() && read.is_held() && permit.is_held());
    held.unlock().unwrap();
    other.lock("held").unwrap().unlock().unwrap();
    fair.unlock().unwrap();
    read.unlock().unwrap();
    permit.release().unwrap();
    disk.empty();
    assert!(other.try_lock(&late).unwrap().is_some(), "there is room again");
    let permit = client.semaphore("permits").acquire_many(2).expect("all are free");
    permit.release().unwrap();
    assert_eq!(client.latch("latch").count_down().unwrap(), 1, "what was refused did not count");
    drop((client, other, crowd));
    server.assert_clean();
    drop(server);
}

/// There is no space for the write-ahead log: the server crashes, and restarts when there is space.
/// Everything that was granted still exists.
#[test]
fn a_server_that_crashes_on_a_full_disk_forgets_no_lock() {
    let Some(disk) = SmallDisk::mount("40m") else { return };
    let server =
        server!(Postgres::prepare("min_wal_size = 32MB\nmax_wal_size = 32MB\nwal_recycle = off"));
    let (log, elsewhere) = (server.data().join("pg_wal"), disk.0.join("pg_wal"));
    let copied = Command::new("cp").arg("-a").args([&log, &elsewhere]).status().unwrap();
    assert!(copied.success());
    std::fs::remove_dir_all(&log).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
    server.run();
    server.run_sql(leasehold::POSTGRES_SCHEMA);
    // Its record would stay for a lease if it was written when the server crashed.
    let builder = server.builder().lease(LONG).announce_owner(false);
    let client = builder.io_timeout(ms(1500)).build().unwrap();
    disk.fill();
    let (mut granted, mut db) = (Vec::new(), server.connect());
    let error = (0..500).find_map(|n| {
        match client.mutex(format!("held-{n}")).lock_owned() {
            Ok(guard) => granted.push((n, guard)),
            Err(error) => return Some(error),
        }
        if n % 20 == 19 {
            // The next segment of the log needs 16 MB.
            let _ = db.batch_execute("SELECT pg_switch_wal()");
        }
        None
    });
    let error = error.expect("the disk is full");
    let kinds = [ErrorKind::Full, ErrorKind::Unreachable, ErrorKind::NotReady];
    assert!(kinds.contains(&error.kind()) && !granted.is_empty(), "{error:?}");
    drop(db);
    disk.empty();
    wait_until("it works again", || {
        // It could not restart by itself while the disk was full.
        if !server.runs() {
            server.run();
        }
        client.try_lock("other").is_ok_and(|won| won.is_some())
    });
    let held = server.held();
    for (n, guard) in granted {
        assert!(held.contains(&format!("held-{n}")), "held-{n} is forgotten");
        guard.unlock().unwrap();
    }
    drop(client);
    server.assert_clean();
    drop(server);
}

/// `default_transaction_read_only` of the database, of the role, or of the session.
#[test]
fn a_database_that_is_read_only_is_told_as_that() {
    let server = server!(Postgres::start());
    let client = server.builder().lease(ms(4000)).io_timeout(ms(3000)).build().unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    let kind = |outcome: leasehold::Result<LockClient>| outcome.unwrap_err().kind();
    let options = server.url() + "&options=-c%20default_transaction_read_only%3Don";
    assert_eq!(kind(LockClient::open(&options)), ErrorKind::ReadOnly);
    let other = server.url() + "&options=-c%20no_such_setting%3D1";
    assert!(LockClient::open(&other).is_err(), "it is sent to the server");
    for whose in ["DATABASE postgres", "ROLE leasehold"] {
        let guard = client.lock("k").unwrap();
        server.run_sql(&format!("ALTER {whose} SET default_transaction_read_only = on"));
        let error = LockClient::open(&server.url()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{whose}: {error:?}");
        assert!(error.to_string().contains("read-only"), "{error}");
        // The existing connections continue to work.
        wait_for_a_renewal(&server, "k");
        server.end_backends();
        assert_eq!(client.try_lock("other").unwrap_err().kind(), ErrorKind::ReadOnly, "{whose}");
        // A call that begins to wait is refused too; one that already waits continues.
        assert!(guard.wait_lost(CAP).is_lost(), "{whose}: nobody renews it");
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
        let mut db = server.connect();
        db.batch_execute("SET default_transaction_read_only = off").unwrap();
        db.batch_execute(&format!("ALTER {whose} RESET default_transaction_read_only")).unwrap();
        wait_until("it takes writes again", || {
            client.try_lock("other").is_ok_and(|won| won.is_some())
        });
    }
    drop(client);
    server.assert_clean();
}

/// A waiter continues although its connections end while the server has no room for others.
#[test]
fn a_waiter_rides_out_a_server_without_room_for_it() {
    let server =
        server!(Postgres::start_with("max_connections = 14\nsuperuser_reserved_connections = 8"));
    // Installed by the superuser: it does not use what belongs to a role with fewer rights.
    server.run_sql(&format!(
        "{POSTGRES_SCHEMA}; CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO app; \
         GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO app; GRANT ALL ON ALL SEQUENCES IN SCHEMA leasehold TO app"
    ));
    let url = server.url().replace("leasehold@", "app@");
    let client = LockClient::builder()
        .url(&url)
        .lease(LONG)
        .io_timeout(ms(1000))
        .connections(1)
        .build()
        .unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    // By a role that may use the reserved connections.
    let holder = server.builder().lease(LONG).connections(1).build().unwrap();
    let guard = holder.lock("k").unwrap();
    /// Also when an assertion fails: otherwise the other threads would continue forever.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let over = AtomicBool::new(false);
    // One connection for all queries: each closed connection leaves room, which the waiter may be
    // the first to use.
    let mut admin = server.connect();
    std::thread::scope(|s| {
        let ends = Ends(&over);
        let waits = s.spawn(|| client.lock("k").map(|guard| guard.is_held()));
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        let fills = s.spawn(|| {
            let mut others = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let mut config = postgres::Config::new();
                config
                    .host_path(server.dir())
                    .user("app")
                    .dbname("postgres")
                    .application_name("filler");
                match config.connect(postgres::NoTls) {
                    Ok(other) => others.push(other),
                    Err(_) => std::thread::sleep(ms(5)),
                }
            }
        });
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE usename = 'app' AND application_name <> 'filler'";
        wait_until("there is no room for it", || {
            admin.batch_execute(end).unwrap();
            std::thread::sleep(ms(20));
            let there = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND application_name <> 'filler'";
            admin.query_one(there, &[]).unwrap().get::<_, i64>(0) == 0
        });
        // A connection that has just ended may leave room for a moment.
        wait_until("there is no room for a new client", || {
            LockClient::open(&url).is_err_and(|e| e.kind() == ErrorKind::NotReady)
        });
        guard.unlock().unwrap();
        // Mostly it is unreachable now: except if it was faster than the others.
        std::thread::sleep(ms(300));
        drop(ends);
        fills.join().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    drop((client, holder, admin));
    server.assert_clean();
}
