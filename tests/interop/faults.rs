//! The stress of both sides on all primitives at once, while connections are cut, scripts are forgotten, the server is started
//! again, and processes of each side are killed.

use std::path::PathBuf;

use crate::jvm::Jvm;
use crate::players::{Counter, Mode, Process, Tally, play};
use crate::rig::{Server, ms};
use crate::stress::{Javas, LEASE, client, java, judge, length, set_up};
use crate::world::World;

/// Without plain counts: those of a Java thread whose reply was lost, or of any that was killed, are gone.
const NOUNS: [&str; 6] = ["lock", "fenced", "fair", "rw", "multi", "permits"];
/// Threads of each process on each noun.
const THREADS: usize = 2;

/// Those of Java. An `RMultiLock` waits for one lock while it holds another, and after a lost reply, not always in the order in
/// which it takes them: two of them have been seen to wait for each other.
fn java_threads(noun: &str) -> usize {
    if noun == "multi" { 1 } else { THREADS }
}

fn cut_all(server: &Server) {
    // Those of the subscriptions too: who waits is told of no release meanwhile.
    for kind in ["normal", "pubsub"] {
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

/// Stops everybody, also after a panic: the scope waits for ours.
struct StopAll<'a>(&'a [(PathBuf, Counter)]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, counter)| counter.stop());
    }
}

/// All primitives at once, for as long as the trouble takes. A process of each side stays to the end.
fn in_trouble(server: &mut Server, jvm: &Jvm, mode: Mode, trouble: impl FnOnce(&mut Server, &dyn Fn(&str) -> String)) {
    let client = client(server);
    let counters = NOUNS.map(|noun| set_up(server, &client, noun));
    let path_of = |noun: &str| {
        let at = NOUNS.iter().position(|n| *n == noun).unwrap();
        counters[at].0.to_str().unwrap().to_owned()
    };
    let javas: Vec<_> =
        NOUNS.iter().map(|noun| Javas::begin(jvm, noun, path_of(noun).as_ref(), mode, java_threads(noun))).collect();
    let tallies: Vec<(Tally, Tally)> = std::thread::scope(|s| {
        let ours: Vec<_> = NOUNS
            .iter()
            .map(|noun| {
                let path = path_of(noun);
                let client = &client;
                s.spawn(move || play(client, noun, path.as_ref(), mode, THREADS))
            })
            .collect();
        let stop = StopAll(&counters);
        trouble(server, &path_of);
        counters.iter().for_each(|(_, counter)| counter.stop_java());
        let theirs: Vec<_> = javas.iter().map(Javas::tally).collect();
        drop(stop);
        ours.into_iter().map(|thread| thread.join().unwrap()).zip(theirs).collect()
    });
    for (n, (ours, theirs)) in tallies.into_iter().enumerate() {
        assert!(!counters[n].1.is_broken(), "{}: two inside", NOUNS[n]);
        match mode {
            // A waiter of Java that misses a message sleeps for a lease: it may have had no turn at all.
            Mode::Count => judge(NOUNS[n], &counters[n].1, ours, theirs),
            Mode::Mark => assert!(ours.turns > 0, "{}: {ours:?}, {theirs:?}", NOUNS[n]),
        }
    }
}

#[test]
fn connections_are_cut_scripts_forgotten_and_the_server_started_again() {
    // What it said is on the disk: nothing that was held is forgotten.
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(World { jvm, mut server }) = World::on(&args, &[&format!("watchdog={LEASE}"), "fairWait=2000"]) else {
        return;
    };
    in_trouble(&mut server, &jvm, Mode::Count, |server, _| {
        let rounds = 9;
        for round in 0..rounds {
            std::thread::sleep(length() * 3 / rounds);
            match round % 3 {
                0 => cut_all(server),
                1 => server.cmd::<()>(&["SCRIPT", "FLUSH"]),
                _ => server.restart(),
            }
        }
    });
    drop(jvm);
    drop(server);
}

/// In the middle of it, with whatever they hold: their leases end, and the others go on.
#[test]
fn processes_of_both_sides_are_killed() {
    let Some(World { jvm, mut server }) = World::with(&[&format!("watchdog={LEASE}"), "fairWait=2000"]) else { return };
    in_trouble(&mut server, &jvm, Mode::Mark, |server, path_of| {
        for _ in 0..2 {
            let doomed_java = java(server).unwrap();
            let mut doomed = Process::start(server, LEASE);
            let _javas: Vec<_> = NOUNS
                .iter()
                .map(|noun| {
                    let path = path_of(noun);
                    doomed.begin(noun, path.as_ref(), Mode::Mark, THREADS);
                    Javas::begin(&doomed_java, noun, path.as_ref(), Mode::Mark, java_threads(noun))
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
