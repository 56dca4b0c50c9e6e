//! What there is to say of the hosts of a database.

use std::time::{Duration, Instant};

use super::PostgresStore;
use super::schema::TABLES;
use super::wire::{BareConnection, Connector, OLDEST, Row, ServerError};
use crate::base::diagnosis::{Check, ClockSample, Finding, Severity, latency_finding, lease_finding};
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::Diagnose;
use crate::store::findings::{Examined, ROUND_TRIPS, examine_each, failed, reachable, secured, wall_micros};
use crate::store::net::Address;

const FACTS: &str = "SELECT pg_backend_pid(), current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('synchronous_commit'), \
    current_setting('fsync'), current_setting('max_connections'), \
    current_setting('superuser_reserved_connections'), \
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
    to_regnamespace('leasehold') IS NOT NULL AND to_regnamespace('leasehold_v1') IS NOT NULL, \
    has_database_privilege(current_database(), 'CREATE'), current_setting('synchronous_standby_names'), \
    (SELECT count(*) FROM pg_stat_replication), has_function_privilege('pg_control_system()', 'EXECUTE'), current_user";

/// Each right that is missing: on what, its name, which right.
const MISSING: &str = "\
    SELECT 'SCHEMA', nspname::text, 'USAGE' FROM pg_namespace \
      WHERE nspname IN ('leasehold', 'leasehold_v1') AND NOT has_schema_privilege(oid, 'USAGE') \
    UNION ALL SELECT CASE WHEN c.oid IS NULL THEN 'MISSING' ELSE 'TABLE' END, w.name, w.need \
      FROM (SELECT t.name, r.need FROM (VALUES ('lock'), ('share'), ('waiter'), ('once'), ('fenced'), ('client')) t (name), \
            (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) r (need) \
            UNION ALL VALUES ('meta', 'SELECT'), ('meta', 'UPDATE')) w \
      LEFT JOIN pg_namespace n ON n.nspname = 'leasehold' \
      LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name \
      WHERE c.oid IS NULL OR NOT has_table_privilege(c.oid, w.need) \
    UNION ALL SELECT 'SEQUENCE', c.relname::text, 'USAGE' FROM pg_class c \
      JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'leasehold' \
      WHERE c.relkind = 'S' AND NOT has_sequence_privilege(c.oid, 'USAGE') \
    UNION ALL SELECT DISTINCT 'FUNCTION', p.proname::text, 'EXECUTE' FROM pg_proc p \
      JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'leasehold_v1' \
      WHERE NOT has_function_privilege(p.oid, 'EXECUTE')";

/// The answer to [`FACTS`].
struct Facts {
    pid: i32,
    version: u32,
    version_text: String,
    in_recovery: bool,
    read_only: bool,
    synchronous_commit: String,
    fsync: bool,
    most_connections: u64,
    reserved: u64,
    connections: u64,
    has_schema: bool,
    may_create: bool,
    synchronous_standbys: bool,
    standbys: u64,
    may_ask_control: bool,
    role: String,
}

impl Facts {
    fn read(row: &Row) -> Option<Self> {
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

/// What matters of the client that is diagnosed.
struct Client<'c> {
    connector: &'c Connector,
    /// The URL has one host.
    single: bool,
    /// How many connections it has at most.
    wanted: u64,
    lease: Duration,
}

impl PostgresStore {
    pub(super) fn examine_hosts(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let connector = self.server.pool.connector();
        let hosts = &connector.server.url.hosts;
        let single = hosts.len() == 1;
        // Those of calls, of renewals and of messages.
        let wanted = self.server.pool.most() as u64 + 2;
        let client = Client { connector, single, wanted, lease: asked.lease };
        let examined = examine_each(hosts, |host| examine(&client, host));
        let slowest = examined.iter().filter_map(|examined| examined.slowest).max();
        let takes_writes = examined.iter().any(|examined| examined.usable);
        let each = hosts.iter().zip(examined).flat_map(|(host, examined)| examined.at(&format!("{host:?}")));
        let mut all: Vec<Finding> = each.collect();
        if takes_writes {
            // Last: where something is missing, one of the findings has the reason.
            let has_problem = all.iter().any(|finding| finding.severity() == Severity::Problem);
            match connector.connect() {
                Ok(_) => all.push(Finding::ok(Check::Connect, "a connection for locks can be made")),
                Err(_) if has_problem => {}
                Err(e) => all.push(Finding::problem(Check::Connect, e.message().to_owned())),
            }
        } else if !single {
            all.push(
                Finding::problem(
                    Check::Role,
                    "none of the hosts takes writes and has the schema: nothing can be locked",
                )
                .advise("bring the primary back, promote a standby, or name the primary in the URL"),
            );
        }
        all.extend(slowest.map(|slowest| lease_finding(asked.lease, slowest)));
        all
    }
}

fn examine(client: &Client<'_>, host: &Address) -> Examined {
    let connector = client.connector;
    let mut examined = Examined::default();
    let asked = connector.connect_bare(host).and_then(|mut connection| {
        let facts = rows(&mut connection, FACTS)?;
        let facts = facts.first().and_then(Facts::read).ok_or_else(no_answer)?;
        examined.add(reachable(connection.connected_in));
        examined.add(secured(connection.stream(), &*connector.server.clock));
        about_server(&facts, connection.pid, client, &mut examined);
        if facts.pid == connection.pid && facts.version >= OLDEST && !facts.in_recovery {
            let complete = about_schema(&facts, &mut connection, connector, &mut examined)?;
            examined.usable = complete && !facts.read_only;
        }
        measure(&mut connection, client, &mut examined)
    });
    if let Err(e) = asked {
        examined.findings.retain(|finding| finding.check() != Check::Reachable);
        examined.findings.insert(0, failed(&e));
        examined.usable = false;
    }
    examined
}

fn rows(connection: &mut BareConnection, sql: &str) -> Result<Vec<Row>> {
    connection.ask(sql)?.map_err(|refused: ServerError| refused.to_error())
}

#[cold]
fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the server, or a proxy, does not answer as PostgreSQL does")
}

fn about_server(facts: &Facts, pid: i32, client: &Client<'_>, examined: &mut Examined) {
    let product = format!("PostgreSQL {}", facts.version_text);
    examined.add(match facts.version >= OLDEST {
        true => Finding::ok(Check::Version, product),
        false => Finding::problem(Check::Version, format!("{product} is too old")).advise("use 14 or later"),
    });
    examined.add(match facts.pid == pid {
        true => Finding::ok(Check::Pooler, "no pooler gives each transaction another backend"),
        false => {
            Finding::problem(Check::Pooler, "a pooler gives each transaction another backend: messages would be lost")
                .advise("name the server itself in the URL")
        }
    });
    examined.add(role(facts, client.single));
    let free = facts.most_connections.saturating_sub(facts.reserved).saturating_sub(facts.connections);
    let wanted = client.wanted;
    let found = format!("{} of {} connections are in use", facts.connections, facts.most_connections);
    examined.add(match free {
        free if free < wanted => Finding::warning(Check::Connections, format!("{found}; a client has up to {wanted}"))
            .advise("raise max_connections, or lower Builder::connections"),
        _ => Finding::ok(Check::Connections, found),
    });
    if !facts.in_recovery {
        examined.add(persistence(facts));
        examined.add(replication(facts));
    }
}

fn role(facts: &Facts, single: bool) -> Finding {
    match (facts.in_recovery, facts.read_only) {
        (true, _) if !single => Finding::ok(Check::Role, "a standby, which takes over when it is promoted"),
        (true, _) => Finding::problem(Check::Role, "the server is a standby, and takes no writes")
            .advise("name the primary, or all hosts, in the URL"),
        (false, true) => Finding::problem(Check::Role, "the database is read-only (default_transaction_read_only)")
            .advise("turn it off for the database or the role, or name another database"),
        (false, false) => Finding::ok(Check::Role, "a primary"),
    }
}

fn persistence(facts: &Facts) -> Finding {
    if !facts.fsync {
        return Finding::warning(Check::Persistence, "fsync is off: a crash of the machine can destroy the database")
            .advise("turn fsync on");
    }
    match &*facts.synchronous_commit {
        "off" => Finding::warning(Check::Persistence, "synchronous_commit is off: a crash forgets the last grants")
            .advise("set synchronous_commit to on for this role: ALTER ROLE .. SET synchronous_commit = on"),
        value => Finding::ok(Check::Persistence, format!("each grant is on disk (synchronous_commit {value})")),
    }
}

fn replication(facts: &Facts) -> Finding {
    let waits = facts.synchronous_standbys && !matches!(&*facts.synchronous_commit, "off" | "local");
    match facts.standbys {
        0 if waits => Finding::problem(Check::Replication, "no standby is connected, and each grant waits for one")
            .advise("bring a standby of synchronous_standby_names back"),
        0 => Finding::ok(Check::Replication, "no standby is connected"),
        count if waits => {
            Finding::ok(Check::Replication, format!("{count} standbys; grants wait for the synchronous ones"))
        }
        count => Finding::note(Check::Replication, format!("{count} standbys; a failover may forget the last grants"))
            .advise("set synchronous_standby_names if that must not happen; fenced transactions are safe in any case"),
    }
}

/// Whether the schema is there with all rights, or is made by the first connection.
fn about_schema(
    facts: &Facts,
    connection: &mut BareConnection,
    connector: &Connector,
    examined: &mut Examined,
) -> Result<bool> {
    let role = &facts.role;
    if !facts.has_schema {
        let creates = connector.server.create_schema && facts.may_create;
        examined.add(match creates {
            true => {
                Finding::note(Check::Schema, "the schema leasehold_v1 is not there; the first connection installs it")
            }
            false => Finding::problem(
                Check::Schema,
                format!("the schema leasehold_v1 is not there, and {role:?} does not create it"),
            )
            .advise("have an administrator run leasehold::POSTGRES_SCHEMA, and grant the rights of guide::postgres"),
        });
        // Connecting would install it, and a diagnosis changes nothing.
        return Ok(false);
    }
    let missing = rows(connection, MISSING)?;
    let mut complete = true;
    for row in &missing {
        let [Some(on), Some(name), Some(right)] = &row[..] else { continue };
        let schema = if on == "FUNCTION" { "leasehold_v1" } else { "leasehold" };
        let full = if on == "SCHEMA" { name.clone() } else { format!("{schema}.{name}") };
        let finding = match (&**on, &**name) {
            ("MISSING", _) if right != "SELECT" => continue,
            ("MISSING", _) => Finding::note(Check::Schema, format!("the table {full} is not there"))
                .advise("have an administrator run leasehold::POSTGRES_SCHEMA again"),
            (_, "client") => {
                Finding::note(Check::Right, format!("{role:?} has not {right} on {full}: nobody sees who holds a lock"))
                    .advise(format!("GRANT {right} ON {full} TO {role:?}"))
            }
            _ => {
                complete = false;
                let on = if on == "TABLE" { String::new() } else { format!("{on} ") };
                Finding::problem(Check::Right, format!("{role:?} has not {right} on {full}, which locks need"))
                    .advise(format!("GRANT {right} ON {on}{full} TO {role:?}"))
            }
        };
        examined.add(finding);
    }
    if !facts.may_ask_control {
        complete = false;
        examined.add(
            Finding::problem(
                Check::Right,
                format!("{role:?} may not run pg_control_system(), which tells servers apart"),
            )
            .advise(format!("GRANT EXECUTE ON FUNCTION pg_control_system() TO {role:?}")),
        );
    }
    let may_read = !missing.iter().any(|row| {
        matches!(&row[..], [_, Some(name), Some(right)] if name == "leasehold" || name == "meta" && right == "SELECT")
    });
    if complete {
        examined.add(Finding::ok(Check::Right, "the role has every right that locks need"));
    }
    if may_read {
        let version = rows(connection, "SELECT tables FROM leasehold.meta")?;
        let version = version.first().and_then(|row| row.first()?.clone()).unwrap_or_default();
        examined.add(match version == TABLES.to_string() {
            true => Finding::ok(
                Check::Schema,
                format!("the schema leasehold_v1 is there, with tables of version {version}"),
            ),
            false => {
                complete = false;
                Finding::problem(
                    Check::Schema,
                    format!("the tables have version {version:?}, and this release knows {TABLES}"),
                )
                .advise("use the same release of leasehold everywhere")
            }
        });
    }
    Ok(complete)
}

/// The server's clock, and round trips for one I/O timeout at most.
fn measure(connection: &mut BareConnection, client: &Client<'_>, examined: &mut Examined) -> Result<()> {
    let Client { connector, lease, .. } = *client;
    let clock = &*connector.server.clock;
    let asked = wall_micros(clock);
    let time = rows(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")?;
    let answered = wall_micros(clock);
    if let Some(server) = time.first().and_then(|row| row.first()?.as_deref()?.parse().ok()) {
        examined.add_clock(ClockSample { server, asked, answered }, lease);
    }
    let (began, mut round_trips) = (Instant::now(), Vec::with_capacity(ROUND_TRIPS));
    while round_trips.len() < ROUND_TRIPS && began.elapsed() < connector.io_timeout {
        let sent = Instant::now();
        rows(connection, "SELECT 1")?;
        round_trips.push(sent.elapsed());
    }
    examined.slowest = round_trips.iter().max().copied();
    examined.add(latency_finding(round_trips, connector.io_timeout));
    Ok(())
}
