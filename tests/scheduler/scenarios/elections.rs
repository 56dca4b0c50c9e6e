//! Elections of a leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::ErrorKind;

use crate::book::pause;
use crate::stage::{Stage, choose, join_all, wait_until};

/// Three stand for election, of two clients. Each leader resigns, fails, panics or is done, and
/// another one follows at once: no two lead, and nobody waits for a lease.
pub(crate) fn follow_each_other() {
    const TERMS: u32 = 8;
    let stage = Stage::new();
    let terms = Arc::new(AtomicU32::new(0));
    // A panic would only begin another term.
    let wrong = Arc::new(AtomicU32::new(0));
    let leading = Arc::new(AtomicU32::new(0));
    let last = Arc::new(AtomicU64::new(0));
    let candidates = [true, true, false].map(|is_one| {
        let (terms, wrong) = (terms.clone(), wrong.clone());
        let (leading, last) = (leading.clone(), last.clone());
        stage.spawn(move |stage| {
            let election = stage.client(is_one).election("job").again();
            let ended = election.run(|term| {
                let is_alone = leading.fetch_add(1, Ordering::SeqCst) == 0;
                let number = term.number().get();
                let is_later = last.swap(number, Ordering::SeqCst) < number;
                pause();
                wrong.fetch_add(u32::from(!is_alone || !is_later), Ordering::SeqCst);
                terms.fetch_add(1, Ordering::SeqCst);
                if choose(2) == 0 {
                    term.resign();
                    wrong.fetch_add(u32::from(term.is_leader()), Ordering::SeqCst);
                }
                leading.fetch_sub(1, Ordering::SeqCst);
                if choose(4) == 0 { Err("a failure") } else { Ok(()) }
            });
            assert_eq!(ended.expect_err("it stands again").kind(), ErrorKind::Closed);
        })
    });
    wait_until("they follow each other", || terms.load(Ordering::SeqCst) >= TERMS);
    for client in [&stage.one, &stage.other] {
        client.stop_waiting();
    }
    join_all(candidates);
    assert_eq!(wrong.load(Ordering::SeqCst), 0, "two led, or a number did not grow");
    stage.end();
}

/// The leader loses its lease, or its client stops waiting or is closed, at any moment: the closure
/// is told, and the call ends or stands again.
pub(crate) fn ends_of_terms() {
    let stage = Stage::new();
    let wrong = Arc::new(AtomicU32::new(0));
    let leads_on = wrong.clone();
    let candidate = stage.spawn(move |stage| {
        stage.one.election("job").run(|term| {
            let is_told = term.cancel_token().wait_timeout(Duration::from_secs(1000));
            leads_on.fetch_add(u32::from(!is_told || term.is_leader()), Ordering::SeqCst);
            Ok::<(), &str>(())
        })
    });
    if choose(2) == 0 {
        pause();
        stage.one.mutex("job").force_unlock().expect("the store answers");
    }
    pause();
    match choose(2) {
        0 => stage.one.stop_waiting(),
        _ => stage.one.close(Duration::from_secs(1)).expect("it closes in time"),
    }
    let ended = candidate.join().expect("it does not panic").expect_err("the client has stopped");
    assert_eq!(ended.kind(), ErrorKind::Closed);
    assert_eq!(wrong.load(Ordering::SeqCst), 0, "it was not told to end");
    stage.close();
}

/// No server answers for two leases, and the first term fails: somebody leads soon after the
/// outage, and again soon after that failure.
pub(crate) fn after_an_outage() {
    let stage = Stage::new();
    stage.faults.cut(Duration::from_secs(60));
    let terms = AtomicU32::new(0);
    let ended = stage.one.election("job").run(|_| {
        let is_first = terms.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first { Err("a failure") } else { Ok(()) }
    });
    ended.expect("it leads in the end");
    stage.end();
}
