//! What a diagnosis finds out about the hosts of a database.

mod facts;
mod schema;
mod snapshots;

use std::time::{Duration, Instant};

use self::facts::{DatabaseFacts, FACTS, about_server};
use self::schema::about_schema;
use self::snapshots::{OLDEST_SNAPSHOT, about_snapshots};
use super::PostgresStore;
use super::wire::{BareConnection, Connector, OLDEST};
use crate::base::error::{Error, ErrorKind, Result};
use crate::report::diagnosis::{
    Check, ClockSample, Finding, Severity, latency_finding, lease_finding,
};
use crate::store::Diagnose;
use crate::store::findings::{
    Examined, ROUND_TRIPS, examine_each, failed, reachable, secured, wall_micros,
};
use crate::store::net::Address;

/// The relevant properties of the client that is diagnosed.
struct Client<'c> {
    connector: &'c Connector,
    /// Whether the URL has one host.
    single: bool,
    /// The maximum number of its connections.
    wanted: u64,
    lease: Duration,
}

impl PostgresStore {
    pub(super) fn examine_hosts(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let connector = self.server.pool.connector();
        let hosts = &connector.server.url.hosts;
        let single = hosts.len() == 1;
        // Those of calls, one for renewals, one for messages, and one beside them for a moment.
        let wanted = self.server.pool.most() as u64 + 3;
        let client = Client { connector, single, wanted, lease: asked.lease };
        let examined = examine_each(hosts, |host| examine(&client, host));
        let slowest = examined.iter().filter_map(|examined| examined.slowest).max();
        let takes_writes = examined.iter().any(|examined| examined.usable);
        let each = examined
            .into_iter()
            .map(|examined| if takes_writes { examined.spared() } else { examined });
        let each =
            hosts.iter().zip(each).flat_map(|(host, examined)| examined.at(&format!("{host:?}")));
        let mut all: Vec<Finding> = each.collect();
        if takes_writes {
            // Last: if something is missing, one of the findings already states the reason.
            let has_problem = all.iter().any(|finding| finding.severity() == Severity::Problem);
            match connector.connect() {
                Ok(_) => {
                    all.push(Finding::ok(Check::Connect, "a connection for locks can be made"));
                }
                Err(_) if has_problem => {}
                Err(e) => all
                    .push(Finding::problem(Check::Connect, e.message().to_owned()).advised_by(&e)),
            }
        } else if !single {
            all.push(
                Finding::problem(
                    Check::Role,
                    "none of the hosts takes writes and has the schema: nothing can be locked",
                )
                .advise(
                    "bring the primary back, promote a standby, or name the primary in the URL",
                ),
            );
        }
        if let Some(slowest) = slowest {
            all.push(lease_finding(asked.lease, slowest));
        }
        all
    }
}

fn examine(client: &Client<'_>, host: &Address) -> Examined {
    let connector = client.connector;
    let mut examined = Examined::default();
    let asked = connector.connect_bare(host).and_then(|mut connection| {
        let facts = connection.rows(FACTS)?;
        let facts = facts.first().and_then(DatabaseFacts::read).ok_or_else(no_answer)?;
        examined.add(reachable(connection.connected_in));
        examined.add(secured(connection.stream(), &*connector.server.clock));
        let about = about_server(&facts, connection.pid, client.single, client.wanted);
        for finding in about {
            examined.add(finding);
        }
        if !facts.in_recovery {
            examined.add(about_snapshots(connection.rows(OLDEST_SNAPSHOT)?.first()));
        }
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

#[cold]
fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the server, or a proxy, does not answer as PostgreSQL does")
}

/// The server's clock, and round trips for at most one I/O timeout.
fn measure(
    connection: &mut BareConnection,
    client: &Client<'_>,
    examined: &mut Examined,
) -> Result<()> {
    let Client { connector, lease, .. } = *client;
    let clock = &*connector.server.clock;
    let asked = wall_micros(clock);
    let time =
        connection.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000000.0)::bigint")?;
    let answered = wall_micros(clock);
    if let Some(server) = time.first().and_then(|row| row.first()?.as_deref()?.parse().ok()) {
        examined.add_clock(ClockSample { server, asked, answered }, lease);
    }
    let began = Instant::now();
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    while round_trips.len() < ROUND_TRIPS && began.elapsed() < connector.io_timeout {
        let sent = Instant::now();
        connection.rows("SELECT 1")?;
        round_trips.push(sent.elapsed());
    }
    examined.slowest = round_trips.iter().max().copied();
    examined.add(latency_finding(round_trips, connector.io_timeout));
    Ok(())
}
