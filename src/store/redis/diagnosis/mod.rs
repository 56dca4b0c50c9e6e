//! What a diagnosis finds out about the servers of a client: one, those behind sentinels, or the
//! primaries of a cluster. Redlock asks each of its masters in the same way.

mod facts;
mod node;
mod questions;
mod rights;
mod subject;

use self::node::examine;
pub(crate) use self::subject::{Part, Subject};
use super::RedisStore;
use super::wire::{Connector, ask_all};
use crate::base::error::{Error, ErrorKind};
use crate::report::diagnosis::Finding;
use crate::store::Diagnose;
use crate::store::findings::{Examined, PATIENCE, lease_of, of_each};

/// Examines all of them side by side: one that hangs costs the others nothing. One result for each,
/// in order.
pub(crate) fn examine_all(connectors: Vec<Connector>, subject: &Subject) -> Vec<Examined> {
    let count = connectors.len();
    let Some(timeout) = connectors.iter().map(|connector| connector.io_timeout).max() else {
        return Vec::new();
    };
    let subject = subject.clone();
    let ask = move |connector: Connector| Ok(examine(&connector, &subject));
    let mut outcomes = ask_all("lh-diagnose", connectors, ask, PATIENCE * timeout, |_| false);
    let of = |place| outcomes.iter().position(|(at, _)| *at == place);
    let places: Vec<Option<usize>> = (0..count).map(of).collect();
    let mut take = |at: Option<usize>| {
        at.and_then(|at| std::mem::replace(&mut outcomes[at].1, Err(too_slow())).ok())
    };
    places.into_iter().map(|at| take(at).unwrap_or_else(|| Examined::failed(&too_slow()))).collect()
}

#[cold]
fn too_slow() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("it did not answer all questions within {PATIENCE} I/O timeouts"),
    )
}

impl RedisStore {
    pub(super) fn examine_servers(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let subject = |part| Subject {
            lease: asked.lease,
            key_prefix: asked.key_prefix.to_owned(),
            part,
            replicas: self.replicas.map(|replicas| replicas.count),
        };
        let (mut findings, connectors, part) = if let Some(cluster) = self.servers.as_cluster() {
            let (findings, connectors) = cluster.examine();
            (findings, connectors, Part::InCluster)
        } else {
            let connector =
                self.servers.as_one().expect("there is no third kind").connector().clone();
            match connector.endpoint.examine() {
                None => (Vec::new(), vec![connector], Part::Alone),
                Some(findings) => {
                    let master = connector.endpoint.find().map(|(endpoint, _)| endpoint);
                    let at = |endpoint| Connector { endpoint, ..connector.clone() };
                    (
                        findings,
                        master.into_iter().map(|endpoint| at(endpoint.into())).collect(),
                        Part::BehindSentinels,
                    )
                }
            }
        };
        let addresses: Vec<String> =
            connectors.iter().map(|connector| format!("{:?}", connector.endpoint)).collect();
        let examined = examine_all(connectors, &subject(part));
        let lease = lease_of(&examined, asked.lease);
        let mut all = of_each(addresses, examined, false);
        all.append(&mut findings);
        all.extend(lease);
        all
    }
}
