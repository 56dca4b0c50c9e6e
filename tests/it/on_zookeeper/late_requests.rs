//! A server runs a request of an earlier connection after the client has looked for what became of
//! it: it makes nothing any more.

use leasehold::LockClient;

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{Lent, ZooKeeper};
use crate::rig::{Fault, Proxy, ms, wait_until};

struct Rig {
    server: Lent,
    proxy: Proxy,
    client: LockClient,
}

impl Rig {
    fn start() -> Self {
        let server = ZooKeeper::lend(super::SETTINGS);
        let proxy = Proxy::before_zookeeper(&server);
        let client = client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(ms(3000)));
        drop(client.lock("before").unwrap());
        Self { server, proxy, client }
    }

    /// Lets the server run the request now. The client has to send something for that.
    fn run_late(&self) {
        std::thread::scope(|s| {
            let late = s.spawn(|| self.proxy.run_late());
            while !late.is_finished() {
                drop(self.client.lock("behind").and_then(|guard| guard.extend(LONG)));
            }
        });
    }

    /// Nobody stands in the way of others.
    fn end(self, name: &str, directory: &str) {
        let Self { server, proxy, client } = self;
        wait_until("nothing is left", || {
            server.look(|session| children(session, directory)).is_empty()
        });
        let other = super::client(&server);
        drop(other.try_lock(name).unwrap().expect("it is free"));
        drop((client, other, proxy));
        server.assert_clean();
    }
}

/// Its call was granted with another place meanwhile.
#[test]
fn a_place_of_a_call_that_was_granted() {
    let rig = server!(Rig::start());
    rig.proxy.inject("create2 /job", Fault::RunLate);
    let guard = rig.client.lock("job").unwrap();
    rig.run_late();
    assert_eq!(rig.server.children("/job").len(), 1, "its own");
    guard.unlock().unwrap();
    rig.end("job", "/job");
}

/// The undo has found nothing meanwhile.
#[test]
fn a_place_of_a_call_that_has_failed() {
    let rig = server!(Rig::start());
    // The directory exists.
    let other = client(&rig.server);
    let held = other.lock("job").unwrap();
    rig.proxy.inject("create2 /job", Fault::RunLate);
    // The repeat fails as well, and only the undo remains.
    rig.proxy.refuse(true);
    rig.client.lock("job").unwrap_err();
    rig.proxy.refuse(false);
    wait_until("it is undone", || rig.client.stats().unknown_outcomes() == 0);
    rig.run_late();
    assert_eq!(rig.server.children("/job").len(), 1, "the other one's");
    drop((held, other));
    rig.end("job", "/job");
}

#[test]
fn a_place_of_a_call_that_waits() {
    let rig = server!(Rig::start());
    let other = client(&rig.server);
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        rig.proxy.inject("create2 /job", Fault::RunLate);
        let waits = s.spawn(|| rig.client.lock("job").map(drop));
        wait_until("it has its place", || rig.server.children("/job").len() == 2);
        rig.run_late();
        assert_eq!(rig.server.children("/job").len(), 2);
        held.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    drop(other);
    rig.end("job", "/job");
}

#[test]
fn the_node_of_a_reader_that_was_the_writer() {
    let rig = server!(Rig::start());
    let lock = rig.client.rw_lock("job");
    rig.proxy.inject("multi /job", Fault::RunLate);
    let read = lock.write().unwrap().downgrade().unwrap();
    rig.run_late();
    assert_eq!(rig.server.children("/job").len(), 1);
    read.unlock().unwrap();
    drop(lock);
    rig.end("job", "/job");
}

#[test]
fn the_permits_of_a_call_that_was_granted() {
    let rig = server!(Rig::start());
    let semaphore = rig.client.semaphore("job");
    semaphore.try_set_permits(2).unwrap();
    rig.proxy.inject("multi /job/leases", Fault::RunLate);
    let permit = semaphore.acquire().unwrap();
    rig.run_late();
    assert_eq!(semaphore.available_permits().unwrap(), 1);
    permit.release().unwrap();
    assert_eq!(semaphore.available_permits().unwrap(), 2);
    semaphore.delete().unwrap();
    drop(semaphore);
    rig.end("other", "/job");
}

/// Its call has failed, and there is another latch meanwhile, which was changed as often.
#[test]
fn the_change_of_a_latch_that_was_set_anew() {
    let rig = server!(Rig::start());
    let (latch, other) = (rig.client.latch("start"), client(&rig.server));
    latch.set_count(5).unwrap();
    // The repeats fail as well, and only the undo remains.
    rig.proxy.refuse(true);
    rig.proxy.inject("multi /start", Fault::RunLate);
    latch.count_down().unwrap_err();
    rig.proxy.refuse(false);
    wait_until("it is undone", || rig.client.stats().unknown_outcomes() == 0);
    assert!(other.latch("start").delete().unwrap());
    other.latch("start").set_count(10).unwrap();
    rig.run_late();
    assert_eq!(other.latch("start").count().unwrap(), 10);
    assert!(latch.delete().unwrap());
    drop((latch, other));
    rig.end("other", "/start");
}
