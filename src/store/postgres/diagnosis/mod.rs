//! What a diagnosis finds out about the hosts of a database.

mod facts;
mod schema;
mod snapshots;

use std::time::Duration;

use self::facts::{DatabaseFacts, FACTS, about_server};
use self::schema::about_schema;
use self::snapshots::{OLDEST_SNAPSHOT, about_snapshots};
use super::PostgresStore;
use super::wire::{BareConnection, Connector, OLDEST};
use crate::base::error::{Error, ErrorKind, Result};
use crate::report::diagnosis::{Check, ClockSample, Finding};
use crate::store::Diagnose;
use crate::store::findings::{
    Examined, connects, examine_each, lease_of, of_each, reachable, secured, wall_micros,
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
        let connector = &self.server.pool.connector;
        let hosts = &connector.server.url.hosts;
        let single = hosts.len() == 1;
        // Those of calls, one for renewals, one for messages, and one beside them for a moment.
        let wanted = self.server.pool.most as u64 + 3;
        let client = Client { connector, single, wanted, lease: asked.lease };
        let examined = examine_each(hosts, |host| examine(&client, host));
        let takes_writes = examined.iter().any(|examined| examined.usable);
        let lease = lease_of(&examined, asked.lease);
        let addresses = hosts.iter().map(|host| format!("{host:?}")).collect();
        let mut all = of_each(addresses, examined, takes_writes);
        if takes_writes {
            all.extend(connects(&connector.connect(), &all));
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
        all.extend(lease);
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
        examined.fail(&e);
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
    examined.measure(connector.io_timeout, || connection.rows("SELECT 1").map(drop))
}
