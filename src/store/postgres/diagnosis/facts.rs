//! What a server reports about itself, and what that means for locks.

use crate::report::diagnosis::{Check, Finding};
use crate::store::postgres::wire::{OLDEST, Row, is_installed};

pub(super) const FACTS: &str = concat!(
    "SELECT pg_backend_pid(), current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('synchronous_commit'), \
    current_setting('fsync'), current_setting('max_connections'), \
    current_setting('superuser_reserved_connections'), \
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
    ",
    is_installed!(),
    ", (SELECT bool_and(CASE WHEN to_regnamespace(name) IS NULL THEN has_database_privilege(current_database(), 'CREATE') \
        ELSE has_schema_privilege(to_regnamespace(name)::oid, 'CREATE') END) \
      FROM (VALUES ('leasehold'), ('leasehold_v1')) s (name)), current_setting('synchronous_standby_names'), \
    (SELECT count(*) FROM pg_stat_replication), has_function_privilege('pg_control_system()', 'EXECUTE'), current_user"
);

/// The answer to [`FACTS`].
pub(super) struct DatabaseFacts {
    pub(super) pid: i32,
    pub(super) version: u32,
    pub(super) version_text: String,
    pub(super) in_recovery: bool,
    pub(super) read_only: bool,
    pub(super) synchronous_commit: String,
    pub(super) fsync: bool,
    pub(super) most_connections: u64,
    pub(super) reserved: u64,
    pub(super) connections: u64,
    pub(super) has_schema: bool,
    /// Whether the role may install the schema: make both, or fill those that there are.
    pub(super) may_create: bool,
    pub(super) synchronous_standbys: bool,
    pub(super) standbys: u64,
    pub(super) may_ask_control: bool,
    pub(super) role: String,
}

impl DatabaseFacts {
    pub(super) fn read(row: &Row) -> Option<Self> {
        let text = |place: usize| row.get(place)?.as_deref();
        Some(Self {
            pid: text(0)?.parse().ok()?,
            version: text(1)?.parse().ok()?,
            version_text: text(2)?.to_owned(),
            in_recovery: text(3)? == "t",
            read_only: text(4)? == "on",
            synchronous_commit: text(5)?.to_owned(),
            fsync: text(6)? == "on",
            most_connections: text(7)?.parse().ok()?,
            reserved: text(8)?.parse().ok()?,
            connections: text(9)?.parse().ok()?,
            has_schema: text(10)? == "t",
            may_create: text(11)? == "t",
            synchronous_standbys: !text(12)?.is_empty(),
            standbys: text(13)?.parse().ok()?,
            may_ask_control: text(14)? == "t",
            role: text(15)?.to_owned(),
        })
    }
}

/// `pid`: the one that the start of the connection reported. `single`: the URL has one host.
/// `wanted`: the maximum number of connections of a client.
pub(super) fn about_server(
    facts: &DatabaseFacts,
    pid: i32,
    single: bool,
    wanted: u64,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let product = format!("PostgreSQL {}", facts.version_text);
    findings.push(if facts.version >= OLDEST {
        Finding::ok(Check::Version, product)
    } else {
        Finding::problem(Check::Version, format!("{product} is too old")).advise("use 14 or later")
    });
    findings.push(if facts.pid == pid {
        Finding::ok(Check::Pooler, "no pooler gives each transaction another backend")
    } else {
        Finding::problem(
            Check::Pooler,
            "a pooler gives each transaction another backend: messages would be lost",
        )
        .advise("name the server itself in the URL")
    });
    findings.push(role(facts, single));
    let free =
        facts.most_connections.saturating_sub(facts.reserved).saturating_sub(facts.connections);
    let found =
        format!("{} of {} connections are in use", facts.connections, facts.most_connections);
    findings.push(if free < wanted {
        Finding::warning(Check::Connections, format!("{found}; a client has up to {wanted}"))
            .advise("raise max_connections, or let each client have fewer connections")
    } else {
        Finding::ok(Check::Connections, found)
    });
    if !facts.in_recovery {
        findings.push(persistence(facts));
        findings.push(replication(facts));
    }
    findings
}

fn role(facts: &DatabaseFacts, single: bool) -> Finding {
    if facts.in_recovery && single {
        Finding::problem(Check::Role, "the server is a standby, and takes no writes")
            .advise("name the primary, or all hosts, in the URL")
    } else if facts.in_recovery {
        Finding::ok(Check::Role, "a standby, which takes over when it is promoted")
    } else if facts.read_only {
        Finding::problem(Check::Role, "the database is read-only (default_transaction_read_only)")
            .advise("turn it off for the database or the role, or name another database")
    } else {
        Finding::ok(Check::Role, "a primary")
    }
}

fn persistence(facts: &DatabaseFacts) -> Finding {
    if !facts.fsync {
        return Finding::warning(
            Check::Persistence,
            "fsync is off: a crash of the machine can destroy the database",
        )
        .advise("turn fsync on");
    }
    let value = &facts.synchronous_commit;
    if value == "off" {
        let found = "synchronous_commit is off: a crash forgets the last grants";
        return Finding::warning(Check::Persistence, found).advise(
            "set synchronous_commit to on for this role: ALTER ROLE .. SET synchronous_commit = on",
        );
    }
    Finding::ok(Check::Persistence, format!("each grant is on disk (synchronous_commit {value})"))
}

fn replication(facts: &DatabaseFacts) -> Finding {
    let waits =
        facts.synchronous_standbys && !matches!(&*facts.synchronous_commit, "off" | "local");
    match facts.standbys {
        0 if waits => {
            let found = "no standby is connected, and each grant waits for one";
            Finding::problem(Check::Replication, found)
                .advise("bring a standby of synchronous_standby_names back")
        }
        0 => Finding::ok(Check::Replication, "no standby is connected"),
        count if waits => {
            let found = format!("{count} standbys; grants wait for the synchronous ones");
            Finding::ok(Check::Replication, found)
        }
        count => {
            let found = format!("{count} standbys; a failover may forget the last grants");
            Finding::note(Check::Replication, found).advise(
                "set synchronous_standby_names if that must not happen; fenced transactions are \
                 safe in any case",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::diagnosis::Severity;

    fn primary() -> DatabaseFacts {
        DatabaseFacts {
            pid: 7,
            version: OLDEST,
            version_text: "14.0".to_owned(),
            in_recovery: false,
            read_only: false,
            synchronous_commit: "on".to_owned(),
            fsync: true,
            most_connections: 100,
            reserved: 3,
            connections: 10,
            has_schema: true,
            may_create: true,
            synchronous_standbys: false,
            standbys: 0,
            may_ask_control: true,
            role: "app".to_owned(),
        }
    }

    /// States that a test cannot produce on a server, or only slowly.
    #[test]
    fn what_a_server_says_is_judged() {
        let worst = |facts: &DatabaseFacts, pid: i32, single: bool| {
            let findings = about_server(facts, pid, single, 10);
            findings.into_iter().max_by_key(Finding::severity).unwrap()
        };
        assert_eq!(worst(&primary(), 7, true).severity(), Severity::Ok);
        // The backend that answers is not the one that accepted the connection.
        let pooled = worst(&primary(), 8, true);
        assert_eq!((pooled.check(), pooled.severity()), (Check::Pooler, Severity::Problem));
        let old = worst(&DatabaseFacts { version: OLDEST - 1, ..primary() }, 7, true);
        assert_eq!((old.check(), old.severity()), (Check::Version, Severity::Problem));
        let waits = DatabaseFacts { synchronous_standbys: true, ..primary() };
        let waits = worst(&waits, 7, true);
        assert_eq!((waits.check(), waits.severity()), (Check::Replication, Severity::Problem));
        let full = worst(&DatabaseFacts { connections: 90, ..primary() }, 7, true);
        assert_eq!((full.check(), full.severity()), (Check::Connections, Severity::Warning));
        // One of several hosts.
        let standby = DatabaseFacts { in_recovery: true, ..primary() };
        assert_eq!(worst(&standby, 7, false).severity(), Severity::Ok);
        assert_eq!(worst(&standby, 7, true).check(), Check::Role);
    }
}
