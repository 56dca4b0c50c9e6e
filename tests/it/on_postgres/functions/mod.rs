//! Every function may run twice: in each state of its row the second run returns the same result as
//! the first, or reports that it has been done, and changes nothing more.

mod tables;

use self::tables::{STATES, Then, calls};
use super::server;

/// Empties all tables, so that only the rows of the test exist.
const EMPTY: &str = "DELETE FROM leasehold.lock; DELETE FROM leasehold.share; DELETE FROM leasehold.waiter; \
                     DELETE FROM leasehold.once; DELETE FROM leasehold.fenced;";

/// Expands the abbreviations used in the tables.
fn expand(sql: &str) -> String {
    let end = |table: &str| {
        format!("UPDATE leasehold.{table} SET ends = now() - interval '1 s' WHERE ends > now()")
    };
    let dead =
        "UPDATE leasehold.waiter SET deadline = now() - interval '1 s' WHERE holder = 'third'";
    let sql =
        sql.replace("$end", &format!("{}; {}", end("lock"), end("share"))).replace("$dead", dead);
    let calls: Vec<String> = sql
        .split("; ")
        .map(|one| match one.strip_prefix('$') {
            Some(call) => format!("SELECT (leasehold_v1.{call})::text"),
            None => one.to_owned(),
        })
        .collect();
    calls.join("; ")
}

/// The result of a call; for an error its SQLSTATE.
fn run<S: ?Sized + postgres::ToStatement>(db: &mut postgres::Client, sql: &S) -> String {
    match db.query_one(sql, &[]) {
        Ok(row) => row.get::<_, Option<String>>(0).unwrap_or_default(),
        Err(error) => error.code().unwrap_or_else(|| panic!("{error}")).code().to_owned(),
    }
}

/// All rows without the values that may differ from run to run (times and tokens), and the token.
const PICTURE: &str = "SELECT 'lock ' || concat_ws(' ', name, kind, coalesce(holder, '-'), level, \
                   ends > clock_timestamp() + interval '45 s', ends > clock_timestamp() + interval '75 s', \
                   number, wants, tokens, barred > clock_timestamp(), bars), \
                   CASE name WHEN 'k' THEN token END FROM leasehold.lock \
               UNION ALL SELECT 'share ' || concat_ws(' ', name, holder, level, \
                   ends > clock_timestamp() + interval '45 s', ends > clock_timestamp() + interval '75 s'), NULL \
                   FROM leasehold.share \
               UNION ALL SELECT 'waiter ' || concat_ws(' ', name, place, holder, wake, deadline > clock_timestamp()), NULL \
                   FROM leasehold.waiter \
               UNION ALL SELECT 'once ' || concat_ws(' ', id, status, value, ends > clock_timestamp()), NULL \
                   FROM leasehold.once \
               UNION ALL SELECT 'fenced ' || name, NULL FROM leasehold.fenced ORDER BY 1";

fn picture(db: &mut postgres::Client, prepared: &postgres::Statement) -> (Vec<String>, i64) {
    let rows = db.query(prepared, &[]).unwrap();
    let token = rows.iter().filter_map(|row| row.get::<_, Option<i64>>(1)).max();
    (rows.iter().map(|row| row.get(0)).collect(), token.unwrap_or(0))
}

/// The first value of a result; of an array, the last.
fn status(answer: &str) -> &str {
    match answer.strip_prefix('{') {
        Some(array) => array.trim_end_matches('}').rsplit(',').next().unwrap(),
        None => answer.trim_start_matches('(').split([',', ')']).next().unwrap(),
    }
}

/// One character for a result.
fn sign(answer: &str) -> char {
    status(answer).chars().next().unwrap_or('.')
}

#[test]
fn each_function_may_run_twice_in_every_state() {
    let server = server!();
    let mut db = server.connect();
    // The many errors are expected results.
    db.batch_execute("SET log_min_messages = fatal; SET synchronous_commit = off").unwrap();
    let all = db.prepare(PICTURE).unwrap();
    let mut differ = String::new();
    for (call, then, wanted) in calls() {
        let sql = db.prepare(&expand(&call)).unwrap();
        let mut signs = String::new();
        for (state, make) in STATES {
            db.batch_execute(&format!("{EMPTY} {}", expand(make))).unwrap();
            let (_, before) = picture(&mut db, &all);
            let first = run(&mut db, &sql);
            let (after, between) = picture(&mut db, &all);
            let second = run(&mut db, &sql);
            let what = format!("{call}, {state}: {first}, then {second}");
            signs.push(sign(&first));
            // No waiter could keep its entry there, so none lost it by that: the first to ask again
            // has a live entry from then on, and goes first with its next attempt.
            if *state == "free, all are dead"
                && first.starts_with("(0,1,")
                && call.contains(", 60000, 0, 'c')")
            {
                assert_eq!(status(&second), "1", "{what}");
                continue;
            }
            let as_it_must = match then {
                Then::Same => first == second,
                Then::AsBefore => status(&first) == status(&second),
                Then::Done(done) => first == second || second == done,
            };
            assert!(as_it_must, "{what}");
            let (again, last) = picture(&mut db, &all);
            assert_eq!(again, after, "{what}");
            // Unless it was swept.
            assert!(last == 0 || (before <= between && between <= last), "{what}");
        }
        if signs != wanted {
            differ += &format!("{call}\n  {signs}\n  {wanted}\n");
        }
    }
    assert!(
        differ.is_empty(),
        "the results of these calls differ; the second line is the table's:\n{differ}"
    );
}

/// Each token of a grant with several tokens can be fenced like the grant, and none before or after
/// them.
#[test]
fn each_token_of_a_grant_is_fenced() {
    let server = server!();
    let mut db = server.connect();
    for waits in [true, false] {
        let sql =
            format!("SELECT value FROM leasehold_v1.acquire('k', 'me', 60000, 0, 0, 5, {waits})");
        let first: i64 = db.query_one(&sql, &[]).unwrap().get(0);
        for fence in ["fence", "fence_at_commit"] {
            let sql = format!("SELECT leasehold_v1.{fence}('k', $1)");
            let mut holds = |token: i64| db.execute(&sql, &[&token]).is_ok();
            let fenced: Vec<bool> = (-1..=5).map(|more| holds(first + more)).collect();
            assert_eq!(fenced, [false, true, true, true, true, true, false], "{waits}, {fence}");
        }
        // One more level belongs to the same grant.
        db.execute("SELECT leasehold_v1.acquire('k', 'me', 60000, 1, 0)", &[]).unwrap();
        db.execute("SELECT leasehold_v1.fence('k', $1)", &[&(first + 4)]).unwrap();
        let sql = "SELECT value FROM leasehold_v1.acquire('k', 'me', 60000, 0, 0)";
        let next: i64 = db.query_one(sql, &[]).unwrap().get(0);
        assert!(next > first + 4, "{waits}: no token is issued twice");
        assert!(db.execute("SELECT leasehold_v1.fence('k', $1)", &[&(first + 4)]).is_err());
    }
}

/// A crash must not forget that a lock stays taken, whatever was freed with it.
#[test]
fn a_release_is_synchronous_if_a_lock_stays_taken() {
    let server = server!();
    let mut db = server.connect();
    for (kept, synchronous) in [("0,0", "off"), ("0,30000", "on"), ("30000,0", "on")] {
        for name in ["j", "k"] {
            let sql = format!("SELECT leasehold_v1.acquire('{name}', 'me', 60000, 0, 0)");
            db.execute(&sql, &[]).unwrap();
        }
        let mut transaction = db.transaction().unwrap();
        let sql = format!(
            "SELECT leasehold_v1.multi_release('{{j,k}}', '{{me,me}}', '{{0,0}}', '{{{kept}}}', '{{w,w}}')"
        );
        transaction.execute(&sql, &[]).unwrap();
        let commit = transaction.query_one("SHOW synchronous_commit", &[]).unwrap();
        assert_eq!(commit.get::<_, String>(0), synchronous, "{kept}");
        transaction.rollback().unwrap();
    }
    db.execute("DELETE FROM leasehold.lock", &[]).unwrap();
}
