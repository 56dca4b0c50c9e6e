//! Waiters of both libraries that stay while the servers change: each waits for everything that the
//! other holds.

use std::sync::mpsc;
use std::time::Instant;

use leasehold::LockClient;

use crate::java::{JavaThread, Jvm};
use crate::rig::{CAP, ms, wait_until};
use crate::wakeups::{Names, PRIMITIVES, Primitive, Release};
use crate::world::{Home, PROMPT};

/// What happens to Redisson's subscriptions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Java {
    SubscribesAgain,
    /// It waits until the lease that it was informed of ends. There is no waiter for a latch or
    /// plain counts, which have no lease: it would wait forever.
    IsDeaf,
}

/// A hold of leasehold for which Java waits.
struct JavaWaits<'a> {
    primitive: &'static Primitive,
    name: String,
    release: Release,
    thread: JavaThread<'a>,
}

impl JavaWaits<'_> {
    fn wait_until_subscribed(&self, home: &impl Home) {
        let Self { primitive, name, thread, .. } = self;
        wait_until(&format!("{name}: Java has subscribed again"), || {
            home.hears(name, &primitive.pattern(name))
        });
        assert!(thread.waits(), "{name} is held");
    }
}

/// After a panic the waiters would wait forever, and the scope for them.
struct EndsWaits<'a>(&'a LockClient);

impl Drop for EndsWaits<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.close(ms(1000));
        }
    }
}

/// A hold of Java for which leasehold waits. `answer` is Java's result of the acquire.
struct WeWait {
    primitive: &'static Primitive,
    name: String,
    answer: String,
}

/// Starts the waiters, changes the servers, releases everything, and checks that every waiter
/// acquires soon after.
pub(crate) fn are_woken_after<H: Home>(
    home: &mut H,
    client: &LockClient,
    jvm: &Jvm,
    names: Names<'_>,
    java: Java,
    change: impl FnOnce(&mut H, &[String]),
) {
    let holder = jvm.thread();
    let theirs = java_waits(home, client, jvm, names, java);
    let ours: Vec<WeWait> =
        PRIMITIVES.iter().map(|primitive| java_holds(client, &holder, primitive, names)).collect();
    std::thread::scope(|s| {
        let _ended = EndsWaits(client);
        let (had, has) = mpsc::channel();
        for WeWait { primitive, name, .. } in &ours {
            let had = had.clone();
            s.spawn(move || had.send((name.clone(), (primitive.take)(client, name))).unwrap());
        }
        for WeWait { primitive, name, .. } in &ours {
            wait_until("we wait", || primitive.is_waited_for(home, name));
        }
        // Redisson tries once more before it waits.
        std::thread::sleep(ms(300));
        for waits in &theirs {
            assert!(waits.thread.waits(), "{} is held", waits.name);
        }
        assert!(has.try_recv().is_err(), "Java holds everything");

        let all =
            theirs.iter().map(|waits| &waits.name).chain(ours.iter().map(|waits| &waits.name));
        change(home, &all.cloned().collect::<Vec<_>>());
        if java == Java::SubscribesAgain {
            // It does not check a lock again afterwards, so a release before that would be missed.
            for waits in &theirs {
                waits.wait_until_subscribed(home);
            }
        }

        for WeWait { primitive, name, answer } in &ours {
            primitive.held_as().java_releases(&holder, name, answer);
            let start = Instant::now();
            let (woken, release) = has.recv_timeout(CAP).unwrap_or_else(|e| panic!("{name}: {e}"));
            println!("{name}: we acquired it after {:.1?}", start.elapsed());
            assert!(start.elapsed() < PROMPT, "{name}: not woken by a message");
            assert_eq!(&woken, name);
            release();
        }
        for waits in theirs {
            java_is_woken(waits, java);
        }
    });
}

fn java_waits<'a>(
    home: &impl Home,
    client: &LockClient,
    jvm: &'a Jvm,
    names: Names<'_>,
    java: Java,
) -> Vec<JavaWaits<'a>> {
    let has_lease = |primitive: &&Primitive| !["counting", "latch"].contains(&primitive.java);
    let begin = |primitive: &'static Primitive| {
        let name = names(primitive, "a");
        primitive.set_up(client, &name);
        let release = (primitive.held_as().take)(client, &name);
        let thread = jvm.thread();
        thread.begin(&primitive.command(&name));
        wait_until("Java waits", || primitive.is_waited_for(home, &name));
        JavaWaits { primitive, name, release, thread }
    };
    PRIMITIVES
        .iter()
        .filter(|primitive| java == Java::SubscribesAgain || has_lease(primitive))
        .map(begin)
        .collect()
}

fn java_holds(
    client: &LockClient,
    holder: &JavaThread<'_>,
    primitive: &'static Primitive,
    names: Names<'_>,
) -> WeWait {
    let name = names(primitive, "b");
    primitive.set_up(client, &name);
    let answer = holder.call(&primitive.held_as().command(&name));
    WeWait { primitive, name, answer }
}

fn java_is_woken(waits: JavaWaits<'_>, java: Java) {
    let JavaWaits { primitive, name, release, thread } = waits;
    let start = Instant::now();
    release();
    let answer = thread.answer();
    let took = start.elapsed();
    println!("{name}: Java acquired it after {took:.1?}");
    assert!(
        java == Java::IsDeaf || took < PROMPT,
        "{name}: after {took:?}, not woken by a message"
    );
    primitive.java_releases(&thread, &name, &answer);
}
