//! `leasehold doctor`: finds problems of the servers, and says how to fix them.

mod acl;
mod page;

use std::time::Duration;

use leasehold::observe::{Diagnosis, Severity};
use serde_json::{Value, json};

use crate::duration;
use crate::failure::Failure;
use crate::output::{write_json, write_out};
use crate::store::{StoreArgs, scheme};
use crate::words;
use page::Page;

const DETAILS: &str = "\
It checks each server of the store: whether it can be reached, its version and role, what can make it forget locks, the
user's permissions one by one, its clock, and its latency compared with the lease. With Redlock it checks every master,
in a cluster every primary, and with sentinels the sentinels too. It takes no lock and changes nothing, except that,
like every client, it records on masters of Redlock that they may have forgotten locks. It usually takes some
milliseconds, and at most half a minute if servers hang.

Each finding has a severity. ok: as it should be. note: worth knowing, nothing has to be done. warning: locks work, but
can be lost or delayed by something that is likely to happen. problem: locks do not work, or are lost in normal
operation.

Exit statuses of this subcommand:
  0    nothing is worse than a note
  1    there are warnings
  2    there is a problem; a server that cannot be reached or refuses the login is one
  64   the arguments or the settings are not valid";

/// Find problems of the servers of a store, and say how to fix them
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct DoctorArgs {
    /// The store, instead of --url and LEASEHOLD_URL. Give no password here: every user of the
    /// machine can see arguments
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// The lease of your locks, with which the latency is compared
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    lease: Duration,

    /// Print the ACL rule that a Redis user needs, for names with the --key-prefix, without
    /// querying a server
    #[arg(long, conflicts_with = "json")]
    acl: bool,

    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &DoctorArgs) -> Result<u8, Failure> {
    if args.acl {
        // A URL is optional here: if there is one, it says what kind of servers they are.
        let urls = store.urls(&args.urls).unwrap_or_default();
        let cluster = urls.iter().any(|url| scheme(url).contains("cluster"));
        let servers = acl::Servers { redlock: store.is_redlock(), cluster };
        return write_out(acl::rule(store.key_prefix(), &servers).as_bytes()).map(|_| 0);
    }
    let builder = store.builder_at(&args.urls)?.lease(args.lease);
    let diagnosis = builder.connect_lazily().build()?.diagnose();
    let written = if args.json {
        write_json(&in_json(&diagnosis))
    } else {
        write_out(Page::for_stdout().of(&diagnosis).as_bytes())
    };
    let _ = written?;
    Ok(match diagnosis.severity() {
        Severity::Ok | Severity::Note => 0,
        Severity::Warning => 1,
        _ => 2,
    })
}

/// The diagnosis as the library writes it, with its advice in the words of the command.
fn in_json(diagnosis: &Diagnosis) -> Value {
    let mut json = json!(diagnosis);
    let written = json["findings"].as_array_mut().into_iter().flatten();
    for (written, finding) in written.zip(diagnosis.findings()) {
        written["advice"] = finding.advice().and_then(words::advice).into();
    }
    json
}
