//! Threads of both sides take turns at a counter outside of Redis, which is exact only if never two are inside.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Error, ErrorKind, LockClient};

use crate::jvm::Jvm;
use crate::rig::{Server, ms, wait_until};
use crate::world::World;

const SIDES: usize = 4;

/// How long one primitive is under stress.
fn length() -> Duration {
    let is_long = std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1");
    if is_long { Duration::from_secs(15) } else { ms(1500) }
}

/// A number outside of Redis.
pub(crate) struct Counter(File);

impl Counter {
    pub(crate) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    /// As Java writes a `long`.
    fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_be_bytes(bytes)
    }

    fn add_one(&self) {
        let before = self.read();
        std::thread::yield_now();
        self.0.write_all_at(&(before + 1).to_be_bytes(), 0).unwrap();
    }

    /// For those who may be killed in the middle: nobody else may leave a mark meanwhile.
    pub(crate) fn mark(&self) {
        let mark: u64 = rand::random();
        self.0.write_all_at(&mark.to_be_bytes(), 0).unwrap();
        std::thread::yield_now();
        assert_eq!(self.read(), mark, "two inside");
    }

    fn stays(&self) {
        let before = self.read();
        std::thread::yield_now();
        assert_eq!(self.read(), before, "it changed while it was read");
    }
}

/// One turn of ours. An error before the turn is none; what the end of a hold tells is of no use to the counter.
pub(crate) type Turn = fn(&LockClient, &Counter) -> Result<bool, Error>;

/// Four threads of each client and of each Java process, on one noun. `turn` says whether it counted.
pub(crate) fn stress(
    dir: &Path,
    clients: &[LockClient],
    jvms: &[&Jvm],
    (noun, turn): (&str, Turn),
    trouble: impl FnOnce(Duration),
) {
    let path = dir.join(format!("count-{noun}"));
    std::fs::write(&path, [0; 8]).unwrap();
    let counter = Counter::open(&path);
    let stop = AtomicBool::new(false);
    let length = length();
    let javas: Vec<_> = jvms.iter().flat_map(|jvm| (0..SIDES).map(|_| jvm.thread())).collect();
    for (n, java) in javas.iter().enumerate() {
        // Half of those that can only read.
        let (noun, mode) = match noun {
            "rw" if n % 2 == 0 => ("read", "read"),
            "rw" => ("write", "write"),
            _ => (noun, "write"),
        };
        let name = if noun == "multi" { "stress,stress2" } else { "stress" };
        java.begin(&format!("{noun} {name} turns {} {} {mode}", path.display(), length.as_millis()));
    }
    let mut ours = 0;
    let mut theirs = 0;
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..SIDES * clients.len())
            .map(|n| {
                let (client, counter, stop) = (&clients[n % clients.len()], &counter, &stop);
                s.spawn(move || {
                    let mut turns = 0;
                    while !stop.load(Ordering::SeqCst) {
                        match turn(client, counter) {
                            Ok(counted) => turns += u64::from(counted),
                            Err(e) => {
                                assert!(matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{e:?}");
                                std::thread::sleep(ms(2));
                            }
                        }
                    }
                    turns
                })
            })
            .collect();
        trouble(length);
        stop.store(true, Ordering::SeqCst);
        ours += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        for (n, java) in javas.iter().enumerate() {
            // What a lost reply left locked in Java's name may first have to end.
            let turns: u64 = java.answer_within(Duration::from_secs(45)).parse().unwrap();
            theirs += if noun == "rw" && n % 2 == 0 { 0 } else { turns };
        }
    });
    println!("{noun}: {ours} turns of ours, {theirs} of Java");
    assert_eq!(counter.read(), ours + theirs, "{noun}: {ours} turns of ours and {theirs} of Java");
    // Readers of Java let none of the writers in for most of the time.
    assert!(noun == "rw" || ours > 0 && theirs > 0, "{noun}: {ours} turns of ours and {theirs} of Java");
}

/// All that a test may do with a guard that ends: only an unreachable server is no reason to fail.
pub(crate) fn ended(outcome: Result<(), Error>) {
    if let Err(e) = outcome {
        assert!(matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{e:?}");
    }
}

/// Waits so long at most: nothing is free any more once all the others have stopped with it.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn plain(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let Some(guard) = client.mutex("stress").keep_token().try_lock_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(guard.unlock());
    Ok(true)
}

fn fair(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let Some(guard) = client.fair("stress").try_lock_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(guard.unlock());
    Ok(true)
}

pub(crate) fn rw(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let rw = client.rw_lock("stress");
    if rand::random() {
        let Some(guard) = rw.try_read_for(PATIENCE)? else { return Ok(false) };
        counter.stays();
        ended(guard.unlock());
        return Ok(false);
    }
    let Some(guard) = rw.try_write_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(guard.unlock());
    Ok(true)
}

fn multi(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let Some(guard) = client.multi(["stress2", "stress"]).try_lock_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(guard.unlock());
    Ok(true)
}

fn permits(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let Some(permit) = client.semaphore("stress").try_acquire_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(permit.unlock());
    Ok(true)
}

fn counting(client: &LockClient, counter: &Counter) -> Result<bool, Error> {
    let Some(permit) = client.counting_semaphore("stress").try_acquire_for(PATIENCE)? else { return Ok(false) };
    counter.add_one();
    ended(permit.unlock());
    Ok(true)
}

/// A hold of it outlasts the test, whatever becomes of its connection.
pub(crate) fn lasting(server: &Server) -> LockClient {
    server.builder().lease(Duration::from_secs(60)).build().unwrap()
}

/// Two processes' worth of each side.
#[test]
fn never_two_inside() {
    let Some(world) = World::with(&[]) else { return };
    let Some(second) = Jvm::start(&world.server, &[]) else { return };
    let nouns: [(&str, Turn); 7] = [
        ("lock", plain),
        ("fenced", plain),
        ("fair", fair),
        ("rw", rw),
        ("multi", multi),
        ("permits", permits),
        ("counting", counting),
    ];
    let clients = [lasting(&world.server), lasting(&world.server)];
    for (noun, turn) in nouns {
        world.server.cmd::<()>(&["FLUSHALL"]);
        if ["permits", "counting"].contains(&noun) {
            world.client().counting_semaphore("stress").try_set_permits(1).unwrap();
        }
        stress(world.server.dir(), &clients, &[&world.jvm, &second], (noun, turn), std::thread::sleep);
        match noun {
            "permits" | "counting" => assert_eq!(world.server.cmd::<String>(&["GET", "stress"]), "1"),
            // Redisson's mark of an unlock may stay for a while: it has an end, and before 4 nobody removes it.
            _ => wait_until("no lock is left behind", || {
                world.server.lock_keys().iter().all(|key| key.starts_with("redisson_unlock_latch:"))
            }),
        }
    }
}
