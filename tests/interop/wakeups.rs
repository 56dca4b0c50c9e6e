//! The time from a release by one library until the other acquires the lock: printed, and always
//! shorter than a lease.

use std::time::{Duration, Instant};

use leasehold::LockClient;

use crate::java::{JavaThread, Jvm};
use crate::rig::wait_until;
use crate::support::Clients;
use crate::world::{Home, PROMPT, world};

const ROUNDS: usize = 5;

pub(crate) type Release = Box<dyn FnOnce() + Send>;
/// A unique name for a primitive, which contains the given words.
pub(crate) type Names<'a> = &'a dyn Fn(&Primitive, &str) -> String;

pub(crate) struct Primitive {
    pub(crate) java: &'static str,
    /// Blocks until leasehold holds it.
    pub(crate) take: fn(&LockClient, &str) -> Release,
    /// The channel of the waiters; that of a fair lock ends with the id of the waiter.
    channel: &'static str,
}

macro_rules! take {
    (|$client:ident, $name:ident| $guard:expr) => {
        take!(|$client, $name| $guard, unlock)
    };
    (|$client:ident, $name:ident| $guard:expr, $end:ident) => {
        |$client, $name| {
            let guard = $guard.unwrap();
            Box::new(move || guard.$end().unwrap())
        }
    };
}

const LOCK_CHANNEL: &str = "redisson_lock__channel:";
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

pub(crate) const PRIMITIVES: [Primitive; 9] = [
    Primitive { java: "lock", take: take!(|c, n| c.mutex(n).lock_owned()), channel: LOCK_CHANNEL },
    Primitive {
        java: "fenced",
        take: take!(|c, n| c.mutex(n).keep_token().lock_owned()),
        channel: LOCK_CHANNEL,
    },
    Primitive { java: "fair", take: take!(|c, n| c.fair(n).lock_owned()), channel: "" },
    WRITE,
    Primitive {
        java: "read",
        take: take!(|c, n| c.rw_lock(n).read_owned()),
        channel: "redisson_rwlock:",
    },
    Primitive {
        java: "multi",
        take: take!(|c, n| c.multi([n]).lock_owned()),
        channel: LOCK_CHANNEL,
    },
    Primitive {
        java: "permits",
        take: take!(|c, n| c.semaphore(n).acquire(), release),
        channel: "redisson_sc:",
    },
    Primitive {
        java: "counting",
        take: take!(|c, n| c.counting_semaphore(n).acquire(), release),
        channel: "redisson_sc:",
    },
    Primitive { java: "latch", take: pass, channel: LATCH_CHANNEL },
];

const WRITE: Primitive = Primitive {
    java: "write",
    take: take!(|c, n| c.rw_lock(n).write_owned()),
    channel: "redisson_rwlock:",
};
/// The "holder" of a latch closes it, and opens it as the release.
const CLOSED_LATCH: Primitive =
    Primitive { java: "closed latch", take: close, channel: LATCH_CHANNEL };

/// The names of Redisson's keys and channels of a lock, except for a latch.
fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

fn pass(client: &LockClient, name: &str) -> Release {
    client.latch(name).wait().unwrap();
    Box::new(|| {})
}

fn close(client: &LockClient, name: &str) -> Release {
    let latch = client.latch(name);
    assert!(latch.try_set_count(1).unwrap());
    Box::new(move || assert_eq!(latch.count_down().unwrap(), 0))
}

impl Primitive {
    pub(crate) fn is_waited_for(&self, home: &impl Home, name: &str) -> bool {
        match self.channel {
            "" => {
                home.server_of(name)
                    .cmd::<u32>(&["LLEN", &format!("redisson_lock_queue:{}", tagged(name))])
                    > 0
            }
            _ => home.listeners(name, &self.pattern(name)) > 0,
        }
    }

    /// The channel to which a Java waiter subscribes, or a pattern for it.
    pub(crate) fn pattern(&self, name: &str) -> String {
        match self.channel {
            "" => format!("{LOCK_CHANNEL}{}:*", tagged(name)),
            LATCH_CHANNEL => format!("{LATCH_CHANNEL}{{{name}}}"),
            channel => format!("{channel}{}", tagged(name)),
        }
    }

    /// What the other library holds while this primitive is waited for.
    pub(crate) fn held_as(&self) -> &Self {
        match self.java {
            "read" => &WRITE,
            "latch" => &CLOSED_LATCH,
            _ => self,
        }
    }

    /// Limits the primitive to a single holder.
    pub(crate) fn set_up(&self, client: &LockClient, name: &str) {
        match self.java {
            "permits" => assert_eq!(
                client.semaphore(name).try_set_permits(1).unwrap(),
                leasehold::SetPermits::New
            ),
            "counting" => {
                assert!(client.counting_semaphore(name).try_set_permits(1).unwrap().is_new());
            }
            _ => {}
        }
    }

    pub(crate) fn command(&self, name: &str) -> String {
        match self.java {
            "permits" => format!("permits {name} acquire"),
            "counting" => format!("counting {name} acquire 1"),
            "latch" => format!("latch {name} await"),
            "closed latch" => format!("latch {name} trySetCount 1"),
            // Its `lock()` polls every 1.5 s.
            "multi" => format!("multi {name} tryLock 60000"),
            java => format!("{java} {name} lock"),
        }
    }

    pub(crate) fn java_releases(&self, java: &JavaThread<'_>, name: &str, answer: &str) {
        match self.java {
            "permits" => java.call(&format!("permits {name} release {answer}")),
            "counting" => java.call(&format!("counting {name} release 1")),
            "latch" => return,
            "closed latch" => java.call(&format!("latch {name} countDown")),
            primitive => java.call(&format!("{primitive} {name} unlock")),
        };
    }
}

fn tell(primitive: &str, mut java: Vec<Duration>, mut ours: Vec<Duration>) {
    java.sort_unstable();
    ours.sort_unstable();
    let (most, half) = (java.len() - 1, java.len() / 2);
    println!(
        "{primitive}: Java acquired it after {:.1?}, at most {:.1?}; we after {:.1?}, at most {:.1?}",
        java[half], java[most], ours[half], ours[most]
    );
    assert!(java[most].max(ours[most]) < PROMPT, "{primitive}: not woken by a message");
}

#[test]
fn releases_wake_the_other_library_by_a_message() {
    let world = world();
    // Leasehold waiters of a fair lock poll every third of it.
    let client = world.server.builder().waiter_timeout(Duration::from_secs(60)).build().unwrap();
    wake_each_other(
        &world.server,
        &client,
        &world.jvm,
        &|p, words| format!("wake-{}-{words}", p.java),
        ROUNDS,
    );
}

/// Each library waits for everything that the other holds, `rounds` times.
pub(crate) fn wake_each_other(
    home: &impl Home,
    client: &LockClient,
    jvm: &Jvm,
    names: Names<'_>,
    rounds: usize,
) {
    let (holder, waiter) = (jvm.thread(), jvm.thread());
    for primitive in &PRIMITIVES {
        let (mut java_had_it, mut we_had_it) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // Each round has its own names; otherwise the subscription of the last round could be
            // mistaken for that of this one.
            let name = &names(primitive, &round.to_string());
            primitive.set_up(client, name);
            let release = (primitive.held_as().take)(client, name);
            waiter.begin(&primitive.command(name));
            wait_until("Java waits", || !waiter.waits() || primitive.is_waited_for(home, name));
            assert!(waiter.waits(), "{name}: Java did not wait: {}", waiter.answer());
            let start = Instant::now();
            release();
            let answer = waiter.answer();
            java_had_it.push(start.elapsed());
            primitive.java_releases(&waiter, name, &answer);

            let name = &names(primitive, &format!("{round}-back"));
            primitive.set_up(client, name);
            let answer = holder.call(&primitive.held_as().command(name));
            std::thread::scope(|s| {
                let ours = s.spawn(|| ((primitive.take)(client, name), Instant::now()));
                wait_until("we wait", || primitive.is_waited_for(home, name));
                assert!(!ours.is_finished(), "{name} is held");
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

/// The waiters were informed of a lease that lasts for minutes, and sleep.
#[test]
fn java_learns_of_the_end_of_a_lock_that_stays_taken() {
    const LEAST: Duration = Duration::from_secs(2);
    let world = world();
    let client = world.server.builder().lease(Duration::from_secs(300)).build().unwrap();
    let waiter = world.jvm.thread();
    let kept: [Primitive; 3] = [
        Primitive { take: take!(|c, n| c.mutex(n).min_hold(LEAST).lock_owned()), ..PRIMITIVES[0] },
        Primitive { take: take!(|c, n| c.fair(n).min_hold(LEAST).lock_owned()), ..PRIMITIVES[2] },
        Primitive { take: take!(|c, n| c.rw_lock(n).min_hold(LEAST).write_owned()), ..WRITE },
    ];
    for primitive in &kept {
        let name = &format!("wake-kept-{}", primitive.java);
        let release = (primitive.take)(&client, name);
        let start = Instant::now();
        waiter.begin(&primitive.command(name));
        wait_until("Java waits", || primitive.is_waited_for(&world.server, name));
        release();
        assert!(world.server.pttl(name) <= 2001, "{name}: it is kept for the remaining time");
        let answer = waiter.answer();
        let passed = start.elapsed();
        assert!(
            passed + Duration::from_millis(100) >= LEAST,
            "{name}: Java acquired it after {passed:?}"
        );
        assert!(passed < LEAST + PROMPT, "{name}: not woken by a message");
        primitive.java_releases(&waiter, name, &answer);
    }
}

#[test]
fn a_latch_that_opens_wakes_both_libraries_by_a_message() {
    let world = world();
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
            wait_until("both wait", || world.server.listeners(name, &channel) == 2);
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
