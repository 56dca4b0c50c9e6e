use super::*;
use crate::base::lock_name::Kind;

fn made(observer: &Observer, name: &str) -> Arc<LockName> {
    let name = Arc::new(LockName::new("p:", name, Kind::Mutex).unwrap());
    observer.meet(&name);
    name
}

fn call(observer: &Observer, name: &Arc<LockName>, waited: Option<Duration>) {
    let waited = waited.map(|time| (name.clone(), time));
    let names = std::slice::from_ref(name);
    observer.call_ended(Primitive::Mutex, names, Outcome::Granted, waited.as_ref());
}

#[test]
fn the_table_keeps_the_names_that_are_waited_for_longest() {
    let observer = Observer::default();
    for n in 0..MOST_REPORTED {
        call(&observer, &made(&observer, &format!("idle{n}")), None);
    }
    let late = made(&observer, "late");
    call(&observer, &late, None);
    assert_eq!(observer.names().len(), MOST_REPORTED);
    assert!(
        observer.names().iter().all(|(name, ..)| **name != *"late"),
        "there was no room for it"
    );

    call(&observer, &late, Some(Duration::from_millis(2)));
    let (name, primitive, figures) = observer.names().swap_remove(0);
    assert_eq!((&*name, primitive, figures.granted_after_wait()), ("late", Primitive::Mutex, 1));
    assert_eq!(observer.names().len(), MOST_REPORTED);

    // One with more waiting time than all others takes the place of an idle one, and no other.
    for n in 0..2 * MOST_REPORTED {
        call(
            &observer,
            &made(&observer, &format!("busy{n}")),
            Some(Duration::from_millis(10 + n as u64)),
        );
    }
    let names = observer.names();
    assert_eq!(names.len(), MOST_REPORTED);
    assert_eq!(&*names[0].0, format!("busy{}", 2 * MOST_REPORTED - 1));
    assert!(
        names.iter().all(|(.., figures)| figures.waits().sum()
            >= Duration::from_millis(10 + MOST_REPORTED as u64))
    );
    assert_eq!(
        observer.primitives()[0].1.calls(),
        2 + 3 * MOST_REPORTED as u64,
        "all are counted there"
    );
}

#[test]
fn a_name_that_is_made_again_counts_on() {
    let observer = Observer::default();
    call(&observer, &made(&observer, "a"), None);
    call(&observer, &made(&observer, "a"), None);
    assert_eq!(observer.names().len(), 1);
    assert_eq!(observer.names()[0].2.granted_at_once(), 2);
}

#[test]
fn a_listener_that_panics_harms_nothing() {
    struct Panics;
    impl Listener for Panics {
        fn waiting(&self, _: &LockInfo<'_>) {
            panic!("on purpose");
        }
    }
    let observer = Observer::new(Some(Arc::new(Panics)), SpanClient::default());
    for _ in 0..2 {
        observer.tell_of("a", Primitive::Mutex, |listener, lock| listener.waiting(lock));
    }
    assert!(observer.panicked.load(Ordering::Relaxed));
}
