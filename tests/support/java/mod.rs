//! What the tests with Redisson and those with Curator share: a Java process, players of both
//! sides, which take turns on a counter, and a candidate of ours. Each suite has a `stress::builder` for its clients, and
//! `stress::OUTAGES`.

mod candidate;
mod contest;
mod counter;
mod jvm;
mod players;

pub(crate) use candidate::{Candidate, is_java, is_ours, watch_until};
pub(crate) use contest::{
    Javas, THREADS, compete, is_long, judge, length, play_for_a_while, set_up,
};
pub(crate) use counter::{Counter, Mode, Tally};
pub(crate) use jvm::{JavaThread, Jvm};
pub(crate) use players::{Process, RESTARTED, play, rounds};
