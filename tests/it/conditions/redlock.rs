//! Conditions of several masters: of one of them, which must not matter, and of a majority.

use std::time::Duration;

use leasehold::ErrorKind::{NoQuorum, Unreachable};
use leasehold::{Builder, LockClient, Redlock};

use super::redis::around::{Behaviour, Foreign};
use super::redis::{CONNECTIONS, ENDED, Front, MOST, NAME, count_named, delete_kept};
use super::row::{Answers, Class, DONE, Row, Stage, if_it_asks};
use super::rows;
use super::runner::IO;
use crate::rig::zookeeper::Pipe;
use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::Masters;

const MASTERS: usize = 3;

/// All clients must have the same longest lease, and a call extends one to a minute.
fn redlock(urls: Vec<String>) -> Redlock {
    Redlock::new(urls).longest_lease(ms(60_000))
}

type Change = Box<dyn Fn(&mut Several)>;

/// Masters, the first of them with something before them, and what happens to these.
struct Several {
    /// They end first, because they may listen in the directories of the masters.
    fronts: Vec<Front>,
    masters: Masters,
    /// What each affected master is called, and what follows its address in the client's URL.
    host: &'static str,
    user: &'static str,
    /// Not those of the affected masters, while they keep connections that the client has ended.
    counts: bool,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    spares_others: bool,
    happens: Option<[Change; 2]>,
}

impl Several {
    fn new(
        start: impl Fn() -> Server,
        front: impl Fn(&Server) -> Front,
        affected: usize,
        [begins, ends]: [fn(&mut Self); 2],
    ) -> Self {
        let masters = Masters::admitting((0..MASTERS).map(|_| start()).collect());
        let fronts = masters.0[..affected].iter().map(front).collect();
        let spares_others = affected <= MASTERS / 2;
        let (host, user) = ("127.0.0.1", "");
        let happens: [Change; 2] = [Box::new(begins), Box::new(ends)];
        let happens = Some(happens);
        let io = ms(4000);
        Self { fronts, masters, host, user, counts: true, io, spares_others, happens }
    }

    /// So many of the masters have proxies.
    fn stage(affected: usize, happens: [fn(&mut Self); 2]) -> Self {
        Self::new(Server::start, |server| Front::Proxy(Proxy::start(server)), affected, happens)
    }

    /// So many of the masters have pipes.
    fn far_away(affected: usize, happens: [fn(&mut Self); 2]) -> Self {
        Self::new(
            || Server::start_tcp(&[]),
            |server| Front::Pipe(Pipe::to(server.port())),
            affected,
            happens,
        )
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(self) -> Self {
        Self { io: IO, ..self }
    }

    fn affected(&self) -> &[Server] {
        &self.masters.0[..self.fronts.len()]
    }

    fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.fronts.iter().map(Front::proxy)
    }

    fn pipes(&self) -> impl Iterator<Item = &Pipe> {
        self.fronts.iter().map(Front::pipe)
    }

    /// Waits until each hold is on all masters. One that was too slow for a grant gets it with the
    /// first renewal, and until then the hold has no master to spare.
    fn wait_for_holds(&self, names: &[String]) {
        let held = |server: &Server| {
            let mut keys = server.lock_keys();
            keys.retain(|key| names.contains(key));
            keys.sort_unstable();
            keys
        };
        wait_until("all masters have each hold", || {
            let first = held(&self.masters.0[0]);
            self.masters.0[1..].iter().all(|server| held(server) == first)
        });
    }

    fn happen(&mut self, when: usize) {
        let happens = self.happens.take().expect("it is put back");
        happens[when](self);
        self.happens = Some(happens);
    }
}

/// What Redlock and MySQL support: the plain lock without data.
pub(super) fn is_of_a_plain_lock(call: &str) -> bool {
    if call.contains("data") || call.ends_with("last_holder") {
        return false;
    }
    ["LockClient::", "ReentrantMutex", "OwnedMutexGuard::"]
        .iter()
        .any(|kind| call.starts_with(kind))
}

impl Stage for Several {
    fn builder(&self) -> Builder {
        let mut urls = self.masters.urls();
        for (url, front) in urls.iter_mut().zip(&self.fronts) {
            *url = format!("{}{}", front.url(self.host), self.user);
        }
        // The first renewal is after a third of it, see `wait_for_holds`.
        let builder = LockClient::builder().redlock(redlock(urls)).lease(ms(15_000));
        builder.connections(CONNECTIONS).client_name(NAME)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        LockClient::builder().redlock(redlock(self.masters.urls())).build().expect("all is well")
    }

    fn begin(&mut self, names: &[String]) {
        self.wait_for_holds(names);
        self.happen(0);
    }

    fn end(&mut self) {
        self.happen(1);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    fn offers(&self, call: &str) -> bool {
        is_of_a_plain_lock(call)
    }

    /// Those of the master that has the most.
    fn connections(&mut self) -> Option<(usize, usize)> {
        let counted =
            if self.counts { &self.masters.0[..] } else { &self.masters.0[self.fronts.len()..] };
        let count = |server: &Server| Some(count_named(&server.try_list()?));
        Some((counted.iter().filter(|server| server.runs()).filter_map(count).max()?, MOST))
    }

    fn assert_clean(&mut self) {
        for server in &self.masters.0 {
            delete_kept(server, None);
        }
        self.masters.assert_clean();
    }
}

fn row(words: &'static str, stage: impl Fn() -> Several + 'static) -> Row {
    super::row::row(words, stage).failing(|class| supported(class, DONE), &[])
}

/// Only the plain lock.
fn supported(class: Class, answers: Answers) -> Answers {
    match class {
        Class::TakePermit | Class::Change | Class::Return => &[],
        _ => if_it_asks(class, answers),
    }
}

fn no_quorum(class: Class) -> Answers {
    supported(class, &[Some(NoQuorum)])
}

/// One master answers this much later.
fn late(delay_ms: [fn(&mut Several); 2]) -> Several {
    Several::far_away(1, delay_ms)
}

const ON_TIME: fn(&mut Several) = |stage| stage.pipes().for_each(|pipe| pipe.delay(ms(0)));

const HEAL: fn(&mut Several) = |stage| stage.proxies().for_each(|proxy| _ = proxy.disarm());

const SUSPENDED: [fn(&mut Several); 2] = [
    |stage| stage.affected().iter().for_each(Server::suspend),
    |stage| stage.affected().iter().for_each(Server::resume),
];

const REFUSED: [fn(&mut Several); 2] = [
    |stage| {
        for proxy in stage.proxies() {
            proxy.refuse(true);
        }
        for proxy in stage.proxies() {
            proxy.cut_all();
        }
    },
    |stage| stage.proxies().for_each(|proxy| proxy.refuse(false)),
];

/// The name of one master, and all its connections end as soon as its name server behaves so.
fn named(host: &'static str, behaviour: Behaviour) -> Several {
    let names = Foreign::new();
    names.name_server(host);
    let well = names.clone();
    let begins = move |stage: &mut Several| {
        names.becomes(behaviour);
        for pipe in stage.pipes() {
            pipe.cut();
        }
    };
    let ends = move |_: &mut Several| well.becomes(Behaviour::Well);
    let stage = Several::far_away(1, [|_| (), |_| ()]);
    Several { host, happens: Some([Box::new(begins), Box::new(ends)]), ..stage }
}

/// The user may not kill connections, so that requests have a limit by the server's clock; the
/// connections end, and the next ones learn a time from which the clock is stepped this far.
fn stepped(seconds: i64) -> Several {
    let begins = move |stage: &mut Several| {
        let (now, _): (i64, i64) = stage.masters.0[0].cmd(&["TIME"]);
        let reply = format!("*2\r\n$10\r\n{}\r\n$6\r\n123456\r\n", now - seconds);
        for proxy in stage.proxies() {
            proxy.inject_times("TIME", 8, Fault::Reply(reply.clone().into_bytes().leak()));
            proxy.cut_all();
        }
    };
    let stage = Several::stage(1, [|_| (), |_| ()]);
    stage.masters.0[0].cmd::<()>(&[
        "ACL",
        "SETUSER",
        "meek",
        "on",
        ">password",
        "~*",
        "&*",
        "+@all",
        "-client|kill",
    ]);
    Several {
        user: "?user=meek&pass=password",
        happens: Some([Box::new(begins), Box::new(HEAL)]),
        ..stage
    }
}

rows! {
    one_late_by_1_ms: row("Each reply of one of three masters comes 1 ms late", || {
        late([|stage| stage.pipes().for_each(|pipe| pipe.delay(ms(1))), ON_TIME])
    });

    one_late_by_5_ms: row("Each reply of one of three masters comes 5 ms late", || {
        late([|stage| stage.pipes().for_each(|pipe| pipe.delay(ms(5))), ON_TIME])
    });

    one_late_by_20_ms: row("Each reply of one of three masters comes 20 ms late", || {
        late([|stage| stage.pipes().for_each(|pipe| pipe.delay(ms(20))), ON_TIME])
    });

    one_suspended: row("One of three masters hangs", || Several::stage(1, SUSPENDED).impatient());

    one_in_a_black_hole: row("The network to one of three masters drops all packets", || {
        let stage = Several::far_away(1, [
            |stage| stage.pipes().for_each(|pipe| pipe.silence(true)),
            |stage| stage.pipes().for_each(|pipe| pipe.silence(false)),
        ]);
        Several { counts: false, ..stage }.impatient()
    });

    one_refuses: row("One of three masters ends and refuses connections", || Several::stage(1, REFUSED));

    one_loses_replies: row("One of three masters runs each request, and its connection ends before the reply", || {
        Several::stage(1, [
            |stage| stage.proxies().for_each(|proxy| proxy.inject_times("", u32::MAX, Fault::CutAfterApplied)),
            HEAL,
        ])
    });

    one_restarted_empty: row("One of three masters was killed, and has come back empty: it has no vote", || {
        Several::stage(1, [|stage| stage.masters.0[0].restart(), |_| ()])
    });

    one_with_a_slow_name: row("One of three masters ends its connections while its name server hangs", || {
        named("hangs.redlock.conditions.test", Behaviour::Hangs)
    });

    one_stepped_forward: row("The clock of one of three masters is stepped forward by a minute", || stepped(60));

    one_stepped_back: row("The clock of one of three masters is stepped back by an hour", || stepped(-3600));

    // Calls beyond the `connections` wait for the I/O timeout, as with one server.
    two_suspended: row("Two of three masters hang", || Several::stage(2, SUSPENDED).impatient())
        .failing(|class| supported(class, &[Some(NoQuorum), Some(Unreachable)]), &[
            "did not answer within",
            "has not answered for",
            "has been under way for",
            "were in progress for the I/O timeout",
        ]);

    two_refuse: row("Two of three masters end and refuse connections", || Several::stage(2, REFUSED))
        .failing(no_quorum, &[ENDED]);
}
