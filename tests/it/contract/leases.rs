//! Leases end in time or are renewed, and a holder that lost its lock knows it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use super::nouns::{Exclusive, NOUNS};
use super::{Case, LONG, Network, SHORT, SOON, assert_lost, builder, count_losses, for_all, short};
use crate::rig::{CAP, Child, Server, ms};

#[test]
fn an_unlock_tells_that_it_worked_and_no_loss() {
    for_all(|case| {
        let noun = case.noun.label;
        let client = case.open_with(short);
        let mut told = Vec::new();
        for _ in 0..3 {
            let guard = client.lock().unwrap();
            told.push(count_losses(&*guard));
            assert!(!guard.wait_lost(ms(1)), "{noun}: not lost yet");
            guard.unlock().unwrap();
            case.assert_free("unlocked");
        }
        // The thread that calls back has looked at the leases of the first three when it has told of this one.
        let guard = client.lock().unwrap();
        let last = count_losses(&*guard);
        case.forget(false);
        assert_lost(noun, guard, &last);
        assert!(told.iter().all(|told| told.load(Ordering::SeqCst) == 0), "{noun}: an unlock is no loss");
    });
}

#[test]
fn a_hold_that_the_server_forgot_is_told_in_every_way() {
    for_all(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open_with(short), case.open());
        for all in [false, true] {
            let guard = a.lock().unwrap();
            let (told, token) = (count_losses(&*guard), guard.token());
            case.forget(all);
            assert_lost(noun, guard, &told);
            let next = b.try_lock().unwrap().expect(noun);
            assert!(next.token() > token || !case.noun.has_token, "{noun}: {:?} after {token:?}", next.token());
        }
    });
}

/// The release of one who does not know yet that it has lost the lock must not touch the hold of the next.
#[test]
fn a_late_release_harms_nobody() {
    for_all(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let stale = a.lock().unwrap();
        case.forget(false);
        let next = b.try_lock().unwrap().expect(noun);
        assert_eq!(stale.unlock().unwrap_err().kind(), ErrorKind::Lost, "{noun}: the release tells");
        assert!(a.try_lock().unwrap().is_none(), "{noun}: the next one still has it");
        next.extend(LONG).expect(noun);
        next.unlock().expect(noun);
    });
}

/// The lease ends here before it ends at the server, whatever keeps us from being told.
#[track_caller]
fn lost_by_time(case: &Case, client: &dyn Exclusive, cut: impl Fn(), mend: impl Fn()) {
    let noun = case.noun.label;
    let guard = client.lock().unwrap();
    let told = count_losses(&*guard);
    let inner = std::thread::scope(|s| s.spawn(|| client.try_lock().unwrap().is_none()).join().unwrap());
    assert!(inner, "{noun}: held");
    cut();
    assert!(guard.wait_lost(CAP), "{noun}: time alone ends it");
    mend();
    assert_lost(noun, guard, &told);
    let next = case.open().try_lock_for(SOON).unwrap();
    assert!(next.is_some(), "{noun}: others follow");
}

#[test]
fn a_lease_ends_in_time_while_the_server_is_suspended() {
    for_all(|case| {
        let client = case.open_with(short);
        let all = |each: fn(&Server)| case.servers.0.iter().for_each(each);
        lost_by_time(case, &*client, || all(Server::suspend), || all(Server::resume));
    });
}

#[test]
fn a_lease_ends_in_time_while_the_network_is_silent() {
    for_all(|case| {
        let proxy = Network::start(case);
        let client = case.open_through(&proxy, short);
        lost_by_time(case, &*client, || proxy.silence(true), || proxy.silence(false));
    });
}

fn holder(case: &Case) -> Child {
    let env = [("LEASEHOLD_TEST_URLS", &*case.servers.urls().join(" ")), ("LEASEHOLD_TEST_NOUN", case.noun.label)];
    let mut child = Child::spawn("contract::leases::holder_process", &env);
    child.expect("held");
    child
}

#[test]
#[ignore = "a program for other tests"]
fn holder_process() {
    let (urls, label) = (std::env::var("LEASEHOLD_TEST_URLS").unwrap(), std::env::var("LEASEHOLD_TEST_NOUN").unwrap());
    let urls: Vec<String> = urls.split(' ').map(str::to_owned).collect();
    let noun = NOUNS.iter().find(|noun| noun.label == label).unwrap();
    let client = (noun.open)(short(builder(noun, &urls)), &format!("the-{label}"), None);
    let guard = client.lock().unwrap();
    println!("@@held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@is_held={}", guard.is_held());
    println!("@@unlock={:?}", guard.unlock().map_err(|e| e.kind()));
}

#[test]
fn a_killed_holder_delays_the_next_by_no_more_than_its_lease() {
    for_all(|case| {
        let noun = case.noun.label;
        let client = case.open();
        let mut child = holder(case);
        assert!(client.try_lock().unwrap().is_none(), "{noun}: the child has it");
        child.kill();
        let start = Instant::now();
        let guard = client.lock().unwrap();
        let (took, lease) = (start.elapsed(), SHORT + case.noun.grace);
        assert!(guard.is_held() && took < lease + Duration::from_secs(4), "{noun}: {took:?} for a lease of {lease:?}");
    });
}

/// The first instruction after it wakes up must not believe, and what it does then must not touch the next holder.
#[test]
fn a_suspended_holder_does_not_believe_when_it_wakes() {
    for_all(|case| {
        let noun = case.noun.label;
        let client = case.open();
        let mut child = holder(case);
        child.signal("STOP");
        let mine = client.lock().unwrap();
        child.signal("CONT");
        child.say("look");
        assert_eq!(child.expect("is_held="), "false", "{noun}");
        assert_eq!(child.expect("unlock="), "Err(Lost)", "{noun}");
        child.wait();
        let other = case.open();
        assert!(other.try_lock().unwrap().is_none(), "{noun}: the next one still has it");
        mine.unlock().expect(noun);
    });
}

/// The waiter was told of a lease of two minutes, and nobody is left who could release it.
#[test]
fn a_waiter_gets_in_when_the_server_comes_back_empty() {
    for_all(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open(), case.open());
        let guard = a.lock().unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock().map(|guard| guard.is_held()));
            case.wait_for_a_waiter();
            case.servers.0.iter_mut().for_each(Server::restart);
            if !case.noun.stays.is_empty() {
                // What it waited for is not there: it is told so, or the stage was set in time.
                case.prepare();
            }
            match waiter.join().unwrap() {
                Ok(held) => assert!(held, "{noun}"),
                Err(e) => assert!(e.kind() == ErrorKind::Conflict && !case.noun.stays.is_empty(), "{noun}: {e:?}"),
            }
        });
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{noun}: the first hold");
    });
}

#[test]
fn renewal_keeps_it_for_many_leases() {
    for_all(|case| {
        let noun = case.noun.label;
        let (a, b) = (case.open_with(short), case.open());
        let guard = a.lock().unwrap();
        assert!(!guard.wait_lost(SHORT * 3), "{noun}: renewed");
        assert!(guard.is_held() && guard.remaining() <= SHORT, "{noun}: {:?}", guard.remaining());
        assert!(b.try_lock().unwrap().is_none(), "{noun}: at the server as well");
        guard.unlock().expect(noun);
    });
}

#[test]
fn a_fixed_lease_ends_unless_extended() {
    for_all(|case| {
        let noun = case.noun.label;
        let open = || (case.noun.open)(case.builder(), &case.name, Some(ms(300)));
        let (a, b) = (open(), case.open());
        let guard = a.lock().unwrap();
        let told = count_losses(&*guard);
        assert_lost(noun, guard, &told);
        let start = Instant::now();
        b.lock().unwrap().unlock().expect(noun);
        assert!(start.elapsed() < case.noun.grace + SOON, "{noun}: {:?}", start.elapsed());

        let guard = a.lock().unwrap();
        match guard.extend(LONG) {
            Ok(()) => {
                assert!(guard.remaining() > LONG / 2, "{noun}: {:?}", guard.remaining());
                guard.extend(ms(300)).expect(noun);
                assert!(guard.remaining() > LONG / 2, "{noun}: never shortened");
                assert!(b.try_lock().unwrap().is_none(), "{noun}: at the server as well");
                guard.unlock().expect(noun);
            }
            // 300 ms went by between the two lines: it happens on a machine that does other things.
            Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{noun}"),
        }
    });
}
