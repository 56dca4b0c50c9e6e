//! `leasehold`, the command: runs commands under locks, and shows what the locks do.
//!
//! It uses only the public interface of the crate. `leasehold --help` is its documentation.

#[cfg(not(unix))]
compile_error!("the cargo feature `cli` needs Unix: `leasehold run` passes signals on; build without it");

mod args;
mod completions;
mod duration;
mod failure;
mod looks;
mod man;
mod output;
mod run;
mod shown_url;
mod store;
mod text;
mod top;
mod views;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Subcommand};
use failure::{Failure, say, status};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and the version are asked for, and go to stdout.
            let asked_for = !e.use_stderr();
            let _ = e.print();
            return ExitCode::from(if asked_for { 0 } else { status::USAGE });
        }
    };
    let ended = dispatch(&cli);
    let status = ended.unwrap_or_else(|failure| {
        say(&failure);
        failure.status
    });
    ExitCode::from(status)
}

fn dispatch(cli: &Cli) -> Result<u8, Failure> {
    match &cli.subcommand {
        Subcommand::Run(args) => run::run(&cli.store, args),
        Subcommand::Top(args) => top::top(&cli.store, args),
        Subcommand::Watch(args) => watch::watch(&cli.store, args),
        Subcommand::Completions(args) => completions::print(args, &mut Cli::command()),
        Subcommand::Man => man::print(Cli::command()),
    }
}
