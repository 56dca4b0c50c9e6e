//! Name servers, and providers of credentials, that do not answer: no lock is lost by that, and
//! nobody waits for them for longer than for a server.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::testing::look_up_by;
use leasehold::{Builder, Credentials, ErrorKind, LockClient, Redis, Redlock};
use parking_lot::{Condvar, Mutex};

#[cfg(feature = "postgres")]
use crate::rig::{Postgres, Proxy};
use crate::rig::{Server, ms, wait_until};
use crate::support::{ShortLease, wait_for_votes};

const LEASE: Duration = ms(4000);

/// Whatever answers here may hang.
#[derive(Clone, Default)]
struct Gate(Arc<State>);

#[derive(Default)]
struct State {
    hangs: Mutex<bool>,
    opened: Condvar,
    asked: AtomicU32,
}

impl Gate {
    fn hang(&self) {
        *self.0.hangs.lock() = true;
    }

    fn open(&self) {
        *self.0.hangs.lock() = false;
        self.0.opened.notify_all();
    }

    /// Passes it when it does not hang, or after a minute: then a test fails that waits here.
    fn pass(&self) {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let mut hangs = self.0.hangs.lock();
        let until = Instant::now() + Duration::from_secs(60);
        while *hangs && !self.0.opened.wait_until(&mut hangs, until).timed_out() {}
    }

    fn asked(&self) -> u32 {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// A name server that knows `host`, which is this machine.
    fn names(host: &str) -> Self {
        let gate = Self::default();
        let answers = gate.clone();
        look_up_by(host, move || {
            answers.pass();
            Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
        });
        gate
    }
}

/// A hold that needs a new connection while `gate` hangs outlasts its lease twice, and so
/// does another call; each call has less time than the lease.
#[track_caller]
fn outlasts(builder: Builder, gate: &Gate, end_connections: impl Fn()) {
    let client = builder.short_lease(LEASE).build().unwrap();
    let guard = client.lock("held").unwrap();
    // The background thread has its connection, or for PostgreSQL the pool has several.
    std::thread::sleep(LEASE / 2);
    gate.hang();
    let began = Instant::now();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while began.elapsed() < 2 * LEASE {
        if began.elapsed() > LEASE * rounds {
            end_connections();
            rounds += 1;
        }
        let called = Instant::now();
        // The first call after the end of a connection may fail; whether others then wait is what
        // is tested.
        drop(client.try_lock("other"));
        longest = longest.max(called.elapsed());
        assert!(guard.is_held(), "lost after {:?}: {:?}", began.elapsed(), guard.loss());
        std::thread::sleep(ms(5));
    }
    assert!(longest < LEASE, "a call took {longest:?}");
    client.try_lock("other").unwrap().unwrap().unlock().unwrap();
    guard.unlock().unwrap();
    gate.open();
}

fn end_all(server: &Server) {
    let mut admin = server.connect();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin).unwrap();
}

#[test]
fn a_name_server_that_hangs_costs_no_hold_on_one_server() {
    let server = Server::start_tcp(&[]);
    let gate = Gate::names("one.slow-names.test");
    let builder =
        LockClient::builder().url(format!("redis://one.slow-names.test:{}/", server.port()));
    outlasts(builder, &gate, || end_all(&server));
    server.assert_clean();
}

#[cfg(feature = "postgres")]
#[test]
fn a_name_server_that_hangs_costs_no_hold_in_postgres() {
    let server = Postgres::shared();
    let proxy = Proxy::before_postgres_on_a_port(&server);
    let gate = Gate::names("pg.slow-names.test");
    let database = &server.texts("SELECT current_database()")[0];
    let url = format!(
        "postgres://leasehold@pg.slow-names.test:{}/{database}?sslmode=disable",
        proxy.port()
    );
    outlasts(LockClient::builder().url(url).client_name("leasehold"), &gate, || proxy.cut_all());
    drop(proxy);
    server.assert_clean();
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_name_server_that_hangs_costs_no_hold_in_zookeeper() {
    let server = crate::on_zookeeper::server!();
    let pipe = crate::rig::zookeeper::Pipe::to(server.port());
    let gate = Gate::names("zk.slow-names.test");
    let builder =
        LockClient::builder().url(format!("zookeeper://zk.slow-names.test:{}", pipe.port()));
    outlasts(builder, &gate, || pipe.cut());
    drop(pipe);
    server.assert_clean();
}

fn masters() -> [Server; 3] {
    std::array::from_fn(|_| Server::start_tcp(&[]))
}

fn redlock(masters: &[Server], names: [&str; 3]) -> Builder {
    let urls = masters
        .iter()
        .zip(names)
        .map(|(master, host)| format!("redis://{host}:{}/", master.port()));
    LockClient::builder().redlock(Redlock::new(urls).admit_fresh_nodes(true))
}

#[test]
fn a_name_server_that_hangs_costs_no_hold_on_several_masters() {
    let masters = masters();
    wait_for_votes(&redlock(&masters, ["127.0.0.1"; 3]).build().unwrap(), 3);
    let gate = Gate::names("known.slow-names.test");
    let builder = redlock(&masters, ["known.slow-names.test", "127.0.0.1", "127.0.0.1"]);
    outlasts(builder, &gate, || end_all(&masters[0]));
    for server in &masters {
        server.assert_clean();
    }
}

/// Its addresses were never known, so each connect to it takes the whole timeout.
#[test]
fn a_master_whose_name_is_never_found_is_one_master_that_is_down() {
    let masters = masters();
    wait_for_votes(&redlock(&masters, ["127.0.0.1"; 3]).build().unwrap(), 3);
    let gate = Gate::names("never.slow-names.test");
    gate.hang();
    let builder = redlock(&masters, ["never.slow-names.test", "127.0.0.1", "127.0.0.1"]);
    outlasts(builder, &gate, || ());
    assert_eq!(gate.asked(), 1, "all connects wait for one look-up");
    for server in &masters {
        server.assert_clean();
    }
}

#[test]
fn a_name_that_is_not_found_in_time_costs_the_io_timeout_and_one_thread() {
    let gate = Gate::names("late.slow-names.test");
    gate.hang();
    let server = Server::start_tcp(&[]);
    let url = format!("redis://late.slow-names.test:{}/", server.port());
    let client =
        LockClient::builder().url(url).connect_lazily().io_timeout(ms(200)).build().unwrap();
    let ask = || {
        let began = Instant::now();
        let error = client.try_lock("job").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(began.elapsed() < ms(200) * 20, "{:?}", began.elapsed());
        error.to_string()
    };
    let said: Vec<String> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    // On a busy machine the time of another one may be over first.
    assert!(said.iter().any(|why| why.contains("name server has not answered")), "{said:?}");
    assert_eq!(gate.asked(), 1);
    gate.open();
    wait_until("the late answer is of use", || client.try_lock("job").is_ok());
    drop(client);
    server.assert_clean();
}

#[test]
fn a_credentials_provider_that_hangs_costs_no_hold() {
    let server = Server::start();
    let gate = Gate::default();
    let provider = {
        let gate = gate.clone();
        move || {
            gate.pass();
            Ok(Credentials::new("default", "any"))
        }
    };
    let builder = LockClient::builder().redis(Redis::new(server.url()).credentials(provider));
    outlasts(builder, &gate, || end_all(&server));
    server.assert_clean();
}

#[test]
fn a_credentials_provider_that_never_answered_is_waited_for_no_longer_than_for_a_server() {
    let server = Server::start();
    let gate = Gate::default();
    gate.hang();
    let provider = {
        let gate = gate.clone();
        move || {
            gate.pass();
            Ok(Credentials::new("default", "any"))
        }
    };
    let redis = Redis::new(server.url()).credentials(provider);
    let error = LockClient::builder().redis(redis).io_timeout(ms(200)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(error.to_string().contains("credentials provider has not answered"), "{error}");
    gate.open();
}
