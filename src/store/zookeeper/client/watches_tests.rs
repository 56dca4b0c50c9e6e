use super::*;
use crate::base::lock_name::Kind;

fn topic(kind: Kind, turn_of: Option<&str>) -> Topic {
    Topic { kind, key: "job".into(), turn_of: turn_of.map(Into::into) }
}

fn waiter(holder: &str) -> WatchingWaiter {
    WatchingWaiter { turn: topic(Kind::Mutex, Some(holder)), freed: topic(Kind::Mutex, None) }
}

fn watches() -> (Watches, Arc<AtomicBool>) {
    let mut watches = Watches::default();
    let is_lost = Arc::new(AtomicBool::new(false));
    watches.add("/a".to_owned(), NodeWatch::Predecessor(waiter("w1")));
    watches.add("/a".to_owned(), NodeWatch::Own(is_lost.clone()));
    watches.add("/leases".to_owned(), NodeWatch::Permits(waiter("w2")));
    watches.add("/permits".to_owned(), NodeWatch::Permits(waiter("w2")));
    watches.add("/latch".to_owned(), NodeWatch::Latch(topic(Kind::Latch, None)));
    (watches, is_lost)
}

const IDLE: Fired = Fired { woken: Vec::new(), is_loss: false, renew: Renew::No };

#[test]
fn only_a_node_that_goes_is_a_loss_or_a_turn() {
    let (mut watches, is_lost) = watches();
    for event in [EventKind::DataChanged, EventKind::ChildrenChanged, EventKind::Created] {
        assert_eq!(watches.fired("/a", event), Fired { renew: Renew::Data, ..IDLE });
    }
    assert!(!is_lost.load(Ordering::Acquire) && watches.is_guarded("/a"));
    assert!(watches.is_watched_by("/a", &waiter("w1").turn));
    let fired = watches.fired("/a", EventKind::Deleted);
    assert_eq!(
        fired,
        Fired {
            woken: vec![waiter("w1").turn, waiter("w1").freed],
            is_loss: true,
            renew: Renew::No
        }
    );
    assert!(is_lost.load(Ordering::Acquire) && !watches.is_guarded("/a"));
    assert_eq!(watches.fired("/a", EventKind::Deleted), IDLE, "nobody is notified twice");
}

#[test]
fn permits_wake_their_waiter_once_by_any_change() {
    for path in ["/leases", "/permits"] {
        let (mut watches, _) = watches();
        let fired = watches.fired(path, EventKind::ChildrenChanged);
        assert_eq!((fired.woken.len(), fired.renew), (2, Renew::No));
        assert!(!watches.is_watched_by(path, &waiter("w2").turn));
        assert_eq!(watches.remove_waiter(&waiter("w2").turn).len(), 1, "the other one");
        assert!(watches.by_waiter.len() == 1 && watches.by_path.len() == 2, "{watches:?}");
    }
}

/// Removed and set again by a waiter that looks again while its number changes.
#[test]
fn a_message_of_a_watch_that_was_removed_is_not_one_of_its_successor() {
    let (mut watches, _) = watches();
    let w2 = waiter("w2");
    assert_eq!(watches.remove_waiter(&w2.turn).len(), 2);
    watches.add("/permits".to_owned(), NodeWatch::Permits(w2.clone()));
    let fired = watches.fired("/permits", EventKind::DataChanged);
    assert_eq!((fired.woken.len(), fired.renew), (2, Renew::No));
    assert!(watches.is_watched_by("/permits", &w2.turn));
    watches.removed("/permits");
    assert_eq!(watches.fired("/permits", EventKind::DataChanged).woken.len(), 2);
    assert!(!watches.is_watched_by("/permits", &w2.turn));
    watches.removed("/leases");
    assert!(watches.removals.is_empty());
}

#[test]
fn a_latch_is_watched_for_as_long_as_somebody_waits() {
    let (mut watches, is_lost) = watches();
    for event in [EventKind::Created, EventKind::DataChanged, EventKind::Deleted] {
        let fired = watches.fired("/latch", event);
        assert_eq!((fired.woken.len(), fired.renew), (1, Renew::Latch));
    }
    assert_eq!(watches.ended().len(), 2 + 4 + 1);
    assert!(!is_lost.load(Ordering::Acquire), "a connection that ends is no loss");
    assert!(!watches.is_guarded("/a") && !watches.is_watched_by("/a", &waiter("w1").turn));
    assert_eq!(watches.latches(), ["/latch"]);
    assert!(!watches.remove_latch("/latch", &topic(Kind::Done, None)), "that of another one");
    assert!(watches.remove_latch("/latch", &topic(Kind::Latch, None)));
    assert!(watches.by_path.is_empty() && watches.by_waiter.is_empty(), "{watches:?}");
}

#[test]
fn what_could_not_be_watched_is_asked_for_again() {
    let (mut watches, is_lost) = watches();
    let failed = watches.failed("/a");
    assert_eq!((failed.woken.len(), failed.is_loss), (2, false));
    assert!(!is_lost.load(Ordering::Acquire) && !watches.is_guarded("/a"));
    watches.remove_guard("/a");
    assert_eq!(watches.fired("/a", EventKind::Deleted), IDLE);
}
