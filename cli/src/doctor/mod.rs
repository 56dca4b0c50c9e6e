//! `leasehold doctor`: what is wrong at the servers, and what to do about it.

mod acl;
mod page;

use std::time::Duration;

use leasehold::observe::{Diagnosis, Severity};
use serde_json::{Value, json};

use crate::duration;
use crate::failure::Failure;
use crate::output::{write_json, write_out};
use crate::store::StoreArgs;
use crate::words::in_words_of_the_command;
use page::Page;

const DETAILS: &str = "\
It asks each server of the store whether it can be reached, its version and role, what it forgets, the rights of the user one
by one, its clock, and its latency against the lease: of Redlock every master, of a cluster every primary, behind sentinels
the sentinels too. It takes no lock and changes nothing, except that masters of Redlock are told, as by every client, that they
may have forgotten locks. It mostly takes some milliseconds, and half a minute at most if servers hang.

Each finding has a severity. ok: as it should be. note: worth knowing, nothing has to be done. warning: locks work, and can be
lost or delayed by something that is likely to happen. problem: locks do not work, or are lost in normal operation.

Exit statuses of this subcommand:
  0    nothing is worse than a note
  1    there are warnings
  2    there is a problem; a server that cannot be reached or refuses the log-in is one
  64   the arguments or the settings cannot be used";

/// Say what is wrong at the servers of a store, and what to do about it
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct DoctorArgs {
    /// The store, in place of --url and LEASEHOLD_URL. Without a password: everybody on the machine
    /// can see arguments
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// The lease of your locks: whether the latency allows it
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    lease: Duration,

    /// Print the ACL rule that a user of Redis needs, for names with the --key-prefix, and ask no
    /// server
    #[arg(long, conflicts_with = "json")]
    acl: bool,

    /// Print one JSON object in a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &DoctorArgs) -> Result<u8, Failure> {
    if args.acl {
        // A URL is not needed; if one is there, it says what the servers are.
        let urls = store.urls(&args.urls).unwrap_or_default();
        let cluster = urls.iter().any(|url| url.starts_with("redis+cluster:") || url.starts_with("rediss+cluster:"));
        let servers = acl::Servers { redlock: store.is_redlock(), cluster };
        return write_out(acl::rule(store.key_prefix(), &servers).as_bytes()).map(|_| 0);
    }
    let builder = store.builder_at(&args.urls)?.lease(args.lease);
    let diagnosis = builder.connect_lazily().build()?.diagnose();
    let written = match args.json {
        true => write_json(&in_json(&diagnosis)),
        false => write_out(Page::for_stdout().of(&diagnosis).as_bytes()),
    };
    let _ = written?;
    Ok(match diagnosis.severity() {
        Severity::Ok | Severity::Note => 0,
        Severity::Warning => 1,
        _ => 2,
    })
}

/// The diagnosis as the library writes it, with its texts in the words of the command.
fn in_json(diagnosis: &Diagnosis) -> Value {
    let mut json = json!(diagnosis);
    for finding in json["findings"].as_array_mut().into_iter().flatten() {
        for key in ["found", "advice"] {
            if let Some(text) = finding[key].as_str() {
                finding[key] = in_words_of_the_command(text).into();
            }
        }
    }
    json
}
