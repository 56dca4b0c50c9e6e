//! A release that the client sent during an acquire, and that reaches the server after the call has
//! been granted the lock. The user may not kill connections, so nothing stops the release.

use std::any::Any;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold::{Builder, LockClient, Redis, Redlock};

use crate::lua::{script, sha};
use crate::replicas::Pair;
use crate::rig::{CAP, Cluster, ClusterOptions, Fault, Proxy, Server, ms, wait_until};
use crate::support::{Clients, Masters, wait_for_votes};

/// Long enough that nothing here can pass because a lease ended.
const LONG: Duration = Duration::from_secs(120);

/// Creates a user with all rights except to kill connections. Returns the end of its URL.
fn without_kill(server: &Server) -> &'static str {
    // Redis 6.2 cannot remove a subcommand.
    let rules = ["~*", "&*", "+@all", "-client", "+client|setname", "+client|info"];
    server.cmd::<()>(&[&["ACL", "SETUSER", "u", "reset", "on", ">pw"], &rules[..]].concat());
    "?user=u&pass=pw"
}

fn impatient(builder: Builder) -> LockClient {
    builder.lease(LONG).io_timeout(ms(1200)).outage_timeout(CAP).build().unwrap()
}

type Guard = Box<dyn Any + Send>;

/// Waits for the lock on another thread, which keeps it until the receiver is dropped.
fn wait_for(
    client: &LockClient,
    take: impl FnOnce(&LockClient) -> Guard + Send + 'static,
) -> Receiver<Guard> {
    let (sender, receiver) = channel();
    let waiting = client.clone();
    std::thread::spawn(move || sender.send(take(&waiting)));
    wait_until("it waits", || !client.snapshot().waits().is_empty());
    receiver
}

/// The names of the locks, the scripts that release them, and how to acquire them.
type Kind =
    (&'static str, &'static str, fn(&LockClient) -> Guard, fn(&LockClient) -> Option<Guard>);

#[rustfmt::skip]
const KINDS: [Kind; 6] = [
    ("plain", "mutex_release", |c| Box::new(c.mutex("plain").lock_owned().unwrap()),
        |c| c.mutex("plain").try_lock_owned().unwrap().map(|guard| Box::new(guard) as Guard)),
    ("fair", "fair_release", |c| Box::new(c.fair("fair").lock_owned().unwrap()),
        |c| c.fair("fair").try_lock_owned().unwrap().map(|guard| Box::new(guard) as Guard)),
    ("write", "rw_release", |c| Box::new(c.rw_lock("write").write_owned().unwrap()),
        |c| c.rw_lock("write").try_write_owned().unwrap().map(|guard| Box::new(guard) as Guard)),
    ("several", "multi_release", |c| Box::new(c.multi(["several", "more"]).lock_owned().unwrap()),
        |c| c.multi(["several", "more"]).try_lock_owned().unwrap().map(|guard| Box::new(guard) as Guard)),
    ("permit", "permit_release", |c| Box::new(c.semaphore("permit").acquire().unwrap()),
        |c| c.semaphore("permit").try_acquire().unwrap().map(|guard| Box::new(guard) as Guard)),
    ("count", "count_release", |c| Box::new(c.counting_semaphore("count").acquire().unwrap()),
        |c| c.counting_semaphore("count").try_acquire().unwrap().map(|guard| Box::new(guard) as Guard)),
];

/// The replica does not acknowledge the grant of a waiting call, the release of that grant is
/// delayed, and the call continues.
#[test]
fn a_late_release_of_a_grant_that_no_replica_has_takes_no_later_grant() {
    let pair = Pair::start();
    let other = pair.primary.builder().lease(LONG).build().unwrap();
    other.semaphore("permit").try_set_permits(1).unwrap();
    other.counting_semaphore("count").add_permits(1).unwrap();
    let user = without_kill(&pair.primary);
    let mut removed = Vec::new();
    for (name, release, take, try_take) in KINDS {
        let proxy = Proxy::start(&pair.primary);
        let url = format!("{}{user}", proxy.url());
        let client = impatient(LockClient::builder().redis(Redis::new(url).replicas(1)));
        // Now the server knows the scripts.
        drop(take(&client));
        let held = take(&other);
        let waiter = wait_for(&client, take);
        pair.replica.suspend();
        proxy.inject(&sha(script(release)), Fault::Hold);
        drop(held);
        proxy.wait_hits(1);
        pair.replica.resume();
        let guard = waiter.recv_timeout(CAP).expect(name);
        proxy.release_held();
        if try_take(&other).is_some() {
            removed.push(name);
        }
        drop(guard);
        wait_until("it is free", || try_take(&other).is_some());
    }
    assert!(removed.is_empty(), "the late release has removed the new grant: {removed:?}");
}

/// A hold in one slot is released because a lock in another slot is busy. That release is delayed,
/// and the call continues.
#[test]
fn a_late_release_of_one_slot_takes_no_later_grant_of_several_locks() {
    let options = ClusterOptions {
        replicas: false,
        node_timeout: 60_000,
        proxies: true,
        ..Default::default()
    };
    let cluster = Cluster::start_with(options);
    let builder = || LockClient::builder().cluster(leasehold::Cluster::new(cluster.urls()));
    // One name for each node, in the order in which they are acquired.
    let mut names = [0, 1, 2].map(|node| {
        let mut names = (0..).map(|n| format!("job-{n}"));
        names.find(|name| cluster.owner(cluster.slot(name)) == node).unwrap()
    });
    names.sort();
    let [first, second, third] = names.clone();
    let user = [0, 1, 2].map(|node| without_kill(cluster.node(node)))[0];
    let urls = cluster.urls().into_iter().map(|url| format!("{url}{user}"));
    let client = impatient(LockClient::builder().cluster(leasehold::Cluster::new(urls)));
    drop(client.multi(&names).lock().unwrap());
    let other = builder().lease(LONG).build().unwrap();
    let [before, behind] = [&second, &third].map(|name| other.mutex(name).lock_owned().unwrap());
    let waiter =
        wait_for(&client, move |client| Box::new(client.multi(names).lock_owned().unwrap()));
    let proxy = cluster.node(cluster.owner(cluster.slot(&first))).proxy();
    // A Redis 7 cluster has sharded channels.
    let publish = if cluster.node(0).major() < 7 { "'publish'" } else { "'spublish'" };
    proxy.inject(&sha(&script("multi_release").replace("'publish'", publish)), Fault::Hold);
    // The waiter acquires the first name again, and finds another one taken.
    before.unlock().unwrap();
    proxy.wait_hits(1);
    behind.unlock().unwrap();
    let guard = waiter.recv_timeout(CAP).unwrap();
    proxy.release_held();
    assert!(
        other.try_lock(&first).unwrap().is_none(),
        "the late release has removed the new grant"
    );
    drop(guard);
    drop((client, other));
    cluster.assert_clean();
}

/// The grant of one master is not a majority and is released. That release is delayed, and the call
/// continues.
#[test]
fn a_late_release_of_a_minority_takes_no_later_majority() {
    let masters = Masters::fresh(3);
    let proxies = [0, 2].map(|at| Proxy::start(&masters.0[at]));
    // The client has a majority only with the first master.
    proxies[1].refuse(true);
    let user = [0, 1, 2].map(|at| without_kill(&masters.0[at]))[0];
    let urls =
        [proxies[0].url(), masters.0[1].url(), proxies[1].url()].map(|url| format!("{url}{user}"));
    let client = impatient(LockClient::builder().redlock(Redlock::new(urls)));
    wait_for_votes(&client, 2);
    drop(client.lock("l").unwrap());
    wait_until("nothing is held", || masters.holding("l") == 0);
    masters.0[1].cmd::<()>(&["HSET", "l", "a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30", "1"]);
    proxies[0].inject(&sha(script("mutex_release")), Fault::Hold);
    let waiter = wait_for(&client, |client| Box::new(client.mutex("l").lock_owned().unwrap()));
    proxies[0].wait_hits(1);
    masters.0[1].cmd::<()>(&["DEL", "l"]);
    let guard = waiter.recv_timeout(CAP).unwrap();
    proxies[0].release_held();
    let other = masters.builder().io_timeout(Duration::from_secs(5)).build().unwrap();
    wait_for_votes(&other, 3);
    assert!(other.try_lock("l").unwrap().is_none(), "the late release has removed the new grant");
    drop(guard);
    wait_until("nothing is left", || masters.holding("l") == 0);
}
