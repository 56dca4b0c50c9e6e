//! Conditions of one Redis.

use leasehold::ErrorKind::{Full, NotReady, ReadOnly, Unreachable};
use leasehold::{Builder, LockClient};

use super::calls::{second, value_of};
use super::row::{Answers, Class, Row, Stage};
use super::rows;
use crate::rig::zookeeper::Pipe;
use crate::rig::{Fault, Proxy, Server, ms, wait_until};

const CONNECTIONS: usize = 8;
/// One for renewals, one for messages, one beside the pool, and two for a diagnosis.
const MOST: usize = CONNECTIONS + 5;
const NAME: &str = "concerned";

type Change = fn(&mut OneRedis, &[String]);

/// What stands before the server. It ends first, because it may listen in the server's directory.
enum Front {
    Proxy(Proxy),
    /// Delays whole streams, as a network does.
    Pipe(Pipe),
}

/// A server with something before it, and what happens to them.
pub(super) struct OneRedis {
    front: Front,
    server: Server,
    /// The client's connections are counted, and settings changed, over a connection of its own.
    admin: Option<redis::Connection>,
    /// Not while the server keeps connections that the client has ended.
    counts: bool,
    spares_others: bool,
    begins: Change,
    ends: Change,
    names: Vec<String>,
}

impl OneRedis {
    fn behind(front: Front, server: Server, begins: Change, ends: Change) -> Self {
        let admin = Some(server.connect());
        Self { front, server, admin, counts: true, spares_others: false, begins, ends, names: Vec::new() }
    }

    fn stage(args: &[&str], begins: Change, ends: Change) -> Self {
        let server = Server::start_with(args);
        Self::behind(Front::Proxy(Proxy::start(&server)), server, begins, ends)
    }

    fn far_away(begins: Change, ends: Change) -> Self {
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
            Front::Proxy(proxy) => proxy.url(),
            Front::Pipe(pipe) => format!("redis://127.0.0.1:{}/", pipe.port()),
        };
        LockClient::builder().url(url).connections(CONNECTIONS).client_name(NAME)
    }

    fn other(&self) -> LockClient {
        LockClient::builder().url(self.server.url()).build().expect("it is reachable")
    }

    fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        (self.begins)(self, names);
    }

    fn end(&mut self) {
        let names = std::mem::take(&mut self.names);
        (self.ends)(self, &names);
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
        for kept in [format!("*{}", value_of("")), "leasehold_client:*".to_owned()] {
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

/// What an error says where nothing answers.
const HANGS: &[&str] =
    &["did not answer within", "could be made within the I/O timeout", "were busy for the I/O timeout"];
const UNREACHABLE: &[(Class, Answers)] = &all_that_ask(&[Some(Unreachable)]);

fn row(words: &'static str, stage: fn() -> OneRedis) -> Row {
    Row { name: "", words, stage: Box::new(move || Box::new(stage())), answers: &[], says: &[] }
}

rows! {
    suspended: row("The server hangs: it accepts connections and answers nothing", || {
        OneRedis::stage(&[], |stage, _| stage.server.suspend(), |stage, _| stage.server.resume())
    }).answering(UNREACHABLE).saying(HANGS);

    black_hole: row("The network drops all packets", || {
        OneRedis::far_away(|stage, _| stage.pipe().silence(true), |stage, _| stage.pipe().silence(false))
    }).answering(UNREACHABLE).saying(HANGS);

    refused: row("Connections are ended and refused", || {
        OneRedis::stage(&[], |stage, _| {
            stage.proxy().refuse(true);
            stage.proxy().cut_all();
        }, |stage, _| stage.proxy().refuse(false))
    }).answering(UNREACHABLE);

    cut_in_a_reply: row("Each connection ends in the middle of a reply", || {
        OneRedis::stage(&[], |stage, _| stage.each_meets(Fault::CutReplyAt(2)), |stage, _| stage.heal())
    }).answering(UNREACHABLE);

    lost_replies: row("Each request runs, and its connection ends before the reply", || {
        OneRedis::stage(&[], |stage, _| stage.each_meets(Fault::CutAfterApplied), |stage, _| stage.heal())
    }).answering(UNREACHABLE);

    five_ms_away: row("Each reply comes 5 ms late", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(5)), |stage, _| stage.pipe().delay(ms(0)))
    });

    fifty_ms_away: row("Each reply comes 50 ms late", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(50)), |stage, _| stage.pipe().delay(ms(0)))
    });

    three_seconds_away: row("Each reply comes 3 s late, later than the I/O timeout", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(3000)), |stage, _| stage.pipe().delay(ms(0)))
    }).answering(UNREACHABLE).saying(HANGS);

    idle_ends_seen: row("All idle connections are ended, as by the server's `timeout`", || {
        OneRedis::stage(&[], |stage, _| stage.proxy().cut_all(), |_, _| ())
    });

    idle_ends_hidden: row("All idle connections are ended, and a proxy hides that until they are used", || {
        OneRedis::stage(&[], |stage, _| {
            stage.proxy().hide_ends(true);
            stage.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("it kills");
        }, |stage, _| stage.proxy().hide_ends(false))
    });

    full_of_clients: row("The server has reached its `maxclients`, and ends the connections that it has", || {
        OneRedis::stage(&[], |stage, _| {
            stage.set("maxclients", "1");
            stage.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("it kills");
        }, |stage, _| stage.set("maxclients", "10000"))
    }).answering(const { &all_that_ask(&[Some(NotReady)]) }).saying(&["max number of clients"]);

    out_of_memory: row("The server has reached its `maxmemory`", || {
        OneRedis::stage(&[], |stage, _| stage.set("maxmemory", "1"), |stage, _| stage.set("maxmemory", "0"))
    })
    // A script that begins by removing something is not refused: a writer gets in.
    .answering(&[(Class::Take, &[None, Some(Full)]), (Class::TakeFor, &[None, Some(Full)]), (Class::Change, &[None, Some(Full)])])
    .saying(&["maxmemory"]);

    a_replica: row("The server has become a replica", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
        }, |stage, _| stage.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).expect("it obeys"))
    }).answering(const { &all_that_ask(&[Some(ReadOnly)]) }).saying(&["is a replica"]);

    too_few_replicas: row("The server has too few replicas (`min-replicas-to-write`)", || {
        OneRedis::stage(&[], |stage, _| stage.set("min-replicas-to-write", "1"), |stage, _| {
            stage.set("min-replicas-to-write", "0");
        })
    // What finds nothing to change is not refused.
    }).answering(const { &[
        (Class::Take, &[Some(ReadOnly)]), (Class::TakeFor, &[Some(ReadOnly)]),
        (Class::Release, &[Some(ReadOnly)]), (Class::Change, &[None, Some(ReadOnly)]),
    ] }).saying(&["NOREPLICAS"]);

    busy_with_a_script: row("The server is busy with somebody's endless script", || {
        OneRedis::stage(&["--lua-time-limit", "50"], |stage, _| {
            let mut endless = stage.server.connect();
            std::thread::spawn(move || {
                let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut endless);
            });
            wait_until("it is busy", || stage.cmd::<String>(&["PING"]).is_err_and(|e| e.code() == Some("BUSY")));
        }, |stage, _| stage.cmd::<()>(&["SCRIPT", "KILL"]).expect("it is killed"))
    }).answering(const { &all_that_ask(&[Some(NotReady)]) }).saying(&["BUSY"]);

    paused: row("The server is paused (`CLIENT PAUSE`) for longer than the I/O timeout", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["CLIENT", "PAUSE", "6000", "ALL"]).expect("it pauses");
            stage.counts = false;
        }, |stage, _| stage.wait_for_answers())
    }).answering(UNREACHABLE);

    writes_paused: row("The server's writes are paused (`CLIENT PAUSE ... WRITE`)", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]).expect("it pauses");
            stage.counts = false;
        }, |stage, _| stage.cmd::<()>(&["CLIENT", "UNPAUSE"]).expect("it goes on"))
    }).answering(const { &[
        (Class::Take, &[Some(Unreachable)]), (Class::TakeFor, &[Some(Unreachable)]),
        (Class::Change, &[Some(Unreachable)]), (Class::Release, &[Some(Unreachable)]),
        (Class::Look, &[None, Some(Unreachable)]), (Class::Await, &[None, Some(Unreachable)]),
    ] });

    scripts_forgotten: row("The server forgets all scripts, over and over (`SCRIPT FLUSH`)", || {
        OneRedis::stage(&[], |stage, _| {
            let mut flushes = stage.server.connect();
            std::thread::spawn(move || {
                while redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut flushes).is_ok() {
                    std::thread::sleep(ms(1));
                }
            });
        }, |stage, _| {
            let ends = "CLIENT KILL TYPE normal SKIPME yes";
            stage.cmd::<()>(&ends.split(' ').collect::<Vec<_>>()).expect("it kills");
        })
    });

    foreign_values: row("Each name that was free is taken by a value of another program", || {
        OneRedis::stage(&[], |stage, names| {
            for name in names.iter().flat_map(|name| [name.clone(), second(name)]) {
                let _: bool = stage.cmd(&["SETNX", &name, "foreign"]).expect("it sets");
            }
        }, |stage, names| {
            for name in names.iter().flat_map(|name| [name.clone(), second(name)]) {
                if stage.cmd::<String>(&["TYPE", &name]).expect("it answers") == "string" {
                    stage.cmd::<()>(&["DEL", &name]).expect("it deletes");
                }
            }
        }).sparing_others()
    }).answering(const { &[
        (Class::Take, &[None, Some(leasehold::ErrorKind::WrongType)]),
        (Class::TakeFor, &[None, Some(leasehold::ErrorKind::WrongType)]),
        (Class::Look, &[None, Some(leasehold::ErrorKind::WrongType)]),
        (Class::Change, &[None, Some(leasehold::ErrorKind::WrongType)]),
    ] });
}
