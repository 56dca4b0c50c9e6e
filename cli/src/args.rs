//! The command line: what is common to all subcommands.

use clap::Parser;

use crate::bench::BenchArgs;
use crate::completions::CompletionsArgs;
use crate::doctor::DoctorArgs;
use crate::ls::LsArgs;
use crate::run::RunArgs;
use crate::schema::SchemaArgs;
use crate::show::ShowArgs;
use crate::store::StoreArgs;
use crate::top::TopArgs;
use crate::unlock::UnlockArgs;
use crate::watch::WatchArgs;

const ENVIRONMENT_AND_STATUSES: &str = "\
Environment:
  LEASEHOLD_URL  the store, where --url is not given; several URLs are separated by spaces. The place for a URL with a
                 password: arguments can be seen by everybody on the machine

Exit statuses:
  0    done
  1    of show: nothing stands there; of doctor: there are warnings
  2    of doctor: there is a problem
  64   the arguments, the settings or the name cannot be used
  69   the store cannot be asked: it is down, cut off, not ready or full
  70   the lock was lost while the command ran
  75   somebody else has the lock (run --conflict-status says another); unlock: its holder lives, or nobody has agreed
  76   the store answers, but is not one that can keep this lock
  77   the store refuses the log-in or a permission, or its certificate is refused
  126  the command cannot be executed
  127  the command was not found
  128+n  ended by signal n
Otherwise the status of the command that was run.";

/// Distributed locks: run commands under them, and see what they do
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = ENVIRONMENT_AND_STATUSES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    Run(RunArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Unlock(UnlockArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Top(TopArgs),
    Watch(WatchArgs),
    Completions(CompletionsArgs),
    Schema(SchemaArgs),
    /// Print the man page of leasehold and its subcommands
    Man,
}
