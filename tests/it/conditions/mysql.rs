//! Conditions of MySQL and MariaDB.

use std::time::Duration;

use leasehold::ErrorKind::{NotReady, ReadOnly};
use leasehold::{Builder, LockClient};

use super::row::{
    Answers, Class, DONE, NO_MORE_FILES, Stage, if_it_asks, may_open_files, row, unreachable,
};
use super::rows;
use super::runner::IO;
use crate::rig::mysql::Client;
use crate::rig::{Mysql, Proxy, ms, wait_until};
use crate::support::Clients;

/// The default.
const CONNECTIONS: usize = 4;
/// One for renewals, one that looks, one beside the pool, and two for a diagnosis.
const BESIDE: usize = 5;

type Change = Box<dyn Fn(&mut OnMysql)>;

/// A server behind a proxy, and what happens to it.
struct OnMysql {
    /// It ends first, because it listens in the directory of the server.
    proxy: Proxy,
    server: Mysql,
    /// Connections of others.
    strangers: Vec<Client>,
    counts: bool,
    connections: usize,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    chooses: fn(&str) -> bool,
    /// How it begins and ends.
    happens: Option<[Change; 2]>,
}

impl OnMysql {
    fn stage(settings: &[&str], happens: [fn(&mut Self); 2]) -> Self {
        let server = Mysql::start_with(settings);
        Self {
            proxy: Proxy::before_mysql(&server),
            server,
            strangers: Vec::new(),
            counts: true,
            connections: CONNECTIONS,
            io: ms(4000),
            chooses: |_| true,
            happens: Some(happens.map(|change| Box::new(change) as Change)),
        }
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(self) -> Self {
        Self { io: IO, counts: false, ..self }
    }

    fn happen(&mut self, when: usize) {
        let happens = self.happens.take().expect("it is put back");
        happens[when](self);
        self.happens = Some(happens);
    }

    /// Waits until nothing is asked: a connection that ends in its handshake fails the calls that
    /// wait for it, whatever the condition is.
    fn wait_for_rest(&self) {
        let mut db = self.server.connect();
        let (mut last, mut quiet) = (0, 0);
        wait_until("the server is asked nothing for a while", || {
            std::thread::sleep(ms(50));
            let rows = db.query("SHOW GLOBAL STATUS LIKE 'Questions'").expect("it answers");
            let now: i64 = rows[0][1].parse().expect("a number");
            // A waiter looks a few times a second.
            quiet = if now <= last + 4 { quiet + 1 } else { 0 };
            last = now;
            quiet == 3
        });
    }
}

impl Stage for OnMysql {
    fn builder(&self) -> Builder {
        LockClient::builder().url(self.proxy.url()).connections(self.connections)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        self.server.client()
    }

    fn begin(&mut self, _names: &[String]) {
        self.wait_for_rest();
        self.happen(0);
    }

    fn end(&mut self) {
        self.happen(1);
    }

    fn offers(&self, call: &str) -> bool {
        is_supported(call) && (self.chooses)(call)
    }

    fn connections(&mut self) -> Option<(usize, usize)> {
        if !self.counts {
            return None;
        }
        // And those of the other client.
        let most = self.connections + BESIDE + CONNECTIONS + 2;
        let mut looks = std::iter::from_fn(|| {
            std::thread::sleep(ms(20));
            usize::try_from(self.server.connections()).ok()
        });
        let now = looks.by_ref().take(20).find(|now| *now <= most).unwrap_or(most + 1);
        Some((now, most))
    }

    fn assert_clean(&mut self) {
        self.strangers.clear();
        self.server.assert_clean();
    }
}

/// As the guide says.
fn is_supported(call: &str) -> bool {
    let refused = [
        "Fair",
        "OwnedFair",
        "Counting",
        "CountDownLatch",
        "RateLimiter",
        "Election",
        "ScheduledJob",
        "FencedValue",
        "ValueClaim",
    ];
    let has_data = call.contains("data") || call.ends_with("::last_holder");
    !has_data && !refused.iter().any(|kind| call.starts_with(kind))
}

fn not_ready(class: Class) -> Answers {
    if_it_asks(class, &[Some(NotReady)])
}

/// Whether the call waits for what nobody has.
fn waits_for_a_lock(call: &str) -> bool {
    let verb = call.split("::").nth(1).expect("a verb");
    ["lock", "lock_owned", "read", "read_owned", "write", "write_owned", "acquire", "acquire_many"]
        .contains(&verb)
        || verb.ends_with("_for")
        || verb.ends_with("_until")
}

const HANGS: &[&str] = &[
    "did not answer within",
    "could be made within the I/O timeout",
    "were busy for the I/O timeout",
    "used a new connection",
    "other threads still wait for earlier attempts to end",
];
const ENDED: &[&str] = &["the connection to the server ended", "no server listens at"];

rows! {
    suspended: row("The server does not answer (it is suspended)", || {
        OnMysql::stage(&[], [|stage| stage.server.suspend(), |stage| stage.server.resume()]).impatient()
    }).failing(unreachable, HANGS);

    connections_ended: row("The connections of the client were ended (`KILL`)", || {
        OnMysql::stage(&[], [|stage| stage.server.end_connections(), |_| ()])
    });

    killed: row("The server is killed, and comes back", || {
        let stage = OnMysql::stage(&[], [
            |stage| {
                stage.proxy.refuse(true);
                stage.proxy.cut_all();
                stage.server.kill();
                stage.proxy.refuse(false);
            },
            |stage| stage.server.run(),
        ]);
        OnMysql { counts: false, ..stage }
    }).failing(unreachable, ENDED);

    read_only: row("The server becomes read-only (`read_only`), and connections begin anew", || {
        OnMysql::stage(&[], [
            |stage| {
                stage.server.query("SET GLOBAL read_only=1");
                stage.server.end_connections();
            },
            |stage| drop(stage.server.query("SET GLOBAL read_only=0")),
        ])
    }).failing(|class| if_it_asks(class, &[Some(ReadOnly)]), &["a replica or read-only"]);

    full_of_connections: row("The server has reached its `max_connections`, and the client's have ended", || {
        let stage = OnMysql::stage(&[], [
            |stage| {
                // More than the limit, which is lowered then: so no connection gets in between.
                stage.strangers = (0..14).map(|_| stage.server.connect()).collect();
                stage.strangers[0].query("SET GLOBAL max_connections=10").expect("it obeys");
                let of_clients = "SELECT id FROM information_schema.processlist WHERE db=DATABASE()";
                let own: Vec<String> = stage
                    .strangers
                    .iter_mut()
                    .map(|one| one.query("SELECT CONNECTION_ID()").expect("it answers")[0][0].clone())
                    .collect();
                let db = &mut stage.strangers[0];
                for id in db.query(of_clients).expect("it answers") {
                    if !own.contains(&id[0]) {
                        let _ = db.query(&format!("KILL CONNECTION {}", id[0]));
                    }
                }
                wait_until("they have ended", || {
                    db.query(of_clients).expect("it answers").len() == own.len()
                });
            },
            |stage| {
                stage.strangers[0].query("SET GLOBAL max_connections=151").expect("it obeys");
                stage.strangers.clear();
            },
        ]);
        OnMysql { counts: false, ..stage }
    }).failing(not_ready, &["max_connections"]);

    no_more_files: row(NO_MORE_FILES, || {
        let stage = OnMysql::stage(&[], [|_| may_open_files(false), |_| may_open_files(true)]);
        OnMysql { counts: false, ..stage }
    }).alone();

    rows_locked: row("A stranger has locked the rows of the locks (`SELECT .. FOR UPDATE`)", || {
        let stage = OnMysql::stage(&[], [
            |stage| {
                let mut db = stage.server.connect();
                // Also of names that nobody has used yet.
                let jobs: Vec<String> = (0..200).map(|n| format!("('job-{n}')")).collect();
                db.query(&format!("INSERT IGNORE INTO leasehold_lock (name) VALUES {}", jobs.join(",")))
                    .expect("it obeys");
                db.query("START TRANSACTION; SELECT * FROM leasehold_lock WHERE name LIKE 'job-%' FOR UPDATE")
                    .expect("it obeys");
                stage.strangers.push(db);
            },
            |stage| stage.strangers.clear(),
        ]);
        // Each call that waits for a row keeps a connection busy.
        OnMysql { connections: 50, counts: false, chooses: |call| !waits_for_a_lock(call), ..stage }
    }).failing(
        |class| if matches!(class, Class::Look | Class::List) { DONE } else { not_ready(class) },
        &["end the transaction that has locked the row", "another transaction has locked the row"],
    );
}
