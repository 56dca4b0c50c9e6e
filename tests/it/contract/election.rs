//! The election of a leader: who leads, in which term, and what ends one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::fencing::FencingToken;
use leasehold::{CancelToken, Election, Error, ErrorKind, LockClient, Term};
use parking_lot::Mutex;

use super::case::Case;
use super::{LONG, SHORT, SOON};
use crate::rig::{CAP, ms, wait_until};

const NAME: &str = "scheduler";

fn election(client: &LockClient) -> Election {
    client.election(NAME).with_data(client.id())
}

fn clients<const COUNT: usize>(case: &Case) -> [LockClient; COUNT] {
    std::array::from_fn(|_| case.client(|builder| builder.lease(LONG)))
}

/// A client whose candidates end with the test, also if that fails.
struct Ends<'c>(&'c LockClient);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

/// What leaders have found to be wrong: a panic of theirs would only begin another term.
#[derive(Default)]
struct Checks(Mutex<Vec<&'static str>>);

impl Checks {
    fn that(&self, is_right: bool, what: &'static str) {
        if !is_right {
            self.0.lock().push(what);
        }
    }

    #[track_caller]
    fn end(self) {
        assert_eq!(self.0.into_inner(), [""; 0]);
    }

    /// Leads until it is told to end.
    fn until_told(&self, term: &Term) -> Result<(), Error> {
        self.that(term.cancel_token().wait_timeout(CAP), "it is told to end");
        self.that(!term.is_leader(), "it leads no more");
        self.that(term.lost().recv_timeout(CAP).is_err(), "the channel says the same");
        Ok(())
    }
}

/// Waits until this client leads, and returns its term.
fn wait_for_leader(seen: &Election, client: &LockClient) -> FencingToken {
    let leads = || {
        let leader = seen.leader().unwrap();
        leader.filter(|leader| leader.data() == client.id().as_bytes())
    };
    wait_until("it leads", || leads().is_some());
    let leader = leads().expect("nobody else stands for election");
    assert!(leader.holder().id().starts_with(client.id()), "{leader}");
    leader.term().expect("it stands for election")
}

pub(super) fn one_leads_and_when_it_resigns_another_one_does(case: &mut Case) {
    let [a, b, seen] = clients(case);
    let seen = election(&seen);
    assert!(seen.leader().unwrap().is_none() && !seen.request().unwrap());
    let checks = Checks::default();
    let leading = AtomicU32::new(0);
    let numbers = Mutex::new(Vec::new());
    let resigns = AtomicBool::new(false);
    std::thread::scope(|s| {
        let _ends = [Ends(&a), Ends(&b)];
        let stand = |client: &LockClient| {
            let election = election(client);
            let (leading, numbers, resigns, checks) = (&leading, &numbers, &resigns, &checks);
            s.spawn(move || {
                election.run(|term| {
                    checks.that(leading.fetch_add(1, Ordering::SeqCst) == 0, "one leads");
                    checks.that(term.remaining() > Duration::ZERO, "it has a lease");
                    numbers.lock().push(term.number());
                    while term.is_leader() {
                        if resigns.swap(false, Ordering::SeqCst) {
                            term.resign();
                        }
                        let _ = term.cancel_token().wait_timeout(ms(5));
                    }
                    leading.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), Error>(())
                })
            })
        };
        let first = stand(&a);
        let mut term = wait_for_leader(&seen, &a);
        let second = stand(&b);
        wait_until("it waits", || !b.snapshot().waits().is_empty());
        // Each gives way to the other, far sooner than after a lease.
        let begun = Instant::now();
        for (client, other) in [(&b, &a), (&a, &b), (&b, &a)] {
            resigns.store(true, Ordering::SeqCst);
            let next = wait_for_leader(&seen, client);
            assert!(next > term, "{next} after {term}");
            term = next;
            // Over ZooKeeper it has to see the present leader: nothing is left of an earlier one.
            wait_until("the other stands again", || !other.snapshot().waits().is_empty());
        }
        assert!(begun.elapsed() < SOON * 3, "nobody waits for a lease");
        for (client, candidate) in [(&a, first), (&b, second)] {
            client.stop_waiting();
            let ended = candidate.join().unwrap().unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::Closed, "{ended}");
        }
    });
    checks.end();
    assert!(numbers.lock().windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert!(seen.leader().unwrap().is_none());
}

pub(super) fn an_error_a_panic_and_a_value(case: &mut Case) {
    let [a] = clients(case);
    let mut terms = Vec::new();
    let value = election(&a).run(|term| {
        terms.push(term.number());
        match terms.len() {
            1 => Err("the first term fails"),
            2 => panic!("the second term panics"),
            n => Ok(n),
        }
    });
    assert_eq!(value.unwrap(), 3);
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    // With `again` only an error ends it.
    let mut terms = 0;
    let token = CancelToken::new();
    let ended = election(&a).again().with_cancel(&token).run(|_| {
        terms += 1;
        if terms == 3 {
            token.cancel();
        }
        Ok::<(), Error>(())
    });
    assert_eq!((ended.unwrap_err().kind(), terms), (ErrorKind::Cancelled, 3));
    assert!(!a.mutex(NAME).is_locked().unwrap());
}

/// Stopping, closing and cancelling end a term and the call, and so does a loss the term.
pub(super) fn whatever_ends_a_term_tells_its_closure(case: &mut Case) {
    let seen = case.client(|builder| builder.lease(LONG));
    let seen = election(&seen);
    let checks = Checks::default();
    let token = CancelToken::new();
    type End<'e> = &'e dyn Fn(&LockClient);
    let ends: [(ErrorKind, End<'_>); 3] = [
        (ErrorKind::Closed, &|client| client.stop_waiting()),
        (ErrorKind::Closed, &|client| client.close(SOON).unwrap()),
        (ErrorKind::Cancelled, &|_| token.cancel()),
    ];
    for (kind, end) in ends {
        let [a] = clients(case);
        let candidate = election(&a).with_cancel(&token);
        std::thread::scope(|s| {
            let _ends = Ends(&a);
            let runs = s.spawn(|| candidate.run(|term| checks.until_told(term)));
            wait_for_leader(&seen, &a);
            end(&a);
            assert_eq!(runs.join().unwrap().unwrap_err().kind(), kind);
        });
        assert!(seen.leader().unwrap().is_none());
    }
    let [a] = [case.client(super::short)];
    let terms = AtomicU32::new(0);
    let ended = std::thread::scope(|s| {
        let _ends = Ends(&a);
        let runs = s.spawn(|| {
            election(&a).run(|term| {
                terms.fetch_add(1, Ordering::SeqCst);
                checks.until_told(term)
            })
        });
        let first = wait_for_leader(&seen, &a);
        // Somebody takes the leadership from it by force: it stands for election again.
        assert!(a.mutex(NAME).force_unlock().unwrap());
        wait_until("it leads again", || terms.load(Ordering::SeqCst) >= 2);
        assert!(wait_for_leader(&seen, &a) > first);
        a.stop_waiting();
        runs.join().unwrap()
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    checks.end();
}

/// The leader learns of a request with a renewal, and gives way when it likes to.
pub(super) fn a_request_reaches_the_leader_and_ends_with_its_term(case: &mut Case) {
    let [a, b] = [(); 2].map(|()| case.client(super::short));
    let seen = election(&b);
    let checks = Checks::default();
    let asked = AtomicU32::new(0);
    std::thread::scope(|s| {
        let _ends = [Ends(&a), Ends(&b)];
        let first = s.spawn(|| {
            election(&a).run(|term| {
                checks.that(!term.is_requested(), "a request is for one term");
                while term.is_leader() {
                    if term.is_requested() {
                        asked.fetch_add(1, Ordering::SeqCst);
                        term.resign();
                    }
                    let _ = term.cancel_token().wait_timeout(ms(10));
                }
                Ok::<(), Error>(())
            })
        });
        wait_for_leader(&seen, &a);
        std::thread::sleep(SHORT);
        assert_eq!(asked.load(Ordering::SeqCst), 0, "nobody has asked");
        let second = s.spawn(|| election(&b).run(|_| Ok::<_, Error>(7)));
        assert!(seen.request().unwrap());
        assert_eq!(second.join().unwrap().unwrap(), 7);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // The first one leads again, and knows nothing of it.
        wait_for_leader(&seen, &a);
        a.stop_waiting();
        assert_eq!(first.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    checks.end();
    // Whoever holds the lock without standing for election is asked for nothing.
    let other = case.client(super::short);
    let plain = other.lock(NAME).unwrap();
    assert!(!seen.request().unwrap());
    let leader = seen.leader().unwrap().expect("it has the lock");
    assert_eq!((leader.term(), leader.data()), (None, &b""[..]));
    plain.unlock().unwrap();
}

pub(super) fn whoever_watches_sees_each_change(case: &mut Case) {
    let [a, b] = clients(case);
    let watching = case.client(super::short);
    let mut watch = election(&watching).watch();
    assert!(watch.next().unwrap().unwrap().is_none(), "the first answers at once");
    let mut next = || watch.next().expect("it goes on").unwrap();
    let checks = Checks::default();
    let mut last = None;
    std::thread::scope(|s| {
        let _ends = [Ends(&a), Ends(&b)];
        for client in [&a, &b] {
            let runs = s.spawn(|| {
                election(client).run(|term| {
                    let _ = term.cancel_token().wait_timeout(ms(1800));
                    term.set_data("changed")?;
                    checks.until_told(term)
                })
            });
            let leader = next().expect("somebody leads");
            assert_eq!(leader.data(), client.id().as_bytes());
            assert!(leader.term() > last && leader.term().is_some(), "{leader}");
            last = leader.term();
            let changed = next().expect("it still leads");
            assert_eq!((changed.data(), changed.term()), (&b"changed"[..], last));
            client.stop_waiting();
            assert!(runs.join().unwrap().is_err());
            assert!(next().is_none(), "nobody leads");
        }
    });
    checks.end();
    watching.stop_waiting();
    let ended = watch.next().expect("it says why it ends").unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Closed, "{ended}");
    assert!(watch.next().is_none());
}

/// One store must decide.
pub(super) fn redlock_refuses_it(case: &mut Case) {
    let [client] = clients(case);
    let refused = election(&client).run(|_| Ok::<_, Error>(())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(election(&client).request().unwrap_err().kind(), ErrorKind::Unsupported);
}
