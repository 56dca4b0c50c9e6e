//! A Curator with a session, controlled line by line, and the clock that it shares with the tests.

use std::sync::Arc;

use crate::java::Jvm;
use crate::rig::zookeeper::{CURATOR, ZooKeeper};
use crate::rig::{Shared, wait_until};

/// Starts a client. `addresses`: hosts with ports, separated by commas, with a chroot or without;
/// `settings`: see `Link.java`, for example `session=4000`. Fails the test if there is no Java.
pub(crate) fn curator(addresses: &str, settings: &[&str]) -> Jvm {
    let quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned()];
    Jvm::spawn(CURATOR.command("Main", &quiet).arg(addresses).args(settings))
}

/// Nanoseconds on the clock of `System.nanoTime()`, which is that of the whole machine.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// A state of a client's connection, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) state: String,
}

impl Jvm {
    /// The changes of its connection's state, the first of which is `CONNECTED`.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let answer = self.thread().call("client x changes");
        let change = |word: &str| {
            let (at, state) = word.split_once(':').unwrap();
            Change { at: at.parse().unwrap(), state: state.to_owned() }
        };
        answer.split_whitespace().map(change).collect()
    }

    #[track_caller]
    pub(crate) fn wait_for_change(&self, state: &str) -> Change {
        let mut found = None;
        wait_until(state, || {
            found = self.changes().into_iter().find(|change| change.state == state);
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn session(&self) -> i64 {
        self.thread().call("client x session").parse::<u64>().unwrap().cast_signed()
    }
}

/// A server and a Curator that tests share: starting them takes longer than most of the tests.
pub(crate) struct World {
    /// Dropped before its server.
    pub(crate) jvm: Jvm,
    pub(crate) server: ZooKeeper,
}

impl World {
    /// A separate server and process, for a test that breaks them or needs other settings.
    pub(crate) fn with(settings: &[&str]) -> Self {
        let server = ZooKeeper::start();
        Self { jvm: curator(&server.address(), settings), server }
    }
}

pub(crate) fn world() -> Arc<World> {
    static SHARED: Shared<World> = Shared::new();
    SHARED.get(|| World::with(&[]))
}

/// A figure in an answer of the bench, as a number.
#[track_caller]
pub(crate) fn figure(answer: &str, name: &str) -> f64 {
    let value = answer.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {answer}")).parse().unwrap()
}

#[test]
fn curator_does_what_it_is_told() {
    let world = World::with(&["session=6000"]);
    let (jvm, server) = (&world.jvm, &world.server);
    let (one, two) = (jvm.thread(), jvm.thread());
    assert_eq!(one.call("client x timeout"), "6000");
    assert_eq!(server.sessions(), [jvm.session()]);
    let (before, java, after) = (now(), one.call("client x clock").parse().unwrap(), now());
    assert!(before <= java && java <= after, "one clock: {before} {java} {after}");

    one.call("mutex m revocable");
    one.call("mutex m lock");
    one.call("mutex m lock");
    assert_eq!(two.call("mutex m tryLock 50"), "false");
    assert!(two.fail("mutex m unlock").contains("IllegalMonitorState"));
    two.begin_waiting_until("mutex m lock", || server.children("/m").len() == 2);
    let first = one.call("mutex m nodes").split(' ').next().unwrap().to_owned();
    assert!(first.starts_with("/m/_c_") && first.ends_with("-lock-0000000000"), "{first}");
    one.call(&format!("mutex m revoke {first}"));
    wait_until("it is asked to leave", || one.call("mutex m revoked") == "1");
    one.call("mutex m unlock");
    assert!(two.waits());
    one.call("mutex m unlock");
    two.answer();
    assert_eq!(
        (two.call("mutex m isHeld"), one.call("mutex m isHeld")),
        ("true".to_owned(), "false".to_owned())
    );
    two.call("mutex m unlock");

    one.call("write rw lock");
    one.call("read rw lock");
    assert_eq!(two.call("read rw tryLock 50"), "false");
    one.call("write rw unlock");
    assert_eq!(two.call("read rw tryLock 2000"), "true");
    one.call("read rw unlock");
    two.call("read rw unlock");

    one.call("multi a,b lock");
    assert_eq!(two.call("mutex b tryLock 50"), "false");
    one.call("multi a,b unlock");

    one.call("count s/permits set 2");
    let leases = [one.call("semaphore s acquire"), one.call("semaphore s acquire")];
    assert_eq!(two.call("semaphore s acquire 50"), "none");
    assert_eq!(server.children("/s/leases").len(), 2);
    one.call(&format!("semaphore s release {}", leases[0]));
    two.call(&format!("semaphore s release {}", leases[1]));
    let lease = one.call("semaphore f:1 acquire");
    assert_eq!(two.call("semaphore f:1 acquire 50"), "none");
    one.call(&format!("semaphore f:1 release {lease}"));

    assert_eq!(server.node("/s/permits").unwrap().data, [0, 0, 0, 2]);
    assert_eq!(two.call("count s/permits get"), "2");
    // Not the name of a lock: the server would remove that container, and open the barrier.
    one.call("barrier gate set");
    two.begin_waiting_until("barrier gate wait", || server.node("/gate").is_some());
    one.call("barrier gate remove");
    two.answer();

    let belief = one.call("mutex m believes 20");
    let times: Vec<u64> = belief.split(' ').map(|time| time.parse().unwrap()).collect();
    assert!(times[1] - times[0] >= 20_000_000 && times[1] < now());
    for (command, most) in [("own 4 200", 1e9), ("one 4 200", 1e9), ("handoff 6", 15e6)] {
        let answer = one.call(&format!("bench {} {command}", command.replace(' ', "-")));
        let name = if command.starts_with("handoff") { "p50_us" } else { "rate" };
        assert!((1.0..most).contains(&figure(&answer, name)), "{command}: {answer}");
    }
}

#[test]
fn curator_says_when_it_is_cut_off() {
    let world = World::with(&["session=1500"]);
    let thread = world.jvm.thread();
    thread.call("mutex m lock");
    wait_until("it is connected", || world.jvm.changes().len() == 1);
    let stopped = now();
    world.server.suspend();
    let suspended = world.jvm.wait_for_change("SUSPENDED");
    let lost = world.jvm.wait_for_change("LOST");
    assert!(stopped < suspended.at && suspended.at < lost.at, "{stopped} {suspended:?} {lost:?}");
    world.server.resume();
    world.jvm.wait_for_change("RECONNECTED");
    wait_until("its node is gone", || world.server.children("/m").is_empty());
    // Curator still considers it its own: the result of an unlock reports what it knows.
    assert_eq!(thread.call("mutex m isHeld"), "true");
    world.jvm.kill();
    world.server.assert_clean();
}
