//! What every primitive that can act as an exclusive lock promises, over every store: a test for
//! each store and point, such as `contract::redis::exclusion::one_holder_at_a_time_...`, which runs
//! over all primitives that the store has. And what else each kind does (`each_kind`).
//!
//! The points are functions in the files of this folder, their table is in this file, and `stores`
//! runs them over each store.

#![cfg_attr(
    not(all(
        feature = "testing",
        any(feature = "postgres", feature = "mysql", feature = "zookeeper")
    )),
    allow(dead_code, reason = "what only those stores need")
)]

mod case;
mod data;
mod each_kind;
mod election;
mod exclusion;
mod in_memory;
mod jobs;
mod leases;
mod lost_replies;
mod min_hold;
mod network;
#[cfg(feature = "mysql")]
mod on_mysql;
#[cfg(feature = "postgres")]
mod on_postgres;
#[cfg(feature = "zookeeper")]
mod on_zookeeper;
pub(crate) mod primitives;
mod stores;
mod waits;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Builder, ErrorKind};

#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
use self::network::{Elsewhere, Network};
use self::primitives::{EXCEPTIONS, Guard, Held, PRIMITIVES};
use crate::rig::{CAP, ms, wait_until};

/// Short enough to wait for its end.
const BRIEF: Duration = ms(1500);
/// Long enough to be renewed on a busy machine.
const SHORT: Duration = ms(3000);
/// So long that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(120);
/// Far longer than anything takes that does not wait for a lease of [`LONG`].
const SOON: Duration = Duration::from_secs(30);

/// A test, unless the store cannot support it: the exceptions are here, each with the reason.
macro_rules! point {
    // No other process can reach it, and no reply can be lost. `memory::faults` tests its faults.
    (memory, over_a_network, $file:ident, $point:ident) => {};
    // It has no server that could stop.
    (memory, on_its_own_server, $file:ident, $point:ident) => {};
    // All rows share a server, which keeps its data over a restart. `on_postgres::faults` tests a
    // suspended server.
    (postgres, on_its_own_server, $file:ident, $point:ident) => {};
    (mysql, on_its_own_server, $file:ident, $point:ident) => {};
    // It has no jobs, no data and so no elections, and not all kinds.
    (mysql, of_a_job, $file:ident, $point:ident) => {};
    (mysql, of_a_job_over_a_network, $file:ident, $point:ident) => {};
    (mysql, one_row, $file:ident, $point:ident) => {};
    (mysql, one_row_over_a_network, $file:ident, $point:ident) => {};
    (mysql, once, $file:ident, $point:ident) => {};
    (mysql, once_in_mysql_too, $file:ident, $point:ident) => {
        point!(mysql, one, $file, $point);
    };
    ($store:ident, once_in_mysql_too, $file:ident, $point:ident) => {
        point!($store, once, $file, $point);
    };
    // The same; `on_zookeeper::loss` tests a server that is suspended or has lost its data.
    (zookeeper, on_its_own_server, $file:ident, $point:ident) => {};
    // It refuses data and elections, and nobody else does.
    (redlock, one_row, $file:ident, $point:ident) => {};
    (redlock, one_row_over_a_network, $file:ident, $point:ident) => {};
    (redlock, redlock, $file:ident, $point:ident) => {
        point!(redlock, one, $file, $point);
    };
    ($store:ident, redlock, $file:ident, $point:ident) => {};
    (memory, one_row_over_a_network, $file:ident, $point:ident) => {};
    // They have the mutex alone, or the same code as `redis`. `cluster::primitives` tests names on
    // several nodes.
    (tls, once, $file:ident, $point:ident) => {};
    (sentinel, once, $file:ident, $point:ident) => {};
    (cluster, once, $file:ident, $point:ident) => {};
    (redlock, once, $file:ident, $point:ident) => {};
    // It is the same code as `redis`; and several masters have no jobs.
    (tls, of_a_job, $file:ident, $point:ident) => {};
    (redlock, of_a_job, $file:ident, $point:ident) => {};
    // No reply can be lost: `once::in_memory` makes requests fail.
    (memory, of_a_job_over_a_network, $file:ident, $point:ident) => {};
    (tls, of_a_job_over_a_network, $file:ident, $point:ident) => {};
    (redlock, of_a_job_over_a_network, $file:ident, $point:ident) => {};
    ($store:ident, $needs:ident, $file:ident, $point:ident) => {
        #[test]
        fn $point() {
            let test = crate::contract::$file::$point;
            let once = !matches!(
                stringify!($needs),
                "everywhere" | "over_a_network" | "on_its_own_server"
            );
            crate::contract::stores::$store(crate::contract::stores::Point { test, once });
        }
    };
}

macro_rules! points {
    ($store:ident, $($file:ident: [$($needs:ident $point:ident,)*],)*) => {
        $(
            mod $file {
                $(point!($store, $needs, $file, $point);)*
            }
        )*
    };
}

/// All points, as tests of a store. A point that no store runs is dead code, which the compiler
/// reports.
macro_rules! contract_of {
    ($store:ident) => {
        points! {
            $store,
            exclusion: [
                everywhere one_holder_at_a_time_between_clients_and_between_threads,
                everywhere threads_of_two_clients_never_overlap_and_all_get_in,
                everywhere all_four_forms_take_what_is_free,
                everywhere timed_forms_give_up_in_time_and_leave_nothing,
                everywhere dropping_frees_also_in_a_panic,
                everywhere a_guard_that_moves_is_dropped_anywhere,
                everywhere a_release_wakes_the_next_at_once,
                everywhere closing_releases_what_is_held_and_wakes_waiters,
            ],
            each_kind: [
                once_in_mysql_too a_mutex_is_reentrant_and_its_guards_drop_in_any_order,
                once_in_mysql_too operators_see_and_free,
                once_in_mysql_too clients_share_a_mutex,
                once_in_mysql_too a_turn_whose_hold_is_lost_learns_of_it,
                once a_fair_lock_is_given_in_the_order_of_arrival,
                once_in_mysql_too readers_share_and_a_writer_is_alone,
                once_in_mysql_too a_writer_reads_and_downgrades,
                once_in_mysql_too readers_and_writers_of_each_client_get_in,
                once_in_mysql_too several_locks_are_taken_as_one,
                once_in_mysql_too multi_locks_do_not_wait_for_each_other,
                once_in_mysql_too permits_are_counted,
                once_in_mysql_too free_permits_are_had_by_all_who_try_at_once,
                once counting_permits_are_counted,
                once a_latch_opens_for_all,
            ],
            jobs: [
                of_a_job an_occurrence_is_done_once,
                of_a_job occurrences_have_an_order_unless_they_are_forgotten,
                of_a_job failures_count_and_have_pauses,
                of_a_job one_runs_at_a_time_and_others_see_it,
                of_a_job whoever_waits_for_an_occurrence_is_woken,
                of_a_job a_run_that_was_forced_out_records_nothing,
                of_a_job a_late_end_touches_no_other_occurrence,
                of_a_job records_are_kept_for_their_time,
                of_a_job a_pause_outlasts_the_time_for_which_records_are_kept,
                of_a_job the_last_fire_time_is_that_of_the_store,
                of_a_job what_cannot_be_a_job_is_refused,
                of_a_job_over_a_network a_lost_reply_records_at_most_one_success,
                of_a_job_over_a_network a_lost_reply_to_a_failure_reports_no_loss,
            ],
            leases: [
                everywhere a_successful_unlock_reports_no_loss,
                everywhere a_hold_that_the_server_forgot_is_reported_in_every_way,
                everywhere a_late_release_harms_nobody,
                everywhere renewal_keeps_it_for_many_leases,
                everywhere a_fixed_lease_ends_unless_extended,
                everywhere a_longest_hold_ends_although_it_is_renewed,
                on_its_own_server a_lease_ends_in_time_while_the_server_is_suspended,
                on_its_own_server a_waiter_gets_in_when_the_server_comes_back_empty,
                over_a_network a_lease_ends_in_time_while_the_network_is_silent,
                over_a_network a_killed_holder_delays_the_next_by_no_more_than_its_lease,
                over_a_network a_suspended_holder_knows_of_its_loss_when_it_resumes,
            ],
            lost_replies: [
                over_a_network a_lost_acquire_leaves_nothing_behind,
                over_a_network a_lost_release_frees_all_the_same,
                over_a_network a_waiter_whose_reply_was_lost_leaves_nothing_and_gets_in,
            ],
            min_hold: [
                everywhere it_stays_taken_until_its_time_is_over_and_no_longer,
                everywhere whoever_waits_learns_of_the_end_that_comes_sooner,
                everywhere it_outlasts_a_short_lease,
                everywhere a_hold_that_was_lost_is_reported_and_harms_nobody,
                everywhere closing_keeps_it_too,
                over_a_network a_lost_request_is_repeated_and_names_the_same_end,
            ],
            data: [
                one_row it_is_shown_with_the_grant_and_only_while_its_writer_holds,
                one_row it_has_a_limit_and_a_reentry_leaves_it,
                one_row each_thread_has_its_own,
                one_row a_hold_that_ended_with_its_lease_is_the_last_one,
                one_row a_multi_lock_that_gives_up_the_last_level_ends_it,
                one_row_over_a_network a_lost_reply_changes_nothing_more,
                one_row_over_a_network a_late_change_changes_nothing,
                redlock redlock_refuses_it,
            ],
            election: [
                one_row one_leads_and_when_it_resigns_another_one_does,
                one_row an_error_a_panic_and_a_value,
                one_row whatever_ends_a_term_tells_its_closure,
                one_row a_request_reaches_the_leader_and_ends_with_its_term,
                one_row whoever_watches_sees_each_change,
                redlock redlock_refuses_it,
            ],
            waits: [
                everywhere a_cancelled_wait_leaves_nothing_and_who_is_behind_moves_up,
                everywhere a_wait_for_a_loss_can_be_cancelled,
                everywhere a_client_that_waits_no_more_keeps_what_it_holds,
                everywhere a_client_that_waits_no_more_leaves_its_places_at_once,
            ],
        }
    };
}

#[cfg(feature = "testing")]
mod memory {
    contract_of!(memory);
}

mod redis {
    contract_of!(redis);
}

#[cfg(feature = "tls")]
mod tls {
    contract_of!(tls);
}

mod sentinel {
    contract_of!(sentinel);
}

mod cluster {
    contract_of!(cluster);
}

mod redlock {
    contract_of!(redlock);
}

#[cfg(feature = "postgres")]
mod postgres {
    contract_of!(postgres);
}

#[cfg(feature = "mysql")]
mod mysql {
    contract_of!(mysql);
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    contract_of!(zookeeper);
}

/// The I/O timeout is longer than the default of a quarter of the lease: the lease must be the
/// first to end.
fn short(builder: Builder) -> Builder {
    builder.lease(SHORT).io_timeout(SHORT / 10 * 9)
}

fn brief(builder: Builder) -> Builder {
    builder.lease(BRIEF).io_timeout(BRIEF / 10 * 9)
}

/// Counts how often the loss of a hold is reported.
fn count_losses(guard: &dyn Held) -> Arc<AtomicU32> {
    let reported = Arc::new(AtomicU32::new(0));
    let count = reported.clone();
    guard.on_lost(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    reported
}

/// Checks that a hold reports its loss in every way, and unlocks it.
#[track_caller]
fn assert_lost(primitive: &str, guard: Guard, reported: &AtomicU32) {
    assert!(guard.wait_lost(CAP).is_lost(), "{primitive}: wait_lost");
    assert!(!guard.is_held(), "{primitive}: is_held");
    assert_eq!(guard.remaining(), Duration::ZERO, "{primitive}: remaining");
    assert_eq!(
        guard.ensure_held().unwrap_err().kind(),
        ErrorKind::Lost,
        "{primitive}: ensure_held"
    );
    wait_until(&format!("{primitive}: the callback has run"), || {
        reported.load(Ordering::SeqCst) == 1
    });
    let late = count_losses(&*guard);
    wait_until(&format!("{primitive}: a late callback has run"), || {
        late.load(Ordering::SeqCst) == 1
    });
    assert_eq!(guard.extend(LONG).unwrap_err().kind(), ErrorKind::Lost, "{primitive}: extend");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}: unlock");
}

/// A failure of the connection or the server leaves the outcome unknown; any other error would be
/// wrong.
#[track_caller]
fn assert_unasked(what: &str, error: &leasehold::Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::Protocol),
        "{what}: {error:?}"
    );
}

/// Every method that waits is in the table or among the exceptions, so that a new primitive cannot
/// be forgotten.
#[test]
fn every_waiting_method_is_in_the_contract_or_excepted_with_a_reason() {
    let mut found = BTreeSet::new();
    let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.extend(waiting_methods(&std::fs::read_to_string(path).unwrap()));
        }
    }
    let reported: BTreeSet<String> =
        PRIMITIVES.iter().map(|primitive| primitive.method.to_owned()).collect();
    let except: BTreeSet<String> =
        EXCEPTIONS.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert!(reported.is_disjoint(&except));
    let known: BTreeSet<String> = reported.union(&except).cloned().collect();
    assert_eq!(
        found, known,
        "methods of the sources (left), and of the table and its exceptions (right)"
    );
}

/// `Type.method` for every waiting method of a public type: those that macros generate in four
/// forms, and those with one of these names.
fn waiting_methods(source: &str) -> Vec<String> {
    const NAMES: [&str; 3] = ["lock", "acquire", "wait"];
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut found, mut owner, mut public) = (Vec::new(), "", BTreeSet::new());
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            public.insert(rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        }
        if let Some(rest) = line.strip_prefix("impl ") {
            owner = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        }
        let line = line.trim();
        let method = line
            .strip_prefix("pub fn ")
            .and_then(|rest| rest.split_once("(&self"))
            .map(|(name, _)| name);
        let method = method.filter(|name| NAMES.contains(name));
        // `name, try_name, ..`
        let block = line.split_once(", try_").map(|(name, _)| name).filter(|name| is_word(name));
        let method = method.or(block.filter(|_| line.contains("_until(")));
        if let Some(method) = method.filter(|_| public.contains(owner)) {
            found.push(format!("{owner}.{method}"));
        }
    }
    found
}
