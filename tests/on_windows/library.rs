//! The library in a program on Windows.

use std::time::{Duration, Instant};

use leasehold::observe::NodeState;
use leasehold::{LockClient, Redlock, Tls};

use crate::agent::Agent;
use crate::rig::zookeeper::ZooKeeper;
use crate::rig::{CAP, Certificates, Postgres, Server, ms, wait_until};

/// No test waits as long, so nothing here happens because a lease has ended.
const LONG_LEASE: Duration = Duration::from_secs(60);
/// Of clients that lose it.
const SHORT_LEASE: Duration = ms(1500);

fn client(url: &str) -> LockClient {
    LockClient::builder().url(url).lease(LONG_LEASE).build().unwrap()
}

/// What every store must do: a lock is held by the agent or by this process, and a release wakes
/// the other.
#[track_caller]
fn one_has_it_and_the_other_waits(mut agent: Agent, here: &LockClient) {
    let mutex = here.mutex("job");
    assert_eq!(agent.ask("a", "lock mutex job"), "held");
    assert!(mutex.try_lock().unwrap().is_none());
    wait_until("the owner is announced", || {
        let holder = mutex.holder().unwrap().expect("it is held");
        let owner = holder.owner().map(ToString::to_string);
        owner.is_some_and(|owner| owner == format!("agent (pid {} on {})", agent.pid, agent.host))
    });

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| here.mutex("job").try_lock_for(CAP).unwrap().is_some());
        wait_until("it waits", || here.snapshot().waits().len() == 1);
        assert_eq!(agent.ask("a", "unlock"), "freed");
        assert!(waiting.join().unwrap(), "the release of the agent did not wake it");
    });

    let guard = mutex.lock().unwrap();
    assert_eq!(agent.ask("a", "try mutex job"), "taken");
    agent.tell("a", "lock mutex job");
    agent.tell("b", "lock mutex job");
    // It has had time to go to sleep, and what it does while it waits is counted.
    std::thread::sleep(ms(500));
    let before = agent.sleeps();
    std::thread::sleep(ms(1500));
    let sleeps = agent.sleeps() - before;
    assert!(sleeps < 150, "{sleeps} sleeps in 1.5 s: it polls");
    guard.unlock().unwrap();
    assert_eq!(agent.answer("a"), "held", "the release here did not wake it");
    assert_eq!(agent.ask("a", "unlock"), "freed");
    assert_eq!(agent.answer("b"), "held");
    // Closing releases it.
    agent.close();
    assert!(mutex.try_lock().unwrap().is_some());
}

#[test]
fn one_has_it_and_the_other_waits_on_redis() {
    let server = Server::start_tcp(&[]);
    let here = client(&server.url());
    one_has_it_and_the_other_waits(Agent::start(&server.url(), LONG_LEASE), &here);
    here.close(CAP).unwrap();
    server.assert_clean();
}

#[test]
fn one_has_it_and_the_other_waits_on_three_masters() {
    let servers = [(); 3].map(|()| Server::start_tcp(&[]));
    let urls = servers.each_ref().map(Server::url);
    // They are new, and have forgotten nothing.
    let masters = Redlock::new(&urls).admit_fresh_nodes(true);
    let here = LockClient::builder().redlock(masters).lease(LONG_LEASE).build().unwrap();
    let votes = || here.nodes().iter().filter(|node| node.state() == NodeState::Voting).count();
    wait_until("all masters vote", || votes() == 3);
    one_has_it_and_the_other_waits(Agent::start(&urls.join(" "), LONG_LEASE), &here);
    here.close(CAP).unwrap();
    for server in &servers {
        server.assert_clean();
    }
}

#[test]
fn one_has_it_and_the_other_waits_on_redis_with_tls() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let tls = Tls::new().ca_file(certificates.ca_file());
    let here = LockClient::builder().url(server.url()).tls(tls).lease(LONG_LEASE).build().unwrap();
    let agent = Agent::start_with(&server.url(), LONG_LEASE, Some(&certificates.ca_file()));
    one_has_it_and_the_other_waits(agent, &here);
    here.close(CAP).unwrap();
    server.assert_clean();
}

#[test]
fn one_has_it_and_the_other_waits_on_postgres() {
    let server = Postgres::prepare("").listening_with(Certificates::new().server());
    let url = server.tcp_url("leasehold", "sslmode=disable");
    let here = client(&url);
    one_has_it_and_the_other_waits(Agent::start(&url, LONG_LEASE), &here);
    here.close(CAP).unwrap();
    server.assert_clean();
}

#[test]
fn one_has_it_and_the_other_waits_on_zookeeper() {
    let server = ZooKeeper::start();
    // The server permits no longer session.
    let lease = Duration::from_secs(30);
    let here = LockClient::builder().url(server.url()).lease(lease).build().unwrap();
    one_has_it_and_the_other_waits(Agent::start(&server.url(), lease), &here);
    here.close(CAP).unwrap();
}

#[test]
fn each_kind_of_lock_excludes_what_it_must() {
    let server = Server::start_tcp(&[]);
    let here = client(&server.url());
    let mut agent = Agent::start(&server.url(), LONG_LEASE);

    // Re-entry: the second unlock frees it.
    assert_eq!([(); 2].map(|()| agent.ask("a", "lock mutex job")), ["held", "held"]);
    assert_eq!(agent.ask("b", "try mutex job"), "taken");
    assert_eq!(agent.ask("a", "unlock"), "freed");
    assert!(here.try_lock("job").unwrap().is_none());
    assert_eq!(agent.ask("a", "unlock"), "freed");
    assert!(here.try_lock("job").unwrap().is_some());

    // A fair lock goes to the one that came first, from wherever.
    let fair = here.fair("fair");
    let guard = fair.lock().unwrap();
    agent.tell("a", "lock fair fair");
    wait_until("the agent is in the queue", || fair.queue_len().unwrap() == 1);
    std::thread::scope(|scope| {
        let second = scope
            .spawn(|| here.fair("fair").try_lock_for(CAP).unwrap().expect("its turn").unlock());
        wait_until("both are in the queue", || fair.queue_len().unwrap() == 2);
        guard.unlock().unwrap();
        assert_eq!(agent.answer("a"), "held");
        assert!(!second.is_finished(), "it came later");
        assert_eq!(agent.ask("a", "unlock"), "freed");
        second.join().unwrap().unwrap();
    });

    let lock = here.rw_lock("rw");
    assert_eq!([agent.ask("a", "lock read rw"), agent.ask("b", "lock read rw")], ["held", "held"]);
    let reads = lock.try_read().unwrap().expect("readers share it");
    reads.unlock().unwrap();
    assert!(lock.try_write().unwrap().is_none());
    agent.tell("c", "lock write rw");
    assert_eq!([agent.ask("a", "unlock"), agent.ask("b", "unlock")], ["freed", "freed"]);
    assert_eq!(agent.answer("c"), "held");
    assert!(lock.try_read().unwrap().is_none());
    assert_eq!(agent.ask("c", "unlock"), "freed");

    assert_eq!(
        [agent.ask("a", "lock permit two"), agent.ask("b", "lock permit two")],
        ["held", "held"]
    );
    assert!(here.semaphore("two").try_acquire().unwrap().is_none());
    assert_eq!([agent.ask("a", "unlock"), agent.ask("b", "unlock")], ["freed", "freed"]);
    here.semaphore("two").delete().unwrap();

    let latch = here.latch("start");
    assert!(latch.try_set_count(2).unwrap());
    agent.tell("a", "await start");
    assert_eq!(agent.ask("b", "count_down start"), "1");
    assert_eq!(latch.count_down().unwrap(), 0);
    assert_eq!(agent.answer("a"), "open");

    let threads = ["a", "b", "c", "d"];
    for thread in &threads {
        agent.tell(thread, "compete busy 25");
    }
    assert!(threads.iter().all(|thread| agent.answer(thread) == "done"));
    agent.close();
    here.close(CAP).unwrap();
    server.assert_clean();
}

#[test]
fn a_guard_knows_that_its_lease_has_ended() {
    let server = Server::start_tcp(&[]);
    let mut agent = Agent::start(&server.url(), SHORT_LEASE);
    assert_eq!(agent.ask("a", "lock mutex job"), "held");
    assert_eq!(agent.ask("a", "is_held"), "true");
    server.suspend();
    let silent = Instant::now();
    assert_eq!(agent.ask("a", "wait_lost"), "lost false");
    assert!(silent.elapsed() < CAP, "{:?}", silent.elapsed());
    server.resume();
    let freed = agent.ask("a", "unlock");
    assert!(freed.starts_with("error Lost"), "{freed}");
    assert_eq!(agent.ask("a", "lock mutex job"), "held", "the client goes on");
    assert_eq!(agent.ask("a", "unlock"), "freed");
    agent.close();
    server.assert_clean();
}

#[test]
fn a_waiter_survives_a_restart_of_the_server() {
    let mut server = Server::start_tcp(&[]);
    let here = client(&server.url());
    let guard = here.lock("job").unwrap();
    let mut agent = Agent::start(&server.url(), LONG_LEASE);
    assert_eq!(agent.ask("b", "lock mutex other"), "held");
    agent.tell("a", "lock mutex job");
    wait_until("the agent waits", || !server.channels().is_empty());
    // It has no data then, so both locks are lost, and the agent gets the one that it waits for.
    server.restart();
    assert_eq!(agent.answer("a"), "held");
    assert_eq!(agent.ask("b", "wait_lost"), "lost false");
    assert!(agent.ask("b", "unlock").starts_with("error Lost"));
    assert_eq!(agent.ask("b", "lock mutex other"), "held");
    wait_until("the guard here knows", || !guard.is_held());
    drop(guard);
    agent.close();
    here.close(CAP).unwrap();
    server.assert_clean();
}
