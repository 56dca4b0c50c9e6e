//! How many connections a client has at a server, and how often it connects: counted at the server,
//! also while the server ends connections, refuses them, or does not answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use leasehold::{Builder, ErrorKind, LockClient};

use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::Clients;

const CONNECTIONS: usize = 8;
/// One for renewals, one for messages, one beside the pool.
const MOST: usize = CONNECTIONS + 3;
const NAME: &str = "counted";

fn counted(server: &Server) -> Builder {
    server.builder().client_name(NAME).connections(CONNECTIONS)
}

/// A connection for questions that does not count itself.
struct Admin(redis::Connection);

impl Admin {
    fn of(server: &Server) -> Self {
        Self(server.connect())
    }

    fn cmd<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        redis::cmd(words[0])
            .arg(&words[1..])
            .query(&mut self.0)
            .unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    fn stat(&mut self, field: &str) -> u64 {
        let info: String = self.cmd(&["INFO", "stats"]);
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    /// The ids of the connections of the counted client.
    fn ids(&mut self) -> Vec<String> {
        let list: String = self.cmd(&["CLIENT", "LIST"]);
        let own = list.lines().filter(|line| line.contains(&format!("name={NAME} ")));
        own.filter_map(|line| Some(line.split(' ').next()?.strip_prefix("id=")?.to_owned()))
            .collect()
    }

    /// All at once.
    fn kill(&mut self, ids: &[String]) {
        let mut all = redis::pipe();
        all.atomic();
        for id in ids {
            all.cmd("CLIENT").arg("KILL").arg("ID").arg(id).ignore();
        }
        all.exec(&mut self.0).unwrap();
    }

    fn limit_clients(&mut self, most: usize) {
        self.cmd::<()>(&["CONFIG", "SET", "maxclients", &most.to_string()]);
    }
}

/// Threads that lock and unlock a name of their own, over and over, until dropped.
fn while_threads_lock<T>(
    client: &LockClient,
    threads: usize,
    watch: impl FnOnce(&AtomicU64) -> T,
) -> T {
    let (end, cycles) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..threads {
            let (end, cycles) = (&end, &cycles);
            s.spawn(move || {
                while !end.load(Ordering::SeqCst) {
                    client.lock(format!("own-{n}")).unwrap().unlock().unwrap();
                    cycles.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| watch(&cycles)));
        end.store(true, Ordering::SeqCst);
        watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[track_caller]
fn wait_for_more(cycles: &AtomicU64, more: u64) {
    let until = cycles.load(Ordering::SeqCst) + more;
    wait_until("the work continues", || cycles.load(Ordering::SeqCst) >= until);
}

/// Each thread whose request was on such a connection has to repeat it.
#[test]
fn a_server_that_ends_all_connections_meets_no_more_than_the_client_may_have() {
    end_all_connections(&Server::start(), 2);
    // Such a user's connections carry one batch at a time.
    let server = Server::start();
    server.cmd::<()>(&["ACL", "SETUSER", "default", "-echo"]);
    end_all_connections(&server, CONNECTIONS);
}

/// `needs`: how many connections the client has at least when all are busy.
fn end_all_connections(server: &Server, needs: usize) {
    let client = counted(server).build().unwrap();
    let other = server.client();
    let (kept, taken) = (client.lock("kept").unwrap(), other.lock("taken").unwrap());
    let mut admin = Admin::of(server);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("taken").map(drop));
        while_threads_lock(&client, 100, |cycles| {
            wait_until("all connections are in use", || admin.ids().len() >= needs);
            for _ in 0..5 {
                wait_for_more(cycles, 300);
                let made = admin.stat("total_connections_received");
                let old = admin.ids();
                admin.kill(&old);
                let until = cycles.load(Ordering::SeqCst) + 300;
                while cycles.load(Ordering::SeqCst) < until {
                    let now = admin.ids().len();
                    assert!(now <= MOST, "{now} connections at once");
                }
                let made = admin.stat("total_connections_received") - made;
                // One that was being made when they were listed ends with them, and is made again.
                assert!(
                    made <= MOST as u64 + 1,
                    "{made} connections were made for {} that had ended",
                    old.len()
                );
            }
        });
        taken.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    kept.unlock().unwrap();
    drop((client, other, admin));
    server.assert_clean();
}

/// The limit of the server leaves it one connection for its lock calls.
#[test]
fn a_client_that_has_a_connection_fails_no_call_because_it_can_get_no_second_one() {
    let server = Server::start();
    let mut admin = Admin::of(&server);
    let client = counted(&server).build().unwrap();
    admin.limit_clients(2);
    let refused = while_threads_lock(&client, 16, |cycles| {
        wait_for_more(cycles, 500);
        admin.stat("rejected_connections")
    });
    assert!(refused > 0, "it has tried to make another one");
    admin.limit_clients(1000);
    drop((client, admin));
    server.assert_clean();
}

/// Each of them waits for a name of its own, and tries again by itself.
#[test]
fn two_hundred_waiters_try_a_server_that_refuses_them_with_one_growing_pause() {
    const WAITERS: usize = 200;
    let server = Server::start();
    let mut admin = Admin::of(&server);
    let other = server.client();
    let held: Vec<_> = (0..WAITERS).map(|n| other.lock(format!("job-{n}")).unwrap()).collect();
    let client = counted(&server).outage_timeout(CAP * 3).build().unwrap();
    std::thread::scope(|s| {
        let client = &client;
        let waiters: Vec<_> = (0..WAITERS)
            .map(|n| s.spawn(move || client.lock(format!("job-{n}")).map(drop)))
            .collect();
        wait_until("all wait", || server.channels().len() >= WAITERS);
        admin.limit_clients(1);
        let (began, refused) = (Instant::now(), admin.stat("rejected_connections"));
        let own = admin.ids();
        admin.kill(&own);
        // What the waiters still know of the locks lasts for a part of the lease.
        drop(held);
        wait_until("it is tried", || admin.stat("rejected_connections") - refused > 10);
        let (paused, before) = (Instant::now(), admin.stat("rejected_connections"));
        wait_until("it is tried again", || admin.stat("rejected_connections") - before > 20);
        let each_second = 21.0 / paused.elapsed().as_secs_f64();
        // Two threads of the client have pauses of their own.
        assert!(
            each_second < 60.0,
            "{each_second:.0} connects each second, after {:?}",
            began.elapsed()
        );
        admin.limit_clients(1000);
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
    drop((client, other, admin));
    server.assert_clean();
}

/// Eight handshakes at once are what a starved server cannot answer in time.
#[test]
fn a_new_client_connects_once_before_all_its_threads_do() {
    let server = Server::start();
    let mut admin = Admin::of(&server);
    let before = admin.stat("total_connections_received");
    let client = counted(&server).connect_lazily().io_timeout(ms(2500)).build().unwrap();
    server.suspend();
    std::thread::scope(|s| {
        for n in 0..CONNECTIONS {
            let client = &client;
            s.spawn(move || {
                assert_eq!(
                    client.try_lock(format!("own-{n}")).unwrap_err().kind(),
                    ErrorKind::Unreachable
                );
            });
        }
    });
    server.resume();
    let mut made = || admin.stat("total_connections_received") - before;
    // It answers the question before it accepts what came meanwhile.
    wait_until("it has seen them", || made() > 0);
    let made = made();
    assert!(made <= 3, "{made} connections for {CONNECTIONS} threads");
    while_threads_lock(&client, CONNECTIONS, |cycles| wait_for_more(cycles, 100));
    drop((client, admin));
    server.assert_clean();
}

/// The scripts and the probe of the user's rights, which runs 30 commands.
#[test]
fn a_server_process_is_shown_the_scripts_once_by_each_client() {
    let mut server = Server::start();
    let loads = |server: &Server| {
        let calls = server.calls();
        calls.get("script|load").or(calls.get("script")).copied().unwrap_or(0)
    };
    let client = counted(&server).build().unwrap();
    let once = loads(&server);
    let probed = server.call_count("zmscore");
    assert!(once > 0 && probed > 0, "{once} loads, {probed} probes");
    for starts in 0..2 {
        let mut admin = Admin::of(&server);
        wait_until("it works", || client.lock("own-0").is_ok_and(|guard| guard.unlock().is_ok()));
        while_threads_lock(&client, 32, |_| {
            wait_until("there are more connections", || admin.ids().len() >= 2);
        });
        assert_eq!(
            (loads(&server), server.call_count("zmscore")),
            (once, probed),
            "after {starts} restarts"
        );
        if starts == 0 {
            server.restart();
        }
    }
    drop(client);
    server.assert_clean();
}
