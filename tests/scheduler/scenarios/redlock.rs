//! Redlock over three masters, of which one is late, cut off, restarted, or has forgotten the
//! scripts: rounds end without its replies, which come later.

use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::{ErrorKind, LockClient};

use crate::book::As;
use crate::redis::Mishap;
use crate::stage::{choose, join_all};
use crate::wire::Wire;

/// Far longer than anything here takes: what is left is not freed by the end of its lease.
const LEASE: Duration = Duration::from_secs(30);

fn clients(wire: &Wire) -> [LockClient; 2] {
    [(); 2].map(|()| wire.redlock(LEASE, true))
}

fn late() -> Duration {
    Duration::from_millis([1, 5, 20][choose(3)])
}

/// Three threads of two clients take one lock.
fn contend(wire: &Wire, clients: &[LockClient; 2]) {
    join_all([0, 0, 1].map(|at| {
        let client = clients[at].clone();
        wire.spawn(move |wire| (0..2).for_each(|_| _ = wire.section(&client, "job")))
    }));
}

fn end(wire: Wire, clients: [LockClient; 2]) {
    for client in &clients {
        wire.is_free(client, "job");
    }
    wire.end(clients);
}

/// One master is late with every answer.
pub(crate) fn one_is_late() {
    let wire = Wire::of(3);
    let clients = clients(&wire);
    wire.servers[2].answers_late(late());
    contend(&wire, &clients);
    end(wire, clients);
}

/// One master runs every request late, refuses some of them, or ends the connection before it has
/// run them.
pub(crate) fn refused_late() {
    let wire = Wire::of(3);
    let clients = clients(&wire);
    wire.servers[2].runs_late(late());
    wire.servers[2].next(["redlock_acquire", "mutex_release"][choose(2)], Mishap::Refused(late()));
    let disturbs = wire.spawn(|wire| {
        for _ in 0..2 {
            sleep(Duration::from_micros([0, 300, 1_500, 7_000][choose(4)]));
            match choose(2) {
                0 => wire.servers[2].flush_scripts(),
                _ => wire.servers[2].end_connections(),
            }
        }
    });
    contend(&wire, &clients);
    join_all([disturbs]);
    end(wire, clients);
}

/// Requests at any master are late, cut, or answered late.
pub(crate) fn lost_replies() {
    let wire = Wire::of(3);
    let clients = clients(&wire);
    for _ in 0..3 {
        let mishaps = [
            Mishap::RunsLate(late()),
            Mishap::AnsweredLate(late()),
            Mishap::CutBefore,
            Mishap::CutAfter,
        ];
        let request = ["redlock_acquire", "mutex_release"][choose(2)];
        wire.servers[choose(3)].next(request, mishaps[choose(4)]);
    }
    contend(&wire, &clients);
    end(wire, clients);
}

/// Each master is as late as it likes, so rounds of two clients split the masters between them, and
/// take back what they have.
pub(crate) fn all_are_late() {
    let wire = Wire::of(3);
    let clients = clients(&wire);
    for server in wire.servers.iter() {
        if choose(2) == 0 { server.answers_late(late()) } else { server.runs_late(late()) }
    }
    contend(&wire, &clients);
    end(wire, clients);
}

/// A lease of a second is renewed while a master is late, also by more than the I/O timeout.
pub(crate) fn renewed() {
    let wire = Wire::of(3);
    let lease = Duration::from_secs(1);
    let client = wire.redlock(lease, true);
    wire.servers[2].answers_late(Duration::from_millis([20, 240, 400][choose(3)]));
    let guard = client.lock("job").expect("two masters answer");
    sleep(3 * lease);
    assert!(guard.is_held(), "two masters answer");
    guard.unlock().expect("it is held");
    wire.servers[2].answers_late(Duration::ZERO);
    wire.end([client]);
}

/// A lock is held on two masters, one of which restarts without its data: its vote and that of the
/// third may not make a second holder.
pub(crate) fn restarted() {
    let wire = Wire::of(3);
    let lease = Duration::from_secs(2);
    // Without it no master would ever vote.
    wire.redlock(lease, true).close(lease).expect("it has nothing to release");
    let [one, other] = [(); 2].map(|()| wire.redlock(lease, false));
    // A request is repeated if its connection may have ended while it was idle.
    for _ in 0..2 {
        wire.servers[2].next("redlock_acquire", Mishap::CutBefore);
    }
    let guard = one.lock("job").expect("two masters answer");
    wire.book.enter("job", As::Writer, None);
    wire.servers[0].restart(false);
    let takes = wire.spawn(move |wire| {
        match other.try_lock_for("job", Duration::from_millis(400)) {
            Ok(None) => {}
            Ok(Some(guard)) => {
                wire.book.enter("job", As::Writer, None);
                wire.book.leave("job", As::Writer);
                drop(guard);
            }
            Err(e) => {
                assert!([ErrorKind::NoQuorum, ErrorKind::Unreachable].contains(&e.kind()), "{e}");
            }
        }
        other
    });
    sleep(Duration::from_millis([0, 100, 300][choose(3)]));
    assert!(guard.is_held(), "a master that forgot ends no lease");
    wire.book.leave("job", As::Writer);
    // One master of three remembers it.
    let _ = guard.unlock().inspect_err(|e| assert_eq!(e.kind(), ErrorKind::Lost, "{e}"));
    let other = takes.join().expect("it does not panic");
    wire.close([one, other]);
}
