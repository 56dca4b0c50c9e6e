//! The statements: each is one call of a function in the schema `leasehold_v2`, except those that
//! list what is in the tables.

use super::wire::Statement;
use crate::store::FenceStatements;

/// For transactions of users.
pub(super) const FENCE: FenceStatements = FenceStatements {
    at_once: "SELECT leasehold_v2.fence($1, $2)",
    at_commit: "SELECT leasehold_v2.fence_at_commit($1, $2)",
};

/// Gives each statement its number.
macro_rules! statements {
    ($($name:ident = $id:literal: $sql:literal;)*) => {
        $(pub(super) static $name: Statement = Statement { id: $id, sql: $sql };)*

        #[cfg(test)]
        static ALL: &[&Statement] = &[$(&$name),*];
    };
}

// The null is the not-after: a connection that has failed is ended at the server instead.
statements! {
    ACQUIRE = 0: "SELECT status, value FROM leasehold_v2.acquire($1, $2, $3, $4, $5, NULL, $6)";
    ACQUIRE_NOW = 1: "SELECT status, value FROM leasehold_v2.acquire_now($1, $2, $3, $4, $5, NULL, $6)";
    RELEASE = 2: "SELECT status, value FROM leasehold_v2.release($1, $2, $3, $4)";
    RENEW = 3: "SELECT leasehold_v2.renew($1, $2, $3, $4)";
    FAIR_ACQUIRE = 4: "SELECT status, value, place, next FROM leasehold_v2.fair_acquire($1, $2, $3, $4, $5, $6, $7, NULL)";
    FAIR_RELEASE = 5: "SELECT status, value, next FROM leasehold_v2.fair_release($1, $2, $3, $4, $5)";
    MULTI_ACQUIRE = 6: "SELECT status, value, at, tokens FROM leasehold_v2.multi_acquire($1, $2, $3, $4, $5, $6, NULL)";
    MULTI_RELEASE = 7: "SELECT leasehold_v2.multi_release($1, $2, $3, $4)";
    READ_ACQUIRE = 8: "SELECT status, value FROM leasehold_v2.read_acquire($1, $2, $3, $4, $5, NULL)";
    WRITE_ACQUIRE = 9: "SELECT status, value FROM leasehold_v2.write_acquire($1, $2, $3, $4, $5, NULL)";
    RW_RELEASE = 10: "SELECT status, value FROM leasehold_v2.rw_release($1, $2, $3, $4, $5)";
    PERMIT_ACQUIRE = 11: "SELECT status, value FROM leasehold_v2.permit_acquire($1, $2, $3, $4, $5, NULL)";
    PERMIT_RELEASE = 12: "SELECT status, value FROM leasehold_v2.permit_release($1, $2, $3)";
    COUNT = 13: "SELECT status, value FROM leasehold_v2.count($1, $2, $3, $4, $5, $6, $7, $8, NULL, $9)";
    INSPECT = 14: "SELECT kind, holder, level, ms FROM leasehold_v2.inspect($1)";
    COUNTED = 15: "SELECT status, number, more FROM leasehold_v2.counted($1, $2)";
    QUEUE = 16: "SELECT length, ahead FROM leasehold_v2.queue($1, $2)";
    FORCE = 17: "SELECT leasehold_v2.force($1, $2, $3)";
    SWEEP = 18: "SELECT leasehold_v2.sweep($1, $2)";
    // Process ids are reused; the start time identifies the backend.
    KILL = 19: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE pid = $1::int AND (extract(epoch FROM backend_start) * 1000000.0)::bigint = $2::bigint";
    IS_THERE = 20: "SELECT count(*) FROM pg_stat_activity \
                    WHERE pid = $1::int AND (extract(epoch FROM backend_start) * 1000000.0)::bigint = $2::bigint";
    KEEP = 21: "SELECT status, value FROM leasehold_v2.keep($1, $2, $3, $4)";
    MULTI_KEEP = 22: "SELECT leasehold_v2.multi_keep($1, $2, $3, $4, $5)";
    ANNOUNCE = 23: "SELECT leasehold_v2.announce($1, $2, $3)";
    WITHDRAW = 24: "SELECT leasehold_v2.withdraw($1)";
    ANNOUNCED = 25: "SELECT owner, ms FROM leasehold_v2.announced($1)";
    // Not a function, so that it also runs if an earlier release has installed the schema.
    LIST = 26: "WITH page AS MATERIALIZED (SELECT * FROM leasehold.lock WHERE name >= $1 AND name > $2 ORDER BY name LIMIT $3::bigint) \
                SELECT name, 0 AS part, kind::text, holder, level, \
                CASE WHEN ends > clock_timestamp() THEN leasehold_v2.ms(ends - clock_timestamp()) END, \
                number, token, (barred > clock_timestamp())::int, 0::bigint AS place FROM page \
                UNION ALL SELECT s.name, 1, NULL, s.holder, s.level, leasehold_v2.ms(s.ends - clock_timestamp()), NULL, NULL, NULL, 0 \
                FROM page JOIN leasehold.share s USING (name) WHERE s.ends > clock_timestamp() \
                UNION ALL SELECT w.name, 2, NULL, w.holder, 0, leasehold_v2.ms(w.deadline - clock_timestamp()), NULL, NULL, NULL, w.place \
                FROM page JOIN leasehold.waiter w USING (name) WHERE w.deadline > clock_timestamp() \
                ORDER BY name, part, place, holder";
    ANNOUNCED_BY_ALL = 27: "SELECT id, owner, leasehold_v2.ms(ends - clock_timestamp()) FROM leasehold.client \
                            WHERE ends > clock_timestamp() LIMIT $1::bigint";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_has_its_number() {
        for (place, statement) in ALL.iter().enumerate() {
            assert_eq!(usize::from(statement.id), place, "{}", statement.sql);
        }
        assert!(ALL.len() <= 64);
    }
}
