//! What the user may do.

use super::*;
use crate::conditions::rows;
use crate::conditions::runner;
use crate::rig::acl_words;

/// The user loses these rights, and gets them back.
fn without(rights: String) -> OneRedis {
    let all = format!("+{}", rights.trim_start_matches(['+', '-']));
    OneRedis::stage(
        &[],
        move |stage, _| {
            stage.cmd::<()>(&["ACL", "SETUSER", "app", &rights]).expect("it obeys");
            stage.proxy().cut_all();
        },
        move |stage, _| stage.cmd::<()>(&["ACL", "SETUSER", "app", &all]).expect("it obeys"),
    )
    .for_a_user()
}

/// A call that is already waiting does not wait for it to pass: somebody must act.
const DENIED: &[(Class, Answers)] = &all_that_ask_or_wait(&[Some(Denied)]);
const DENIED_IF_NEEDED: &[(Class, Answers)] = &all_that_ask_or_wait(&[None, Some(Denied)]);

rows! {
    no_rights: row("The user may do nothing any more", || without("-@all".to_owned()))
        .answering(DENIED)
        .saying(&["lacks a permission"]);
}

/// Each that the guide names, one at a time.
#[test]
fn without_each_command() {
    let only = std::env::var("LEASEHOLD_COMMAND").unwrap_or_default();
    for word in acl_words() {
        let Some(command) = word.strip_prefix('+').filter(|command| command.contains(&only)) else { continue };
        let rights = format!("-{command}");
        let row = row("The user may not use one of the commands", move || without(rights.clone()));
        let name = format!("without_{}", command.replace('|', "_"));
        runner::run(&row.answering(DENIED_IF_NEEDED).named(name.leak()));
    }
}
