//! A success that is recorded in the transaction that does the work, in PostgreSQL.

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient, Once};

use crate::rig::{Postgres, Server, ms, wait_until};
use crate::support::Clients;

/// Adds interest, and records that in the same transaction.
fn add_interest(
    server: &Postgres,
    client: &LockClient,
    in_the_middle: impl Fn(),
) -> Once<(), postgres::Error> {
    let job = client.once("interest", "2026-11").attempts(9);
    let outcome = job.run(|run| {
        let done = run.done_sql().unwrap();
        let mut db = server.connect();
        let mut transaction = db.transaction()?;
        transaction.execute("UPDATE account SET balance = balance + 1", &[])?;
        in_the_middle();
        let token = done.token().as_i64();
        transaction.execute(done.sql(), &[&done.name(), &done.occurrence(), &token])?;
        transaction.commit()
    });
    outcome.unwrap()
}

fn prepared() -> (Postgres, LockClient) {
    let server = Postgres::start();
    let client = LockClient::open(&server.url()).unwrap();
    server.run_sql(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint); INSERT INTO account VALUES (1, 0)",
    );
    (server, client)
}

fn balance(server: &Postgres) -> i64 {
    server.number_of("SELECT balance FROM account")
}

#[test]
fn work_and_record_are_committed_together() {
    let (server, client) = prepared();
    assert!(matches!(add_interest(&server, &client, || ()), Once::Done(())));
    assert!(matches!(add_interest(&server, &client, || ()), Once::AlreadyDone { .. }));
    assert_eq!(balance(&server), 1);
    drop(client);
    server.assert_clean();
}

/// The record is kept from the end of the run on, however long that was.
#[test]
fn a_committed_success_is_kept_as_long_as_any_other() {
    let (server, client) = prepared();
    let job = client.once("interest", "2026-11").keep(ms(3000));
    let outcome = job.run(|run| {
        let done = run.done_sql().unwrap();
        let token = done.token().as_i64();
        let values: [&(dyn postgres::types::ToSql + Sync); 3] =
            [&done.name(), &done.occurrence(), &token];
        server.connect().execute(done.sql(), &values).unwrap();
        let kept = "SELECT count(*) FROM leasehold.done WHERE ends > clock_timestamp()";
        wait_until("the time since its begin is over", || server.number_of(kept) == 0);
        Ok::<_, ()>(())
    });
    assert!(matches!(outcome.unwrap(), Once::Done(())));
    let again = job.run(|_| Ok::<_, ()>(())).unwrap();
    assert!(matches!(again, Once::AlreadyDone { .. }), "{again:?}");
    drop((job, client));
    server.assert_clean();
}

/// It commits, and its process dies before it can say so.
#[test]
fn a_committed_success_counts_although_nobody_reports_it() {
    let (server, client) = prepared();
    let job = client.once("interest", "2026-11");
    let outcome = job.run(|run| {
        let done = run.done_sql().unwrap();
        let token = done.token().as_i64();
        let values: [&(dyn postgres::types::ToSql + Sync); 3] =
            [&done.name(), &done.occurrence(), &token];
        server.connect().execute(done.sql(), &values).unwrap();
        // As if it had died: the lease is gone, and nothing says "done".
        assert!(client.once("interest", "any").force_out().unwrap());
        Err::<(), _>("dead")
    });
    assert!(matches!(outcome.unwrap(), Once::Failed("dead")));
    assert!(matches!(add_interest(&server, &client, || ()), Once::AlreadyDone { .. }));
    assert_eq!(balance(&server), 0);
}

/// The lease ends in the transaction, and another begins the same occurrence: the first commits
/// nothing.
#[test]
fn a_late_transaction_is_refused() {
    let (server, client) = prepared();
    let other = LockClient::open(&server.url()).unwrap();
    let outcome = add_interest(&server, &client, || {
        assert!(other.once("interest", "any").force_out().unwrap());
        // It must not wait for the row of the account, which is locked.
        let taken = other.once("interest", "2026-11").run(|_| Err::<(), _>(()));
        assert!(matches!(taken.unwrap(), Once::Failed(())));
    });
    let Once::Failed(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.code().map(|code| code.code()), Some(TransactionFence::STALE), "{error}");
    assert_eq!(balance(&server), 0);
    assert!(matches!(add_interest(&server, &client, || ()), Once::Done(())));
    assert_eq!(balance(&server), 1);
}

#[test]
fn no_other_store_has_such_a_statement() {
    let server = Server::start();
    for client in [server.client(), LockClient::in_memory()] {
        let job = client.once("job", "1");
        let outcome = job.run(|run| Ok::<_, ()>(run.done_sql().unwrap_err().kind()));
        assert!(matches!(outcome.unwrap(), Once::Done(ErrorKind::Unsupported)));
    }
}
