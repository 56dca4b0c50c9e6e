//! Whatever a server answers to a script or a command: a typed outcome or a typed error.

use std::time::Duration;

use super::listing::{found_under, page_of, waited_for};
use super::owners::{clients_answer, is_written, texts};
use super::script;
use super::wire::fuzz_tests::{any, assert_is_told, read, sent};
use super::wire::{Reply, check_server, field};
use crate::base::error::Result;
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::base::holder::ClientId;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{AcquireAll, Part, TokenRule};

/// A list in one of the forms that scripts answer with, with any values in it.
fn answer(dice: &mut Dice) -> Reply {
    let integer = |dice: &mut Dice| Reply::Int(dice.number());
    let text = |dice: &mut Dice| Reply::Bytes(dice.text().into_bytes());
    let holder = |dice: &mut Dice| {
        let id = ["0123cdef-0000-4000-8000-0123456789ab:7", "mode", "token", ""];
        Reply::Bytes([dice.choose(&id).as_bytes(), dice.text().as_bytes()].concat())
    };
    match dice.below(6) {
        0 => Reply::Pair(dice.number(), dice.number()),
        1 => Reply::list(vec![integer(dice), integer(dice), integer(dice)]),
        2 => Reply::list(vec![integer(dice), integer(dice), holder(dice)]),
        // Holders with their counts.
        3 => {
            let pairs = (0..dice.below(3)).flat_map(|_| [holder(dice), text(dice)]).collect();
            Reply::list([vec![integer(dice)], pairs].concat())
        }
        // A look at a name.
        4 => {
            let mut groups = |size: usize| {
                let one = |dice: &mut Dice, at| if at == 0 { holder(dice) } else { integer(dice) };
                Reply::list((0..size * dice.below(3)).map(|at| one(dice, at % size)).collect())
            };
            let holders = groups(3);
            let queue = groups(2);
            let permits = groups(2);
            let front = vec![Reply::Int(dice.below(5) as i64), text(dice), holders, text(dice)];
            let back = vec![
                integer(dice),
                queue,
                integer(dice),
                integer(dice),
                integer(dice),
                permits,
                integer(dice),
            ];
            Reply::list([front, back, vec![Reply::list(vec![integer(dice)])]].concat())
        }
        _ => any(dice, 2),
    }
}

fn judge<T>(outcome: Result<T>) {
    if let Err(error) = outcome {
        assert_is_told(&error);
    }
}

/// Gives the reply to everything that reads one.
fn read_by_all(reply: &Reply, name: &LockName) {
    let again = || reply.clone();
    let sent_at = Moment::from_nanos(5);
    judge(script::acquire_answer(again(), sent_at));
    judge(script::release_answer(again()));
    judge(script::renew_answers(again(), sent_at));
    judge(script::acquire_on_node_answer(again()));
    judge(script::renew_on_node_answer(again(), sent_at));
    judge(script::write_back_answer(again()));
    judge(script::inspect_node_answer(again()));
    judge(script::admit_answer(again()));
    judge(script::refused_by_probe(again()));
    judge(script::inspect_answer(again()));
    judge(script::announced_answer(again()));
    judge(script::force_unlock_answer(again()));
    judge(script::queue_answer(again()));
    judge(script::look_answer(again(), &name.key, true));
    judge(script::count_answer(again()));
    judge(script::question_answer(again()));
    judge(script::fence_answer(again()));
    let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
    let parts = vec![Part { name, holder: &holder, held: 0 }];
    let lease = Duration::from_secs(1);
    let token = TokenRule::On;
    judge(script::acquire_all_answer(
        again(),
        &AcquireAll { parts, lease, token, waits: true, goes_on: true, leads: false },
        sent_at,
    ));
    judge(script::release_all_answer(again(), 1));
    judge(found_under(std::slice::from_ref(name), vec![again()]));
    judge(page_of(again()));
    judge(waited_for(again()));
    judge(clients_answer(again()));
    judge(texts(vec!["client".to_owned()], vec![again()]));
    judge(is_written(vec![Ok(again()), Ok(again())]));
}

#[test]
fn fuzzed_answers_are_outcomes_or_errors() {
    let name = LockName::new("", "job", Kind::Mutex).unwrap();
    fuzz(
        |dice| sent(&answer(dice)),
        move |bytes, _| read(bytes).iter().for_each(|reply| read_by_all(reply, &name)),
    );
}

#[test]
fn fuzzed_versions_are_judged() {
    fuzz(
        |dice| {
            let version =
                format!("redis_version:{}.{}.3\r\nredis_mode:", dice.number(), dice.below(9));
            format!(
                "{version}{}\r\nrole:{}\r\n",
                dice.choose(&["standalone", "cluster", "sentinel"]),
                dice.text()
            )
            .into_bytes()
        },
        |bytes, _| {
            let text = String::from_utf8_lossy(bytes);
            let _ = field(&text, "role:");
            for in_cluster in [true, false] {
                judge(check_server(&text, &text, in_cluster));
            }
        },
    );
}
