//! Clients in memory: several on one store, and the faults that a test can inject.

mod faults;
mod settling;

use std::time::Duration;

use leasehold::observe::NodeState;
use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, LockClient, Redlock};

use crate::rig::{CAP, ms};

#[test]
fn what_faults_are_made_of_can_go_to_other_threads() {
    fn both<T: Send + Sync + 'static>() {}
    both::<Faults>();
    both::<Operation>();
    both::<Failure>();
}

#[test]
fn clones_are_one_client_and_shared_ones_are_several() {
    let one = LockClient::in_memory();
    let other = LockClient::in_memory_shared(&one).unwrap();
    let clone = one.clone();
    assert_eq!(clone.id(), one.id());
    assert_ne!(other.id(), one.id());
    let guard = one.lock("job").unwrap();
    assert!(clone.try_lock("job").unwrap().is_some(), "the same thread of the same client");
    assert!(other.try_lock("job").unwrap().is_none());
    let holder = other.mutex("job").holder().unwrap().expect("one holder");
    assert!(holder.id().starts_with(one.id()) && !holder.is_this_client());
    drop(guard);
    assert!(other.try_lock("job").unwrap().is_some());
    assert!(LockClient::in_memory().try_lock("job").unwrap().is_some(), "another store");
}

#[test]
fn only_clients_in_memory_share_it() {
    let far = LockClient::builder().url("redis+unix:///nowhere").connect_lazily().build().unwrap();
    assert_eq!(LockClient::in_memory_shared(&far).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Faults::of(&far).unwrap_err().kind(), ErrorKind::InvalidInput);
    let builder = LockClient::builder;
    for wrong in [
        builder().url("redis://x/"),
        builder().redlock(Redlock::new([""; 0])),
        builder().lease(ms(1)),
    ] {
        assert_eq!(wrong.build_in_memory().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn settings_are_those_of_each_client() {
    let builder = LockClient::builder().lease(Duration::from_secs(7)).key_prefix("app:");
    let one = builder.build_in_memory().unwrap();
    let other = LockClient::in_memory_shared(&one).unwrap();
    let guard = one.lock("job").unwrap();
    assert!(guard.remaining() <= Duration::from_secs(7));
    assert!(other.try_lock("job").unwrap().is_some(), "another name, without the prefix");
    assert!(other.try_lock("app:job").unwrap().is_none());
    assert_eq!(Faults::of(&one).unwrap().held(), ["job"]);
    assert_eq!(Faults::of(&other).unwrap().held(), ["app:job"]);
}

#[test]
fn a_store_in_memory_is_one_node_that_is_up() {
    let client = LockClient::in_memory();
    let [node] = &client.nodes()[..] else { panic!("one node") };
    assert_eq!((node.address(), node.state()), ("memory", NodeState::Voting));
    Faults::of(&client).unwrap().cut(CAP);
    assert_eq!(client.nodes()[0].state(), NodeState::Down);
}

#[test]
fn any_name_will_do() {
    let client = LockClient::in_memory();
    for name in ["a{b", "{}", "leasehold:node", "redisson_lock_token:{x}", "löck"] {
        assert!(client.try_lock(name).unwrap().is_some(), "{name}");
    }
    assert_eq!(client.try_lock("").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn closing_one_client_frees_what_it_holds_and_leaves_the_others() {
    let one = LockClient::in_memory();
    let other = LockClient::in_memory_shared(&one).unwrap();
    let (lost, kept) = (one.lock("a").unwrap(), other.lock("b").unwrap());
    one.close(CAP).unwrap();
    assert!(!lost.is_held() && kept.is_held());
    assert!(other.try_lock("a").unwrap().is_some());
    assert_eq!(one.lock("b").unwrap_err().kind(), ErrorKind::Closed);
    assert!(
        LockClient::in_memory_shared(&one).unwrap().try_lock("b").unwrap().is_none(),
        "the store still exists"
    );
}

#[test]
fn fenced_values_refuse_stale_holders() {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    let stale = client.lock("job").unwrap();
    let token = stale.fencing_token().unwrap();
    assert!(faults.lose("job"));
    assert!(stale.wait_lost(CAP).is_lost());
    drop(stale);
    let guard = client.lock("job").unwrap();
    assert!(guard.fencing_token().unwrap() > token);
    let value = client.fenced_value("balance");
    let newer = value.claim(guard.fencing_token().unwrap()).unwrap();
    newer.write(b"1").unwrap();
    assert_eq!(value.claim(token).unwrap_err().kind(), ErrorKind::Stale);
}

#[test]
fn a_thread_whose_hold_is_lost_is_told_how_it_gets_the_lock_again() {
    let client = LockClient::in_memory();
    let guard = client.lock("job").unwrap();
    assert!(Faults::of(&client).unwrap().lose("job"));
    let error = client.lock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("once it has dropped the guard"), "{error}");
    drop(guard);
    client.lock("job").unwrap().unlock().unwrap();
}
