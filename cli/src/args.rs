//! The command line: the options that all subcommands share.

use clap::Parser;

use crate::completions::CompletionsArgs;
use crate::doctor::DoctorArgs;
use crate::exporter::ExporterArgs;
use crate::ls::LsArgs;
use crate::once::OnceArgs;
use crate::permits::PermitsArgs;
use crate::run::{LeadArgs, RunArgs};
use crate::schema::SchemaArgs;
use crate::show::ShowArgs;
use crate::store::StoreArgs;
use crate::top::TopArgs;
use crate::unlock::UnlockArgs;
use crate::watch::WatchArgs;

const ENVIRONMENT_AND_STATUSES: &str = "\
Environment:
  LEASEHOLD_URL  the store, if --url is not given; several URLs are separated by spaces. Put a URL with a password
                 here: every user of the machine can see arguments

Exit statuses:
  0    success
  1    show: the lock is free; doctor: there are warnings
  2    doctor: there is a problem
  64   the arguments, the settings or the name are not valid
  69   the store is unavailable: it is down, unreachable, not ready or full
  70   the lock was lost while the command ran
  75   somebody else holds the lock (run: --conflict-status replaces 75); unlock: the lock was not freed
  76   the store answers, but cannot keep this lock: it is of another kind, or has another number of permits
  77   the store refuses the login or a permission, or a certificate is refused
  126  the command cannot be executed
  127  the command was not found
  128+n  ended by signal n
Otherwise the exit status of `run` is that of its command.";

/// Run commands under distributed locks, and inspect the locks
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
    Run(Box<RunArgs>),
    Lead(LeadArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Unlock(UnlockArgs),
    Once(OnceArgs),
    Permits(PermitsArgs),
    Doctor(DoctorArgs),
    Top(TopArgs),
    Watch(WatchArgs),
    Exporter(ExporterArgs),
    Completions(CompletionsArgs),
    Schema(SchemaArgs),
    /// Print the man page of leasehold and its subcommands
    Man,
}
