//! Code of the user that blocks or panics: only the call that it belongs to pays for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use leasehold::observe::{Listener, LockInfo};
use leasehold::testing::Faults;
use leasehold::{ErrorKind, LockClient};
use parking_lot::Mutex;

use crate::rig::{CAP, ms, wait_until};

/// Blocks the first call of one of its methods until the test lets it go on.
struct Blocks {
    in_waiting: bool,
    has_blocked: AtomicBool,
    /// Tells the test that it blocks.
    blocks: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Blocks {
    fn block(&self) {
        if !self.has_blocked.swap(true, Ordering::SeqCst) {
            let _ = self.blocks.send(());
            let _ = self.goes_on.lock().recv();
        }
    }
}

impl Listener for Blocks {
    fn waiting(&self, _: &LockInfo<'_>) {
        if self.in_waiting {
            self.block();
        }
    }

    fn released(&self, _: &LockInfo<'_>, _: Duration) {
        if !self.in_waiting {
            self.block();
        }
    }
}

/// A client whose listener blocks; what is told then; dropping the last one lets it go on.
fn client(in_waiting: bool) -> (LockClient, Receiver<()>, Sender<()>) {
    let ((blocks, told), (lets_go, goes_on)) = (channel(), channel());
    let listener = Blocks {
        in_waiting,
        has_blocked: AtomicBool::new(false),
        blocks,
        goes_on: Mutex::new(goes_on),
    };
    (LockClient::builder().listener(Arc::new(listener)).build_in_memory().unwrap(), told, lets_go)
}

/// The thread that asks the store for all threads of its client is inside its listener.
#[test]
fn a_listener_that_blocks_in_waiting_holds_up_no_other_thread() {
    let (one, told, lets_go) = client(true);
    let other = LockClient::in_memory_shared(&one).unwrap();
    let guard = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| one.lock("job").unwrap().unlock());
        told.recv_timeout(CAP).unwrap();
        let behind =
            s.spawn(|| one.try_lock_for("job", CAP).unwrap().expect("it is freed").unlock());
        wait_until("it waits", || one.snapshot().waits().len() == 2);
        guard.unlock().unwrap();
        behind.join().unwrap().unwrap();
        assert!(!blocked.is_finished());
        drop(lets_go);
        blocked.join().unwrap().unwrap();
    });
}

/// What a waiting call leaves in the store would keep others out: a place in a fair queue, or the
/// marker of a writer.
#[test]
fn a_listener_that_blocks_in_waiting_has_left_nothing_in_the_store() {
    let (one, told, lets_go) = client(true);
    let other = LockClient::in_memory_shared(&one).unwrap();
    let guard = other.fair("fair").lock().unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| one.fair("fair").lock().unwrap().unlock());
        told.recv_timeout(CAP).unwrap();
        guard.unlock().unwrap();
        drop(other.fair("fair").try_lock().unwrap().expect("nobody is in the queue"));
        drop(lets_go);
        blocked.join().unwrap().unwrap();
    });
    let (one, told, lets_go) = client(true);
    let other = LockClient::in_memory_shared(&one).unwrap();
    let guard = other.rw_lock("rw").read().unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| one.rw_lock("rw").write().unwrap().unlock());
        told.recv_timeout(CAP).unwrap();
        drop(other.rw_lock("rw").try_read().unwrap().expect("no writer waits yet"));
        guard.unlock().unwrap();
        drop(lets_go);
        blocked.join().unwrap().unwrap();
    });
}

#[test]
fn a_close_returns_at_its_deadline_beside_a_listener_that_blocks() {
    let (client, told, lets_go) = client(false);
    let guard = client.mutex("job").lock_owned().unwrap();
    let began = Instant::now();
    client.close(ms(2000)).unwrap();
    assert!(began.elapsed() < CAP / 2, "it waits for the listener");
    told.recv_timeout(CAP).unwrap();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
    drop(lets_go);
}

/// A call that has released its hold has nothing left that a close would have to wait for.
#[test]
fn a_close_does_not_wait_for_a_call_that_tells_its_listener() {
    let one = |client: &LockClient| {
        let guard = client.mutex("job").lock_owned().unwrap();
        move || guard.unlock()
    };
    close_beside_its_listener(one);
    let several = |client: &LockClient| {
        let guard = client.multi(["a", "b"]).lock_owned().unwrap();
        move || guard.unlock()
    };
    close_beside_its_listener(several);
}

fn close_beside_its_listener<U>(hold: impl FnOnce(&LockClient) -> U)
where
    U: FnOnce() -> leasehold::Result<()> + Send,
{
    let (client, told, lets_go) = client(false);
    let unlock = hold(&client);
    std::thread::scope(|s| {
        let unlocks = s.spawn(unlock);
        told.recv_timeout(CAP).unwrap();
        client.close(CAP).unwrap();
        drop(lets_go);
        unlocks.join().unwrap().unwrap();
    });
}

/// The close itself notifies the listener before it returns, if there is time.
#[test]
fn a_close_notifies_its_listener_of_each_hold() {
    struct Counts(Mutex<Vec<String>>);
    impl Listener for Counts {
        fn released(&self, lock: &LockInfo<'_>, _: Duration) {
            self.0.lock().push(lock.name().to_owned());
        }
    }
    let counts = Arc::new(Counts(Mutex::default()));
    let client = LockClient::builder().listener(counts.clone()).build_in_memory().unwrap();
    let names = ["a", "b", "c"];
    let guards = names.map(|name| client.mutex(name).lock_owned().unwrap());
    client.close(CAP).unwrap();
    let mut told = counts.0.lock().clone();
    told.sort();
    assert_eq!(told, names);
    assert!(Faults::of(&client).unwrap().held().is_empty());
    drop(guards);
}

/// Everything is lost in an outage, and each callback closes the client: they take up all threads
/// for callbacks.
#[test]
fn a_close_by_each_callback_takes_no_longer_than_one() {
    /// As many callbacks run at once.
    const MOST: usize = 16;
    struct Listens;
    impl Listener for Listens {}
    let client = LockClient::builder().listener(Arc::new(Listens)).build_in_memory().unwrap();
    let guards: Vec<_> =
        (0..MOST).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    let live = client.mutex("live").lock_owned().unwrap();
    let [begun, ended] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    for guard in &guards {
        let (client, begun, ended) = (client.clone(), begun.clone(), ended.clone());
        guard.on_lost(move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            wait_until("each thread has one", || begun.load(Ordering::SeqCst) == MOST);
            client.close(Duration::from_secs(3600)).unwrap();
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    let other = LockClient::in_memory_shared(&client).unwrap();
    for n in 0..MOST {
        other.mutex(format!("n{n}")).force_unlock().unwrap();
    }
    Faults::of(&client).unwrap().advance(Duration::ZERO);
    wait_until("each close has returned", || ended.load(Ordering::SeqCst) == MOST);
    assert!(!live.is_held());
    drop(guards);
}
