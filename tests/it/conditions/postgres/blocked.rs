//! Locks of the database that a session outside has, and its snapshots.

use super::*;
use crate::conditions::calls::second;
use crate::conditions::rows;
use crate::conditions::runner;

/// A stranger has locked the rows of all names; those that nobody has used yet get one before.
fn with_rows_locked(chooses: fn(&str) -> bool, passes: bool) -> OnPostgres {
    let stage = OnPostgres::stage(
        "max_connections = 100",
        move |stage, names| {
            for name in names.iter().flat_map(|name| [name.clone(), second(name)]) {
                let used = format!(
                    "SELECT leasehold_v1.acquire('{name}', 'another:1', 1, 0, 0) \
                     WHERE NOT EXISTS (SELECT FROM leasehold.lock WHERE name = '{name}')"
                );
                stage.sql(&used);
            }
            stage.sql("UPDATE leasehold.lock SET holder = NULL WHERE holder = 'another:1'");
            stage.a_stranger_begins(
                "SELECT FROM leasehold.lock WHERE name LIKE 'job-%' FOR UPDATE; \
                 SELECT FROM leasehold.share WHERE name LIKE 'job-%' FOR UPDATE",
            );
            if passes {
                let stranger = stage.strangers.pop().expect("it has begun");
                std::thread::spawn(move || {
                    std::thread::sleep(ms(1200));
                    drop(stranger);
                });
            }
        },
        |stage, _| stage.strangers_end(),
    );
    // Each call that waits for a row keeps a connection busy.
    OnPostgres { chooses, connections: 50, io: ms(3000), ..stage.sparing_others() }
}

/// Whether the call waits for what nobody has.
fn waits_for_a_lock(call: &str) -> bool {
    let verb = call.split("::").nth(1).expect("a verb");
    let waits = ["lock", "read", "write", "acquire"].iter().any(|take| verb.starts_with(take));
    (waits
        && !verb.ends_with(", waiting")
        && !verb.ends_with(", again")
        && !verb.starts_with("locks"))
        || verb.ends_with("_for")
        || verb.ends_with("_until")
}

fn is_owned(call: &str) -> bool {
    call.contains("owned") || call.contains("Owned")
}

/// A look needs no row for itself.
fn is_of_a_job(call: &str) -> bool {
    call.starts_with("ScheduledJob::")
}

fn rows_locked_answer(class: Class) -> Answers {
    if matches!(class, Class::Look | Class::List) { DONE } else { not_ready(class) }
}

/// By itself, so that there are fewer calls at once than connections.
#[test]
fn rows_locked_for_owned_guards() {
    let row = row("A stranger has locked the rows of the locks, and guards are owned", || {
        with_rows_locked(|call| !waits_for_a_lock(call) && is_owned(call), false)
    });
    runner::run(
        &row.failing(rows_locked_answer, &["the-stranger"]).named("rows_locked_for_owned_guards"),
    );
}

rows! {
    table_locked: row("A stranger has locked a table of the locks (`LOCK TABLE`)", || {
        OnPostgres::stage("", |stage, _| {
            stage.a_stranger_begins("LOCK TABLE leasehold.lock, leasehold.waiter, leasehold.done IN ACCESS EXCLUSIVE MODE");
        }, |stage, _| stage.strangers_end()).impatient()
    }).failing(not_ready, &["the-stranger"]);

    rows_locked: row("A stranger has locked the rows of the locks (`SELECT .. FOR UPDATE`)", || {
        // The rows of a job have other names.
        with_rows_locked(|call| !waits_for_a_lock(call) && !is_owned(call) && !is_of_a_job(call), false)
    }).failing(rows_locked_answer, &["the-stranger"]);

    rows_locked_for_a_moment: row("The same for a moment, and the call may wait for longer", || {
        with_rows_locked(waits_for_a_lock, true)
    });

    old_snapshot: row("A stranger has forgotten a transaction that has read and written", || {
        OnPostgres::stage("", |stage, _| {
            stage.a_stranger_begins("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
                                     SELECT count(*) FROM leasehold.lock; SELECT pg_current_xact_id()");
        }, |stage, _| stage.strangers_end())
    });
}
