//! What everything that can be an exclusive lock promises: one suite, run over all of them.
//!
//! Each point has a server for each noun, so that nothing that one leaves behind can be taken for another's.

mod in_memory;
pub(crate) mod nouns;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, LockClient};

use self::in_memory::Memory;
use self::nouns::{EXCEPTIONS, Exclusive, Guard, Held, NOUNS, Noun};
use crate::rig::{CAP, Child, Fault, Masters, Proxy, Server, ms, wait_until};

/// Short enough to be waited for, long enough for its renewal on a busy machine.
const SHORT: Duration = ms(900);
/// No point may be kept because a lease ended.
const LONG: Duration = Duration::from_secs(120);
/// Far more than anything takes that does not wait for a lease of [`LONG`].
const SOON: Duration = Duration::from_secs(10);

/// One noun on servers of its own, or in memory.
struct Case {
    noun: &'static Noun,
    name: String,
    /// None for one in memory.
    servers: Masters,
    memory: Option<Memory>,
}

/// The network between a client and its servers.
struct Network(Vec<Proxy>);

impl Network {
    fn start(case: &Case) -> Self {
        Self(case.servers.0.iter().map(Proxy::start).collect())
    }

    fn inject_after(&self, word: &str, skip: u32, fault: Fault) {
        self.0.iter().for_each(|proxy| proxy.inject_after(word, skip, fault));
    }

    fn inject(&self, word: &str, fault: Fault) {
        self.inject_after(word, 0, fault);
    }

    fn wait_hits(&self, n: u32) {
        self.0.iter().for_each(|proxy| proxy.wait_hits(n));
    }

    fn silence(&self, silent: bool) {
        self.0.iter().for_each(|proxy| proxy.silence(silent));
    }
}

fn builder(noun: &Noun, urls: &[String]) -> Builder {
    match noun.masters {
        1 => LockClient::builder().url(&urls[0]),
        // What they forget is told by tests of its own.
        _ => LockClient::builder().urls(urls).redlock().longest_lease(LONG).admit_fresh_nodes(),
    }
}

impl Case {
    fn new(noun: &'static Noun) -> Self {
        let servers = Masters::start(noun.masters);
        let case = Self { noun, name: format!("the-{}", noun.label), servers, memory: None };
        case.prepare();
        case
    }

    fn in_memory(noun: &'static Noun) -> Self {
        let (servers, memory) = (Masters(Vec::new()), Some(Memory::new()));
        let case = Self { noun, name: format!("the-{}", noun.label), servers, memory };
        case.prepare();
        case
    }

    fn prepare(&self) {
        let client = match &self.memory {
            Some(memory) => memory.client(LockClient::builder()),
            None => self.server().client(),
        };
        (self.noun.prepare)(&client, &self.name);
        if self.noun.masters > 1 {
            let _client = builder(self.noun, &self.servers.urls()).build().unwrap();
            self.servers.wait_until_all_vote();
        }
    }

    /// The first, or only one.
    fn server(&self) -> &Server {
        &self.servers.0[0]
    }

    fn client(&self, settings: impl FnOnce(Builder) -> Builder) -> LockClient {
        match &self.memory {
            Some(memory) => memory.client(settings(LockClient::builder())),
            None => settings(builder(self.noun, &self.servers.urls())).build().unwrap(),
        }
    }

    /// A lock of a client of its own, which nothing ends but the test.
    fn open(&self) -> Box<dyn Exclusive> {
        self.open_with(|builder| builder.lease(LONG))
    }

    fn open_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Box<dyn Exclusive> {
        (self.noun.open)(self.client(settings), &self.name, None)
    }

    fn open_through(&self, network: &Network, settings: impl FnOnce(Builder) -> Builder) -> Box<dyn Exclusive> {
        let urls: Vec<String> = network.0.iter().map(Proxy::url).collect();
        (self.noun.open)(settings(builder(self.noun, &urls)).build().unwrap(), &self.name, None)
    }

    /// The keys of whoever holds it or waits for it, on a majority: one of several masters may be behind.
    fn keys(&self) -> Vec<String> {
        if let Some(memory) = &self.memory {
            return memory.held();
        }
        let stays: Vec<_> = self.noun.stays.iter().map(|key| key.replace("{}", &self.name)).collect();
        let mut keys: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        keys.retain(|key| !stays.contains(key));
        keys.sort();
        let of_most = keys.chunk_by(|a, b| a == b).filter(|same| same.len() > self.noun.masters / 2);
        of_most.map(|same| same[0].clone()).collect()
    }

    fn delete_keys(&self) {
        for server in &self.servers.0 {
            for key in server.lock_keys() {
                server.cmd::<u32>(&["DEL", &key]);
            }
        }
    }

    /// As after a failover to a replica that lagged: what the holder had is gone, what stays was restored.
    fn forget(&self, all: bool) {
        if let Some(memory) = &self.memory {
            return memory.lose_all();
        }
        if all {
            self.servers.0.iter().for_each(|server| server.cmd::<()>(&["FLUSHALL"]));
        } else {
            self.delete_keys();
        }
        self.prepare();
    }

    /// A waiter of another client has subscribed: a fair lock's by pattern.
    fn wait_for_a_waiter(&self) {
        wait_until(&format!("{}: somebody waits", self.noun.label), || {
            if let Some(memory) = &self.memory {
                return memory.is_waited_for(&self.name);
            }
            !self.server().channels().is_empty() || self.server().cmd::<u32>(&["PUBSUB", "NUMPAT"]) > 0
        });
    }

    #[track_caller]
    fn assert_free(&self, why: &str) {
        assert_eq!(self.keys(), [""; 0], "{}: {why}", self.noun.label);
        let taken = self.open().try_lock().unwrap().is_some();
        assert!(taken, "{}: {why}, so it can be taken", self.noun.label);
    }

    fn end(self) {
        let few = |server: &Server| server.lock_keys().len() <= self.noun.stays.len();
        wait_until(&format!("{} leaves nothing", self.noun.label), || {
            self.keys().is_empty() && self.servers.0.iter().all(few)
        });
        let left: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        assert!(self.noun.masters == 1 || left.is_empty(), "{} leaves {left:?}", self.noun.label);
        self.delete_keys();
        self.servers.assert_clean();
    }
}

/// Runs a point over all nouns on servers, beside each other, and looks that nothing is left behind.
fn for_all(point: impl Fn(&mut Case) + Sync) {
    run_all(false, point);
}

/// Over all nouns on servers and in memory.
fn everywhere(point: impl Fn(&mut Case) + Sync) {
    run_all(cfg!(feature = "testing"), point);
}

fn run_all(in_memory: bool, point: impl Fn(&mut Case) + Sync) {
    let run = |noun: &'static Noun| {
        if in_memory && noun.masters == 1 {
            println!("{} in memory", noun.label);
            let mut case = Case::in_memory(noun);
            point(&mut case);
            case.end();
        }
        let mut case = Case::new(noun);
        point(&mut case);
        case.end();
    };
    let failed: Vec<_> = std::thread::scope(|s| {
        let spawn = |noun: &'static Noun| {
            let run = &run;
            // The name stands before whatever the thread says when it panics.
            let thread = std::thread::Builder::new().name(noun.label.into());
            (noun.label, thread.spawn_scoped(s, move || run(noun)).unwrap())
        };
        let threads: Vec<_> = NOUNS.iter().map(spawn).collect();
        threads.into_iter().filter_map(|(label, thread)| thread.join().is_err().then_some(label)).collect()
    });
    assert!(failed.is_empty(), "not kept by {failed:?}");
}

/// With more patience for verbs than a quarter of the lease: nothing but the lease shall end in time.
fn short(builder: Builder) -> Builder {
    builder.lease(SHORT).io_timeout(ms(800))
}

/// Counts how often the loss of a hold is told.
fn count_losses(guard: &dyn Held) -> Arc<AtomicU32> {
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    guard.on_lost(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    told
}

/// Looks that a hold knows of its loss in every way, and gives it up.
#[track_caller]
fn assert_lost(noun: &str, guard: Guard, told: &AtomicU32) {
    assert!(guard.wait_lost(CAP), "{noun}: wait_lost");
    assert!(!guard.is_held(), "{noun}: is_held");
    assert_eq!(guard.remaining(), Duration::ZERO, "{noun}: remaining");
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost, "{noun}: ensure_held");
    wait_until(&format!("{noun}: the callback has run"), || told.load(Ordering::SeqCst) == 1);
    let late = count_losses(&*guard);
    wait_until(&format!("{noun}: a late callback has run"), || late.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.extend(LONG).unwrap_err().kind(), ErrorKind::Lost, "{noun}: extend");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{noun}: unlock");
}

/// The connection or the server may fail: then nobody knows; anything else is a wrong answer.
#[track_caller]
fn assert_unasked(what: &str, error: &leasehold::Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::Protocol),
        "{what}: {error:?}"
    );
}

#[test]
fn one_holder_at_a_time_between_clients_and_between_threads() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (mut a, mut b) = (case.open(), case.open());
        let mut last = None;
        for _ in 0..3 {
            let guard = a.lock().unwrap();
            assert!(guard.is_held() && guard.ensure_held().is_ok(), "{noun}: held");
            assert!(guard.remaining() > LONG / 2 && guard.remaining() <= LONG, "{noun}: {:?}", guard.remaining());
            assert!(b.try_lock().unwrap().is_none(), "{noun}: another client");
            let thread = std::thread::scope(|s| s.spawn(|| a.try_lock().unwrap().is_none()).join().unwrap());
            assert!(thread, "{noun}: another thread of the same client");
            assert_eq!(guard.token().is_some(), case.noun.has_token, "{noun}: token");
            assert!(guard.token() > last || !case.noun.has_token, "{noun}: {:?} after {last:?}", guard.token());
            last = guard.token();
            guard.unlock().unwrap();
            std::mem::swap(&mut a, &mut b);
        }
    });
}

#[test]
fn threads_of_two_clients_never_overlap_and_all_get_in() {
    everywhere(|case| {
        let noun = case.noun.label;
        let clients = [case.open(), case.open()];
        let (inside, turns, last) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
        std::thread::scope(|s| {
            for n in 0..6 {
                let (client, inside, turns, last) = (&clients[n % 2], &inside, &turns, &last);
                s.spawn(move || {
                    for turn in 0..5 {
                        let guard = match (n + turn) % 3 {
                            0 => client.lock().unwrap(),
                            1 => client.try_lock_for(LONG).unwrap().expect("time enough"),
                            _ => client.try_lock_until(Instant::now() + LONG).unwrap().expect("time enough"),
                        };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{noun}: two inside");
                        if let Some(token) = guard.token() {
                            let before = last.swap(token, Ordering::SeqCst);
                            assert!(token > before, "{noun}: token {token} after {before}");
                        }
                        std::thread::yield_now();
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "{noun}: two inside");
                        turns.fetch_add(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 30, "{noun}");
    });
}

#[test]
fn all_four_forms_take_what_is_free() {
    everywhere(|case| {
        let noun = case.noun.label;
        let client = case.open();
        let some = |form: &str, won: Option<Guard>| {
            won.unwrap_or_else(|| panic!("{noun}: {form}")).unlock().unwrap();
            assert_eq!(case.keys(), [""; 0], "{noun}: {form}");
        };
        client.lock().unwrap().unlock().unwrap();
        some("try", client.try_lock().unwrap());
        some("for", client.try_lock_for(LONG).unwrap());
        some("for no time", client.try_lock_for(Duration::ZERO).unwrap());
        some("for ever", client.try_lock_for(Duration::MAX).unwrap());
        some("until", client.try_lock_until(Instant::now() + LONG).unwrap());
        some("until now", client.try_lock_until(Instant::now()).unwrap());
    });
}

#[test]
fn timed_forms_give_up_in_time_and_leave_nothing() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let guard = a.lock().unwrap();
        let before = case.keys();
        let give_up = |who: &dyn Exclusive, wait: u64| {
            for until in [false, true] {
                let start = Instant::now();
                let won = if until {
                    who.try_lock_until(start + ms(wait)).unwrap()
                } else {
                    who.try_lock_for(ms(wait)).unwrap()
                };
                let took = start.elapsed();
                assert!(won.is_none(), "{noun}: {wait} ms");
                assert!(took >= ms(wait) && took < ms(wait) + SOON, "{noun}: {wait} ms took {took:?}");
                // A place in a queue, or the sign of a waiting writer.
                assert_eq!(case.keys(), before, "{noun}: {wait} ms left something");
            }
        };
        for wait in [0, 1, 30, 100] {
            give_up(&*b, wait);
            // On another thread: on this one a re-entrant lock is taken once more.
            std::thread::scope(|s| s.spawn(|| give_up(&*a, wait)).join().unwrap());
        }
        assert!(guard.is_held(), "{noun}: undisturbed");
        guard.unlock().unwrap();
        case.assert_free("whoever gave up stands before nobody");
    });
}

#[test]
fn dropping_frees_also_in_a_panic() {
    everywhere(|case| {
        let (a, b) = (case.open(), case.open());
        drop(a.lock().unwrap());
        case.assert_free("dropped");
        let panicked = std::thread::scope(|s| {
            let thread = s.spawn(|| {
                let _guard = a.lock().unwrap();
                panic!("on purpose");
            });
            thread.join().is_err()
        });
        assert!(panicked);
        case.assert_free("dropped in a panic");
        b.lock().unwrap().unlock().unwrap();
        a.lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn an_unlock_tells_that_it_worked_and_no_loss() {
    everywhere(|case| {
        let noun = case.noun.label;
        let client = case.open_with(short);
        let mut told = Vec::new();
        for _ in 0..3 {
            let guard = client.lock().unwrap();
            told.push(count_losses(&*guard));
            assert!(!guard.wait_lost(ms(1)), "{noun}: not lost yet");
            guard.unlock().unwrap();
            case.assert_free("unlocked");
        }
        // The thread that calls back has looked at the leases of the first three when it has told of this one.
        let guard = client.lock().unwrap();
        let last = count_losses(&*guard);
        case.forget(false);
        assert_lost(noun, guard, &last);
        assert!(told.iter().all(|told| told.load(Ordering::SeqCst) == 0), "{noun}: an unlock is no loss");
    });
}

#[test]
fn a_guard_that_moves_is_dropped_anywhere() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let Some(guard) = a.lock_to_move() else { return };
        let guard = guard.unwrap();
        // It never re-enters, so its own thread stands where everybody else does.
        assert!(a.try_lock().unwrap().is_none(), "{noun}: its own thread");
        std::thread::spawn(move || drop(guard)).join().unwrap();
        case.assert_free("dropped on another thread");
        let guard = b.lock_to_move().unwrap().unwrap();
        let unlocked = std::thread::spawn(move || guard.unlock()).join().unwrap();
        assert!(unlocked.is_ok(), "{noun}: {unlocked:?}");
        case.assert_free("unlocked on another thread");
    });
}

#[test]
fn a_hold_that_the_server_forgot_is_told_in_every_way() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open_with(short), case.open());
        for all in [false, true] {
            let guard = a.lock().unwrap();
            let (told, token) = (count_losses(&*guard), guard.token());
            case.forget(all);
            assert_lost(noun, guard, &told);
            let next = b.try_lock().unwrap().expect(noun);
            assert!(next.token() > token || !case.noun.has_token, "{noun}: {:?} after {token:?}", next.token());
        }
    });
}

/// The release of one who does not know yet that it has lost the lock must not touch the hold of the next.
#[test]
fn a_late_release_harms_nobody() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let stale = a.lock().unwrap();
        case.forget(false);
        let next = b.try_lock().unwrap().expect(noun);
        assert_eq!(stale.unlock().unwrap_err().kind(), ErrorKind::Lost, "{noun}: the release tells");
        assert!(a.try_lock().unwrap().is_none(), "{noun}: the next one still has it");
        next.extend(LONG).expect(noun);
        next.unlock().expect(noun);
    });
}

/// The lease ends here before it ends at the server, whatever keeps us from being told.
#[track_caller]
fn lost_by_time(case: &Case, client: &dyn Exclusive, cut: impl Fn(), mend: impl Fn()) {
    let noun = case.noun.label;
    let guard = client.lock().unwrap();
    let told = count_losses(&*guard);
    let inner = std::thread::scope(|s| s.spawn(|| client.try_lock().unwrap().is_none()).join().unwrap());
    assert!(inner, "{noun}: held");
    cut();
    assert!(guard.wait_lost(CAP), "{noun}: time alone ends it");
    mend();
    assert_lost(noun, guard, &told);
    let next = case.open().try_lock_for(SOON).unwrap();
    assert!(next.is_some(), "{noun}: others follow");
}

#[test]
fn a_lease_ends_in_time_while_the_server_is_suspended() {
    for_all(|case| {
        let client = case.open_with(short);
        let all = |each: fn(&Server)| case.servers.0.iter().for_each(each);
        lost_by_time(case, &*client, || all(Server::suspend), || all(Server::resume));
    });
}

#[test]
fn a_lease_ends_in_time_while_the_network_is_silent() {
    for_all(|case| {
        let proxy = Network::start(case);
        let client = case.open_through(&proxy, short);
        lost_by_time(case, &*client, || proxy.silence(true), || proxy.silence(false));
    });
}

fn holder(case: &Case) -> Child {
    let env = [("LEASEHOLD_TEST_URLS", &*case.servers.urls().join(" ")), ("LEASEHOLD_TEST_NOUN", case.noun.label)];
    let mut child = Child::spawn("contract::holder_process", &env);
    child.expect("held");
    child
}

#[test]
#[ignore = "a program for other tests"]
fn holder_process() {
    let (urls, label) = (std::env::var("LEASEHOLD_TEST_URLS").unwrap(), std::env::var("LEASEHOLD_TEST_NOUN").unwrap());
    let urls: Vec<String> = urls.split(' ').map(str::to_owned).collect();
    let noun = NOUNS.iter().find(|noun| noun.label == label).unwrap();
    let client = (noun.open)(short(builder(noun, &urls)).build().unwrap(), &format!("the-{label}"), None);
    let guard = client.lock().unwrap();
    println!("@@held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@is_held={}", guard.is_held());
    println!("@@unlock={:?}", guard.unlock().map_err(|e| e.kind()));
}

#[test]
fn a_killed_holder_delays_the_next_by_no_more_than_its_lease() {
    for_all(|case| {
        let noun = case.noun.label;
        let client = case.open();
        let mut child = holder(case);
        assert!(client.try_lock().unwrap().is_none(), "{noun}: the child has it");
        child.kill();
        let start = Instant::now();
        let guard = client.lock().unwrap();
        let (took, lease) = (start.elapsed(), SHORT + case.noun.grace);
        assert!(guard.is_held() && took < lease + Duration::from_secs(4), "{noun}: {took:?} for a lease of {lease:?}");
    });
}

/// The first instruction after it wakes up must not believe, and what it does then must not touch the next holder.
#[test]
fn a_suspended_holder_does_not_believe_when_it_wakes() {
    for_all(|case| {
        let noun = case.noun.label;
        let client = case.open();
        let mut child = holder(case);
        child.signal("STOP");
        let mine = client.lock().unwrap();
        child.signal("CONT");
        child.say("look");
        assert_eq!(child.expect("is_held="), "false", "{noun}");
        assert_eq!(child.expect("unlock="), "Err(Lost)", "{noun}");
        child.wait();
        let other = case.open();
        assert!(other.try_lock().unwrap().is_none(), "{noun}: the next one still has it");
        mine.unlock().expect(noun);
    });
}

/// The waiter was told of a lease of two minutes, and nobody is left who could release it.
#[test]
fn a_waiter_gets_in_when_the_server_comes_back_empty() {
    for_all(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let guard = a.lock().unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock().map(|guard| guard.is_held()));
            case.wait_for_a_waiter();
            case.servers.0.iter_mut().for_each(Server::restart);
            if !case.noun.stays.is_empty() {
                // What it waited for is not there: it is told so, or the stage was set in time.
                case.prepare();
            }
            match waiter.join().unwrap() {
                Ok(held) => assert!(held, "{noun}"),
                Err(e) => assert!(e.kind() == ErrorKind::Conflict && !case.noun.stays.is_empty(), "{noun}: {e:?}"),
            }
        });
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{noun}: the first hold");
    });
}

const FAULTS: [Fault; 4] = [Fault::CutBeforeSend, Fault::CutAfterApplied, Fault::CutReplyAt(3), Fault::BlackHoleReply];

/// A reply that never comes costs this long.
fn impatient(builder: Builder) -> Builder {
    builder.lease(LONG).io_timeout(ms(1000))
}

#[test]
fn a_lost_acquire_leaves_nothing_behind() {
    for_all(|case| {
        let (proxy, direct) = (Network::start(case), case.open());
        for (n, fault) in FAULTS.into_iter().enumerate() {
            let what = format!("{}: {fault:?}", case.noun.label);
            let client = case.open_through(&proxy, impatient);
            proxy.inject(&case.name, fault);
            match client.try_lock() {
                Err(e) => assert_unasked(&what, &e),
                // The connection was taken for one that had ended in its sleep, and the request was repeated.
                Ok(Some(guard)) => guard.unlock().unwrap(),
                Ok(None) => panic!("{what}: nobody else has it"),
            }
            proxy.wait_hits(u32::try_from(n).unwrap() + 1);
            wait_until(&format!("{what} leaves nothing"), || case.keys().is_empty());
            direct.try_lock().unwrap().expect(&what).unlock().unwrap();
            client.try_lock().unwrap().expect(&what).unlock().unwrap();
        }
    });
}

#[test]
fn a_lost_release_frees_all_the_same() {
    for_all(|case| {
        let (proxy, direct) = (Network::start(case), case.open());
        for (n, fault) in FAULTS.into_iter().enumerate() {
            let what = format!("{}: {fault:?}", case.noun.label);
            let client = case.open_through(&proxy, impatient);
            let guard = client.lock().unwrap();
            proxy.inject(&case.name, fault);
            if let Err(e) = guard.unlock() {
                assert_unasked(&what, &e);
            }
            proxy.wait_hits(u32::try_from(n).unwrap() + 1);
            wait_until(&format!("{what} frees it"), || case.keys().is_empty());
            direct.try_lock().unwrap().expect(&what).unlock().unwrap();
            client.try_lock().unwrap().expect(&what).unlock().unwrap();
        }
    });
}

/// A waiter whose first or second try is lost gives up, or gets in: it neither stays in a queue nor keeps readers out.
#[test]
fn a_waiter_whose_reply_was_lost_leaves_nothing_and_gets_in() {
    for_all(|case| {
        let (proxy, holder) = (Network::start(case), case.open());
        let mut hits = vec![0; case.noun.masters];
        for fault in [Fault::CutAfterApplied, Fault::CutBeforeSend] {
            for skip in [0, 1] {
                let what = format!("{}: {fault:?} after {skip}", case.noun.label);
                let client = case.open_through(&proxy, impatient);
                let guard = holder.lock().unwrap();
                let before = case.keys();
                proxy.inject_after(&case.name, skip, fault);
                match client.try_lock_for(ms(150)) {
                    Ok(won) => assert!(won.is_none(), "{what}: somebody else has it"),
                    Err(e) => assert_unasked(&what, &e),
                }
                // A waiting try asks at least twice, once more or to leave the queue, unless its time was over before.
                proxy.0.iter().zip(&mut hits).for_each(|(proxy, hits)| *hits += u32::from(!proxy.disarm()));
                proxy.0.iter().zip(&hits).for_each(|(proxy, hits)| proxy.wait_hits(*hits));
                wait_until(&format!("{what} leaves nothing"), || case.keys() == before);
                std::thread::scope(|s| {
                    let waiter = s.spawn(|| client.lock().map(|guard| guard.unlock()));
                    case.wait_for_a_waiter();
                    guard.unlock().expect(&what);
                    waiter.join().unwrap().expect(&what).expect(&what);
                });
            }
        }
    });
}

#[test]
fn renewal_keeps_it_for_many_leases() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open_with(short), case.open());
        let guard = a.lock().unwrap();
        assert!(!guard.wait_lost(SHORT * 3), "{noun}: renewed");
        assert!(guard.is_held() && guard.remaining() <= SHORT, "{noun}: {:?}", guard.remaining());
        assert!(b.try_lock().unwrap().is_none(), "{noun}: at the server as well");
        guard.unlock().expect(noun);
    });
}

#[test]
fn a_fixed_lease_ends_unless_extended() {
    everywhere(|case| {
        let noun = case.noun.label;
        let open = || (case.noun.open)(case.client(|builder| builder), &case.name, Some(ms(300)));
        let (a, b) = (open(), case.open());
        let guard = a.lock().unwrap();
        let told = count_losses(&*guard);
        assert_lost(noun, guard, &told);
        let start = Instant::now();
        b.lock().unwrap().unlock().expect(noun);
        assert!(start.elapsed() < case.noun.grace + SOON, "{noun}: {:?}", start.elapsed());

        let guard = a.lock().unwrap();
        match guard.extend(LONG) {
            Ok(()) => {
                assert!(guard.remaining() > LONG / 2, "{noun}: {:?}", guard.remaining());
                guard.extend(ms(300)).expect(noun);
                assert!(guard.remaining() > LONG / 2, "{noun}: never shortened");
                assert!(b.try_lock().unwrap().is_none(), "{noun}: at the server as well");
                guard.unlock().expect(noun);
            }
            // 300 ms went by between the two lines: it happens on a machine that does other things.
            Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{noun}"),
        }
    });
}

/// By the message, or inside the client: every timer that could do it instead is too late for this test.
#[test]
fn a_release_wakes_the_next_at_once() {
    everywhere(|case| {
        let noun = case.noun.label;
        let patient = |builder: Builder| builder.lease(LONG).waiter_timeout(LONG);
        let other = case.open_with(patient);
        for form in 0..3 {
            let client = case.open_with(patient);
            for (holder, local) in [(&other, false), (&client, true)] {
                let guard = holder.lock().unwrap();
                std::thread::scope(|s| {
                    let waiter = s.spawn(|| {
                        let won = match form {
                            0 => client.lock().map(Some),
                            1 => client.try_lock_for(LONG),
                            _ => client.try_lock_until(Instant::now() + LONG),
                        };
                        (won.unwrap().is_some_and(|guard| guard.is_held()), Instant::now())
                    });
                    if local {
                        // Nothing at the server tells that it waits. If it does not yet, it finds the lock free.
                        std::thread::sleep(ms(20));
                    } else {
                        case.wait_for_a_waiter();
                    }
                    case.servers.0.iter().take(1).for_each(|server| server.cmd(&["CONFIG", "RESETSTAT"]));
                    let start = Instant::now();
                    guard.unlock().unwrap();
                    let (held, woken) = waiter.join().unwrap();
                    assert!(held, "{noun}: form {form}");
                    assert!(woken - start < SOON, "{noun}: form {form} took {:?}", woken - start);
                });
                // Two releases, and the try it was woken for; at most one more had been under way.
                let calls = case.servers.0.first().map_or(0, |server| server.call_count("evalsha"));
                assert!(calls <= 5, "{noun}: form {form} took {calls} scripts");
            }
        }
    });
}

#[test]
fn closing_frees_what_is_held_and_wakes_who_waits() {
    everywhere(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let guard = a.lock().unwrap();
        let told = count_losses(&*guard);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock().map(|guard| guard.is_held()));
            case.wait_for_a_waiter();
            b.close(SOON).unwrap();
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed, "{noun}: the waiter");
        });
        assert!(guard.is_held(), "{noun}: another client's");
        a.close(SOON).unwrap();
        assert!(!guard.is_held() && guard.wait_lost(CAP), "{noun}: freed under its holder, who is told");
        case.assert_free("closed");
        assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Closed, "{noun}: ensure_held");
        wait_until(&format!("{noun}: the callback has run"), || told.load(Ordering::SeqCst) == 1);
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{noun}: somebody else may have had it");
        assert!(error.name().is_some(), "{noun}: {error}");
        assert_eq!(a.lock().err().map(|e| e.kind()), Some(ErrorKind::Closed), "{noun}: no verb works");
        assert_eq!(told.load(Ordering::SeqCst), 1, "{noun}: told once");
    });
}

/// Every verb that takes something is in the table, or stands among the exceptions: a new noun cannot be forgotten.
#[test]
fn every_verb_is_in_the_contract_or_says_why_not() {
    let mut found = BTreeSet::new();
    let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.extend(verbs(&std::fs::read_to_string(path).unwrap()));
        }
    }
    let told: BTreeSet<String> = NOUNS.iter().map(|noun| noun.verb.to_owned()).collect();
    let except: BTreeSet<String> = EXCEPTIONS.iter().map(|(verb, _)| (*verb).to_owned()).collect();
    assert!(told.is_disjoint(&except));
    let known: BTreeSet<String> = told.union(&except).cloned().collect();
    assert_eq!(found, known, "verbs of the sources (left), and of the table and its exceptions (right)");
}

/// `Type.verb` for what public types have to be taken or waited for: `waiting_verb!` blocks, and methods named so.
fn verbs(source: &str) -> Vec<String> {
    const NAMES: [&str; 3] = ["lock", "acquire", "wait"];
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut found, mut owner, mut public) = (Vec::new(), "", BTreeSet::new());
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            public.insert(rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        }
        if let Some(rest) = line.strip_prefix("impl ") {
            owner = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        }
        let line = line.trim();
        let method = line.strip_prefix("pub fn ").and_then(|rest| rest.split_once("(&self")).map(|(name, _)| name);
        let method = method.filter(|name| NAMES.iter().any(|verb| name == verb));
        // `verb, try_verb, ..`
        let block = line.split_once(", try_").map(|(name, _)| name).filter(|name| is_word(name));
        let verb = method.or(block.filter(|_| line.contains("_until(")));
        if let Some(verb) = verb.filter(|_| public.contains(owner)) {
            found.push(format!("{owner}.{verb}"));
        }
    }
    found
}
