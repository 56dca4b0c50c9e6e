//! Requests whose backend is still running: stopped with the request unread, waiting for a row, or
//! gone while an unrelated backend has its process id.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::server;
use crate::rig::Postgres;
use crate::rig::{Fault, Proxy, ms, signal, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

/// The processes that serve the client of this name.
fn backends(server: &Postgres, client: &str) -> Vec<u32> {
    let sql = format!(
        "SELECT pid::text FROM pg_stat_activity WHERE application_name = '{client}' ORDER BY 1"
    );
    server.texts(&sql).iter().map(|pid| pid.parse().unwrap()).collect()
}

/// The only backend of a client with one connection for calls, and none for renewals yet.
fn only_backend(server: &Postgres, client: &str) -> u32 {
    let [backend] = backends(server, client)[..] else { panic!("one connection") };
    backend
}

fn with_one_connection(server: &Postgres) -> LockClient {
    let builder =
        server.builder().client_name("stopped").connections(1).lease(LONG).io_timeout(ms(1500));
    let client = builder.build().unwrap();
    client.lock("warm").unwrap().unlock().unwrap();
    client
}

/// The request is in the socket of a stopped backend. It must not run when the backend resumes.
#[test]
fn a_stopped_backend_with_the_request_unread_takes_nothing() {
    let server = server!(Postgres::start());
    let (client, other) = (with_one_connection(&server), server.client());
    let backend = only_backend(&server, "stopped");
    signal(backend, "STOP");
    assert_eq!(client.try_lock("asleep").unwrap_err().kind(), ErrorKind::Unreachable);
    wait_until("SIGTERM was sent", || pending_term(backend));
    other.try_lock("asleep").unwrap().expect("it is free").unlock().unwrap();
    signal(backend, "CONT");
    wait_until("it has ended", || !backends(&server, "stopped").contains(&backend));
    assert!(server.held().is_empty(), "its request did not run");
    client.lock("asleep").unwrap().unlock().unwrap();
    drop((client, other));
    server.assert_clean();
}

/// A waiter repeats its request, but not while the first one can still run.
#[test]
fn a_waiter_repeats_nothing_until_the_stopped_backend_has_ended() {
    let server = server!(Postgres::start());
    let (client, other) = (with_one_connection(&server), server.client());
    let backend = only_backend(&server, "stopped");
    let guard = other.lock("asleep").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.lock("asleep").map(|guard| guard.is_held()));
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        // It makes one more attempt when it has subscribed.
        std::thread::sleep(ms(100));
        signal(backend, "STOP");
        guard.unlock().unwrap();
        wait_until("SIGTERM was sent", || pending_term(backend));
        std::thread::sleep(ms(200));
        assert!(
            !waits.is_finished() && server.held().is_empty(),
            "an earlier attempt can still run"
        );
        signal(backend, "CONT");
        assert!(waits.join().unwrap().unwrap());
    });
    drop((client, other));
    server.assert_clean();
}

/// Whether SIGTERM has been sent to a process that is stopped.
fn pending_term(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending =
        status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or("0").trim();
    u64::from_str_radix(pending, 16).unwrap() & (1 << 14) != 0
}

/// A request that contains this name.
type Ask<'a> = &'a dyn Fn(&str) -> leasehold::Result<bool>;

/// The backend of a lost request waits for a row that another transaction has locked. It is ended
/// before it gets the row.
#[test]
fn a_request_that_waits_for_a_row_is_ended() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    proxy.keep_backends(true);
    // The backend would wait for a quarter of this.
    let patient = Duration::from_secs(40);
    let builder = LockClient::builder().url(proxy.url()).client_name("patient");
    let client = builder.lease(LONG).io_timeout(patient).build().unwrap();
    // Each has its own name: the undo of one request must not get the fault of the next.
    for name in ["plain lock", "fair lock", "several locks"] {
        client.lock(name).unwrap().unlock().unwrap();
    }
    client.rw_lock("read-write lock").write().unwrap().unlock().unwrap();
    client.semaphore("semaphore").try_set_permits(1).unwrap();
    let kinds: [(&str, Ask<'_>); 5] = [
        ("plain lock", &|name| client.try_lock(name).map(|guard| guard.is_some())),
        ("fair lock", &|name| client.fair(name).try_lock().map(|guard| guard.is_some())),
        ("several locks", &|name| {
            client.multi([name, "more"]).try_lock().map(|guard| guard.is_some())
        }),
        ("read-write lock", &|name| client.rw_lock(name).try_write().map(|guard| guard.is_some())),
        ("semaphore", &|name| client.semaphore(name).try_acquire().map(|guard| guard.is_some())),
    ];
    for (name, ask) in kinds {
        // Shows which backend the next call uses.
        assert!(!client.mutex("warm").is_locked().unwrap());
        let asked = "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'patient' AND query LIKE '%inspect%'";
        let [backend] = &server.texts(asked)[..] else { panic!("one of its backends") };
        let mut other = server.connect();
        let mut transaction = other.transaction().unwrap();
        transaction.execute("SELECT FROM leasehold.lock FOR UPDATE", &[]).unwrap();
        // The whole request arrives, and the client receives nothing more.
        proxy.inject(name, Fault::CutRequestAt(usize::MAX));
        let start = std::time::Instant::now();
        let asked = std::sync::atomic::AtomicBool::new(false);
        let ended = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}");
        std::thread::scope(|s| {
            let commits = s.spawn(|| {
                wait_until("it was ended", || server.number_of(&ended) == 0);
                assert!(start.elapsed() < patient / 4, "not by its own timeout");
                assert!(
                    !asked.load(std::sync::atomic::Ordering::SeqCst),
                    "the repeat waits for the row, too"
                );
                transaction.commit().unwrap();
            });
            // It is repeated at once, on another connection.
            assert!(ask(name).unwrap());
            asked.store(true, std::sync::atomic::Ordering::SeqCst);
            commits.join().unwrap();
        });
        wait_until("nothing is held", || server.held().is_empty());
    }
    drop((client, proxy));
    server.assert_clean();
}

/// A process id is reused. The backend that has it now is unrelated, and must not be ended.
#[test]
fn a_stranger_with_the_same_process_id_lives_on() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let url = proxy.url();
    let builder = LockClient::builder().url(url).client_name("reused").connections(1);
    let client = builder.lease(LONG).io_timeout(ms(1500)).build().unwrap();
    client.lock("warm").unwrap().unlock().unwrap();
    let [backend] = backends(&server, "reused")[..] else { panic!("one connection") };
    // Its reply is lost, the backend has ended, and no connection can be opened to end it.
    proxy.inject("k", Fault::CutAfterApplied);
    proxy.refuse(true);
    assert_eq!(client.try_lock("k").unwrap_err().kind(), ErrorKind::Unreachable);
    wait_until("it has ended", || !backends(&server, "reused").contains(&backend));
    assert_eq!(server.held(), ["k"]);
    let Some(mut stranger) = connection_of(&server, backend) else {
        crate::rig::cannot_run("the kernel does not let a test choose process ids here, but root");
        return;
    };
    proxy.refuse(false);
    wait_until("the lost acquire is undone", || server.held().is_empty());
    stranger.batch_execute("SELECT").expect("its backend still runs");
    drop((client, stranger, proxy));
    server.assert_clean();
}

/// A connection whose backend has this process id.
fn connection_of(server: &Postgres, pid: u32) -> Option<postgres::Client> {
    for _ in 0..500 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut connection = server.connect();
        let own: i32 = connection.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
        if own.cast_unsigned() == pid {
            return Some(connection);
        }
    }
    // Then another process has it, which is no fault of the library.
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "none of 500 backends has it");
    None
}

/// A backend that does not end keeps a thread from repeating its own request, and no other.
#[test]
fn a_stopped_backend_troubles_only_those_who_have_asked_it() {
    let server = server!(Postgres::start());
    let proxy = Proxy::before_postgres(&server);
    let builder = LockClient::builder().url(proxy.url()).client_name("stopped");
    let client = builder.connections(4).lease(LONG).io_timeout(ms(6000)).build().unwrap();
    let (held, other) = (client.lock("held").unwrap(), server.client());
    let backend = only_backend(&server, "stopped");
    let asleep = other.lock("asleep").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.lock("asleep").unwrap().unlock().unwrap());
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        // It makes one more attempt when it has subscribed.
        std::thread::sleep(ms(100));
        signal(backend, "STOP");
        asleep.unlock().unwrap();
        // From here on the waiter looks whether it has ended.
        wait_until("SIGTERM was sent", || pending_term(backend));
        proxy.inject("held", Fault::CutAfterApplied);
        let unlocked = held.unlock();
        signal(backend, "CONT");
        unlocked.unwrap();
        waits.join().unwrap();
    });
    drop((client, other));
    server.assert_clean();
}
