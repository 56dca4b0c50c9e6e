//! The command of a run before it is started.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::process::Command;

use crate::failure::{Failure, status};
use crate::run::args::RunArgs;
use crate::store::{URL_VARIABLE, may_have_password};

/// What a run adds to the environment of its command.
pub(super) type Environment = [(&'static str, String)];

/// With the lock in its environment.
pub(super) fn under_lock(
    args: &RunArgs,
    guard: &dyn leasehold::Held,
    environment: &Environment,
) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("LEASEHOLD_NAME", args.name());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
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
    if e.kind() != ErrorKind::NotFound {
        return Failure::new(status::NOT_EXECUTABLE, format!("{}: {e}", words[0].display()));
    }
    let hint = hint_for(words, std::env::var_os("PATH")).unwrap_or_default();
    Failure::new(status::NOT_FOUND, format!("{}: {e}{hint}", words[0].display()))
}

#[cfg(unix)]
const SHELL: &str = "sh -c";
#[cfg(windows)]
const SHELL: &str = "cmd /c";

/// Words of a shell that no program is named like.
const OF_THE_SHELL: [&str; 10] =
    [".", "cd", "eval", "exec", "export", "set", "source", "ulimit", "umask", "unset"];

/// What may be meant by a command that was not found.
fn hint_for(words: &[OsString], path: Option<OsString>) -> Option<String> {
    let program = words[0].to_str()?;
    let separators = ["&&", "||", ";", "|"];
    let has_separator =
        words[1..].iter().any(|word| separators.iter().any(|separator| word == separator));
    if has_separator || OF_THE_SHELL.contains(&program) {
        return Some(format!("; a line for a shell is one word: -- {SHELL} '...'"));
    }
    if program.contains(char::is_whitespace) {
        let line = if program.contains('\'') { "..." } else { program };
        return Some(format!("; for a line of the shell: -- {SHELL} '{line}'"));
    }
    let path = path?;
    // cron's is short.
    (!program.contains(std::path::MAIN_SEPARATOR)).then(|| format!("; PATH is {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_found_has_a_hint() {
        let hint = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            hint_for(&words, Some("/usr/bin:/bin".into()))
        };
        let line = format!("; for a line of the shell: -- {SHELL} 'a && b'");
        assert_eq!(hint(&["a && b"]), Some(line));
        assert_eq!(hint(&["backup", "x"]).unwrap(), "; PATH is /usr/bin:/bin");
        for words in [&["cd", "/", "&&", "ls"][..], &["cd", "/"], &["ls", "|", "wc"]] {
            assert!(hint(words).unwrap().contains(SHELL), "{words:?}");
        }
        assert_eq!(hint(&[&format!("{0}opt{0}backup", std::path::MAIN_SEPARATOR)]), None);
    }
}
