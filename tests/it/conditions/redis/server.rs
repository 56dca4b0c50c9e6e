//! The server itself.

use super::*;
use crate::conditions::rows;

/// What reads, or finds nothing to change, is refused by a replica only over a new connection, and
/// by a server that takes no writes not at all.
fn read_only(class: Class) -> Answers {
    match class {
        Class::Change | Class::Force => &[None, Some(ReadOnly)],
        Class::Look | Class::List => DONE,
        _ => if_it_asks(class, &[Some(ReadOnly)]),
    }
}

/// The clock of the server is set to so many seconds ahead, and stays there.
fn stepped(seconds: i64) -> OneRedis {
    let server = Server::start_with_a_clock();
    let front = Front::Proxy(Proxy::start(&server));
    OneRedis::behind(front, server, move |stage, _| stage.server.step_clock(seconds), |_, _| ())
}

rows! {
    full_of_clients: row("The server has reached its `maxclients`, and ends the connections that it has", || {
        OneRedis::stage(&[], |stage, _| {
            stage.set("maxclients", "1");
            stage.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("it kills");
        }, |stage, _| stage.set("maxclients", "10000"))
    }).failing(|class| if class == Class::Force { &[Some(NotReady), Some(Unreachable)] } else { not_ready(class) }, &["max number of clients", ENDED]);

    // A script that begins by removing something is not refused: a writer gets in. A waiter may ask
    // again, for example to keep its place.
    out_of_memory: row("The server has reached its `maxmemory`", || {
        OneRedis::stage(&[], |stage, _| stage.set("maxmemory", "1"), |stage, _| stage.set("maxmemory", "0"))
    }).failing(|class| match class {
        Class::Take | Class::Reenter | Class::Wait | Class::WaitForPermit | Class::Change | Class::Force => {
            &[None, Some(Full)]
        }
        Class::TakePermit => &[Some(Full)],
        _ => DONE,
    }, &["maxmemory"]);

    a_replica: row("The server has become a replica", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
        }, |stage, _| stage.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).expect("it obeys"))
    }).failing(|class| match class {
        Class::Look => &[None, Some(ReadOnly)],
        Class::List => &[Some(ReadOnly)],
        _ => read_only(class),
    }, &["is a replica"]);

    too_few_replicas: row("The server has too few replicas (`min-replicas-to-write`)", || {
        OneRedis::stage(&[], |stage, _| stage.set("min-replicas-to-write", "1"), |stage, _| {
            stage.set("min-replicas-to-write", "0");
        })
    }).failing(read_only, &["NOREPLICAS"]);

    busy_with_a_script: row("The server is busy with somebody's endless script", || {
        OneRedis::stage(&["--lua-time-limit", "50"], |stage, _| {
            let mut endless = stage.server.connect();
            std::thread::spawn(move || {
                let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut endless);
            });
            wait_until("it is busy", || stage.cmd::<String>(&["PING"]).is_err_and(|e| e.code() == Some("BUSY")));
        }, |stage, _| {
            stage.cmd::<()>(&["SCRIPT", "KILL"]).expect("it is killed");
            stage.wait_for_answers();
        })
    }).failing(not_ready, &["BUSY"]);

    paused: row("The server is paused (`CLIENT PAUSE`) for longer than the I/O timeout", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["CLIENT", "PAUSE", "12000", "ALL"]).expect("it pauses");
            stage.counts = false;
        }, |stage, _| stage.wait_for_answers()).impatient()
    }).failing(unreachable, HANGS);

    writes_paused: row("The server's writes are paused (`CLIENT PAUSE ... WRITE`)", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]).expect("it pauses");
            stage.counts = false;
        }, |stage, _| stage.cmd::<()>(&["CLIENT", "UNPAUSE"]).expect("it goes on")).impatient()
    }).failing(|class| match class {
        Class::Look | Class::List => &[None, Some(Unreachable)],
        _ => unreachable(class),
    }, HANGS);

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
                // A semaphore is a string, too, and somebody waits for it.
                if stage.cmd::<String>(&["GET", &name]).is_ok_and(|value| value == "foreign") {
                    stage.cmd::<()>(&["DEL", &name]).expect("it deletes");
                }
            }
        }).sparing_others()
    }).failing(|class| match class {
        Class::Take => &[Some(WrongType)],
        Class::Look | Class::List | Class::Change | Class::Force => &[None, Some(WrongType)],
        _ => DONE,
    }, &["holds something else", "something that is not", "something other than"]);

    killed: row("The server is killed, and comes back with its data", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["SAVE"]).expect("it saves");
            stage.server.kill();
        }, |stage, _| stage.start_again())
    }).failing(unreachable, ENDS);

    restarted_empty: row("The server was killed, and has come back empty", || {
        OneRedis::stage(&[], |stage, _| {
            stage.server.kill();
            stage.start_again();
        }, |_, _| ())
    }).failing(|class| match class {
        Class::TakePermit | Class::WaitForPermit | Class::WaitForRate => &[Some(Conflict)],
        Class::Keep | Class::Reenter | Class::Release => &[Some(Lost)],
        // A renewal may have found it out.
        Class::Local => &[None, Some(Lost)],
        Class::Change => &[None, Some(Stale), Some(Lost)],
        _ => DONE,
    }, &["the server forgot it", "has no permits", "nobody has set the rate", "were already returned", "no claim is left"]);

    cannot_save: row("The server cannot write its snapshot (`MISCONF`)", || {
        // A snapshot is a file that is renamed at its end, and nothing can be renamed to a directory.
        OneRedis::stage(&["--dbfilename", "taken"], |stage, _| {
            std::fs::create_dir(stage.server.dir().join("taken")).expect("a directory");
            stage.set("save", "3600 1");
            stage.cmd::<String>(&["BGSAVE"]).expect("it begins");
            wait_until("the save has failed", || {
                let info: String = stage.cmd(&["INFO", "persistence"]).expect("it answers");
                info.contains("rdb_last_bgsave_status:err")
            });
        }, |stage, _| stage.set("save", ""))
    }).failing(read_only, &["MISCONF"]);

    loading: row("The server is loading its data (`LOADING`)", || {
        // Each of 6000 keys takes it 5 ms, until it is told otherwise. It answers in between.
        let args = "--enable-debug-command yes --rdbcompression no --loading-process-events-interval-bytes 1024";
        OneRedis::stage(&args.split(' ').collect::<Vec<_>>(), |stage, _| {
            stage.cmd::<()>(&["DEBUG", "POPULATE", "6000", "ballast", "2048"]).expect("it makes keys");
            stage.set("key-load-delay", "5000");
            let mut reloads = stage.server.connect();
            std::thread::spawn(move || redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut reloads));
            wait_until("it is loading", || {
                let info: String = stage.cmd(&["INFO", "persistence"]).expect("it answers");
                info.contains("\nloading:1")
            });
        }, |stage, _| {
            stage.set("key-load-delay", "0");
            stage.wait_for_answers();
            let keys: Vec<String> = stage.cmd(&["KEYS", "ballast:*"]).expect("it answers");
            redis::cmd("DEL").arg(keys).exec(&mut stage.server.connect()).expect("it deletes");
        })
    }).failing(not_ready, &["LOADING"]);

    a_little_ahead: row("The server's clock is set forward by 3 s", || stepped(3));

    // What has a lease at the server has outlived it. Nobody is told of that: a call that waits
    // looks again when the lease would have ended.
    far_ahead: row("The server's clock is set forward by an hour", || {
        OneRedis { lease_of_the_other: PROMPT / 2, ..stepped(3600) }
    }).failing(|class| match class {
        Class::Keep | Class::Reenter | Class::Release => &[Some(Lost)],
        // A renewal may have found it out. The data of a hold is changed, too.
        Class::Local | Class::Change => &[None, Some(Lost)],
        _ => DONE,
    }, &["the server forgot it", "or their lease has ended"]);

    far_behind: row("The server's clock is set back by an hour", || stepped(-3600));
}
