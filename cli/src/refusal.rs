//! Errors in the arguments, as one line.

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::store::may_have_password;

/// Clap's error, which has several paragraphs, as one line without the usage at its end.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let help = help_for(&arguments);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("no subcommand is given; {help} lists them");
    }
    let text = error.render().to_string();
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_wrong = |paragraph: &String| !["Usage: ", "For more"].iter().any(|begin| paragraph.starts_with(begin));
    let wrong: Vec<String> = paragraphs.take_while(is_wrong).collect();
    let wrong = wrong.join("; ").replace(" tip: ", "; tip: ").replace(";;", ";");
    let hint = hint_of_dashes(&arguments);
    let wrong = without_passwords(wrong.strip_prefix("error: ").unwrap_or(&wrong).to_owned(), &arguments);
    format!("{wrong}{hint} (see {help})")
}

/// The command of a run comes after two dashes.
fn hint_of_dashes(arguments: &[String]) -> &'static str {
    let is_run = arguments.iter().find(|word| !word.starts_with('-')).is_some_and(|word| word == "run");
    match is_run && arguments.len() > 2 && !arguments.iter().any(|word| word == "--") {
        true => "; the command comes after --: leasehold run NAME -- COMMAND",
        false => "",
    }
}

fn help_for(arguments: &[String]) -> String {
    let command = Cli::command();
    let is_one = |word: &&String| command.get_subcommands().any(|one| one.get_name() == word.as_str());
    match arguments.iter().take_while(|word| *word != "--").find(is_one) {
        Some(subcommand) => format!("leasehold {subcommand} --help"),
        None => "leasehold --help".to_owned(),
    }
}

/// Clap quotes an argument that it does not understand, and stderr may end up in a cron job's mail.
fn without_passwords(mut line: String, arguments: &[String]) -> String {
    // Only the value of `--option=value` is quoted.
    let values = arguments.iter().filter_map(|argument| Some(argument.split_once('=')?.1));
    let quoted = arguments.iter().map(String::as_str).chain(values);
    for secret in quoted.filter(|text| may_have_password(text)) {
        line = line.replace(secret, "(a URL with a password)");
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_error_is_one_line() {
        for (arguments, line) in [
            (&[][..], "no subcommand is given; "),
            (&["run"], "the following required arguments were not provided: <NAME> <COMMAND>... (see "),
            (
                &["run", "job", "--wiat", "1s"],
                "unexpected argument '--wiat' found; tip: a similar argument exists: '--wait'; tip: ",
            ),
            (&["run", "x", "true"], "unexpected argument 'true' found"),
            (&["walk"], "unrecognized subcommand 'walk' (see "),
        ] {
            let error = Cli::try_parse_from([&["leasehold"], arguments].concat()).unwrap_err();
            let said = in_one_line(&error);
            assert!(said.starts_with(line) && !said.contains('\n'), "{said:?}");
        }
    }

    #[test]
    fn a_run_without_dashes_is_told_of_them() {
        let hint = |words: &[&str]| hint_of_dashes(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(hint(&["run", "x", "true"]).contains("leasehold run NAME -- COMMAND"));
        for other in [&["run", "x", "--wait", "1", "--", "true"][..], &["run", "x"], &["ls", "run", "x"]] {
            assert_eq!(hint(other), "", "{other:?}");
        }
    }

    #[test]
    fn the_help_is_that_of_the_subcommand() {
        let of = |words: &[&str]| help_for(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["--redlock", "run", "--lease", "x"]), "leasehold run --help");
        assert_eq!(of(&["walk", "--", "run"]), "leasehold --help");
    }

    #[test]
    fn passwords_are_not_repeated() {
        let url = "redis://:secret@host/".to_owned();
        let line = without_passwords(format!("unrecognized subcommand '{url}'"), &[url]);
        assert_eq!(line, "unrecognized subcommand '(a URL with a password)'");
        let option = ["--longest-lease=redis://:secret@h/".to_owned()];
        let line = without_passwords("invalid value 'redis://:secret@h/' for".to_owned(), &option);
        assert_eq!(line, "invalid value '(a URL with a password)' for");
    }
}
