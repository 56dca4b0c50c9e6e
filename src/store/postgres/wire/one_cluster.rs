//! Whether all hosts of a URL belong to one database cluster: a primary and its standbys.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::connector::{Connector, OWN_PATH};
use super::messages::malformed;
use super::outcome::Boot;
use crate::base::error::{Error, Result, invalid};
use crate::base::log;
use crate::store::net::Address;

/// The longest time that the first connection of a client takes to ask the other hosts which
/// database cluster they belong to: one of them may be down.
const OTHERS: Duration = Duration::from_secs(1);

impl Connector {
    /// Checks that all hosts belong to one database cluster, and that no other one takes writes,
    /// such as an old primary that has come back. Otherwise the locks of some clients would be at
    /// one host and those of others at another, and each lock could be held twice.
    ///
    /// The first connection of a client asks the other hosts as well. A host that does not answer
    /// now is checked when it is connected to, for the cluster alone.
    pub(super) fn check_system(&self, place: usize, boot: Boot) -> Result<()> {
        let system = boot.system;
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
                // The same server may have two names.
                Ok((found, primary)) if found == system => {
                    if primary.is_some_and(|started| started != boot.started) {
                        return Err(another_primary(&hosts[place], other));
                    }
                }
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

    /// Which database cluster a host belongs to; and when it has started, if it takes writes.
    fn ask_system(&self, address: &Address, timeout: Duration) -> Result<(u64, Option<i64>)> {
        let (mut transport, _) = self.either_way(address, timeout, |left, with_tls| {
            self.log_in_once(address, left, with_tls)
        })?;
        let question = format!(
            "{OWN_PATH}; SELECT system_identifier, CASE WHEN NOT pg_is_in_recovery() \
             THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000.0)::bigint END \
             FROM pg_control_system()"
        );
        let rows = Connection::simple(&mut transport, &question)?.map_err(|e| e.to_error())?;
        let number = |place: usize| rows.first()?.get(place)?.as_deref();
        let system = number(0).and_then(|system| system.parse().ok());
        let started = number(1).and_then(|started| started.parse().ok());
        Ok((system.ok_or_else(|| malformed(address))?, started))
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

#[cold]
fn another_primary(one: &Address, other: &Address) -> Error {
    let why = format!(
        "{one:?} and {other:?} both take writes, so a lock could be held in both: stop the one that is no longer the \
         primary, or make it a standby"
    );
    invalid(why)
}
