//! The fencing tokens of both libraries come from one counter.

use crate::rig::ms;
use crate::world::world;

#[test]
fn tokens_grow_across_both_libraries() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let ours = client.mutex("tokens").keep_token();
    let mut last = 0;
    let mut grows = |what: &str, token: u64| {
        assert!(token > last, "{what}: {token} after {last}");
        last = token;
    };
    for _ in 0..3 {
        let guard = ours.lock().unwrap();
        grows("ours", guard.fencing_token().unwrap().get());
        assert_eq!(
            java.call("fenced tokens getToken"),
            guard.fencing_token().unwrap().get().to_string()
        );
        assert_eq!(java.call("fenced tokens tryLockAndGetToken 700"), "null");
        guard.unlock().unwrap();
        grows("Java's", java.call("fenced tokens lockAndGetToken").parse().unwrap());
        assert!(ours.try_lock_for(ms(20)).unwrap().is_none());
        grows("its second level's", java.call("fenced tokens lockAndGetToken").parse().unwrap());
        java.call("fenced tokens unlock");
        java.call("fenced tokens unlock");
    }
    assert_eq!(world.server.pttl("redisson_lock_token:{tokens}"), -1, "it never expires");
}

/// Tokens only increase, whichever lock object of Redisson is used: a plain one neither advances
/// the counter nor sets it back.
#[test]
fn redisson_without_tokens_does_no_harm() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let ours = client.mutex("tokens2").keep_token();
    let before = ours.lock().unwrap().fencing_token().unwrap();
    java.call("lock tokens2 lock");
    java.call("lock tokens2 unlock");
    assert!(ours.lock().unwrap().fencing_token().unwrap() > before);
}
