//! The lines of the log.
//!
//! A logger is code of the user, like a listener: if it panics, nothing here may change, whichever
//! thread writes the line and in whichever step. So each line of this crate is written by these
//! macros, which catch that, and none by those of the crate `log` (`tests/it/tidy` checks it).

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use ::log::Level;

/// Calls the logger. The hook for panics has reported its panic, which ends here.
pub(crate) fn without_panics<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Whether the logger wants the lines of this level.
pub(crate) fn wants(level: Level) -> bool {
    level <= ::log::max_level()
        && without_panics(|| ::log::log_enabled!(target: "leasehold", level)) == Some(true)
}

macro_rules! line {
    ($level:expr, $($arg:tt)+) => {
        if $level <= ::log::max_level() {
            $crate::base::log::without_panics(|| ::log::log!($level, $($arg)+));
        }
    };
}

macro_rules! warn_line {
    ($($arg:tt)+) => { $crate::base::log::line!($crate::base::log::Level::Warn, $($arg)+) };
}

macro_rules! info_line {
    ($($arg:tt)+) => { $crate::base::log::line!($crate::base::log::Level::Info, $($arg)+) };
}

macro_rules! debug_line {
    ($($arg:tt)+) => { $crate::base::log::line!($crate::base::log::Level::Debug, $($arg)+) };
}

pub(crate) use {debug_line as debug, info_line as info, line, warn_line as warn};
