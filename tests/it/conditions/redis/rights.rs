//! What the user may do.

use super::*;
use crate::conditions::rows;
use crate::conditions::runner;
use crate::rig::acl_words;

/// The user loses these rights, and gets them back.
fn without(rights: String) -> OneRedis {
    let all = format!("+{}", rights.trim_start_matches(['+', '-']));
    let stage = OneRedis::stage(
        &[],
        move |stage, _| {
            stage.cmd::<()>(&["ACL", "SETUSER", "app", &rights]).expect("it obeys");
            stage.proxy().cut_all();
        },
        move |stage, _| stage.cmd::<()>(&["ACL", "SETUSER", "app", &all]).expect("it obeys"),
    );
    // A release that is refused is not repeated, and a script ends where a command is refused: what
    // is left ends with its lease.
    OneRedis { expires: Some("*job-*"), ..stage.for_a_user() }
}

/// What needs the command is refused.
fn denied_if_needed(class: Class) -> Answers {
    if denied(class) == DONE { DONE } else { &[None, Some(Denied)] }
}

const SAYS: &[&str] = &["lacks a permission"];

rows! {
    no_rights: row("The user may do nothing any more", || without("-@all".to_owned()))
        .failing(denied, SAYS);
}

/// What a short run takes away; with `LEASEHOLD_ALL=1` each command that the guide names.
const SOME: [&str; 8] =
    ["evalsha", "script|load", "subscribe", "publish", "hlen", "pttl", "zadd", "del"];

/// One at a time, or only those that `LEASEHOLD_COMMAND` is a part of.
#[test]
fn without_each_command() {
    let (only, all) =
        (std::env::var("LEASEHOLD_COMMAND").ok(), std::env::var_os("LEASEHOLD_ALL").is_some());
    let is_chosen = |command: &&str| match &only {
        Some(part) => command.contains(part.as_str()),
        None => all || SOME.contains(command),
    };
    for word in acl_words() {
        let Some(command) = word.strip_prefix('+').filter(is_chosen) else { continue };
        let rights = format!("-{command}");
        let row = row("The user may not use one of the commands", move || without(rights.clone()));
        let name = format!("without_{}", command.replace('|', "_"));
        runner::run(&row.failing(denied_if_needed, SAYS).named(name.leak()));
    }
}
