//! Who has locked a table that a request has waited for in vain.

use super::connection::Connection;
use super::server_error::ServerError;
use crate::base::log;

// Not granted: it waits (VACUUM FULL behind a backup), and everybody else waits behind it.
const TABLE_BLOCKER: &str = "SELECT format('the process %s (role %s, application %s%s) %s the table %s in mode %s%s', \
                         l.pid, a.usename, a.application_name, \
                         ', ' || a.state || ' for ' || round(extract(epoch FROM clock_timestamp() - a.state_change))::text || ' s', \
                         CASE WHEN l.granted THEN 'has locked' ELSE 'waits to lock' END, c.relname, l.mode, \
                         CASE WHEN NOT l.granted THEN ' behind ' || pg_blocking_pids(l.pid)::text END) \
                         FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
                         LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
                         WHERE l.locktype = 'relation' AND n.nspname = 'leasehold' \
                         AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) \
                         AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
                         ORDER BY l.granted DESC LIMIT 1";

impl Connection {
    /// Asked over the connection that has waited, at once: all others may wait for the same table,
    /// and many requests for them. Only after such a wait, which is rare.
    #[cold]
    pub(super) fn find_blocker(&mut self, error: &mut ServerError) {
        if !error.is_lock_timeout() {
            return;
        }
        match Self::simple(&mut self.link().transport, TABLE_BLOCKER) {
            Ok(Ok(rows)) => {
                error.blocker = rows.into_iter().next().and_then(|row| row.into_iter().next()?);
            }
            Ok(Err(refused)) => {
                log::debug!("who has locked the tables is unknown: {}", refused.to_error().chain());
            }
            // Its answer may still come: it must not be taken for that of the next request.
            Err(error) => {
                log::debug!("who has locked the tables is unknown: {}", error.chain());
                self.link().transport.stream.shutdown();
            }
        }
    }
}
