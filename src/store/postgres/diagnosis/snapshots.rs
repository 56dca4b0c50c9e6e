//! Who keeps the old versions of rows in the database: each take and give back of a lock leaves
//! two, and every look at that lock passes those that may not be removed.

use std::time::Duration;

use crate::report::diagnosis::{Check, Finding};
use crate::store::postgres::wire::Row;

/// The worst of the sessions, prepared transactions and slots that the server keeps old versions
/// for: what it is, its id, its role, application, state, for how many seconds, since how many
/// transactions. Without rights the role sees no time, and a slot and a walsender have none.
///
/// Not sessions of other databases that only read, and not a vacuum: nothing is kept for them. One
/// that has written counts in every database, because each snapshot reaches back to it. The
/// `catalog_xmin` of a slot concerns only the catalogs.
pub(super) const OLDEST_SNAPSHOT: &str = "\
    SELECT * FROM ( \
      SELECT 'session' AS what, pid::text AS id, usename::text AS role, application_name AS application, state, \
        extract(epoch FROM clock_timestamp() - xact_start)::bigint AS seconds, \
        greatest(age(backend_xmin), age(backend_xid))::bigint AS transactions FROM pg_stat_activity \
        WHERE pid <> pg_backend_pid() AND backend_type IS DISTINCT FROM 'autovacuum worker' \
          AND (backend_xid IS NOT NULL \
            OR (backend_xmin IS NOT NULL AND coalesce(datname = current_database(), true))) \
          AND pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v) \
      UNION ALL SELECT 'prepared transaction', gid, owner::text, NULL, NULL, \
        extract(epoch FROM clock_timestamp() - prepared)::bigint, age(transaction)::bigint \
        FROM pg_prepared_xacts \
      UNION ALL SELECT 'replication slot', slot_name::text, NULL, NULL, \
        CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, age(xmin)::bigint \
        FROM pg_replication_slots WHERE xmin IS NOT NULL) a \
    ORDER BY seconds >= 300 DESC NULLS LAST, transactions DESC, seconds DESC NULLS LAST LIMIT 1";

/// What is older than this is a finding. A backup or a report may take as long.
const LONG: Duration = Duration::from_secs(300);

/// And so is what this many transactions have followed: a lock that all of them have taken and
/// given back costs several milliseconds then.
const MANY: u64 = 100_000;

/// `oldest`: the answer to [`OLDEST_SNAPSHOT`].
pub(super) fn about_snapshots(oldest: Option<&Row>) -> Finding {
    let text = |place: usize| oldest?.get(place)?.as_deref();
    let number = |place: usize| text(place)?.parse::<u64>().ok();
    let age = number(5).map(Duration::from_secs);
    let transactions = number(6).unwrap_or(0);
    if age.is_none_or(|age| age < LONG) && transactions < MANY {
        return Finding::ok(
            Check::Transactions,
            "no transaction keeps old versions of rows for long",
        );
    }
    let what = text(0).unwrap_or_default();
    let id = text(1).unwrap_or_default();
    let (named, advice) = match what {
        "session" => {
            (format!("the session {id}"), format!("end it: SELECT pg_terminate_backend({id})"))
        }
        "prepared transaction" => (
            format!("the prepared transaction {id:?}"),
            format!("COMMIT PREPARED '{id}' or ROLLBACK PREPARED '{id}'"),
        ),
        _ => (
            format!("the replication slot {id:?}"),
            format!(
                "bring its standby back, end the long queries there or turn hot_standby_feedback off, or \
                 SELECT pg_drop_replication_slot('{id}')"
            ),
        ),
    };
    let details = [("role", 2), ("application", 3), ("state", 4)];
    let details = details
        .iter()
        .filter_map(|&(what, place)| Some((what, text(place).filter(|it| !it.is_empty())?)));
    let details: Vec<String> = details.map(|(what, is)| format!("{what} {is:?}")).collect();
    let details =
        if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
    let minutes =
        age.map_or_else(String::new, |age| format!("{} minutes and ", age.as_secs() / 60));
    Finding::warning(
        Check::Transactions,
        format!(
            "{named}{details} has kept the old versions of all rows for {minutes}{transactions} transactions: \
             locks that are taken often become slower until it ends"
        ),
    )
    .advise(format!("{advice}; idle_in_transaction_session_timeout ends sessions that idle"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::diagnosis::Severity;

    fn judged(what: &str, seconds: Option<u64>, transactions: u64) -> Finding {
        let text = |text: &str| Some(text.to_owned());
        let seconds = seconds.map(|seconds| seconds.to_string());
        let row = [text(what), text("7"), text("app"), None, text("idle in transaction"), seconds];
        about_snapshots(Some(&row.into_iter().chain([Some(transactions.to_string())]).collect()))
    }

    #[test]
    fn what_is_old_or_was_followed_by_many_is_a_warning() {
        assert_eq!(about_snapshots(None).severity(), Severity::Ok);
        assert_eq!(judged("session", Some(299), 99_999).severity(), Severity::Ok);
        assert_eq!(
            judged("session", None, 99_999).severity(),
            Severity::Ok,
            "no right to see since when"
        );
        for finding in [judged("session", Some(300), 1), judged("replication slot", None, 100_000)]
        {
            assert_eq!(finding.severity(), Severity::Warning, "{finding:?}");
        }
        let prepared = judged("prepared transaction", Some(3600), 5);
        assert!(
            prepared.advice().unwrap().to_string().contains("ROLLBACK PREPARED '7'"),
            "{prepared:?}"
        );
    }
}
