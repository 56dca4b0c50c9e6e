//! Tables and functions in the database: whether they exist, and installing them.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::server_error::ServerError;
use super::transport::Transport;
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;

/// The version of the tables that this release knows.
pub(crate) const TABLES: u32 = 1;

/// The schema that [`LockClient`](crate::LockClient)s on PostgreSQL need, as one SQL script for an
/// administrator: for databases in which the application's role may not create it. See
/// [`guide::postgres`](crate::guide::postgres) for the rights that the role then needs.
///
/// It is one transaction. Running it again does no harm.
pub const POSTGRES_SCHEMA: &str = include_str!("../schema.sql");

/// For the very first connection: another client may be installing at the same time, and a busy
/// server needs time for this many statements.
const PATIENCE: Duration = Duration::from_secs(10);

/// Installs the schema if it does not exist, and checks its version.
pub(super) fn install(transport: &mut Transport, is_there: bool, may_create: bool) -> Result<()> {
    if !is_there {
        if !may_create {
            let why =
                "the schema leasehold_v2 is not in the database, and this client may not create it (create_schema)";
            return Err(Error::new(ErrorKind::Unsupported, why).advise(Advice::InstallSchema));
        }
        transport.handshake = Some(Instant::now() + PATIENCE);
        let installed = Connection::simple(transport, POSTGRES_SCHEMA)?;
        // The handshake may have used up its time: the rest has an I/O timeout of its own.
        transport.handshake = None;
        transport.handshake = Some(transport.deadline());
        installed.map_err(|e| refused(&e))?;
        log::info!("the schema leasehold_v2 was installed");
    }
    let rows = Connection::simple(transport, "SELECT tables FROM leasehold.meta")?.map_err(|e| e.to_error())?;
    let version = rows.first().and_then(|row| row.first()?.as_deref()?.parse::<u32>().ok());
    if version == Some(TABLES) {
        return Ok(());
    }
    let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let why = format!("the tables in the schema leasehold have version {version}, and this release knows {TABLES}");
    Err(Error::new(ErrorKind::Unsupported, why))
}

#[cold]
fn refused(error: &ServerError) -> Error {
    let said = error.to_error();
    match said.kind() {
        ErrorKind::Denied => said
            .reworded(|said| {
                format!("the schema leasehold_v2 is not in the database, and the role may not create it ({said})")
            })
            .advise(Advice::InstallSchema),
        _ => said.and_also("while installing the schema leasehold_v2"),
    }
}
