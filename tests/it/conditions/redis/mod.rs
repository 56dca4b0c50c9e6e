//! Conditions of one Redis: how they are staged.

mod around;
mod network;
mod rights;
mod server;

use std::sync::Arc;

use leasehold::ErrorKind::{Conflict, Denied, Full, Lost, NotReady, ReadOnly, Stale, Unreachable, WrongType};
use leasehold::observe::Listener;
use leasehold::{Builder, LockClient, Redis};

use super::calls::{second, value_of};
use super::row::{Answers, Class, Row, Stage};
use crate::rig::zookeeper::Pipe;
use crate::rig::{Fault, Proxy, Server, ms, wait_until};

const CONNECTIONS: usize = 8;
/// One for renewals, one for messages, one beside the pool, and two for a diagnosis.
const MOST: usize = CONNECTIONS + 5;
const NAME: &str = "concerned";

type Change = Box<dyn Fn(&mut OneRedis, &[String])>;

/// What stands before the server. It ends first, because it may listen in the server's directory.
enum Front {
    Proxy(Proxy),
    /// Delays whole streams, as a network does.
    Pipe(Pipe),
}

/// A server with something before it, and what happens to them.
struct OneRedis {
    front: Front,
    server: Server,
    /// The client's connections are counted, and settings changed, over a connection of its own.
    admin: Option<redis::Connection>,
    /// Not while the server keeps connections that the client has ended.
    counts: bool,
    spares_others: bool,
    /// The parameters of a user, and the host, in the client's URL.
    user: &'static str,
    host: &'static str,
    settings: Box<dyn Fn(Redis) -> Redis>,
    /// Keys that may stay until their lease has ended.
    expires: Option<&'static str>,
    listener: Option<Arc<dyn Listener>>,
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
            spares_others: false,
            user: "",
            host: "127.0.0.1",
            settings: Box::new(|redis| redis),
            expires: None,
            listener: None,
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

    fn called(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    fn with(mut self, settings: impl Fn(Redis) -> Redis + 'static) -> Self {
        self.settings = Box::new(settings);
        self
    }

    /// The client logs in as `app`.
    fn for_a_user(mut self) -> Self {
        self.server.cmd::<()>(&["ACL", "SETUSER", "app", "on", ">password", "~*", "&*", "+@all"]);
        self.user = "?user=app&pass=password";
        self
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
        let url = match &self.front {
            Front::Proxy(proxy) => format!("{}{}", proxy.url(), self.user),
            Front::Pipe(pipe) => format!("redis://{}:{}/", self.host, pipe.port()),
        };
        let redis = (self.settings)(Redis::new(url));
        LockClient::builder().redis(redis).connections(CONNECTIONS).client_name(NAME)
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.clone()
    }

    fn other(&self) -> LockClient {
        LockClient::builder().url(self.server.url()).build().expect("it is reachable")
    }

    fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        let happens = self.happens.take().expect("it is put back");
        happens.0(self, names);
        self.happens = Some(happens);
    }

    fn end(&mut self) {
        let (names, happens) = (std::mem::take(&mut self.names), self.happens.take().expect("it has begun"));
        happens.1(self, &names);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    fn connections(&mut self) -> Option<(usize, usize)> {
        if !self.counts || !self.server.runs() {
            return None;
        }
        let list: String = self.cmd(&["CLIENT", "LIST"]).ok()?;
        Some((list.lines().filter(|line| line.contains(&format!("name={NAME} "))).count(), MOST))
    }

    fn assert_clean(&mut self) {
        self.admin = Some(self.server.connect());
        // Values are kept, and the record of a client whose server did not answer expires by itself.
        let kept = [format!("*{}", value_of("")), "leasehold_client:*".to_owned()];
        for kept in kept.into_iter().chain(self.expires.map(str::to_owned)) {
            let keys: Vec<String> = self.cmd(&["KEYS", &kept]).expect("it answers");
            keys.iter().for_each(|key| self.cmd::<()>(&["DEL", key]).expect("it answers"));
        }
        self.admin = None;
        self.server.assert_clean();
    }
}

/// Every call that asks the server answers this.
const fn all_that_ask(answers: Answers) -> [(Class, Answers); 6] {
    [
        (Class::Await, answers),
        (Class::Take, answers),
        (Class::TakeFor, answers),
        (Class::Look, answers),
        (Class::Change, answers),
        (Class::Release, answers),
    ]
}

/// The same, and calls that wait already.
const fn all_that_ask_or_wait(answers: Answers) -> [(Class, Answers); 7] {
    let [a, b, c, d, e, f] = all_that_ask(answers);
    [a, b, c, d, e, f, (Class::Wait, answers)]
}

/// What an error says where nothing answers.
const HANGS: &[&str] =
    &["did not answer within", "could be made within the I/O timeout", "were busy for the I/O timeout"];
const UNREACHABLE: &[(Class, Answers)] = &all_that_ask(&[Some(Unreachable)]);

fn row(words: &'static str, stage: impl Fn() -> OneRedis + 'static) -> Row {
    Row { name: "", words, stage: Box::new(move || Box::new(stage())), answers: &[], says: &[] }
}

/// In the order of the guide.
pub(super) fn rows() -> Vec<Row> {
    [network::rows(), server::rows(), around::rows(), rights::rows()].into_iter().flatten().collect()
}
