//! Every call under every condition, beside a bystander. A condition is a row and a call is a column;
//! what is written by hand is only how a condition is staged, and what must be true in its cells:
//!
//! - a call ends within the time that its documentation gives, with an answer that the row allows, and an
//!   error names the condition;
//! - when the condition is over nothing is left: keys, connections, entries of the client's tables;
//! - a hold and the calls of a bystander are not affected;
//! - the client never has more connections than its rule says.
//!
//! What a condition does to the whole process has a process of its own ([`row::Row::alone`]).
//!
//! One row is one test: `cargo test --all-features --test it -- conditions::redis::suspended`. One column, or
//! one cell: the same with `LEASEHOLD_CALL=ReentrantMutex::lock`. The tables of the last run are in
//! `target/tmp/conditions/`.

mod calls;
mod cell;
mod cluster;
mod columns;
mod mysql;
mod page;
mod postgres;
mod redis;
mod redlock;
mod row;
mod runner;
mod sentinel;
mod zookeeper;

/// A test for each row, and the list of them.
macro_rules! rows {
    ($($(#[$attribute:meta])* $name:ident: $row:expr;)*) => {
        $($(#[$attribute])* #[test]
        fn $name() {
            $crate::conditions::runner::run(&$row.named(stringify!($name)));
        })*

        /// In the order of the guide.
        pub(in crate::conditions) fn rows() -> Vec<$crate::conditions::row::Row> {
            vec![$($row.named(stringify!($name)),)*]
        }
    };
}

use rows;

/// The sections of the guide's page, each with its rows.
fn deployments() -> Vec<(&'static str, Vec<row::Row>)> {
    vec![
        ("One Redis", redis::rows()),
        ("Redlock", redlock::rows()),
        ("Sentinels", sentinel::rows()),
        ("Cluster", cluster::rows()),
        ("PostgreSQL", postgres::rows()),
        ("MySQL", mysql::rows()),
        ("ZooKeeper", zookeeper::rows()),
    ]
}
