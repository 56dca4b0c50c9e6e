//! Waiters for different locks in one client: each is woken by its own lock.

use crate::rig::{PROMPT, Server, ms, wait_until};
use crate::support::Clients;

#[test]
fn a_plain_lock_behind_a_fair_hold_of_its_client_is_woken() {
    let server = Server::start();
    let client = server.client();
    let held = client.fair("t").lock_owned().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.mutex("t").try_lock_for(PROMPT).unwrap().is_some());
        std::thread::sleep(ms(50));
        held.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
}

/// The locks `{x}` and `x` have the same channel.
#[test]
fn two_locks_that_share_a_channel_are_both_notified() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (one, other) = (b.mutex("x").lock_owned().unwrap(), b.mutex("{x}").lock_owned().unwrap());
    std::thread::scope(|s| {
        let first = s.spawn(|| a.mutex("x").try_lock_for(PROMPT).unwrap().is_some());
        wait_until("it is subscribed", || server.channels().len() == 1);
        std::thread::sleep(ms(30));
        let second = s.spawn(|| a.mutex("{x}").try_lock_for(PROMPT).unwrap().is_some());
        std::thread::sleep(ms(30));
        one.unlock().unwrap();
        assert!(first.join().unwrap(), "not notified since the other subscribed");
        other.unlock().unwrap();
        assert!(second.join().unwrap());
    });
}
