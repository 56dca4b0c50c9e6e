//! The reason for a loss, reported in every way; and what is reported before it.

#[cfg(feature = "testing")]
mod in_memory;
mod select;
mod stores;

use std::error::Error as _;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold::{ErrorKind, Held, LockClient, Loss, LossReason, RenewalFailure};

use crate::rig::{CAP, Child, Proxy, Server, logged_anywhere, ms, record_logs, wait_until};
use crate::support::{Clients, ShortLease};

const SHORT: Duration = ms(3000);
const LONG: Duration = Duration::from_secs(60);

/// The losses that a callback of the guard receives.
fn told(guard: &dyn Held) -> Receiver<Loss> {
    let (tell, told) = channel();
    guard.on_lost(Box::new(move |loss| {
        let _ = tell.send(loss.clone());
    }));
    told
}

fn troubles(guard: &dyn Held) -> Receiver<RenewalFailure> {
    let (tell, told) = channel();
    guard.on_renewal_failed(Box::new(move |trouble| {
        let _ = tell.send(trouble.clone());
    }));
    told
}

/// The locks of a set are closed one after another, and a callback may report any of them.
fn without_time(loss: &Loss) -> String {
    let text = loss.to_string();
    if loss.reason() == LossReason::Closed {
        text.split(" (held for").next().unwrap().to_owned()
    } else {
        text
    }
}

/// The loss of a guard, after checking that all ways report the same one. `before`: a callback that
/// was registered while it was held.
#[track_caller]
fn lost(
    guard: &dyn Held,
    before: &Receiver<Loss>,
    reason: LossReason,
    cause: Option<ErrorKind>,
) -> Loss {
    assert!(guard.wait_lost(CAP).is_lost(), "it is lost");
    let loss = guard.loss().expect("it is lost");
    assert_eq!(
        (loss.reason(), loss.cause().map(leasehold::Error::kind)),
        (reason, cause),
        "{loss}"
    );
    // It stays ready after the first read.
    for _ in 0..2 {
        assert!(guard.lost().recv_timeout(CAP).is_err_and(|e| e.is_disconnected()));
    }
    let after = told(guard);
    for callback in [before, &after] {
        let same = callback.recv_timeout(CAP).expect("the callback runs");
        assert_eq!(without_time(&same), without_time(&loss));
    }
    let error = guard.ensure_held().unwrap_err();
    if reason == LossReason::Closed {
        assert_eq!(error.kind(), ErrorKind::Closed);
    } else {
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!(
            error.source().map(ToString::to_string),
            loss.cause().map(ToString::to_string),
            "{error:?}"
        );
        let what = loss.to_string().split([':', '(']).next().unwrap().trim().to_owned();
        assert!(error.to_string().contains(&what), "{error} does not say {what:?}");
    }
    loss
}

#[test]
fn a_server_that_is_gone_is_the_cause() {
    record_logs();
    let mut server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let guard = client.lock("lost-by-outage").unwrap();
    let (before, trouble) = (told(&guard), troubles(&guard));
    assert!(guard.loss().is_none());
    server.kill();
    let trouble = trouble.recv_timeout(CAP).expect("the first renewal fails");
    assert_eq!(trouble.error().kind(), ErrorKind::Unreachable);
    assert!(!trouble.remaining().is_zero() && trouble.remaining() < SHORT, "{trouble}");
    let loss = lost(&guard, &before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
    assert!(loss.held_for() > SHORT / 2, "{loss}");
    wait_until("it is logged", || {
        logged_anywhere("lost-by-outage")
            .iter()
            .any(|line| line.contains("is lost: its lease could not be renewed:"))
    });
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    server.start_again();
}

/// The first renewal is still in progress when the lease ends: there is no error yet, and nothing
/// was suspended.
#[test]
fn a_server_that_does_not_answer_is_the_cause() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    // An I/O timeout in the background is a quarter of a lease; the second write stalls as well.
    let client = LockClient::builder().url(proxy.url()).short_lease(SHORT).build().unwrap();
    let guard = client.lock("job").unwrap();
    let before = told(&guard);
    proxy.silence(true);
    let loss = lost(&guard, &before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
    assert!(loss.held_for() > SHORT / 2, "{loss}");
    drop(guard);
    proxy.silence(false);
}

#[test]
fn what_was_taken_away_says_so() {
    record_logs();
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let other = server.client();
    let guard = client.lock("taken-away").unwrap();
    let before = told(&guard);
    assert!(other.mutex("taken-away").force_unlock().unwrap());
    lost(&guard, &before, LossReason::TakenAway, None);
    wait_until("it is logged", || {
        logged_anywhere("taken-away").iter().any(|line| line.contains("is lost: it was taken away"))
    });
    drop(guard);

    // Forced out by a thread of its own client, which is known at once.
    let long = server.builder().lease(LONG).build().unwrap();
    let guard = long.lock("own").unwrap();
    let before = told(&guard);
    assert!(long.mutex("own").force_unlock().unwrap());
    assert!(!guard.is_held());
    lost(&guard, &before, LossReason::TakenAway, None);
    drop(guard);

    // A permit; then a whole semaphore is deleted.
    long.semaphore("permits").try_set_permits(1).unwrap();
    let permit = long.semaphore("permits").acquire().unwrap();
    let before = told(&permit);
    assert!(long.semaphore("permits").delete().unwrap());
    lost(&permit, &before, LossReason::TakenAway, None);
    drop(permit);

    // The release itself finds the loss.
    let multi = long.multi(["a", "b"]).lock().unwrap();
    let before = told(&multi);
    server.cmd::<u32>(&["DEL", "b"]);
    let error = multi.unlock().unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("taken away"), "{error}");
    assert_eq!(before.recv_timeout(CAP).unwrap().reason(), LossReason::TakenAway);
}

#[test]
fn a_lease_that_ended_as_it_was_asked_to_says_so() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let fixed = client.mutex("fixed").with_lease(ms(4000)).lock().unwrap();
    let before = told(&fixed);
    let loss = lost(&fixed, &before, LossReason::FixedLease, None);
    assert!(loss.held_for() > ms(2000) && loss.held_for() <= ms(4000), "{loss}");
    drop(fixed);

    // A reader's lease is checked often, which does not extend it.
    let fixed = client.rw_lock("rw").with_lease(ms(1000)).read().unwrap();
    let before = told(&fixed);
    lost(&fixed, &before, LossReason::FixedLease, None);
    drop(fixed);

    let most = client.fair("most").max_hold(ms(2000)).lock().unwrap();
    let before = told(&most);
    let loss = lost(&most, &before, LossReason::MaxHold, None);
    assert!(loss.held_for() >= ms(2000), "{loss}");
    drop(most);
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

#[test]
fn a_client_that_was_closed_says_so() {
    let server = Server::start();
    let client = server.builder().lease(LONG).build().unwrap();
    let guard = client.mutex("job").lock_owned().unwrap();
    let multi = client.multi(["a", "b"]).lock().unwrap();
    let (before, before_multi) = (told(&guard), told(&multi));
    client.close(CAP).unwrap();
    lost(&guard, &before, LossReason::Closed, None);
    lost(&multi, &before_multi, LossReason::Closed, None);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
}

/// The process was suspended past its lease: no renewal has failed.
#[test]
fn a_suspended_holder_is_told_that_nothing_failed() {
    let server = Server::start();
    let mut child =
        Child::spawn("loss_reasons::suspended_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("held");
    child.signal("STOP");
    let mine = server.client().lock("job").unwrap();
    child.signal("CONT");
    child.say("look");
    let loss = child.expect("loss=");
    assert!(
        loss.starts_with("NotRenewed None") && loss.contains("suspended or too busy"),
        "{loss}"
    );
    child.wait();
    drop(mine);
}

#[test]
#[ignore = "a program for other tests"]
fn suspended_process() {
    let client = LockClient::builder()
        .url(std::env::var("LEASEHOLD_TEST_URL").unwrap())
        .short_lease(ms(900))
        .build();
    let client = client.unwrap();
    let guard = client.lock("job").unwrap();
    println!("@@held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let loss = guard.loss().unwrap();
    println!("@@loss={:?} {:?} {loss}", loss.reason(), loss.cause());
}

/// A key of another type: the server answers, and refuses this one lock.
#[test]
fn the_cause_is_that_of_the_last_renewal() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(6000)).build().unwrap();
    let (broken, healthy) = (client.lock("broken").unwrap(), client.lock("healthy").unwrap());
    let (before, trouble, other) = (told(&broken), troubles(&broken), troubles(&healthy));
    server.cmd::<()>(&["SET", "broken", "a string"]);
    assert_eq!(trouble.recv_timeout(CAP).unwrap().error().kind(), ErrorKind::WrongType);
    lost(&broken, &before, LossReason::NotRenewed, Some(ErrorKind::WrongType));
    assert!(trouble.try_recv().is_err(), "once for all failures in a row");
    assert!(healthy.is_held() && other.try_recv().is_err());
    server.cmd::<u32>(&["DEL", "broken"]);
}

/// Two holds of one client under one name at different times: each has its own history.
#[test]
fn a_later_hold_begins_anew() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let guard = client.lock("job").unwrap();
    let before = told(&guard);
    server.cmd::<u32>(&["DEL", "job"]);
    lost(&guard, &before, LossReason::TakenAway, None);
    drop(guard);
    let guard = client.lock("job").unwrap();
    assert!(guard.loss().is_none());
    assert!(guard.lost().try_recv().is_err_and(|e| e.is_empty()));
}
