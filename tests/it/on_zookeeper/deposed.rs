//! A client that is cut off together with the leader: the other servers elect another leader, and
//! the old one continues to answer until it notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::{LONG, client_of, server};
use crate::rig::zookeeper::{Ensemble, EnsembleOptions, Mode, Pipe};
use crate::rig::{CAP, ms, wait_for, wait_until};

const LEASE: Duration = ms(4000);

/// An election takes seconds on a busy machine.
const ELECTION: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Quiet,
    /// Its threads ask for other locks all the time.
    Busy,
    /// Its connections end again and again.
    Reconnects,
}

/// How the leader is cut off from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The others notice at once, and the leader much later.
    Reset,
    /// Both sides notice after their `syncLimit`.
    Silent,
}

/// Asks for other locks until the end of the round. The errors do not matter.
fn is_busy(client: &LockClient, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        drop(client.try_lock("other"));
        drop(client.try_lock_for("another", ms(50)));
        let _ = client.mutex("other").holder();
        std::thread::sleep(ms(2));
    }
}

fn round(ensemble: &Ensemble, number: usize, cut: Cut, kind: Client) {
    ensemble.wait_for_all();
    let leader = ensemble.leader();
    let name = format!("job-{number}");
    let pipe = Pipe::to(ensemble.server(leader).port());
    let settings = |builder: leasehold::Builder| {
        builder.lease(LEASE).io_timeout(ms(1000)).outage_timeout(LONG).connect_lazily()
    };
    let client = client_of(&format!("zookeeper://127.0.0.1:{}", pipe.port()), settings);
    let beside =
        client_of(&ensemble.url_of(&ensemble.followers()), |builder| builder.outage_timeout(LONG));
    let mut taken = None;
    wait_for(ELECTION, "it has the lock", || {
        taken = client.lock(&name).ok();
        taken.is_some()
    });
    let (guard, over) = (taken.unwrap(), AtomicBool::new(false));
    std::thread::scope(|s| {
        match kind {
            Client::Quiet => {}
            Client::Busy => (0..3).for_each(|_| drop(s.spawn(|| is_busy(&client, &over)))),
            Client::Reconnects => drop(s.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    pipe.cut();
                    std::thread::sleep(ms(200));
                }
            })),
        }
        let next = s.spawn(|| {
            let next = beside.mutex(&name).lock_owned();
            let both = guard.is_held();
            // A busy machine may be slow to answer.
            let mode = (0..5).find_map(|_| ensemble.server(leader).mode());
            over.store(true, Ordering::SeqCst);
            next.unwrap().unlock().unwrap();
            (both, mode)
        });
        wait_until("the next one waits", || {
            beside.fair(&name).queue_len().is_ok_and(|length| length == 1)
        });
        std::thread::sleep(LEASE / 2);
        assert!(guard.is_held(), "{cut:?} {kind:?}");
        match cut {
            Cut::Reset => ensemble.depose(leader),
            Cut::Silent => ensemble.cut_off(leader, true),
        }
        let is_lost = guard.wait_lost(CAP).is_lost();
        let (both, mode) = next.join().unwrap();
        assert!(!both, "{cut:?} {kind:?}: two guards believed at the same time");
        assert!(is_lost, "{cut:?} {kind:?}");
        if cut == Cut::Reset {
            assert_eq!(mode, Some(Mode::Leader), "the old leader still served its clients");
        }
    });
    ensemble.cut_off(leader, false);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_for(ELECTION, "the client is back", || {
        client.try_lock(&name).is_ok_and(|won| won.is_some())
    });
    drop((client, beside));
}

const KINDS: [Client; 3] = [Client::Quiet, Client::Busy, Client::Reconnects];

/// The old leader answers reads and `sync`, and accepts its clients' reconnections, for many more
/// seconds. A client that trusted this would believe for as long, and others get in after the
/// election and a session.
#[test]
fn a_client_beside_a_leader_that_was_replaced_says_false_first() {
    let options = EnsembleOptions {
        tick: ms(100),
        patience: Duration::from_secs(100),
        ..EnsembleOptions::default()
    };
    let ensemble = server!(Ensemble::start_with(options));
    for (number, kind) in KINDS.into_iter().enumerate() {
        round(&ensemble, number, Cut::Reset, kind);
    }
    ensemble.assert_clean();
}

/// Both sides notice at nearly the same time.
#[test]
fn a_client_beside_a_leader_that_is_silently_cut_off_says_false_first() {
    let options =
        EnsembleOptions { tick: ms(100), patience: ms(2000), ..EnsembleOptions::default() };
    let ensemble = server!(Ensemble::start_with(options));
    for (number, kind) in KINDS.into_iter().enumerate() {
        round(&ensemble, number, Cut::Silent, kind);
    }
    ensemble.assert_clean();
}
