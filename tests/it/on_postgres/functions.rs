//! Every function may run twice: in each state of its row the second run answers as the first, or
//! says that it has been done, and changes nothing more.

use super::server;
use crate::rig::Postgres;

/// What a function answers, and what it leaves: without times and tokens.
fn run(db: &mut postgres::Client, sql: &str) -> String {
    db.query_one(&format!("SELECT ({sql})::text"), &[]).unwrap().get(0)
}

fn picture(db: &mut postgres::Client) -> Vec<String> {
    let sql = "SELECT 'lock ' || concat_ws(' ', name, kind, coalesce(holder, '-'), level, ends > clock_timestamp(), number, bars) FROM leasehold.lock \
               UNION ALL SELECT 'share ' || concat_ws(' ', name, holder, level, ends > clock_timestamp()) FROM leasehold.share \
               UNION ALL SELECT 'waiter ' || concat_ws(' ', name, holder) FROM leasehold.waiter ORDER BY 1";
    db.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// The states in which a name can be: how each is made.
const STATES: [(&str, &str); 12] = [
    ("nothing", ""),
    ("held by me", "SELECT leasehold_v1.acquire('k', 'me', 60000, 0, 0, null)"),
    (
        "held by me twice",
        "SELECT leasehold_v1.acquire('k', 'me', 60000, 0, 0, null); SELECT leasehold_v1.acquire('k', 'me', 60000, 1, 0, null)",
    ),
    ("held by another", "SELECT leasehold_v1.acquire('k', 'other', 60000, 0, 0, null)"),
    (
        "expired",
        "SELECT leasehold_v1.acquire('k', 'other', 60000, 0, 0, null); UPDATE leasehold.lock SET ends = now() - interval '1 s'",
    ),
    (
        "at rest",
        "SELECT leasehold_v1.acquire('k', 'other', 60000, 0, 0, null); SELECT leasehold_v1.release('k', 'other', 0, '')",
    ),
    (
        "queued",
        "SELECT leasehold_v1.acquire('k', 'other', 60000, 0, 0, null); SELECT leasehold_v1.fair_acquire('k', 'me', 60000, 0, 5000, 0, 'c', null)",
    ),
    ("written", "SELECT leasehold_v1.write_acquire('k', 'me', 60000, 0, 0, null)"),
    (
        "read by me and another",
        "SELECT leasehold_v1.read_acquire('k', 'me', 60000, 0, 0, null); SELECT leasehold_v1.read_acquire('k', 'other', 60000, 0, 0, null)",
    ),
    (
        "permits",
        "SELECT leasehold_v1.count('k', 's', 'begin', 3, 'i', 60000, 0, '', null); SELECT leasehold_v1.permit_acquire('k', 'other', 2, 60000, 0, null)",
    ),
    (
        "counting",
        "SELECT leasehold_v1.count('k', 'c', 'begin', 3, 'i', 60000, 0, '', null); SELECT leasehold_v1.count('k', 'c', 'take', 2, 'other', 60000, 0, '', null)",
    ),
    ("a latch", "SELECT leasehold_v1.count('k', 'l', 'begin', 2, 'i', 60000, 0, '', null)"),
];

/// Each with what its second run may answer instead of the first answer.
const CALLS: [(&str, &[&str]); 24] = [
    ("leasehold_v1.acquire('k', 'me', 60000, 0, 0, null)", &[]),
    ("leasehold_v1.acquire('k', 'me', 60000, 0, 20000, null)", &[]),
    ("leasehold_v1.acquire('k', 'me', 60000, 1, 0, null)", &[]),
    ("leasehold_v1.acquire_now('k', 'me', 60000, 0, 20000, null)", &[]),
    ("leasehold_v1.release('k', 'me', 0, 'w')", &["0"]),
    ("leasehold_v1.release('k', 'me', 1, 'w')", &[]),
    ("leasehold_v1.renew('{k,k}', '{me,other}', '{60000,0}')", &[]),
    ("leasehold_v1.fair_acquire('k', 'me', 60000, 0, 5000, 0, 'c', null)", &[]),
    ("leasehold_v1.fair_acquire('k', 'me', 60000, 0, 0, 0, 'c', null)", &[]),
    ("leasehold_v1.fair_release('k', 'me', 0, 0, 'w')", &["0"]),
    ("leasehold_v1.multi_acquire('{j,k}', '{me,me}', '{0,0}', 60000, 0, true, null)", &[]),
    ("leasehold_v1.multi_release('{j,k}', '{me,me}', '{0,0}', '{w,w}')", &["{0,0}"]),
    ("leasehold_v1.read_acquire('k', 'me', 60000, 0, 20000, null)", &[]),
    ("leasehold_v1.read_acquire('k', 'me', 60000, 1, 0, null)", &[]),
    ("leasehold_v1.write_acquire('k', 'me', 60000, 0, 5000, null)", &[]),
    ("leasehold_v1.rw_release('k', 'me', 0, 0, 'w')", &["0"]),
    ("leasehold_v1.rw_release('k', 'me', 0, 1, 'w')", &["1"]),
    ("leasehold_v1.permit_acquire('k', 'me', 1, 60000, 20000, null)", &[]),
    ("leasehold_v1.permit_release('k', 'other', 'w')", &["0"]),
    ("leasehold_v1.count('k', 'c', 'take', 1, 'me', 60000, 20000, 'w', null)", &[]),
    ("leasehold_v1.count('k', 'c', 'return', 2, 'other', 60000, 0, 'w', null)", &["0"]),
    ("leasehold_v1.count('k', 'c', 'back', 2, 'other', 60000, 0, 'w', null)", &["0"]),
    ("leasehold_v1.count('k', 'l', 'down', 1, 'n', 60000, 0, 'w', null)", &[]),
    ("leasehold_v1.count('k', 's', 'add', -1, 'n', 60000, 0, 'w', null)", &[]),
];

/// The first number of an answer.
fn status(answer: &str) -> &str {
    answer.trim_start_matches('(').split([',', ')']).next().unwrap()
}

#[test]
fn each_function_may_run_twice_in_every_state() {
    let server: Postgres = server!();
    server.run_sql(leasehold::POSTGRES_SCHEMA);
    let mut db = server.connect();
    for (state, make) in STATES {
        for (call, or) in CALLS {
            let empty = "DELETE FROM leasehold.lock; DELETE FROM leasehold.share; DELETE FROM leasehold.waiter; DELETE FROM leasehold.once;";
            db.batch_execute(&format!("{empty} {make}")).unwrap();
            let first = run(&mut db, call);
            let after = picture(&mut db);
            let second = run(&mut db, call);
            let what = format!("{call}, {state}: {first}, then {second}");
            let (one, two) =
                if first.starts_with('{') { (&*first, &*second) } else { (status(&first), status(&second)) };
            assert!(one == two || or.contains(&two), "{what}");
            assert_eq!(picture(&mut db), after, "{what}");
        }
    }
}

/// What a late request must not do: each is refused behind its not-after, and takes nothing.
#[test]
fn late_requests_take_nothing() {
    let server = server!();
    server.run_sql(leasehold::POSTGRES_SCHEMA);
    let mut db = server.connect();
    let calls =
        CALLS.iter().map(|(call, _)| call).filter(|call| call.contains("me', 60000, 0") && call.contains(", null)"));
    for call in calls.filter(|call| !call.contains("count")) {
        let late = call.replace(", null)", ", now() - interval '1 s')");
        db.batch_execute("DELETE FROM leasehold.lock; DELETE FROM leasehold.share").unwrap();
        assert_eq!(status(&run(&mut db, &late)), "3", "{late}");
        assert!(server.held().is_empty(), "{late}");
    }
}
