//! Sentinel: both libraries follow the master that the sentinels name.

use std::time::{Duration, Instant};

use leasehold::{Builder, LockClient, Sentinel};

use crate::faults::in_trouble;
use crate::java::{Jvm, Mode, RESTARTED, length};
use crate::rig::{SentinelOptions, Sentinels, Server, ms, wait_until};
use crate::staying::{Java, are_woken_after};
use crate::stress::{JAVA_WAITER_TIMEOUT, LEASE, WAITER_TIMEOUT};
use crate::wakeups::{Primitive, wake_each_other};
use crate::world::Home;

impl Home for Sentinels {
    fn server_of(&self, _name: &str) -> &Server {
        self.master_server()
    }
}

/// A busy machine must not replace a master that no test killed: its last grants would be lost.
fn patient_sentinels() -> Sentinels {
    let sentinel_lines = &["sentinel down-after-milliseconds mymaster 2000"];
    Sentinels::start_with(SentinelOptions { sentinel_lines, ..SentinelOptions::default() })
}

fn builder(sentinels: &Sentinels) -> Builder {
    LockClient::builder().sentinel(servers(sentinels))
}

fn servers(sentinels: &Sentinels) -> Sentinel {
    Sentinel::new(sentinels.urls(), "mymaster")
}

fn java(sentinels: &Sentinels, settings: &[&str]) -> Jvm {
    Jvm::connect(&sentinels.urls(), &[&["sentinel=mymaster"], settings].concat())
}

/// Restarts a killed server as a replica of the master: the sentinels would reconfigure it only 10
/// s later.
fn bring_back(sentinels: &mut Sentinels, killed: usize) {
    sentinels.server_mut(killed).start_again();
    let port = sentinels.master_server().port().to_string();
    sentinels.server(killed).cmd::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    wait_until("both replicas follow the master", || sentinels.master_server().feeds(2));
}

fn names(test: &str) -> impl Fn(&Primitive, &str) -> String {
    move |primitive, words| format!("{test}-{}-{words}", primitive.java)
}

/// Returns when another server is the master and has a replica: until then Redisson undoes its
/// acquires.
fn kill_master(sentinels: &mut Sentinels) -> usize {
    let old = sentinels.master();
    sentinels.server_mut(old).kill();
    // Forced, because on a busy machine no sentinel may get the votes for a quarter of a minute.
    sentinels.failover();
    wait_until("a replica follows the new master", || sentinels.master_server().feeds(1));
    old
}

#[test]
fn wake_ups_cross_and_survive_failovers() {
    let mut sentinels = patient_sentinels();
    let jvm = java(&sentinels, &[]);
    // Leasehold waiters of a fair lock poll every third of it.
    let client = builder(&sentinels).waiter_timeout(Duration::from_secs(60)).build().unwrap();
    wake_each_other(&sentinels, &client, &jvm, &names("before"), 2);
    are_woken_after(
        &mut sentinels,
        &client,
        &jvm,
        &names("kill"),
        Java::SubscribesAgain,
        |sentinels, _| {
            let old = kill_master(sentinels);
            bring_back(sentinels, old);
        },
    );
    are_woken_after(
        &mut sentinels,
        &client,
        &jvm,
        &names("failover"),
        Java::SubscribesAgain,
        |sentinels, _| {
            sentinels.failover();
            wait_until("a replica follows the new master", || sentinels.master_server().feeds(1));
        },
    );
    wake_each_other(&sentinels, &client, &jvm, &names("after"), 1);
    drop(jvm);
}

/// No grant is lost with the master: leasehold waits for one replica, and Redisson does so by
/// default.
#[test]
fn never_two_inside_while_the_master_is_killed() {
    let mut sentinels = patient_sentinels();
    let jvm = java(&sentinels, &[&format!("watchdog={LEASE}"), "fairWait=2000"]);
    let careful = servers(&sentinels).replicas(1).java_waiter_timeout(JAVA_WAITER_TIMEOUT);
    let builder = LockClient::builder().sentinel(careful).waiter_timeout(WAITER_TIMEOUT);
    let client = builder.lease(ms(LEASE)).build().unwrap();
    let dir = sentinels.server(0).dir().to_owned();
    in_trouble(&mut sentinels, &dir, &client, &jvm, Mode::Count, |sentinels, _| {
        std::thread::sleep(length() / 2);
        std::fs::write(dir.join(RESTARTED), "").unwrap();
        let old = kill_master(sentinels);
        std::thread::sleep(length() / 2);
        bring_back(sentinels, old);
        std::thread::sleep(length() / 2);
    });
    drop(jvm);
}

/// Both keep asking for a lock of their own, from before the master is killed until each acquires
/// it at the next one.
#[test]
#[ignore = "a measurement"]
fn from_the_kill_to_the_next_grant() {
    for _ in 0..5 {
        let mut sentinels = Sentinels::start();
        let jvm = java(&sentinels, &[]);
        let (client, thread) = (builder(&sentinels).build().unwrap(), jvm.thread());
        drop(client.lock("ours").unwrap());
        thread.call("lock theirs lock");
        thread.call("lock theirs unlock");
        let port = sentinels.server(0).port();
        sentinels.server_mut(0).kill();
        let killed = Instant::now();
        std::thread::scope(|s| {
            let ours = s.spawn(|| {
                while client.try_lock("ours").is_err() {
                    std::thread::sleep(ms(1));
                }
                killed.elapsed()
            });
            let theirs = s.spawn(|| {
                while thread.attempt("lock theirs tryLock").is_err() {
                    std::thread::sleep(ms(1));
                }
                killed.elapsed()
            });
            sentinels.wait_for_other_master(port);
            let named = killed.elapsed();
            let (ours, theirs) = (ours.join().unwrap(), theirs.join().unwrap());
            println!(
                "killed; another master named after {named:?}, granted: leasehold {ours:?}, Redisson {theirs:?}"
            );
        });
    }
}
