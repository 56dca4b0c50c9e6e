//! A server with a replica, which must acknowledge grants and renewals (`replicas(1)`).

use std::cell::RefCell;
use std::rc::Rc;

use leasehold::ErrorKind::NotReplicated;

use super::*;
use crate::conditions::rows;

type Step = fn(&mut Replica, &Server);

/// It follows its primary through a pipe.
struct Replica {
    server: Server,
    pipe: Pipe,
}

impl Replica {
    fn of(primary: &Server) -> Self {
        let replica = Self { server: Server::start(), pipe: Pipe::to(primary.port()) };
        replica.follow(primary);
        replica
    }

    /// Returns once it has the latest writes of the primary.
    fn follow(&self, primary: &Server) {
        self.server.cmd::<()>(&["REPLICAOF", "127.0.0.1", &self.pipe.port().to_string()]);
        self.wait_until_it_follows(primary);
    }

    /// `WAIT` covers the writes of its own connection and all before them. The first of these may
    /// be part of the snapshot, and the stream begins later.
    fn wait_until_it_follows(&self, primary: &Server) {
        let mut connection = primary.connect();
        let mut follows = |millis: &str| {
            redis::cmd("SET")
                .arg(&["follow", "1", "PX", "1"])
                .exec(&mut connection)
                .expect("it answers");
            redis::cmd("WAIT")
                .arg(&["1", millis])
                .query::<u32>(&mut connection)
                .expect("it answers")
                == 1
        };
        wait_until("the replica has the data", || follows("100"));
        wait_until("the replica has the stream", || follows("5000"));
    }
}

fn stage(begins: Step, ends: Step) -> OneRedis {
    let server = Server::start_tcp(&["--repl-diskless-sync-delay", "0"]);
    let replica = Rc::new(RefCell::new(Replica::of(&server)));
    let same = replica.clone();
    let begins =
        move |stage: &mut OneRedis, _: &[String]| begins(&mut replica.borrow_mut(), &stage.server);
    let ends =
        move |stage: &mut OneRedis, _: &[String]| ends(&mut same.borrow_mut(), &stage.server);
    OneRedis::behind(Front::Proxy(Proxy::start(&server)), server, begins, ends)
        .with(|redis| redis.replicas(1))
}

/// Only grants and renewals wait for it. A downgrade gives up a level: like a release, it waits for
/// no replica.
fn not_replicated(class: Class) -> Answers {
    match class {
        Class::Take | Class::TakePermit => &[Some(NotReplicated)],
        Class::Keep | Class::Reenter => &[None, Some(NotReplicated)],
        _ => DONE,
    }
}

const SAYS: &[&str] = &["0 replicas acknowledged it in time, not 1"];

rows! {
    replica_suspended: row("The replica that `replicas(1)` needs hangs", || {
        stage(|replica, _| replica.server.suspend(), |replica, _| replica.server.resume()).impatient()
    }).failing(not_replicated, SAYS);

    replica_killed: row("The replica that `replicas(1)` needs is down", || {
        stage(|replica, _| replica.server.kill(), |replica, primary| {
            replica.server.start_again();
            replica.follow(primary);
        })
    }).failing(not_replicated, SAYS);

    replica_late: row("The replica that `replicas(1)` needs has each write 50 ms late", || {
        stage(|replica, _| replica.pipe.delay(ms(50)), |replica, _| replica.pipe.delay(ms(0)))
    });
}
