//! What a diagnosis finds out about the servers of an ensemble, and about the session.

use std::time::Duration;

use super::ZooKeeperStore;
use super::client::ZooKeeperFailure;
use super::queue::ZooKeeperResult;
use super::wire::{Code, Permission, Request, ServerStatus};
use crate::report::diagnosis::{Check, Finding, lease_finding};
use crate::store::Diagnose;
use crate::store::findings::{Examined, examine_each, failed, measure, of_each, reachable};

/// Where the servers publish the members of the ensemble.
const CONFIGURATION: &str = "/zookeeper/config";
/// Read, write, create and delete.
const NEEDED: i32 = 15;

impl ZooKeeperStore {
    pub(super) fn examine_ensemble(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let servers = self.client.servers();
        let within = self.client.io_timeout();
        let examined =
            examine_each(&servers.addresses, |address| match servers.status(address, within) {
                Ok(status) => of_one(&status),
                Err(e) => Examined::failed(&e),
            });
        let reached = examined.iter().filter(|examined| examined.usable).count();
        let mut together = Vec::new();
        let served = self.examine_session(asked, reached, &mut together);
        let addresses = servers.addresses.iter().map(|address| format!("{address:?}")).collect();
        let mut all = of_each(addresses, examined, served.is_ok());
        all.append(&mut together);
        // If none can be reached, the findings of each server already state the reason.
        if reached > 0
            && let Err(failure) = served
        {
            all.push(failed(&failure.into_error()));
        }
        all
    }

    /// Uses the client's session, and makes one if there is none, as the first lock would.
    fn examine_session(
        &self,
        asked: &Diagnose<'_>,
        reached: usize,
        all: &mut Vec<Finding>,
    ) -> ZooKeeperResult<()> {
        let ask = |request: Request| {
            let mut exchange = self.ask(&[request])?;
            Ok::<_, ZooKeeperFailure>(exchange.replies.remove(0))
        };
        self.catch_up()?;
        all.push(Finding::ok(Check::Connect, "a session for locks can be opened"));
        if let Some(granted) = self.client.granted() {
            all.push(session(granted, self.asked_lease));
        }
        let configuration = ask(Request::get_data(CONFIGURATION, false))?;
        let text = configuration.code.is_ok().then(|| configuration.data()).transpose()?;
        let text = text.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned());
        all.push(ensemble(text.as_deref(), self.client.servers().addresses.len(), reached));
        let acl = ask(Request::get_acl(&self.root()))?;
        all.push(match acl.code {
            code if code.is_ok() => self.rights(&acl.acl()?),
            Code::NO_NODE => Finding::note(
                Check::Right,
                format!("{} does not exist; the first connection makes it", self.root()),
            ),
            code => {
                Finding::problem(Check::Right, code.to_error(&self.root()).message().to_owned())
            }
        });
        let (latency, slowest) = measure(self.client.io_timeout(), || self.catch_up())?;
        all.push(latency);
        all.push(lease_finding(self.client.granted().unwrap_or(asked.lease), slowest));
        Ok(())
    }

    /// Whether some identity that may be this client's has every right on the chroot. Only the
    /// scheme shows which identity has the rights: the server keeps a hash.
    fn rights(&self, acl: &[Permission]) -> Finding {
        let root = self.root();
        let rights_of = |world: bool| {
            let those = acl.iter().filter(|one| (one.scheme == "world") == world);
            those.fold(0, |rights, one| rights | one.rights)
        };
        let open = rights_of(true);
        let for_identities = rights_of(false);
        let has_digest = self.client.servers().digest.is_some();
        if open & NEEDED == NEEDED {
            let found = format!("anybody may read, write, make and delete nodes below {root}");
            return Finding::ok(Check::Right, found);
        }
        if (open | for_identities) & NEEDED != NEEDED
            || !has_digest && acl.iter().all(|one| one.scheme == "digest" || one.scheme == "world")
        {
            let found = format!(
                "the ACL of {root} does not permit this client to read, write, make and delete"
            );
            return Finding::problem(Check::Right, found).advise(
                "set the digest identity that has the rights in the URL, or fix the ACL (setAcl)",
            );
        }
        let whose = if has_digest { "and the URL names one" } else { "which may be this client's" };
        let found = format!("the ACL of {root} has every right for some identity, {whose}");
        Finding::ok(Check::Right, found)
    }
}

fn of_one(status: &ServerStatus) -> Examined {
    let mut examined = Examined::default();
    examined.add(reachable(status.connected_in));
    examined.add(status.security.clone());
    if status.is_not_serving() {
        examined.add(
            Finding::problem(Check::Role, "the server runs, but has no majority and serves nobody")
                .advise("start the other servers, and check that they reach each other"),
        );
        return examined;
    }
    if status.is_forbidden() {
        examined.usable = true;
        let found = "the version and the mode are unknown: the server does not answer srvr";
        examined.add(
            Finding::note(Check::Version, found).advise("permit it: 4lw.commands.whitelist=srvr"),
        );
        return examined;
    }
    if status.version().is_none() {
        let found = "the server does not report its mode: it may be starting, or electing a leader";
        examined.add(Finding::warning(Check::Role, found).advise("ask again in a few seconds"));
        return examined;
    }
    examined.usable = status.mode() != Some("read-only");
    examined.add(version(status.version().unwrap_or_default()));
    let latency = status.latency().map_or_else(String::new, |latency| {
        format!("; requests took {latency} ms there (least/mean/most)")
    });
    examined.add(match status.mode() {
        Some("read-only") => {
            Finding::problem(Check::Role, "the server is cut off, and serves only reads")
                .advise("check that it reaches the other servers")
        }
        Some(mode) => Finding::ok(Check::Role, format!("{mode}{latency}")),
        None => Finding::note(Check::Role, "the server does not report its mode"),
    });
    examined
}

fn version(version: &str) -> Finding {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let product = format!("ZooKeeper {version}");
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
        older if older < (3, 5) => {
            Finding::problem(Check::Version, format!("{product} is too old"))
                .advise("use 3.5 or later")
        }
        _ => Finding::ok(Check::Version, product),
    }
}

fn session(granted: Duration, asked: Duration) -> Finding {
    let found = format!("a session timeout of {granted:?} was granted, {asked:?} was asked for");
    match granted {
        granted if granted < asked => Finding::warning(Check::Session, found)
            .advise("raise maxSessionTimeout (20 ticks by default) at the servers, or ask for a shorter lease"),
        granted if granted > asked => Finding::note(Check::Session, found)
            .advise("a dead holder keeps its locks that long: lower minSessionTimeout (2 ticks by default)"),
        _ => Finding::ok(Check::Session, found),
    }
}

/// `configuration`: what the servers report about the ensemble, if they do.
fn ensemble(configuration: Option<&str>, named: usize, reached: usize) -> Finding {
    let lines =
        configuration.unwrap_or_default().lines().filter(|line| line.starts_with("server."));
    let voters = lines.filter(|line| !line.contains(":observer")).count();
    if voters == 0 {
        let found = format!(
            "{reached} of the {named} servers in the URL answer; the size of the ensemble is unknown"
        );
        let advice =
            "have three servers or more, so that one may fail, and name all of them in the URL";
        return match (named, reached) {
            (1, 1) => Finding::note(
                Check::Ensemble,
                "the URL names one server, which does not report whether there are more",
            )
            .advise(advice),
            _ if reached < named => {
                Finding::warning(Check::Ensemble, found).advise("bring the others back")
            }
            _ => Finding::ok(Check::Ensemble, found),
        };
    }
    let quorum = voters / 2 + 1;
    let found = format!(
        "{voters} servers vote, {quorum} are needed; {reached} of the {named} in the URL answer"
    );
    if reached < named {
        return Finding::warning(Check::Ensemble, found).advise("bring the others back");
    }
    if named < voters {
        return Finding::note(Check::Ensemble, found)
            .advise("name all servers in the URL, so that any may fail");
    }
    Finding::ok(Check::Ensemble, found)
}
