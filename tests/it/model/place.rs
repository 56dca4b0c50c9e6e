//! The store of a run, and its contents.

use std::cell::RefCell;
use std::collections::BTreeMap;

#[cfg(feature = "testing")]
use leasehold::Primitive;
#[cfg(feature = "testing")]
use leasehold::observe::LockReport;
#[cfg(feature = "testing")]
use leasehold::testing::Faults;
use leasehold::{Builder, LockClient};

use super::NAME;
#[cfg(feature = "mysql")]
use crate::rig::Mysql;
#[cfg(feature = "postgres")]
use crate::rig::Postgres;
use crate::rig::{Proxy, Server};
use crate::support::Clients;

/// A server, and a connection to inspect it without the clients; or the memory of this process.
#[allow(clippy::large_enum_variant, reason = "a test has one of them")]
pub(super) enum Place {
    Redis {
        connection: RefCell<redis::Connection>,
        server: Server,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        connection: RefCell<postgres::Client>,
        server: Postgres,
    },
    #[cfg(feature = "mysql")]
    Mysql {
        connection: RefCell<crate::rig::mysql::Client>,
        server: Mysql,
    },
    /// Its contents are those that a client reports.
    #[cfg(feature = "testing")]
    Memory {
        client: LockClient,
        faults: Faults,
    },
}

/// The holders with their levels, whether they read or write, and what else is stored for locks.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By holder; a writer's id ends with `:write`.
    pub(super) levels: BTreeMap<String, usize>,
    /// The mode of a read-write lock.
    pub(super) mode: Option<String>,
    /// The levels of all readers.
    pub(super) read_levels: usize,
    /// Entries in queues, the marker of a waiting writer.
    pub(super) others: Vec<String>,
}

impl Place {
    pub(super) fn redis() -> Self {
        let server = Server::start();
        Self::Redis { connection: RefCell::new(server.connect()), server }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres() -> Self {
        let server = Postgres::shared();
        server.run_sql(leasehold::POSTGRES_SCHEMA);
        Self::Postgres { connection: RefCell::new(server.connect()), server }
    }

    #[cfg(feature = "mysql")]
    pub(super) fn mysql() -> Self {
        let server = Mysql::shared();
        // It makes the tables.
        server.client();
        Self::Mysql { connection: RefCell::new(server.connect()), server }
    }

    #[cfg(feature = "testing")]
    pub(super) fn memory() -> Self {
        let client = LockClient::in_memory();
        Self::Memory { faults: Faults::of(&client).unwrap(), client }
    }

    /// `None` in memory, where no reply can be lost.
    pub(super) fn proxy(&self) -> Option<Proxy> {
        match self {
            Self::Redis { server, .. } => Some(Proxy::start(server)),
            #[cfg(feature = "postgres")]
            Self::Postgres { server, .. } => Some(Proxy::before_postgres(server)),
            #[cfg(feature = "mysql")]
            Self::Mysql { server, .. } => Some(Proxy::before_mysql(server)),
            #[cfg(feature = "testing")]
            Self::Memory { .. } => None,
        }
    }

    /// A client through the proxy, if there is one.
    pub(super) fn open(&self, builder: Builder, proxy: Option<&Proxy>) -> LockClient {
        match (self, proxy) {
            #[cfg(feature = "testing")]
            (Self::Memory { client, .. }, _) => builder.build_in_memory_shared(client).unwrap(),
            (_, proxy) => builder.url(proxy.expect("it has one").url()).build().unwrap(),
        }
    }

    #[cfg(feature = "testing")]
    fn report(client: &LockClient) -> Option<LockReport> {
        client.inspect(NAME).unwrap()
    }

    /// A client that bypasses the proxy.
    pub(super) fn client(&self) -> LockClient {
        match self {
            Self::Redis { server, .. } => server.client(),
            #[cfg(feature = "postgres")]
            Self::Postgres { server, .. } => server.client(),
            #[cfg(feature = "mysql")]
            Self::Mysql { server, .. } => server.client(),
            #[cfg(feature = "testing")]
            Self::Memory { client, .. } => LockClient::in_memory_shared(client).unwrap(),
        }
    }

    /// Whether permits become available as soon as their lease ends. In Redis the next call returns
    /// them.
    pub(super) fn frees_ended_permits_at_once(&self) -> bool {
        !matches!(self, Self::Redis { .. })
    }

    fn cmd<T: redis::FromRedisValue>(
        connection: &RefCell<redis::Connection>,
        words: &[&[u8]],
    ) -> T {
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(*word);
        }
        cmd.query(&mut connection.borrow_mut()).unwrap()
    }

    pub(super) fn held(&self) -> Held {
        match self {
            Self::Redis { server, .. } => {
                let mut hash = server.hash(NAME);
                let mode = hash.remove("mode");
                let levels = hash
                    .into_iter()
                    .map(|(holder, levels)| (holder, levels.parse().unwrap()))
                    .collect();
                let keys = server.lock_keys().into_iter().filter(|key| key != NAME);
                let (reads, others): (Vec<_>, Vec<_>) =
                    keys.partition(|key| key.contains(":rwlock_timeout:"));
                Held { levels, mode, read_levels: reads.len(), others }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                let sql = "SELECT holder || CASE kind WHEN 'r' THEN ':write' ELSE '' END, level, kind = 'r', false \
                               FROM leasehold.lock WHERE holder IS NOT NULL AND ends > clock_timestamp() \
                           UNION ALL SELECT holder, level, true, true FROM leasehold.share WHERE ends > clock_timestamp()";
                let mut held = Held::default();
                for row in connection.borrow_mut().query(sql, &[]).unwrap() {
                    let level = usize::try_from(row.get::<_, i32>(1)).unwrap();
                    held.levels.insert(row.get(0), level);
                    let (of_both, reads): (bool, bool) = (row.get(2), row.get(3));
                    held.mode = of_both.then(|| if reads { "read" } else { "write" }.to_owned());
                    held.read_levels += if reads { level } else { 0 };
                }
                let sql = "SELECT holder || ' waits' FROM leasehold.waiter \
                           UNION ALL SELECT bars || ' bars' FROM leasehold.lock WHERE barred > clock_timestamp()";
                held.others = connection
                    .borrow_mut()
                    .query(sql, &[])
                    .unwrap()
                    .iter()
                    .map(|row| row.get(0))
                    .collect();
                held
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { connection, .. } => {
                let now = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
                let sql = format!(
                    "SELECT holder,level,0 FROM leasehold_lock WHERE LEFT(holder,1)<>'~' AND ends>{now} \
                     UNION ALL SELECT holder,level,1 FROM leasehold_share WHERE level>=0 AND ends>{now}"
                );
                let mut held = Held::default();
                for row in connection.borrow_mut().query(&sql).unwrap() {
                    let [holder, level, shares] = row.try_into().unwrap();
                    let level: usize = level.parse().unwrap();
                    if level == 0 {
                        held.others.push(format!("{holder} bars"));
                        continue;
                    }
                    let reads = shares == "1";
                    let of_both = reads || holder.ends_with(":write");
                    held.levels.insert(holder, level);
                    held.mode = of_both.then(|| if reads { "read" } else { "write" }.to_owned());
                    held.read_levels += if reads { level } else { 0 };
                }
                held
            }
            #[cfg(feature = "testing")]
            Self::Memory { client, .. } => {
                let mut held = Held::default();
                let Some(report) = Self::report(client) else { return held };
                for lock in report.locks() {
                    let (reads, writes) =
                        (lock.primitive() == Primitive::Read, lock.primitive() == Primitive::Write);
                    for holder in lock.holders() {
                        let level = usize::try_from(holder.hold_count()).unwrap();
                        held.levels.insert(
                            format!("{}{}", holder.id(), if writes { ":write" } else { "" }),
                            level,
                        );
                        held.read_levels += if reads { level } else { 0 };
                        held.mode = (reads || writes)
                            .then(|| if reads { "read" } else { "write" }.to_owned());
                    }
                }
                held.others = report.queue().iter().map(|waiter| waiter.id().to_owned()).collect();
                held
            }
        }
    }

    /// The waiters of a fair lock, in order.
    pub(super) fn queue(&self) -> Vec<String> {
        match self {
            Self::Redis { connection, .. } => Self::cmd(
                connection,
                &[b"LRANGE", format!("redisson_lock_queue:{{{NAME}}}").as_bytes(), b"0", b"-1"],
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                let rows = connection
                    .borrow_mut()
                    .query("SELECT holder FROM leasehold.waiter ORDER BY place", &[]);
                rows.unwrap().iter().map(|row| row.get(0)).collect()
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { .. } => unreachable!("it has no fair locks"),
            #[cfg(feature = "testing")]
            Self::Memory { .. } => self.held().others,
        }
    }

    /// Whether a queue entry or permits can be made to look as if their client had died.
    pub(super) fn has_the_dead(&self) -> bool {
        #[cfg(feature = "testing")]
        if matches!(self, Self::Memory { .. }) {
            return false;
        }
        true
    }

    /// Appends a waiter whose timeout is over to the queue.
    pub(super) fn add_dead_waiter(&self, holder: &str) {
        match self {
            Self::Redis { connection, .. } => {
                let queue = format!("redisson_lock_queue:{{{NAME}}}");
                Self::cmd::<u32>(connection, &[b"RPUSH", queue.as_bytes(), holder.as_bytes()]);
                let deadlines = format!("redisson_lock_timeout:{{{NAME}}}");
                Self::cmd::<u32>(
                    connection,
                    &[b"ZADD", deadlines.as_bytes(), b"1", holder.as_bytes()],
                );
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                let sql = "INSERT INTO leasehold.waiter VALUES \
                           ($1, nextval('leasehold.place'), $2, 'gone', now() - interval '1 s')";
                connection.borrow_mut().execute(sql, &[&NAME, &holder]).unwrap();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { .. } => unreachable!("it has no fair locks"),
            #[cfg(feature = "testing")]
            Self::Memory { .. } => unreachable!("no client dies in memory"),
        }
    }

    /// The number of free permits, or the count; `None` if it is not set.
    pub(super) fn free(&self) -> Option<i64> {
        match self {
            Self::Redis { connection, .. } => Self::cmd(connection, &[b"GET", NAME.as_bytes()]),
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                let sql = "SELECT number - (SELECT coalesce(sum(level), 0) FROM leasehold.share s \
                           WHERE s.name = k.name AND ends > clock_timestamp()) FROM leasehold.lock k";
                connection.borrow_mut().query_opt(sql, &[]).unwrap().and_then(|row| row.get(0))
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { connection, .. } => {
                let sql = "SELECT level FROM leasehold_lock WHERE holder='~s'";
                let number: i64 =
                    connection.borrow_mut().query(sql).unwrap().first()?[0].parse().unwrap();
                Some(number - i64::try_from(self.taken()).unwrap())
            }
            #[cfg(feature = "testing")]
            Self::Memory { client, .. } => {
                let report = Self::report(client)?;
                report.number().or_else(|| report.locks().first()?.number())
            }
        }
    }

    /// How many permits with leases are taken.
    pub(super) fn taken(&self) -> usize {
        match self {
            Self::Redis { .. } => self.members().len(),
            #[cfg(feature = "postgres")]
            Self::Postgres { .. } => self.held().read_levels,
            #[cfg(feature = "mysql")]
            Self::Mysql { .. } => self.held().read_levels,
            #[cfg(feature = "testing")]
            Self::Memory { client, .. } => {
                client.semaphore(NAME).acquired_permits().unwrap() as usize
            }
        }
    }

    /// The stored acquisitions of permits.
    pub(super) fn members(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Redis { connection, .. } => Self::cmd(
                connection,
                &[b"ZRANGE", format!("{{{NAME}}}:timeout").as_bytes(), b"0", b"-1"],
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres { .. } => {
                self.held().levels.into_keys().map(String::into_bytes).collect()
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { .. } => self.held().levels.into_keys().map(String::into_bytes).collect(),
            #[cfg(feature = "testing")]
            Self::Memory { .. } => Vec::new(),
        }
    }

    /// Ends the lease of these permits.
    pub(super) fn end_permits(&self, members: &[Vec<u8>]) {
        for member in members {
            match self {
                Self::Redis { connection, .. } => {
                    let key = format!("{{{NAME}}}:timeout");
                    Self::cmd::<u32>(connection, &[b"ZADD", key.as_bytes(), b"1", member]);
                }
                #[cfg(feature = "postgres")]
                Self::Postgres { connection, .. } => {
                    let holder = std::str::from_utf8(member).unwrap();
                    let sql = "UPDATE leasehold.share SET ends = now() - interval '1 s' WHERE holder = $1";
                    connection.borrow_mut().execute(sql, &[&holder]).unwrap();
                }
                #[cfg(feature = "mysql")]
                Self::Mysql { connection, .. } => {
                    let holder = std::str::from_utf8(member).unwrap();
                    let sql = format!("UPDATE leasehold_share SET ends=1 WHERE holder='{holder}'");
                    connection.borrow_mut().query(&sql).unwrap();
                }
                #[cfg(feature = "testing")]
                Self::Memory { .. } => unreachable!("no client dies in memory"),
            }
        }
    }

    /// Deletes all holds, queue entries and counts.
    pub(super) fn delete_all(&self) {
        match self {
            Self::Redis { connection, server } => {
                let keys = server.lock_keys();
                if !keys.is_empty() {
                    let keys = keys.iter().map(String::as_bytes);
                    let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys).collect();
                    Self::cmd::<u32>(connection, &words);
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                // The row itself is kept, with its token.
                let sql = "UPDATE leasehold.lock SET holder = NULL, level = 0, number = NULL, \
                               barred = '-infinity', bars = NULL; \
                           DELETE FROM leasehold.share; DELETE FROM leasehold.waiter";
                connection.borrow_mut().batch_execute(sql).unwrap();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { connection, .. } => {
                let sql =
                    "UPDATE leasehold_lock SET holder=NULL,level=0; DELETE FROM leasehold_share";
                connection.borrow_mut().query(sql).unwrap();
            }
            #[cfg(feature = "testing")]
            Self::Memory { faults, .. } => drop(faults.lose(NAME)),
        }
    }

    /// Deletes the scripts or functions that clients know to be on the server.
    pub(super) fn forget_scripts(&self) {
        match self {
            Self::Redis { connection, .. } => Self::cmd(connection, &[b"SCRIPT", b"FLUSH"]),
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, .. } => {
                connection.borrow_mut().batch_execute(leasehold::POSTGRES_SCHEMA).unwrap();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { .. } => {}
            #[cfg(feature = "testing")]
            Self::Memory { .. } => {}
        }
    }

    #[track_caller]
    pub(super) fn assert_clean(self) {
        match self {
            Self::Redis { connection, server } => {
                drop(connection);
                server.assert_clean();
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { connection, server } => {
                drop(connection);
                server.assert_clean();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql { connection, server } => {
                drop(connection);
                server.assert_clean();
            }
            #[cfg(feature = "testing")]
            Self::Memory { faults, .. } => assert_eq!(faults.held(), [""; 0]),
        }
    }
}
