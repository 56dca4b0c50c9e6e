//! The scenarios, each with two to four threads.

mod data;
mod elections;
mod ending;
mod exclusive;
mod fair;
mod faults;
mod foreign_code;
mod jobs;
mod keepers;
mod losses;
mod multi;
mod permits;
mod pool;
mod rates;
mod redlock;
mod shared;

use std::time::Duration;

use crate::stage::SOON;

pub(crate) use self::foreign_code::{install_logger, logger_panics};

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    /// The time limit by the clock of the execution.
    pub(crate) limit: Duration,
}

const fn within(seconds: u64, name: &'static str, run: fn()) -> Scenario {
    Scenario { name, run, limit: Duration::from_secs(seconds) }
}

const fn soon(name: &'static str, run: fn()) -> Scenario {
    Scenario { name, run, limit: SOON }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    soon("exclusive::one_name", exclusive::one_name),
    soon("exclusive::two_clients", exclusive::two_clients),
    soon("exclusive::rounds", exclusive::rounds),
    soon("exclusive::deadlines", exclusive::deadlines),
    soon("exclusive::same_deadline", exclusive::same_deadline),
    soon("exclusive::re_entry", exclusive::re_entry),
    soon("exclusive::owned", exclusive::owned),
    soon("exclusive::panics_in_a_section", exclusive::panics_in_a_section),
    soon("exclusive::min_hold", exclusive::min_hold),
    soon("exclusive::shares", exclusive::shares),
    within(20, "exclusive::shares_with_the_deaf", exclusive::shares_with_the_deaf),
    soon("ending::cancel", ending::cancel),
    soon("ending::cancel_at_a_hand_over", ending::cancel_at_a_hand_over),
    soon("ending::close", ending::close),
    soon("ending::close_twice", ending::close_twice),
    soon("ending::stop_waiting", ending::stop_waiting),
    soon("ending::thread_exit", ending::thread_exit),
    soon("ending::last_handle", ending::last_handle),
    soon("keepers::times_out", keepers::times_out),
    soon("keepers::is_closed", keepers::is_closed),
    soon("keepers::waits_no_more", keepers::waits_no_more),
    soon("keepers::is_forced", keepers::is_forced),
    soon("shared::readers_of_one", shared::readers_of_one),
    soon("shared::readers_of_two", shared::readers_of_two),
    soon("shared::nobody_passes_a_writer", shared::nobody_passes_a_writer),
    soon("shared::downgrade", shared::downgrade),
    soon("shared::owned_readers", shared::owned_readers),
    within(2, "shared::cancelled_as_it_joins", shared::cancelled_as_it_joins),
    soon("shared::answered_before_it_listens", shared::answered_before_it_listens),
    soon("permits::semaphore", permits::semaphore),
    soon("permits::counting", permits::counting),
    soon("permits::added", permits::added),
    soon("permits::closed_as_they_are_given_back", permits::closed_as_they_are_given_back),
    soon("permits::latch", permits::latch),
    soon("data::each_has_its_own", data::each_has_its_own),
    within(20, "data::replaced_by_two", data::replaced_by_two),
    within(20, "data::lost_replies", data::lost_replies),
    within(20, "elections::follow_each_other", elections::follow_each_other),
    soon("elections::ends_of_terms", elections::ends_of_terms),
    within(65, "elections::after_an_outage", elections::after_an_outage),
    soon("rates::paced", rates::paced),
    soon("rates::set_anew", rates::set_anew),
    within(20, "rates::lost_replies", rates::lost_replies),
    within(20, "jobs::once_each", jobs::once_each),
    within(20, "jobs::losses", jobs::losses),
    within(60, "jobs::lost_replies", jobs::lost_replies),
    soon("fair::order", fair::order),
    soon("fair::gives_up", fair::gives_up),
    within(20, "fair::granted_late", fair::granted_late),
    soon("fair::given_within_its_client", fair::given_within_its_client),
    soon("multi::several", multi::several),
    soon("multi::beside_a_hand_over", multi::beside_a_hand_over),
    within(20, "faults::lost_replies", faults::lost_replies),
    within(20, "faults::lost_replies_of_readers", faults::lost_replies_of_readers),
    within(20, "faults::lost_replies_in_a_queue", faults::lost_replies_in_a_queue),
    within(20, "faults::unconfirmed", faults::unconfirmed),
    within(20, "faults::cut", faults::cut),
    within(20, "faults::cut_from_waiters", faults::cut_from_waiters),
    within(20, "faults::unheard", faults::unheard),
    within(5, "losses::forced_by_its_client", losses::forced_by_its_client),
    within(5, "losses::forced_by_another", losses::forced_by_another),
    within(5, "losses::suspended", losses::suspended),
    within(5, "losses::fixed_leases", losses::fixed_leases),
    within(5, "losses::renewed", losses::renewed),
    within(5, "losses::passed_on_in_an_outage", losses::passed_on_in_an_outage),
    within(5, "losses::callbacks", losses::callbacks),
    within(5, "losses::lost_reads", losses::lost_reads),
    within(5, "losses::its_guard_lives", losses::its_guard_lives),
    within(100, "losses::its_max_hold_is_over", losses::its_max_hold_is_over),
    within(20, "losses::counted", losses::counted),
    within(20, "foreign_code::panicking_logger", foreign_code::panicking_logger),
    soon("foreign_code::panicking_listener", foreign_code::panicking_listener),
    soon("foreign_code::slow_listener", foreign_code::slow_listener),
    within(70, "foreign_code::blocking_listener", foreign_code::blocking_listener),
    soon("pool::few_connections", pool::few_connections),
    soon("pool::ended", pool::ended),
    soon("pool::cut_once", pool::cut_once),
    soon("pool::answered_twice", pool::answered_twice),
    soon("pool::answered_twice_beside_a_refusal", pool::answered_twice_beside_a_refusal),
    soon("pool::connect_panics", pool::connect_panics),
    within(20, "pool::connects_late", pool::connects_late),
    within(20, "pool::refused", pool::refused),
    within(20, "pool::lost_replies", pool::lost_replies),
    within(20, "pool::without_kills", pool::without_kills),
    within(20, "pool::closed_while_waiting", pool::closed_while_waiting),
    within(15, "redlock::one_is_late", redlock::one_is_late),
    within(15, "redlock::refused_late", redlock::refused_late),
    within(15, "redlock::lost_replies", redlock::lost_replies),
    within(15, "redlock::all_are_late", redlock::all_are_late),
    within(15, "redlock::renewed", redlock::renewed),
    within(15, "redlock::restarted", redlock::restarted),
];
