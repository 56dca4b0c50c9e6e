//! Conditions of one Redis: how they are staged.

pub(super) mod around;
mod network;
mod process;
mod replicas;
mod rights;
mod server;

use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind::{
    Conflict, Denied, Full, Lost, NotReady, ReadOnly, Stale, Unreachable, WrongType,
};
use leasehold::observe::Listener;
use leasehold::{Builder, LockClient, Redis};

use super::calls::{second, value_of};
use super::row::{Answers, Class, DONE, Row, Stage, if_it_asks, row, unreachable};
use super::runner::IO;
use crate::rig::zookeeper::Pipe;
use crate::rig::{Fault, PROMPT, Proxy, Server, ms, wait_until};

pub(super) const CONNECTIONS: usize = 8;
/// One for renewals, one for messages, one beside the pool, and two for a diagnosis.
pub(super) const MOST: usize = CONNECTIONS + 5;
pub(super) const NAME: &str = "concerned";

type Change = Box<dyn Fn(&mut OneRedis, &[String])>;

/// What stands before the server. It ends first, because it may listen in the server's directory.
pub(super) enum Front {
    Proxy(Proxy),
    /// Delays whole streams, as a network does.
    Pipe(Pipe),
}

impl Front {
    pub(super) fn proxy(&self) -> &Proxy {
        match self {
            Self::Proxy(proxy) => proxy,
            Self::Pipe(_) => panic!("it has a pipe"),
        }
    }

    pub(super) fn pipe(&self) -> &Pipe {
        match self {
            Self::Pipe(pipe) => pipe,
            Self::Proxy(_) => panic!("it has a proxy"),
        }
    }

    /// The URL of what is behind it, at this name for 127.0.0.1.
    pub(super) fn url(&self, host: &str) -> String {
        match self {
            Self::Proxy(proxy) => proxy.url(),
            Self::Pipe(pipe) => format!("redis://{host}:{}/", pipe.port()),
        }
    }
}

/// A server with something before it, and what happens to them.
struct OneRedis {
    front: Front,
    server: Server,
    /// The client's connections are counted, and settings changed, over a connection of its own.
    admin: Option<redis::Connection>,
    /// Not while the server keeps connections that the client has ended.
    counts: bool,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    spares_others: bool,
    /// The parameters of a user, and the host, in the client's URL.
    user: &'static str,
    host: &'static str,
    settings: Box<dyn Fn(Redis) -> Redis>,
    /// Keys that may stay until their lease has ended.
    expires: Option<&'static str>,
    listener: Option<Arc<dyn Listener>>,
    lease_of_the_other: Duration,
    /// How it begins and ends.
    happens: Option<(Change, Change)>,
    names: Vec<String>,
}

impl OneRedis {
    fn behind(
        front: Front,
        server: Server,
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let admin = Some(server.connect());
        let (begins, ends): (Change, Change) = (Box::new(begins), Box::new(ends));
        Self {
            front,
            server,
            admin,
            counts: true,
            io: ms(4000),
            spares_others: false,
            user: "",
            host: "127.0.0.1",
            settings: Box::new(|redis| redis),
            expires: None,
            listener: None,
            lease_of_the_other: Duration::from_secs(30),
            happens: Some((begins, ends)),
            names: Vec::new(),
        }
    }

    fn stage(
        args: &[&str],
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let server = Server::start_with(args);
        Self::behind(Front::Proxy(Proxy::start(&server)), server, begins, ends)
    }

    fn far_away(
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let server = Server::start_tcp(&[]);
        Self::behind(Front::Pipe(Pipe::to(server.port())), server, begins, ends)
    }

    fn proxy(&self) -> &Proxy {
        self.front.proxy()
    }

    fn pipe(&self) -> &Pipe {
        self.front.pipe()
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(self) -> Self {
        Self { io: IO, ..self }
    }

    fn called(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    fn with(mut self, settings: impl Fn(Redis) -> Redis + 'static) -> Self {
        self.settings = Box::new(settings);
        self
    }

    fn knowing_a_user(self) -> Self {
        self.server.cmd::<()>(&["ACL", "SETUSER", "app", "on", ">password", "~*", "&*", "+@all"]);
        self
    }

    /// The client logs in as that user.
    fn for_a_user(self) -> Self {
        Self { user: "?user=app&pass=password", ..self.knowing_a_user() }
    }

    /// What the condition concerns is the calls' own names.
    fn sparing_others(mut self) -> Self {
        self.spares_others = true;
        self
    }

    fn cmd<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> redis::RedisResult<T> {
        let admin = self.admin.as_mut().expect("it is not over");
        redis::cmd(words[0]).arg(&words[1..]).query(admin)
    }

    fn set(&mut self, setting: &str, value: &str) {
        self.cmd::<()>(&["CONFIG", "SET", setting, value]).expect("a setting");
    }

    fn wait_for_answers(&mut self) {
        let answers = || Some(redis::cmd("PING").exec(&mut self.server.try_connect()?).is_ok());
        wait_until("it answers", || answers().unwrap_or_default());
    }

    fn start_again(&mut self) {
        self.server.start_again();
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

impl Stage for OneRedis {
    fn builder(&self) -> Builder {
        let url = format!("{}{}", self.front.url(self.host), self.user);
        let redis = (self.settings)(Redis::new(url));
        LockClient::builder().redis(redis).connections(CONNECTIONS).client_name(NAME)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.clone()
    }

    fn other(&self) -> LockClient {
        LockClient::builder()
            .url(self.server.url())
            .lease(self.lease_of_the_other)
            .build()
            .expect("it is reachable")
    }

    fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        if !self.spares_others {
            wait_for_rest(&self.server);
        }
        let happens = self.happens.take().expect("it is put back");
        happens.0(self, names);
        self.happens = Some(happens);
    }

    fn end(&mut self) {
        let (names, happens) =
            (std::mem::take(&mut self.names), self.happens.take().expect("it has begun"));
        happens.1(self, &names);
        // What they own lives as long as the stage.
        self.happens = Some(happens);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    /// What happens to the keys with these names does not happen to those of a job.
    fn offers(&self, call: &str) -> bool {
        !(self.spares_others && call.starts_with("ScheduledJob::"))
    }

    fn connections(&mut self) -> Option<(usize, usize)> {
        if !self.counts || !self.server.runs() {
            return None;
        }
        let list: String = self.cmd(&["CLIENT", "LIST"]).ok()?;
        Some((count_named(&list), MOST))
    }

    fn assert_clean(&mut self) {
        self.admin = None;
        delete_kept(&self.server, self.expires);
        self.server.assert_clean();
    }
}

/// Waits until no connection is being made: one that ends in its handshake fails the calls that
/// wait for it, whatever the condition is.
pub(super) fn wait_for_rest(server: &Server) {
    let mut admin = server.connect();
    let mut processed = || -> u64 {
        let info: String = redis::cmd("INFO").arg("stats").query(&mut admin).expect("it answers");
        let field = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        field.expect("a field of INFO").trim().parse().expect("a number")
    };
    let (mut last, mut quiet) = (0, 0);
    wait_until("the server is asked nothing for a while", || {
        std::thread::sleep(ms(50));
        // The question itself counts.
        let before = std::mem::replace(&mut last, processed());
        quiet = if last <= before + 1 { quiet + 1 } else { 0 };
        quiet == 3
    });
}

/// The connections of the client, in an answer of `CLIENT LIST`.
pub(super) fn count_named(list: &str) -> usize {
    list.lines().filter(|line| line.contains(&format!("name={NAME} "))).count()
}

/// Values are kept, and the record of a client whose server did not answer expires by itself, as
/// what `expires` describes.
pub(super) fn delete_kept(server: &Server, expires: Option<&str>) {
    let kept = [format!("*{}", value_of("")), "leasehold_client:*".to_owned()];
    for kept in kept.into_iter().chain(expires.map(str::to_owned)) {
        let keys: Vec<String> = server.cmd(&["KEYS", &kept]);
        for key in &keys {
            server.cmd::<()>(&["DEL", key]);
        }
    }
}

fn not_ready(class: Class) -> Answers {
    if_it_asks(class, &[Some(NotReady)])
}

/// A call that is already waiting does not wait for it to pass: somebody must act.
fn denied(class: Class) -> Answers {
    if class.waits() { &[Some(Denied)] } else { if_it_asks(class, &[Some(Denied)]) }
}

/// What an error says where nothing answers.
pub(super) const HANGS: &[&str] = &[
    "did not answer within",
    "could be made within the I/O timeout",
    "were busy for the I/O timeout",
    "used a new connection",
];
pub(super) const ENDED: &str = "the connection to the server ended";
pub(super) const ENDS: &[&str] = &[ENDED];

/// In the order of the guide.
pub(super) fn rows() -> Vec<Row> {
    let parts = [
        network::rows(),
        server::rows(),
        around::rows(),
        process::rows(),
        rights::rows(),
        replicas::rows(),
    ];
    parts.into_iter().flatten().collect()
}
