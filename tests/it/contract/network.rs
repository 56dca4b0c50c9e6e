//! The network between a client and its servers.

use std::sync::Arc;

use leasehold::Builder;

use super::case::Case;
use crate::rig::{Fault, Proxy, Server, sentinel_of};

/// A server of another kind, which all rows of a test share.
pub(super) trait Elsewhere: Send + Sync {
    fn what(&self) -> &'static str;
    /// Whether it has this primitive.
    fn has(&self, _label: &str) -> bool {
        true
    }
    fn url(&self) -> String;
    /// Sets the defaults that its clients need.
    fn builder(&self, builder: Builder) -> Builder;
    /// Called after the last row.
    fn assert_clean(&self);
    fn network(&self) -> Network;
    /// The contents of the store under a name.
    fn held(&self, name: &str) -> Vec<String>;
    fn delete(&self, name: &str);
    /// Whether another client waits for a name and will be notified of its release. `client`: its
    /// name.
    fn is_waited_for(&self, client: &str, name: &str) -> bool;
}

/// The network between a client and its servers.
pub(super) struct Network {
    pub(super) proxies: Vec<Arc<Proxy>>,
    /// The nodes of a cluster, which announce their proxies; or another URL of the proxy.
    nodes: Vec<String>,
    /// A sentinel that names the proxy as the master.
    sentinel: Option<(Server, String)>,
    /// In front of the proxies, which do not understand TLS.
    #[cfg(feature = "tls")]
    fronts: Vec<crate::rig::TlsFront>,
}

impl Network {
    /// A proxy for another protocol, and the URL that leads to it.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
    pub(super) fn of(proxy: Proxy, url: String) -> Self {
        Self {
            proxies: vec![Arc::new(proxy)],
            nodes: vec![url],
            sentinel: None,
            #[cfg(feature = "tls")]
            fronts: Vec::new(),
        }
    }

    pub(super) fn start(case: &Case) -> Self {
        if let Some(elsewhere) = &case.elsewhere {
            return elsewhere.network();
        }
        let start = if case.primitive.by_sentinel { Proxy::before } else { Proxy::start };
        let in_cluster = case.primitive.in_cluster;
        let proxies: Vec<Arc<Proxy>> = if in_cluster {
            vec![case.server().shared_proxy()]
        } else {
            case.servers.0.iter().map(start).map(Arc::new).collect()
        };
        Self {
            nodes: if in_cluster { case.urls() } else { Vec::new() },
            sentinel: case.primitive.by_sentinel.then(|| sentinel_of(proxies[0].port())),
            #[cfg(feature = "tls")]
            fronts: case
                .certificates
                .iter()
                .flat_map(|certificates| {
                    proxies.iter().map(|proxy| crate::rig::TlsFront::of(certificates, proxy))
                })
                .collect(),
            proxies,
        }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        if let Some((_, url)) = &self.sentinel {
            return vec![url.clone()];
        }
        if !self.nodes.is_empty() {
            return self.nodes.clone();
        }
        #[cfg(feature = "tls")]
        if !self.fronts.is_empty() {
            return self.fronts.iter().map(crate::rig::TlsFront::url).collect();
        }
        self.proxies.iter().map(|proxy| proxy.url()).collect()
    }

    pub(super) fn inject_after(&self, word: &str, skip: u32, fault: Fault) {
        for proxy in &self.proxies {
            proxy.inject_after(word, skip, fault);
        }
    }

    pub(super) fn inject(&self, word: &str, fault: Fault) {
        self.inject_after(word, 0, fault);
    }

    pub(super) fn wait_hits(&self, n: u32) {
        for proxy in &self.proxies {
            proxy.wait_hits(n);
        }
    }

    pub(super) fn silence(&self, silent: bool) {
        for proxy in &self.proxies {
            proxy.silence(silent);
        }
    }
}
