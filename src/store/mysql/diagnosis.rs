//! What a diagnosis finds out about the hosts of a database.

use std::time::Instant;

use super::MysqlStore;
use super::requests::{NOW, text};
use super::wire::{
    Answer, Connection, Connector, LOOK, MysqlFailure, READS_ONLY, Request, Row, Schema, Set,
    found, is_supported,
};
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::report::diagnosis::{Check, ClockSample, Finding};
use crate::store::Diagnose;
use crate::store::findings::{
    Examined, connects, examine_each, lease_of, of_each, reachable, secured, wall_micros,
};
use crate::store::net::Address;

const FACTS: &str = "SELECT VERSION(),@@global.read_only,@@global.innodb_flush_log_at_trx_commit,@@global.log_bin,\
                     @@global.sync_binlog,@@global.max_connections,\
                     (SELECT COUNT(*) FROM information_schema.processlist WHERE user=SUBSTRING_INDEX(USER(),'@',1)),\
                     @@global.binlog_format";

impl MysqlStore {
    pub(super) fn examine_hosts(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let connector = &self.server.pool.connector;
        let hosts = &connector.server.url.hosts;
        // Those of calls, one for renewals, one for looking, and one beside them for a moment.
        let wanted = self.server.pool.most as u64 + 3;
        let examined = examine_each(hosts, |host| examine(connector, host, asked, wanted));
        let takes_writes = examined.iter().any(|examined| examined.usable);
        let lease = lease_of(&examined, asked.lease);
        let addresses = hosts.iter().map(|host| format!("{host:?}")).collect();
        let mut all = of_each(addresses, examined, takes_writes);
        all.extend(connects(&connector.connect(), &all));
        all.extend(lease);
        all
    }
}

fn examine(connector: &Connector, host: &Address, asked: &Diagnose<'_>, wanted: u64) -> Examined {
    let mut examined = Examined::default();
    let began = Instant::now();
    let outcome = connector.connect_bare(host, connector.io_timeout).and_then(|mut connection| {
        examined.add(reachable(began.elapsed()));
        examined.add(secured(connection.stream(), &*connector.server.clock));
        let facts = ask(&mut connection, &format!("{FACTS},{READS_ONLY}"))?;
        let row = facts.last().and_then(|set| set.rows.first()).ok_or_else(no_answer)?;
        for finding in about_server(row, wanted) {
            examined.add(finding);
        }
        let schema = found(&ask(&mut connection, LOOK)?).ok_or_else(no_answer)?;
        examined.usable = schema == Schema::Complete && takes_writes(row);
        examined.add(about_schema(&schema, connector.server.create_schema));
        measure(&mut connection, connector, asked, &mut examined)
    });
    if let Err(e) = outcome {
        examined.fail(&e);
    }
    examined
}

#[cold]
fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the server, or a proxy, does not answer as MySQL does")
}

fn ask(connection: &mut Connection, sql: &str) -> Result<Vec<Set>> {
    connection.ask(&Request::to_any(sql)).map_err(MysqlFailure::into_error).and_then(Answer::all)
}

fn takes_writes(facts: &Row) -> bool {
    [1, 8].iter().all(|&column| matches!(text(facts, column), Some("0" | "OFF")))
}

fn about_server(facts: &Row, wanted: u64) -> Vec<Finding> {
    let is = |column: usize, value: &str| text(facts, column) == Some(value);
    let number = |column: usize| text(facts, column).and_then(|it| it.parse::<u64>().ok());
    let version = text(facts, 0).unwrap_or_default();
    let mut all = vec![if is_supported(version) {
        Finding::ok(Check::Version, format!("the server is {version}"))
    } else {
        Finding::problem(Check::Version, format!("the server is {version}"))
            .advise("MySQL 8.0 or MariaDB 10.6 is needed")
    }];
    all.push(if takes_writes(facts) {
        Finding::ok(Check::Role, "the server takes writes")
    } else {
        Finding::problem(Check::Role, "the server is a replica or read-only")
            .advise("name the primary, or all hosts")
    });
    let is_durable = is(2, "1") && (!matches!(text(facts, 3), Some("1" | "ON")) || is(4, "1"));
    all.push(if is_durable {
        Finding::ok(Check::Persistence, "a grant is on the disk before it is answered")
    } else {
        Finding::warning(
            Check::Persistence,
            "after a crash the server may have forgotten the last grants, so a lock may have two holders for a lease",
        )
        .advise("set innodb_flush_log_at_trx_commit=1, and sync_binlog=1 where there is a binary log")
    });
    if is(7, "STATEMENT") && matches!(text(facts, 3), Some("1" | "ON")) {
        all.push(
            Finding::problem(
                Check::Replication,
                "binlog_format is STATEMENT: no lock can be taken",
            )
            .advise("set binlog_format to ROW or MIXED"),
        );
    }
    if let (Some(most), Some(own)) = (number(5), number(6)) {
        let says = format!("{own} connections of this user, of {most} in all (max_connections)");
        all.push(if own + wanted > most {
            Finding::warning(Check::Connections, says)
                .advise("raise max_connections, or let each client have fewer connections")
        } else {
            Finding::ok(Check::Connections, says)
        });
    }
    all
}

fn about_schema(schema: &Schema, creates: bool) -> Finding {
    match schema {
        Schema::Complete => Finding::ok(Check::Schema, "the tables and the procedure are there"),
        Schema::Missing if creates => Finding::note(
            Check::Schema,
            "the tables and the procedure are not there; the first connection creates them",
        ),
        Schema::Missing => {
            Finding::problem(Check::Schema, "the tables or the procedure are not there")
                .advise(Advice::CreateTables)
        }
        Schema::Foreign(what) => Finding::problem(Check::Schema, *what),
    }
}

/// The server's clock, and round trips for at most one I/O timeout.
fn measure(
    connection: &mut Connection,
    connector: &Connector,
    asked: &Diagnose<'_>,
    examined: &mut Examined,
) -> Result<()> {
    let clock = &*connector.server.clock;
    let before = wall_micros(clock);
    let sets = ask(connection, &format!("SELECT {NOW}"))?;
    let answered = wall_micros(clock);
    let time = sets.first().and_then(|set| text(set.rows.first()?, 0)?.parse().ok());
    if let Some(server) = time {
        examined.add_clock(ClockSample { server, asked: before, answered }, asked.lease);
    }
    examined.measure(connector.io_timeout, || ask(connection, "SELECT 1").map(drop))
}
