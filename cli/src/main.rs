//! The command `leasehold`: runs commands under locks, and inspects locks.
//!
//! It uses only the public interface of the crate. `leasehold --help` is its documentation.

#[cfg(not(any(unix, windows)))]
compile_error!("the command needs Unix or Windows");

mod args;
mod completions;
mod doctor;
mod duration;
mod exporter;
mod failure;
#[cfg(test)]
#[path = "../../src/base/fuzz_tests.rs"]
#[allow(dead_code, reason = "the library needs more of it")]
mod fuzz;
mod holders;
mod looks;
mod ls;
mod man;
mod once;
mod output;
mod permits;
mod platform;
mod refusal;
mod run;
mod schema;
mod show;
mod shown_url;
mod stderr;
mod store;
mod text;
mod top;
mod unlock;
mod watch;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Subcommand};
use failure::{Failure, say, status};

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(ended) = run::be_backstop() {
        return ended;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version go to stdout.
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            say(refusal::in_one_line(&e));
            return ExitCode::from(status::USAGE);
        }
    };
    let ended = dispatch(&cli);
    let status = ended.unwrap_or_else(|failure| {
        say(&failure);
        failure.status
    });
    stderr::wait_until_written(stderr::PATIENCE);
    ExitCode::from(status)
}

fn dispatch(cli: &Cli) -> Result<u8, Failure> {
    match &cli.subcommand {
        Subcommand::Run(args) => run::run(&cli.store, args),
        Subcommand::Lead(args) => run::lead(&cli.store, args),
        Subcommand::Ls(args) => ls::ls(&cli.store, args),
        Subcommand::Show(args) => show::show(&cli.store, args),
        Subcommand::Unlock(args) => unlock::unlock(&cli.store, args),
        Subcommand::Once(args) => once::once(&cli.store, args),
        Subcommand::Permits(args) => permits::permits(&cli.store, args),
        Subcommand::Schema(args) => schema::print(args),
        Subcommand::Doctor(args) => doctor::run(&cli.store, args),
        Subcommand::Top(args) => top::top(&cli.store, args),
        Subcommand::Watch(args) => watch::watch(&cli.store, args),
        Subcommand::Exporter(args) => exporter::export(&cli.store, args),
        Subcommand::Completions(args) => completions::print(args, &mut Cli::command()),
        Subcommand::Man => man::print(Cli::command()),
    }
}
