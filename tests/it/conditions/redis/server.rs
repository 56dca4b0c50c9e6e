//! The server itself.

use super::*;
use crate::conditions::rows;

/// What writes is refused; what reads or finds nothing to change is refused only over a new
/// connection.
const REPLICA: &[(Class, Answers)] = &[
    (Class::Take, &[Some(ReadOnly)]),
    (Class::TakeFor, &[Some(ReadOnly)]),
    (Class::Release, &[Some(ReadOnly)]),
    (Class::Change, &[None, Some(ReadOnly)]),
    (Class::Look, &[None, Some(ReadOnly)]),
    (Class::Await, &[None, Some(ReadOnly)]),
];

rows! {
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
    .answering(&[// A waiter asks again, for example to keep its place.
        (Class::Wait, &[None, Some(Full)]),
        (Class::Take, &[None, Some(Full)]), (Class::TakeFor, &[None, Some(Full)]), (Class::Change, &[None, Some(Full)])])
    .saying(&["maxmemory"]);

    a_replica: row("The server has become a replica", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
        }, |stage, _| stage.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).expect("it obeys"))
    }).answering(REPLICA).saying(&["is a replica"]);

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
        (Class::Take, &[None, Some(WrongType)]),
        (Class::TakeFor, &[None, Some(WrongType)]),
        (Class::Look, &[None, Some(WrongType)]),
        (Class::Change, &[None, Some(WrongType)]),
    ] });

    killed: row("The server is killed, and comes back with its data", || {
        OneRedis::stage(&[], |stage, _| {
            stage.cmd::<()>(&["SAVE"]).expect("it saves");
            stage.server.kill();
        }, |stage, _| stage.start_again())
    }).answering(UNREACHABLE);

    restarted_empty: row("The server was killed, and has come back empty", || {
        OneRedis::stage(&[], |stage, _| {
            stage.server.kill();
            stage.start_again();
        }, |_, _| ())
    }).answering(const { &[
        (Class::Take, &[None, Some(Conflict)]),
                (Class::TakeFor, &[None, Some(Conflict)]),
                // The holder of a counting permit cannot tell whether it was forgotten.
                (Class::Release, &[None, Some(Lost)]),
                (Class::Change, &[None, Some(Lost), Some(Stale)]),
    ] });
}
