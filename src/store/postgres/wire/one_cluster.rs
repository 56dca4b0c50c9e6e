//! Whether all hosts of a URL belong to one database cluster: a primary and its standbys.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::connector::{Connector, OWN_PATH};
use super::messages::malformed;
use crate::base::error::{Error, Result, invalid};
use crate::base::log;
use crate::store::net::Address;

/// The longest time that the first connection of a client takes to ask the other hosts which
/// database cluster they belong to: one of them may be down.
const OTHERS: Duration = Duration::from_secs(1);

impl Connector {
    /// Checks that all hosts belong to one database cluster. If they did not, the locks of some
    /// clients would be in one cluster and those of others in another, and each lock could be held
    /// twice.
    ///
    /// The first connection of a client asks the other hosts as well. A host that does not answer
    /// now is checked when it is connected to.
    pub(super) fn check_system(&self, place: usize, system: u64) -> Result<()> {
        let hosts = &self.server.url.hosts;
        if hosts.len() == 1 {
            return Ok(());
        }
        let known = *self.server.known.system.lock();
        if known == Some(system) {
            return Ok(());
        }
        if known.is_some() {
            return Err(another_cluster(&hosts[place], "the one that this client has used"));
        }
        let deadline = Instant::now() + self.io_timeout.min(OTHERS);
        for (_, other) in hosts.iter().enumerate().filter(|(other, _)| *other != place) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.ask_system(other, left) {
                Ok(found) if found == system => {}
                Ok(_) => return Err(another_cluster(other, &format!("{:?}", hosts[place]))),
                Err(error) => log::debug!(
                    "{other:?} is not compared with the other hosts now: {}",
                    error.chain()
                ),
            }
        }
        *self.server.known.system.lock() = Some(system);
        Ok(())
    }

    /// Which database cluster a host belongs to, whatever its role.
    fn ask_system(&self, address: &Address, timeout: Duration) -> Result<u64> {
        let (mut transport, _) = self.either_way(address, timeout, |left, with_tls| {
            self.log_in_once(address, left, with_tls)
        })?;
        let question = format!("{OWN_PATH}; SELECT system_identifier FROM pg_control_system()");
        let rows = Connection::simple(&mut transport, &question)?.map_err(|e| e.to_error())?;
        let found = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        found.ok_or_else(|| malformed(address))
    }
}

#[cold]
fn another_cluster(address: &Address, than: &str) -> Error {
    let why = format!(
        "{address:?} belongs to another database cluster than {than}: a lock could be held in both; name the primary and \
         its standbys only (after a restore or pg_upgrade, start the clients anew)"
    );
    invalid(why)
}
