//! `leasehold exporter`: serves what is locked in a store to Prometheus.

mod args;
mod figures;
mod http;
mod page;

use std::time::SystemTime;

use crossbeam_channel::{never, select};
use leasehold::observe::Severity;
use leasehold::{ErrorKind, LockClient, Result};

use crate::failure::{Failure, say};
use crate::looks::{Look, Looks, asker_has_ended};
use crate::output::write_out;
use crate::platform::take_in;
use crate::shown_url::shown;
use crate::store::StoreArgs;
use crate::words::chain;
pub(crate) use args::ExporterArgs;
use figures::{Figures, Seen};
use http::Server;

/// Returns the exit status, at the first signal that ends it.
pub(crate) fn export(store: &StoreArgs, args: &ExporterArgs) -> std::result::Result<u8, Failure> {
    let urls = store.urls(&[])?;
    // A store that is down is something to report, so it is no reason not to start.
    let client = store.builder()?.busy_poll(false).connect_lazily().build()?;
    let label = args.label.clone().unwrap_or_else(|| shown(&urls));
    let signals = take_in()?;
    let mut figures = Figures::new(label, args.limit);
    let server = Server::start(&args.listen, page::page(&figures))?;
    // Nobody has to read it.
    let _ = write_out(format!("listening on http://{}/metrics\n", server.address()).as_bytes())?;
    let servers = client.clone();
    let pattern = args.pattern.clone();
    let looks = Looks::start(args.every, move || look(&client, &pattern))?;
    // On a thread of its own: a server that hangs delays the examination, and not the polls.
    let diagnoses = if args.diagnose_every.is_zero() {
        never()
    } else {
        Looks::start(args.diagnose_every, move || Ok(servers.diagnose()))?.received
    };
    loop {
        select! {
            recv(looks.received) -> look => {
                take(&mut figures, look.map_err(|_| asker_has_ended())?)?;
                server.serve(page::page(&figures));
            }
            recv(diagnoses) -> diagnosis => {
                let diagnosis = diagnosis.map_err(|_| asker_has_ended())?.answer?;
                let count = |severity| diagnosis.count(severity);
                figures.findings = Some((count(Severity::Warning), count(Severity::Problem)));
                server.serve(page::page(&figures));
            }
            // A look that hangs ends with the process.
            recv(signals) -> _ => return Ok(0),
        }
    }
}

/// Says when the store goes away, and when it is back.
fn take(figures: &mut Figures, look: Look<Seen>) -> std::result::Result<(), Failure> {
    let was_up = figures.is_up();
    match look.answer {
        Ok(seen) => {
            if was_up == Some(false) {
                say("the store answers again");
            }
            figures.succeeded(seen, look.took, SystemTime::now());
        }
        // Such as an invalid pattern: no later poll would succeed.
        Err(e) if e.kind() == ErrorKind::InvalidInput => return Err(e.into()),
        Err(e) => {
            if was_up != Some(false) {
                say(format!("the store cannot be queried: {}", chain(&e)));
            }
            figures.failed(look.took);
        }
    }
    Ok(())
}

fn look(client: &LockClient, pattern: &str) -> Result<Seen> {
    let announced = client.announced_locks(pattern)?;
    Ok(Seen {
        locks: announced.locks().to_vec(),
        unlisted: announced.unlisted(),
        nodes: client.nodes(),
    })
}
