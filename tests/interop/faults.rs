//! The stress of both sides, while connections are cut, scripts are forgotten, the server is started again, and processes
//! of each side are killed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::LockClient;

use crate::jvm::Jvm;
use crate::rig::{Child, Server, ms};
use crate::stress::{Counter, Turn, ended, lasting, plain, rw, stress};
use crate::world::World;

fn cut_all(server: &Server) {
    // Those of the subscriptions too: who waits is told of no release meanwhile.
    for kind in ["normal", "pubsub"] {
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

#[test]
fn connections_are_cut_scripts_forgotten_and_the_server_started_again() {
    // What it said is on the disk: nothing that was held is forgotten.
    let Some(World { jvm, mut server }) = World::on(&["--appendonly", "yes", "--appendfsync", "always"], &[]) else {
        return;
    };
    let clients = [lasting(&server), lasting(&server)];
    let dir = server.dir().to_owned();
    for (noun, turn) in [("lock", plain as Turn), ("rw", rw)] {
        stress(&dir, &clients, &[&jvm], (noun, turn), |length| {
            let rounds = 6;
            for round in 0..rounds {
                std::thread::sleep(length / rounds);
                match round % 3 {
                    0 => cut_all(&server),
                    1 => server.cmd::<()>(&["SCRIPT", "FLUSH"]),
                    _ => server.restart(),
                }
            }
        });
    }
    drop(clients);
    drop(jvm);
    drop(server);
}

#[test]
#[ignore = "a program for other tests"]
fn doomed_process() {
    let client =
        LockClient::builder().url(std::env::var("LEASEHOLD_TEST_URL").unwrap()).lease(ms(5000)).build().unwrap();
    let counter = Counter::open(Path::new(&std::env::var("LEASEHOLD_TEST_FILE").unwrap()));
    println!("@@runs");
    loop {
        turn(&client, &counter);
    }
}

fn turn(client: &LockClient, counter: &Counter) -> bool {
    let Some(guard) = client.mutex("marks").keep_token().try_lock_for(Duration::from_secs(2)).unwrap() else {
        return false;
    };
    counter.mark();
    ended(guard.unlock());
    true
}

/// In the middle of it, with whatever they hold: their leases end, and the others go on.
#[test]
fn processes_of_both_sides_are_killed() {
    let Some(world) = World::with(&["watchdog=5000"]) else { return };
    let path = world.server.dir().join("marks");
    std::fs::write(&path, [0; 8]).unwrap();
    let env = [("LEASEHOLD_TEST_URL", &*world.server.url()), ("LEASEHOLD_TEST_FILE", path.to_str().unwrap())];
    let (client, stop) = (lasting(&world.server), AtomicBool::new(false));
    let counter = Counter::open(&path);
    let lasts = |millis: u32| format!("lock marks turns {} {millis} mark", path.display());
    let java = world.jvm.thread();
    java.begin(&lasts(9000));
    std::thread::scope(|s| {
        let ours = s.spawn(|| {
            let mut turns = 0;
            while !stop.load(Ordering::SeqCst) {
                turns += u32::from(turn(&client, &counter));
            }
            turns
        });
        for _ in 0..2 {
            let Some(mut doomed) = Jvm::start(&world.server, &["watchdog=5000"]) else { return };
            let mut child = Child::spawn("faults::doomed_process", &env);
            child.expect("runs");
            doomed.thread().begin(&lasts(60_000));
            std::thread::sleep(ms(700));
            child.kill();
            doomed.kill();
        }
        let theirs: u32 = java.answer_within(Duration::from_secs(45)).parse().unwrap();
        stop.store(true, Ordering::SeqCst);
        let ours = ours.join().unwrap();
        assert!(ours > 10 && theirs > 0, "{ours} turns of ours, {theirs} of Java");
    });
}
