//! Stress with both libraries on all primitives at once, while connections are cut, scripts are
//! flushed, the server is restarted, and processes of each library are killed.

use std::path::{Path, PathBuf};

use leasehold::LockClient;

use crate::java::{
    Counter, Javas, Jvm, Mode, Process, RESTARTED, Tally, judge, length, play, set_up,
};
use crate::rig::{Server, ms};
use crate::stress::{LEASE, client, java};
use crate::world::World;

/// Without plain counts: permits of a Redisson thread whose reply was lost, or of any killed
/// process, are lost.
const PRIMITIVES: [&str; 6] = ["lock", "fenced", "fair", "rw", "multi", "permits"];
/// Threads in each process for each primitive.
const THREADS: usize = 2;

/// The same for Redisson. An `RMultiLock` waits for one lock while it holds another, and after a
/// lost reply it does not always keep its order: two of them have been observed to wait for each
/// other.
fn java_threads(primitive: &str) -> usize {
    if primitive == "multi" { 1 } else { THREADS }
}

fn cut_all(server: &Server) {
    // Subscriptions are cut too: waiters miss the releases during that time.
    for kind in ["normal", "pubsub"] {
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

/// Stops all players, also after a panic, because the scope waits for the leasehold threads.
struct StopAll<'a>(&'a [(PathBuf, Counter)]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        for (_, counter) in self.0 {
            counter.stop();
        }
    }
}

/// All primitives at once, for as long as the faults last. One process of each library lives to the
/// end.
pub(crate) fn in_trouble<S>(
    servers: &mut S,
    dir: &Path,
    client: &LockClient,
    jvm: &Jvm,
    mode: Mode,
    trouble: impl FnOnce(&mut S, &dyn Fn(&str) -> String),
) {
    let counters = PRIMITIVES.map(|primitive| set_up(dir, client, primitive));
    let path_of = |primitive: &str| {
        let at = PRIMITIVES.iter().position(|n| *n == primitive).unwrap();
        counters[at].0.to_str().unwrap().to_owned()
    };
    let javas: Vec<_> = PRIMITIVES
        .iter()
        .map(|primitive| {
            Javas::begin(jvm, primitive, path_of(primitive).as_ref(), mode, java_threads(primitive))
        })
        .collect();
    let tallies: Vec<(Tally, Tally)> = std::thread::scope(|s| {
        let ours: Vec<_> = PRIMITIVES
            .iter()
            .map(|primitive| {
                let path = path_of(primitive);
                s.spawn(move || play(client, primitive, path.as_ref(), mode, THREADS))
            })
            .collect();
        let stop = StopAll(&counters);
        trouble(servers, &path_of);
        for (_, counter) in &counters {
            counter.stop_java();
        }
        let theirs: Vec<_> = javas.iter().map(Javas::tally).collect();
        drop(stop);
        ours.into_iter().map(|thread| thread.join().unwrap()).zip(theirs).collect()
    });
    for (n, (ours, theirs)) in tallies.into_iter().enumerate() {
        assert!(!counters[n].1.is_broken(), "{}: two holders", PRIMITIVES[n]);
        match mode {
            // A Redisson waiter that misses a message sleeps for a lease: it may have had no turn
            // at all.
            Mode::Count => judge(PRIMITIVES[n], &counters[n].1, ours, theirs),
            Mode::Mark => assert!(ours.turns > 0, "{}: {ours:?}, {theirs:?}", PRIMITIVES[n]),
        }
    }
}

#[test]
fn connections_are_cut_scripts_flushed_and_the_server_restarted() {
    // All acknowledged writes are on disk: no hold is forgotten.
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    let World { jvm, mut server } =
        World::on(&args, &[&format!("watchdog={LEASE}"), "fairWait=2000"]);
    let (dir, client) = (server.dir().to_owned(), client(&server));
    in_trouble(&mut server, &dir, &client, &jvm, Mode::Count, |server, _| {
        let rounds = 9;
        for round in 0..rounds {
            std::thread::sleep(length() * 3 / rounds);
            match round % 3 {
                0 => cut_all(server),
                1 => server.cmd::<()>(&["SCRIPT", "FLUSH"]),
                _ => {
                    std::fs::write(server.dir().join(RESTARTED), "").unwrap();
                    server.restart();
                }
            }
        }
    });
    drop(jvm);
    drop(server);
}

/// The processes are killed during their turns with whatever they hold: their leases end, and the
/// others continue.
#[test]
fn processes_of_both_libraries_are_killed() {
    let World { jvm, mut server } = World::with(&[&format!("watchdog={LEASE}"), "fairWait=2000"]);
    let (dir, client) = (server.dir().to_owned(), client(&server));
    in_trouble(&mut server, &dir, &client, &jvm, Mode::Mark, |server, path_of| {
        for _ in 0..2 {
            let doomed_java = java(server);
            let mut doomed = Process::start(&server.url(), ms(LEASE));
            let _javas: Vec<_> = PRIMITIVES
                .iter()
                .map(|primitive| {
                    let path = path_of(primitive);
                    doomed.begin(primitive, path.as_ref(), Mode::Mark, THREADS);
                    Javas::begin(
                        &doomed_java,
                        primitive,
                        path.as_ref(),
                        Mode::Mark,
                        java_threads(primitive),
                    )
                })
                .collect();
            std::thread::sleep(ms(700));
            doomed.kill();
            doomed_java.kill();
        }
    });
    drop(jvm);
    drop(server);
}
