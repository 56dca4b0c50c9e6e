use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use crate::base::deadline::Deadline;
use crate::base::holder::ClientId;
use crate::base::lock_name::LockName;
use crate::base::primitive::Primitive;
use crate::hold::guarded::MOST_LEVELS;
use crate::lease::records::HoldRequest;
use crate::report::observer::Observer;
use crate::signal::clock::{Clock, SystemClock};
use crate::store::Granted;
use crate::store::Topic;
use crate::store::memory::{Memory, MemoryStore};
use crate::store::{HoldCounts, Released, Renewed};
use crate::wait::client_state::Config;
use crate::wait::local_queue::{EnqueueOutcome, Entry};

const LEASE: Duration = Duration::from_secs(600);

fn client() -> Arc<ClientState> {
    let lease = LEASE;
    let io_timeout = Duration::from_secs(5);
    let outage_timeout = LEASE;
    let key_prefix = String::new();
    let max_hold = None;
    let owner = None;
    let config = Config {
        lease,
        io_timeout,
        key_prefix,
        max_hold,
        fencing: true,
        outage_timeout,
        owner,
        has_label: false,
    };
    let mut store = MemoryStore::new(&Arc::new(Memory::new()), io_timeout);
    store.queues_all = true;
    let id = ClientId::random(io_timeout);
    let observer = Arc::new(Observer::default());
    Arc::new(ClientState::new(
        config,
        "c".to_owned(),
        id,
        Arc::new(store),
        Arc::new(SystemClock),
        observer,
        None,
    ))
}

/// A thread that releases has sent the acquire of the waiter, and was answered "busy"; then the
/// lock was freed, and the message for that was read, while the waiter woke up as the leader.
#[test]
fn a_message_that_came_before_the_leader_listened_is_not_missed() {
    assert!((0..100).any(|_| is_staged()), "the waiter was always quicker");
}

/// False if the waiter woke up before its acquire was taken: then it sends its own request.
fn is_staged() -> bool {
    let client = client();
    let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
    let topic = Topic::freed(&name);
    // So that the topic is subscribed before the waiter listens.
    let other = Arc::default();
    let listening = client.notifications.listen(topic.clone(), &other);
    while !client.notifications.is_subscribed(&topic) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = client.local_queues.queue(
        &name.key,
        Entry::AtTheEnd,
        (Deadline::Never, None),
        || None,
        || (),
    );
    let EnqueueOutcome::Leader(first) = first else { panic!("nobody else is there") };
    let (got_it, outcome) = channel();
    let of_thread = client.clone();
    let of_waiter = name.clone();
    std::thread::Builder::new()
        .spawn(move || {
            let terms = Terms::of(&of_thread.config);
            let hold = acquire_owned(&of_thread, &of_waiter, 1, &terms, Deadline::Never);
            got_it.send(hold.is_ok_and(|hold| hold.is_some())).unwrap();
        })
        .unwrap();
    let (primitive, holder, at) =
        (Primitive::Mutex, client.who.id.fresh_holder(), SystemClock.now());
    let asked = HoldRequest {
        name,
        primitive,
        holder,
        permits: 1,
        lease: LEASE,
        is_renewed: false,
        at,
        generation: 0,
    };
    let granted = Granted { token: 0, sent_at: at, session: None, next: None };
    let hold = client.watchdog.granted(asked, granted);
    while client.seen.waits.len() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It leaves its acquire in the queue after it has entered its wait.
    std::thread::sleep(Duration::from_millis(50));
    drop(first);
    let taken = client.local_queues.find(&hold.asked.name.key).unwrap().take_piggyback(&hold);
    client.notifications.notify(&topic);
    let is_staged = taken.is_some();
    if let Some(taken) = taken {
        let busy = Acquired::Busy { ttl: Some(LEASE) };
        taken.deliver(Ok(busy), UnknownOutcomes::default());
    }
    assert!(
        outcome.recv_timeout(Duration::from_secs(10)).expect("it sleeps although the lock is free")
    );
    drop(listening);
    is_staged
}

#[test]
fn the_last_level_is_refused() {
    let client = client();
    let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
    let terms = Terms::of(&client.config);
    let enter = || acquire_for_thread(&client, &name, &terms, Deadline::Now);
    let hold = enter().unwrap().unwrap();
    hold.tenure.set_counts(HoldCounts { main: MOST_LEVELS - 1, reads: 0 });
    assert!(enter().unwrap().is_some());
    assert_eq!(enter().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(hold.tenure.counts(), HoldCounts { main: MOST_LEVELS, reads: 0 });
    hold.tenure.set_counts(HoldCounts { main: 1, reads: 0 });
    hold.release_one(Side::Main).unwrap();
}

/// What a thread holds is released when it ends. A guard of an inner level that is dropped later,
/// because it is in a thread-local variable, has nothing to do or to report.
#[test]
fn an_inner_level_of_a_thread_that_has_ended_is_no_loss() {
    let client = client();
    let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
    let terms = Terms::of(&client.config);
    let enter = || acquire_for_thread(&client, &name, &terms, Deadline::Now).unwrap().unwrap();
    let hold = enter();
    let _inner = enter();
    hold.release_all().unwrap();
    assert!(matches!(hold.leave_one(Side::Main), Ok(None)));
}

/// A master of a Redlock that has lost the hold takes it anew for an extension.
#[test]
fn what_an_extension_takes_anew_is_undone_if_the_hold_has_ended() {
    let client = client();
    let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
    let terms = Terms::of(&client.config);
    let hold = acquire_for_thread(&client, &name, &terms, Deadline::Now).unwrap().unwrap();
    let is_taken = || client.store.inspect(&name).unwrap().is_some();
    let extended = |again| {
        let sent_at = client.clock.now();
        hold.extended(LEASE, Renewed::Held { sent_at, again, beside: None, asked: 0 })
    };
    extended(true).unwrap();
    assert!(client.watchdog.open_undos() == 0 && is_taken(), "it is held");
    hold.tenure.store_hold.lose();
    assert_eq!(extended(false).unwrap_err().kind(), ErrorKind::Lost);
    assert!(client.watchdog.open_undos() == 0 && is_taken(), "nothing was taken anew");
    assert_eq!(extended(true).unwrap_err().kind(), ErrorKind::Lost);
    let began = std::time::Instant::now();
    while is_taken() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is left behind");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The store does not know the hold any more because a close has given it up meanwhile.
#[test]
fn what_a_close_overtakes_is_closed_and_not_lost() {
    let client = client();
    let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
    let terms = Terms::of(&client.config);
    let hold = acquire_for_thread(&client, &name, &terms, Deadline::Now).unwrap().unwrap();
    let reenter =
        |answer: &dyn Fn() -> Option<Moment>| hold.reenter(Side::Main, LEASE, || Ok(answer()));
    reenter(&|| Some(client.clock.now())).unwrap();
    let inner = hold.leave_one(Side::Main).unwrap().expect("one level is left");
    let closes = || client.close(Duration::from_secs(10)).map(|()| None).unwrap();
    assert_eq!(reenter(&closes).unwrap_err().kind(), ErrorKind::Closed);
    let left = inner.finish(Ok(Released::NotHeld), UnknownOutcomes::default());
    assert_eq!(left.unwrap_err().kind(), ErrorKind::Closed);
}
