//! Errors in the arguments, as one line.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::store::may_have_password;

/// Clap's error, which has several paragraphs, as one line without the usage at its end.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    in_one_line_of(error, &arguments)
}

fn in_one_line_of(error: &clap::Error, arguments: &[String]) -> String {
    let help = help_for(arguments);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("no subcommand is given; {help} lists them");
    }
    // Before it is taken apart: a password may contain what separates the parts.
    let text = without_passwords(error.render().to_string(), arguments);
    let paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_wrong = |paragraph: &String| {
        !["Usage: ", "For more"].iter().any(|begin| paragraph.starts_with(begin))
    };
    let wrong: Vec<String> = paragraphs.take_while(is_wrong).collect();
    let wrong = wrong.join("; ").replace(" tip: ", "; tip: ").replace(";;", ";");
    let wrong = without_the_tip_of_dashes(wrong.strip_prefix("error: ").unwrap_or(&wrong));
    let hint =
        hint(arguments, unknown_option(error)).map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{wrong}{hint} (see {help})")
}

/// Clap proposes to put an option that it does not know behind two dashes, where it would become
/// the command of a run.
fn without_the_tip_of_dashes(wrong: &str) -> String {
    let is_helpful =
        |part: &&str| !(part.starts_with("tip: ") && part.contains(" as a value, use '-- "));
    wrong.split("; ").filter(is_helpful).collect::<Vec<_>>().join("; ")
}

fn unknown_option(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option)))
            if option.starts_with('-') =>
        {
            Some(option)
        }
        _ => None,
    }
}

/// What people write who know other programs, and what they want.
const MEANT: [(&[&str], &str); 8] = [
    (
        &["--timeout", "--time-out", "-t"],
        "--wait TIME limits the wait for the lock, and --max-hold TIME the time with it; the program `timeout` is a part of \
         the command: -- timeout 10m COMMAND",
    ),
    (&["--nonblock", "--nb", "--non-block"], "it is called --no-wait, or -n"),
    (&["--shared", "-s"], "it is called --read; runs that exclude all others give --write"),
    (
        &["--exclusive", "-x", "-e"],
        "a lock is exclusive without an option; beside runs with --read, give --write",
    ),
    (&["--conflict-exit-code", "-E"], "it is called --conflict-status"),
    (
        &["--unlock", "-u"],
        "the lock is released when the command ends; `leasehold unlock NAME` frees one by force",
    ),
    (&["--command", "-c"], "the command comes after --: leasehold run NAME -- sh -c COMMAND"),
    (
        &["--ttl", "--expire", "--expiry"],
        "--lease TIME is how long the lock stays taken if this machine dies",
    ),
];

/// How to write what was probably meant.
fn hint(arguments: &[String], unknown: Option<&str>) -> Option<&'static str> {
    if unknown.is_some_and(|option| option[1..].starts_with(|c: char| c.is_ascii_digit())) {
        return Some("times and numbers are not negative");
    }
    let is_run = subcommand_of(arguments).is_some_and(|name| name == "run");
    let meant = MEANT
        .iter()
        .find(|(options, _)| is_run && unknown.is_some_and(|option| options.contains(&option)));
    let has_dashes = arguments.iter().any(|word| word == "--");
    let is_without_command = is_run && arguments.len() > 2 && !has_dashes;
    meant.map(|(_, meant)| *meant).or_else(|| {
        is_without_command.then_some("the command comes after --: leasehold run NAME -- COMMAND")
    })
}

fn help_for(arguments: &[String]) -> String {
    subcommand_of(arguments)
        .map_or_else(|| "leasehold --help".to_owned(), |name| format!("leasehold {name} --help"))
}

fn subcommand_of(arguments: &[String]) -> Option<&String> {
    let command = Cli::command();
    let is_one =
        |word: &&String| command.get_subcommands().any(|one| one.get_name() == word.as_str());
    arguments.iter().take_while(|word| *word != "--").find(is_one)
}

/// Clap quotes an argument that it does not understand, and stderr may end up in a cron job's mail.
fn without_passwords(mut line: String, arguments: &[String]) -> String {
    let has_password = |text: &&str| may_have_password(text);
    let parts = || arguments.iter().filter_map(|argument| argument.split_once('='));
    let whole = arguments.iter().map(String::as_str).filter(has_password);
    // Of `--option=value` one of both is quoted, and the password may be in either, or in both.
    let values = parts().map(|(_, value)| value).filter(has_password);
    let names = parts().map(|(name, _)| name).filter(|name| name.contains(':'));
    let mut secrets: Vec<&str> = whole.chain(values).chain(names).collect();
    // One may be a part of another, which is then no longer found as a whole.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        line = line.replace(secret, "(a URL with a password)");
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::fuzz::fuzz;

    #[test]
    fn every_error_is_one_line() {
        for (arguments, line) in [
            (&[][..], "no subcommand is given; "),
            (
                &["run"],
                "the following required arguments were not provided: <NAME> <COMMAND>... (see ",
            ),
            (
                &["run", "job", "--wiat", "1s"],
                "unexpected argument '--wiat' found; tip: a similar argument exists: '--wait' (see ",
            ),
            (&["run", "x", "true"], "unexpected argument 'true' found"),
            (&["walk"], "unrecognized subcommand 'walk' (see "),
        ] {
            let error = Cli::try_parse_from([&["leasehold"], arguments].concat()).unwrap_err();
            let said = in_one_line(&error);
            assert!(said.starts_with(line) && !said.contains('\n'), "{said:?}");
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_run_without_dashes_is_told_of_them() {
        let hint = |arguments: &[&str]| hint(&words(arguments), None);
        assert!(hint(&["run", "x", "true"]).unwrap().contains("leasehold run NAME -- COMMAND"));
        for other in
            [&["run", "x", "--wait", "1", "--", "true"][..], &["run", "x"], &["ls", "run", "x"]]
        {
            assert_eq!(hint(other), None, "{other:?}");
        }
    }

    /// Behind two dashes it would become the command.
    #[test]
    fn nobody_is_told_to_put_an_option_behind_the_dashes() {
        for (arguments, meant) in [
            (
                &["--timeout", "5s"][..],
                "--wait TIME limits the wait for the lock, and --max-hold TIME the time with it",
            ),
            (&["--timeout=5s"], "--wait TIME limits"),
            (&["--wait", "-5s"], "times and numbers are not negative"),
            (&["--permits", "-1"], "times and numbers are not negative"),
            (&["--nonblock"], "--no-wait, or -n"),
            (&["-x"], "exclusive without an option"),
            (&["-E", "0"], "--conflict-status"),
            (&["-c", "true"], "-- sh -c COMMAND"),
            (&["--nothing-like-it"], "unexpected argument '--nothing-like-it' found"),
        ] {
            for end in [&["--", "true"][..], &[]] {
                let arguments = [&["leasehold", "run", "job"], arguments, end].concat();
                let error = Cli::try_parse_from(&arguments).unwrap_err();
                let said = in_one_line_of(&error, &words(&arguments[1..]));
                assert!(
                    said.contains(meant) && !said.contains("as a value"),
                    "{arguments:?}: {said}"
                );
            }
        }
        let error = Cli::try_parse_from(["leasehold", "ls", "--timeout", "5s"]).unwrap_err();
        let said = in_one_line_of(&error, &words(&["ls", "--timeout", "5s"]));
        assert_eq!(said, "unexpected argument '--timeout' found (see leasehold ls --help)");
    }

    #[test]
    fn the_help_is_that_of_the_subcommand() {
        let of = |words: &[&str]| {
            help_for(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["--redlock", "run", "--lease", "x"]), "leasehold run --help");
        assert_eq!(of(&["walk", "--", "run"]), "leasehold --help");
    }

    #[test]
    fn passwords_are_not_repeated() {
        let url = "redis://:secret@host/".to_owned();
        let line = without_passwords(format!("unrecognized subcommand '{url}'"), &[url]);
        assert_eq!(line, "unrecognized subcommand '(a URL with a password)'");
        let arguments = words(&["ls", "*", "redis://:two  blanks@host/"]);
        let error =
            Cli::try_parse_from([&words(&["leasehold"]), &arguments[..]].concat()).unwrap_err();
        let said = in_one_line_of(&error, &arguments);
        assert!(said.contains("(a URL with a password)") && !said.contains("blanks"), "{said}");
        let line = without_passwords(
            "unexpected argument 'redis://:se@cret@h'".to_owned(),
            &words(&["@", "redis://:se@cret@h"]),
        );
        assert_eq!(line, "unexpected argument '(a URL with a password)'");
        let option = ["--redis://:sec=ret@h/".to_owned()];
        let line =
            without_passwords("unexpected argument '--redis://:sec' found".to_owned(), &option);
        assert_eq!(line, "unexpected argument '(a URL with a password)' found");
        let option = ["--longest-lease=redis://:secret@h/".to_owned()];
        let line = without_passwords("invalid value 'redis://:secret@h/' for".to_owned(), &option);
        assert_eq!(line, "invalid value '(a URL with a password)' for");
    }

    #[test]
    fn fuzzed_arguments_are_understood_or_refused_in_one_line_without_passwords() {
        const SECRET: &str = "S3cr3t";
        let some = [
            "run",
            "lead",
            "job",
            "--data",
            "--wait",
            "5s",
            "--lease=30s",
            "--",
            "true",
            "ls",
            "--json",
            "show",
            "unlock",
            "permits",
            "--redlock",
            "--longest-lease",
            "1h30m",
            "watch",
            "top",
            "doctor",
            "exporter",
            "--url",
            "-n",
        ];
        fuzz(
            move |dice| {
                let mut word = || match dice.below(8) {
                    0 => format!(
                        "redis://user:{SECRET}{}@h",
                        dice.text().replace(['\n', '\r', '\0'], " ")
                    ),
                    1 => dice.text(),
                    _ => (*dice.choose(&some)).to_owned(),
                };
                (0..6).map(|_| word()).collect::<Vec<_>>().join("\n").into_bytes()
            },
            |bytes, _| {
                let text = String::from_utf8_lossy(bytes);
                let arguments: Vec<String> = text.split('\n').map(str::to_owned).collect();
                let _ = crate::duration::parse(&text);
                let shown = crate::text::visible(&text);
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
                let Err(error) =
                    Cli::try_parse_from([&["leasehold".to_owned()], &arguments[..]].concat())
                else {
                    return;
                };
                if error.use_stderr() {
                    let said = in_one_line_of(&error, &arguments);
                    assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
                    let mut secrets = arguments.iter().filter(|argument| argument.contains(SECRET));
                    // Nobody could know the same word for a password where no URL has one.
                    let is_seen = |secret: &String| {
                        may_have_password(secret)
                            && secret.contains(&format!(":{SECRET}"))
                            && secret.matches(SECRET).count() == 1
                    };
                    assert!(!secrets.all(is_seen) || !said.contains(SECRET), "{said:?}");
                }
            },
        );
    }
}
