//! Conditions of PostgreSQL: how they are staged.

mod blocked;
mod network;
mod rights;
mod server;

use std::time::Duration;

use leasehold::ErrorKind::{Denied, Lost, NotReady, ReadOnly, Unreachable};
use leasehold::{Builder, LockClient};

use super::row::{Answers, Class, DONE, Row, Stage, if_it_asks, row, unreachable};
use super::runner::IO;
use crate::rig::zookeeper::Pipe;
use crate::rig::{Fault, Postgres, Proxy, ms, role_grants, wait_until};

/// The default.
const CONNECTIONS: usize = 4;
/// One for renewals, one for messages, one beside the pool, and two for a diagnosis.
const BESIDE: usize = 5;
const NAME: &str = "concerned";

type Change = Box<dyn Fn(&mut OnPostgres, &[String])>;

/// What stands before the server. It ends first, because it may listen in the server's directory.
enum Front {
    Proxy(Proxy),
    /// Delays whole streams, as a network does.
    Pipe(Pipe),
}

/// A server with something before it, and what happens to them.
struct OnPostgres {
    front: Front,
    /// Connections of others.
    strangers: Vec<postgres::Client>,
    /// The client's connections are counted, and settings changed, over a connection of its own.
    admin: Option<postgres::Client>,
    server: Postgres,
    /// It follows the server, until that ends.
    standby: Option<Postgres>,
    /// Who logs in.
    role: &'static str,
    counts: bool,
    connections: usize,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    spares_others: bool,
    /// Whether holds may stay until their lease has ended.
    expires: bool,
    chooses: fn(&str) -> bool,
    /// How it begins and ends.
    happens: Option<(Change, Change)>,
    names: Vec<String>,
}

impl OnPostgres {
    fn behind(
        front: Front,
        server: Postgres,
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let mut admin = server.connect();
        admin.batch_execute(leasehold::POSTGRES_SCHEMA).expect("the schema");
        let (begins, ends): (Change, Change) = (Box::new(begins), Box::new(ends));
        Self {
            front,
            strangers: Vec::new(),
            admin: Some(admin),
            server,
            standby: None,
            role: "leasehold",
            counts: true,
            connections: CONNECTIONS,
            io: ms(4000),
            spares_others: false,
            expires: false,
            chooses: |_| true,
            happens: Some((begins, ends)),
            names: Vec::new(),
        }
    }

    fn stage(
        settings: &str,
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let server = Postgres::start_with(settings);
        Self::behind(Front::Proxy(Proxy::before_postgres(&server)), server, begins, ends)
    }

    fn far_away(
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let server = Postgres::start_on_a_port("");
        Self::behind(Front::Pipe(Pipe::to(server.number())), server, begins, ends)
    }

    /// The client logs in as a role that has the rights of the guide, and no others.
    fn for_a_role(mut self) -> Self {
        self.sql(&format!("CREATE ROLE app LOGIN; {}", role_grants()));
        Self { role: "app", ..self }
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(mut self) -> Self {
        self.io = IO;
        self
    }

    fn sparing_others(mut self) -> Self {
        self.spares_others = true;
        self
    }

    fn proxy(&self) -> &Proxy {
        match &self.front {
            Front::Proxy(proxy) => proxy,
            Front::Pipe(_) => panic!("it has a pipe"),
        }
    }

    fn pipe(&self) -> &Pipe {
        match &self.front {
            Front::Pipe(pipe) => pipe,
            Front::Proxy(_) => panic!("it has a proxy"),
        }
    }

    fn url(&self) -> String {
        let url = match &self.front {
            Front::Proxy(proxy) => {
                let number =
                    proxy.url().rsplit('=').next().expect("its port").parse().expect("a number");
                self.url_with(number)
            }
            Front::Pipe(pipe) => format!("postgres://leasehold@127.0.0.1:{}/postgres", pipe.port()),
        };
        url.replace("leasehold@", &format!("{}@", self.role))
    }

    /// The socket with this number before the server, and its standby.
    fn url_with(&self, number: u16) -> String {
        let hosts: Vec<_> = std::iter::once(&self.server).chain(&self.standby).collect();
        let dirs: Vec<_> = hosts.iter().map(|host| host.dir().display().to_string()).collect();
        let standbys = self.standby.iter().map(Postgres::number);
        let ports: Vec<_> =
            std::iter::once(number).chain(standbys).map(|number| number.to_string()).collect();
        format!("postgres://leasehold@/postgres?host={}&port={}", dirs.join(","), ports.join(","))
    }

    fn admin(&mut self) -> &mut postgres::Client {
        self.admin.as_mut().expect("the server runs")
    }

    fn sql(&mut self, sql: &str) {
        self.admin().batch_execute(sql).expect("it obeys");
    }

    /// For all sessions, also those that there are.
    fn set(&mut self, setting: &str) {
        self.sql(&format!("ALTER SYSTEM SET {setting}"));
        self.sql("SELECT pg_reload_conf()");
    }

    /// The same, and waits until each of the client's sessions has read it, for which it wakes up.
    fn set_in_all(&mut self, setting: &str) {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{NAME}'");
        let rows = self.admin().query(&sql, &[]).expect("it answers");
        let pids = rows.iter().map(|row| row.get(0));
        let sessions: Vec<(i32, u64)> = pids.filter_map(|pid| Some((pid, sleeps(pid)?))).collect();
        self.set(setting);
        wait_until("each session has read it", || {
            sessions.iter().all(|(pid, before)| sleeps(*pid).is_none_or(|now| now > *before))
        });
    }

    /// A connection of somebody else, who leaves this transaction open.
    fn a_stranger_begins(&mut self, sql: &str) {
        let mut stranger = self.server.connect();
        stranger
            .batch_execute(&format!("SET application_name = 'the-stranger'; BEGIN; {sql}"))
            .expect("it obeys");
        self.strangers.push(stranger);
    }

    fn strangers_end(&mut self) {
        for stranger in self.strangers.drain(..) {
            stranger.close().expect("it ends");
        }
    }

    /// The connections of the client.
    fn of_client(&mut self, counted: &str) -> i64 {
        let sql =
            format!("SELECT {counted} FROM pg_stat_activity WHERE application_name = '{NAME}'");
        self.admin().query_one(&sql, &[]).expect("it answers").get(0)
    }

    /// Waits until each of them has ended.
    fn end_connections(&mut self) {
        self.of_client("count(pg_terminate_backend(pid, 5000))");
    }

    /// Waits until no connection is being made, and nothing is asked: a connection that ends in its
    /// handshake fails the calls that wait for it, whatever the condition is.
    fn wait_for_rest(&mut self) {
        let (mut last, mut quiet) = (0, 0);
        wait_until("the server is asked nothing for a while", || {
            std::thread::sleep(ms(50));
            // It changes with each connection and each request.
            let now = self.of_client(
                "coalesce(sum(extract(epoch FROM state_change) * 1000000), 0)::bigint \
                 * CASE WHEN bool_and(state = 'idle') THEN 1 ELSE -1 END",
            );
            quiet = if now == last && now >= 0 { quiet + 1 } else { 0 };
            last = now;
            quiet == 3
        });
    }

    fn run_again(&mut self) {
        self.server.run();
        self.admin = Some(self.server.connect());
    }

    /// Each exchange meets it, until [`Self::heal`].
    fn each_meets(&mut self, fault: Fault) {
        self.proxy().inject_times("", u32::MAX, fault);
    }

    fn heal(&mut self) {
        self.proxy().disarm();
    }
}

impl Stage for OnPostgres {
    fn builder(&self) -> Builder {
        LockClient::builder().url(self.url()).connections(self.connections).client_name(NAME)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        LockClient::builder()
            .url(self.url_with(self.server.number()))
            .client_name("other")
            .build()
            .expect("it is reachable")
    }

    fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        if !self.spares_others {
            self.wait_for_rest();
        }
        let happens = self.happens.take().expect("it is put back");
        happens.0(self, names);
        self.happens = Some(happens);
    }

    fn end(&mut self) {
        let (names, happens) =
            (std::mem::take(&mut self.names), self.happens.take().expect("it has begun"));
        happens.1(self, &names);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    /// Tokens fence transactions of the same database instead.
    fn offers(&self, call: &str) -> bool {
        let refused = ["FencedValue", "ValueClaim", "RateLimiter"];
        !refused.iter().any(|kind| call.starts_with(kind)) && (self.chooses)(call)
    }

    /// The backend of a connection that the client has closed takes a moment to end.
    fn connections(&mut self) -> Option<(usize, usize)> {
        if !self.counts || self.admin.is_none() {
            return None;
        }
        let most = self.connections + BESIDE;
        let mut looks = std::iter::from_fn(|| Some(self.of_client("count(*)"))).take(20);
        let fits = |now: &i64| {
            let fits = usize::try_from(*now).is_ok_and(|now| now <= most);
            if !fits {
                std::thread::sleep(ms(20));
            }
            fits
        };
        let now = looks.find(fits).map_or(most + 1, |now| usize::try_from(now).expect("a number"));
        Some((now, most))
    }

    fn assert_clean(&mut self) {
        self.strangers.clear();
        self.admin = None;
        let server = self.standby.as_ref().unwrap_or(&self.server);
        // The record of a client whose server did not answer expires by itself.
        server.run_sql("DELETE FROM leasehold.client");
        if self.expires {
            server.run_sql(
                "DELETE FROM leasehold.waiter; DELETE FROM leasehold.share; \
                 UPDATE leasehold.lock SET holder = NULL, ends = '-infinity', barred = '-infinity'",
            );
        }
        server.assert_clean();
    }
}

/// How often a process has begun to wait for something. `None`: it has ended, as a session does
/// that a client has closed.
fn sleeps(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Some(field.expect("a field of the kernel").trim().parse().expect("a number"))
}

fn not_ready(class: Class) -> Answers {
    if_it_asks(class, &[Some(NotReady)])
}

/// A call that is already waiting does not wait for it to pass: somebody must act.
fn denied(class: Class) -> Answers {
    if class.waits() { &[Some(Denied)] } else { if_it_asks(class, &[Some(Denied)]) }
}

/// What an error says where nothing answers.
// Without the last.
const HANGS: &[&str] = HANGS_OR_LOCKED.split_at(5).0;
const HANGS_OR_LOCKED: &[&str] = &[
    "did not answer within",
    "could be made within the I/O timeout",
    "were busy for the I/O timeout",
    "used a new connection",
    "other threads still wait for earlier attempts to end",
    "due to lock timeout",
];
const ENDED: &str = "the connection to the server ended";
const ENDS: &[&str] = &[ENDED];

/// In the order of the guide.
pub(super) fn rows() -> Vec<Row> {
    [network::rows(), server::rows(), blocked::rows(), rights::rows()]
        .into_iter()
        .flatten()
        .collect()
}
