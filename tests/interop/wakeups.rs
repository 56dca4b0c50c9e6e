//! The time from a release by one library until the other has the lock: printed, and never as long
//! as a lease.

use std::time::{Duration, Instant};

use leasehold::LockClient;

use crate::jvm::{JavaThread, listeners};
use crate::rig::{Server, wait_until};
use crate::world::{PROMPT, world};

const ROUNDS: usize = 5;

type Release = Box<dyn FnOnce() + Send>;

struct Primitive {
    java: &'static str,
    /// Blocks until leasehold holds it.
    take: fn(&LockClient, &str) -> Release,
    /// The channel of the waiters; that of a fair lock ends with the id of the waiter.
    channel: &'static str,
}

macro_rules! take {
    (|$client:ident, $name:ident| $guard:expr) => {
        |$client, $name| {
            let guard = $guard.unwrap();
            Box::new(move || guard.unlock().unwrap())
        }
    };
}

const PRIMITIVES: [Primitive; 8] = [
    Primitive { java: "lock", take: take!(|c, n| c.mutex(n).lock_owned()), channel: "redisson_lock__channel:" },
    Primitive {
        java: "fenced",
        take: take!(|c, n| c.mutex(n).keep_token().lock_owned()),
        channel: "redisson_lock__channel:",
    },
    Primitive { java: "fair", take: take!(|c, n| c.fair(n).lock_owned()), channel: "" },
    Primitive { java: "write", take: take!(|c, n| c.rw_lock(n).write_owned()), channel: "redisson_rwlock:" },
    Primitive { java: "read", take: take!(|c, n| c.rw_lock(n).read_owned()), channel: "redisson_rwlock:" },
    Primitive { java: "multi", take: take!(|c, n| c.multi([n]).lock_owned()), channel: "redisson_lock__channel:" },
    Primitive { java: "permits", take: take!(|c, n| c.semaphore(n).acquire()), channel: "redisson_sc:" },
    Primitive { java: "counting", take: take!(|c, n| c.counting_semaphore(n).acquire()), channel: "redisson_sc:" },
];

impl Primitive {
    fn is_waited_for(&self, server: &Server, name: &str) -> bool {
        match self.channel {
            "" => server.cmd::<u32>(&["LLEN", &format!("redisson_lock_queue:{{{name}}}")]) > 0,
            channel => listeners(server, &format!("{channel}{{{name}}}")) > 0,
        }
    }

    /// Readers wait for a writer.
    fn held_as(&self) -> &Self {
        if self.java == "read" { &PRIMITIVES[3] } else { self }
    }

    fn command(&self, name: &str) -> String {
        match self.java {
            "permits" => format!("permits {name} acquire"),
            "counting" => format!("counting {name} acquire 1"),
            // Its `lock()` polls every 1.5 s.
            "multi" => format!("multi {name} tryLock 60000"),
            java => format!("{java} {name} lock"),
        }
    }

    fn java_releases(&self, java: &JavaThread<'_>, name: &str, answer: &str) {
        match self.java {
            "permits" => java.call(&format!("permits {name} release {answer}")),
            "counting" => java.call(&format!("counting {name} release 1")),
            primitive => java.call(&format!("{primitive} {name} unlock")),
        };
    }
}

fn tell(primitive: &str, mut java: Vec<Duration>, mut ours: Vec<Duration>) {
    java.sort_unstable();
    ours.sort_unstable();
    let (most, half) = (ROUNDS - 1, ROUNDS / 2);
    println!(
        "{primitive}: Java had it after {:.1?}, at most {:.1?}; we after {:.1?}, at most {:.1?}",
        java[half], java[most], ours[half], ours[most]
    );
    assert!(java[most].max(ours[most]) < PROMPT, "{primitive}: that was no message");
}

#[test]
fn releases_wake_the_other_library_by_a_message() {
    let Some(world) = world() else { return };
    // Leasehold waiters of a fair lock poll every third of it.
    let client = world.server.builder().waiter_timeout(Duration::from_secs(60)).build().unwrap();
    let (holder, waiter) = (world.jvm.thread(), world.jvm.thread());
    for primitive in &PRIMITIVES {
        let (mut java_had_it, mut we_had_it) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // Each round has its own names, or the subscription of the last round could be taken
            // for that of this one.
            let name = &format!("wake-{}-{round}", primitive.java);
            let set_up = |name: &str| match primitive.java {
                "permits" => client.semaphore(name).try_set_permits(1).map(drop).unwrap(),
                "counting" => client.counting_semaphore(name).try_set_permits(1).map(drop).unwrap(),
                _ => {}
            };
            set_up(name);
            let release = (primitive.held_as().take)(&client, name);
            waiter.begin(&primitive.command(name));
            wait_until("Java waits", || primitive.is_waited_for(&world.server, name));
            let start = Instant::now();
            release();
            let answer = waiter.answer();
            java_had_it.push(start.elapsed());
            primitive.java_releases(&waiter, name, &answer);

            let name = &format!("wake-{}-{round}-back", primitive.java);
            set_up(name);
            let answer = holder.call(&primitive.held_as().command(name));
            std::thread::scope(|s| {
                let ours = s.spawn(|| ((primitive.take)(&client, name), Instant::now()));
                wait_until("we wait", || primitive.is_waited_for(&world.server, name));
                let start = Instant::now();
                primitive.held_as().java_releases(&holder, name, &answer);
                let (release, had_it) = ours.join().unwrap();
                we_had_it.push(had_it.saturating_duration_since(start));
                release();
            });
        }
        tell(primitive.java, java_had_it, we_had_it);
    }
}

#[test]
fn a_latch_that_opens_wakes_both_libraries_by_a_message() {
    let Some(world) = world() else { return };
    let (client, counter, waiter) = (world.client(), world.jvm.thread(), world.jvm.thread());
    let (mut java_was_through, mut we_were_through) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = &format!("wake-latch-{round}");
        let latch = client.latch(name);
        latch.try_set_count(1).unwrap();
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        waiter.begin(&format!("latch {name} await"));
        std::thread::scope(|s| {
            let ours = s.spawn(|| {
                latch.wait().unwrap();
                Instant::now()
            });
            wait_until("both wait", || listeners(&world.server, &channel) == 2);
            let start = Instant::now();
            if round % 2 == 0 {
                latch.count_down().unwrap();
            } else {
                counter.call(&format!("latch {name} countDown"));
            }
            waiter.answer();
            java_was_through.push(start.elapsed());
            we_were_through.push(ours.join().unwrap().saturating_duration_since(start));
        });
    }
    tell("latch", java_was_through, we_were_through);
}
