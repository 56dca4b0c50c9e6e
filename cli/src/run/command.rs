//! The command of a run before it is started.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::process::Command;

use crate::failure::{Failure, status};
use crate::run::args::RunArgs;
use crate::run::lock::GuardOfAnyKind;
use crate::store::{URL_VARIABLE, may_have_password};

/// With the lock in its environment.
pub(super) fn under_lock(args: &RunArgs, guard: &dyn GuardOfAnyKind) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("LEASEHOLD_NAME", &args.name);
    match guard.fencing_token() {
        Ok(token) => command.env("LEASEHOLD_TOKEN", token.to_string()),
        // It would be the token of another lock, if this process itself runs under one.
        Err(_) => command.env_remove("LEASEHOLD_TOKEN"),
    };
    let is_secret =
        |urls: OsString| urls.to_string_lossy().split_whitespace().any(may_have_password);
    if std::env::var_os(URL_VARIABLE).is_some_and(is_secret) {
        command.env_remove(URL_VARIABLE);
    }
    command
}

pub(super) fn cannot_start(words: &[OsString], e: &Error) -> Failure {
    let status =
        if e.kind() == ErrorKind::NotFound { status::NOT_FOUND } else { status::NOT_EXECUTABLE };
    Failure::new(status, format!("{}: {e}", words[0].display()))
}
