//! Tables and functions in the database: whether they exist, and installing them.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::messages::Transport;
use super::owners::{self, FOREIGN_OWNER, REMEDY};
use super::script::{POSTGRES_SCHEMA, owners_query};
use super::server_error::ServerError;
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;

/// The version of the tables that this release knows.
pub(crate) const TABLES: u32 = 1;

/// Whether the tables and functions exist. Empty schemas, which an administrator has made
/// beforehand, are not enough; nor are tables with the functions of another version. The catalogues
/// are asked, because a name like `leasehold.meta` is refused to a role that may not use the
/// schema.
macro_rules! is_installed {
    () => {
        "(EXISTS (SELECT FROM pg_class WHERE relname = 'meta' AND relnamespace = to_regnamespace('leasehold')) \
         AND EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('leasehold_v1')))"
    };
}
pub(crate) use is_installed;

/// The version of the tables, and whether a sweep is due: none has left nothing for ten minutes.
/// Asked here, because most programs live for less than the ten minutes between two sweeps of a
/// client. A time in the future is of a clock that was stepped back since.
const META: &str = "SELECT tables, \
    swept NOT BETWEEN clock_timestamp() - interval '600 s' AND clock_timestamp() \
    FROM leasehold.meta";

/// For the very first connection: another client may be installing at the same time, and a busy
/// server needs time for this many statements.
const PATIENCE: Duration = Duration::from_secs(10);

/// Installs the schema if it does not exist, and checks its owners and its version. Returns whether
/// a sweep is due.
pub(super) fn install(transport: &mut Transport, is_there: bool, may_create: bool) -> Result<bool> {
    if !is_there {
        if !may_create {
            let why = "the schema leasehold_v1 is not in the database, or is empty, and create_schema is off";
            return Err(Error::new(ErrorKind::Unsupported, why).advise(Advice::InstallSchema));
        }
        transport.handshake = Some(Instant::now() + PATIENCE);
        let installed = Connection::simple(transport, POSTGRES_SCHEMA)?;
        // The handshake may have used up its time: the rest has an I/O timeout of its own.
        transport.handshake = Some(Instant::now() + transport.io_timeout);
        installed.map_err(|e| refused(&e))?;
        log::info!("the schema leasehold_v1 was installed");
    }
    // Before anything in the schemas is used.
    let foreign = Connection::simple(transport, owners_query())?.map_err(|e| e.to_error())?;
    owners::check(&foreign)?;
    let rows = Connection::simple(transport, META)?.map_err(|e| e.to_error())?;
    let text = |place: usize| rows.first()?.get(place)?.as_deref();
    let version = text(0).and_then(|version| version.parse::<u32>().ok());
    if version == Some(TABLES) {
        return Ok(text(1) == Some("t"));
    }
    let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let why = format!(
        "the tables in the schema leasehold have version {version}, and this release knows {TABLES}"
    );
    Err(Error::new(ErrorKind::Unsupported, why))
}

#[cold]
fn refused(error: &ServerError) -> Error {
    let said = error.to_error();
    match said.kind() {
        ErrorKind::Denied if error.state == FOREIGN_OWNER => said.advise(REMEDY),
        ErrorKind::Denied => said
            .reworded(|said| {
                format!(
                    "the schema leasehold_v1 is not in the database, or is empty, and the role may not create it ({said})"
                )
            })
            .advise(Advice::InstallSchema),
        _ => said.and_also("while installing the schema leasehold_v1"),
    }
}
