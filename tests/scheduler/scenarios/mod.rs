//! What is run, each with two to four threads.

mod exclusive;

use std::time::Duration;

use crate::stage::SOON;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    /// By the clock of the execution.
    pub(crate) limit: Duration,
}

const fn soon(name: &'static str, run: fn()) -> Scenario {
    Scenario { name, run, limit: SOON }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    soon("one_name", exclusive::one_name),
    soon("two_clients", exclusive::two_clients),
    soon("rounds", exclusive::rounds),
];
