//! What a server reports about itself, and what that means for locks.

use super::rights::Rights;
use super::subject::{Part, Subject};
use crate::base::error::{ErrorKind, Result};
use crate::report::diagnosis::{Check, Finding};
use crate::store::findings::Examined;
use crate::store::redis::wire::{BareConnection, Reply, Request, check_server, field};

/// The sections of `INFO` that are asked for.
const SECTIONS: [&str; 5] = ["server", "replication", "memory", "persistence", "clients"];
/// Settings that no section contains.
const SETTINGS: [&str; 3] = ["save", "appendfsync", "min-replicas-to-write"];

/// Texts of [`SECTIONS`], and values of [`SETTINGS`] as far as the user may read them.
pub(super) struct ServerFacts {
    sections: [String; 5],
    settings: [Option<String>; 3],
}

pub(super) fn examine(
    connection: &mut BareConnection,
    rights: &Rights,
    subject: &Subject,
    examined: &mut Examined,
) -> Result<()> {
    if !rights.may_info {
        examined.add(
            Finding::note(
                Check::Version,
                "the version, role, eviction policy and persistence are unknown without INFO",
            )
            .advise("add +info to the user's ACL, or ask as another user"),
        );
        return Ok(());
    }
    let facts = ServerFacts::ask(connection, rights.may_config)?;
    examined.run_id = field(&facts.sections[0], "run_id:").map(str::to_owned);
    for finding in facts.findings(subject) {
        examined.add(finding);
    }
    Ok(())
}

impl ServerFacts {
    fn ask(connection: &mut BareConnection, may_config: bool) -> Result<Self> {
        let mut requests: Vec<Request> =
            SECTIONS.iter().map(|section| Request::plain(&["INFO", section])).collect();
        if may_config {
            requests.extend(SETTINGS.iter().map(|name| Request::plain(&["CONFIG", "GET", name])));
        }
        let replies = connection.ask(&requests)?;
        let text = |at: usize| match &replies[at] {
            Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let setting = |at: usize| match replies.get(SECTIONS.len() + at)? {
            Reply::Array(pair) => match pair.get(1)? {
                Reply::Bytes(value) => Some(String::from_utf8_lossy(value).into_owned()),
                _ => None,
            },
            _ => None,
        };
        Ok(Self { sections: [0, 1, 2, 3, 4].map(text), settings: [0, 1, 2].map(setting) })
    }

    fn number(&self, section: usize, name: &str) -> Option<u64> {
        field(&self.sections[section], name)?.parse().ok()
    }

    fn findings(&self, subject: &Subject) -> Vec<Finding> {
        let mut findings = self.version_and_role(subject.part == Part::InCluster);
        // What a replica reports on these is decided by its primary.
        if field(&self.sections[1], "role:") != Some("slave") {
            findings.extend([
                self.eviction(),
                self.persistence(subject),
                self.replication(subject),
            ]);
        }
        findings.extend(self.connections());
        findings
    }

    fn version_and_role(&self, in_cluster: bool) -> Vec<Finding> {
        let [server, replication, ..] = &self.sections;
        let product = match (field(server, "valkey_version:"), field(server, "redis_version:")) {
            (Some(valkey), Some(redis)) => {
                format!("Valkey {valkey}, which is compatible with Redis {redis}")
            }
            (_, Some(redis)) => format!("Redis {redis}"),
            _ => "the server does not report its version".to_owned(),
        };
        // What could not be checked does not count as in order.
        let seen = |is_seen, check, text| {
            if is_seen { Finding::ok(check, text) } else { Finding::note(check, text) }
        };
        let says_version = field(server, "redis_version:").is_some();
        match check_server(server, replication, in_cluster) {
            Ok(()) => {
                let says_role = field(replication, "role:").is_some();
                let role =
                    if says_role { "a primary" } else { "the server does not report its role" };
                vec![
                    seen(says_version, Check::Version, product),
                    seen(says_role, Check::Role, role.to_owned()),
                ]
            }
            Err(e) if e.kind() == ErrorKind::ReadOnly => {
                let host =
                    field(replication, "master_host:").zip(field(replication, "master_port:"));
                let primary =
                    host.map_or_else(String::new, |(host, port)| format!(": {host}:{port}"));
                vec![
                    seen(says_version, Check::Version, product),
                    Finding::problem(Check::Role, "the server is a replica, and takes no writes")
                        .advise(format!("name its primary{primary}, or let sentinels name it")),
                ]
            }
            Err(e) => vec![
                Finding::problem(Check::Version, format!("{product}: {}", e.message()))
                    .advised_by(&e),
            ],
        }
    }

    /// A lock has a TTL, so every policy but `noeviction` may evict it.
    fn eviction(&self) -> Finding {
        let memory = &self.sections[2];
        let Some(policy) = field(memory, "maxmemory_policy:") else {
            return Finding::note(
                Check::Eviction,
                "the server does not report its maxmemory-policy",
            );
        };
        let most = self.number(2, "maxmemory:").unwrap_or(0);
        let used = self.number(2, "used_memory:").unwrap_or(0);
        if policy == "noeviction" {
            if most > 0 && used > most / 10 * 9 {
                let used = size(used);
                let most = size(most);
                let found = format!(
                    "{used} of {most} (maxmemory) are used: when it is full, no lock is granted"
                );
                return Finding::warning(Check::Eviction, found)
                    .advise("raise maxmemory, or delete what is not needed");
            }
            return Finding::ok(Check::Eviction, "maxmemory-policy noeviction: no lock is evicted");
        }
        let advice = "set maxmemory-policy noeviction, or give locks a server of their own";
        if most == 0 {
            let found =
                format!("maxmemory-policy {policy} would evict locks, but there is no maxmemory");
            return Finding::note(Check::Eviction, found).advise(advice);
        }
        let full = size(most);
        let found = format!(
            "maxmemory-policy {policy}: when {full} are used, locks that are held are evicted"
        );
        Finding::problem(Check::Eviction, found).advise(advice)
    }

    fn persistence(&self, subject: &Subject) -> Finding {
        let [save, fsync, _] = &self.settings;
        let says = |name: &str| field(&self.sections[3], name);
        if says("aof_last_write_status:").is_some_and(|status| status != "ok") {
            return Finding::problem(
                Check::Persistence,
                "the last write to the append-only file failed",
            )
            .advise(
                "look at the server's log and its disk: it refuses writes until that is fixed",
            );
        }
        let Some(aof) = says("aof_enabled:") else {
            return Finding::note(
                Check::Persistence,
                "the server does not report what it persists",
            );
        };
        let durable = matches!(subject.part, Part::Master { durable: true });
        let always = fsync.as_deref() == Some("always");
        if aof == "1" && (always || durable && fsync.is_none()) {
            return if always {
                Finding::ok(Check::Persistence, "every write is on disk before it is answered")
            } else {
                Finding::note(
                    Check::Persistence,
                    "appendonly yes; appendfsync is unknown without CONFIG",
                )
                .advise("durable_nodes needs appendfsync always: check it as an administrator")
            };
        }
        if durable {
            let found =
                "the client relies on durable_nodes, but a crash of this master forgets grants";
            return Finding::problem(Check::Persistence, found)
                .advise("set appendonly yes and appendfsync always, or leave durable_nodes out");
        }
        if aof == "1" {
            let found = "appendonly yes: a restart keeps locks; a crash of the machine forgets about the last second";
            return Finding::note(Check::Persistence, found);
        }
        let what = match save.as_deref() {
            Some("") => "nothing is persisted: a restart forgets every lock",
            Some(_) => {
                "only snapshots are persisted: a restart forgets the locks since the last one"
            }
            None => "appendonly no: a restart forgets locks",
        };
        if matches!(subject.part, Part::Master { .. }) {
            let found =
                format!("{what}; this master then has no vote until the longest lease has passed");
            return Finding::note(Check::Persistence, found);
        }
        Finding::warning(Check::Persistence, what).advise(
            "set appendonly yes, or let the fencing token decide where two holders would do harm",
        )
    }

    fn replication(&self, subject: &Subject) -> Finding {
        let connected = self.number(1, "connected_slaves:").unwrap_or(0);
        let good = self.number(1, "min_slaves_good_slaves:");
        let least = self.settings[2].as_deref().and_then(|least| least.parse::<u64>().ok());
        let replicas =
            if connected == 1 { "1 replica".to_owned() } else { format!("{connected} replicas") };
        if let Some((good, least)) = good.zip(least).filter(|(good, least)| good < least) {
            let found = format!(
                "min-replicas-to-write is {least}, and {good} replicas are good: writes are refused"
            );
            return Finding::problem(Check::Replication, found).advise("bring the replicas back");
        }
        if let Some(wanted) = subject.replicas {
            if connected < wanted.into() {
                let found = format!("{replicas} of the {wanted} that must acknowledge each grant");
                return Finding::problem(Check::Replication, found)
                    .advise("bring the replicas back");
            }
            return Finding::ok(
                Check::Replication,
                format!("{replicas}; each grant waits for {wanted}"),
            );
        }
        if matches!(subject.part, Part::BehindSentinels | Part::InCluster) && connected == 0 {
            let found = "no replica can take over when this primary fails";
            return Finding::warning(Check::Replication, found).advise("add a replica");
        }
        if matches!(subject.part, Part::Master { .. }) && connected > 0 {
            let found = format!("this master has {replicas}");
            return Finding::note(Check::Replication, found)
                .advise("do not fail over to a replica: a master of Redlock that is replaced forgets its votes");
        }
        if connected > 0 && good.is_none() {
            let found = format!("{replicas}; a failover forgets what they did not have yet");
            return Finding::note(Check::Replication, found).advise(
                "set min-replicas-to-write, or let each grant wait for replicas, if that must happen less often",
            );
        }
        if self.number(1, "connected_slaves:").is_none() {
            return Finding::note(
                Check::Replication,
                "the server does not report how many replicas it has",
            );
        }
        Finding::ok(Check::Replication, replicas)
    }

    fn connections(&self) -> Option<Finding> {
        let connected = self.number(4, "connected_clients:")?;
        let Some(most) = self.number(4, "maxclients:") else {
            return Some(Finding::ok(
                Check::Connections,
                format!("{connected} clients are connected"),
            ));
        };
        let found = format!("{connected} of {most} clients are connected");
        if connected.saturating_mul(10) >= most.saturating_mul(9) {
            return Some(
                Finding::warning(Check::Connections, found)
                    .advise("raise maxclients, or close some"),
            );
        }
        Some(Finding::ok(Check::Connections, found))
    }
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
