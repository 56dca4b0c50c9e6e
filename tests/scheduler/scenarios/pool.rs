//! The connections of a client to one server: calls that queue for them, connects that fail or take
//! long, connections that end.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::time::Duration;

use leasehold::os::now;
use leasehold::os::thread::{sleep, spawn};
use leasehold::{ErrorKind, LockClient};

use crate::book::pause;
use crate::redis::Mishap;
use crate::stage::{OnPurpose, choose, join_all};
use crate::wire::Wire;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// All requests that a client sends for a mutex.
const REQUESTS: [&str; 2] = ["mutex_acquire", "mutex_release"];

fn any_mishap() -> Mishap {
    let late = Duration::from_millis([1, 30][choose(2)]);
    let all =
        [Mishap::RunsLate(late), Mishap::AnsweredLate(late), Mishap::CutBefore, Mishap::CutAfter];
    all[choose(all.len())]
}

/// No server sees more than this many connections of a client, nor the three that the client has
/// beside those of the locks.
fn few(wire: &Wire, connections: usize) {
    let most = wire.servers[0].connections().1;
    assert!(
        most <= connections + 3,
        "{most} connections at once, where {connections} were allowed"
    );
}

/// Locks of their own, so that all threads wait for connections only. Nothing fails.
fn each_its_own(wire: &Wire, client: &LockClient, rounds: usize) {
    join_all(NAMES.map(|name| {
        let client = client.clone();
        wire.spawn(move |wire| {
            for _ in 0..rounds {
                assert!(wire.section(&client, name), "nothing is in the way");
            }
        })
    }));
}

/// More calls than connections.
pub(crate) fn few_connections() {
    let wire = Wire::of(1);
    let connections = 1 + choose(2);
    let client = wire.client(|builder| builder.connections(connections));
    each_its_own(&wire, &client, 2);
    few(&wire, connections);
    wire.end([client]);
}

/// The server ends all connections at any time, and takes new ones at once. No call may wait for
/// its I/O timeout because of that.
pub(crate) fn ended() {
    let wire = Wire::of(1);
    let connections = 1 + choose(2);
    let client = wire.client(|builder| builder.connections(connections));
    let ends = wire.spawn(|wire| {
        (0..2).for_each(|_| {
            pause();
            wire.servers[0].end_connections();
        });
    });
    join_all(NAMES.map(|name| {
        let client = client.clone();
        wire.spawn(move |wire| (0..2).for_each(|_| _ = wire.section(&client, name)))
    }));
    join_all([ends]);
    few(&wire, connections);
    for name in &NAMES {
        wire.is_free(&client, name);
    }
    wire.end([client]);
}

/// The only connection ends under the first request on it, whose caller gives up. Those who queue
/// behind it need not wait for their I/O timeout until somebody makes another one.
pub(crate) fn cut_once() {
    let wire = Wire::of(1);
    let client = wire.client(|builder| builder.connections(1));
    wire.servers[0].next("mutex_acquire", [Mishap::CutBefore, Mishap::CutAfter][choose(2)]);
    join_all(NAMES.map(|name| {
        let client = client.clone();
        wire.spawn(move |wire| _ = wire.section(&client, name))
    }));
    for name in &NAMES {
        wire.is_free(&client, name);
    }
    wire.end([client]);
}

/// An answer that comes twice is nobody's.
pub(crate) fn answered_twice() {
    let wire = Wire::of(1);
    let client = wire.client(|builder| builder.connections(1 + choose(2)));
    for _ in 0..2 {
        wire.servers[0].next(REQUESTS[choose(2)], Mishap::AnsweredTwice);
    }
    each_its_own(&wire, &client, 2);
    wire.end([client]);
}

/// The same beside a lock that another client holds: the second answer, a grant, may stand where the
/// refusal of somebody else's request is due.
pub(crate) fn answered_twice_beside_a_refusal() {
    let wire = Wire::of(1);
    let (client, other) = (wire.client(|builder| builder.connections(1)), wire.client(|own| own));
    let taken = other.lock("taken").expect("nobody has it");
    wire.servers[0].next("mutex_acquire", Mishap::AnsweredTwice);
    let refused = wire.spawn({
        let client = client.clone();
        move |_| {
            for _ in 0..2 {
                match client.try_lock("taken") {
                    Ok(guard) => assert!(guard.is_none(), "the other client has it"),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
                }
            }
        }
    });
    each_its_own(&wire, &client, 1);
    join_all([refused]);
    taken.unlock().expect("it is held");
    wire.end([client, other]);
}

/// The thread that connects panics, and the others get a connection nevertheless.
pub(crate) fn connect_panics() {
    let wire = Wire::of(1);
    let client = wire.client(|builder| builder.connections(1));
    wire.servers[0].intervene(Some(|| panic_any(OnPurpose)));
    let (first, server) = (client.clone(), wire.servers[0].clone());
    let panics = spawn(move || {
        let call = catch_unwind(AssertUnwindSafe(|| first.lock("z").map(drop)));
        server.intervene(None);
        assert!(call.is_err_and(|panicked| panicked.is::<OnPurpose>()), "it connects first");
    });
    join_all([panics]);
    each_its_own(&wire, &client, 1);
    wire.end([client]);
}

/// Connects that take long.
pub(crate) fn connects_late() {
    let wire = Wire::of(1);
    let connections = 1 + choose(3);
    let client = wire.client(|builder| builder.connections(connections));
    wire.servers[0].intervene(Some(|| sleep(Duration::from_millis(300))));
    each_its_own(&wire, &client, 2);
    few(&wire, connections);
    wire.end([client]);
}

/// The server is away for a while. Who calls meanwhile fails, and does not take longer than a
/// connect and a wait for it may.
pub(crate) fn refused() {
    let wire = Wire::of(1);
    let client = wire.client(|builder| builder.connections(1 + choose(2)));
    let away = wire.spawn(|wire| {
        pause();
        wire.servers[0].stop();
        sleep(Duration::from_millis([1, 400][choose(2)]));
        wire.servers[0].restart(true);
    });
    join_all(NAMES.map(|name| {
        let client = client.clone();
        wire.spawn(move |wire| (0..2).for_each(|_| _ = wire.section(&client, name)))
    }));
    join_all([away]);
    for name in &NAMES {
        wire.is_free(&client, name);
    }
    wire.end([client]);
}

/// Requests of two clients for one lock are late, cut, or answered late.
pub(crate) fn lost_replies() {
    lose_replies(Wire::of(1));
}

/// The same where nobody may kill connections: what may have run is waited for, and undone over the
/// one connection aside.
pub(crate) fn without_kills() {
    let wire = Wire::of(1);
    wire.servers[0].forbid_kills();
    lose_replies(wire);
}

fn lose_replies(wire: Wire) {
    let clients = [(); 2].map(|()| wire.client(|builder| builder.connections(1 + choose(2))));
    for _ in 0..2 {
        wire.servers[0].next(REQUESTS[choose(2)], any_mishap());
    }
    join_all([0, 0, 1].map(|at| {
        let client = clients[at].clone();
        wire.spawn(move |wire| (0..2).for_each(|_| _ = wire.section(&client, "job")))
    }));
    for client in &clients {
        wire.is_free(client, "job");
    }
    wire.end(clients);
}

/// A client is closed while its calls wait for the only connection, and for an answer on it.
pub(crate) fn closed_while_waiting() {
    let wire = Wire::of(1);
    let client = wire.client(|builder| builder.connections(1));
    let late = Duration::from_millis([300, 900][choose(2)]);
    wire.servers[0].next("mutex_acquire", Mishap::AnsweredLate(late));
    let threads = NAMES.map(|name| {
        let client = client.clone();
        spawn(move || {
            let began = now();
            match client.lock(name) {
                Ok(guard) => drop(guard),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
            }
            let took = now() - began;
            assert!(
                took < 3 * late / 2,
                "the late answer is all that there is to wait for: {took:?}"
            );
        })
    });
    pause();
    // The pool is closed once all calls have ended, or when the time for that is over.
    let closed = client.close(Duration::from_millis([10, 2_000][choose(2)]));
    join_all(threads);
    drop(client);
    // What a close that says so leaves ends with its lease.
    if closed.is_ok() { wire.close([]) } else { wire.stop() }
}
