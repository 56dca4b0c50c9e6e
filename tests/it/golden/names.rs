//! The names of all keys and channels, as used by the public API.

use super::{Messages, assert_near, messages};
use crate::lua::Bench;
use crate::rig::{Server, wait_until};
use crate::support::Clients;

/// Each name with the hash tag that its other keys share.
const NAMES: [(&str, &str); 2] = [("foo", "{foo}"), ("a{b}c", "a{b}c")];

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

impl Bench<'_> {
    /// The messages on Redisson's channels. Clients also notify themselves, and each new connection
    /// probes whether it may publish.
    fn published_to_redisson(&mut self) -> Messages {
        let for_redisson =
            |channel: &str| channel.starts_with("redisson") && !channel.contains("leasehold:probe");
        self.published().into_iter().filter(|(channel, _)| for_redisson(channel)).collect()
    }
}

/// Checks a holder id: a UUID that Redisson's scripts accept as one of their own and leasehold's
/// can distinguish, and a number.
#[track_caller]
fn assert_holder(holder: &str, client: &str) {
    let (id, number) = holder.rsplit_once(':').unwrap();
    assert_eq!((id, id.len(), &id[14..15]), (client, 36, "8"));
    assert!(number.parse::<i64>().is_ok(), "{number}");
    assert_eq!(id.to_lowercase(), id);
}

#[test]
fn a_fair_lock_has_redisson_s_names() {
    let server = Server::start();
    let (ours, theirs) = (server.client(), server.client());
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (name, tag) in NAMES {
        let guard = ours.fair(name).lock().unwrap();
        assert_eq!(server.lock_keys(), [name]);
        let fields = bench.hash(name);
        let (holder, count) = fields.first_key_value().unwrap();
        assert_eq!((fields.len(), count.as_str()), (1, "1"));
        assert_holder(holder, ours.id());
        assert_eq!(bench.cmd::<u32>(&["EXISTS", &format!("redisson_lock_token:{tag}")]), 1);

        let [queue, deadlines] =
            ["queue", "timeout"].map(|key| format!("redisson_lock_{key}:{tag}"));
        let channel = std::thread::scope(|s| {
            let waiter = s.spawn(|| theirs.fair(name).lock_owned().unwrap());
            wait_until("it waits", || bench.cmd::<u32>(&["ZCARD", &deadlines]) == 1);
            assert_eq!(
                sorted(server.lock_keys()),
                sorted(vec![name.to_owned(), queue.clone(), deadlines.clone()])
            );
            let waiting: Vec<String> = bench.cmd(&["LRANGE", &queue, "0", "-1"]);
            assert_eq!(waiting, bench.cmd::<Vec<String>>(&["ZRANGE", &deadlines, "0", "-1"]));
            assert_holder(&waiting[0], theirs.id());
            let channel = format!("redisson_lock__channel:{tag}:{}", waiting[0]);
            // The waiter is subscribed there, in addition to the test: Redisson's release would
            // reach it.
            wait_until("it receives its channel", || {
                bench.cmd::<u32>(&["PUBLISH", &channel, "0"]) == 2
            });
            bench.published();
            guard.unlock().unwrap();
            waiter.join().unwrap().unlock().unwrap();
            channel
        });
        // The second release has nobody to notify.
        let published = bench.published_to_redisson();
        let [(to, grant)] = &published[..] else { panic!("one message: {published:?}") };
        assert!(*to == channel && grant.starts_with("grant:"), "{published:?}");
        assert!(server.lock_keys().is_empty());
    }
}

#[test]
fn a_read_write_lock_has_redisson_s_names() {
    let server = Server::start();
    let (ours, theirs) = (server.client(), server.client());
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (name, tag) in NAMES {
        let (lock, channel) = (ours.rw_lock(name), format!("redisson_rwlock:{tag}"));
        let outer = lock.read().unwrap();
        let inner = lock.read().unwrap();
        let fields = bench.hash(name);
        let reader = fields.keys().find(|field| *field != "mode").unwrap().clone();
        assert_holder(&reader, ours.id());
        assert_eq!(fields, messages(&[("mode", "read"), (&reader, "2")]).into_iter().collect());
        let levels = [1, 2].map(|n| format!("{tag}:{reader}:rwlock_timeout:{n}"));
        assert_eq!(
            sorted(server.lock_keys()),
            sorted(vec![name.to_owned(), levels[0].clone(), levels[1].clone()])
        );
        assert_eq!(bench.cmd::<String>(&["GET", &levels[1]]), "1");

        // A waiting writer subscribes there, and sets leasehold's own marker in addition to
        // Redisson's keys.
        let marker = format!("leasehold_writer:{tag}");
        std::thread::scope(|s| {
            let writer = s.spawn(|| theirs.rw_lock(name).write_owned().unwrap());
            wait_until("it waits", || {
                server.channels().contains(&channel) && bench.cmd::<u32>(&["EXISTS", &marker]) == 1
            });
            assert_holder(&bench.cmd::<String>(&["GET", &marker]), theirs.id());
            inner.unlock().unwrap();
            assert!(bench.published_to_redisson().is_empty());
            assert_eq!(
                sorted(server.lock_keys()),
                sorted(vec![name.to_owned(), levels[0].clone(), marker.clone()])
            );
            outer.unlock().unwrap();
            writer.join().unwrap().unlock().unwrap();
        });
        assert_eq!(
            bench.published_to_redisson(),
            messages(&[(&channel, "0"), (&channel, "1"), (&channel, "00")])
        );
        assert!(server.lock_keys().is_empty());

        // Vector: read inside of write adds a field. Leasehold writes it when the last write hold
        // is released.
        let writing = [lock.write().unwrap(), lock.write().unwrap()];
        let reading = lock.read().unwrap();
        let fields = bench.hash(name);
        let writer = fields.keys().find(|field| *field != "mode").unwrap().clone();
        assert_eq!(fields, messages(&[("mode", "write"), (&writer, "2")]).into_iter().collect());
        assert_holder(writer.strip_suffix(":write").unwrap(), ours.id());
        for guard in writing {
            guard.unlock().unwrap();
        }
        let reader = writer.strip_suffix(":write").unwrap();
        assert_eq!(
            bench.hash(name),
            messages(&[("mode", "read"), (reader, "1")]).into_iter().collect()
        );
        assert_eq!(bench.cmd::<u32>(&["EXISTS", &format!("{tag}:{reader}:rwlock_timeout:1")]), 1);
        assert_eq!(bench.published_to_redisson(), messages(&[(&channel, "1"), (&channel, "00")]));
        reading.unlock().unwrap();
        assert_eq!(bench.published_to_redisson(), messages(&[(&channel, "0")]));
        assert!(server.lock_keys().is_empty());
    }
}

#[test]
fn a_latch_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (name, tag) in NAMES {
        // The channel of a latch always has braces.
        let (latch, channel) =
            (client.latch(name), format!("redisson_countdownlatch__channel__{{{name}}}"));
        latch.set_count(2).unwrap();
        assert_eq!((bench.cmd::<String>(&["GET", name]), bench.pttl(name)), ("2".to_owned(), -1));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| latch.wait().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            assert_eq!(latch.count_down().unwrap(), 1);
            assert_eq!(latch.count_down().unwrap(), 0);
            waiter.join().unwrap();
        });
        assert_eq!(latch.count_down().unwrap(), 0);
        latch.set_count(1).unwrap();
        assert!(latch.delete().unwrap());
        let reported =
            ["1", "0", "1", "1", "0"].map(|payload| (channel.clone(), payload.to_owned()));
        assert_eq!(bench.published_to_redisson(), reported);
        assert_marks_only(&server, tag);
    }
}

/// Only idempotency keys are left, and they expire.
#[track_caller]
fn assert_marks_only(server: &Server, tag: &str) {
    assert!(server.lock_keys().is_empty());
    let marks: Vec<String> = server.cmd(&["KEYS", "leasehold_once:*"]);
    assert!(!marks.is_empty());
    for mark in marks {
        assert!((1..=60_000).contains(&server.pttl(&mark)), "{mark}");
        assert!(mark.starts_with(&format!("leasehold_once:{tag}:")), "{mark}");
        server.cmd::<()>(&["DEL", &mark]);
    }
}

#[test]
fn a_semaphore_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (name, tag) in NAMES {
        let (semaphore, channel, leases) =
            (client.semaphore(name), format!("redisson_sc:{tag}"), format!("{tag}:timeout"));
        assert_eq!(semaphore.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
        assert_eq!(bench.published_to_redisson(), messages(&[(&channel, "3")]));
        let two = semaphore.acquire_many(2).unwrap();
        assert_eq!(sorted(server.lock_keys()), sorted(vec![name.to_owned(), leases.clone()]));
        assert_eq!(bench.cmd::<String>(&["GET", name]), "1");
        assert_eq!([bench.pttl(name), bench.pttl(&leases)], [-1, -1]);
        let members: Vec<(Vec<u8>, i64)> = bench.cmd(&["ZRANGE", &leases, "0", "-1", "WITHSCORES"]);
        assert_eq!(members.len(), 2);
        for (member, ends) in &members {
            assert_eq!(member.len(), 16);
            assert_near(ends - bench.now(), 32_000);
        }
        two.release().unwrap();
        assert_eq!(bench.published_to_redisson(), messages(&[(&channel, "3")]));

        // Redisson's ids of these permits are the members in hexadecimal digits.
        let id = semaphore.acquire_many(3).unwrap().forget();
        let members: Vec<Vec<u8>> = bench.cmd(&["ZRANGE", &leases, "0", "-1"]);
        let hex =
            |member: &Vec<u8>| member.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(id.redisson_ids(), members.iter().map(hex).collect::<Vec<_>>());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            // Redisson's script returns one by its id in this way.
            bench.cmd::<()>(&[&b"ZREM"[..], leases.as_bytes(), &members[1]]);
            bench.cmd::<()>(&["INCR", name]);
            bench.cmd::<()>(&["PUBLISH", &channel, "1"]);
            waiter.join().unwrap().release().unwrap();
        });
        assert_eq!(semaphore.acquired_permits().unwrap(), 2);
        assert!(semaphore.delete().unwrap());
        // Redisson's message, the one for the returned permit, and the one for the deletion of the
        // semaphore.
        assert_eq!(
            bench.published_to_redisson(),
            messages(&[(&channel, "1"), (&channel, "1"), (&channel, "1")])
        );
        assert_marks_only(&server, tag);
    }
}

#[test]
fn a_counting_semaphore_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (name, tag) in NAMES {
        let (semaphore, channel) = (client.counting_semaphore(name), format!("redisson_sc:{tag}"));
        assert!(semaphore.try_set_permits(2).unwrap().is_new());
        let permits = semaphore.acquire_many(2).unwrap();
        assert_eq!(server.lock_keys(), [name]);
        assert_eq!((bench.cmd::<String>(&["GET", name]), bench.pttl(name)), ("0".to_owned(), -1));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            permits.release().unwrap();
            waiter.join().unwrap().release().unwrap();
        });
        assert_eq!(semaphore.add_permits(3).unwrap(), 5);
        assert!(semaphore.delete().unwrap());
        let reported =
            ["2", "2", "2", "5", "1"].map(|payload| (channel.clone(), payload.to_owned()));
        assert_eq!(bench.published_to_redisson(), reported);
        assert_marks_only(&server, tag);
    }
}
