//! Leases end in time or are renewed, and a holder that lost its lock knows it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use super::case::{Case, builder};
use super::network::Network;
use super::primitives::{Exclusive, PRIMITIVES};
use super::{BRIEF, LONG, SHORT, SOON, assert_lost, brief, count_losses, short};
use crate::rig::{CAP, Child, Server, ms};

pub(super) fn a_successful_unlock_reports_no_loss(case: &mut Case) {
    let primitive = case.primitive.label;
    let client = case.open_with(short);
    let mut reported = Vec::new();
    for _ in 0..3 {
        let guard = client.lock().unwrap();
        reported.push(count_losses(&*guard));
        assert!(guard.wait_lost(ms(1)).is_still_held(), "{primitive}: not lost yet");
        guard.unlock().unwrap();
        case.assert_free("unlocked");
    }
    // When the callback thread reports this loss, it has also checked the leases of the first
    // three.
    let guard = client.lock().unwrap();
    let last = count_losses(&*guard);
    case.forget(false);
    assert_lost(primitive, guard, &last);
    assert!(
        reported.iter().all(|reported| reported.load(Ordering::SeqCst) == 0),
        "{primitive}: unlock is not a loss"
    );
}

pub(super) fn a_hold_that_the_server_forgot_is_reported_in_every_way(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open_with(short), case.open());
    for all in [false, true] {
        let guard = a.lock().unwrap();
        let (reported, token) = (count_losses(&*guard), guard.token());
        case.forget(all);
        assert_lost(primitive, guard, &reported);
        let next = b.try_lock().unwrap().expect(primitive);
        assert!(
            next.token() > token || !case.primitive.has_token,
            "{primitive}: {:?} after {token:?}",
            next.token()
        );
    }
}

/// A holder that has lost its lock without knowing it must not release the next holder's hold.
pub(super) fn a_late_release_harms_nobody(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let stale = a.lock().unwrap();
    case.forget(false);
    let next = b.try_lock().unwrap().expect(primitive);
    assert_eq!(
        stale.unlock().unwrap_err().kind(),
        ErrorKind::Lost,
        "{primitive}: the release reports it"
    );
    assert!(a.try_lock().unwrap().is_none(), "{primitive}: the next one still has it");
    next.extend(LONG).expect(primitive);
    next.unlock().expect(primitive);
}

/// The lease ends in the client before it ends at the server, even if the client cannot reach the
/// server.
#[track_caller]
fn lost_by_time(case: &Case, client: &dyn Exclusive, cut: impl Fn(), mend: impl Fn()) {
    let primitive = case.primitive.label;
    let guard = client.lock().unwrap();
    let reported = count_losses(&*guard);
    let inner =
        std::thread::scope(|s| s.spawn(|| client.try_lock().unwrap().is_none()).join().unwrap());
    assert!(inner, "{primitive}: held");
    cut();
    assert!(guard.wait_lost(CAP).is_lost(), "{primitive}: time alone ends it");
    mend();
    assert_lost(primitive, guard, &reported);
    let next = case.open().try_lock_for(SOON).unwrap();
    assert!(next.is_some(), "{primitive}: others follow");
}

pub(super) fn a_lease_ends_in_time_while_the_server_is_suspended(case: &mut Case) {
    let client = case.open_with(brief);
    let all = |each: fn(&Server)| case.servers.0.iter().for_each(each);
    lost_by_time(case, &*client, || all(Server::suspend), || all(Server::resume));
}

pub(super) fn a_lease_ends_in_time_while_the_network_is_silent(case: &mut Case) {
    let proxy = Network::start(case);
    let client = case.open_through(&proxy, brief);
    lost_by_time(case, &*client, || proxy.silence(true), || proxy.silence(false));
}

fn holder(case: &Case) -> Child {
    let (urls, ca) = (case.urls().join(" "), case.ca_file().unwrap_or_default());
    let mut env =
        vec![("LEASEHOLD_TEST_URLS", &*urls), ("LEASEHOLD_TEST_NOUN", case.primitive.label)];
    env.push(("LEASEHOLD_TEST_CA", ca.to_str().unwrap()));
    let mut child = Child::spawn("contract::leases::holder_process", &env);
    child.expect("held");
    child
}

#[test]
#[ignore = "a program for other tests"]
fn holder_process() {
    let (urls, label) = (
        std::env::var("LEASEHOLD_TEST_URLS").unwrap(),
        std::env::var("LEASEHOLD_TEST_NOUN").unwrap(),
    );
    let urls: Vec<String> = urls.split(' ').map(str::to_owned).collect();
    let primitive = PRIMITIVES.iter().find(|primitive| primitive.label == label).unwrap();
    let ca = PathBuf::from(std::env::var("LEASEHOLD_TEST_CA").unwrap());
    let ca = primitive.over_tls.then_some(&*ca);
    let client = (primitive.open)(
        brief(builder(primitive, &urls, ca)).build().unwrap(),
        &format!("the-{label}"),
        None,
    );
    // So short a lease leaves a busy machine's server little time for an answer.
    let mut taken = client.lock();
    for _ in 0..20 {
        if taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unreachable) {
            taken = client.lock();
        }
    }
    let guard = taken.unwrap();
    println!("@@held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@is_held={}", guard.is_held());
    println!("@@unlock={:?}", guard.unlock().map_err(|e| e.kind()));
}

pub(super) fn a_killed_holder_delays_the_next_by_no_more_than_its_lease(case: &mut Case) {
    let primitive = case.primitive.label;
    let client = case.open();
    let mut child = holder(case);
    assert!(client.try_lock().unwrap().is_none(), "{primitive}: the child has it");
    child.kill();
    let start = Instant::now();
    let guard = client.lock().unwrap();
    let (took, lease) = (start.elapsed(), BRIEF + case.primitive.grace);
    assert!(
        guard.is_held() && took < lease + Duration::from_secs(4),
        "{primitive}: {took:?} for a lease of {lease:?}"
    );
}

/// The first check after the process resumes must report the loss, and nothing that the process
/// then does may affect the next holder.
pub(super) fn a_suspended_holder_knows_of_its_loss_when_it_resumes(case: &mut Case) {
    let primitive = case.primitive.label;
    let client = case.open();
    let mut child = holder(case);
    child.signal("STOP");
    let mine = client.lock().unwrap();
    child.signal("CONT");
    child.say("look");
    assert_eq!(child.expect("is_held="), "false", "{primitive}");
    assert_eq!(child.expect("unlock="), "Err(Lost)", "{primitive}");
    child.wait();
    let other = case.open();
    assert!(other.try_lock().unwrap().is_none(), "{primitive}: the next one still has it");
    mine.unlock().expect(primitive);
}

/// The waiter was informed of a lease of two minutes, and the holder that could release it is gone.
pub(super) fn a_waiter_gets_in_when_the_server_comes_back_empty(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let guard = a.lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock().map(|guard| guard.is_held()));
        case.wait_for_a_waiter();
        for server in &mut case.servers.0 {
            server.restart();
        }
        if !case.primitive.stays.is_empty() {
            // The semaphore no longer exists: the waiter gets that error, unless the test
            // created it again in time.
            case.prepare();
        }
        match waiter.join().unwrap() {
            Ok(held) => assert!(held, "{primitive}"),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Conflict, "{primitive}: {e:?}");
                assert!(!case.primitive.stays.is_empty(), "{primitive}: {e:?}");
            }
        }
    });
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}: the first hold");
}

pub(super) fn renewal_keeps_it_for_many_leases(case: &mut Case) {
    let primitive = case.primitive.label;
    // Long enough that a machine which is slow for a while misses no renewal.
    let lease = ms(3500);
    let renewed = |builder: leasehold::Builder| builder.lease(lease).io_timeout(lease / 10 * 9);
    let (a, b) = (case.open_with(renewed), case.open());
    let guard = a.lock().unwrap();
    assert!(guard.wait_lost(lease * 9 / 4).is_still_held(), "{primitive}: renewed");
    assert!(guard.is_held() && guard.remaining() <= lease, "{primitive}: {:?}", guard.remaining());
    assert!(b.try_lock().unwrap().is_none(), "{primitive}: at the server as well");
    guard.unlock().expect(primitive);
}

pub(super) fn a_fixed_lease_ends_unless_extended(case: &mut Case) {
    let primitive = case.primitive.label;
    let open = || (case.primitive.open)(case.client(|builder| builder), &case.name, Some(ms(700)));
    let (a, b) = (open(), case.open());
    let guard = a.lock().unwrap();
    let reported = count_losses(&*guard);
    assert_lost(primitive, guard, &reported);
    let start = Instant::now();
    b.lock().unwrap().unlock().expect(primitive);
    assert!(start.elapsed() < case.primitive.grace + SOON, "{primitive}: {:?}", start.elapsed());

    let guard = a.lock().unwrap();
    match guard.extend(LONG) {
        Ok(()) => {
            assert!(guard.remaining() > LONG / 2, "{primitive}: {:?}", guard.remaining());
            guard.extend(ms(300)).expect(primitive);
            assert!(guard.remaining() > LONG / 2, "{primitive}: never shortened");
            assert!(b.try_lock().unwrap().is_none(), "{primitive}: at the server as well");
            guard.unlock().expect(primitive);
        }
        // The lease ended between the two lines, which happens on a busy machine.
        Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{primitive}"),
    }
}

pub(super) fn a_longest_hold_ends_although_it_is_renewed(case: &mut Case) {
    let primitive = case.primitive.label;
    let client = case.open_with(|builder| short(builder).max_hold(SHORT * 2));
    let guard = client.lock().unwrap();
    assert!(guard.wait_lost(SHORT * 3 / 2).is_still_held(), "{primitive}: renewed so far");
    assert!(guard.wait_lost(CAP).is_lost() && !guard.is_held(), "{primitive}");
    let next = case.open().try_lock_for(SOON).unwrap();
    assert!(next.is_some(), "{primitive}: others follow");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}");
}
