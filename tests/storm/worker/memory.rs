//! A process whose store is in its own memory: several clients, and the faults of that store.

use std::time::Duration;

use leasehold::LockClient;
use leasehold::testing::{Failure, Faults, Operation};

use super::settings::WAITER_TIMEOUT;
use super::turn::{PERMITS, names_of};
use crate::event::Kind;
use crate::rig::ms;

/// Clients that share one store, with the permits set.
pub(super) fn clients(count: usize, lease: Duration) -> Vec<LockClient> {
    let builder = || {
        LockClient::builder()
            .lease(lease)
            .waiter_timeout(WAITER_TIMEOUT)
            .outage_timeout(Duration::from_secs(60))
    };
    let first = builder().client_name("storm").build_in_memory().unwrap();
    for name in names_of(Kind::Permit)[0] {
        first.semaphore(name).try_set_permits(PERMITS).unwrap();
    }
    let further = || builder().client_name("storm").build_in_memory_shared(&first).unwrap();
    let others: Vec<_> = std::iter::repeat_with(further).take(count - 1).collect();
    std::iter::once(first).chain(others).collect()
}

/// The operations that threads and background work send all the time.
const OPERATIONS: [Operation; 5] = [
    Operation::Acquire,
    Operation::Release,
    Operation::Renew,
    Operation::Subscribe,
    Operation::Count,
];

/// Carries out the command in a line. False if it is not a fault.
pub(super) fn obey(client: &LockClient, word: &str, rest: &str) -> bool {
    let faults = Faults::of(client).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match word {
        "advance" => faults.advance(ms(number(rest))),
        "cut" => faults.cut(ms(number(rest))),
        "lose" => drop(faults.lose(rest)),
        "fail" => {
            let (when, which) = rest.split_once(' ').unwrap();
            let failure = if when == "after" { Failure::AfterItRan } else { Failure::BeforeItRan };
            faults.fail_next(OPERATIONS[usize::try_from(number(which)).unwrap()], failure);
        }
        _ => return false,
    }
    true
}

/// Panics if a hold or a waiter is left after all threads have ended.
pub(super) fn assert_clean(client: &LockClient) {
    let faults = Faults::of(client).unwrap();
    // A fault that has not happened yet would affect this check.
    faults.cut(Duration::ZERO);
    crate::rig::wait_until("nothing is held or waited for", || {
        // Holds of a lost client end with their lease.
        faults.advance(ms(500));
        faults.held().is_empty()
    });
}
